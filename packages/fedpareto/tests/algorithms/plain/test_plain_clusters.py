"""Personal models from those of similar clients: each method beside a plain loop from its paper."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from plain_problem import Tasks
from plain_similarity import cosine, cosines, layerwise

from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.faults import Faults

GROUPS = [[0.95, 0.05], [0.05, 0.95], [0.9, 0.1], [0.1, 0.9], [0.85, 0.15], [0.15, 0.85]]
SOMETIMES_ALL = {"participation": 0.9, "faults": Faults(dropout=0.06, stragglers=0.12), "rounds": 6, "seed": 31}
"""All six are asked, and in some rounds all of them reply: only then clusters are split."""


def everyones(plain):
    """θ⁰ for every client, `[n, d]`."""
    return np.tile(plain.initial, (len(plain.clients), 1))


# -- FedPref -------------------------------------------------------------------------------------------------------


def spectral(similarity):
    """Two groups by the second eigenvector of the normalised affinities (s + 1)/2, cut where it varies least within."""
    affinity = np.maximum((similarity + 1) / 2, 1e-6)
    degrees = affinity.sum(1) - np.diag(affinity)
    scale = np.sqrt(np.outer(degrees, degrees))
    laplacian = np.eye(len(degrees)) - (affinity - np.diag(np.diag(affinity))) / scale
    values = np.linalg.eigh(laplacian)[1][:, 1] / np.sqrt(degrees)
    order = np.argsort(values)
    ways = range(1, len(order))
    cuts = [(sum(np.var(part) * len(part) for part in np.split(values[order], [k])), k) for k in ways]
    cut = min(cuts)[1]
    return order[:cut], order[cut:]


def fedpref(
    plain, s_min=-1.0, ratio=0.4, threshold=0.05, percent=False, patience=1, weighting=True, clustering=True, told=False
):
    """The thesis, algorithms 3, 4 and 5: weighted aggregation inside clusters that are split once they stand still."""

    similar = partial(layerwise, plain.layers, ratio)
    models = everyones(plain)
    clusters, calm = [list(plain.clients)], [0]
    for t in plain.rounds:
        heard = plain.heard(t)
        trained = {i: plain.descend(i, models[i], t) for i in heard}
        kept = []
        for members, rounds in zip(clusters, calm, strict=True):
            if not clustering or not set(members) <= set(heard):
                kept.append((members, rounds))
                continue
            before, after = models[members].mean(0), np.mean([trained[i] for i in members], axis=0)
            moved = np.linalg.norm(before - after) * (100 / np.linalg.norm(before) if percent else 1)
            waited = rounds + 1 if moved <= threshold else 0
            if waited < patience or len(members) < 3:
                kept.append((members, waited))
                continue
            likeness = cosines([trained[i] - before for i in members], similar)
            if told:
                wanted = plain.preferences[members]
                likeness = 1 - abs(wanted[:, None] - wanted).sum(-1)
            kept += [([members[k] for k in sorted(half)], 0) for half in spectral(likeness)]
        clusters, calm = map(list, zip(*kept, strict=True))
        new = models.copy()
        for members in clusters:
            here = [i for i in members if i in trained]
            if not here:
                continue
            reference = models[members].mean(0)
            likeness = cosines([trained[i] - reference for i in here], similar)
            if told:
                likeness = 1 - abs(plain.preferences[here][:, None] - plain.preferences[here]).sum(-1)
            weights = (np.maximum(likeness, s_min) - s_min) / (1 - s_min) if weighting else np.ones_like(likeness)
            new[here] = weights / weights.sum(1, keepdims=True) @ [trained[i] for i in here]
        models = new
        yield models


@pytest.mark.parametrize("given", [{}, {"s_min": 0.3, "ratio": 0.0}, {"s_min": -0.5, "ratio": 0.7}])
def test_fedpref_weighting(given):
    names = {"s_min": "similarity_bound", "ratio": "top_ratio"}
    algorithm = make_algorithm("fedpref-weighting", {names[key]: value for key, value in given.items()})
    agrees(algorithm, partial(fedpref, clustering=False, **given))


@pytest.mark.parametrize("name", ["fedpref", "fedpref-clustering", "fedpref-public"])
@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0.1, "patience": 1},
        {"threshold": 0.1, "patience": 2},
        {"threshold": 5.0, "threshold_in": "percent", "patience": 1},
    ],
)
def test_fedpref_with_clusters(name, given):
    loop = partial(
        fedpref,
        threshold=given["threshold"],
        patience=given["patience"],
        percent="threshold_in" in given,
        weighting=name != "fedpref-clustering",
        told=name == "fedpref-public",
    )
    agrees(make_algorithm(name, given), loop, preferences=GROUPS, **SOMETIMES_ALL)


# -- CFL -----------------------------------------------------------------------------------------------------------


def halves(likeness, linkage):
    """Single: the most similar pair across is least similar; complete: merged by their least similar pairs."""
    n = len(likeness)
    if linkage == "single":
        sides = [np.array([k >> i & 1 for i in range(n)], dtype=bool) for k in range(1, 2 ** (n - 1))]
        side = min(sides, key=lambda one: likeness[one][:, ~one].max())
        return [np.flatnonzero(side), np.flatnonzero(~side)]
    groups = [[i] for i in range(n)]
    while len(groups) > 2:
        pairs = [(likeness[np.ix_(a, b)].min(), a, b) for k, a in enumerate(groups) for b in groups[:k]]
        _, a, b = max(pairs, key=lambda one: one[0])
        groups = [group for group in groups if group not in (a, b)] + [a + b]
    return groups


def cfl(plain, eps1=0.05, eps2=0.0, percent=False, patience=1, linkage="single", follow=False):
    """Sattler et al. 2019: one model for each cluster, which is split when it rests although its clients do not."""
    models, clusters, calm = everyones(plain), [list(plain.clients)], [0]
    for t in plain.rounds:
        trained = {i: plain.descend(i, models[i], t) for i in plain.heard(t)}
        kept = []
        for members, rounds in zip(clusters, calm, strict=True):
            if not set(members) <= set(trained):
                kept.append((members, rounds))
                continue
            updates = np.stack([trained[i] - models[i] for i in members])
            mean, longest = np.linalg.norm(updates.mean(0)), np.linalg.norm(updates, axis=1).max()
            scale = 100 / np.linalg.norm(models[members].mean(0)) if percent else 1
            waited = rounds + 1 if scale * mean < eps1 and scale * longest > eps2 else 0
            if waited < patience or len(members) < 3:
                kept.append((members, waited))
            else:
                kept += [([members[k] for k in sorted(half)], 0) for half in halves(cosines(updates), linkage)]
        clusters, calm = map(list, zip(*kept, strict=True))
        for members in clusters:
            here = [i for i in members if i in trained]
            if here:
                models[members if follow else here] = np.mean([trained[i] for i in here], axis=0)
        yield models


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0.15},
        {"threshold": 0.15, "patience": 2, "absent": "follow"},
        {"threshold": 0.15, "linkage": "complete", "largest_update": 0.3},
        {"threshold": 8.0, "threshold_in": "percent", "largest_update": 10.0},
    ],
)
def test_cfl(given):
    loop = partial(
        cfl,
        eps1=given["threshold"],
        eps2=given.get("largest_update", 0.0),
        percent="threshold_in" in given,
        patience=given.get("patience", 1),
        linkage=given.get("linkage", "single"),
        follow="absent" in given,
    )
    agrees(make_algorithm("cfl", given), loop, preferences=GROUPS, **SOMETIMES_ALL)


# -- MaT-FL --------------------------------------------------------------------------------------------------------


def matfl(plain, voters=3, soft=None):
    """MaT-FL (Cai et al. 2023): for each layer the mean over the k clients whose layers moved most alike.

    `soft`: A_ij ∝ max(0, cos(θ_i − mean, θ_j − mean) + threshold) over whole models, as in the authors' code.
    """
    models = everyones(plain)
    for t in plain.rounds:
        heard = plain.heard(t)
        trained = np.stack([plain.descend(i, models[i], t) for i in heard])
        moves = trained - models[heard]
        if soft is not None:
            weights = np.maximum(cosines(trained - trained.mean(0)) + soft, 0)
            models[heard] = weights / weights.sum(1, keepdims=True) @ trained
        else:
            for layer in plain.layers:
                nearest = np.argsort(-cosines(moves[:, layer]), axis=1, kind="stable")[:, :voters]
                for i, chosen in zip(heard, nearest, strict=True):
                    models[i, layer] = trained[chosen][:, layer].mean(0)
        yield models


@pytest.mark.parametrize("voters", [2, 3])
def test_matfl(voters):
    agrees(make_algorithm("mat-fl", {"voters": voters}), partial(matfl, voters=voters))


@pytest.mark.parametrize("soft", [0.0, 0.4])
def test_soft_matfl(soft):
    agrees(make_algorithm("mat-fl", {"grouping": "soft", "soft_threshold": soft}), partial(matfl, soft=soft))


# -- FedMTL --------------------------------------------------------------------------------------------------------

SETS = [[1, 0, 0], [0, 0.5, 0.5], [0.5, 0.5, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0, 0.5]]
"""The tasks of each client."""


def fedmtl(plain, threshold=0.5, power=1.0):
    """FedMTL (Sen and Borcea 2024) as docs/algorithms.md reads it: mixtures by cosines of what clients have learnt."""
    m = plain.preferences.shape[1]
    start = plain.layers[-m].start
    block, layers = slice(0, start), plain.layers[-m:]
    models = everyones(plain)
    for layer in layers:
        models[:, layer] = plain.initial[layers[0]]
    learnt = np.zeros_like(models)
    for t in plain.rounds:
        heard = plain.heard(t)
        trained = {i: plain.descend(i, models[i], t) for i in heard}
        for i in heard:
            learnt[i] += trained[i] - models[i]
        new = models.copy()
        match = {}
        for i in heard:
            for j in heard:
                likeness = np.array([[cosine(learnt[i][a], learnt[j][b]) for b in layers] for a in layers])
                nearest = (likeness == likeness.max(0)) & (likeness == likeness.max(1, keepdims=True))
                match[i, j] = np.eye(m) if i == j else np.where(nearest & (likeness > threshold), likeness, 0)
        tasks = {i: max(sum(learnt[i][layer].any() for layer in layers), 1) for i in heard}
        for i in heard:
            weights = {}
            for j in heard:
                alike = 1 if i == j else max(cosine(learnt[i][block], learnt[j][block]), 0)
                common = 1 if i == j else 2 * match[i, j].sum() / (tasks[i] + tasks[j])
                weights[j] = ((alike + common) / 2) ** power
            new[i, block] = sum(weights[j] * trained[j][block] for j in heard) / sum(weights.values())
            for a, layer in enumerate(layers):
                alike = [(j, b, match[i, j][a, b]) for j in heard for b in range(m)]
                pairs = [(c**power, trained[j][layers[b]]) for j, b, c in alike if c > 0]
                new[i, layer] = sum(c * h for c, h in pairs) / sum(c for c, _ in pairs)
        models = new
        yield models


@pytest.mark.parametrize("threshold", [0.2, 0.6])
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_fedmtl(threshold, power):
    algorithm = make_algorithm("fedmtl", {"threshold": threshold, "power": power})
    loop = partial(fedmtl, threshold=threshold, power=power)
    agrees(algorithm, loop, problem=Tasks(goals=3), preferences=SETS)


def test_fedmtl_without_task_layers():
    """All of the model is a shared block: weights are cosines of what was learnt, negative ones cut off."""

    def loop(plain):
        models, learnt = everyones(plain), np.zeros_like(everyones(plain))
        for t in plain.rounds:
            heard = plain.heard(t)
            trained = np.stack([plain.descend(i, models[i], t) for i in heard])
            learnt[heard] += trained - models[heard]
            weights = np.maximum(cosines(learnt[heard]), 0) ** 2
            models[heard] = weights / weights.sum(1, keepdims=True) @ trained
            yield models

    agrees(make_algorithm("fedmtl", {"power": 2.0}), loop)
