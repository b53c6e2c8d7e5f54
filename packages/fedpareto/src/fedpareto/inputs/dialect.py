"""The format of a text file: compression, encoding, separator, header and decimal mark, from its first lines.

Everything that is not the plain case (UTF-8, comma, decimal point) becomes a note, so that a user sees what was
recognised and can override it.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

from fedpareto.config import limits
from fedpareto.config.errors import UserError

try:
    import lzma
except ImportError:  # A Python that was built without it.
    lzma = None  # type: ignore[assignment]

SEPARATORS = ",;\t|"
BLANKS = r"\s+"
SEPARATOR_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", BLANKS: "blanks"}
SAMPLE = 1 << 18
"""Bytes of a file from which its separator, header and decimal mark are recognised."""
BLOCK = 1 << 20
"""Bytes that are decoded at a time to recognise an encoding."""
MOST_RECORDS = 500
AGREE = 0.8
"""Share of the lines that have the same number of fields, if a separator is the right one."""

MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
NOT_TEXT = {
    b"PK\x03\x04": "it is a spreadsheet or a zip archive; save the table as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "it is an old spreadsheet; save the table as CSV",
    b"PAR1": "it is a Parquet file; give it the ending .parquet",
    b"SQLite format 3": "it is a database; read it with --sql sqlite:///FILE --query 'SELECT …'",
    b"%PDF": "it is a PDF; a table is a CSV or Parquet file",
    b"ARROW1": "it is an Arrow file; save the table as Parquet or CSV",
}
DAMAGED = (EOFError, zlib.error, *([lzma.LZMAError] if lzma is not None else []))
"""Errors of a compressed file that was cut or altered, beside OSError."""
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
SHORTEST_UTF16 = 8
"""Bytes from which on null bytes in every other place can be called UTF-16."""
ENCODING_NAMES = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}

GROUPED = {mark: re.compile(rf"[-+]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}
"""Whole numbers whose thousands are separated by a mark."""
WITH_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}([.' \u00a0\u202f]\d{3})+),\d+")
"""Numbers with a decimal comma, or whole numbers of which the last thousands are."""


@dataclass(frozen=True)
class Sent:
    """The content of a file that was sent and is in memory only."""

    name: str
    """Name given by its sender."""
    content: bytes

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    def open(self, mode: str = "rb") -> IO[bytes]:
        return io.BytesIO(self.content)


@dataclass(frozen=True)
class Dialect:
    """Format of a text file."""

    encoding: str
    separator: str
    decimal: str
    names: tuple[str, ...]
    """Names of the columns, without surrounding spaces, all different."""
    skipped: int
    """Lines before the rows: the header, and what is above it."""
    notes: tuple[str, ...]
    """Facts recognised, a line each."""
    header_is_row: bool = False
    """True if the first line looks like values, not names."""


def opened(path: Path | Sent) -> IO[bytes]:
    """The file's own bytes, unpacked if it is compressed, whatever its name says."""
    with path.open("rb") as file:
        start = file.read(16)
    for magic, reason in NOT_TEXT.items():
        if start.startswith(magic):
            raise UserError(f"{path} cannot be read as CSV: {reason}")
    for magic, module in MAGIC.items():
        if start.startswith(magic):
            from importlib import import_module

            unpacked: IO[bytes] = import_module(module).open(path if isinstance(path, Path) else path.open(), "rb")
            return io.BufferedReader(limits.Lines(unpacked, limits.unpacked(_size(path)), str(path)), limits.BLOCK)
    return io.BufferedReader(limits.Lines(path.open("rb"), limits.FILE, str(path)), limits.BLOCK)


def _size(path: Path | Sent) -> int:
    return path.stat().st_size if isinstance(path, Path) else len(path.content)


