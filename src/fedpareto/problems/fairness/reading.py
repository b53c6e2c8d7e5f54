"""Reading a user's table in any format: piece by piece, so that a large one needs little memory.

Texts become codes and a list of values, as pandas' categories; numbers stay numbers. A column is one of numbers if most
of its values are. A few texts among them are not categories but errors, markers of missing values, or codes: only the
user knows, so they are counted here, and the user is asked where the column is used.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.core import dialect
from fedpareto.core.inputs import MISSING_TEXTS, as_number
from fedpareto.errors import DAMAGE, UnknownName, UserError
from fedpareto.problems.fairness.labels import as_text

if TYPE_CHECKING:
    from pandas import DataFrame, Series

PIECE = 100_000
"""Rows that are read at a time."""
MOST_VALUES = 100_000
"""A column with more different texts than this is not kept: it identifies rows."""
FEW_TEXTS = 5
"""Texts among numbers that a message names."""
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Reading:
    """The user's options for reading a table."""

    encoding: str = ""
    decimal: str = ""
    missing: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal not in ("", ".", ","):
            raise UserError(f"decimal is '{self.decimal}'; it is . or ,")
        both = [name for name in self.categorical if name in self.numeric]
        if both:
            raise UserError(f"'{both[0]}' is in categorical and in numeric; it can be one of them")

    @property
    def gaps(self) -> frozenset[str]:
        """All texts that mean a missing value."""
        return MISSING_TEXTS | frozenset(self.missing)


@dataclass(frozen=True)
class Mixed:
    """A column of numbers with some texts in it."""

    numbers: int
    texts: Mapping[str, int]
    """The most frequent texts, with their numbers of rows."""
    count: int
    """Rows with such a text."""

    def question(self, name: str, source: str) -> str:
        """What the user has to decide, in one line."""
        shown = ", ".join(f"'{text}'" for text in list(self.texts)[:FEW_TEXTS])
        more = ", …" if len(self.texts) > FEW_TEXTS else ""
        rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
        word = "text" if len(self.texts) == 1 else "texts"
        column = quoted(name)
        gaps = f"missing={quoted(next(iter(self.texts)))}" if len(self.texts) == 1 else f"numeric={column}"
        means = "" if len(self.texts) == 1 else " (what is no number is then missing)"
        return (
            f"the column '{name}' of {source} has {rows} with the {word} {shown}{more} among {self.numbers:,} numbers; "
            f"say {gaps}{means}, or categorical={column}"
        )


@dataclass(frozen=True)
class Table:
    """A table as it was read."""

    frame: DataFrame
    source: str
    """Its name in messages."""
    notes: tuple[str, ...] = ()
    """What was recognised, a line each."""
    mixed: Mapping[str, Mixed] = field(default_factory=dict)
    """Columns of numbers that hold texts too; those count as missing."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Columns with more different texts than are kept, and how many were seen."""
    decimal: str = "."
    header_is_row: bool = False

    def require(self, name: str) -> str:
        """The column of that name, ignoring surrounding spaces; UnknownName if there is none."""
        columns = [str(column) for column in self.frame.columns]
        if name in columns:
            return name
        plain = " ".join(name.split())
        if plain in columns:
            return plain
        raise self._unknown(name, columns)

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
                f"drop={quoted(name)}"
            )


def quoted(name: str) -> str:
    """A name or value as it can be pasted into a shell."""
    return shlex.quote(name)


DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|\d{1,2}[- ][A-Za-z]{3,9}\.?[- ]\d{2,4})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([AaPp][Mm]|Z|[+-]\d{2}:?\d{2})?)?"
)


