"""No server: each client and its neighbours, beside plain loops over a small graph."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from plain_similarity import layerwise

from fedpareto.contract.registry import make_algorithm

GRAPHS = {
    "ring": ({"graph": "ring"}, "01 12 23 34 45 50"),
    "torus": ({"graph": "torus", "planes": 2}, "01 12 20 34 45 53 03 14 25"),
    "grid": ({"graph": "grid", "planes": 2}, "01 12 34 45 03 14 25"),
    "star with a tail": ({"graph": "edges", "edges": ("0-1", "0-2", "3-0", "4-0", "4-5")}, "01 02 03 04 45"),
    "complete": ({"graph": "complete"}, "01 02 03 04 05 12 13 14 15 23 24 25 34 35 45"),
}
graphs = pytest.mark.parametrize("graph", GRAPHS)


def beside(graph):
    """The neighbours of each of six clients, the first before the last."""
    pairs = [(int(a), int(b)) for a, b in GRAPHS[graph][1].split()]
    return [sorted({a + b - i for a, b in pairs if i in (a, b)}) for i in range(6)]


def gossip(plain, neighbours, mixed):
    """Who has been heard in a round mixes its own model with those of its neighbours who have been heard."""
    models = np.tile(plain.initial, (len(plain.clients), 1))
    for t in plain.rounds:
        heard = plain.heard(t)
        trained = {i: plain.descend(i, models[i], t) for i in heard}
        near = {i: [i, *(j for j in neighbours[i] if j in heard)] for i in heard}
        new = models.copy()
        for i in heard:
            new[i] = mixed(plain, i, near[i], models[i], trained)
        models = new
        yield models


def mean(plain, i, near, before, trained, weighting="size"):
    """θ_i ← Σ (n_j / Σ n) θ'_j over a client and its neighbours."""
    return plain.shares(near, weighting) @ [trained[j] for j in near]


@graphs
@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_gossip_fedavg(graph, weighting):
    loop = partial(gossip, neighbours=beside(graph), mixed=partial(mean, weighting=weighting))
    agrees(make_algorithm("gossip-fedavg", {**GRAPHS[graph][0], "weighting": weighting}), loop)


def metropolis(plain, i, near, before, trained, neighbours):
    """DSFL (Wu et al. 2022) with Metropolis weights (Xiao and Boyd 2004): degrees are those of the whole graph."""
    shares = {j: 1 / (1 + max(len(neighbours[i]), len(neighbours[j]))) for j in near if j != i}
    return (1 - sum(shares.values())) * trained[i] + sum(shares[j] * trained[j] for j in shares)


@graphs
def test_dsfl(graph):
    neighbours = beside(graph)
    loop = partial(gossip, neighbours=neighbours, mixed=partial(metropolis, neighbours=neighbours))
    agrees(make_algorithm("dsfl", GRAPHS[graph][0]), loop)


def alike(plain, i, near, before, trained, s_min=-1.0, ratio=0.4):
    """The thesis, algorithm 3, lines 5 to 11, among neighbours: Δθ_j = θ'_j − θ_i."""
    moves = {j: trained[j] - before for j in near}
    likeness = [1.0 if j == i else layerwise(plain.layers, ratio, moves[i], moves[j]) for j in near]
    weights = (np.maximum(likeness, s_min) - s_min) / (1 - s_min)
    return weights / weights.sum() @ [trained[j] for j in near]


@pytest.mark.parametrize("given", [{}, {"s_min": 0.3, "ratio": 0.0}])
@pytest.mark.parametrize("graph", ["ring", "star with a tail"])
def test_gossip_fedpref(graph, given):
    names = {"s_min": "similarity_bound", "ratio": "top_ratio"}
    algorithm = {**GRAPHS[graph][0], **{names[key]: value for key, value in given.items()}}
    loop = partial(gossip, neighbours=beside(graph), mixed=partial(alike, **given))
    agrees(make_algorithm("gossip-fedpref", algorithm), loop)


def dmoead(plain, neighbours, order, s_min=-1.0):
    """docs/algorithms.md: clients own even weights, and go on with the best of theirs, the others', the mixture."""
    n, m = plain.preferences.shape
    models, weights = np.tile(plain.initial, (n, 1)), np.empty((n, m))
    weights[order] = [[k / (n - 1), 1 - k / (n - 1)] for k in range(n)]
    values, choices = np.full((n, 3, m), np.inf), np.zeros(n)
    for t in plain.rounds:
        heard = plain.heard(t)
        trained = {i: plain.descend(i, models[i], t, weights=weights[i]) for i in heard}
        new = models.copy()
        for i in heard:
            near = [i, *(j for j in neighbours[i] if j in heard)]
            candidates = [trained[j] for j in near] + [alike(plain, i, near, models[i], trained, s_min)]
            worth = [weights[i] @ plain.losses(i, one, plain.rows(i, "validation")) for one in candidates]
            best = int(np.argmin(worth))
            new[i], choices[i] = candidates[best], best
            if best == len(near):
                choices[i] = 1 + max(map(len, neighbours))
            values[i] = [plain.losses(i, new[i], plain.rows(i, part)) for part in ("train", "validation", "test")]
        models = new
        yield models, {"values": values, "choices": choices, "weights": weights}


@pytest.mark.parametrize("s_min", [-1.0, 0.4])
@pytest.mark.parametrize(
    ("graph", "order"), [("ring", [0, 1, 5, 2, 4, 3]), ("star with a tail", [0, 1, 2, 3, 4, 5]), ("complete", range(6))]
)
def test_dmoead(graph, order, s_min):
    algorithm = make_algorithm("dmoead", {**GRAPHS[graph][0], "similarity_bound": s_min})
    agrees(algorithm, partial(dmoead, neighbours=beside(graph), order=list(order), s_min=s_min))
