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

from fedpareto.config import limits
from fedpareto.config.errors import UserError

Made = TypeVar("Made")
Blocks = Mapping[str, Mapping[str, Mapping[str, Made]]]
"""Cells by block, row and column."""

FILE = "published.toml"
MOST = 2**20
"""Bytes of a file."""
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
    """Factors by which columns were multiplied; empty: none."""
    about: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """Experimental setting, such as the number of clients."""

    def of(self, make: Callable[..., Made]) -> dict[str, dict[str, dict[str, Made]]]:
        """Make a value of each cell's numbers, by block, row and column."""
        return {
            block: {row: {column: make(*cell) for column, cell in cells.items()} for row, cells in rows.items()}
            for block, rows in self.blocks.items()
        }

    def rows(self, make: Callable[..., Made]) -> dict[str, dict[str, Made]]:
        """Do so in a table without blocks: values by row and column."""
        return self.of(make)[""]

    def by_column(self, make: Callable[..., Made]) -> dict[str, dict[str, Made]]:
        """Do so in a table without blocks: values by column and row."""
        rows = self.rows(make)
        return {column: {row: cells[column] for row, cells in rows.items()} for column in self.columns}


def value(number: Any) -> Any:
    """For tables whose cells are one number."""
    return number


def read(package: str) -> dict[str, Table]:
    """The tables of a package, such as fedpareto_papers.fedfew, by name."""
    return parse(content(package, FILE), package)


def content(package: str, name: str) -> dict[str, Any]:
    """The content of a small TOML file of a package."""
    with (files(package) / name).open("rb") as file:
        text = limits.whole(file, MOST, f"{package}/{name}").decode()
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{package}/{name}: {problem}") from None


def parse(content: dict[str, Any], where: str) -> dict[str, Table]:
    """The tables in the content of a file; raises UserError with the place of the first error."""
    paper = content.pop("paper", None)
    if not isinstance(paper, str) or not paper:
        raise UserError(f"{where}: the paper is missing")
    return {name: _table(dict(given), paper, f"{where}: {name}") for name, given in content.items()}


def _table(given: dict[str, Any], paper: str, where: str) -> Table:
    source, columns, rows = (given.pop(key, None) for key in ("source", "columns", "rows"))
    if not (source and columns and rows):
        raise UserError(f"{where} needs source, columns and rows")
    if len(set(columns)) < len(columns):
        raise UserError(f"{where} has a column twice")
    times, cell = given.pop("times", []), given.pop("cell", None)
    unknown = given.keys() - {"about", "setting"}
    if unknown:
        raise UserError(f"{where} has an unknown key, {min(unknown)}")
    if times and len(times) != len(columns):
        raise UserError(f"{where} has {len(times)} factors for {len(columns)} columns")
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
    if not isinstance(given, list) or len(given) != columns:
        raise UserError(f"{where} has not {columns} cells, one for each column")
    found = [tuple(one) if isinstance(one, list) else (one,) for one in given]
    for numbers in found:
        if len(numbers) != len(cell or [""]):
            raise UserError(f"{where}: a cell is {' and '.join(cell or ['one number'])}, not {numbers}")
        if not all(isinstance(number, int | float) and not math.isinf(number) for number in numbers):
            raise UserError(f"{where}: {numbers} are not all numbers")
    if not times:
        return found
    return [
        tuple(round(number * factor, DIGITS) for number in numbers)
        for numbers, factor in zip(found, times, strict=True)
    ]
