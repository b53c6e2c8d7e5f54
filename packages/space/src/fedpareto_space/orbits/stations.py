"""Ground stations: by name from a small table, or by coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fedpareto.config.bounds import AtLeast, bounds_of, check
from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.orbits.earth import FLATTENING, RADIUS, Array, Whole, sidereal_angle

MASK = 10.0
"""Degrees above the horizon below which a station does not talk, unless it says otherwise."""


@dataclass(frozen=True)
class Station:
    """A place on the ground with an antenna."""

    name: str
    latitude: Annotated[float, AtLeast(-90, 90)]
    """Degrees; north is positive."""
    longitude: Annotated[float, AtLeast(-180, 360)]
    """Degrees; east is positive."""
    altitude: Annotated[float, AtLeast(-500, 50_000)] = 0.0
    """Metres above the ellipsoid; a platform in the air is a station, too."""
    mask: Annotated[float, AtLeast(0, below=90)] = MASK
    """Degrees above the horizon from which on a satellite can be heard."""

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise UserError(f"a station is called {self.name!r}; a name is one line of text")
        for name in bounds_of(Station):
            check(Station, name, getattr(self, name), f"station '{self.name}': ")


KNOWN = {
    "awarua": (-46.53, 168.38, 10),
    "bangalore": (13.03, 77.51, 840),
    "canberra": (-35.40, 148.98, 690),
    "cebreros": (40.45, -4.37, 790),
    "fairbanks": (64.98, -147.50, 340),
    "goldstone": (35.43, -116.89, 1000),
    "guam": (13.61, 144.86, 220),
    "hartebeesthoek": (-25.89, 27.69, 1540),
    "hawaii": (19.01, -155.66, 370),
    "inuvik": (68.32, -133.55, 50),
    "kiruna": (67.86, 20.96, 400),
    "kourou": (5.25, -52.80, 10),
    "luxembourg": (49.68, 6.33, 280),
    "madrid": (40.43, -4.25, 830),
    "malindi": (-3.00, 40.19, 10),
    "maspalomas": (27.76, -15.63, 200),
    "mcmurdo": (-77.84, 166.67, 150),
    "new-norcia": (-31.05, 116.19, 250),
    "punta-arenas": (-52.93, -70.87, 30),
    "redu": (50.00, 5.15, 380),
    "santa-maria": (37.00, -25.14, 280),
    "santiago": (-33.15, -70.67, 730),
    "singapore": (1.35, 103.82, 20),
    "svalbard": (78.23, 15.39, 450),
    "troll": (-72.01, 2.53, 1270),
    "wallops": (37.92, -75.48, 10),
    "weilheim": (47.88, 11.08, 660),
}
"""Latitude, longitude and altitude of ground stations, to about a kilometre."""


def station(text: str, usual: float = MASK) -> Station:
    """A station as people write it: `svalbard`, `78.2,15.4`, `78.2,15.4,450` or `here=78.2,15.4`; `@5` is its mask."""
    place, has_mask, mask = text.strip().partition("@")
    name, has_name, coordinates = place.partition("=")
    if not has_name:
        name, coordinates = place, place if "," in place else ""
    name = name.strip()
    if not coordinates:
        if name.lower() not in KNOWN:
            raise UnknownName("station", name, KNOWN)
        found = Station(name.lower(), *KNOWN[name.lower()])
    else:
        numbers = _numbers(coordinates, text)
        if len(numbers) not in (2, 3):
            raise UserError(f"station '{text}' is no place; it is a name or latitude,longitude such as 78.2,15.4")
        found = Station(name, *numbers)
    return replace(found, mask=_numbers(mask, text)[0] if has_mask else usual)


def stations(texts: Sequence[str], mask: float = MASK) -> tuple[Station, ...]:
    """Several of them, no two of one name, with a mask for those that do not have their own."""
    found = tuple(station(text, mask) for text in texts)
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"station '{name}' is there twice; name one of them otherwise, such as other=78.2,15.4")
    return found


def _numbers(text: str, whole: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"station '{whole}' has numbers that are none; right is, say, 78.2,15.4@5") from None


@dataclass(frozen=True, eq=False)
class Ground:
    """Places of stations while the Earth turns; all arrays have a row for each station."""

    across: Array
    """Distance from the axis, `[s]`."""
    height: Array
    """Distance from the plane of the equator, `[s]`."""
    latitude: Array
    longitude: Array
    sine_of_mask: Array

    @classmethod
    def of(cls, sites: Sequence[Station]) -> Ground:
        latitude = np.radians([one.latitude for one in sites])
        altitude = np.array([one.altitude for one in sites]) / 1000
        squared = FLATTENING * (2 - FLATTENING)
        curvature = RADIUS / np.sqrt(1 - squared * np.sin(latitude) ** 2)
        return cls(
            across=(curvature + altitude) * np.cos(latitude),
            height=(curvature * (1 - squared) + altitude) * np.sin(latitude),
            latitude=latitude,
            longitude=np.radians([one.longitude for one in sites]),
            sine_of_mask=np.sin(np.radians([one.mask for one in sites])),
        )

    def at(self, which: Whole, days: Array) -> tuple[Array, Array]:
        """Places and vertical directions of the stations `which` at moments, `[3, …]` each; the two are broadcast."""
        angle = self.longitude[which] + sidereal_angle(days)
        cosine, sine = np.cos(angle), np.sin(angle)
        across, height = self.across[which], np.broadcast_to(self.height[which], angle.shape)
        flat, upright = np.cos(self.latitude[which]), np.broadcast_to(np.sin(self.latitude[which]), angle.shape)
        return np.array([across * cosine, across * sine, height]), np.array([flat * cosine, flat * sine, upright])
