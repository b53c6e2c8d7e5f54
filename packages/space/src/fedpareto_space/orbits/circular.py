"""Circular orbits around a flattened Earth, alone or in Walker shells.

Mean elements drift by J2; around them the place oscillates twice in each orbit by J2 and once by J3, as in Brouwer's
theory for an eccentricity of 0 (Hoots and Roehrich, "Spacetrack Report No. 3", 1980, SGP4). There is no drag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Protocol

import numpy as np

from fedpareto.config.bounds import AtLeast, Bounded, Finite
from fedpareto.config.errors import UserError
from fedpareto_space.orbits.earth import DAY, GRAVITY, J2, J3_BY_J2, RADIUS, Array, Whole, days_of

LOWEST, HIGHEST = 160.0, 100_000.0
"""Kilometres: below, the air ends an orbit within a day; above, the Moon is not small any more."""
MOST_SATELLITES = 10_000
LATITUDES = 180.0


class Orbits(Protocol):
    """Satellites that can be asked where they are, in inertial kilometres."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the satellites."""

    def positions(self, which: Whole, days: Array) -> Array:
        """`[3, n, t]`: some satellites, each at all moments."""

    def of(self, which: Whole, days: Array) -> Array:
        """`[3, k]`: single satellites, each at its own moment."""

    def extent(self) -> tuple[Array, Array]:
        """`[n]` each: how far north and south they come, in degrees, and how far from the Earth's centre."""


@dataclass(frozen=True)
class Shell(Bounded):
    """A Walker constellation: circular orbits in planes that are spread evenly (i: t/p/f)."""

    satellites: Annotated[int, AtLeast(1, MOST_SATELLITES)] = 40
    """t, all of them together."""
    planes: int = 5
    """p; it divides t."""
    phasing: int = 1
    """f: satellites in the next plane are ahead by f · 360° / t."""
    altitude: Annotated[float, AtLeast(LOWEST, HIGHEST, "in km,")] = 530.0
    """Kilometres above the equator."""
    inclination: Annotated[float, AtLeast(0, LATITUDES, "in degrees,")] = 97.5
    """Degrees."""
    star: bool = False
    """Planes are spread over 180° (for polar orbits) instead of 360°."""
    node: Finite = 0.0
    """Degrees: the right ascension of the first plane's ascending node."""
    name: str = "sat"
    """Beginning of the satellites' names; plane and place follow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.planes < 1 or self.satellites % self.planes:
            fitting = [p for p in range(1, self.satellites + 1) if self.satellites % p == 0]
            best = min(fitting, key=lambda p: abs(p - self.planes))
            raise UserError(
                f"{self.satellites} satellites do not fit into {self.planes} planes; {best} planes would do"
            )
        if not 0 <= self.phasing < self.planes:
            raise UserError(f"phasing is {self.phasing}; with {self.planes} planes it is from 0 to {self.planes - 1}")

    @classmethod
    def parse(cls, pattern: str, altitude: float, inclination: float, star: bool = False) -> Shell:
        """From `t/p/f`, such as 40/5/1."""
        try:
            satellites, planes, phasing = (int(part) for part in pattern.split("/"))
        except ValueError:
            raise UserError(f"shell '{pattern}' is no satellites/planes/phasing such as 40/5/1") from None
        return cls(satellites, planes, phasing, altitude, inclination, star)

    def orbits(self, epoch: datetime) -> CircularOrbits:
        """The satellites, where the first of each plane begins at its ascending node but for the phasing."""
        return circular([self], epoch)


def circular(shells: Sequence[Shell], epoch: datetime) -> CircularOrbits:
    names, rows = list[str](), list[tuple[float, float, float, float]]()
    for shell in shells:
        in_plane = shell.satellites // shell.planes
        spread = LATITUDES if shell.star else 2 * LATITUDES
        for plane in range(shell.planes):
            for place in range(in_plane):
                names.append(f"{shell.name}-{plane + 1}-{place + 1}")
                along = 360 * (place / in_plane + shell.phasing * plane / shell.satellites)
                node = shell.node + spread * plane / shell.planes
                rows.append((RADIUS + shell.altitude, shell.inclination, node, along))
    if len(set(names)) < len(names):
        raise UserError("satellites of two shells have one name; give each shell a name of its own")
    axis, *angles = np.array(rows).T
    inclination, node, along = np.radians(angles)
    return CircularOrbits(tuple(names), days_of(epoch), axis, inclination, node, along)


@dataclass(frozen=True, eq=False)
class CircularOrbits:
    """Satellites on circular orbits; the arrays `[n]` are mean elements at the epoch."""

    names: tuple[str, ...]
    epoch: float
    """Days."""
    axis: Array
    """a, in kilometres."""
    inclination: Array
    node: Array
    """Ω, the right ascension of the ascending node."""
    along: Array
    """u, the angle along the orbit from there."""

    def positions(self, which: Whole, days: Array) -> Array:
        """`[3, n, t]`: some satellites, each at all moments."""
        return self.of(which[:, None], days)

    def of(self, which: Whole, days: Array) -> Array:
        """Single satellites, each at its own moment; the two are broadcast."""
        a, i = self.axis[which], self.inclination[which]
        c, s = np.cos(i), np.sin(i)
        seconds = (days - self.epoch) * DAY
        motion, flat = np.sqrt(GRAVITY / a**3), 0.5 * J2 * (RADIUS / a) ** 2
        node = self.node[which] - 3 * flat * motion * c * seconds
        u = self.along[which] + motion * (1 + flat * (9 - 12 * s**2)) * seconds
        e = -0.5 * J3_BY_J2 * (RADIUS / a) * s
        sine, cosine = np.sin(u), np.cos(u)
        twice_sine, twice_cosine = 2 * sine * cosine, 1 - 2 * sine**2
        radius = a * (1 - e * sine - 1.5 * flat * (3 * c**2 - 1) + 0.5 * flat * s**2 * twice_cosine)
        u = u - 2 * e * cosine - 0.25 * flat * (7 * c**2 - 1) * twice_sine
        node = node + 1.5 * flat * c * twice_sine
        i = i + 1.5 * flat * c * s * twice_cosine
        return _turned(radius, u, node, i)

    def extent(self) -> tuple[Array, Array]:
        """`[n]` each: how far north and south they come, in degrees, and how far from the Earth's centre."""
        degrees = np.degrees(self.inclination)
        return np.minimum(degrees, LATITUDES - degrees), self.axis


def _turned(radius: Array, along: Array, node: Array, inclination: Array) -> Array:
    """`[3, …]`: the place at an angle along an orbit."""
    x, y = radius * np.cos(along), radius * np.sin(along)
    cosine, sine, flat = np.cos(node), np.sin(node), y * np.cos(inclination)
    return np.array([x * cosine - flat * sine, x * sine + flat * cosine, y * np.sin(inclination)])
