"""Seconds, joules and bytes in the units that people read."""

from __future__ import annotations

from dataclasses import dataclass

DIGITS = 3
"""Significant digits of a quantity in a sentence."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that is counted in one unit and read in another."""

    units: tuple[tuple[str, float], ...] = (("", 1.0),)
    """Units and their sizes in the unit that is counted in, the smallest first."""

    @property
    def counted_in(self) -> dict[str, str]:
        """Unit of plain numbers, for a program; empty where there is none."""
        plain = next(name for name, size in self.units if size == 1.0)
        return {"unit": plain} if plain else {}

    def unit(self, largest: float) -> tuple[str, float]:
        """Return the largest unit of which there is at least one; of nothing, the one that is counted in."""
        fitting = [one for one in self.units if largest >= one[1]]
        plain = next(one for one in self.units if one[1] == 1.0)
        return fitting[-1] if fitting else (self.units[0] if largest > 0 else plain)

    def text(self, value: float) -> str:
        """Such as "3.2 h"."""
        name, size = self.unit(value)
        number = value / size
        written = f"{number:,.0f}" if number >= 10 ** (DIGITS - 1) else f"{number:.{DIGITS}g}"
        return f"{written} {name}".strip()


TIME = Quantity((("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0)))
ENERGY = Quantity((("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("GJ", 1e9)))
BYTES = Quantity((("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)))
COUNT = Quantity()
