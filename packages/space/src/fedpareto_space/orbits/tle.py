"""Satellites from two-line elements (TLE), moved by SGP4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import read_bytes
from fedpareto_space.orbits.earth import J2000_JULIAN, RADIUS, Array, Whole

LINE = 69
"""Characters of each line."""
FARTHEST = 36525.0
"""Days from 2000 on or back that elements may be of; they have two digits for the year."""


@dataclass(frozen=True, eq=False)
class TleOrbits:
    """Satellites with SGP4's records."""

    names: tuple[str, ...]
    records: tuple[Any, ...]

    @property
    def epoch(self) -> float:
        return max(map(_epoch, self.records))

    def positions(self, which: Whole, days: Array) -> Array:
        """`[3, n, t]`: some satellites, each at all moments."""
        from sgp4.api import SatrecArray

        errors, places, _ = SatrecArray([self.records[one] for one in which]).sgp4(*_julian(days))
        if errors.any():
            satellite, moment = np.argwhere(errors)[0]
            self._refuse(int(which[satellite]), int(errors[satellite, moment]))
        return np.ascontiguousarray(np.moveaxis(places, -1, 0))

    def of(self, which: Whole, days: Array) -> Array:
        """`[3, k]`: single satellites, each at its own moment."""
        found = np.empty((3, len(days)))
        order = np.argsort(which, kind="stable")
        satellites, begins = np.unique(which[order], return_index=True)
        for satellite, rows in zip(satellites, np.split(order, begins)[1:], strict=True):
            errors, places, _ = self.records[satellite].sgp4_array(*_julian(days[rows]))
            if errors.any():
                self._refuse(int(satellite), int(errors[errors != 0][0]))
            found[:, rows] = places.T
        return found

    def _refuse(self, satellite: int, error: int) -> None:
        from sgp4.api import SGP4_ERRORS

        raise UserError(
            f"{self.names[satellite]}: SGP4 has no place for it ({SGP4_ERRORS.get(error, error)}); "
            "take elements of about that day"
        )

    def extent(self) -> tuple[Array, Array]:
        """`[n]` each: how far north and south they come, in degrees, and how far from the Earth's centre."""
        degrees = np.degrees([one.inclo for one in self.records])
        return np.minimum(degrees, 180 - degrees), RADIUS * (1 + np.array([one.alta for one in self.records]))


def _epoch(record: Any) -> float:
    return float(record.jdsatepoch - J2000_JULIAN + record.jdsatepochF)


def _julian(days: Array) -> tuple[Array, Array]:
    whole = np.floor(days)
    return J2000_JULIAN + whole, days - whole


def read_tle(path: Path) -> TleOrbits:
    """The satellites of a file with two lines for each, or three where the first is its name."""
    text = read_bytes(path).decode("utf-8", errors="replace")
    return parse_tle(text.splitlines(), str(path))


def parse_tle(lines: Sequence[str], where: str = "TLE") -> TleOrbits:
    if find_spec("sgp4") is None:
        raise UserError("two-line elements need SGP4; try: pip install 'fedpareto[space]'")
    from sgp4.api import WGS72, Satrec

    names, records = list[str](), list[Any]()
    for number, name, first, second in _sets(lines, where):
        try:
            record = Satrec.twoline2rv(first, second, WGS72)
        except ValueError:
            raise UserError(f"{where}, line {number}: these two lines hold numbers that are none") from None
        if record.error or not abs(_epoch(record)) < FARTHEST:
            raise UserError(f"{where}, line {number}: SGP4 refuses these elements; an orbit or a day is impossible")
        catalogue = first[2:7].strip()
        called = name or catalogue
        names.append(f"{called} {catalogue}" if called in names else called)
        records.append(record)
    if not records:
        raise UserError(
            f"{where} holds no two-line elements; a satellite has a line that begins with 1, and one with 2"
        )
    return TleOrbits(tuple(names), tuple(records))


def _sets(lines: Sequence[str], where: str) -> Iterator[tuple[int, str, str, str]]:
    name, first = "", ""
    for number, whole in enumerate(lines, start=1):
        line = whole.rstrip()
        if not line or line.startswith("#"):
            continue
        if first:
            _check(line, "2", f"{where}, line {number}")
            if line[2:7] != first[2:7]:
                raise UserError(f"{where}, line {number}: line 2 is of satellite {line[2:7]}, line 1 of {first[2:7]}")
            yield number - 1, name, first, line
            name, first = "", ""
        elif line.startswith("1 ") and len(line) >= LINE:
            _check(line, "1", f"{where}, line {number}")
            first = line
        elif name:
            raise UserError(
                f"{where}, line {number}: these are no two-line elements: line 1 of '{name}' is missing, which begins "
                f"with 1 and has {LINE} characters"
            )
        else:
            name = "".join(letter if letter.isprintable() else "?" for letter in line.removeprefix("0 ").strip())
    if first or name:
        raise UserError(f"{where} ends within the elements of '{name or first[2:7]}'")


def _check(line: str, begin: str, where: str) -> None:
    if not line.startswith(f"{begin} ") or len(line) < LINE:
        raise UserError(f"{where}: expected line {begin} of a TLE, with {LINE} characters")
    total = sum(int(letter) if letter in "0123456789" else letter == "-" for letter in line[: LINE - 1])
    if line[LINE - 1] != str(total % 10):
        raise UserError(f"{where}: the checksum is {line[LINE - 1]}, but should be {total % 10}; the line is damaged")
