"""The Earth as orbits see it: its size, gravity and rotation, and where the Sun stands.

Lengths are in kilometres, angles in radians. A moment is a number of days since J2000 (2000-01-01, 12:00) in UTC.
Inertial coordinates are along the true equator and the mean equinox of the date, which is what SGP4 works in. Places
and directions are `[3, …]`, so that each coordinate lies together in memory.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

RADIUS = 6378.137
"""At the equator (WGS 84)."""
FLATTENING = 1 / 298.257223563
"""WGS 84."""
GRAVITY = 398600.4418
"""μ, in km³/s² (WGS 84)."""
J2 = 1.08262668e-3
"""Share of the flattening in gravity (EGM 96)."""
J3_BY_J2 = -2.3388905e-3
"""Share of the difference between north and south, beside J2 (EGM 96)."""
LIGHT = 299792.458
"""Kilometres a second."""
DAY = 86400.0
"""Seconds."""
J2000 = datetime(2000, 1, 1, 12, tzinfo=UTC)
J2000_JULIAN = 2451545.0
"""The Julian date of J2000."""


def days_of(when: datetime) -> float:
    """The days of a moment; without a time zone it is in UTC."""
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (aware - J2000).total_seconds() / DAY


def dot(a: Array, b: Array) -> Array:
    """`[…]`: products of vectors `[3, …]`."""
    return np.asarray(a[0] * b[0] + a[1] * b[1] + a[2] * b[2])


def sidereal_angle(days: Array) -> Array:
    centuries = days / 36525.0
    turned = (876600.0 * 3600.0 + 8640184.812866 + (0.093104 - 6.2e-6 * centuries) * centuries) * centuries
    return np.asarray(np.mod(67310.54841 + turned, DAY) * (2 * np.pi / DAY))


def below(places: Array, days: Array) -> tuple[Array, Array]:
    """Latitude on the ellipsoid, and longitude from −180° to 180°, of the ground below places; in degrees."""
    squared = FLATTENING * (2 - FLATTENING)
    across, height = np.hypot(places[0], places[1]), places[2]
    latitude = np.arctan2(height, across)
    for _ in range(4):  # Each step gains three digits.
        sine = np.sin(latitude)
        latitude = np.arctan2(height + RADIUS / np.sqrt(1 - squared * sine**2) * squared * sine, across)
    longitude = np.degrees(np.arctan2(places[1], places[0]) - sidereal_angle(days))
    return np.degrees(latitude), np.mod(longitude + 180, 360) - 180


def sun(days: Array) -> Array:
    """`[3, …]`: the direction of the Sun, to a hundredth of a degree (Astronomical Almanac, low precision)."""
    anomaly = np.radians(357.528 + 0.9856003 * days)
    longitude = np.radians(280.460 + 0.9856474 * days + 1.915 * np.sin(anomaly) + 0.020 * np.sin(2 * anomaly))
    tilt = np.radians(23.439 - 4e-7 * days)
    across = np.sin(longitude)
    return np.array([np.cos(longitude), np.cos(tilt) * across, np.sin(tilt) * across])
