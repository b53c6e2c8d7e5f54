"""Real silos on real processes: three SuperNodes, each with its own kind of employer of the Adult census."""

from __future__ import annotations

import json

import pytest
from memory_federation import local_engine
from real_federation import nodes_of, server_of
from test_flower_parity import assert_same_run

from fedpareto.spec.draft import Draft

ADULT = {
    "problem": {"name": "adult", "partition": "column:workclass", "unmeasured": "worst"},
    "clients": 3,
    "rounds": 2,  # A first one, and one that begins with what the nodes have kept.
}


@pytest.fixture(autouse=True)
def adult(published):
    """Without the data these tests are left out."""
    published("adult")


@pytest.mark.parametrize("name", ["fedpref", "fedavg", "fedprox", "cfl", "fedcmoo"])
def test_three_silos_of_adult_end_with_the_models_of_the_local_engine(name, real, tmp_path):
    draft = ADULT | {"algorithm": name}
    assert_real_run_is_local(draft, real, nodes_of(draft, tmp_path))


def assert_real_run_is_local(draft, real, nodes):
    spec = Draft(draft).finish()
    real.serve(nodes)
    assert_same_run(spec, server_of(spec, real.grid), local_engine(spec, chunk=1))


ONCE = ADULT | {"algorithm": "fedavg", "rounds": 1}
OTHER_SEED = ONCE | {"seeds": [1]}
OTHER_FILE = ONCE | {"problem": ADULT["problem"] | {"partition": "column:race"}}
MISTAKES = {
    "two swapped clients": {0: {"held_client": 1}, 1: {"held_client": 0}},
    "a wrong seed": {0: {"held_client": 0, "held_draft": json.dumps(OTHER_SEED)}},
    "a wrong file": {0: {"held_client": 0, "held_draft": json.dumps(OTHER_FILE)}},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_notices(mistake, real, tmp_path):
    """Whoever holds the wrong rows agrees with the server on everything else, so only the models can tell."""
    nodes = nodes_of(ONCE, tmp_path)
    for client, change in MISTAKES[mistake].items():
        nodes[client] |= {"fedpareto": "factory:make_mistaken"} | change
    with pytest.raises(AssertionError, match="models differ"):
        assert_real_run_is_local(ONCE, real, nodes)
