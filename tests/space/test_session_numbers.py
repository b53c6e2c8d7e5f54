"""A session has the numbers of the local engine, whatever the algorithm."""

from __future__ import annotations

import pytest
from sessions import on_the_local_engine, same, simulated, small

from fedpareto.core import registry


@pytest.mark.parametrize("name", [*registry.algorithms(), "fedavg+ft", "fedpref+ft"])
def test_every_algorithm_has_the_local_engines_numbers_over_the_protocol(name):
    spec = small(name)
    finished = simulated(spec)
    digest, models = on_the_local_engine(spec)
    assert set(finished.reasons.values()) == {"done"}
    assert not finished.faults()
    assert finished.digest == digest
    assert same(finished.models, models)


def test_partial_participation_asks_the_same_clients_as_the_local_engine():
    spec = small("fedpref", clients=4, rounds=3, participation=0.5)
    finished = simulated(spec)
    assert finished.digest == on_the_local_engine(spec)[0]
    trained = [note for note in finished.log if note.what == "trains"]
    assert len(trained) == 2 * 3
