"""Stores from which files are sent, and into which they are received: by offset, so that they may be larger than
memory.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Protocol

import fastcrc
import numpy as np

from fedpareto.config.errors import UserError

CHUNK = 1 << 16
"""Bytes that are read at once for a checksum."""

CHECKSUMS = {"modular": 0, "crc-32c": 2, "crc-32": 3, "null": 15}
"""Checksums of whole files, with their numbers in the SANA registry of checksum identifiers."""


class Source(Protocol):
    """A file that is sent."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Some of them; an `OSError` if that cannot be done."""


class Sink(Protocol):
    """A file that is received. No byte is written twice, unless `restart` is called in between."""

    def write(self, offset: int, data: bytes) -> None:
        """Keep some bytes; an `OSError` if that cannot be done."""

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that have been written."""

    def restart(self) -> None:
        """Forget all bytes: they were damaged."""

    def close(self, complete: bool) -> None:
        """The transaction is over; what is not complete is discarded."""


class BytesSource:
    """A message in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class BytesSink:
    """A message that is put together in memory, of which only received bytes take room."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}
        self._whole: bytes | None = None

    def write(self, offset: int, data: bytes) -> None:
        self._pieces[offset], self._whole = data, None

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    def restart(self) -> None:
        self._pieces.clear()
        self._whole = None

    def close(self, complete: bool) -> None:
        if not complete:
            self.restart()

    @property
    def data(self) -> bytes:
        if self._whole is None:
            self._whole = b"".join(self._pieces[offset] for offset in sorted(self._pieces))
        return self._whole


class FileSource:
    """A file on a disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()


class FileSink:
    """A file on a disk, under another name until it is complete."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._file = self._part.open("w+b")

    def write(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)

    def read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    def restart(self) -> None:
        self._file.truncate(0)

    def close(self, complete: bool) -> None:
        """Give the complete file its name, or remove it."""
        self._file.close()
        if complete:
            self._part.replace(self._path)
        else:
            self._part.unlink()


class Checksum:
    """A checksum of a file that is read from its beginning to its end (CCSDS 727.0-B-5, 4.2.2)."""

    def __init__(self, kind: int) -> None:
        if kind not in CHECKSUMS.values():
            raise UserError(f"checksum {kind} is unknown; known: {', '.join(map(str, CHECKSUMS.values()))}")
        self._kind, self._value, self._left = kind, 0, b""

    def update(self, data: bytes) -> None:
        if self._kind == CHECKSUMS["crc-32"]:
            self._value = zlib.crc32(data, self._value)
        elif self._kind == CHECKSUMS["crc-32c"]:
            self._value = fastcrc.crc32.iscsi(data, self._value)
        elif self._kind == CHECKSUMS["modular"]:
            data = self._left + data
            whole = len(data) // 4 * 4
            self._value += int(np.frombuffer(data[:whole], ">u4").sum(dtype=np.uint64))
            self._left = data[whole:]

    @property
    def value(self) -> int:
        rest = int.from_bytes(self._left.ljust(4, b"\0"), "big") if self._left else 0
        return (self._value + rest) % 2**32


def checksum_of(kind: int, file: Source | Sink, size: int) -> int:
    found = Checksum(kind)
    for offset in range(0, size, CHUNK):
        found.update(file.read(offset, min(CHUNK, size - offset)))
    return found.value
