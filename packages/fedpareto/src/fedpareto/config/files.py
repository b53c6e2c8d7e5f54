"""Reading what may be damaged, atomic writes and file locks, the same on Linux, macOS and Windows."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
import shlex
import stat
import subprocess
import sys
import time
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from fedpareto.config import limits
from fedpareto.config.errors import DAMAGE, DamagedFile, UserError, explained, in_words

try:
    from lzma import LZMAError
except ImportError:  # A Python that was built without it.
    LZMAError = zlib.error  # type: ignore[misc, assignment]

ARCHIVE_DAMAGE = (
    *(OSError, zipfile.BadZipFile, zlib.error, LZMAError),
    *(SyntaxError, SystemError, tokenize.TokenError),
    *DAMAGE,
)
"""Exceptions that a damaged archive or array makes Python and numpy raise: parts may be packed by zlib, bz2 (OSError)
or lzma, and the header of an array is Python's syntax.
"""
PART = ".part"
"""Suffix of a file being written; a killed process may leave one behind."""
WINDOWS = sys.platform == "win32"
NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
"""Errors of a file system without locks, as some clusters have."""
HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""Errors if another process holds a lock: Linux and macOS raise the first, Windows the others."""
PAUSE = 0.02
"""Seconds between two attempts."""
LOOKS = 5
"""Attempts after which a lock counts as held: a mere check releases it at once."""
MOST_DIGITS = 300
"""Most digits of a whole number in a file: with more, it is no float."""
HALF_A_LETTER = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""In JSON, a letter in two halves; one of them alone cannot be written to any file."""
READS = 50
"""Attempts to replace a file that another process may be reading."""


# -- reading -------------------------------------------------------------------------------------------------------


def read_bytes(path: Path, what: str = "", most: int = limits.FILE) -> bytes:
    """Read a file, or raise UserError: also for a pipe or a device, which might never end, and for a large file."""
    with explained(f"{what}{path} cannot be read"):
        must_be_ordinary(path)
        limits.must_fit(path.stat().st_size, most, f"{what}{path}")
        with path.open("rb") as file:
            return limits.whole(file, most, f"{what}{path}")  # Files of the system say that they have 0 bytes.


def must_be_ordinary(path: Path) -> None:
    """Raises OSError if a path is neither a file nor a folder: a reader of a pipe may wait for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file")


def read_json(path: Path) -> Any:
    return parse_json(read_bytes(path, most=limits.JSON), str(path))


def read_object(path: Path) -> dict[str, Any]:
    return parse_object(read_bytes(path, most=limits.JSON), str(path))


def parse_object(content: bytes | str, where: str) -> dict[str, Any]:
    found = parse_json(content, where)
    if not isinstance(found, dict):
        raise DamagedFile(f"{where} is damaged: it holds no object")
    return found


