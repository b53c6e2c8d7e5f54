"""Satellites that exchange models with each other, and platforms in the air: times and bytes by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest

from fedpareto.clock.presence import Presence
from fedpareto.clock.trips import UP
from fedpareto.config.errors import UserError
from fedpareto.moo import graphs
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.routes import Swarm
from fedpareto_space.missions.sky import Left, sky_of
from fedpareto_space.missions.transfers import Radio, fluid_costs
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.sights import over_stations
from fedpareto_space.orbits.stations import stations

RADIO = Radio(8000.0, 8000.0, 0.0)
EVERYONE, ZERO = np.arange(3), np.zeros(3, dtype=np.int64)


def line_of_three() -> Swarm:
    """0 and 1 always see each other, 1 and 2 from second 100 on."""
    sights = Presence.of([np.array([[0.0, np.inf]]), np.array([[100.0, np.inf]])])
    return Swarm(3, np.array([[0, 1], [1, 2]]), sights, RADIO)


def test_a_satellite_is_done_when_it_has_the_models_of_its_neighbours():
    sizes, ready = np.full(3, 5000.0), np.array([10.0, 20.0, 30.0])
    (sending, *_), (asking, *_), (air, *_) = fluid_costs(RADIO, sizes, UP)
    takes = sending + asking + RADIO.delay
    moved = line_of_three().homeward(EVERYONE, ready, sizes, ZERO)
    # 0 waits for 1; 1 for 2, which it sees from 100 on; 2 for 1.
    assert moved.ended == pytest.approx([20 + takes, 100 + takes, 100 + takes])
    assert moved.air == pytest.approx([air, 2 * air, air])
    assert moved.radio == pytest.approx(2 * sending * np.array([1, 2, 1]))
    begun = line_of_three().outward(EVERYONE, 7.0, sizes, ZERO)
    assert begun.ended.tolist() == [7.0] * 3, "what it begins from is on board"
    assert begun.air.sum() == 0


def test_who_takes_no_part_is_not_waited_for():
    sizes, ready = np.full(2, 5000.0), np.array([10.0, 20.0])
    moved = line_of_three().homeward(np.array([0, 2]), ready, sizes, ZERO[:2])
    assert moved.ended.tolist() == [10.0, 20.0], "neither has a neighbour that trains"


SHELL = {"shell": "12/2/1", "altitude": 1200.0, "route": "swarm", "stations": []}


def swarm_of(**options):
    sky = sky_of(MissionOptions(**{**SHELL, "stations": (), **options}), 6 * 3600.0)
    return sky, Swarm.of(sky, Left(sky).between, RADIO, graphs.torus(12, 2).edges)


def test_neighbours_in_a_plane_always_see_each_other_and_those_beside_it_at_times():
    sky, swarm = swarm_of()
    lengths = np.add.reduceat(swarm.sights.ends - swarm.sights.starts, swarm.sights.bounds[:-1]) / sky.seconds
    same = sky.planes[swarm.pairs[:, 0]] == sky.planes[swarm.pairs[:, 1]]
    assert lengths[same] == pytest.approx(1.0, abs=1e-3)
    assert (lengths[~same] < 0.9).all()


def test_a_lost_satellite_is_heard_no_more_and_its_neighbours_go_on():
    _, swarm = swarm_of(mishaps=("lost sat-1-1 at 1",))
    rows = np.arange(12)
    moved = swarm.homeward(rows, np.full(12, 3700.0), np.full(12, 5000.0), np.zeros(12, dtype=np.int64))
    assert np.isinf(moved.ended[0])
    assert np.isfinite(moved.ended[1:]).all()
    late = np.full(12, 3700.0)
    assert np.isinf(swarm.coming(rows, late)[0])
    assert (swarm.coming(rows, late)[1:] == late[1:]).all()


def test_a_satellite_is_in_touch_while_it_sees_any_neighbour():
    sights = Presence.of([np.array([[0.0, 10.0], [40.0, 50.0]]), np.array([[5.0, 20.0], [60.0, 70.0]])])
    links = Swarm(3, np.array([[0, 1], [1, 2]]), sights, RADIO).links
    spans = [links.starts[low:high].tolist() for low, high in pairwise(links.bounds)]
    ends = [links.ends[low:high].tolist() for low, high in pairwise(links.bounds)]
    assert [[one for one in some if np.isfinite(one)] for some in spans] == [[0, 40], [0, 40, 60], [5, 60]]
    assert [[one for one in some if np.isfinite(one)] for some in ends] == [[10, 50], [20, 50, 70], [20, 70]]


def test_a_swarm_learns_without_the_ground_and_says_what_was_on_the_air(tmp_path):
    spec = Draft(
        {
            "algorithm": {"name": "dsfl", "planes": 2},
            "problem": "convex",
            "rounds": 3,
            "hours": 24,
            "engine": {"name": "mission", "threads": 1, "chunk": 12, **SHELL},
        }
    ).finish()
    result = start(spec)
    assert result.history[-1]["round"] == 3
    assert all(np.diff([row["clock"] for row in result.history]) > 0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"algorithm": "fedavg"}, "engine.route is swarm, but fedavg needs a server; take dsfl"),
        ({"engine": {"name": "mission", **SHELL, "mishaps": ["server at 3"]}}, "a swarm has neither server nor"),
        ({"algorithm": {"name": "dsfl", "planes": 5}}, "12 clients do not fit"),
    ],
)
def test_what_makes_no_swarm_is_refused(values, words):
    usual = {"algorithm": {"name": "dsfl", "planes": 2}, "engine": {"name": "mission", **SHELL}}
    with pytest.raises(UserError, match=words):
        Draft({**usual, **values}).finish()


def test_neighbours_that_never_meet_are_named():
    with pytest.raises(UserError, match="sat-1-1 and sat-1-2 are neighbours, but never see each other"):
        swarm_of(altitude=500.0)


def test_a_platform_in_the_air_sees_satellites_longer_than_the_ground_below():
    """From height h the horizon is lower by arccos(R / (R + h)), 4.5° at 20 km: here the mask stays at 0°, and the beam
    is only shorter. What it gains is that no hill is in its way: 10° on the ground.
    """
    orbits = Shell(4, 2, 1, altitude=530.0, inclination=97.5).orbits(begins := datetime(2026, 1, 1, tzinfo=UTC))
    seconds = {}
    for name, place in {"ground": "52.5,13.4", "air": "52.5,13.4,20000@0"}.items():
        seen = over_stations(orbits, stations([f"{name}={place}"]), begins, 86_400.0)
        seconds[name] = float((seen.ends - seen.starts).sum())
    assert seconds["air"] > 1.5 * seconds["ground"]
    with pytest.raises(UserError, match="station 'moon': altitude is 60,000"):
        stations(["moon=0,0,60000"])
