"""With contacts that are always open, no loss and equal devices a mission learns what its counterpart on the engine
local does: to the bit, because the order of arrivals is the same if all messages take equally long.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft
from fedpareto_space.missions.schemes import SCHEMES, changed_to
from little_work import LITTLE_WORK

SATELLITES, PLANES = 12, 2
LOCAL = {"precision": "float64", "threads": 1, "chunk": SATELLITES}
LINKS = {"down": 1e9, "up": 1e9, "between": 1e9, "loss": 0.0}
RELAYS = {"shell": f"{SATELLITES}/{PLANES}/1", "altitude": 1200.0, "stations": [], "relays": [0.0, 120.0, 240.0]}
"""Three in geostationary orbit, of which every satellite sees one at any time."""
IN_ORBIT = [name for name, scheme in SCHEMES.items() if "engine" in scheme.changes]
AGENCIES = ["fedpref", "fedmgda-plus", "fedcmoo", "fedfew", "praffl"]


def always_open(folder: Path) -> dict:
    """All satellites see one station all the time."""
    ground = SATELLITES + 1
    pairs = [pair for one in range(1, ground) for pair in ((one, ground), (ground, one))]
    path = folder / "open.ion"
    path.write_text("".join(f"a contact +0 +10000000 {a} {b} 1000000\n" for a, b in pairs), encoding="utf-8")
    return {**LOCAL, **LINKS, "plan": str(path)}


def finished(values: dict):
    usual = {
        "problem": {"name": "convex", "unequal": False},
        "rounds": 6,
        "hours": 2,
        "clients": SATELLITES,
        "devices": {"kind": "equal", "speed": 1e6},
    }
    return start(Draft({**usual, **values}).finish())


def on_the_ground(values: dict):
    """The same algorithm and policy on the engine local; as many tiers as planes."""
    policy = dict(values.get("policy", {"kind": "sync"}))
    if policy["kind"] == "tiers":
        policy["tiers"] = PLANES
    return finished({**values, "policy": policy, "engine": LOCAL})


def assert_same(mission, ground):
    for name in ("round", "replies", "staleness"):
        assert [row.get(name) for row in mission.history] == [row.get(name) for row in ground.history]
    found, expected = ([one.models[0][client] for client in sorted(one.models[0])] for one in (mission, ground))
    assert torch.equal(torch.stack(found), torch.stack(expected))
    assert mission.history[-1]["round"] == 6, "all rounds fit into the hours"


@pytest.mark.parametrize("name", [name for name in SCHEMES if name not in IN_ORBIT])
def test_schemes_straight_to_the_ground(name, tmp_path):
    values = changed_to(name, {"engine": always_open(tmp_path)})
    assert_same(finished(values), on_the_ground(values))


@pytest.mark.parametrize("name", IN_ORBIT)
def test_schemes_with_links_in_orbit_or_platforms(name):
    values = changed_to(name, {"engine": {**LOCAL, **LINKS, **RELAYS}, "hours": 24})
    assert_same(finished(values), on_the_ground(values))


@pytest.mark.parametrize("algorithm", AGENCIES)
def test_algorithms_for_several_objectives(algorithm, tmp_path):
    values = {
        "algorithm": {"name": algorithm, **LITTLE_WORK.get(algorithm, {})},
        "engine": {"name": "mission", **always_open(tmp_path)},
    }
    assert_same(finished(values), on_the_ground(values))
