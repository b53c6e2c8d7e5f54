"""Orbits and who sees whom: against skyfield with SGP4, and against what geometry says."""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.circular import Shell, circular
from fedpareto_space.orbits.earth import DAY, GRAVITY, J2, RADIUS, days_of, sidereal_angle, sun
from fedpareto_space.orbits.plans import plan
from fedpareto_space.orbits.sights import between_satellites, eclipses, every_pair, ground_tracks, over_stations
from fedpareto_space.orbits.stations import KNOWN, Station, station, stations
from fedpareto_space.orbits.tle import TleOrbits, parse_tle, read_tle
from fedpareto_space.orbits.windows import above, grid

_spec = importlib.util.spec_from_file_location(
    "contacts_benchmark", Path(__file__).parents[3] / "benchmarks/contacts.py"
)
benchmark = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = benchmark  # Its dataclasses look for it there.
_spec.loader.exec_module(benchmark)

START = datetime(2026, 1, 1, tzinfo=UTC)
ISS = [
    "ISS (ZARYA)",
    "1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927",
    "2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537",
]


@pytest.fixture(scope="module")
def shell():
    return Shell(8, 4, 1).orbits(START)


@pytest.mark.parametrize("inclination", [97.5, 53.0])
def test_skyfield_finds_no_contact_that_we_miss_and_its_edges_are_ours(inclination):
    ours = Shell(6, 3, 1, inclination=inclination).orbits(START)
    truth = benchmark.sgp4_of(ours)
    for orbits, seconds in ((ours, 1.0), (truth, 0.5)):
        found = benchmark.compare(orbits, truth, benchmark.SITES, 12)
        assert found.contacts > 20
        assert (found.missed, found.added) == (0, 0)
        assert np.quantile(found.errors, 0.95) < seconds


def test_an_eccentric_orbit_crosses_the_mask_where_skyfield_says():
    """On a Molniya orbit, on which skyfield's own search misses an edge."""
    from sgp4.api import WGS72, Satrec
    from skyfield.api import EarthSatellite, load, wgs84

    record, day = Satrec(), (START - datetime(1949, 12, 31, tzinfo=UTC)).days
    angles = np.radians([270.0, 63.4, 90.0])
    record.sgp4init(WGS72, "i", 1, day, 0, 0, 0, 0.72, *angles, 2.006 * 2 * np.pi / 1440, 0.0)
    (site,) = stations(["svalbard"])
    found = over_stations(TleOrbits(("molniya",), (record,)), [site], START, DAY)
    edges = np.concatenate([found.ends[:-1], found.starts[1:]])
    assert len(edges) == 4
    scale, place = load.timescale(builtin=True), wgs84.latlon(site.latitude, site.longitude, elevation_m=site.altitude)
    moments = scale.tt_jd(scale.from_datetime(START).tt + edges / DAY)
    elevation = (EarthSatellite.from_satrec(record, scale) - place).at(moments).altaz()[0].degrees
    assert np.allclose(elevation, site.mask, atol=0.01)


def test_the_ground_below_a_satellite_is_where_skyfield_says(shell):
    from skyfield.api import EarthSatellite, load, wgs84

    at = np.linspace(0, DAY, 50)
    latitude, longitude = ground_tracks(shell, START, at)
    scale = load.timescale(builtin=True)
    moments = scale.tt_jd(scale.from_datetime(START).tt + at / DAY)
    for number, record in enumerate(benchmark.sgp4_of(shell).records[:2]):
        truth = wgs84.geographic_position_of(EarthSatellite.from_satrec(record, scale).at(moments))
        assert np.abs(latitude[number] - truth.latitude.degrees).max() < 0.02
        apart = (longitude[number] - truth.longitude.degrees + 180) % 360 - 180
        assert np.abs(apart * np.cos(np.radians(latitude[number]))).max() < 0.02


