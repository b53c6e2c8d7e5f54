"""Files that are read again and again: one that is replaced as a whole, and one that lines are appended to.

Whether there is anything to read is decided by the file's size, time and number alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedpareto.config.errors import DamagedFile, explained
from fedpareto.config.files import must_be_ordinary, parse_json
from fedpareto.record.run_files import as_object

Found = TypeVar("Found")
Signature = tuple[int, int, int]

EVERYTHING = -1
"""Instead of a number of bytes."""
LAST = 2**17
"""Bytes among which a file's last line is looked for."""
REMEMBERED = 4096
"""Bytes before the end of what was read: if they are others now, the file was cut and written anew."""


def signature(path: str) -> Signature | None:
    """Size, time and number of a file, which change when it does; None without one."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


class Kept(Generic[Found]):
    """The parsed content of a file, read again only when the file was replaced."""

    def __init__(self, path: Path, read: Callable[[Path], Found]) -> None:
        self.path, self._read = path, read
        self._name = str(path)
        self.seen: Signature | None = None
        """Signature at the last look; None if there was no file."""
        self._is_looked_at = False
        self._found: Found | DamagedFile | None = None

    def look(self) -> bool:
        """Return True if the file is another since the last look."""
        before, self.seen = self.seen, signature(self._name)
        is_new = before != self.seen or not self._is_looked_at
        self._is_looked_at = True
        if is_new:
            self._found = None
        return is_new

    @property
    def value(self) -> Found:
        """The content at the last look; raises what is wrong with it."""
        if self._found is None:
            try:
                self._found = self._read(self.path)
            except DamagedFile as problem:  # Anything else may be over the next time.
                self._found = problem
        if isinstance(self._found, DamagedFile):
            raise self._found
        return self._found


@dataclass(frozen=True)
class Added:
    """New lines of a file."""

    again: bool
    """True if the file was cut, or written anew, and begins with these."""
    texts: tuple[tuple[int, bytes], ...]
    """Lines with their numbers, counted from 1; none is empty."""


NOTHING = Added(False, ())


class Growing:
    """A file that lines are appended to, and that may be cut; what follows the last line break waits."""

    def __init__(self, path: Path) -> None:
        self.path, self._name = path, str(path)
        self.seen: Signature | None = None
        """Signature at the last look; None if there was no file."""
        self._number = 0
        self._end = b""
        self.offset = 0
        """Bytes that were read as whole lines."""
        self.rest = b""
        """The beginning of a line that is not whole yet."""

    @property
    def left(self) -> int:
        size = self.seen[0] if self.seen else 0
        return max(0, size - self.offset - len(self.rest))

    def read(self, most: int = EVERYTHING) -> Added:
        """Return the lines that were added since the last time, not many more than `most` bytes of them."""
        now = signature(self._name)
        if now == self.seen and not self.left:
            return NOTHING
        if now is None:
            again = self.offset > 0
            self._forget()
            return Added(again, ())
        with explained(f"{self.path} cannot be read"):
            must_be_ordinary(self.path)
            with self.path.open("rb") as file:
                again = self._is_another(now, file)
                if again:
                    self._forget()
                file.seek(self.offset)
                content = file.read(most) + file.readline() if most else b""
                is_end = bool(most) and not file.read(1)
        self.seen = now
        return Added(again, tuple(self._split(content, is_end)))

    def _split(self, content: bytes, is_end: bool) -> list[tuple[int, bytes]]:
        *whole, rest = content.split(b"\n")
        breaks = len(whole)
        if is_end and _is_whole(rest):
            whole, rest = [*whole, rest], b""
        found = [(number, text) for number, text in enumerate(whole, start=self._number + 1) if text.strip()]
        done = len(content) - len(rest)
        self._number += breaks
        self.offset += done
        self._end = (self._end + content[:done])[-REMEMBERED:]
        self.rest = rest if is_end else b""
        return found

    def _is_another(self, now: Signature, file: Any) -> bool:
        """Return True if what was read is not in the file any more."""
        if not self.offset or self.seen is None:
            return False
        if now[0] < self.offset or now[2] != self.seen[2]:
            return True
        file.seek(self.offset - len(self._end))
        return bool(file.read(len(self._end)) != self._end)

    def _forget(self) -> None:
        self.seen, self._number, self._end, self.offset, self.rest = None, 0, b"", 0, b""


def objects(found: Added, path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object of some lines with its place."""
    for number, text in found.texts:
        where = f"{path}, line {number}"
        yield as_object(parse_json(text, where), where), where


def json_lines(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object of a file with its line; a last line truncated by a crash is left out."""
    return objects(Growing(path).read(), path)


def last_object(path: Path) -> dict[str, Any]:
    """Return the last whole line of a file that is still to be read; empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(-min(LAST, file.seek(0, os.SEEK_END)), os.SEEK_END)
            text = file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return as_object(parse_json(text, str(path)), str(path))
    except (OSError, DamagedFile):
        return {}


def _is_whole(text: bytes) -> bool:
    """Return True if only the line break of an object is missing: no beginning of one is an object itself."""
    if not text.rstrip().endswith(b"}"):
        return False
    try:
        parse_json(text, "")
    except DamagedFile:
        return False
    return True
