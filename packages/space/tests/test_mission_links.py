"""Messages of satellites at both depths: packets are the truth, and a fluid is their mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpareto.clock.presence import Presence
from fedpareto.clock.trips import DOWN, UP
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto_space.links.fluid import cost
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.sky import Sights, presence
from fedpareto_space.missions.transfers import HEADER, Fluid, Packets, Radio

RADIO = Radio(9600.0, 9600.0, 0.05)
CLEAN = Radio(9600.0, 19200.0, 0.0)
SIZE = 20_000


def contacts(*windows):
    """One satellite's."""
    return Presence.of([np.array(windows, dtype=float)])


ALWAYS = Presence.always(1)
PASSES = contacts(*((5700.0 * orbit + 100, 5700.0 * orbit + 112) for orbit in range(20)))
"""Twelve seconds in each orbit: a third of a message of SIZE."""


def sent(transfers, rows=(0,), begun=0.0, size=SIZE, number=1, way=UP):
    rows = np.array(rows)
    each = (np.broadcast_to(one, rows.shape) for one in (size, number))
    return transfers.finish(rows, begun, *each, way)


# -- packets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [DOWN, UP])
def test_without_loss_a_message_takes_its_bytes_with_headers_at_both_depths(way):
    first = cost(SIZE + HEADER, CLEAN.channels[way], CLEAN.managed.segment).first
    seconds = 8 * first / CLEAN.channels[way].rate
    for transfers in (Packets(ALWAYS, CLEAN, 0), Fluid(ALWAYS, CLEAN)):
        moved = sent(transfers, begun=50.0, way=way)
        assert moved.ended == pytest.approx([50.0 + seconds + CLEAN.delay], rel=1e-4)
        assert moved.radio == pytest.approx([seconds], rel=1e-3)
        assert moved.air == pytest.approx([first], rel=1e-3)


def test_fluid_is_the_mean_of_packets():
    tasks = np.arange(48)
    packets, fluid = sent(Packets(ALWAYS, RADIO, 3), 0 * tasks, number=tasks), sent(Fluid(ALWAYS, RADIO))
    assert packets.ended.std() > 0
    assert packets.ended.mean() == pytest.approx(fluid.ended[0], rel=0.02)
    assert packets.air.mean() == pytest.approx(fluid.air[0], rel=0.02)


def test_which_frames_are_lost_is_drawn_from_seed_satellite_task_and_direction_alone():
    links = Presence.always(3)
    packets = Packets(links, RADIO, 7)
    together = sent(packets, [0, 1, 2], number=[4, 5, 6])
    alone = [sent(packets, [row], number=row + 4).ended[0] for row in (2, 0, 1)]
    assert together.ended.tolist() == [alone[1], alone[2], alone[0]]
    others = [
        sent(packets, [1], number=4),
        sent(packets, [0], number=5),
        sent(packets, [0], number=4, way=DOWN),
        sent(Packets(links, RADIO, 8), [0], number=4),
    ]
    assert len({together.ended[0], *(one.ended[0] for one in others)}) > 3  # Some may have the same luck.


def test_progress_is_kept_from_contact_to_contact():
    whole, parts = sent(Packets(ALWAYS, RADIO, 0), number=2), sent(Packets(PASSES, RADIO, 0), number=2)
    orbits = parts.ended[0] // 5700.0
    assert 1 <= orbits <= 3
    assert parts.air[0] < 1.3 * whole.air[0]
    assert PASSES.present(np.array([0]), parts.ended)[0]


def test_what_is_begun_in_the_last_contact_and_not_done_is_never_there():
    moved = sent(Packets(contacts((100.0, 112.0)), RADIO, 0), begun=105.0)
    assert moved.ended.tolist() == [math.inf]
    assert 0 < moved.air[0] < SIZE
    assert sent(Packets(ALWAYS, RADIO, 0), begun=math.inf).ended.tolist() == [math.inf]


