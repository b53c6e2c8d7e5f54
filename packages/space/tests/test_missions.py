"""Missions against what is computed by hand: contacts, transfers, what goes wrong, and the end by the clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedpareto.clock.trips import DOWN, UP
from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto_space.links.frames import OVERHEAD
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.routes import routes_of
from fedpareto_space.missions.sky import Left, Sights, sky_of, talking
from fedpareto_space.missions.transfers import Radio, fluid_costs

HOUR = 3600.0
RATE = 1000
"""Bytes a second in ION's text; 8,000 bits."""


def plan_of(folder: Path, *contacts: tuple[int, int, int, int]) -> str:
    """A contact plan with lines of start, end and two nodes, both ways."""
    lines = [
        f"a contact +{start} +{end} {a} {b} {RATE}"
        for start, end, one, other in contacts
        for a, b in ((one, other), (other, one))
    ]
    path = folder / "plan.ion"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def spec_of(values: dict, **changes) -> object:
    """A mission that learns something small."""
    usual = {"algorithm": "fedavg", "problem": {"name": "convex"}, "rounds": 4}
    return Draft().with_values({**usual, **values, **changes}).finish()


def mission(folder: Path, *contacts: tuple[int, int, int, int], **options) -> dict:
    return {"name": "mission", "plan": plan_of(folder, *contacts), "loss": 0.0, **options}


def logged(folder: Path, what: str) -> list[dict]:
    lines = map(json.loads, (folder / "mission.jsonl").read_text().splitlines())
    return [line for line in lines if line["what"] == what]


# -- contacts ------------------------------------------------------------------------------------------------------


def test_a_satellite_talks_to_one_station_at_a_time_and_a_station_to_as_many_as_it_has_antennas():
    seen = Sights(
        np.array([0, 0, 1, 2]),
        np.array([0, 1, 0, 0]),
        np.array([0.0, 5.0, 2.0, 3.0]),
        np.array([10.0, 20.0, 12.0, 8.0]),
    )
    free = talking(seen, antennas=0)
    assert list(zip(free.satellites, free.stations, free.starts, free.ends, strict=True)) == [
        (0, 0, 0, 10), (0, 1, 10, 20), (1, 0, 2, 12), (2, 0, 3, 8),
    ]  # fmt: skip
    one = talking(seen, antennas=1)
    assert list(zip(one.satellites, one.stations, one.starts, one.ends, strict=True)) == [
        (0, 0, 0, 10), (0, 1, 10, 20), (1, 0, 10, 12),
    ]  # fmt: skip


def test_a_transfer_waits_for_a_contact_and_goes_on_in_the_next_one(tmp_path):
    options = MissionOptions(plan=plan_of(tmp_path, (100, 110, 1, 9), (500, 600, 1, 9)), loss=0.0)
    sky = sky_of(options, HOUR)
    routes, row, zero = routes_of(sky, Left(sky), sums=False), np.array([0]), np.array([0])
    radio = Radio(8 * RATE, 8 * RATE, 0.0)
    sizes = np.array([20_000])
    (sending,), (asking,), (air,) = fluid_costs(radio, sizes, DOWN)
    assert sending == air / RATE
    assert asking == 0
    moved = routes.outward(row, 0.0, sizes, zero)
    unused = (radio.managed.largest_pdu + OVERHEAD) / RATE  # No frame is begun that might not get through.
    assert moved.ended[0] == pytest.approx(500 + sending + radio.delay - (10 - unused))
    assert routes.homeward(row, np.array([590.0]), sizes, zero).ended[0] == np.inf, "the plan is over before"


