"""Machines and their presence from CSV files, with the line of whatever is wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpareto.clock.machines import COLUMNS, Machine
from fedpareto.clock.presence import Presence
from fedpareto.config.bounds import check
from fedpareto.config.errors import UnknownName, UserError, reading
from fedpareto.config.files import read_bytes
from fedpareto.contract.messages import Ids

CLIENT = "client"


@dataclass(frozen=True)
class Line:
    """A client's numbers in one line of a file."""

    place: str
    """The file and the number of the line."""
    row: int
    """Row of the client among all."""
    numbers: dict[str, float]


def read_machines(path: Path, clients: Ids) -> dict[str, np.ndarray]:
    """The columns of a file of machines, `[n]` each, in the order of the clients, each of whom has one line."""
    found: dict[int, Line] = {}
    for line in _lines(path, COLUMNS, (), clients):
        if line.row in found:
            raise UserError(f"{line.place}: client {clients[line.row]} is there a second time; one line each")
        for name, value in line.numbers.items():
            check(Machine, name, value, f"{line.place}: ")
        found[line.row] = line
    _must_have_all(path, found.keys(), clients)
    names = found[0].numbers
    return {name: np.array([found[row].numbers[name] for row in range(len(clients))]) for name in names}


def read_trace(path: Path, clients: Ids, period: float = math.inf) -> Presence:
    """Read when each client is present; with a finite `period`, over and over again."""
    found: dict[int, list[Line]] = {}
    for line in _lines(path, ("start", "end"), ("start", "end"), clients):
        start, end = line.numbers["start"], line.numbers["end"]
        if not 0 <= start < end:
            raise UserError(f"{line.place}: it is from {start:g} to {end:g}; a start is at least 0 and before its end")
        if end > period:
            raise UserError(f"{line.place}: it ends at {end:g}, after the period of {period:g} that repeats")
        found.setdefault(line.row, []).append(line)
    _must_have_all(path, found.keys(), clients)
    return Presence.of([_in_order(found[row]) for row in range(len(clients))], period)


def _in_order(lines: list[Line]) -> np.ndarray:
    """A client's intervals `[k, 2]`, ascending."""
    lines = sorted(lines, key=lambda line: line.numbers["start"])
    intervals = np.array([(line.numbers["start"], line.numbers["end"]) for line in lines])
    overlaps = np.flatnonzero(intervals[1:, 0] < intervals[:-1, 1])
    if len(overlaps):
        one, other = lines[overlaps[0]], lines[overlaps[0] + 1]
        (start, end), (begin, _) = intervals[overlaps[0]], intervals[overlaps[0] + 1]
        raise UserError(
            f"{other.place}: it starts at {begin:g}, but the same client is present from {start:g} to {end:g} "
            f"by {one.place.rsplit(', ', 1)[1]}; intervals must not overlap"
        )
    return intervals


def _must_have_all(path: Path, rows: Iterable[int], clients: Ids) -> None:
    missing = np.setdiff1d(np.arange(len(clients)), list(rows))
    if len(missing):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{path}: there is no line for client {clients[missing[0]]}{more}; every client needs one")


def _lines(path: Path, known: Sequence[str], needed: Sequence[str], clients: Ids) -> Iterator[Line]:
    """The lines of a CSV file with a column `client` and some of the `known` ones."""
    with reading(str(path)):
        text = read_bytes(path).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header, known, needed)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield _line(f"{path}, line {reader.line_num}", header, cells, clients)
        except csv.Error as problem:
            raise UserError(f"{path}, line {reader.line_num}: {problem}") from None


def _check_header(path: Path, header: list[str], known: Sequence[str], needed: Sequence[str]) -> None:
    for name in (CLIENT, *needed):
        if name not in header:
            raise UserError(f"{path}: there is no column '{name}' in its first line, '{','.join(header)[:80]}'")
    for name in header:
        if name not in (CLIENT, *known):
            raise UnknownName(f"column in {path}:", name, (CLIENT, *known))
        if header.count(name) > 1:
            raise UserError(f"{path}: the column '{name}' is there twice")


def _line(place: str, header: list[str], cells: list[str], clients: Ids) -> Line:
    if len(cells) != len(header):
        raise UserError(f"{place}: it has {len(cells)} cells; the first line has {len(header)}")
    values = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    for name, value in values.items():
        if not value:
            raise UserError(f"{place}: {name} is missing")
    row = _row(place, values.pop(CLIENT), clients)
    return Line(place, row, {name: _number(place, name, value) for name, value in values.items()})


def _row(place: str, text: str, clients: Ids) -> int:
    """Find the client's row among all."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        row = int(np.searchsorted(clients, int(text)))
        if row < len(clients) and clients[row] == int(text):
            return row
    raise UserError(f"{place}: there is no client '{text[:20]}'; they are {clients[0]} to {clients[-1]}")


def _number(place: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UserError(f"{place}: {name} is '{text[:20]}'; it is a number")
    return value