@pytest.mark.parametrize("transfers", [Packets(PASSES, RADIO, 1), Fluid(PASSES, RADIO)], ids=["packets", "fluid"])
def test_no_message_is_there_before_one_without_bytes_or_before_the_earliest_time(transfers):
    for begun in (0.0, 105.0, 111.5):
        nothing = sent(transfers, begun=begun, size=0.0).ended
        for size in (1.0, 900.0, float(SIZE)):
            earliest = transfers.earliest(np.array([0]), begun, np.array([size]), UP)
            for number in range(4):
                assert nothing <= earliest <= sent(transfers, begun=begun, size=size, number=number).ended


def test_a_satellite_that_nobody_sees_gets_nothing_at_either_depth():
    nobody = Sights(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    links = presence(nobody, 2)
    for transfers in (Packets(links, RADIO, 0), Fluid(links, RADIO)):
        assert sent(transfers, [0, 1], begun=3.0).ended.tolist() == [math.inf, math.inf]


def test_a_fluid_ends_in_the_same_contact_as_packets_that_lose_nothing():
    # No frame is begun that might not get through: not in the last 0.93 s of a contact.
    whole = sent(Fluid(ALWAYS, Radio(9600.0, 9600.0, 0.0))).ended[0]
    for length in np.arange(whole - 0.5, whole + 2.0, 0.1):
        links = contacts((0.0, length), (5700.0, 5800.0))
        fluid, packets = (sent(one).ended[0] for one in _without_loss(links))
        assert fluid == pytest.approx(packets, abs=1.0)


def _without_loss(links):
    radio = Radio(9600.0, 9600.0, 0.0)
    return Fluid(links, radio), Packets(links, radio, 0)


# -- missions --------------------------------------------------------------------------------------------------------


def mission(depth="fluid", policy="sync", codec="float32", hours=24, **engine):
    values = {
        "algorithm": "fedavg",
        "problem": "convex",
        "rounds": 3,
        "hours": hours,
        "policy": policy,
        "codec": codec,
        "devices": {"kind": "equal", "speed": 1000.0, "compute_watts": 5.0},
        "engine": {"name": "mission", "shell": "6/2/1", "depth": depth, "threads": 1, "chunk": 8, **engine},
    }
    return Draft(values).finish()


def models(result):
    return torch.stack([result.models[0][client] for client in sorted(result.models[0])])


@pytest.mark.parametrize("policy", ["sync", {"kind": "buffered", "buffer": 2}])
@pytest.mark.parametrize("codec", ["float32", "int8-delta"])
def test_both_depths_learn_the_same_where_nothing_is_lost_to_time(policy, codec):
    fluid, packets = (start(mission(depth, policy, codec)) for depth in ("fluid", "packets"))
    clocks = [np.array([row["clock"] for row in one.history]) for one in (fluid, packets)]
    assert clocks[1] == pytest.approx(clocks[0], rel=0.02)
    assert not np.array_equal(*clocks)
    assert torch.equal(models(fluid), models(packets))


POWER = {"solar_watts": 4.0, "idle_watts": 1.0, "battery": 0.2}


@pytest.mark.parametrize("engine", [{"depth": "packets"}, POWER, {"route": "plane", "shell": "24/2/1"}], ids=str)
def test_a_stopped_mission_goes_on_bit_for_bit(engine, tmp_path):
    spec = mission(policy="asynchronous", **engine)
    start(spec, tmp_path / "undisturbed")
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec, tmp_path / "stopped", stop=lambda: next(stops))
    resume(tmp_path / "stopped")
    for name in ("models.safetensors", "solutions.json", "mission.jsonl"):
        one, other = ((tmp_path / folder / name).read_bytes() for folder in ("undisturbed", "stopped"))
        assert one == other


def test_the_ground_leg_of_planes_is_packets_too():
    fluid, packets = (start(mission(depth, route="plane", shell="24/2/1")) for depth in ("fluid", "packets"))
    assert packets.history[-1]["clock"] != fluid.history[-1]["clock"]
    assert torch.equal(models(fluid), models(packets))


@pytest.mark.parametrize("route", ["relay", "swarm"])
def test_packets_are_refused_where_only_averages_are_known(route):
    with pytest.raises(UserError, match="take fluid, or route: direct or plane"):
        MissionOptions(depth="packets", route=route)
