"""Reading a user's table in any format: piece by piece, so that a large one needs little memory.

Texts become codes and a list of values, as pandas' categories; numbers stay numbers. `columns` decides which are which.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.config import limits
from fedpareto.config.errors import DAMAGE, UnknownName, UserError
from fedpareto.inputs import dialect
from fedpareto.problems.fairness.columns import MOST_VALUES, Column, Mixed, Reading, quoted

if TYPE_CHECKING:
    from pandas import DataFrame, Series

PIECE = 100_000
"""Rows that are read at a time."""
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Table:
    """A table as it was read."""

    frame: DataFrame
    source: str
    """Name of the table in messages."""
    notes: tuple[str, ...] = ()
    """Facts recognised, a line each."""
    mixed: Mapping[str, Mixed] = field(default_factory=dict)
    """Columns of numbers that hold texts too; those count as missing."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Columns with more different texts than are kept, and how many were seen."""
    decimal: str = "."
    header_is_row: bool = False

    def require(self, name: str) -> str:
        """The column of that name, ignoring surrounding spaces; UnknownName if there is none."""
        columns = [str(column) for column in self.frame.columns]
        plain = name if name in columns else " ".join(name.split())
        if plain not in columns:
            raise self._unknown(name, columns)
        return plain

    def _unknown(self, name: str, columns: list[str]) -> UserError:
        unknown = UnknownName(f"column of {self.source}", name, columns)
        with_comma = next((column for column in columns if "," in column and name in column), None)
        if with_comma:
            return UserError(f"{unknown}; '{with_comma}' has a comma: in a list, it goes in double quotes")
        if self.header_is_row:
            return UserError(f"{unknown}; its first line looks like a row: add a line with the columns' names above it")
        return unknown

    def ask_about(self, name: str) -> None:
        """Raises UserError if only the user can say what the column is."""
        if name in self.mixed:
            raise UserError(self.mixed[name].question(name, self.source))
        if name in self.names:
            raise UserError(
                f"the column '{name}' of {self.source} has more than {MOST_VALUES:,} different texts; leave it out: "
                f"--set drop={quoted(name)}"
            )


# -- files ---------------------------------------------------------------------------------------------------------


def read(path: Path, how: Reading | None = None) -> Table:
    """A CSV, a Parquet file or a folder of Parquet files; kept until it changes."""
    how = how or Reading()
    try:
        files = _files(path)
        stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from None
    if not files:
        raise UserError(f"{path} cannot be read: it is a folder without a .parquet file")
    if len(files) == 1 and not path.is_dir() and not path.is_file():
        raise UserError(f"{path} cannot be read: it is not a file")
    return _read(path, how, stamps)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = (file for ending in PARQUET for file in path.rglob(f"*{ending}"))
        return sorted(file for file in found if not _is_hidden(file.relative_to(path)))
    path.stat()
    return [path]


def _is_hidden(path: Path) -> bool:
    """As other readers of Parquet folders have it: what begins with a dot or an underscore is no data."""
    return any(part.startswith((".", "_")) for part in path.parts)


@lru_cache(maxsize=8)
def _read(path: Path, how: Reading, stamps: tuple[tuple[int, int], ...]) -> Table:
    import pandas

    is_parquet = path.is_dir() or path.suffix in PARQUET
    try:
        table = _read_parquet(path, how) if is_parquet else _read_csv(path, how)
    except (pandas.errors.ParserError, OSError, *dialect.DAMAGED, *DAMAGE) as problem:
        if isinstance(problem, UserError):
            raise
        reason = " ".join(str(problem).split())
        if isinstance(problem, UnicodeError):
            reason = f"its text is not {how.encoding or 'UTF-8'}; try another one: encoding=…"
        raise UserError(f"{path} cannot be read as {'Parquet' if is_parquet else 'CSV'}: {reason}") from None
    if table.frame.empty:
        raise UserError(f"{path} is empty: it has no rows")
    return table


def _read_csv(path: Path, how: Reading) -> Table:
    found = dialect.recognised(path, how.encoding, how.decimal)
    how = replace(how, decimal=found.decimal)
    _check_names(how, found.names, path.name)
    columns = [Column(name, how) for name in found.names]
    for piece in _pieces(path, found, how):
        for place, column in enumerate(columns):
            column.add(piece.iloc[:, place])
    torn = [place for place, column in enumerate(columns) if column.is_torn]
    for place in torn:
        # Numbers in some pieces, texts in most: all of it is text, and the numbers' original spelling is not known yet.
        again = replace(how, categorical=(*how.categorical, found.names[place]))
        columns[place] = Column(found.names[place], again)
        for piece in _pieces(path, found, again, [place]):
            columns[place].add(piece.iloc[:, 0])
    return replace(
        _table(columns, path.name), notes=found.notes, decimal=found.decimal, header_is_row=found.header_is_row
    )


