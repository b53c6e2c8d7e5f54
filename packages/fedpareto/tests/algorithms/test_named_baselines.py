"""Server optimisers, SCAFFOLD, FedDyn, FedPer, pFedMe, Per-FedAvg and FeSEM against plain loops and their limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from personal_models import CLIENTS, DIFFERENT, FULL_BATCH, LR, NETWORK, STEPS, descend, distance, kept, optima, rows

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.feddyn import FedDyn
from fedpareto.algorithms.averaging.fedopt import FedAdam, FedAvgM, FedYogi
from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.algorithms.averaging.scaffold import Scaffold
from fedpareto.algorithms.clustered.fesem import FeSEM
from fedpareto.algorithms.personal.fedper import FedPer
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.personal.per_fedavg import PerFedAvg, halves
from fedpareto.algorithms.personal.pfedme import PFedMe
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.learners.supervised import Supervised
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import largest_difference, trial

EQUAL = FedAvg(weighting="equal")


def mean_update(theta):
    """Of full-batch training of every client from θ."""
    return np.mean([descend(theta, optimum) for optimum in optima()], axis=0) - theta


# -- the server's optimiser ----------------------------------------------------------------------------------------


def test_server_momentum_of_nothing_is_fedavg():
    done = trial(FedAvgM(beta=0.0), NETWORK, participation=0.6)
    assert largest_difference(done.models, trial(FedAvg(), NETWORK, participation=0.6).models) <= 1e-12
    assert largest_difference(trial(FedAvgM(), NETWORK).models, done.models) > 1e-3


def test_server_momentum_equals_a_plain_loop():
    theta, velocity = np.zeros(8), np.zeros(8)
    for _ in range(4):
        velocity = 0.5 * velocity + mean_update(theta)
        theta = theta + 0.7 * velocity
    done = trial(FedAvgM("equal", server_lr=0.7, beta=0.5), DIFFERENT, learner=FULL_BATCH, rounds=4)
    assert distance(done.states[-1].model.numpy(), theta) <= 1e-12


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_adam_and_yogi_at_the_server_equal_a_plain_loop(kind):
    tau, beta2 = 0.01, 0.8
    theta, first, second = np.zeros(8), np.zeros(8), np.full(8, tau**2)
    for _ in range(4):
        update = mean_update(theta)
        first = 0.9 * first + 0.1 * update
        if kind is FedAdam:
            second = beta2 * second + (1 - beta2) * update**2
        else:
            second = second - (1 - beta2) * update**2 * np.sign(second - update**2)
        theta = theta + 0.05 * first / (np.sqrt(second) + tau)
    algorithm = kind("equal", server_lr=0.05, beta2=beta2, tau=tau)
    done = trial(algorithm, DIFFERENT, learner=FULL_BATCH, rounds=4)
    assert distance(done.states[-1].model.numpy(), theta) <= 1e-12


# -- SCAFFOLD ------------------------------------------------------------------------------------------------------


def test_scaffold_without_correction_is_fedavg():
    done = trial(Scaffold(correction=0.0), NETWORK, participation=0.6)
    assert largest_difference(done.models, trial(EQUAL, NETWORK, participation=0.6).models) <= 1e-12


def test_scaffold_with_zero_control_variates_is_fedavg():
    """Those of the first round."""
    several = Supervised(lr=LR, batch_size=8)
    for rounds, least, most in ((1, 0, 0), (3, 1e-4, np.inf)):
        both = [trial(one, NETWORK, rounds=rounds, learner=several).models for one in (Scaffold(), EQUAL)]
        assert least <= largest_difference(*both) <= most


def test_a_stack_of_scaffold_equals_a_plain_loop_over_clients():
    x, c, own = np.zeros(8), np.zeros(8), np.zeros((CLIENTS, 8))
    for _ in range(4):
        trained = np.empty((CLIENTS, 8))
        for i, optimum in enumerate(optima()):
            y = x
            for _ in range(STEPS):
                y = y - LR * (y - optimum - own[i] + c)
            trained[i] = y
        new = own - c + (x - trained) / (STEPS * LR)
        x, c, own = trained.mean(axis=0), c + (new - own).mean(axis=0), new
    done = trial(Scaffold(), DIFFERENT, learner=FULL_BATCH, rounds=4)
    assert distance(done.states[-1].model.numpy(), x) <= 1e-12
    assert distance(done.states[-1].control.numpy(), c) <= 1e-12
    assert distance(kept(done, "control"), own) <= 1e-12


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_control_variate_is_the_gradient_where_it_does_not_change(momentum):
    """With a tiny step, gradients are those at x, whatever the momentum, the schedule and the number of steps."""
    learner = Supervised(
        lr=1e-6, batch_size=1000, epochs=5, momentum=momentum, lr_schedule="step", lr_period=1, lr_decay=0.5
    )
    done = trial(Scaffold(), DIFFERENT, learner=learner, rounds=2)
    assert distance(kept(done, "control"), -optima()) <= 1e-4


def test_scaffold_says_that_adam_does_not_tell_gradients():
    with pytest.raises(UserError, match=r"learner.optimiser is adam.*take sgd"):
        trial(Scaffold(), NETWORK, learner=Supervised(optimiser="adam"), rounds=1)


# -- FedDyn --------------------------------------------------------------------------------------------------------


def test_a_stack_of_feddyn_equals_a_plain_loop_over_clients():
    alpha, theta, h, own = 0.3, np.zeros(8), np.zeros(8), np.zeros((CLIENTS, 8))
    for _ in range(5):
        trained = np.empty((CLIENTS, 8))
        for i, optimum in enumerate(optima()):
            y = theta
            for _ in range(STEPS):
                y = y - LR * (y - optimum - own[i] + alpha * (y - theta))
            trained[i] = y
        own = own - alpha * (trained - theta)
        h = h - alpha * (trained - theta).mean(axis=0)
        theta = trained.mean(axis=0) - h / alpha
    done = trial(FedDyn(alpha=alpha), DIFFERENT, learner=FULL_BATCH, rounds=5)
    assert distance(done.states[-1].model.numpy(), theta) <= 1e-12
    assert distance(kept(done, "gradient"), own) <= 1e-12


def test_where_feddyn_rests_its_clients_gradients_cancel():
    long = Supervised(lr=0.5, batch_size=1000, epochs=12)
    done = trial(FedDyn(alpha=0.5), DIFFERENT, learner=long, rounds=45)
    model = done.states[-1].model.numpy()
    assert distance(model, optima().mean(axis=0)) <= 1e-6
    assert distance(kept(done, "gradient"), model - optima()) <= 1e-6


# -- FedPer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "limit"), [(0, FedAvg()), (9, Local())], ids=["fedavg", "local"])
def test_fedper_without_a_head_is_fedavg_and_without_a_body_local_training(layers, limit):
    done = trial(FedPer(head_layers=layers), NETWORK, participation=0.6)
    assert largest_difference(done.models, trial(limit, NETWORK, participation=0.6).models) <= 1e-12


def test_fedper_shares_the_first_layers_only():
    done = trial(FedPer(), NETWORK)
    body = NETWORK.layout.cut(1)[0].size
    models = rows(done.models)
    assert np.ptp(models[:, :body], axis=0).max() == 0
    assert np.ptp(models[:, body:], axis=0).max() > 1e-3


# -- pFedMe --------------------------------------------------------------------------------------------------------


def test_pfedme_whose_models_are_taken_over_whole_begins_as_fedprox():
    taken = trial(PFedMe(strength=4.0, local_rounds=1, local_lr=0.25), NETWORK, rounds=1)
    fedprox = trial(FedProx("equal", mu=4.0), NETWORK, rounds=1)
    assert distance(taken.states[-1].model.numpy(), fedprox.states[-1].model.numpy()) <= 1e-12


def test_a_stack_of_pfedme_equals_a_plain_loop_over_clients():
    strength, rate, beta, rounds = 2.0, 0.2, 1.5, 3
    shared, own = np.zeros(8), np.zeros((CLIENTS, 8))
    for _ in range(rounds):
        local = np.repeat(shared[None], CLIENTS, axis=0)
        for i, optimum in enumerate(optima()):
            for _ in range(2):
                own[i] = descend(own[i], optimum, strength, local[i])
                local[i] = local[i] - rate * strength * (local[i] - own[i])
        shared = (1 - beta) * shared + beta * local.mean(axis=0)
    algorithm = PFedMe(strength=strength, local_rounds=2, local_lr=rate, beta=beta)
    done = trial(algorithm, DIFFERENT, learner=FULL_BATCH, rounds=rounds)
    assert distance(done.states[-1].model.numpy(), shared) <= 1e-12
    assert distance(rows(done.models), own) <= 1e-12


# -- Per-FedAvg ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_order", [False, True])
def test_a_stack_of_per_fedavg_equals_a_plain_loop_over_clients(first_order):
    """Of ½‖θ − c‖² the inner step leaves (1 − α)(θ − c), and the second derivative is another factor of 1 − α."""
    alpha, rounds = 0.4, 3
    factor = (1 - alpha) if first_order else (1 - alpha) ** 2
    w = np.zeros(8)
    for _ in range(rounds):
        trained = np.repeat(w[None], CLIENTS, axis=0)
        for _ in range(STEPS):
            trained = trained - LR * factor * (trained - optima())
        w = trained.mean(axis=0)
    algorithm = PerFedAvg("equal", alpha=alpha, first_order=first_order)
    alike = replace(DIFFERENT, noise=0.0)  # Both halves of a client's rows have its optimum.
    done = trial(algorithm, alike, learner=FULL_BATCH, rounds=rounds)
    assert distance(done.states[-1].model.numpy(), w) <= 1e-12
    assert distance(rows(done.models), w - alpha * (w - optima())) <= 1e-12


def test_every_row_of_a_minibatch_is_in_one_half_and_a_single_one_in_both():
    mask = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    first, second = halves(Batch({}, mask))
    assert first.mask.sum(1).tolist() == [3, 2, 1, 0]
    assert second.mask.sum(1).tolist() == [2, 2, 1, 0]
    assert (first.mask + second.mask)[:2].equal(mask[:2])


# -- FeSEM ---------------------------------------------------------------------------------------------------------


def test_fesem_with_one_centre_is_fedavg():
    done = trial(FeSEM(models=1), NETWORK, participation=0.6)
    assert largest_difference(done.models, trial(EQUAL, NETWORK, participation=0.6).models) <= 1e-12


def test_fesem_finds_groups_and_their_means():
    federation = Federation.create(DIFFERENT, CLIENTS, 3, "dirichlet")
    corners = np.eye(2)[np.arange(CLIENTS) % 2]
    federation = replace(federation, preferences=corners)
    done = trial(FeSEM(models=2), DIFFERENT, learner=FULL_BATCH, rounds=5, federation=federation)
    clusters = done.engine.algorithm.describe(done.states[-1])["clusters"]
    wanted = corners @ DIFFERENT.centres().numpy() + DIFFERENT.shifts(CLIENTS, 3).numpy()
    assert sorted(client for cluster in clusters for client in cluster) == list(range(CLIENTS))
    models = rows(done.models)
    for members in clusters:
        theta = np.zeros(8)
        for _ in range(5):
            theta = np.mean([descend(theta, wanted[i]) for i in members], axis=0)
        assert distance(models[members], theta) <= 1e-9