def test_a_short_contact_between_two_looks_is_found(shell):
    sites = stations(["svalbard@5", "awarua@30"])
    coarse, fine = (over_stations(shell, sites, START, DAY, step) for step in (120.0, 3.0))
    assert (fine.ends - fine.starts).min() < 60
    assert coarse.rows.tolist() == fine.rows.tolist()
    assert np.abs(coarse.starts - fine.starts).max() < 0.01
    assert np.abs(coarse.ends - fine.ends).max() < 0.01


def test_a_short_gap_between_two_looks_is_found():
    def sight(rows, at):
        return np.abs(at - 100.0) - 3.0

    times = grid(300.0)
    found = above([(np.array([0]), sight(None, times)[None])], times, sight, 300.0)
    assert np.allclose(found.starts, [0, 103], atol=0.01)
    assert np.allclose(found.ends, [97, 300], atol=0.01)


def test_at_53_degrees_svalbard_sees_nobody_and_that_is_said_in_one_line():
    low = Shell(inclination=53.0).orbits(START)
    with pytest.raises(
        UserError, match=r"'svalbard' never sees a satellite: it is at 78.23° north.*up to 67.*from 64° on.* 97.5°"
    ):
        plan(low, stations(["awarua", "svalbard"]), START, DAY)
    # The bound is sharp: it is seen from where the message says, and not from half a degree below.
    for inclination, seen in ((62.9, False), (64.3, True)):
        orbits = Shell(inclination=inclination).orbits(START)
        assert bool(len(over_stations(orbits, stations(["svalbard"]), START, 2 * DAY))) == seen
    with pytest.raises(UserError, match=r"'bangalore' sees no satellite within 0\.1 h; plan for longer"):
        plan(Shell(1, 1, 0).orbits(START), stations(["bangalore"]), START, 360.0)


def test_a_higher_mask_gives_contacts_within_those_of_a_lower_one(shell):
    low, high = (over_stations(shell, [Station("here", 60.0, 10.0, mask=mask)], START, DAY) for mask in (5.0, 20.0))
    assert 0 < len(high) < len(low)
    for row, start, end in zip(high.rows, high.starts, high.ends, strict=True):
        assert np.any((low.rows == row) & (low.starts < start) & (low.ends > end))


def test_a_shell_is_spread_evenly():
    shell = Shell(12, 3, 2, altitude=1000.0, inclination=60.0)
    orbits = shell.orbits(START)
    assert np.allclose(np.degrees(orbits.node), np.repeat([0, 120, 240], 4))
    assert np.allclose(np.degrees(orbits.along[:8]), [0, 90, 180, 270, 60, 150, 240, 330])
    star = Shell(12, 3, 2, star=True).orbits(START)
    assert np.allclose(np.degrees(star.node), np.repeat([0, 60, 120], 4))
    assert orbits.names[5] == "sat-2-2"
    both = circular([shell, Shell(1, 1, 0, altitude=8000.0, name="relay")], START)
    assert both.names[-1] == "relay-1-1"
    places = both.positions(np.arange(13), np.array([days_of(START)]))
    assert np.allclose(np.linalg.norm(places, axis=0)[:, 0], both.axis, rtol=3e-3)


def test_a_sun_synchronous_orbit_turns_with_the_sun():
    """At 97.5° and 530 km the plane turns by 360° in a year, to a hundredth."""
    orbits = Shell(1, 1, 0, altitude=530.0, inclination=97.5).orbits(START)
    at = days_of(START) + np.array([0.0, 1.0, 10.0])

    def node(day):
        moments = day + np.linspace(0, 0.07, 2000)
        z = orbits.positions(np.array([0]), moments)[:, 0]
        rising = np.nonzero((z[2, :-1] < 0) & (z[2, 1:] >= 0))[0][0]
        return np.degrees(np.arctan2(z[1, rising], z[0, rising]))

    turned = (node(at[2]) - node(at[0]) + 180) % 360 - 180
    assert turned / 10 == pytest.approx(360 / 365.2422, rel=0.02)


