from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Parcels
from fedpareto.contract.registry import problems
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.problems.convex import Convex
from fedpareto.problems.fairness.gaps import (
    gap,
    hard_decisions,
    relaxed_decisions,
)
from fedpareto.problems.fairness.problem import Fairness
from fedpareto.problems.images_text.problem import ClassificationProblem
from fedpareto.problems.morl.problem import MORLProblem
from fedpareto.problems.multitask.problem import MultiTask
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import PLAY_CHECKS, PROBLEM_CHECKS

ELSEWHERE = (Fairness, MultiTask, ClassificationProblem, ReinforcementProblem)
"""Those on published data and on a user's table have files of their own; those that are played, checks of their own."""

VARIANTS = {
    **{name: cls() for name, cls in problems().items() if not issubclass(cls, ELSEWHERE)},
    "convex, 5 goals": Convex(goals=5, dimension=11),
    "synthetic, equal opportunity": Synthetic(fairness="equal-opportunity"),
    "synthetic, FedFB": Synthetic(partition="fedfb"),
    "synthetic, uneven": Synthetic(partition="dirichlet", alpha=0.5),
}


@pytest.mark.parametrize("check", PROBLEM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", VARIANTS)
def test_problem_keeps_the_contract(name, check):
    check(VARIANTS[name], 3)


PLAYED = {name: cls(episodes=1) for name, cls in problems().items() if issubclass(cls, MORLProblem)}


@pytest.mark.parametrize("check", PLAY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", PLAYED)
def test_a_problem_that_is_played_keeps_the_contract(name, check):
    check(PLAYED[name], 3)


# -- convex --------------------------------------------------------------------------------------------------------


def test_the_clients_rows_average_to_its_exact_centres():
    problem = Convex(heterogeneity=0.5, noise=2.0)
    data = problem.data(4, 1)
    for client in range(4):
        mean = data["train"].of_client(client)["centres"].mean(0)
        assert torch.allclose(mean, data["test"].of_client(client)["centres"][0], atol=1e-12)


def test_clients_are_unequal_in_size_unless_asked_otherwise():
    assert len(set(Convex().data(8, 0)["train"].counts)) > 2
    assert set(Convex(unequal=False).data(8, 0)["train"].counts) == {40}


def test_the_known_front_is_not_dominated_and_spans_the_corners():
    from fedpareto.moo.dominance import is_nondominated

    for goals in (2, 3):
        front = Convex(goals=goals).known_front()
        assert is_nondominated(front).all()
        assert front.min(axis=0).tolist() == [0] * goals


# -- SYNTHETIC -----------------------------------------------------------------------------------------------------


def whole(problem, split, clients=10, seed=0):
    return {name: column.numpy() for name, column in problem.data(clients, seed)[split].columns.items()}


def test_synthetic_has_the_published_sizes_and_moments():
    train, test = whole(Synthetic(), "train"), whole(Synthetic(), "test")
    assert len(train["label"]) == 3500
    assert len(test["label"]) == 1500
    assert train["label"].mean() == pytest.approx(0.6, abs=0.03)
    for label, mean, covariance in ((0, -2, [[10, 1], [1, 3]]), (1, 2, [[5, 1], [1, 5]])):
        points = train["features"][train["label"] == label]
        assert points.mean(axis=0) == pytest.approx([mean, mean], abs=0.3)
        assert np.cov(points.T) == pytest.approx(np.array(covariance), abs=1.0)


def test_the_sensitive_attribute_follows_the_class_densities_at_the_rotated_point():
    from scipy.stats import multivariate_normal

    rows = whole(Synthetic(), "train")
    turn = math.pi / 4
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    turned = rows["features"] @ rotation.T
    first = multivariate_normal([-2, -2], [[10, 1], [1, 3]]).pdf(turned)
    second = multivariate_normal([2, 2], [[5, 1], [1, 5]]).pdf(turned)
    expected = second / (first + second)
    for low in np.arange(0, 1, 0.2):
        inside = (expected >= low) & (expected < low + 0.2)
        assert rows["sensitive"][inside].mean() == pytest.approx(expected[inside].mean(), abs=0.07)


def test_fedfb_deals_the_published_shares_of_each_group():
    data = Synthetic(partition="fedfb").data(3, 0)["train"]
    for group, shares in ((1, (0.5, 0.3, 0.2)), (0, (0.2, 0.4, 0.4))):
        counts = np.array([(data.of_client(client)["sensitive"] == group).sum().item() for client in range(3)])
        assert counts / counts.sum() == pytest.approx(shares, abs=0.001)


def test_every_row_is_assigned_once():
    for problem in (Synthetic(), Synthetic(partition="dirichlet", alpha=0.5)):
        dealt = whole(problem, "train", clients=7)["features"]
        assert len(np.unique(dealt, axis=0)) == 3500


def test_fedfb_needs_three_clients_and_says_so():
    with pytest.raises(UserError, match="has 3 clients, not 4; set clients to 3"):
        Synthetic(partition="fedfb").data(4, 0)


def test_accuracy_and_fairness_truly_conflict():
    """Training for one preference or the other moves the two objectives in opposite directions."""
    import fedpareto

    points = {}
    for name, preference in (("accuracy", "1,0"), ("fairness", "0,1")):
        result = fedpareto.run(
            "synthetic", "fedavg", clients=2, rounds=4, preferences=preference, engine={"threads": 1, "chunk": 2}
        )
        points[name] = result.solutions[0].points.mean(axis=0)
    assert points["accuracy"][0] > 0.85
    assert points["accuracy"][0] > points["fairness"][0] + 0.1
    assert points["fairness"][1] > points["accuracy"][1] + 0.3


# -- gaps ----------------------------------------------------------------------------------------------------------


def batch_of(label, sensitive, mask=None):
    columns = {"label": torch.tensor([label]).double(), "sensitive": torch.tensor([sensitive]).double()}
    return Batch(columns, torch.ones_like(columns["label"]) if mask is None else torch.tensor([mask]).double())


def test_gaps_by_hand():
    decisions = torch.tensor([[1.0, 0, 1, 1, 0, 1]]).double()
    batch = batch_of([1, 1, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    assert gap("demographic-parity", decisions, batch).size.item() == pytest.approx(2 / 3 - 2 / 3)
    assert gap("equal-opportunity", decisions, batch).size.item() == pytest.approx(2 / 3 - 1 / 2)


def test_padding_does_not_count():
    decisions = torch.tensor([[1.0, 0, 1, 1]]).double()
    full = batch_of([1, 1, 1, 1], [0, 1, 1, 0], mask=[1, 1, 0, 0])
    assert gap("demographic-parity", decisions, full).size.item() == 1


@pytest.mark.parametrize("sensitive", [[0, 0, 0], [1, 1, 1]])
def test_a_batch_without_one_of_the_groups_gives_no_nan_and_no_gradient(sensitive):
    logits = torch.tensor([[2.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    found = gap("demographic-parity", relaxed_decisions(logits, 1.5), batch_of([1, 1, 0], sensitive)).size.sum()
    found.backward()
    assert found.item() == 0
    assert logits.grad.tolist() == [[0, 0, 0]]


def test_the_relaxation_tends_to_the_decision_as_its_steepness_grows():
    logits = torch.linspace(-3, 3, 60)[None].double()
    wrong = [(relaxed_decisions(logits, c) - hard_decisions(logits)).abs().max().item() for c in (1, 10, 1000)]
    assert wrong[0] > wrong[1] > wrong[2]
    assert wrong[2] < 1e-6
    assert torch.autograd.gradcheck(lambda z: relaxed_decisions(z, 1.5), (logits[:, ::7].clone().requires_grad_(),))


def test_one_model_on_rows_that_all_clients_hold_is_evaluated_once_with_the_same_values(monkeypatch):
    problem = Synthetic()
    federation = Federation.create(problem, 5, 0)
    setting = federation.setting(problem, rounds=1)
    engine = LocalEngine(FedAvg(), problem, problem.learner(), [federation], [setting], choices=Choices(1, 5))
    alike = Parcels(setting.clients, {"model": setting.initial})
    each = Parcels(setting.clients, own={"model": setting.initial.expand(5, -1).clone()})
    seen = []

    def noted(self, parameters, batch, evaluate=Synthetic.evaluate):
        seen.append(len(batch.mask))
        return evaluate(self, parameters, batch)

    monkeypatch.setattr(Synthetic, "evaluate", noted)
    once, one_by_one = (engine.run([], solutions).evaluations.sent for solutions in (alike, each))
    assert engine.split_names == ["train", "test", "own-test"]
    assert seen == [5, 1, 5, 5, 5, 5]
    torch.testing.assert_close(once.rows, one_by_one.rows)
