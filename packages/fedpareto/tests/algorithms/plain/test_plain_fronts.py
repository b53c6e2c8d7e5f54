"""Searches for a whole front, led by the server or by clients: each beside a plain loop of its algorithm."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from plain_problem import Answers

from fedpareto.contract.registry import make_algorithm
from fedpareto.moo.preferences import dirichlet
from fedpareto.tensors import rng

PARTS = ("train", "validation", "test")
INTERVALS = 2
"""Trainings of two rounds in four rounds."""


def lattice(n):
    """Even weights of two objectives."""
    return np.array([[k / (n - 1), 1 - k / (n - 1)] for k in range(n)])


def best(values):
    """Which of the values `[k, m]`, to be made small, no other dominates."""
    return [k for k, one in enumerate(values) if not any((o <= one).all() and (o < one).any() for o in values)]


def favourites(plain, front, values, models):
    """Of the models on a front the one that each client wants most; before there is one θ⁰."""
    if not len(front):
        return np.tile(plain.initial, (len(plain.clients), 1))
    return np.stack([models[front[int(np.argmin(values[front] @ w))]] for w in plain.preferences])


def mofld(plain, proposed, samples, weighting="size", mu=0.0, warm=False, at_server=False):
    """The thesis, algorithm 2: for each proposed weights w FedAvg of Σ w_j f_j, the non-dominated are the front."""
    trained, values, weights = [], [], proposed(plain, 0)
    for t in plain.rounds:
        lanes = range(len(values), len(values) + samples)
        if (t - 1) % 2 == 0:
            models = np.tile(plain.initial, (samples, 1))
            if warm and trained:
                away = [[np.linalg.norm(weights[lane] - w) for w in weights[: len(values)]] for lane in lanes]
                models = np.stack([trained[int(np.argmin(one))] for one in away])
        for k, lane in enumerate(lanes):
            heard, at = plain.heard(t, lane), models[k].copy()
            found = [
                plain.descend(i, at, t, lambda w, at=at: mu * (w - at), weights=weights[lane], lane=lane) for i in heard
            ]
            models[k] = plain.shares(heard, weighting) @ found if heard else at
        if t % 2 == 0:
            mean = []
            for model, lane in zip(models, lanes, strict=True):
                heard = plain.heard(t, lane)
                own = [[plain.losses(i, model, plain.rows(i, part)) for part in PARTS] for i in heard]
                mean.append(np.average(own, axis=0, weights=plain.sizes[heard]))
            if at_server:
                mean = np.array([[plain.problem.plain_losses(one, plain.server_rows)] * 3 for one in models])
            values, trained = [*values, *mean], [*trained, *models]
            if t < len(plain.rounds):
                weights = np.concatenate([weights, proposed(plain, t // 2)])
        known = np.array(values).reshape(-1, 3, 2)
        front = best(known[:, 1])
        yield favourites(plain, front, known[:, 1], trained), {"values": known, "weights": weights}


def evenly(plain, iteration, samples):
    """Every second row of the whole lattice."""
    return lattice(samples * INTERVALS)[iteration::INTERVALS]


def drawn(plain, iteration, samples):
    """Uniform on the simplex."""
    return dirichlet(samples, 2, rng.generator(rng.Address(plain.setting.seed, round=iteration), "weights"))


@pytest.mark.parametrize(
    ("given", "loop"),
    [
        ({"generator": "lattice"}, {"proposed": evenly}),
        ({"generator": "random", "warm_start": True}, {"proposed": drawn, "warm": True}),
        ({"generator": "lattice", "evaluation": "server"}, {"proposed": evenly, "at_server": True}),
        (
            {"generator": "lattice", "inner": "fedprox", "inner_set": ("mu=0.7", "weighting=equal")},
            {"proposed": evenly, "mu": 0.7, "weighting": "equal"},
        ),
    ],
    ids=["lattice", "random from the nearest", "measured by the server", "fedprox inside"],
)
def test_mofld(given, loop):
    loop = {**loop, "proposed": partial(loop["proposed"], samples=3)}
    algorithm = make_algorithm("mofld", {**given, "samples": 3, "training_rounds": 2})
    agrees(algorithm, partial(mofld, samples=3, **loop), problem=Answers(held=9))


def client_mofld(plain, proposed, samples, radius):
    """docs/algorithms.md: each client has lanes of its own, which are averaged with the others' nearest ones."""
    n = len(plain.clients)
    weights = np.tile(lattice(samples), (n, 1, 1))
    posted, posted_weights, posted_models = [np.empty((n, 0, *shape)) for shape in ((3, 2), (2,), plain.initial.shape)]
    for t in plain.rounds:
        heard, iteration = plain.heard(t), (t - 1) // 2
        if t == 1:
            weights[heard] = [proposed(plain, i, 0) for i in heard]
        if (t - 1) % 2 == 0:
            models, has_trained = np.tile(plain.initial, (n, samples, 1)), np.zeros(n, dtype=bool)
        lanes = {s: plain.heard(t, iteration * samples + s) for s in range(samples)}
        found = {
            (i, s): plain.descend(i, models[i, s], t, weights=weights[i, s], lane=iteration * samples + s)
            for s, there in lanes.items()
            for i in there
        }
        models = models.copy()
        for i, s in found:
            near = []
            for j in plain.clients:
                own = [r for r in lanes if (j, r) in found]
                apart = [abs(weights[j, r] - weights[i, s]).sum() / 2 for r in own]
                if own and min(apart) <= radius + 1e-9:
                    near.append((j, own[int(np.argmin(apart))]))
            models[i, s] = np.average([found[one] for one in near], axis=0, weights=[plain.sizes[j] for j, _ in near])
            has_trained[i] = True
        if t % 2 == 0:
            values = np.full((n, samples, 3, 2), np.nan)
            for i in heard:
                if has_trained[i]:
                    own = [[plain.losses(i, one, plain.rows(i, part)) for part in PARTS] for one in models[i]]
                    values[i] = own
            posted = np.concatenate([posted, values], axis=1)
            posted_weights = np.concatenate([posted_weights, weights], axis=1)
            posted_models = np.concatenate([posted_models, models], axis=1)
            weights = weights.copy()
            weights[heard] = [proposed(plain, i, min(t // 2, INTERVALS - 1)) for i in heard]
        known = posted[:, :, 1].reshape(-1, 2)
        front = np.flatnonzero(np.isfinite(known).all(1))
        front = front[best(known[front])] if len(front) else front
        named = {"posted": posted, "posted_weights": posted_weights, "weights": weights}
        yield favourites(plain, front, known, posted_models.reshape(-1, len(plain.initial))), named


@pytest.mark.parametrize("radius", [0.0, 0.15, 1.0])
@pytest.mark.parametrize("generator", ["lattice", "random"])
def test_client_mofld(generator, radius):
    def alike(plain, i, iteration):
        return evenly(plain, iteration, 3)

    def own(plain, i, iteration):
        return dirichlet(3, 2, rng.generator(rng.Address(plain.setting.seed, client=i, round=iteration), "weights"))

    algorithm = make_algorithm(
        "client-mofld", {"generator": generator, "samples": 3, "training_rounds": 2, "radius": radius}
    )
    agrees(
        algorithm,
        partial(client_mofld, proposed=alike if generator == "lattice" else own, samples=3, radius=radius),
        problem=Answers(),
    )