def are_dates(values: Collection[Any]) -> bool:
    """Whether texts look like days or points in time."""
    some = [str(value) for value in itertools.islice(values, 200)]
    return bool(some) and all(DATE.fullmatch(text) for text in some)


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
    """`stamps` is only part of the cache key."""
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
    columns = [_Column(name, how) for name in found.names]
    for piece in _pieces(path, found, how):
        for place, column in enumerate(columns):
            column.add(piece.iloc[:, place])
    torn = [place for place, column in enumerate(columns) if column.is_torn]
    for place in torn:
        # Numbers in some pieces, texts in most: all of it is text, and the numbers' original spelling is not known yet.
        again = replace(how, categorical=(*how.categorical, found.names[place]))
        columns[place] = _Column(found.names[place], again)
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
    """What is wrong with a line, in our words."""
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
    table = dataset.dataset(files, format="parquet", **partitioning).to_table()
    table.validate(full=True)  # A text that is not UTF-8 would be noticed much later, and in pyarrow's words.
    return of_frame(table.to_pandas(), path.name, how)


def of_frame(frame: DataFrame, source: str, how: Reading | None = None) -> Table:
    """A table that pandas has already."""
    how = how or Reading()
    names = dialect.distinct(str(name) for name in frame.columns)
    _check_names(how, names, source)
    columns = []
    for place, name in enumerate(names):
        column = _Column(name, how)
        try:
            column.add(frame.iloc[:, place])
        except TypeError:
            raise UserError(
                f"the column '{name}' of {source} holds lists or other objects that are not values; leave it out before"
            ) from None
        if column.is_torn:
            column = _Column(name, replace(how, categorical=(*how.categorical, name)))
            column.add(frame.iloc[:, place])
        columns.append(column)
    return _table(columns, source)


def of_frames(frames: Iterator[DataFrame], source: str, how: Reading | None = None) -> Table:
    """A table that comes in pieces, from a database."""
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


def _table(columns: Sequence[_Column], source: str) -> Table:
    import pandas

    frame = pandas.DataFrame({column.name: column.settled() for column in columns})
    mixed = {column.name: column.mixed for column in columns if column.mixed is not None}
    names = {column.name: len(column.values) for column in columns if column.overfull}
    return Table(frame, source, mixed=mixed, names=names)


# -- columns -------------------------------------------------------------------------------------------------------


