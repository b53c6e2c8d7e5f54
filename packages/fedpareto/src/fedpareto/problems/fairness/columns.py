"""A column of a user's table, read piece by piece: codes and a list of values, or numbers.

A column is one of numbers if most of its values are. A few texts among them are not categories but errors, markers of
missing values, or codes: only the user knows, so they are counted here, and the user is asked where the column is used.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.inputs.table import MISSING_TEXTS, as_number

if TYPE_CHECKING:
    from pandas import Series


MOST_VALUES = 100_000
"""A column with more different texts than this is not kept: it identifies rows."""
FEW_TEXTS = 5
"""Texts among numbers that a message names."""


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
        """Decision that is left to the user, in one line."""
        shown = ", ".join(f"'{text}'" for text in list(self.texts)[:FEW_TEXTS])
        more = ", …" if len(self.texts) > FEW_TEXTS else ""
        rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
        word = "text" if len(self.texts) == 1 else "texts"
        if list(self.texts) == [name]:
            return f"the header of {source} stands again in {rows} of its column '{name}'; take these lines out of it"
        column = quoted(name)
        gaps = f"missing={quoted(next(iter(self.texts)))}" if len(self.texts) == 1 else f"numeric={column}"
        means = "" if len(self.texts) == 1 else " (what is no number is then missing)"
        return (
            f"the column '{name}' of {source} has {rows} with the {word} {shown}{more} among {self.numbers:,} numbers; "
            f"say --set {gaps}{means}, or --set categorical={column}"
        )


def as_text(value: Any) -> str:
    """A value as a user would write it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def quoted(name: str) -> str:
    """A name or value as it can be pasted into a shell."""
    return shlex.quote(name)


DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|\d{1,2}[- ][A-Za-z]{3,9}\.?[- ]\d{2,4})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([AaPp][Mm]|Z|[+-]\d{2}:?\d{2})?)?"
)


def are_dates(values: Collection[Any]) -> bool:
    some = [str(value) for value in itertools.islice(values, 200)]
    return bool(some) and all(DATE.fullmatch(text) for text in some)


class Column:
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
        """True if some pieces are texts and some numbers, so that it must be read again as what most of it is."""
        return any(self.is_text) and not all(
            is_text or not _has_values(piece) for is_text, piece in zip(self.is_text, self.pieces, strict=True)
        )

    @property
    def mixed(self) -> Mixed | None:
        if any(self.is_text) or not self.strange or self.as_numbers:
            return None
        return Mixed(self.numbers, dict(self.strange.most_common(50)), self.strange.total())

    def settled(self) -> Any:
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
