"""One global model for several objectives of everybody: FSMGDA and FedCMOO beside plain loops from their papers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from plain_optima import best_vertex, projected, shortest
from plain_problem import Answers

from fedpareto.contract.registry import make_algorithm
from fedpareto.tensors import rng


def fsmgda(plain, server_lr=0.7, sets=None):
    """FSMGDA (Yang et al. 2023, algorithm 1): mean updates for each objective s over those who have it, then MGDA."""
    model, m = plain.initial, plain.preferences.shape[1]
    sets = sets or [range(m)] * len(plain.clients)
    for t in plain.rounds:
        heard = plain.heard(t)
        there = [s for s in range(m) if any(s in sets[i] for i in heard)]
        updates = np.stack(
            [
                np.mean(
                    [plain.descend(i, model, t, weights=np.eye(m)[s]) - model for i in heard if s in sets[i]], axis=0
                )
                for s in there
            ]
        )
        weights = np.zeros(m)
        weights[there] = shortest(updates @ updates.T, np.zeros(len(there)), np.ones(len(there)))
        model = model + server_lr * weights[there] @ updates
        yield model, {"weights": weights}


@pytest.mark.parametrize("goals", [2, 3])
def test_fsmgda(goals):
    agrees(make_algorithm("fsmgda", {"server_lr": 0.7}), fsmgda, problem=Answers(goals=goals), limit=1e-8)


@pytest.mark.parametrize(
    ("subsets", "sets"),
    [
        (("loss 0", "loss 2+loss 1"), [{0}, {1, 2}] * 3),
        (("loss 0", "loss 1", "loss 0", "loss 0+loss 1", "loss 0", "loss 2"), [{0}, {1}, {0}, {0, 1}, {0}, {2}]),
    ],
)
def test_fsmgda_of_clients_with_subsets(subsets, sets):
    """Of the second sets nobody has loss 2 in some rounds."""
    algorithm = make_algorithm("fsmgda", {"server_lr": 0.7, "subsets": subsets})
    agrees(algorithm, partial(fsmgda, sets=sets), problem=Answers(goals=3), limit=1e-8)


def compressed(plain, i, t, jacobian, rank):
    """FedCMOO's compression: nearly square, then a randomised SVD with two power iterations (Halko et al. 2011)."""
    m, d = jacobian.shape
    rows = int(np.sqrt(d * m))
    blocks = -(-d // rows)
    square = np.zeros((rows, blocks * m))
    for j in range(m):
        for k in range(d):
            square[k % rows, k // rows * m + j] = jacobian[j, k]
    width = min(rank + rank // 10, *square.shape)
    drawn = rng.Addresses.at(plain.setting.seed, np.array([i]), t).normal("compression", blocks * m * width)
    basis = square @ drawn[0].double().numpy().reshape(blocks * m, width)
    for _ in range(2):
        basis = square @ square.T @ np.linalg.qr(basis)[0]
    q = np.linalg.qr(basis)[0]
    u, s, v = np.linalg.svd(q.T @ square, full_matrices=False)
    square = q @ (u[:, :rank] * s[:rank]) @ v[:rank]
    return np.array([[square[k % rows, k // rows * m + j] for k in range(d)] for j in range(m)])


def fedcmoo(plain, weigh, rank, server_lr=0.8):
    """FedCMOO (Askin et al. 2025, algorithm 1): λ from the mean of compressed gradients, then training on Σ λ_k f_k."""
    model, m = plain.initial, plain.preferences.shape[1]
    weights = np.full(m, 1 / m)
    for t in plain.rounds:
        heard = plain.heard(t)
        batches = {i: plain.minibatches(i, t, "gradients", steps=1)[0] for i in heard}
        jacobian = np.mean(
            [compressed(plain, i, t, plain.gradients(i, model, batches[i]), rank) for i in heard], axis=0
        )
        gram = jacobian @ jacobian.T
        losses = np.mean([plain.losses(i, model, batches[i]) for i in heard], axis=0)
        weights = weigh(weights, gram / np.sqrt(gram.diagonal()).mean() ** 2, losses)
        found = [plain.descend(i, model, t, weights=weights) for i in heard]
        model = model + server_lr * (np.mean(found, axis=0) - model)
        yield model, {"weights": weights}


def descent(weights, k, losses, steps=40, rate=0.03):
    """Projected gradient steps from the last λ."""
    for _ in range(steps):
        weights = projected(weights - rate * k @ weights)
    return weights


@pytest.mark.parametrize(("goals", "rank", "means"), [(2, 0, 2), (3, 4, 4), (3, 99, 99)])
def test_fedcmoo(goals, rank, means):
    """Of the rank that a reply as long as a model allows, a larger one, and one that loses nothing."""
    given = {"server_lr": 0.8, "rank": rank, "weight_steps": 40, "weight_lr": 0.03}
    agrees(make_algorithm("fedcmoo", given), partial(fedcmoo, weigh=descent, rank=means), problem=Answers(goals=goals))


def epo(weights, k, losses, r, tolerance=0.01, floor=0.2):
    """Exact Pareto optimal search (Mahapatra and Rajan 2020): balance r ⊙ l, or descend all where it is balanced.

    As in the published code losses from 0.9 of the largest r_j l_j on must not grow.
    """
    r, m = np.array(r) / np.sum(r), len(r)
    share = r * losses / (r @ losses)
    uneven = share @ np.log(m * share)
    anchor = k @ (r * (np.log(m * share) - uneven))
    goal, at_least = k.sum(0), np.zeros(m)
    if uneven > tolerance:
        goal, at_least = anchor, np.where(anchor > 0, -np.inf, anchor)
        at_least[share >= 0.9 * share.max()] = 0
        if not (anchor > 0).any():
            at_least = np.zeros(m)
    return (1 - floor) * best_vertex(goal, k, at_least) + floor / m


@pytest.mark.parametrize("r", [(0.7, 0.2, 0.1), (0.1, 0.2, 0.7), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("tolerance", [0.001, 0.3])
def test_fedcmoo_pref(r, tolerance):
    given = {"server_lr": 0.8, "rank": 99, "preference": r, "tolerance": tolerance, "floor": 0.3}
    loop = partial(fedcmoo, weigh=partial(epo, r=r, tolerance=tolerance, floor=0.3), rank=99)
    agrees(make_algorithm("fedcmoo-pref", given), loop, problem=Answers(goals=3), limit=1e-7)
