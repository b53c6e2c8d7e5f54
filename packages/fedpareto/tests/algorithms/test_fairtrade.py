"""FairTrade against FedAvg, a plain loop over proposals, and counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpareto.algorithms.fairness.fairfed import FairFed
from fedpareto.algorithms.fairness.fairtrade import STEPS, WORST, FairTrade, Penalised, measured
from fedpareto.config.errors import UserError
from fedpareto.contract.groups import Comparison
from fedpareto.learners.supervised import Supervised
from fedpareto.moo import bayesian
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import largest_difference, trial

SMALL = Synthetic(partition="dirichlet", hidden=(4,), rows=300)
SHORT = Supervised(lr=0.05, batch_size=64, epochs=1)


def test_without_proposals_or_penalty_it_is_fedavg():
    plain = trial(FairFed(beta=0.0, debias="none"), SMALL, learner=SHORT).models
    assert largest_difference(trial(FairTrade(fairness=0.0, proposals=0), SMALL, learner=SHORT).models, plain) <= 1e-12
    assert largest_difference(trial(FairTrade(proposals=0), SMALL, learner=SHORT).models, plain) > 1e-5


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_without_proposals_the_penalty_and_the_step_stay(optimiser):
    learner = replace(SHORT, optimiser=optimiser, lr_schedule="step", lr_period=1)
    done = trial(FairTrade(fairness=3.0, step=0.5, proposals=0), SMALL, learner=learner)
    for state in done.states:
        np.testing.assert_allclose(FairTrade(fairness=3.0, step=0.5).proposed(state), (3.0, 0.5))
    slower = trial(FairTrade(fairness=3.0, proposals=0), SMALL, learner=replace(learner, lr=0.025)).models
    assert largest_difference(done.models, slower) <= 1e-12, "a factor on the step size of every client"


def test_proposals_are_those_of_a_plain_loop_and_begin_anew():
    algorithm = FairTrade(proposals=3)
    done = trial(algorithm, SMALL, learner=SHORT, rounds=6)
    tried, seen, comparison = algorithm.begin(done.engine.settings[0]).tried.numpy(), np.empty((0, 2)), SMALL.comparison
    for number, (state, outcome) in enumerate(zip(done.states[1:], done.outcomes, strict=True), start=1):
        if number == 4:
            assert algorithm.proposed(state) == (1.0, 1.0)
            assert len(state.seen) == 0
            break
        if number > 1:
            counts = (outcome.replies[name].sum(0) for name in ("positive", "rows"))
            seen = np.vstack([seen, measured(*counts, comparison)])
        found = bayesian.proposal(tried, seen, WORST, bayesian.lattice(2, STEPS))
        tried = np.vstack([tried, found])
        np.testing.assert_allclose(state.tried.numpy(), tried)
        np.testing.assert_allclose(state.seen.numpy(), seen)
        alpha, sigma = algorithm.proposed(state)
        np.testing.assert_allclose((alpha, sigma), (0.1 * 100 ** found[0], 0.25 * 8 ** found[1]))
        sent = algorithm.ask(state)[0].shared["proposal"]
        assert sent.tolist() == [alpha, sigma], "not rounded: clients use the numbers that the record has"
    assert len({tuple(row) for row in tried}) == len(tried) == 4


def test_balanced_error_and_gap_by_hand():
    positive, rows = torch.tensor([[1.0, 3.0], [6.0, 2.0]]), torch.tensor([[10.0, 10.0], [8.0, 4.0]])
    error, gap = measured(positive, rows, Comparison(2, (None,)))
    assert error == pytest.approx((4 / 20 + 4 / 12) / 2)
    assert gap == pytest.approx(7 / 18 - 5 / 14)
    _, gap = measured(positive, rows, Comparison(2, (1, 0)))
    assert gap == pytest.approx(6 / 8 - 2 / 4), "the larger of two comparisons"
    assert measured(torch.zeros(2, 2), torch.tensor([[5.0, 5.0], [0.0, 0.0]]), Comparison(2, (None,))) == (0.25, 0.0)


def test_the_gap_is_that_of_any_two_of_three_groups():
    positive, rows = torch.tensor([[0.0, 0.0, 0.0], [5.0, 2.0, 9.0]]), torch.tensor([[1.0, 0.0, 0.0], [10.0] * 3])
    error, gap = measured(positive, rows, Comparison(3, (1,)))
    assert error == pytest.approx((0 + 14 / 30) / 2)
    assert gap == pytest.approx(9 / 10 - 2 / 10), "neither of them is the first"


def test_the_loss_by_hand():
    rows = SMALL.data(2, 0)["train"]
    columns = {name: column[None, :40] for name, column in rows.of_client(0).items()}
    batch = Batch(columns, torch.ones(1, 40))
    parameters = {name: value[None] for name, value in SMALL.layout.unflatten(SMALL.initial(0)).items()}
    logits, group = SMALL.logits(parameters, batch)[0], SMALL.groups(batch)[0]
    probabilities = logits.sigmoid()
    gap = probabilities[group == 1].mean() - probabilities[group == 0].mean()
    entropy = SMALL.entropies(parameters, batch)[0].mean()
    found = Penalised(SMALL)(parameters, batch, {"fairness": torch.tensor([3.0])})
    assert float(found[0]) == pytest.approx(float(entropy + 3 * gap**2), rel=1e-5)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"proposals": -1}, "proposals is -1; it is at least 0"),
        ({"fairness_range": (1.0, 0.1)}, r"fairness_range is \[1, 0.1\]; it is a smaller and a larger positive number"),
        ({"step": 0.0}, "step is 0; it is above 0"),
    ],
)
def test_wrong_parameters_are_refused(wrong, complaint):
    with pytest.raises(UserError, match=complaint):
        FairTrade(**wrong)
