"""Local training, FedAvg, FedProx and fine-tuning against closed forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import CLIENTS, largest_difference, trial

FULL_BATCH = Supervised(lr=0.5, batch_size=1000)


def optimum(problem, federation):
    """θ = Σ_j w_j c_j + δ_i."""
    weights = torch.as_tensor(federation.preferences)
    return weights @ problem.centres() + problem.shifts(len(federation.ids), federation.seed)


def test_local_training_reaches_each_clients_closed_form_optimum():
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, CLIENTS, 0, "dirichlet")
    done = trial(Local(), problem, federation=federation, learner=FULL_BATCH, rounds=40)
    models = torch.stack([done.models[client] for client in range(CLIENTS)])
    assert torch.allclose(models, optimum(problem, federation), atol=1e-10)


def test_the_optimum_lies_on_the_known_front():
    problem = Convex(goals=3, heterogeneity=0.3)
    federation = Federation.create(problem, CLIENTS, 0, "dirichlet")
    done = trial(Local(), problem, federation=federation, learner=FULL_BATCH, rounds=40)
    sent = done.engine.run([], Local().solutions(done.states[-1])).evaluations.sent
    test = done.engine.split_names.index("test")
    for client in range(CLIENTS):
        w = federation.preferences[client]
        expected = 0.5 * ((w - np.eye(3)) ** 2).sum(axis=1)
        assert sent[client][test].numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_fedavg_reaches_the_weighted_mean_of_the_clients_optima(weighting):
    """With quadratics of equal curvature and full batches, FedAvg's fixed point is the mean of the local optima."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, CLIENTS, 0, "dirichlet")
    done = trial(FedAvg(weighting=weighting), problem, federation=federation, learner=FULL_BATCH, rounds=60)
    counts = torch.as_tensor(federation.splits["train"].counts, dtype=torch.float64)
    weights = counts / counts.sum() if weighting == "size" else torch.full((CLIENTS,), 1 / CLIENTS).double()
    assert torch.allclose(done.models[0], weights @ optimum(problem, federation), atol=1e-9)


def test_fedprox_without_its_term_is_fedavg_and_with_it_is_not():
    problem = Convex()
    fedavg = trial(FedAvg(), problem).models
    assert largest_difference(fedavg, trial(FedProx(mu=0.0), problem).models) == 0
    assert largest_difference(fedavg, trial(FedProx(mu=1.0), problem).models) > 1e-3


def test_fedprox_step_by_hand():
    """Two full-batch steps of θ ← θ − lr (∇f + μ(θ − θ^t)) for one client."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 1, 0, "0.3,0.7")
    lr, mu = 0.2, 0.5
    learner = Supervised(lr=lr, batch_size=1000, epochs=2)
    done = trial(FedProx(mu=mu), problem, federation=federation, learner=learner, rounds=1, chunk=1)
    goal, theta = optimum(problem, federation)[0], torch.zeros(8, dtype=torch.float64)
    for _ in range(2):
        theta = theta - lr * ((theta - goal) + mu * (theta - 0))
    assert torch.allclose(done.models[0], theta, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_fine_tuning_ends_with_local_training_from_the_last_global_model(name):
    problem = Convex(heterogeneity=0.4)
    plain, tuned = trial(make_algorithm(name, {}), problem), trial(make_algorithm(f"{name}+ft", {}), problem)
    trained = plain.outcomes[-1].replies.by_client("model")
    assert largest_difference(tuned.models, trained) == 0
    assert largest_difference(plain.models, tuned.models) > 1e-3


def test_everyone_is_fine_tuned_even_under_partial_participation():
    problem = Convex(heterogeneity=0.4)
    done = trial(make_algorithm("fedavg+ft", {}), problem, participation=0.3)
    assert len(done.outcomes[0].replies) == 3
    assert len(done.outcomes[-1].replies) == CLIENTS


def test_local_training_sends_nothing():
    done = trial(Local(), Convex())
    tasks = Local().ask(done.states[0])
    assert not any(some.names for some in tasks)
    assert not any(outcome.replies.tensors for outcome in done.outcomes)


@dataclass(frozen=True)
class WithControl(FedAvg):
    """Sends its clients more than a model, as SCAFFOLD does, and hears it back."""

    name: ClassVar[str] = "with-control"

    def ask(self, state):
        control = {"control": state.model.new_ones(3)}
        return [replace(some, shared={**some.shared, **control}) for some in super().ask(state)]

    def train(self, clients, message):
        return {**super().train(clients, message), "control": message["control"]}

    def reply_shapes(self, setting):
        return {"train": {**super().reply_shapes(setting)["train"], "control": (3,)}}


def test_fine_tuning_sends_everyone_what_a_usual_round_would():
    algorithm = FineTuned(WithControl())
    done = trial(algorithm, Convex(), participation=0.5)
    assert len(done.outcomes[-1].replies) == 7, "everyone is fine-tuned"
    plain = trial(FineTuned(FedAvg()), Convex(), participation=0.5)
    assert largest_difference(done.models, plain.models) == 0