def parse_json(content: bytes | str, where: str) -> Any:
    """Parse a JSON text; `where` is named if it is damaged. No number in it is too large for a float."""
    try:
        found = json.loads(content, parse_int=_whole_number)
        if HALF_A_LETTER.search(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")):
            must_be_whole_letters(found)
        return found
    except (ValueError, RecursionError) as problem:
        raise DamagedFile(f"{where} is damaged: not valid JSON ({in_words(problem)})") from None


def must_be_whole_letters(value: Any) -> None:
    """ValueError if a text in it holds half a letter: JSON can, and no file and no answer in UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it holds half a letter, a lone surrogate") from None


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number in it has {len(digits)} digits")
    return int(digits)


# -- writing -------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file so that a reader, or a crash, finds the old one or the new one and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}{PART}")
    with explained(f"{path} cannot be written"):
        try:
            temporary.unlink(missing_ok=True)  # Left by a killed process, or a link to something else.
            with for_writing(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def append(path: Path, content: bytes) -> int:
    """Add bytes at the end of a file; return where they begin."""
    with explained(f"{path} cannot be written"), for_writing(path, "ab") as file:
        file.write(content)
        return file.tell() - len(content)


def for_writing(path: Path, mode: str) -> IO[bytes]:
    """Opens a file to write, append ("ab") or make it ("xb"), but never through a link: OSError if it is one."""

    def opener(name: str, flags: int) -> int:
        try:
            return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a link to another file", name) from None
            raise

    return open(path, mode, opener=opener)


def cut(path: Path, length: int) -> None:
    """Drop what is beyond a length."""
    with for_writing(path, "rb+") as file:
        file.truncate(length)


def must_hold_no_links(folder: Path) -> None:
    """Raises UserError if something in a folder is a link: continued work would be written elsewhere."""
    for where, folders, names in os.walk(folder):
        for path in (Path(where, name) for name in [*folders, *names]):
            if path.is_symlink():
                raise UserError(f"{path} is a link, through which other files would be written; put the file there")


def replace(source: Path, target: Path) -> None:
    """Moves a file to its place in one step. Windows refuses while another process reads the old one: then it is
    repeated.
    """
    for attempt in range(READS):
        try:
            os.replace(source, target)
        except PermissionError:
            if not WINDOWS or attempt == READS - 1:
                raise
            time.sleep(PAUSE)
        else:
            return


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on; an older one is replaced."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless it is there."""
    with explained(f"the folder {path} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)


def free_folder(parent: Path, name: str) -> Path:
    """A new folder parent/name, or the first of name-2, name-3, … that does not exist yet."""
    while True:
        folder = free_path(parent, name)
        with explained(f"the folder {folder} cannot be made"), suppress(FileExistsError):
            folder.mkdir(parents=True)  # Fails if another process was faster.
            return folder
        if not parent.is_dir():
            raise UserError(f"the folder {folder} cannot be made: {parent} is not a folder")


def free_path(parent: Path, name: str) -> Path:
    """parent/name, or the first of name-2, name-3, … where there is nothing yet."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(path for path in (parent / one for one in itertools.chain([name], numbered)) if not path.exists())


def need_posix(what: str) -> None:
    """Raises UserError on Windows, for what needs the processes and signals of other systems."""
    if WINDOWS:
        raise UserError(f"{what} needs Linux or macOS; on Windows it runs in WSL, the Windows Subsystem for Linux")


def python(module: str, *words: str) -> list[str]:
    """The command of a module of ours in a process of its own: no module comes from the folder where the user stands,
    which may be somebody else's.
    """
    return [sys.executable, "-P", "-m", module, *words]


def quoted(*words: Path | str) -> str:
    """Paths and other words as they can be pasted into this system's shell."""
    texts = [str(word) for word in words]
    return subprocess.list2cmdline(texts) if WINDOWS else shlex.join(texts)


def json_text(value: Any, **style: Any) -> str:
    """JSON that every reader understands: NaN and infinity become null."""
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False, **style)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- locks ---------------------------------------------------------------------------------------------------------


class Lock:
    """A lock file that one process at a time holds; the system releases it when that process ends, however it ends. A
    file system without locks excludes no one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def take(self, patiently: bool = False) -> bool:
        """Try to hold the lock. False: another process holds it; `patiently` waits until it is released."""
        file = for_writing(self.path, "ab")
        try:
            for attempt in itertools.count(1):
                if _locked(file):
                    self._file = file
                    break
                if attempt >= LOOKS and not patiently:
                    break
                time.sleep(PAUSE)
        finally:
            if self._file is not file:
                file.close()
        return self._file is file

    def is_held(self) -> bool:
        """Return True if a process holds it, this one or another; checking does not block others."""
        try:
            with self.path.open("rb") as file:
                is_free = _locked(file, shared=True)
                if is_free:
                    _unlock(file)
        except OSError:
            return False
        return not is_free

    def release(self) -> None:
        if self._file is not None:
            _unlock(self._file)
            self._file.close()
            self._file = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *trouble: object) -> None:
        self.release()


def _locked(file: IO[bytes], shared: bool = False) -> bool:
    """Try to lock the file; `shared` with all others that only share it."""
    fcntl, msvcrt = _modules()
    try:
        if fcntl is not None:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        else:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError as problem:
        if problem.errno in HELD:
            return False
        if problem.errno not in NO_LOCKS_HERE:
            raise
    return True


def _unlock(file: IO[bytes]) -> None:
    """Unlock at once: Windows may take its time when a file is merely closed."""
    fcntl, msvcrt = _modules()
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
        else:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)


def _modules() -> tuple[Any, Any]:
    """Import the module that locks files here: fcntl, or where there is none, as on Windows, msvcrt."""
    try:
        return import_module("fcntl"), None
    except ImportError:
        return None, import_module("msvcrt")