class _Column:
    """A column that is read piece by piece."""

    def __init__(self, name: str, how: Reading) -> None:
        self.name, self.how = name, how
        self.as_texts, self.as_numbers = name in how.categorical, name in how.numeric
        self.pieces: list[np.ndarray | Series[Any] | None] = []
        """Codes of texts, or numbers with NaN where there is a text."""
        self.is_text: list[bool] = []
        self.values: dict[str, int] = {}
        """The texts in order of first appearance, each with its code."""
        self.numbers, self.texts = 0, 0
        self.strange: Counter[str] = Counter()
        """Texts among numbers."""
        self.overfull = False

    def add(self, series: Series[Any]) -> None:
        """The next rows."""
        from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

        if is_datetime64_any_dtype(series):
            series = series.dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
        if (is_bool_dtype(series) or is_numeric_dtype(series)) and not self.as_texts:
            self._add_numbers(self._without_gaps(series))
        else:
            self._add_texts(series)

    def _without_gaps(self, series: Series[Any]) -> Series[Any]:
        """Applies the user's numbers for missing values, such as -999; in a CSV they are already."""
        marks = [number for text in self.how.missing if (number := as_number(text)) is not None]
        return series.mask(series.isin(marks)) if marks else series

    def _add_numbers(self, series: Series[Any]) -> None:
        self.numbers += int(series.notna().sum())
        self.pieces.append(_small(series))
        self.is_text.append(False)

    def _add_texts(self, series: Series[Any]) -> None:
        import pandas

        codes, uniques = pandas.factorize(series)
        found = [_clean(value, self.how.gaps) for value in uniques.tolist()]
        if not self.as_texts and found and all(value is None or isinstance(value, bool) for value in found):
            self._add_numbers(pandas.Series(pandas.array([*found, None], dtype="boolean")[codes]))
            return
        counts = np.bincount(codes[codes >= 0], minlength=len(found))
        numbers = [None if value is None else as_number(value, self.how.decimal or ".") for value in found]
        are_numbers = np.array([number is not None for number in numbers], dtype=bool)
        present = np.array([value is not None for value in found], dtype=bool)
        of_numbers, of_texts = int(counts[are_numbers].sum()), int(counts[present & ~are_numbers].sum())
        if self.as_texts or (of_texts > of_numbers and not self.as_numbers):
            self._keep_codes(codes, found)
            self.texts += of_numbers + of_texts
            return
        for place in np.flatnonzero(present & ~are_numbers):
            self.strange[as_text(found[place])] += int(counts[place])
        self.numbers += of_numbers
        self.texts += of_texts
        table = np.array([np.nan if number is None else number for number in [*numbers, None]], dtype=float)
        self.pieces.append(table[codes])
        self.is_text.append(False)

    def _keep_codes(self, codes: np.ndarray, found: Sequence[Any]) -> None:
        self.is_text.append(True)
        if self.overfull or len(self.values) + len(found) > 2 * MOST_VALUES:
            self.overfull = True
            self.pieces.append(np.full(len(codes), -1, dtype=np.int8))
            return
        places = [-1 if value is None else self.values.setdefault(as_text(value), len(self.values)) for value in found]
        table = np.array([*places, -1])
        self.pieces.append(table[codes].astype(np.min_scalar_type(-max(len(self.values), 1))))
        self.overfull = len(self.values) > MOST_VALUES

    @property
    def is_torn(self) -> bool:
        """Whether some pieces are texts and some numbers, so that it must be read again as what most of it is."""
        return any(self.is_text) and not all(
            is_text or not _has_values(piece) for is_text, piece in zip(self.is_text, self.pieces, strict=True)
        )

    @property
    def mixed(self) -> Mixed | None:
        """Of a column of numbers, the texts in it."""
        if any(self.is_text) or not self.strange or self.as_numbers:
            return None
        return Mixed(self.numbers, dict(self.strange.most_common(50)), self.strange.total())

    def settled(self) -> Any:
        """The whole column: a category, or numbers."""
        import pandas

        if any(self.is_text):
            codes = np.concatenate(
                [
                    piece if is_text and isinstance(piece, np.ndarray) else np.full(_length(piece), -1, dtype=np.int8)
                    for is_text, piece in zip(self.is_text, self.pieces, strict=True)
                ]
            )
            self.pieces = []
            values = np.array(list(self.values), dtype=object) if not self.overfull else np.array([], dtype=object)
            order = np.argsort(values.astype(str), kind="stable") if len(values) else np.array([], dtype=int)
            rank = np.append(np.argsort(order), -1)
            codes = np.full(len(codes), -1) if self.overfull else rank[codes]
            return pandas.Categorical.from_codes(codes, categories=pandas.Index(values[order], dtype=object))
        pieces = [pandas.Series(piece) for piece in self.pieces if piece is not None]
        self.pieces = []
        if not pieces:
            return pandas.Series([], dtype=float)
        whole = pieces[0] if len(pieces) == 1 else pandas.concat(pieces, ignore_index=True)
        return whole.reset_index(drop=True)


def _small(series: Series[Any]) -> Series[Any]:
    """Whole numbers in as few bytes as they need; others as they are."""
    import pandas
    from pandas.api.types import is_integer_dtype

    if is_integer_dtype(series) and isinstance(series.dtype, np.dtype) and len(series):
        kind = np.result_type(np.min_scalar_type(int(series.min())), np.min_scalar_type(int(series.max())))
        return series.astype(kind)
    if not isinstance(series.dtype, np.dtype) and not pandas.api.types.is_bool_dtype(series):
        return pandas.Series(series.to_numpy(dtype=float, na_value=np.nan))
    return series


def _clean(value: Any, gaps: frozenset[str]) -> Any:
    """A value without surrounding spaces; None if it means missing."""
    if isinstance(value, str):
        text = value.strip()
        return None if text in gaps else text
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, bool | int | float | np.generic) and not hasattr(value, "__float__"):
        return str(value)
    return None if as_text(value) in gaps else value


def _has_values(piece: Any) -> bool:
    import pandas

    return bool(pandas.notna(piece).any())


def _length(piece: Any) -> int:
    return 0 if piece is None else len(piece)