def _pieces(path: Path, found: dialect.Dialect, how: Reading, only: Sequence[int] | None = None) -> Iterator[DataFrame]:
    """The rows, some at a time; columns by position."""
    import pandas

    as_texts = {place: str for place, name in enumerate(found.names) if name in how.categorical}
    with dialect.stream(path, found) as text, warnings.catch_warnings():
        # A line with more fields than the header has is an error below, whatever pandas makes of it.
        warnings.simplefilter("ignore", pandas.errors.ParserWarning)
        try:
            with pandas.read_csv(
                text,
                sep=found.separator,
                header=None,
                names=list(range(len(found.names))),
                usecols=only,
                dtype=as_texts,
                skipinitialspace=True,
                na_values=sorted(how.gaps),
                keep_default_na=False,
                decimal=found.decimal,
                index_col=False,
                low_memory=False,
                chunksize=PIECE,
            ) as reader:
                yield from reader
        except pandas.errors.EmptyDataError:
            raise UserError(f"{path} is empty: it has no rows") from None
        except pandas.errors.ParserError as problem:
            raise UserError(f"{path} cannot be read as CSV: {_ragged(problem, found)}") from None


def _ragged(problem: Exception, found: dialect.Dialect) -> str:
    counted = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(problem))
    name = dialect.SEPARATOR_NAMES[found.separator]
    if counted:
        line = int(counted[2]) + found.skipped
        return f"line {line} has {counted[3]} fields, the header {counted[1]}; a field with a {name} in it needs quotes"
    if "EOF inside string" in str(problem):
        line = int(match[1]) + found.skipped + 1 if (match := re.search(r"row (\d+)", str(problem))) else 0
        return f"a quote in line {line} is never closed"
    return " ".join(str(problem).split())


def _read_parquet(path: Path, how: Reading) -> Table:
    try:
        from pyarrow import dataset
    except ImportError:
        raise UserError(f"{path}: reading Parquet needs pyarrow: pip install 'fedpareto[parquet]'") from None
    # Other files may lie in the folder; a folder named column=value is a column, as Spark and others write it.
    files = [str(file) for file in _files(path)]
    partitioning = {"partitioning": "hive", "partition_base_dir": str(path)} if path.is_dir() else {}
    found = dataset.dataset(files, format="parquet", **partitioning)
    if len(found.schema) > limits.COLUMNS:
        raise UserError(f"{path} has {len(found.schema):,} columns; {limits.COLUMNS:,} are read at most")
    # Every value takes eight bytes at least, however few they are in the file.
    size, packed = 8 * found.count_rows() * len(found.schema), sum(Path(file).stat().st_size for file in files)
    limits.must_fit(size, limits.unpacked(packed), f"{path}, once it is unpacked,")
    table = found.to_table()
    table.validate(full=True)  # A text that is not UTF-8 would be noticed much later, and in pyarrow's words.
    return of_frame(table.to_pandas(), path.name, how)


def of_frame(frame: DataFrame, source: str, how: Reading | None = None) -> Table:
    how = how or Reading()
    names = dialect.distinct(str(name) for name in frame.columns)
    _check_names(how, names, source)
    columns = []
    for place, name in enumerate(names):
        column = Column(name, how)
        try:
            column.add(frame.iloc[:, place])
        except TypeError:
            raise UserError(
                f"the column '{name}' of {source} holds lists or other objects that are not values; leave it out before"
            ) from None
        if column.is_torn:
            column = Column(name, replace(how, categorical=(*how.categorical, name)))
            column.add(frame.iloc[:, place])
        columns.append(column)
    return _table(columns, source)


def of_frames(frames: Iterator[DataFrame], source: str, how: Reading | None = None) -> Table:
    import pandas

    # Each piece is made compact before the next one is read.
    parts = [of_frame(frame, source, how) for frame in frames if len(frame)]
    if not parts:
        raise UserError(f"{source} is empty: it has no rows")
    if len(parts) == 1:
        return parts[0]
    joined = {}
    for name in parts[0].frame.columns:
        series = [part.frame[name] for part in parts]
        if all(isinstance(one.dtype, pandas.CategoricalDtype) for one in series):
            together = pandas.api.types.union_categoricals([one.array for one in series], sort_categories=True)
            joined[name] = pandas.Series(together)
        else:
            joined[name] = pandas.concat([_plain(one) for one in series], ignore_index=True)
    return of_frame(pandas.DataFrame(joined), source, how)


def _plain(series: Series[Any]) -> Series[Any]:
    return series.astype(object) if series.dtype == "category" else series


def _check_names(how: Reading, names: Sequence[str], source: str) -> None:
    for name in (*how.categorical, *how.numeric):
        if name not in names:
            raise UnknownName(f"column of {source}", name, names)


def _table(columns: Sequence[Column], source: str) -> Table:
    import pandas

    frame = pandas.DataFrame({column.name: column.settled() for column in columns})
    mixed = {column.name: column.mixed for column in columns if column.mixed is not None}
    names = {column.name: len(column.values) for column in columns if column.overfull}
    return Table(frame, source, mixed=mixed, names=names)