def recognised(path: Path | Sent, encoding: str = "", decimal: str = "") -> Dialect:
    """Recognise the format of a text file; `encoding` and `decimal` are the user's choices, which have priority."""
    found = _checked_encoding(encoding, path) if encoding else _encoding(path)
    with opened(path) as file:
        content = file.read(SAMPLE)
    text = codecs.getincrementaldecoder(found)().decode(content)
    whole = len(content) < SAMPLE
    if not whole and text.count("\n") + text.count("\r") == 0:
        raise UserError(f"{path} cannot be read as CSV: its first line has more than {SAMPLE:,} bytes")
    lines = io.StringIO(text, newline="").readlines()
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty: it has no rows")
    if text.lstrip()[:1] in ("{", "[") and '":' in text[:2000]:
        raise UserError(f"{path} cannot be read as CSV: it is JSON; save the table as CSV or Parquet")
    if text.lstrip()[:1] == "<" and "</" in text:
        raise UserError(f"{path} cannot be read as CSV: it is HTML or XML; save the table as CSV or Parquet")
    notes = []
    if found not in ("utf-8", "utf-8-sig") and not encoding:
        name = ENCODING_NAMES.get(found, found.upper())
        notes.append(f"the text is not UTF-8; it is read as {name} (another one: encoding=…)")
    separator = _separator(lines)
    if separator != ",":
        notes.append(f"fields are separated by {SEPARATOR_NAMES[separator]}")
    records, ends = _records(lines, separator)
    if not records:
        raise UserError(f"{path} is empty: no line of it has a field with something in it")
    names, above, more = _header(records)
    if len(names) > limits.COLUMNS:
        raise UserError(f"{path} has {len(names):,} columns; {limits.COLUMNS:,} are read at most")
    notes += more
    body = records[above + 1 :]
    mark = decimal or _decimal(body, separator)
    if mark == "," and not decimal:
        notes.append("numbers have a decimal comma (otherwise: decimal=.)")
    looks_like_row = _looks_like_row(records[above], body)
    if looks_like_row:
        notes.append("the first line looks like a row, not like names; if so, add a line with names above it")
    return Dialect(found, separator, mark, names, ends[above], tuple(notes), looks_like_row)


def _checked_encoding(encoding: str, path: Path | Sent) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise UserError(f"encoding is '{encoding}', which is unknown; use utf-8, latin-1, cp1252 or utf-16") from None


def _encoding(path: Path | Sent) -> str:
    """UTF-8 if all of it is, UTF-16 if it says or looks so, else Windows-1252, or Latin-1 where that has no such
    character.
    """
    with opened(path) as file:
        start = file.read(BLOCK)
        for mark, name in BOMS.items():
            if start.startswith(mark):
                return name
        if b"\x00" in start:
            halves = start[0::2].count(0), start[1::2].count(0)
            looks_so = max(halves) > 0.3 * len(start) / 2 and min(halves) < 0.1 * len(start) / 2
            if looks_so and len(start) >= SHORTEST_UTF16:
                return "utf-16-be" if halves[0] > halves[1] else "utf-16-le"
            raise UserError(f"{path} cannot be read as CSV: it is not text, but holds null bytes")
        decoder = codecs.getincrementaldecoder("utf-8")()
        high: set[int] = set()
        is_utf8 = True
        for block in chain([start], iter(partial(file.read, BLOCK), b""), [b""]):  # The last one ends the text.
            high.update(byte for byte in set(block) if byte >= 0x80)
            try:
                if is_utf8:
                    decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                is_utf8 = False
    if is_utf8:
        return "utf-8"
    undefined, of_windows = {0x81, 0x8D, 0x8F, 0x90, 0x9D}, any(0x80 <= byte < 0xA0 for byte in high)
    return "cp1252" if of_windows and not high & undefined else "latin-1"


# -- separator and header ------------------------------------------------------------------------------------------


