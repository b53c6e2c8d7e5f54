"""Published tables as data: numbers as they are printed, in a file `published.toml` beside the code that reads it.

    paper = "L. M. Hartmann, Multi-Objective Learning in Federation, thesis, University of Luxembourg, 2026"

    [reward]
    source = "table 4.1, page 52"
    columns = ["moll", "dmc"]
    cell = ["mean", "deviation"]       # without it a cell is one number
    times = [1, 10]                    # what each column is multiplied by; without it by nothing

    [reward.rows.dirichlet]            # or [reward.rows], where rows do not fall into blocks
    local = [[14.32, 13.3], [-2.52, 0.9]]

Nothing is computed before everything was checked: a row that is too short is an error, and never another number.
`nan` stands where nothing is printed.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeVar

Made = TypeVar("Made")
Blocks = Mapping[str, Mapping[str, Mapping[str, Made]]]
"""By block, row and column."""

FILE = "published.toml"
DIGITS = 6
"""Kept after multiplication: more than any paper prints, fewer than floating point adds."""


@dataclass(frozen=True)
class Table:
    """A published table."""

    source: str
    """The paper, the table's number and its page; its section where pages are not numbered."""
    columns: tuple[str, ...]
    blocks: Blocks[tuple[Any, ...]]
    """The numbers of each cell, in the units of the problems. A table without blocks has one, called ""."""
    times: Mapping[str, float] = field(default_factory=dict)
    """What each column was multiplied by; empty: nothing."""
    about: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """What the table is of, such as the number of clients."""

    def of(self, make: Callable[..., Made]) -> dict[str, dict[str, dict[str, Made]]]:
        """By block, row and column, `make` of each cell's numbers."""
        return {
            block: {row: {column: make(*cell) for column, cell in cells.items()} for row, cells in rows.items()}
            for block, rows in self.blocks.items()
        }

    def rows(self, make: Callable[..., Made]) -> dict[str, dict[str, Made]]:
        """The same of a table without blocks."""
        return self.of(make)[""]

    def by_column(self, make: Callable[..., Made]) -> dict[str, dict[str, Made]]:
        """The same by column and row."""
        rows = self.rows(make)
        return {column: {row: cells[column] for row, cells in rows.items()} for column in self.columns}


def value(number: Any) -> Any:
    """For tables whose cells are one number."""
    return number


def read(package: str) -> dict[str, Table]:
    """The tables of a package, such as fedpareto_papers.fedfew, by name."""
    return parse((files(package) / FILE).read_text(encoding="utf-8"), package)


def parse(text: str, where: str) -> dict[str, Table]:
    """The tables of a file; raises ValueError with the place of the first error."""
    content = tomllib.loads(text)
    paper = content.pop("paper", None)
    if not isinstance(paper, str) or not paper:
        raise ValueError(f"{where}: the paper is missing")
    return {name: _table(dict(given), paper, f"{where}: {name}") for name, given in content.items()}


def _table(given: dict[str, Any], paper: str, where: str) -> Table:
    source, columns, rows = (given.pop(key, None) for key in ("source", "columns", "rows"))
    if not (source and columns and rows):
        raise ValueError(f"{where} needs source, columns and rows")
    if len(set(columns)) < len(columns):
        raise ValueError(f"{where} has a column twice")
    times, cell = given.pop("times", []), given.pop("cell", None)
    unknown = given.keys() - {"about", "setting"}
    if unknown:
        raise ValueError(f"{where} has an unknown key, {min(unknown)}")
    if times and len(times) != len(columns):
        raise ValueError(f"{where} has {len(times)} factors for {len(columns)} columns")
    blocks = rows if all(isinstance(block, dict) for block in rows.values()) else {"": rows}
    return Table(
        f"{paper}, {source}",
        tuple(columns),
        {
            block: {
                row: dict(zip(columns, _cells(cells, len(columns), cell, times, f"{where}.{block}.{row}"), strict=True))
                for row, cells in named.items()
            }
            for block, named in blocks.items()
        },
        dict(zip(columns, times, strict=True)) if times else {},
        **given,
    )


def _cells(given: Any, columns: int, cell: list[str] | None, times: list[float], where: str) -> list[tuple[Any, ...]]:
    """The cells of a row."""
    if not isinstance(given, list) or len(given) != columns:
        raise ValueError(f"{where} has not {columns} cells, one for each column")
    found = [tuple(one) if isinstance(one, list) else (one,) for one in given]
    for numbers in found:
        if len(numbers) != len(cell or [""]):
            raise ValueError(f"{where}: a cell is {' and '.join(cell or ['one number'])}, not {numbers}")
        if not all(isinstance(number, int | float) and not math.isinf(number) for number in numbers):
            raise ValueError(f"{where}: {numbers} are not all numbers")
    if not times:
        return found
    return [
        tuple(round(number * factor, DIGITS) for number in numbers)
        for numbers, factor in zip(found, times, strict=True)
    ]
