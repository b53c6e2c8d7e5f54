"""The server's whole view of a secure sum over the wire is random to it; a client's mistake is not, and is found."""

from __future__ import annotations

import numpy as np
import pytest
from memory_federation import local_engine, small
from secure_view import CARELESS, LATE, MISTAKES, chance_of_bytes, computable, leaks, shares_and_seals, tapped

from fedpareto.algorithms.averaging.fedavg import FedAvg

SPEC = {"clients": 5, "rounds": 2, "problem": {"name": "synthetic", "hidden": [64, 32], "rows": 1000}}


def updates():
    """What each client trained of the first model less that model: what nobody may see."""
    plain = small("fedavg", **SPEC)
    engine = local_engine(plain)
    state = FedAvg().begin(engine.settings[0])
    return [(row - state.model).numpy() for row in engine.run(FedAvg().ask(state)).replies["model"]]


@pytest.fixture(scope="module")
def secrets():
    return updates()


def test_nothing_that_the_server_has_or_can_compute_differs_from_random_numbers(secrets, tmp_path):
    spec = small("fedavg", secure_sum="masked", **SPEC)
    seen = tapped(spec, tmp_path)
    vectors = computable(spec, seen)
    assert len(vectors) == 5 + 5 + 5
    assert leaks(vectors, secrets) == []
    assert chance_of_bytes(np.concatenate([one.ravel() for one in shares_and_seals(seen)])) > 1e-6
    assert leaks({"plain": (secrets[0] * 2.0**24).round().astype("<i8").view("<u8")}, secrets) == ["plain"]


@pytest.mark.parametrize(
    ("mistake", "where"),
    [
        ("masks with others left out", f"client {CARELESS} without its own mask"),
        ("own mask left out", f"client {LATE}, late, without masks with others"),
        ("masks of the last round again", "round 1, client 0 less round 2, client 0"),
    ],
)
def test_a_mistake_in_masking_is_found_in_what_the_server_sees(mistake, where, secrets, tmp_path):
    assert mistake in MISTAKES
    spec = small("fedavg", secure_sum="masked", **SPEC)
    assert where in leaks(computable(spec, tapped(spec, tmp_path, mistake)), secrets)
