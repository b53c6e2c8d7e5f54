"""Servers that score replies on rows of their own, against limits and steps by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from small_problems import setting_of

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.fairness.fair_fate import FairFate
from fedpareto.algorithms.fairness.fedval import FedVal, ranks
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Replies
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

PLANE = Layout.of({"all": (2,)})
MODELS = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0], [2.0, -1.0]])
SIZES = np.array([10.0, 20.0, 30.0, 40.0])


def told(algorithm, judge, **more):
    """The state after four clients' replies, on a server that measures by `judge`."""
    setting = replace(setting_of(range(4), PLANE), judge=judge)
    tensors = {"model": torch.tensor(MODELS), "size": torch.tensor(SIZES), **more}
    return algorithm.tell(algorithm.begin(setting), Replies(np.arange(4), tensors, rounds=np.ones(4)))


def coordinates(models):
    """Two objectives, both minimised: the coordinates of a model."""
    return models.unsqueeze(1).expand(-1, 3, -1)


# -- FedVal --------------------------------------------------------------------------------------------------------


def test_ranks_are_those_of_statistics_with_ties_in_the_middle():
    values = np.random.default_rng(0).integers(0, 4, (9, 3)).astype(float)
    assert ranks(torch.tensor(values)).numpy() == pytest.approx(rankdata(values, axis=0))
    assert ranks(torch.full((1, 2), -torch.inf)).tolist() == [[1, 1]]


@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_one_criterion_and_equal_ranks_is_fedavg(weighting):
    fedavg = told(FedAvg(weighting), None).model
    equal = FedVal(weighting, criteria=("objective 1",))
    assert torch.allclose(told(equal, lambda models: torch.ones(len(models), 3, 2)).model, fedavg, atol=1e-12)
    assert torch.allclose(told(FedVal(weighting, sharpness=0.0), coordinates).model, fedavg, atol=1e-12)
    assert not torch.allclose(told(equal, coordinates).model, fedavg, atol=1e-3)


def test_a_step_of_fedval_by_hand():
    first, second = (5 - rankdata(MODELS[:, place]) for place in (0, 1))
    scores = (3 * first + second) / 4
    done = told(FedVal("size", importance=(3.0, 1.0), sharpness=2.0), coordinates)
    weights = scores**2 * SIZES
    assert done.scores.numpy() == pytest.approx(scores)
    assert done.model.numpy() == pytest.approx(weights @ MODELS / weights.sum())
    assert done.scores.tolist() != told(FedVal(criteria=("objective 0",)), coordinates).scores.tolist() == list(first)


def test_a_client_that_flips_labels_gets_the_last_rank(tmp_path):
    problem = Synthetic(hidden=(4,), server_rows=400)
    run = {"clients": 5, "rounds": 3, "engine": {"threads": 1, "chunk": 5}, "learner": {"epochs": 1}}
    attack = {"kind": "label-flip", "clients": [3]}
    fedpareto.run(
        problem, FedVal(criteria=("accuracy",)), attack=attack, preferences=[1, 0], out=tmp_path / "run", **run
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [json.loads(line)["scores"] for line in lines][-1]
    assert scores[3] == min(scores)
    assert sorted(scores)[1] > 1, "nobody shares the last rank"


def test_fedval_says_what_it_needs():
    with pytest.raises(UserError, match="fedval: the server has no rows of its own on this problem; a table gives"):
        trial(FedVal(), Synthetic(hidden=(4,)), rounds=1)
    with pytest.raises(UserError, match="'speed' is no objective of this problem, which has objective 0, objective 1"):
        told(FedVal(criteria=("speed",)), coordinates)
    with pytest.raises(UserError, match="importance has 1 entries for 2 criteria"):
        told(FedVal(importance=(1.0,)), coordinates)
    for wrong in ({"importance": (-1.0, 2.0)}, {"sharpness": -1.0}):
        with pytest.raises(UserError, match="is"):
            FedVal(**wrong)


@pytest.mark.parametrize("importance", [(0.0, 0.0), (np.inf, 1.0), (2.0, -1.0)])
def test_importances_that_have_no_shares_are_refused(importance):
    with pytest.raises(UserError, match="its entries are not negative and not all 0"):
        FedVal(importance=importance)


def test_only_the_ratio_of_importances_counts_and_one_may_be_0():
    small, large = (told(FedVal(importance=one), coordinates).scores for one in ((0.3, 0.1), (3.0, 1.0)))
    assert torch.allclose(small, large)
    first = told(FedVal(importance=(0.5, 0.0)), coordinates).scores
    assert first.tolist() == told(FedVal(criteria=("objective 0",)), coordinates).scores.tolist()


# -- FAIR-FATE -----------------------------------------------------------------------------------------------------


def test_fair_fate_without_its_momentum_is_fedavg():
    done = trial(FairFate(lambda0=0.0), Convex(), participation=0.6)
    assert largest_difference(done.models, trial(FedAvg(), Convex(), participation=0.6).models) <= 1e-12
    assert largest_difference(done.models, trial(FairFate(lambda0=0.9), Convex(), participation=0.6).models) > 1e-3


def test_two_steps_of_fair_fate_by_hand():
    """Of clients at (±x, y) on a server that minimises both coordinates; whoever is not ahead of θ has no momentum."""
    algorithm = FairFate("size", lambda0=0.3, rho=0.5, beta=0.8)
    theta, v = np.zeros(2), np.zeros(2)
    state = algorithm.begin(replace(setting_of(range(4), PLANE), judge=coordinates))
    for t in (1, 2):
        merits = -np.vstack([theta, MODELS])
        scaled = ((merits - merits.min(0)) / (merits.max(0) - merits.min(0))).sum(1)
        ahead = np.where(scaled[1:] > scaled[0], scaled[1:], 0)
        assert (ahead == 0).any()
        assert (ahead > 0).any()
        left = 1 - t / 10
        beta = 0.8 * left / (0.2 + 0.8 * left)
        v = beta * v + (1 - beta) * (ahead / ahead.sum()) @ (MODELS - theta)
        weight, mean = min(0.3 * 1.5**t, 1), SIZES / SIZES.sum() @ MODELS - theta
        theta = theta + weight * v / (1 - beta**t) + (1 - weight) * mean
        tensors = {"model": torch.tensor(MODELS), "size": torch.tensor(SIZES)}
        state = algorithm.tell(state, Replies(np.arange(4), tensors, rounds=np.ones(4)))
        assert state.model.numpy() == pytest.approx(theta)
        assert state.fairness.numpy() == pytest.approx(scaled[1:] - scaled[0])


def test_if_nobody_is_fairer_than_the_model_there_is_no_momentum():
    done = told(FairFate(), lambda models: torch.ones(len(models), 3, 2))
    assert done.momentum.tolist() == [0, 0]


def test_fairness_is_what_counts_where_a_problem_has_notions_of_it():
    fair, chosen = FairFate(), FairFate(criteria=("accuracy",))
    setting = trial(fair, Synthetic(hidden=(4,), server_rows=50), rounds=1).states[0].setting
    assert [setting.objectives[place].fairness for place in fair._places(setting)] == [True]
    assert [setting.objectives[place].name for place in chosen._places(setting)] == ["accuracy"]
    for wrong in ({"lambda0": 0.5, "most": 0.2}, {"beta": 1.0}):
        with pytest.raises(UserError, match="is"):
            FairFate(**wrong)
