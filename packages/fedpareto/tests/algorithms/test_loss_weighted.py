"""q-FedAvg and AFL, whose servers weigh clients by their losses, against their papers' formulas."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_problems import Labels, setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.fairness.afl import AFL
from fedpareto.algorithms.fairness.q_fedavg import QFedAvg
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.scalarise import SCALARISATIONS
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

FULL_BATCH = Supervised(lr=0.1, batch_size=1000)
MODELS = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]])
LOSSES = np.array([0.5, 2.0, 1.0])


def replies(losses, round_number=1, lipschitz=(20.0, 20.0, 20.0)):
    before = torch.tensor(losses, dtype=torch.float64)
    tensors = {"model": torch.tensor(MODELS), "loss_before": before, "lipschitz": torch.tensor(lipschitz)}
    return Replies(np.arange(3), tensors, rounds=np.full(3, round_number))


def begun(algorithm):
    """From a model of zeros."""
    return algorithm.begin(setting_of(range(3), Layout.of({"weight": (2,)})))


# -- the loss that clients report ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scalarisation", sorted(SCALARISATIONS))
def test_a_client_reports_its_scalarised_loss_of_what_it_was_sent(scalarisation):
    problem = Labels(rows=20)
    federation = Federation.create(problem, 7, 0, "dirichlet")
    learner = Supervised(lr=0.1, batch_size=8, scalarisation=scalarisation)
    done = trial(AFL(), problem, federation=federation, learner=learner, rounds=1)
    model = problem.initial(0).double()
    rows = federation.splits["train"]
    for client in range(7):
        start, count = int(rows.starts[client]), int(rows.counts[client])
        features, labels = (rows.columns[name][start : start + count].double() for name in ("features", "labels"))
        logits = problem.model(problem.layout.unflatten(model[None]), features[None])[0]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits.expand_as(labels), labels, reduction="none"
        ).mean(dim=0)
        preference = torch.as_tensor(federation.preferences[client])
        expected = SCALARISATIONS[scalarisation](losses[None], preference[None])[0]
        assert float(done.outcomes[0].replies["loss_before"][client]) == pytest.approx(float(expected), abs=1e-9)


# -- q-FedAvg ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 5.0])
def test_a_step_of_q_fedavg_by_hand(q):
    """w − Σ F^q Δ / Σ (q F^(q−1) ‖Δ‖² + L F^q) with Δ = L(w − w_k)."""
    lipschitz = 4.0
    delta = -lipschitz * MODELS
    h = q * LOSSES ** (q - 1) * (delta**2).sum(1) + lipschitz * LOSSES**q
    expected = -(LOSSES**q) @ delta / h.sum()
    algorithm = QFedAvg(q=q, lipschitz=lipschitz)
    assert algorithm.tell(begun(algorithm), replies(LOSSES)).model.numpy() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("lr", [0.05, 0.2])
def test_unless_it_is_given_l_is_one_over_the_step_size_of_local_training(lr):
    problem, learner = Convex(), Supervised(lr=lr, batch_size=1000)
    by_itself = trial(QFedAvg(), problem, learner=learner).models
    assert largest_difference(by_itself, trial(QFedAvg(lipschitz=1 / lr), problem, learner=learner).models) <= 1e-7
    assert largest_difference(by_itself, trial(QFedAvg(lipschitz=10), problem, learner=learner).models) > 1e-6


def test_a_client_that_lies_about_l_changes_little():
    algorithm = QFedAvg()
    honest = algorithm.tell(begun(algorithm), replies(LOSSES)).model
    for lie in (1e-30, 1e30):
        lied = replies(LOSSES, lipschitz=(20.0, lie, 20.0))
        assert torch.equal(algorithm.tell(begun(algorithm), lied).model, honest)
        # Of two clients the lower L counts; without any L the step is to a mean of the models.
        of_two = algorithm.tell(begun(algorithm), lied.only(np.arange(2))).model
        shares = LOSSES[:2] / LOSSES[:2].sum()
        assert of_two.norm() <= np.linalg.norm(shares @ MODELS[:2]) + 1e-12


def test_a_learner_without_a_step_size_asks_for_l():
    clients = SimpleNamespace(learner=object(), learn=lambda model: model, loss=lambda model: model[:, 0])
    assert "lipschitz" not in QFedAvg(lipschitz=3.0).train(clients, {"model": torch.ones(2, 4)})
    with pytest.raises(UserError, match="object has no step size lr from which to take L; set lipschitz"):
        QFedAvg().train(clients, {"model": torch.ones(2, 4)})


def test_q_zero_is_fedavg_with_equal_weights():
    problem = Convex()
    plain = trial(FedAvg(weighting="equal"), problem).models
    assert largest_difference(plain, trial(QFedAvg(q=0.0), problem).models) <= 1e-12
    assert largest_difference(plain, trial(QFedAvg(q=1.0), problem).models) > 1e-6


def test_a_larger_q_lowers_the_largest_loss():
    problem = Convex(heterogeneity=1.0)
    federation = Federation.create(problem, 7, 0, "dirichlet")
    centres = problem.centres() + problem.shifts(7, 0)[:, None]
    worst = []
    for q in (0.0, 2.0, 8.0):
        algorithm = QFedAvg(q=q, lipschitz=10)
        done = trial(algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=100)
        distances = 0.5 * (done.models[0] - centres).square().sum(-1)
        worst.append(float((torch.as_tensor(federation.preferences) * distances).sum(-1).max()))
    assert worst[0] > worst[1] > worst[2]


@pytest.mark.parametrize("losses", [[0.0, 0.0, 0.0], [1e-300, 1.0, 1e300], [0.0, 1.0, 2.0]])
def test_extreme_losses_leave_a_finite_model(losses):
    for q in (0.5, 20.0):
        algorithm = QFedAvg(q=q)
        assert algorithm.tell(begun(algorithm), replies(losses)).model.isfinite().all()


# -- AFL -----------------------------------------------------------------------------------------------------------


def test_two_rounds_of_afl_by_hand():
    algorithm = AFL(weight_lr=0.1)
    first = algorithm.tell(begun(algorithm), replies(LOSSES))
    assert first.model.numpy() == pytest.approx(MODELS.mean(axis=0))
    expected = 1 / 3 + 0.1 * (LOSSES - LOSSES.mean())
    assert first.weights == pytest.approx(expected)
    second = algorithm.tell(first, replies(LOSSES, 2))
    assert second.model.numpy() == pytest.approx(expected @ MODELS)
    mean = (MODELS.mean(axis=0) + expected @ MODELS) / 2
    assert algorithm.solutions(second)[1]["model"].numpy() == pytest.approx(mean)
    assert torch.equal(AFL(result="last").solutions(second)[1]["model"], second.model)


def test_afls_weights_stay_on_the_simplex_even_under_huge_losses():
    algorithm = AFL(weight_lr=0.5)
    state = begun(algorithm)
    for number, losses in enumerate(([0.1, 5.0, 0.2], [1e6, 0.0, 1.0], [0.3, 0.3, 0.3], [0.0, 0.0, 1e-9])):
        state = algorithm.tell(state, replies(losses, number + 1))
        assert min(state.weights) >= 0
        assert sum(state.weights) == pytest.approx(1, abs=1e-12)


def test_afl_without_ascent_is_fedavg_with_equal_weights():
    problem = Convex()
    plain = trial(FedAvg(weighting="equal"), problem).models
    assert largest_difference(plain, trial(AFL(weight_lr=0.0, result="last"), problem).models) <= 1e-12
    assert largest_difference(plain, trial(AFL(result="last"), problem).models) > 1e-6


def test_afl_evens_out_the_largest_losses():
    problem = Convex(heterogeneity=1.0)
    federation = Federation.create(problem, 4, 0, "dirichlet")
    centres = problem.centres() + problem.shifts(4, 0)[:, None]
    worst = []
    for weight_lr in (0.0, 0.05):
        algorithm = AFL(weight_lr=weight_lr)
        done = trial(algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=150, chunk=4)
        distances = 0.5 * (done.models[0] - centres).square().sum(-1)
        worst.append(float((torch.as_tensor(federation.preferences) * distances).sum(-1).max()))
    assert worst[1] < worst[0]


# -- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("q-fedavg", {"q": -1.0}, "q is -1; it is at least 0"),
        ("q-fedavg", {"lipschitz": -1.0}, "lipschitz is -1; it is at least 0"),
        ("afl", {"weight_lr": -0.1}, "weight_lr is -0.1; it is at least 0"),
    ],
)
def test_wrong_parameters_are_refused_by_their_names(name, parameters, message):
    with pytest.raises(UserError, match=message):
        make_algorithm(name, parameters)
