"""Limits of what is read of others' files: a small file must not fill the memory or a day.

Sizes are looked at first, structure while it is read. What a limit would refuse of your own can be made smaller, or
split; each message says how much is read.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Any

from fedpareto.config.errors import UserError

if TYPE_CHECKING:
    import zipfile
    from gzip import GzipFile

FILE = 2**34
"""Bytes of any file."""
JSON = 2**28
"""Bytes of a JSON text."""
SPEC, SPEC_VALUES = 2**20, 50_000
"""Bytes of a text of YAML, and values in it: a preference for each of 10,000 clients."""
TENSORS = 100_000
"""Tensors of a model or a checkpoint."""
WEIGHTS, DIMENSIONS = 10_000, 8
"""Tensors of one network in ONNX or NNEF, and dimensions of each."""
GRAPH, NUMBERS = 2**22, 2**28
"""Bytes of the text of a network, and numbers of any tensor that it computes."""
COLUMNS, LINE = 5_000, 2**24
"""Columns of a table, each of which takes a millisecond however few its rows are, and bytes of a line of it."""
SMALL, TIMES = 2**27, 200
"""Bytes that packed content may become, or its growth if that is more. Texts of numbers become ten times as large, a
thousand times only those that say the same again and again.
"""
BLOCK = 2**20
"""Bytes that are read at a time."""


def unpacked(packed: int) -> int:
    """Bytes that so many packed ones may become."""
    return min(FILE, max(SMALL, TIMES * packed))


def must_fit(size: int, most: int, what: str) -> None:
    if size > most:
        raise UserError(f"{what} has more than {most:,} bytes, and no more are read")


def whole(file: IO[bytes] | GzipFile, most: int, what: str) -> bytes:
    """Read all of a file, or raise UserError before more than `most` bytes and a block are in memory."""
    found = io.BytesIO()
    while piece := file.read(BLOCK):
        found.write(piece)
        must_fit(found.tell(), most, what)
    return found.getvalue()


def must_unpack(archive: zipfile.ZipFile, packed: int, what: str) -> None:
    """Raises UserError if the files of an archive, which takes `packed` bytes, would be too large."""
    must_fit(sum(one.file_size for one in archive.infolist()), unpacked(packed), f"{what}, once it is unpacked,")


class Lines(io.RawIOBase):
    """The bytes of a text: UserError from the byte on with which it, or a line of it, is too long."""

    def __init__(self, file: IO[bytes], most: int, what: str) -> None:
        self._file, self._most, self._what = file, most, what
        self._read = self._began = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        if end >= 0:
            self._began = self._read + end
        self._read += len(piece)
        must_fit(self._read, self._most, f"{self._what}, once it is unpacked,")
        must_fit(self._read - self._began, LINE, f"a line of {self._what}")
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()
