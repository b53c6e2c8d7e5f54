"""Values of single clients, round after round: one file of plain numbers, column by column, for any number of clients.

The file is only ever appended to. What lies where is told by the round's row in metrics.jsonl, in `columns`: by name a
block with `at`, the byte it begins at; `type`, of its numbers, such as "<f8"; `shape`, of which the last is the
clients; and `rows`, how many clients these are. Blocks of some clients only say so (`some`) and begin with their
numbers, as "<i4". Where all clients have the same, their column holds it once: the last of `shape` is then 1.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.config.errors import DamagedFile, explained, reading
from fedpareto.config.files import append

Array = NDArray[np.float64]
Row = Mapping[str, Any]

FILE = "columns.bin"
KEY = "columns"
"""Key of a row's blocks, by name."""
NUMBER = "<i4"
"""The type of clients' numbers."""
TYPES = ("<i4", "<i8", "<f4", "<f8")
DEVICE: dict[str, tuple[int, ...]] = {"device_tier": (), "device_seconds": ()}
"""Values of the row of round 0 that say which machine each client has."""
CONTRIBUTION = ("share", "cosine", "change", "gain")
"""Values recorded of each client's reply, where contributions are measured: see trust.contribution."""
IN_MEMORY = 2**24
"""Bytes up to which the values of a run without a folder stay in memory."""
Spans = Sequence[tuple[int, int]]
"""Pieces of a file: where each begins, and its length."""


@dataclass(frozen=True)
class InFile:
    """Values in a run's folder."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def append(self, content: bytes) -> int:
        return append(self.path, content)

    def read_all(self, spans: Spans) -> bytes:
        with explained(f"{self.path} cannot be read"), self.path.open("rb") as file:
            return _read_all(file, spans)


class Nowhere:
    """Values of a run without a folder: in memory, or if they are many, in a temporary file."""

    name = "the run's values"

    def __init__(self, content: bytes = b"") -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed with its owner.
        weakref.finalize(self, self._file.close)
        self.append(content)

    def append(self, content: bytes) -> int:
        begin = self._file.seek(0, os.SEEK_END)
        self._file.write(content)
        return begin

    def read_all(self, spans: Spans) -> bytes:
        return _read_all(self._file, spans)

    def __reduce__(self) -> tuple[type[Nowhere], tuple[bytes]]:
        return Nowhere, (self.read_all([(0, -1)]),)


def _read_all(file: IO[bytes], spans: Spans) -> bytes:
    """The spans of a file, one behind the other."""
    found = []
    for at, length in spans:
        file.seek(at)
        found.append(file.read(length))
    return b"".join(found)


@dataclass(frozen=True, slots=True)
class Block:
    """The place of some clients' values in the file."""

    at: int
    type: str
    shape: tuple[int, ...]
    rows: int
    some: bool = False

    @classmethod
    def parse(cls, entry: object, where: str) -> Block:
        """Read a row's entry, which may be damaged."""
        with reading(where):
            if not isinstance(entry, dict):
                raise TypeError("a block is not an object")
            at, kind, shape, rows = (entry[name] for name in ("at", "type", "shape", "rows"))
            if kind not in TYPES or not shape or any(type(one) is not int or one < 0 for one in (at, rows, *shape)):
                raise ValueError("a block is not where and what it should be")
            if shape[-1] not in (1, rows):
                raise ValueError(f"a block has {shape[-1]} values of {rows} clients")
            return cls(at, intern(kind), tuple(shape), rows, entry.get("some") is True)

    def moved(self, by: int) -> Block:
        return Block(self.at + by, self.type, self.shape, self.rows, self.some)

    def to_plain(self) -> dict[str, Any]:
        plain = {"at": self.at, "type": self.type, "shape": list(self.shape), "rows": self.rows}
        return plain | ({"some": True} if self.some else {})

    @property
    def begins(self) -> int:
        """Byte at which the values begin, behind the clients' numbers."""
        return self.at + (self.rows * np.dtype(NUMBER).itemsize if self.some else 0)

    @property
    def end(self) -> int:
        return self.begins + math.prod(self.shape) * np.dtype(self.type).itemsize


@dataclass(frozen=True, eq=False)
class Evaluated(Mapping[str, Array]):
    """One evaluation of a round: by split `[n, m]`, read when it is asked for; a row of NaN for who was not measured.

    A row whose values are not all finite is one of NaN as well.
    """

    columns: Columns
    block: Block

    def __getitem__(self, split: str) -> Array:
        if split not in self.columns.splits:
            raise KeyError(split)
        return self.columns.spread(self.block, self.columns.splits.index(split))

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.splits)

    def __len__(self) -> int:
        return len(self.columns.splits)


