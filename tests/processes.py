"""Real processes for tests, without the seconds that importing torch and Flower takes for each.

When all tests are collected, pytest's process has imported nearly everything. A fork of it, the nursery, waits: what a
test starts through `Python`, `run` or `Commands` is forked from there with all modules at hand, becomes a child of the
test's process, and can be killed, interrupted and waited for like any other. What such a process starts itself
(Flower's programs and our workers) comes from a nursery of its own in the same way. Tests of what is imported, and of
what the system runs, start their processes by `subprocess`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import logging
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar, NoReturn

from waiting import PATIENCE, until

COMMON = (
    "pandas",
    "sklearn.cluster",
    "moocore",
    "matplotlib.pyplot",
    "fedpareto.api",
    "fedpareto.runs.progress",
    "fedpareto_page.comparison",
    "fedpareto.cli",
)
"""What a fork had to import itself would take most of its time."""
FLOWER = (
    "flwr.superlink.cli",
    "flwr.supernode.cli",
    "flwr.cli.build",
    "fedpareto_flower.engine.launch",
    "fedpareto_flower.engine.screen",
    "fedpareto_flower.backend",
    "fedpareto_flower.deploy.node",
    "fedpareto_flower.deploy.server",
)
"""The same for a federation, in which the forks' children are forks, too."""
PAGE = ("fedpareto_page.dial_worker", "fedpareto_page.figures", "fedpareto_page.form_worker")
"""The same for the page, whose workers are forks, too."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Flower reads this when it is imported."""
CAN_FORK = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MOST_BYTES = 2**20
"""Of a request, most of which is the environment."""


class Python(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen` for `python …` and for scripts of Python, as a fork of the nursery in a group of its own.

    The modules are at hand besides; with `forks` the processes that it starts by `Processes` are forks, too.
    """

    common: Sequence[str] = COMMON

    def __init__(
        self, command: Sequence[str | Path], *, modules: Sequence[str] = (), forks: bool = False, **options: Any
    ) -> None:
        self._needs = {"modules": [*self.common, *modules], "forks": forks}
        super().__init__([str(word) for word in command], process_group=0, **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):  # type: ignore[no-untyped-def]
        if Nursery.here is None:
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)  # type: ignore[misc]
            return
        pipes = rest[3:9]
        files = [own if given == -1 else given for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {"command": args, "environment": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}
        self.pid = Nursery.here.fork(request | self._needs, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    command: Sequence[str | Path], *, input: str | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` for the same, with text that is captured."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with Python(command, stdin=subprocess.PIPE, **(pipes | options)) as process:
        done = subprocess.CompletedProcess(command, 0, *process.communicate(input, PATIENCE))
        done.returncode = process.returncode
    if check:
        done.check_returncode()
    return done


@dataclass
class Commands:
    """Starts `fedpareto …` as operators do, with these modules at hand."""

    modules: Sequence[str] = ()

    def start(self, arguments: Sequence[str | Path], stderr: Path, afresh: bool = False) -> Command:
        """`fedpareto ARGUMENTS` in a new process; what it prints goes to the file.

        With `afresh` the children of this process import everything themselves, as they do outside tests.
        """
        stderr.write_bytes(b"")
        words = [sys.executable, "-m", "fedpareto", *arguments]
        with stderr.open("ab") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            process = Python(words, modules=self.modules, forks=bool(self.modules) and not afresh, **streams)
        return Command(process, stderr)

    def run(self, arguments: Sequence[str | Path], stderr: Path) -> int:
        """The same to its end; gives back the exit code."""
        return self.start(arguments, stderr).wait()


@dataclass
class Command:
    """One `fedpareto …` process."""

    process: Python
    stderr: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """The exit code (minus the signal's number, if one ended it), None while it runs."""
        return self.process.poll()

    def wait(self) -> int:
        """The exit code, once there is one."""
        until(lambda: self.poll() is not None, self.stderr.read_text)
        code = self.poll()
        assert code is not None
        return code

    def wait_for_text(self, text: str) -> bool:
        """Waits until the process has printed the text; False if it ended before."""

        def is_settled() -> bool:
            return text in self.stderr.read_text() or self.poll() is not None

        until(is_settled, self.stderr.read_text)
        return text in self.stderr.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)


def forked_children(replace: Callable[[object, str, object], None] = setattr) -> None:
    """From now on what this process starts by `Processes` comes from its nursery."""
    from fedpareto_flower.engine.launch import Processes

    def begin(processes: Processes, command: Sequence[str], output: Path) -> Python:
        with output.open("ab") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return Python(command, modules=FLOWER, env=processes.environment(), **streams)

    replace(Processes, "_begin", begin)