def test_the_replies_of_a_plane_are_added_up_on_their_way_to_the_one_who_is_down_first():
    options = MissionOptions(shell="12/1/0", altitude=1200, stations=("redu",), loss=0.0, between=8e5)
    sky = sky_of(options, 24 * HOUR)
    routes = routes_of(sky, Left(sky), sums=True)
    planes = routes_of(sky_of(replace(options, route="plane"), 24 * HOUR), Left(sky), sums=True)
    everyone, sizes = np.arange(12), np.full(12, 50_000)
    ready = np.linspace(0.0, 110.0, 12)
    (hop,), (wait,), _ = fluid_costs(Radio(8e5, 8e5, 0.0), sizes[:1], UP)
    hop += wait + Radio(1, 1, 0).delay
    apart = np.abs(np.subtract.outer(everyone, everyone))
    collected = (ready[:, None] + np.minimum(apart, 12 - apart) * hop).max(axis=0)
    down = routes.homeward(everyone, collected, sizes, everyone).ended
    moved = planes.homeward(everyone, ready, sizes, everyone)
    assert (moved.ended == down.min()).all()
    alone = routes_of(sky_of(replace(options, route="plane"), 24 * HOUR), Left(sky), sums=False)
    apart = alone.homeward(everyone, ready, sizes, everyone)
    assert (apart.ended > moved.ended).all()
    assert apart.air.sum() > 11 * moved.air.sum(), "twelve messages instead of one sum"


def test_a_message_finds_its_way_through_another_satellite(tmp_path):
    contacts = ((0, 50, 1, 2), (100, 200, 2, 9), (900, 999, 1, 9))
    options = MissionOptions(plan=plan_of(tmp_path, *contacts), loss=0.0, route="relay")
    sky = sky_of(options, HOUR)
    row, zero, sizes = np.array([0]), np.array([0]), np.array([5_000])
    relayed = routes_of(sky, Left(sky), sums=False).homeward(row, np.zeros(1), sizes, zero)
    assert 100 < relayed.ended[0] < 110
    lost = sky_of(replace(options, mishaps=("lost 2 at 0.02",)), HOUR)
    later = routes_of(lost, Left(lost), sums=False).homeward(row, np.zeros(1), sizes, zero)
    assert 900 < later.ended[0] < 910, "the relay was lost after 72 s"


def test_relays_in_geostationary_orbit_are_seen_half_of_the_time_and_three_of_them_nearly_always():
    shell = {"shell": "4/2/1", "stations": ()}
    shares = []
    for relays in ((0.0,), (0.0, 120.0, 240.0)):
        sky = sky_of(MissionOptions(**shell, relays=relays), 24 * HOUR)
        shares.append(float((sky.contacts.ends - sky.contacts.starts).sum()) / (4 * 24 * HOUR))
    assert 0.5 < shares[0] < 0.75
    assert shares[1] > 0.99


# -- what goes wrong -----------------------------------------------------------------------------------------------

OPEN = ((0, 86_000, 1, 9), (0, 86_000, 2, 9), (0, 86_000, 3, 9))


def test_a_round_goes_on_without_a_satellite_that_is_lost_and_says_so(tmp_path):
    engine = mission(tmp_path, *OPEN, mishaps=["lost 2 at 0.5"], timeout=1.0)
    devices = {"kind": "equal", "speed": 1.0, "compute_watts": 1.0}
    spec = spec_of({"engine": engine, "devices": devices, "hours": 24})
    result = runner.start(spec, tmp_path / "run")
    rows = result.history
    faults = logged(tmp_path / "run", "fault")
    assert [one["who"] for one in faults if one["fault"] == "the satellite was lost"] == ["2"]
    without = [row["round"] for row in rows[:-1] if row["replies"] == 2]
    assert without == list(range(without[0], 4)), "nobody asks it again"
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(event["client"], event["reason"]) for event in events] == [(1, "no reply within 1 h")]


def test_where_a_whole_round_got_lost_it_is_asked_for_again(tmp_path):
    contacts = tuple((40_000, 41_000, node, 9) for node in (1, 2, 3))
    engine = mission(tmp_path, *contacts, timeout=2.0)
    work = {"kind": "equal", "compute_watts": 1.0}
    result = runner.start(spec_of({"engine": engine, "devices": work, "hours": 23, "rounds": 1}), tmp_path / "run")
    assert [row["replies"] for row in result.history] == [3, 0]
    faults = logged(tmp_path / "run", "fault")
    assert {one["fault"] for one in faults} == {"no reply within 2 h"}
    assert {one["time"] for one in faults} == {7200.0 * times for times in range(1, 6)}


