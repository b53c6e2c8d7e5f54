"""Late updates that are corrected for what the server has learnt meanwhile."""

from __future__ import annotations

import pytest
import torch

from fedpareto.clock.staleness import compensated
from fedpareto.config.errors import UserError
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft


def spec_of(policy, algorithm="fedbuff", **values):
    engine = {"precision": "float64", "threads": 1, "chunk": 4}
    given = {"problem": "convex", "algorithm": algorithm, "clients": 6, "rounds": 8, "engine": engine}
    devices = {"kind": "equal", "speed": [1e5, 1.1e5, 1.3e5, 1.7e5, 1.9e5, 2.3e5]}
    return Draft({**given, "policy": policy, "devices": devices, **values}).finish()


def models(result):
    return torch.stack([result.models[0][client] for client in sorted(result.models[0])])


def policies(**more):
    return {"kind": "buffered", "buffer": 2, **more}


def test_of_a_parabola_it_is_the_step_from_where_the_server_is_now():
    """f = ½ h w², one step of η: u = −η h w. With λ u² = η h the compensated update is −η h (w + moved), exactly."""
    h, step = torch.tensor([[2.0, 3.0, 0.5]], dtype=torch.float64), 0.1
    then, moved = torch.tensor([[1.0, -2.0, 4.0]], dtype=torch.float64), 0.25
    now = then + moved
    for entry in range(3):
        update = -step * h * then
        strength = float((step * h / update.square())[0, entry])
        begun, reply = {"model": then}, {"model": then + update, "size": torch.ones(1)}
        found = compensated(reply, begun, {"model": now}, strength)
        assert float((found["model"] - then)[0, entry]) == pytest.approx(float((-step * h * now)[0, entry]), rel=1e-12)
        assert found["size"] is reply["size"]


def test_without_strength_it_is_none_to_the_bit_and_with_it_late_replies_change():
    plain, none, some = (
        start(spec_of(policies(**more)))
        for more in ({}, {"compensation": "taylor", "strength": 0.0}, {"compensation": "taylor", "strength": 5.0})
    )
    assert torch.equal(models(plain), models(none))
    assert not torch.equal(models(plain), models(some))
    assert [row["clock"] for row in plain.history] == [row["clock"] for row in some.history]


def test_fresh_replies_are_as_they_are():
    """A buffer for all: nobody is late."""
    plain, some = (
        start(spec_of({"kind": "buffered", "buffer": 6, **more}))
        for more in ({}, {"compensation": "taylor", "strength": 1e6})
    )
    assert torch.equal(models(plain), models(some))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedasync", "fedmgda-plus", "ditto", "fedrep", "fedfew", "cfl"])
def test_it_fits_where_a_model_is_brought_along(algorithm):
    settings = {"name": "cfl", "absent": "follow"} if algorithm == "cfl" else algorithm
    problem = {"problem": "synthetic"} if algorithm == "fedrep" else {}
    assert spec_of(policies(compensation="taylor"), settings, **problem).policy.compensation == "taylor"


@pytest.mark.parametrize("algorithm", ["fedpref", "cfl", "mat-fl", "fedamp", "mocha", "local", "fsmgda"])
def test_it_is_refused_where_nobody_else_changes_a_clients_model_or_none_is_sent(algorithm):
    with pytest.raises(UserError, match=f"policy.compensation=taylor does not fit {algorithm}: nobody else"):
        spec_of(policies(compensation="taylor"), algorithm)


def test_nobody_is_late_where_all_are_waited_for():
    with pytest.raises(UserError, match="with the kind sync nobody is late"):
        spec_of({"kind": "sync", "compensation": "taylor"})