def forked_workers(replace: Callable[[object, str, object], None] = setattr) -> None:
    """From now on the page's workers that this process starts come from its nursery."""
    from fedpareto_page import worker

    def begin(self: worker.Worker) -> Python:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
        return Python([sys.executable, "-P", "-m", worker.__name__, self.target], modules=PAGE, **pipes)

    replace(worker.Worker, "_begin", begin)


# -- the nursery ---------------------------------------------------------------------------------------------------


@dataclass
class Nursery:
    """A process that forks on request; what it forks becomes a child of the process that asked."""

    here: ClassVar[Nursery | None] = None
    """This process's own."""
    link: socket.socket
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Threads ask one after the other."""

    @classmethod
    def open(cls) -> None:
        """A fork of this process that ends with it; no other thread of this process may do anything that matters."""
        if not CAN_FORK:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Newer Pythons warn of threads.
            is_nursery = os.fork() == 0
        if is_nursery:
            _nurse(theirs)
        theirs.close()
        cls.here = cls(ours)

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """The number of the new process, which reads and writes these files as its first three."""
        message = json.dumps({**request, "parent": os.getpid()}).encode()
        assert len(message) < MOST_BYTES
        with self.turn:
            _take_in_orphans(True)
            socket.send_fds(self.link, [message], list(files))
            answer = self.link.recv(100)
            _take_in_orphans(False)
        assert answer, "the nursery is gone"
        return int(answer)


def _take_in_orphans(whether: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


def _nurse(link: socket.socket) -> NoReturn:
    """Forks twice for every request: an orphan goes to the process above that takes orphans in."""
    try:
        os.setpgid(0, 0)  # Ctrl-C is not for this process.
        _let_go_of_files(link.fileno())
        _start_over()
        gc.freeze()  # Pages that nobody touches are shared by all forks.
        while True:
            message, files, *_ = socket.recv_fds(link, MOST_BYTES, 3)
            if not message:
                break
            request = json.loads(message)
            _import(request["modules"])
            middle = os.fork()
            if middle == 0:
                middle = os.getpid()
                if os.fork() == 0:
                    _be_child(request, files, middle, link)
                os._exit(0)
            os.waitpid(middle, 0)
            for file in files:
                os.close(file)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _let_go_of_files(kept: int) -> None:
    """What the parent has open is not for us; but the numbers stay taken, for objects that believe to own them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (kept, nowhere):
            with contextlib.suppress(OSError):  # The listing itself is closed by now.
                os.fstat(int(name))
                os.dup2(nowhere, int(name), inheritable=False)


def _start_over() -> None:
    """What pytest has changed in this process is as Python makes it."""
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.root.handlers.clear()
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")  # Of a module that is imported already.
    Nursery.here = None


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        if module not in sys.modules and find_spec(module.partition(".")[0]) is not None:
            with contextlib.suppress(ImportError):  # Whoever needs it will say so.
                importlib.import_module(module)


def _be_child(request: Mapping[str, Any], files: Sequence[int], middle: int, link: socket.socket) -> NoReturn:
    """Waits for its new parent, tells it its number, and becomes what was asked for."""
    try:
        while os.getppid() == middle:
            time.sleep(0.001)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != request["parent"]:
            os._exit(1)  # The parent has ended meanwhile.
        os.setpgid(0, 0)
        link.send(str(os.getpid()).encode())
        link.close()
        for own, given in enumerate(files):
            os.dup2(given, own)
            os.close(given)
        os.chdir(request["cwd"])
        _take_environment(request["environment"])
        sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
        random.seed()
        if request["forks"]:
            Nursery.open()
            forked_workers()
            if set(FLOWER) <= set(request["modules"]):
                forked_children()
        _finish(request["command"])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(120)


def _stream(number: int, mode: str) -> IO[str]:
    return open(number, mode, 1, "utf-8", "strict" if number < 2 else "backslashreplace", closefd=False)


def _take_environment(environment: Mapping[str, str]) -> None:
    """With what is installed where PYTHONPATH points to."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(environment)
    places = os.environ.get("PYTHONPATH", "")
    if places != before:
        sys.path[:0] = filter(None, places.split(os.pathsep))
        importlib.invalidate_caches()
        from fedpareto.contract import registry

        registry.refresh()


def _finish(command: Sequence[str]) -> NoReturn:
    """Runs a program of Python and ends as Python does, with its exit code."""
    code: Any = 0
    try:
        _run(command)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _run(command: Sequence[str]) -> None:
    words = command[1:] if command[0] == sys.executable else command
    match words[words[:1] == ["-u"] :]:  # Python's streams are not buffered here anyway.
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec", dont_inherit=True), main.__dict__)
        case ["-P", "-m", module, *arguments] | ["-m", module, *arguments]:
            sys.argv = [module, *arguments]
            if words[0] != "-P":
                sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *arguments]:
            sys.argv = [file, *arguments]
            sys.path.insert(0, str(Path(file).parent))
            runpy.run_path(file, run_name="__main__")
