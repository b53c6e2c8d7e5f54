"""Robust rules where the server tells clients apart: whose updates are compared, and what becomes of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpareto.algorithms._shared.personal_models import Cluster
from fedpareto.algorithms.clustered.cfl import CFL
from fedpareto.algorithms.clustered.fedfew import FedFew
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.clustered.ifca import IFCA
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.problems.convex import Convex
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto.trust.defences import Defence

PROBLEM = Convex(dimension=4)
RULES = ("median", "trimmed-mean", "krum", "multi-krum", "fedmgda-plus")


def setting_of(clients: int) -> Setting:
    initial = torch.zeros(PROBLEM.layout.size, dtype=torch.float64)
    return Setting(0, np.arange(clients), 5, PROBLEM.layout, PROBLEM.objectives, initial)


def near(centre: Tensor, count: int, seed: int = 0) -> Tensor:
    """Points around a centre `[d]`, `[count, d]`."""
    stream = torch.Generator().manual_seed(seed)
    return centre + 0.1 * torch.randn(count, len(centre), generator=stream, dtype=torch.float64)


@pytest.fixture
def clusters() -> tuple[list[Tasks], Replies]:
    """Two clusters of five that move in opposite directions from models of their own; client 3 lies a hundredfold."""
    begun = near(torch.zeros(4, dtype=torch.float64), 10, seed=1) * 30
    one = torch.ones(4, dtype=torch.float64)
    updates = torch.cat([near(one, 5), near(-one, 5, seed=2)])
    updates[3] = -100.0
    tasks = Tasks(np.arange(10), own={"model": begun}, round=1, groups=np.repeat([0, 1], 5))
    return [tasks], Replies(np.arange(10), {"model": begun + updates})


@pytest.mark.parametrize("rule", RULES)
def test_inside_a_cluster_a_liar_gets_the_centre_of_the_others_who_keep_their_own(
    rule: str, clusters: tuple[list[Tasks], Replies]
) -> None:
    (tasks,), replies = clusters
    told = Defence(rule=rule, attackers=1, radius=5.0).applied([tasks], replies)  # type: ignore[arg-type]
    assert told.replies.clients.tolist() == list(range(10)), "nobody is missing, or no cluster could be split"
    assert 3 in told.left_out
    kept = [client for client in range(10) if client not in told.left_out]
    assert len(kept) >= 8
    assert torch.equal(told.replies["model"][kept], replies["model"][kept])
    update = told.replies["model"][3] - tasks.own["model"][3]
    assert (update - 1).abs().max() < 0.7, "its own cluster's direction, from its own model"


def test_the_centre_is_the_rules_own_update_of_the_cluster(clusters: tuple[list[Tasks], Replies]) -> None:
    (tasks,), replies = clusters
    told = Defence(rule="median", radius=5.0).applied([tasks], replies).replies["model"]
    updates = replies["model"] - tasks.own["model"]
    torch.testing.assert_close(told[3] - tasks.own["model"][3], updates[:5].median(dim=0).values)
    mean_of_the_four = updates[[0, 1, 2, 4]].mean(0)
    told = Defence(rule="multi-krum", attackers=1).applied([tasks], replies).replies["model"]
    torch.testing.assert_close(told[3] - tasks.own["model"][3], mean_of_the_four)


def test_one_or_two_cannot_outvote_anybody_and_are_shortened_to_the_median_length_of_all(
    clusters: tuple[list[Tasks], Replies],
) -> None:
    (tasks,), replies = clusters
    pair = Tasks(tasks.clients, own=tasks.own, round=1, groups=np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2]))
    told = Defence(rule="median", radius=9.0).applied([pair], replies)
    lengths = (replies["model"] - tasks.own["model"]).norm(dim=1)
    after = (told.replies["model"] - tasks.own["model"]).norm(dim=1)
    middle = lengths.sort().values[4:6].mean()
    assert float(after[3]) == pytest.approx(float(middle))
    assert 3 in told.shortened
    assert told.left_out == ()


def test_clients_compared_with_nobody_pass_as_they_are_so_fine_tuning_does(
    clusters: tuple[list[Tasks], Replies],
) -> None:
    (tasks,), replies = clusters
    alone = Tasks(tasks.clients, own=tasks.own, round=1, groups=np.full(10, -1))
    for rule in ("clip", *RULES, "confidence"):
        told = Defence(rule=rule).applied([alone], replies)  # type: ignore[arg-type]
        assert torch.equal(told.replies["model"], replies["model"])
    tuned = registry.make_algorithm("fedavg+ft", {})
    (last,) = tuned.ask(_at_last_round(tuned, setting_of(3)))
    assert (last.groups < 0).all()
    assert (last.only(np.array([1])).groups < 0).all()


def _at_last_round(algorithm: Any, setting: Setting) -> Any:
    state = algorithm.begin(setting)
    last = setting.rounds - 1
    return replace(state, round=last, inner=replace(state.inner, round=last))


@pytest.mark.parametrize("algorithm", [FedPref(), CFL()])
def test_clusters_say_themselves_who_learns_together(algorithm: Any) -> None:
    state = algorithm.begin(setting_of(4))
    (tasks,) = algorithm.ask(state)
    assert not len(tasks.groups), "one cluster is everybody"
    (tasks,) = algorithm.ask(replace(state, clusters=(Cluster((0, 3)), Cluster((1, 2)))))
    assert tasks.groups.tolist() == [0, 1, 1, 0]


def test_of_several_models_each_is_defended_and_a_liars_losses_are_not_believed() -> None:
    fedfew = FedFew(models=2, weighting="equal")
    state = fedfew.begin(setting_of(5))
    tasks = fedfew.ask(state)
    models = state.models + torch.stack([near(torch.full((4,), 1.0 + k, dtype=torch.float64), 5) for k in (0, 1)], 1)
    models[2] = 1e3
    losses = torch.tensor([[0.1, 0.4], [0.2, 0.5], [50.0, 60.0], [0.3, 0.6], [0.6, 0.7]], dtype=torch.float64)
    told = Defence(rule="median", radius=4.0).applied(
        tasks, Replies(np.arange(5), {"models": models, "losses": losses})
    )
    assert told.left_out == (2,)
    torch.testing.assert_close(told.replies["models"][2], state.models + (models - state.models).median(0).values)
    torch.testing.assert_close(told.replies["losses"][2], torch.tensor([0.25, 0.55], dtype=torch.float64))
    moved = fedfew.tell(state, told.replies).models - state.models
    assert moved.abs().max() < 3


def test_who_chose_one_of_several_models_is_compared_with_those_who_chose_the_same() -> None:
    ifca = IFCA(models=2)
    state = ifca.begin(setting_of(7))
    tasks = ifca.ask(state)
    choice = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    one = torch.ones(4, dtype=torch.float64)
    models = state.models[choice] + torch.cat([near(one, 3), near(-one, 4, seed=3)])
    models[5] = 1e3
    replies = Replies(np.arange(7), {"model": models, "choice": choice.double()})
    after = ifca.tell(state, Defence(rule="median").applied(tasks, replies).replies).models
    ordered = models[3:].sort(dim=0).values
    torch.testing.assert_close(after[0], models[:3].median(0).values)
    torch.testing.assert_close(after[1], ordered[1:3].mean(0))


def test_of_a_shared_body_the_median_is_what_the_server_averages() -> None:
    praffl = PraFFL()
    body = torch.zeros(6, dtype=torch.float64)
    replies = Replies(np.arange(5), {"body": near(torch.ones(6, dtype=torch.float64), 5)})
    replies["body"][4] = -1e6
    told = Defence(rule="median").applied([Tasks(np.arange(5), {"body": body}, round=1)], replies).replies
    torch.testing.assert_close(told.mean("body"), replies["body"].median(0).values)
    assert "body" in praffl.reply_shapes(setting_of(1)).get("train", {})


@pytest.mark.takes_long
def test_a_lie_reaches_everybody_in_fedprefs_cluster_and_a_rule_stops_it() -> None:
    values: dict[str, Any] = {
        "problem": "convex",
        "clients": 6,
        "rounds": 6,
        "preferences": "0.5,0.5",
        "engine": {"threads": 1, "chunk": 6},
    }

    def harm(name: str, attack: Any, defence: Any) -> float:
        result = runner.start(Draft(values | {"algorithm": name, "attack": attack, "defence": defence}).finish())
        return float(result.solutions[0].points[:5, 0].mean())

    lie = {"kind": "gaussian", "strength": 50, "clients": [5]}
    for name in ("fedpref", "cfl", "fedfew", "ditto", "fedavg-groups", "fedamp", "fedavg+ft"):
        calm, saved = harm(name, "none", "median"), harm(name, lie, "median")
        assert saved < calm + 0.3, name
    assert harm("cfl", lie, "none") > harm("cfl", "none", "none") + 1
