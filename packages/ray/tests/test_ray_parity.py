"""The same federation on workers of Ray as in one stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.config.errors import QuorumLost
from fedpareto.contract import registry
from fedpareto.contract.messages import Replies
from fedpareto_ray.replies import RemoteReplies
from little_work import LITTLE_WORK
from on_ray import difference, gap, locally, played, remotely, small, unequal

pytestmark = pytest.mark.takes_long

EXACT = 1e-9
GROUPS = {"problem": {"name": "synthetic", "hidden": [4], "partition": "dirichlet"}, "learner": {"epochs": 1}}
"""A problem of group fairness, for those that need one."""
CLASSES = {"problem": {"name": "synthetic", "hidden": [4]}, "learner": {"epochs": 1}}


def both(spec, crew):
    """The same run on both engines: how far apart they are."""
    local, on_ray = locally(spec), remotely(spec, crew)
    return difference(spec, played(spec, local), played(spec, on_ray), local, on_ray)


@pytest.mark.parametrize("name", [*registry.algorithms(), "fedavg+ft", "fsmgda+ft"])
def test_every_algorithm_gives_the_same_run_on_two_workers(name, crews):
    given = LITTLE_WORK.get(name, {})
    needs_groups = "groups" in registry.make_algorithm(name.removesuffix("+ft")).requires
    spec = small({"name": name} | given, rounds=3, **(GROUPS if needs_groups else {}))
    assert unequal(spec)
    assert both(spec, crews(2)) <= EXACT


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedmgda-plus"])
def test_the_same_number_of_workers_gives_the_same_bits(name, crews):
    spec = small(name)
    first, second = (played(spec, remotely(spec, crews(2))) for _ in range(2))
    for one, other in zip(first[1], second[1], strict=True):
        assert torch.equal(one.rows, other.rows)


@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_a_secure_sum_is_the_same_on_workers(name, crews):
    assert both(small(name, secure_sum={"kind": "masked", "precision": 40}), crews(2)) <= EXACT


def test_several_seeds_train_side_by_side(crews):
    assert both(small("ditto", seeds=[3, 5]), crews(2)) <= EXACT


@pytest.mark.parametrize(
    ("attack", "more"),
    [
        ({"kind": "sign-flip"}, {}),
        ({"kind": "gaussian", "always": True}, {"algorithm": "fedamp"}),
        ({"kind": "label-flip"}, CLASSES),
        ({"kind": "collusion", "share": 0.5}, {}),
        ({"kind": "collusion", "share": 0.5}, {"seeds": [1, 2], "faults": {"dropout": 0.2, "corrupt": 0.2}}),
        ({"kind": "inflated-count"}, {"defence": "median"}),
        ({"kind": "bias"}, {"defence": "clip"}),
        ({"kind": "free-rider"}, {}),
        ({"kind": "seldom", "strength": 2}, {}),
        ({"kind": "low-quality"}, {"problem": {"name": "synthetic", "hidden": [4], "rows": 300}}),
    ],
    ids=lambda value: value.get("kind", ""),
)
def test_attackers_and_defences_do_the_same(attack, more, crews):
    assert both(small(**{"algorithm": "fedavg", "attack": attack} | more), crews(2)) <= EXACT


def test_injected_faults_strike_the_same_clients(crews):
    spec = small("fedavg", clients=14, participation=1.0, faults={"dropout": 0.2, "stragglers": 0.2, "corrupt": 0.2})
    local, on_ray = locally(spec), remotely(spec, crews(2))
    one, other = played(spec, local), played(spec, on_ray)
    assert difference(spec, one, other, local, on_ray) <= EXACT
    for kind in ("dropped out", "injected straggler", "not finite"):
        assert any(kind in failure for failure in other[2]), f"nobody met this fault: {kind}"


def test_the_quorum_counts_the_clients_of_all_workers(crews):
    spec = small("fedavg", participation=1.0, faults={"dropout": 0.6}, quorum=7)
    engine = remotely(spec, crews(2))
    with pytest.raises(QuorumLost, match=r"of 7 clients gave a valid reply, the quorum is 7"):
        engine.run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))


def test_noise_of_the_server_is_in_the_sum_of_replies_that_are_elsewhere(crews):
    privacy = {"kind": "central", "clip": 1.0, "noise": 1.1}
    assert both(small({"name": "fedavg", "weighting": "equal"}, privacy=privacy), crews(2)) <= EXACT


def test_losses_and_the_parts_of_models_come_from_all_workers(crews):
    spec = small({"name": "praffl"} | LITTLE_WORK["praffl"], rounds=1)
    local, on_ray = locally(spec), remotely(spec, crews(2))
    solutions = [spec.algorithm.solutions(spec.algorithm.begin(setting)) for setting in local.settings]
    assert gap(local.losses(solutions)[0].rows, on_ray.losses(solutions)[0].rows) <= EXACT
    parts, found = local.model_parts(0, solutions[0]), on_ray.model_parts(0, solutions[0])
    assert sorted(found) == list(range(7))
    assert max(gap(part[name], found[client][name]) for client, part in parts.items() for name in part) <= EXACT


def test_private_state_moves_to_another_number_of_workers(crews):
    spec = small("ditto", rounds=2)
    first, second = remotely(spec, crews(2)), remotely(spec, crews(1))
    played(spec, first)
    second.private = first.private
    assert len(second.private) == len(first.private) > 0
    for key, state in first.private.items():
        assert all(torch.equal(tensor, second.private[key][name]) for name, tensor in state.items())


# -- what travels --------------------------------------------------------------------------------------------------


@pytest.fixture
def exchanged(crews):
    """One exchange of FedAvg with all seven clients: the engine, and its replies here and elsewhere."""
    spec = small("fedavg", participation=1.0, rounds=1)
    engine, local = remotely(spec, crews(2)), locally(spec)
    tasks = spec.algorithm.ask(spec.algorithm.begin(engine.settings[0]))
    return engine, local.run(tasks).replies, engine.run(tasks).replies


def test_models_stay_with_the_workers_until_somebody_reads_them(exchanged):
    engine, here, there = exchanged
    assert isinstance(there, RemoteReplies)
    assert set(there.tensors) == {"size"}
    before = engine.crew.up
    size = here["model"][0].numel() * 8
    there.mean("model")
    assert engine.crew.up - before == 2 * size, "one sum for each worker"
    assert torch.allclose(there["model"], here["model"])
    assert engine.crew.up - before == (2 + 7) * size


def test_reductions_of_replies_elsewhere_are_those_of_their_rows(exchanged):
    _, here, there = exchanged
    origin = here["model"].mean(dim=0)
    weights = torch.rand(3, 7, dtype=torch.float64)
    order = np.array([5, 0, 3])
    for one, other in ((here, there), (here.only(order), there.only(order))):
        some = weights[:, : len(one)]
        assert torch.allclose(other.sum("model", some), one.sum("model", some))
        assert torch.allclose(other.sum("model", some[0], origin), one.sum("model", some[0], origin))
        assert torch.allclose(other.mean("model"), one.mean("model"))
        assert torch.allclose(other.squared_norms("model", origin), one.squared_norms("model", origin))
        assert torch.equal(other.gram("model", origin), one.gram("model", origin))
        moved, noisy = one.moved("model", origin), other.moved("model", origin)
        assert torch.allclose(noisy.sum("model", some), moved.sum("model", some))
        assert torch.allclose(noisy.gram("model", origin), moved.gram("model", origin))
        assert torch.allclose(noisy["model"], moved["model"])
        assert type(other.whole()) is Replies
        assert other.size == one.size
        assert torch.allclose(other["size"], one["size"])


def test_what_a_worker_replied_in_an_earlier_exchange_is_gone(exchanged):
    engine, _, there = exchanged
    engine.run_all([[]], [None])
    with pytest.raises(RuntimeError, match="kept until the next exchange"):
        there.mean("model")


def test_what_reading_every_row_costs_is_said_once(crews, caplog):
    spec = small("fedpref", rounds=2)
    played(spec, remotely(spec, crews(2)))
    told = [record.message for record in caplog.records if "every client's reply" in record.message]
    assert told == ["fedpref reads every client's reply: 0.00032 MB come to this process in a round"]
