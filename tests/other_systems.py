"""Takes from this process what Windows does not have, and gives it what Windows has instead.

Run as a script it does so and then runs the commands that come on its standard input, one a line, without `fedpareto`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import types

GIGABYTES = 6


def become_windows() -> None:
    import fcntl

    import fedpareto.config.files

    msvcrt = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.LK_UNLCK = 2, 0

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (count, os.lseek(descriptor, 0, os.SEEK_CUR)) == (1, 0), "a byte at the beginning is what we lock"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN if mode == msvcrt.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    msvcrt.locking = locking
    sys.modules |= {"msvcrt": msvcrt, "fcntl": None, "resource": None, "pwd": None, "grp": None}

    def memory(status: object) -> int:
        status._obj.physical = GIGABYTES * 10**9
        return 1

    kernel32 = types.SimpleNamespace(GlobalMemoryStatusEx=memory)
    ctypes.windll = types.SimpleNamespace(kernel32=kernel32)
    for name in ("sysconf", "sched_getaffinity", "getpgid", "killpg", "fork", "setsid"):
        delattr(os, name)
    for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        delattr(signal, name)
    _without_open_files()
    fedpareto.config.files.WINDOWS = True


def _without_open_files() -> None:
    """Windows neither deletes nor replaces a file that is open or mapped, even by the same process."""
    replace, unlink = os.replace, os.unlink

    def must_be_closed(path: object) -> None:
        name = os.path.realpath(path)
        descriptors = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        is_open = any(os.path.realpath(link) == name for link in descriptors if os.path.lexists(link))
        with open("/proc/self/maps", encoding="utf-8") as maps:
            if is_open or any(line.rstrip("\n").endswith(f" {name}") for line in maps):
                raise PermissionError(errno.EACCES, "the file is used by another process", str(path))

    def checked_replace(source: object, target: object) -> None:
        must_be_closed(source)
        must_be_closed(target)
        replace(source, target)

    def checked_unlink(path: object, **options: object) -> None:
        must_be_closed(path)
        unlink(path, **options)

    os.replace, os.unlink = checked_replace, checked_unlink


def _answer(arguments: list[str]) -> None:
    from fedpareto.cli import main

    sys.argv = ["fedpareto", *arguments]
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        print(f"exit code {ended.code}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    become_windows()
    for line in sys.stdin.read().splitlines():
        _answer(line.split())