def _records(lines: Sequence[str], separator: str) -> tuple[list[list[str]], list[int]]:
    """The fields of the first records, without surrounding spaces, and the number of the line in which each ends.

    Empty lines are left out.
    """
    found: list[list[str]] = []
    ends = []
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True) if separator != BLANKS else None
    with suppress(csv.Error):  # What was read until then is enough; the parser of the whole file will report the error.
        for number, record in enumerate(map(str.split, lines) if rows is None else rows, start=1):
            if any(field.strip() for field in record) or len(record) > 1:
                found.append([field.strip() for field in record])
                ends.append(number if rows is None else rows.line_num)
            if len(found) == MOST_RECORDS:
                break
    return found, ends


def _separator(lines: Sequence[str]) -> str:
    """Separator by which most lines have the same number of fields, and then most fields."""
    scores = {}
    for separator in (*SEPARATORS, BLANKS):
        counts = Counter(map(len, _records(lines, separator)[0]))
        fields, lines_with = max(counts.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        share = lines_with / max(sum(counts.values()), 1)
        scores[separator] = (share >= AGREE and fields > 1, round(share, 1) if fields > 1 else 0, fields)
    good = [separator for separator in SEPARATORS if scores[separator][2] > 1 or scores[separator][1]]
    if any(scores[separator][0] for separator in good) or not scores[BLANKS][0]:
        return max(SEPARATORS, key=lambda separator: scores[separator])
    return BLANKS


def _header(records: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], int, list[str]]:
    """Names of the columns, the position of their record, and what is unusual about them."""
    notes = []
    usual = Counter(len(record) for record in records).most_common(1)[0][0]
    above = 0
    if usual > 2 and len(records[0]) <= 1:
        above = next(place for place, record in enumerate(records) if len(record) >= usual - 1)
        notes.append(f"the first {above} lines are not part of the table and left out")
    names = list(records[above])
    below = Counter(len(record) for record in records[above + 1 :])
    wide = bool(below) and below.most_common(1)[0][0] == len(names) + 1
    if wide and all(not record[-1] for record in records[above + 1 :] if len(record) > len(names)):
        names.append("")
    elif wide:
        names.insert(0, "row name")
        notes.append("rows have one field more than the header; the first one is called 'row name'")
    given = Counter(names)
    twice = [name for name, count in given.items() if count > 1 and name]
    if twice:
        notes.append(f"{_named(twice)} is in the header more than once; the second one is called '{twice[0]} (2)'")
    return tuple(distinct(names)), above, notes


def distinct(names: Iterable[str]) -> list[str]:
    """Names of columns without surrounding spaces; an empty one by its position, a duplicate with its number."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for place, given in enumerate(names, start=1):
        name = " ".join(given.split()) or f"column {place}"
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _looks_like_row(header: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """True if a third of the names are numbers, with numbers below them."""
    numbers = [
        place
        for place, name in enumerate(header)
        if _is_number(name) and all(_is_number(row[place]) for row in body[:20] if len(row) > place and row[place])
    ]
    if not body or not numbers or len(numbers) * 3 < len(header):
        return False
    # Years and the like, one column each, are names.
    steps = {float(header[after]) - float(header[before]) for before, after in pairwise(numbers)}
    return steps != {1.0}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _decimal(body: Sequence[Sequence[str]], separator: str) -> str:
    """Decimal mark: a comma where numbers have one that does not separate thousands."""
    fields = {field for record in body for field in record if "," in field}
    with_comma = [field for field in fields if WITH_COMMA.fullmatch(field)]
    if not with_comma:
        return "."
    grouped = all(GROUPED[","].fullmatch(field) for field in with_comma)
    # Where the comma is no separator of fields, the writer's language has it as its decimal mark.
    return "." if grouped and separator == "," else ","


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:3]) + (" and others" if len(names) > 3 else "")


def stream(path: Path | Sent, dialect: Dialect) -> IO[str]:
    text = io.TextIOWrapper(opened(path), encoding=dialect.encoding, newline="")
    for _ in range(dialect.skipped):
        text.readline()
    return text
