"""Contacts of a constellation: how long a plan takes, and whether skyfield with SGP4 finds the same ones.

`python benchmarks/contacts.py` plans 24 hours of a Walker shell 40/5/1 at 530 km over Svalbard, Bangalore and Awarua,
and of all pairs of its satellites. Then it gives skyfield the same mean elements as SGP4's, for an inclination of 97.5°
and one of 53°, where Svalbard sees nobody, and compares every rise and set. Times are the shortest of five.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from fedpareto_space.orbits import ion, plans
from fedpareto_space.orbits.circular import CircularOrbits, Orbits, Shell
from fedpareto_space.orbits.earth import J2, J2000
from fedpareto_space.orbits.sights import eclipses, every_pair, over_stations
from fedpareto_space.orbits.stations import Station, stations
from fedpareto_space.orbits.tle import TleOrbits

START = datetime(2026, 1, 1, tzinfo=UTC)
SITES = stations(["svalbard", "bangalore", "awarua"])
FAR = 120.0
"""Seconds beyond which two edges are not of one contact."""


@dataclass(frozen=True)
class Comparison:
    """Edges of skyfield's against ours."""

    contacts: int
    """That skyfield finds."""
    missed: int
    """Edges of these that are not among ours."""
    added: int
    """Edges of ours that are not among these."""
    errors: np.ndarray
    """Seconds between the others."""


def sgp4_of(orbits: CircularOrbits) -> TleOrbits:
    """The same mean elements for SGP4; its mean motion is Kozai's, which has the drift by J2 in it."""
    from sgp4.api import WGS72, Satrec

    since_1949 = orbits.epoch + (J2000 - datetime(1949, 12, 31, tzinfo=UTC)) / timedelta(days=1)
    records = list[Any]()
    for number in range(len(orbits.names)):
        radii, inclination = orbits.axis[number] / 6378.135, orbits.inclination[number]
        motion = 0.0743669161 * radii**-1.5 * (1 + 0.75 * J2 * (3 * np.cos(inclination) ** 2 - 1) / radii**2)
        record = Satrec()
        along, node = orbits.along[number] % (2 * np.pi), orbits.node[number] % (2 * np.pi)
        record.sgp4init(WGS72, "i", number + 1, since_1949, 0, 0, 0, 0, 0, inclination, along, motion, node)
        records.append(record)
    return TleOrbits(orbits.names, tuple(records))


def compare(orbits: Orbits, truth: TleOrbits, sites: Sequence[Station], hours: float) -> Comparison:
    """Our contacts of `orbits` against skyfield's of `truth`."""
    from skyfield.api import EarthSatellite, load, wgs84

    scale = load.timescale(builtin=True)
    begin, end = scale.from_datetime(START), scale.from_datetime(START + timedelta(hours=hours))
    found = over_stations(orbits, sites, START, 3600 * hours)
    contacts = missed = added = 0
    errors = list[float]()
    for site, one in enumerate(sites):
        place = wgs84.latlon(one.latitude, one.longitude, elevation_m=one.altitude)
        for number, record in enumerate(truth.records):
            satellite = EarthSatellite.from_satrec(record, scale)
            moments, kinds = satellite.find_events(place, begin, end, altitude_degrees=one.mask)
            seconds = (moments.tt - begin.tt) * 86400
            theirs = seconds[kinds != 1]
            contacts += int((kinds == 0).sum())
            rows = found.rows == site * len(truth.names) + number
            ours = np.concatenate([found.starts[rows], found.ends[rows]])
            ours = ours[(ours > 0) & (ours < 3600 * hours)]
            apart = np.abs(theirs[:, None] - ours)
            nearest = apart.min(axis=1, initial=np.inf)
            missed += int((nearest > FAR).sum())
            added += int((apart.min(axis=0, initial=np.inf) > FAR).sum())
            errors += nearest[nearest <= FAR].tolist()
    return Comparison(contacts, missed, added, np.array(errors))


def shortest(work: Callable[[], object]) -> str:
    """Seconds by the clock and of a processor, each the least of five."""
    clock, processor = list[float](), list[float]()
    for _ in range(5):
        began = time.perf_counter(), time.process_time()
        work()
        clock.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    return f"{min(clock):.3f} s ({min(processor):.3f} s of CPU time)"


def main() -> None:
    shell = Shell().orbits(START)
    records = sgp4_of(shell)
    day, pairs = 86400.0, every_pair(40)
    whole = plans.plan(shell, SITES, START, day)
    linked = plans.plan(shell, SITES, START, day, pairs=pairs)
    print(f"plan, circular, {len(whole.contacts) // 2}: {shortest(lambda: plans.plan(shell, SITES, START, day))}")
    print(f"plan, SGP4: {shortest(lambda: plans.plan(records, SITES, START, day))}")
    seconds = shortest(lambda: plans.plan(shell, SITES, START, day, pairs=pairs))
    print(f"plan with all 780 pairs, {len(linked.contacts) // 2}: {seconds}")
    print(f"eclipses: {shortest(lambda: eclipses(shell, START, day))}")
    print(f"ION round trip is exact: {ion.from_text(ion.to_text(linked)) == linked}")
    for inclination in (97.5, 53.0):
        ours = Shell(inclination=inclination).orbits(START)
        truth = sgp4_of(ours)
        for name, orbits in (("circular", ours), ("SGP4", truth)):
            one = compare(orbits, truth, SITES, 24)
            print(
                f"{inclination}°, {name}: {one.contacts} contacts, {one.missed} edges missed, {one.added} added; "
                f"seconds apart: median {np.median(one.errors):.2f}, 95 % {np.quantile(one.errors, 0.95):.2f}, "
                f"largest {one.errors.max():.2f}"
            )


if __name__ == "__main__":
    main()