@dataclass(frozen=True, eq=False)
class Columns:
    """Writes and reads the clients' values of one run."""

    source: InFile | Nowhere = field(repr=False)
    clients: int
    """n; clients are numbered from 0."""
    splits: tuple[str, ...]
    objectives: int
    """m."""

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, values: np.ndarray, clients: np.ndarray | None = None) -> dict[str, Any]:
        """Appends values `[k, ...]` of all clients, or of these `[k]`; returns the block, for the row.

        Every number is kept exactly, in as few bytes as that takes.
        """
        return self.put_all([(values, clients)])[0]

    def put_all(self, found: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> list[dict[str, Any]]:
        """Append several values with their clients, one behind the other."""
        blocks, parts, at = list[Block](), list[bytes](), 0
        for values, clients in found:
            rows = len(values)
            some = clients is not None and not (rows == self.clients and np.array_equal(clients, np.arange(rows)))
            columns = _compact(values.transpose(*range(1, values.ndim), 0))
            numbers = np.asarray(clients, dtype=NUMBER).tobytes() if some else b""
            blocks.append(Block(at, columns.dtype.str.replace("=", "<"), columns.shape, rows, some))
            parts += numbers, columns.tobytes()
            at += len(parts[-2]) + len(parts[-1])
        begin = self.source.append(b"".join(parts)) if blocks else 0
        return [block.moved(begin).to_plain() for block in blocks]

    # -- reading ---------------------------------------------------------------------------------------------------

    def block(self, row: Row, name: str) -> Block | None:
        """Return the block of this name in a row, if it has one; `DamagedFile` if the block cannot be right."""
        blocks = _named(row)
        if name not in blocks:
            return None
        entry = blocks[name]
        if isinstance(entry, Block):  # It was checked when it was parsed.
            return entry
        where = f"'{name}' of seed {row.get('seed')}, round {row.get('round')}"
        found = Block.parse(entry, where)
        if found.rows != self.clients and not found.some:
            raise DamagedFile(f"{where} has values of {found.rows} clients; there are {self.clients}")
        if found.shape[:-1] != self._shapes.get(name, found.shape[:-1]):
            raise DamagedFile(f"{where}: a client has {self._shapes[name]} values, not {found.shape[:-1]}")
        return found

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of a client's values by name; an algorithm may add others of any shape."""
        points = len(self.splits), self.objectives
        return {
            "sent": points,
            "trained": points,
            "traffic": (2,),
            "losses": (),
            "participants": (0,),
            "preferences": (self.objectives,),
            "contribution": (len(CONTRIBUTION),),
            **DEVICE,
        }

    def blocks(self, row: Row) -> dict[str, Block]:
        """All blocks of a row, by name; a row that holds these instead is read faster."""
        found = ((name, self.block(row, name)) for name in _named(row))
        return {intern(name): block for name, block in found if block is not None}

    def reaches(self, row: Row) -> int:
        """The length that the file must have for a row to be whole."""
        return max((one.end for one in self.blocks(row).values()), default=0)

    def evaluated(self, row: Row, evaluation: str) -> Evaluated | None:
        """The objectives of the models "sent" or "trained", if they were measured."""
        found = self.block(row, evaluation)
        return None if found is None else Evaluated(self, found)

    def traffic(self, row: Row) -> NDArray[np.int64]:
        """`[n, 2]`: bytes of the tensors in each client's tasks and in its replies."""
        found = self.block(row, "traffic")
        whole = np.zeros((self.clients, 2), dtype=np.int64)
        if found is not None:
            whole[self.who(found)] = self.values(found)
        return whole

    def losses(self, row: Row) -> Array | None:
        """`[n]`, each client's training loss, where it was measured; NaN if it is not finite."""
        found = self.block(row, "losses")
        return None if found is None else self.spread(found)

    def preferences(self, row: Row) -> Array | None:
        """`[n, m]`: what each client wants; in the row of round 0 only, and nowhere if that is private."""
        found = self.block(row, "preferences")
        return None if found is None else self.spread(found)

    def participants(self, row: Row) -> NDArray[np.int64]:
        """`[k]`: the clients whose replies the following round used, where losses were measured."""
        found = self.block(row, "participants")
        return np.zeros(0, dtype=np.int64) if found is None else self.who(found)

    def contributions(self, rows: Iterable[Row]) -> dict[str, Array]:
        """Average each client's contribution over the rounds of these rows, `[n]` by name; empty if it was not
        measured.

        `share` is the mean over the rounds, in which who did not reply had none; `cosine`, `change` and `gain` are
        means over a client's replies; `participation` says how many of its tasks it replied to.
        """
        total, replies, rounds = np.zeros((self.clients, len(CONTRIBUTION))), np.zeros(self.clients), 0
        tasks = np.zeros((self.clients, 2))
        for row in rows:
            tasks += self.traffic(row) > 0
            if (block := self.block(row, "contribution")) is not None:
                total[self.who(block)] += self.values(block)
                replies[self.who(block)] += 1
                rounds += 1
        if not rounds:
            return {}
        with np.errstate(invalid="ignore"):  # Who never replied, or was never asked.
            means = total / replies[:, None]
            participation = np.minimum(tasks[:, 1] / tasks[:, 0], 1.0)
        found = dict(zip(CONTRIBUTION, means.T, strict=True))
        return {**found, "share": total[:, 0] / rounds, "participation": participation}

    def described(self, row: Row, name: str) -> Any:
        """Return what an algorithm or a defence reports: the row's own value, or if that is too long for a row, an
        array.

        That is `[n, ...]`, or clients `[k]`. None if they do not tell it.
        """
        if name in row:
            return row[name]
        found = self.block(row, name)
        if found is None:
            return None
        return self.values(found) if math.prod(found.shape) else self.who(found)

    def who(self, block: Block) -> NDArray[np.int64]:
        """`[k]`: the clients of a block."""
        if not block.some:
            return np.arange(self.clients)
        found = np.frombuffer(self._read(block.at, block.begins - block.at), dtype=NUMBER).astype(np.int64)
        if len(found) and not (found.min() >= 0 and found.max() < self.clients):
            raise DamagedFile(f"{self.source.name} is damaged: it names a client that is not one of {self.clients}")
        return found

    def values(self, block: Block, part: int | None = None) -> np.ndarray:
        """`[k, ...]`: the values of a block's clients, of one `part` of the first dimension or of all."""
        kind, shape, begin = np.dtype(block.type), block.shape, block.begins
        if part is not None:
            shape = shape[1:]
            begin += part * math.prod(shape) * kind.itemsize
        with reading(self.source.name):
            found = np.frombuffer(self._read(begin, math.prod(shape) * kind.itemsize), dtype=kind).reshape(shape)
            exact = found.astype(np.int64 if kind.kind == "i" else np.float64)
            return np.ascontiguousarray(np.moveaxis(np.broadcast_to(exact, (*shape[:-1], block.rows)), -1, 0))

    def spread(self, block: Block, part: int | None = None) -> Array:
        """`[n, ...]`: the same for all clients, NaN for those without values."""
        found = self.values(block, part)
        if not block.some:
            return found
        with reading(self.source.name):
            whole = np.full((self.clients, *found.shape[1:]), np.nan)
            whole[self.who(block)] = found
            return whole

    def stacked(self, rows: Sequence[Row], name: str, part: int | None = None) -> Array:
        """`[k, ..., n]`: `spread` of the blocks of k rows at once, clients last; NaN where a row has no such block."""
        blocks = {place: block for place, row in enumerate(rows) if (block := self.block(row, name)) is not None}
        inner = next((block.shape[:-1] for block in blocks.values()), self._shapes.get(name, ()))
        whole = np.full((len(rows), *(inner if part is None else inner[1:]), self.clients), np.nan)
        alike: dict[tuple[str, tuple[int, ...], bool], list[int]] = {}
        for place, block in blocks.items():
            alike.setdefault((block.type, block.shape, block.some), []).append(place)
        for (kind, of_all, some), places in alike.items():
            shape = of_all if part is None else of_all[1:]
            size = math.prod(shape) * np.dtype(kind).itemsize
            content = self.source.read_all([(blocks[at].begins + (part or 0) * size, size) for at in places])
            with reading(self.source.name):
                found = np.frombuffer(content, kind).reshape(len(places), *shape)
                if not some:
                    whole[places] = found
                for place, values in zip(places, found, strict=True) if some else ():
                    whole[place][..., self.who(blocks[place])] = values
        return whole

    def _read(self, at: int, length: int) -> bytes:
        found = self.source.read_all([(at, length)])
        if len(found) < length:
            raise DamagedFile(f"{self.source.name} is damaged: it ends before byte {at + length}")
        return found


def _named(row: Row) -> Mapping[str, Any]:
    blocks = row.get(KEY)
    if blocks is not None and not isinstance(blocks, dict):
        raise DamagedFile(f"seed {row.get('seed')}, round {row.get('round')}: '{KEY}' is not an object")
    return blocks or {}


def in_folder(folder: Path, clients: int, splits: Sequence[str], objectives: int) -> Columns:
    return Columns(InFile(folder / FILE), clients, tuple(splits), objectives)


def _compact(columns: np.ndarray) -> np.ndarray:
    """Turn numbers into the smallest type that holds all exactly; into one column if all clients have the same."""
    if columns.shape[-1] > 1 and (columns == columns[..., :1]).all():
        columns = columns[..., :1]
    int4, int8, float4, float8 = TYPES
    if columns.dtype.kind in "iub":
        small = columns.astype(int4, order="C")
        return small if (small == columns).all() else columns.astype(int8, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        small = np.ascontiguousarray(columns, dtype=float4)
    is_exact = (small == columns) | np.isnan(columns)
    return small if is_exact.all() else np.ascontiguousarray(columns, dtype=float8)
