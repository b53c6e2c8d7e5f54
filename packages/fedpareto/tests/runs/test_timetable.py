"""The clock run ahead: rounds of one reply are the same as without it, whatever comes in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.clock.devices import Devices
from fedpareto.clock.in_flight_io import written
from fedpareto.record.recording import TIMES
from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft

FEW = {"kind": "asynchronous", "concurrency": 3}
CASES = {
    "everybody at work": {"policy": {"kind": "asynchronous"}},
    "few at work": {"policy": FEW, "seeds": [0, 4]},
    "a buffer for one": {"policy": {"kind": "buffered", "buffer": 1, "concurrency": 5}},
    "replies that fail": {"policy": FEW, "faults": {"dropout": 0.3}},
    "an end by the clock": {"policy": FEW, "hours": 0.0002},
    "fine-tuning of all at the end": {"policy": FEW, "algorithm": "fedavg+ft"},
}


def after_all_rounds(spec, ahead):
    """What is on record, the models, and what is under way."""
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        assert all(one is not None for one in experiment.dispatch._timetables)
        if not ahead:
            experiment.dispatch._timetables = [None] * len(spec.seeds)
        result = experiment.run()
        rows = [{name: value for name, value in row.items() if name not in TIMES} for row in result.history]
        return rows, result.models, [written(flight) for flight in experiment.dispatch.flights]


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_a_run_is_the_same_to_the_bit(given):
    engine = {"threads": 1, "chunk": 4}
    common = {"problem": "convex", "algorithm": "fedavg", "clients": 9, "rounds": 60, "engine": engine}
    spec = Draft({**common, "devices": "tiers", **given}).finish()
    (rows, models, flights), (expected_rows, expected_models, expected_flights) = (
        after_all_rounds(spec, ahead) for ahead in (True, False)
    )
    assert len(rows) > 10
    assert rows == expected_rows
    for some, others in zip(models, expected_models, strict=True):
        assert all(torch.equal(some[client], others[client]) for client in range(9))
    for (tensors, values), (others, other_values) in zip(flights, expected_flights, strict=True):
        assert values == other_values
        assert all(torch.equal(tensors[name], others[name]) for name in others)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"policy": "sync"}, "a round has several replies"),
        ({"policy": FEW, "codec": "int8-delta"}, "how long a coded reply is nobody knows before"),
        ({"policy": FEW, "selection": "oort"}, "the choice depends on what clients said"),
        ({"policy": FEW, "devices": {"kind": "tiers", "availability": "periodic", "period": 3.0}}, "devices leave"),
    ],
)
def test_it_is_for_clockwork_only(given, why):
    spec = Draft({"problem": "convex", "algorithm": "fedavg", "clients": 9, "devices": "tiers", **given}).finish()
    with backends.opened(spec) as engine:
        assert Experiment(spec, engine).dispatch._timetables == [None], why


def test_a_trip_is_a_way_out_and_a_way_back_to_the_bit():
    fleet = Devices("tiers", loss=(0.2,)).fleet(np.arange(20), 3)
    for number in range(1, 30):
        row, started = number % 20, 0.1 * number
        rows, numbers = np.array([row]), np.array([number])
        out = fleet.outward(rows, started, 1e9, 4000.0, numbers)
        back = fleet.homeward(rows, out.computed, 4004.0, numbers)
        wanted = [*out.computed, *back.arrived, *out.joules, *back.joules]
        assert list(fleet.trip(row, started, 1e9, 4000.0, 4004.0, number)) == wanted