def test_a_satellite_that_has_no_reply_and_is_given_up_is_one_failure(tmp_path):
    contacts = ((0, 86_000, 1, 9), (0, 86_000, 2, 9), (40_000, 86_000, 3, 9))
    engine = mission(tmp_path, *contacts, timeout=2.0)
    values = {"engine": engine, "devices": {"kind": "equal"}, "hours": 23, "faults": {"dropout": 1.0}}
    with pytest.raises(QuorumLost, match="without any reply no quorum can be met") as lost:
        runner.start(spec_of(values), tmp_path / "run")
    assert sorted(failure.client for failure in lost.value.failures) == [0, 1, 2]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert sorted(event["client"] for event in events) == [0, 1, 2]


def test_a_bit_that_flips_costs_one_training_more(tmp_path):
    work = {"kind": "equal", "speed": 1.0}
    ends = {}
    for name, mishaps in (("none", []), ("flip", ["flip 1 at 0.001"])):
        engine = mission(tmp_path, *OPEN, mishaps=mishaps, timeout=100.0)
        runner.start(spec_of({"engine": engine, "devices": work, "hours": 23, "rounds": 1}), tmp_path / name)
        ends[name] = {trip["satellite"]: trip for trip in logged(tmp_path / name, "trip")}
    first, again = ends["none"][0], ends["flip"][0]
    training = first["ready"] - first["received"]
    assert first["received"] < 3.6 < first["ready"]
    assert again["ready"] == pytest.approx(3.6 + training, abs=2e-3)
    assert ends["none"][1]["arrives"] == ends["flip"][1]["arrives"]
    assert [one["who"] for one in logged(tmp_path / "flip", "fault")] == ["1"]


@pytest.mark.parametrize("codec", ["float32", "float32-delta"])  # With one, arrivals are known late.
def test_a_bit_that_flips_where_nothing_is_at_work_costs_nothing_and_is_told(tmp_path, codec):
    contacts = ((0, 86_000, 1, 9), (3_600, 86_000, 2, 9))  # The first waits for the second, which gets its task late.
    flips = ["flip 1 at 0.5", "flip 2 at 0.5", "lost 2 at 2", "flip 2 at 2.5"]
    for name, mishaps in (("none", flips[2:3]), ("flip", flips)):
        engine = mission(tmp_path, *contacts, mishaps=mishaps, timeout=100.0)
        devices = {"kind": "equal", "speed": 1.0}
        values = {"engine": engine, "devices": devices, "codec": codec, "hours": 3, "rounds": 1_000}
        runner.start(spec_of(values), tmp_path / name)
    assert logged(tmp_path / "none", "trip") == logged(tmp_path / "flip", "trip")
    flipped = [one for one in logged(tmp_path / "flip", "fault") if "bit flipped" in one["fault"]]
    assert [(one["who"], one["time"]) for one in flipped] == [("1", 1800.0), ("2", 1800.0)]
    assert {one["action"] for one in flipped} == {"nothing was at work: it gets the model anew with its next task"}


def test_replies_that_lay_with_a_silent_server_are_lost_by_name_and_the_mission_goes_on(tmp_path):
    contacts = ((0, 86_000, 1, 9), (0, 86_000, 2, 9), (5_000, 86_000, 3, 9))
    engine = mission(tmp_path, *contacts, mishaps=["server at 1"], handover=30.0)
    runner.start(spec_of({"engine": engine, "devices": {"kind": "equal"}, "hours": 23}), tmp_path / "run")
    faults = logged(tmp_path / "run", "fault")
    assert {one["who"] for one in faults if "lost with the server" in one["fault"]} == {"1", "2"}
    trips = logged(tmp_path / "run", "trip")
    assert not [trip for trip in trips if HOUR < trip["received"] < 1.5 * HOUR], "nobody is heard in between"
    assert (tmp_path / "run" / "solutions.json").exists()