def test_the_earth_turns_once_in_a_sidereal_day_and_the_sun_stands_where_it_should():
    first = days_of(START)
    turn = sidereal_angle(np.array([first, first + 86164.0905 / DAY]))
    assert abs((turn[1] - turn[0] + np.pi) % (2 * np.pi) - np.pi) < 1e-7
    # 2000-01-01 12:00: GMST is 18 h 41 min 50.548 s.
    assert np.degrees(sidereal_angle(np.array([0.0])))[0] == pytest.approx(280.46062, abs=1e-4)
    equinox, solstice = (days_of(datetime(2026, month, day, tzinfo=UTC)) for month, day in ((3, 20), (6, 21)))
    # The equinox is at 14:46 UTC, the solstice at 08:24 UTC.
    assert abs(sun(np.array([equinox + 0.6153]))[2, 0]) < 2e-4
    assert np.degrees(np.arcsin(sun(np.array([solstice + 0.35]))[2, 0])) == pytest.approx(23.437, abs=0.01)


def test_a_satellite_in_the_plane_of_the_sun_is_dark_for_the_share_that_geometry_says():
    equinox = datetime(2026, 3, 20, 14, 46, tzinfo=UTC)
    orbits = Shell(1, 1, 0, altitude=800.0, inclination=0.0).orbits(equinox)
    found = eclipses(orbits, equinox, DAY)
    middle = found.ends[1:-1] - found.starts[1:-1]
    a = RADIUS + 800
    flat = 1.5 * J2 * (RADIUS / a) ** 2  # It pulls the orbit down by this share, and speeds it up by twice as much.
    period = 2 * np.pi * np.sqrt(a**3 / GRAVITY) / (1 + 2 * flat)
    assert np.allclose(middle, period * np.arcsin(RADIUS / a / (1 - flat)) / np.pi, rtol=5e-4)
    # One over the line between day and night is never dark.
    across = Shell(1, 1, 0, altitude=1500.0, inclination=90.0, node=90.0).orbits(equinox)
    assert not len(eclipses(across, equinox, DAY))


def test_satellites_see_each_other_until_the_earth_is_between():
    """In one plane they keep their distance: neighbours see each other always or never, by the angle between them."""
    for altitude, count, sees in ((530.0, 10, True), (530.0, 8, False), (1500.0, 6, True), (1500.0, 5, False)):
        lowest = (RADIUS + altitude) * np.cos(np.pi / count) - RADIUS
        assert (lowest > 120) == sees
        assert abs(lowest - 100) > 30
        orbits = Shell(count, 1, 0, altitude=altitude).orbits(START)
        found = between_satellites(orbits, np.array([[0, 1]]), START, 7200.0)
        assert list(zip(found.starts, found.ends, strict=True)) == ([(0.0, 7200.0)] if sees else [])
    # A line that only comes close to the ground is clear with a lower grazing height, and a reach ends it again.
    orbits = Shell(6, 1, 0, altitude=1000.0).orbits(START)
    assert len(between_satellites(orbits, np.array([[0, 1]]), START, 60.0, 0.0, step=30.0)) == 1
    assert len(between_satellites(orbits, np.array([[0, 1]]), START, 60.0, 0.0, 7000.0, step=30.0)) == 0
    assert len(between_satellites(orbits, np.array([[0, 1]]), START, 60.0, step=30.0)) == 0


def test_contacts_of_satellites_are_the_same_on_a_finer_grid(shell):
    coarse, fine = (between_satellites(shell, every_pair(8), START, DAY / 2, step=step) for step in (60.0, 10.0))
    assert coarse.rows.tolist() == fine.rows.tolist()
    assert len(coarse) > 50
    assert np.abs(coarse.starts - fine.starts).max() < 0.01