def test_a_dead_station_hears_nobody_any_more():
    options = MissionOptions(shell="4/2/1", stations=("svalbard", "redu"), mishaps=("dead svalbard at 6",))
    sky = sky_of(options, 24 * HOUR)
    left = Left(sky).contacts
    assert left.ends[left.stations == 0].max() <= 6 * HOUR < sky.contacts.ends[sky.contacts.stations == 0].max()
    assert (left.stations == 1).sum() == (sky.contacts.stations == 1).sum()


# -- the clock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["sync", "asynchronous", "buffered"])
def test_a_mission_ends_by_the_clock_and_goes_on_after_a_stop_bit_for_bit(tmp_path, policy):
    values = {
        "engine": {"name": "mission", "shell": "6/2/1", "stations": ["svalbard", "redu"], "mishaps": ["server at 4"]},
        "devices": {"kind": "equal", "speed": 2.0},
        "policy": policy,
        "codec": "int8-delta",
        "rounds": 10_000,
        "hours": 8,
        "seeds": 2,
    }
    whole = runner.start(spec_of(values), tmp_path / "whole")
    assert 0 < whole.history[-1]["round"] < 10_000
    assert {row["over"] for row in whole.history[-2:]} == {8 * HOUR}
    assert all(row["clock"] < 8 * HOUR for row in whole.history), "models are as old as their rounds"
    with pytest.raises(Stopped):
        runner.start(spec_of(values), tmp_path / "cut", stop=lambda: True)
    assert runner.resume(tmp_path / "cut") is not None
    for name in ("mission.jsonl", "mission.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    again = runner.resume(tmp_path / "cut")
    assert again is None, "it is finished"
    one, other = (load_file(tmp_path / name / "models.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


# -- bad missions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"shell": "40/6/1"}, "40 satellites do not fit into 6 planes; 5 planes would do"),
        ({"altitude": 50}, "altitude is 50; it is in km, at least 160"),
        ({"down": 0}, "down is 0; it is in bits a second, above 0"),
        ({"loss": 1}, "loss is 1; it is at least 0 and below 1"),
        ({"stations": ["svalbart"]}, "did you mean 'svalbard'"),
        ({"mishaps": ["lost sat-1-3"]}, "right is, say, 'lost sat-1-3 at 12'"),
        ({"mishaps": ["broken sat-1-3 at 3"]}, "unknown mishap 'broken'"),
        ({"mishaps": ["server sat-1-1 at 3"]}, "right is, say, 'server at 36'"),
        ({"start": "yesterday"}, "right is, say, 2026-01-31T12:00"),
        ({"stations": []}, "nobody is on the ground"),
        ({"antennas": -1}, "antennas is -1; it is at least 0"),
    ],
)
def test_a_bad_mission_is_refused_in_one_line(engine, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")) as refused:
        spec_of({"engine": {"name": "mission", **engine}})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"engine": {"inclination": 53}}, "station 'svalbard' never sees a satellite"),
        ({"engine": {"mishaps": ["lost sat-9-9 at 3"]}}, "no satellite of that name; they are sat-1-1 to sat-5-8"),
        ({"engine": {"mishaps": ["server at 36"]}}, "'server at 36', but the mission is over after 24 hours"),
        ({"engine": {"route": "plane"}}, "satellites in a plane on they would"),
        ({"engine": {"storage": 100}, "problem": "synthetic"}, "two models take"),
        ({"engine": {}, "clients": 12}, "the mission has 40 satellites"),
    ],
)
def test_a_mission_that_cannot_fly_is_refused_in_one_line(values, message):
    spec = spec_of({**values, "engine": {"name": "mission", **values["engine"]}})
    with pytest.raises(UserError, match=message) as refused:
        runner.start(spec)
    assert "\n" not in str(refused.value)


def test_links_of_devices_are_refused_where_satellites_have_their_own():
    with pytest.raises(UserError, match=r"devices: down is given, but that of satellites is engine\.down"):
        spec_of({"engine": "mission", "devices": {"kind": "equal", "down": 5.0}})