def test_a_file_of_elements_is_read_with_or_without_names(tmp_path):
    file = tmp_path / "sats.tle"
    file.write_text("\n".join([*ISS, "", *ISS[1:]]) + "\n", encoding="utf-8")
    found = read_tle(file)
    assert found.names == ("ISS (ZARYA)", "25544")
    # The first position of SGP4's own test, at the epoch, is about 340 km above the ground.
    place = found.of(np.array([0, 1]), np.full(2, found.epoch))
    assert np.linalg.norm(place[:, 0]) == pytest.approx(RADIUS + 345, abs=15)
    assert (place[:, 0] == place[:, 1]).all()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["hello"], "ends within the elements of 'hello'"),
        ([], "holds no two-line elements"),
        (ISS[:2], "ends within"),
        ([ISS[1], ISS[2].replace("25544", "25545")], r"line 2: the checksum is 7, but should be 8; .* damaged"),
        ([ISS[1], ISS[2][:-5]], "line 2: expected line 2 of a TLE, with 69 characters"),
        (
            [ISS[1].replace("264.5", "264\0005")[:68] + "7", ISS[2]],
            "line 1: these two lines hold numbers that are none",
        ),
        (
            [ISS[1].replace("264.5", "26445")[:68] + "1", ISS[2]],
            "line 1: SGP4 refuses these elements; an orbit or a day",
        ),
        ([ISS[0], ISS[2], ISS[1]], r"line 2: these are no two-line elements: line 1 of 'ISS \(ZARYA\)' is missing"),
    ],
)
def test_damaged_elements_are_refused_with_their_line(lines, why):
    with pytest.raises(UserError, match=why):
        parse_tle(lines)


def test_elements_far_from_their_day_are_refused_by_name():
    orbits = parse_tle([ISS[0], ISS[1].replace("-11606-4 0  2927", " 99999-0 0  2923"), ISS[2]])
    with pytest.raises(UserError, match=r"ISS \(ZARYA\): SGP4 has no place for it .*; take elements of about that day"):
        over_stations(orbits, stations(["bangalore"]), START, DAY)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"altitude": 50.0}, "altitude is 50; it is in km, at least 160 and at most 100,000"),
        ({"altitude": float("nan")}, "altitude is nan; it is in km"),
        ({"planes": 7}, "40 satellites do not fit into 7 planes; 8 planes would do"),
        ({"phasing": 5}, "phasing is 5; with 5 planes it is from 0 to 4"),
        ({"inclination": 190.0}, "inclination is 190; it is in degrees, at least 0 and at most 180"),
        ({"satellites": 0}, "it is at least 1 and at most 10,000"),
    ],
)
def test_an_impossible_shell_is_refused(values, why):
    with pytest.raises(UserError, match=why):
        Shell(**values)


def test_a_shell_is_parsed():
    assert Shell.parse("24/3/1", 600.0, 53.0) == Shell(24, 3, 1, 600.0, 53.0)
    with pytest.raises(UserError, match="'24x3' is no satellites/planes/phasing such as 40/5/1"):
        Shell.parse("24x3", 600.0, 53.0)


def test_stations_are_known_by_name_or_coordinates():
    assert station("Svalbard") == Station("svalbard", *KNOWN["svalbard"])
    assert station("48.1,11.6,500@5") == Station("48.1,11.6,500", 48.1, 11.6, 500.0, 5.0)
    assert station("home=-48.1,11.6") == Station("home", -48.1, 11.6)
    for text, why in {
        "svalbart": "did you mean 'svalbard'",
        "a=1": "is no place",
        "91,0": "station '91,0': latitude is 91; it is at least -90 and at most 90",
        "1,x": "has numbers that are none",
        "redu@90": "mask",
        "a\nb=1,2": "a name is one line of text",
    }.items():
        with pytest.raises(UserError, match=why):
            station(text)
    with pytest.raises(UserError, match="'redu' is there twice"):
        stations(["redu", "redu@5"])


def test_too_many_pairs_are_refused_before_they_fill_the_memory():
    with pytest.raises(UserError, match="10000 satellites are too many to look at all pairs"):
        every_pair(10_000)


def test_a_span_that_is_none_is_refused(shell):
    for seconds, step in ((0.0, 60.0), (-1.0, 60.0), (float("nan"), 60.0), (1e9, 60.0), (60.0, 0.0)):
        with pytest.raises(UserError, match=r"a plan of|a look every"):
            eclipses(shell, START, seconds, step)
