"""Clients as objectives: each server's weights beside a plain loop from its paper, found by trying all supports."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from plain_federation import agrees
from plain_optima import best_vertex, projected, shortest

from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.faults import Faults

BY = ("size", "equal")
FALLS = {"server_lr": 0.8, "decay": 0.25, "decay_every": 2}
ALL_REPLY = {"participation": 1.0, "faults": Faults()}


def fallen(plain, t):
    """η_t of `FALLS`."""
    return 0.8 * (0.25 ** (2 / len(plain.rounds))) ** ((t - 1) // 2)


# -- mixtures of updates -------------------------------------------------------------------------------------------


def fedmgda(plain, weighting="equal", epsilon=1.0, normalised=True, mu=0.0):
    """FedMGDA+ (Hu et al. 2022, algorithm 1, equation 25): |λ − λ0| ≤ ε; with μ the clients train as in FedProx."""
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        found = [plain.descend(i, model, t, lambda w, start=model: mu * (w - start)) for i in heard]
        g = model - np.stack(found)
        if normalised:
            g = g / np.linalg.norm(g, axis=1, keepdims=True)
        centre = plain.shares(heard, weighting)
        weights = shortest(g @ g.T, np.maximum(centre - epsilon, 0), np.minimum(centre + epsilon, 1))
        model = model - fallen(plain, t) * weights @ g
        everyones = np.zeros(len(plain.clients))
        everyones[heard] = weights
        yield model, {"weights": everyones}


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("name", ["fedmgda", "fedmgda-plus", "mgda-prox"])
def test_fedmgda_and_its_relatives(name, epsilon, weighting):
    given = {"weighting": weighting, "epsilon": epsilon, **FALLS}
    loop = partial(fedmgda, weighting=weighting, epsilon=epsilon, normalised=name != "fedmgda")
    if name == "mgda-prox":
        agrees(make_algorithm(name, {**given, "mu": 0.7}), partial(loop, mu=0.7), limit=1e-8)
    else:
        agrees(make_algorithm(name, given), loop, limit=1e-8)


def fcfl(plain, weighting="equal", first_stage=0.5, delta=0.1, delta_decay=0.8):
    """FCFL (Cui et al. 2021): λ ∝ λ0 exp(F/δ), then the mixture that is best for the mean and harms nobody."""
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        g = model - np.stack([plain.descend(i, model, t) for i in heard])
        shares = plain.shares(heard, weighting)
        if t <= first_stage * len(plain.rounds):
            losses = np.array([plain.loss(i, model) for i in heard])
            weights = shares * np.exp(losses / (delta * delta_decay ** (t - 1)))
            weights /= weights.sum()
        else:
            weights = best_vertex(g @ g.T @ shares, g @ g.T, np.zeros(len(heard)))
        model = model - fallen(plain, t) * weights @ g
        yield model


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("first_stage", [0.5, 0.0])
def test_fcfl(weighting, first_stage):
    """Under this seed the mean by rows wants another vertex than the plain one, in three of four rounds."""
    given = {"weighting": weighting, "first_stage": first_stage, "delta_decay": 0.8, **FALLS}
    loop = partial(fcfl, weighting=weighting, first_stage=first_stage)
    agrees(make_algorithm("fcfl", given), loop, preferences="equidistant", seed=50, limit=1e-8)


def least_conflict(k, shares, c):
    """d = g_0 + c‖g_0‖ g_w/‖g_w‖ as weights of the g_i, w = argmin ⟨g_w, g_0⟩ + c‖g_0‖‖g_w‖ over the simplex.

    On a support a + s Kw/ρ = ν1 with a = K·shares, s = c‖g_0‖ and ρ² = wᵀKw, which leaves a quadratic equation for ν.
    """
    a, s, best = k @ shares, c * np.sqrt(shares @ k @ shares), (np.inf, None)
    for size in range(1, len(k) + 1):
        for support in map(list, combinations(range(len(k)), size)):
            inverse, ones = np.linalg.inv(k[np.ix_(support, support)]), np.ones(size)
            big, mixed, small = ones @ inverse @ ones, ones @ inverse @ a[support], a[support] @ inverse @ a[support]
            root = mixed**2 - big * (small - s**2)
            if root <= 0:
                continue
            nu = (mixed + np.sqrt(root)) / big
            w = np.zeros(len(k))
            w[support] = inverse @ (nu * ones - a[support]) / (nu * big - mixed)
            value = w @ a + s * np.sqrt(w @ k @ w)
            if (w >= -1e-12).all() and value < best[0]:
                best = (value, w)
    w = best[1]
    return shares + s * w / np.sqrt(w @ k @ w)


def fedmc_plus(plain, weighting="equal", c=0.6, c_decay=0.8, window=2):
    """FedMC+ (Shen et al. 2025) as docs/algorithms.md reads it: what is added to g_0 is averaged over a window."""
    model, added = plain.initial, []
    for t in plain.rounds:
        heard = plain.heard(t)
        g = model - np.stack([plain.descend(i, model, t) for i in heard])
        shares = plain.shares(heard, weighting)
        added = [(least_conflict(g @ g.T, shares, c * c_decay ** (t - 1)) - shares) @ g, *added][:window]
        model = model - fallen(plain, t) * (shares @ g + np.mean(added, axis=0))
        yield model


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("window", [1, 2])
def test_fedmc_plus(weighting, window):
    given = {"weighting": weighting, "c": 0.6, "c_decay": 0.8, "window": window, **FALLS}
    agrees(make_algorithm("fedmc-plus", given), partial(fedmc_plus, weighting=weighting, window=window), limit=1e-7)


def fedmdfg(plain, angle=11.25, server_lr=1.0, halvings=3):
    """FedMDFG (Pan et al. 2023, algorithm 1): descent for all, losses more alike, and a line search on losses."""

    def uneven(losses):
        return np.degrees(np.arccos(losses.sum() / np.linalg.norm(losses) / np.sqrt(len(losses))))

    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        losses = np.array([plain.loss(i, model) for i in heard])
        g = model - np.stack([plain.descend(i, model, t) for i in heard])
        lengths = np.linalg.norm(g, axis=1, keepdims=True)
        g *= lengths.mean() / lengths
        fair = uneven(losses) > angle
        mixed = g
        if fair:
            unit, even = losses / np.linalg.norm(losses), np.full(len(heard), len(heard) ** -0.5)
            h = (even @ unit) * unit - even
            mixed = np.vstack([g, h / np.linalg.norm(h) @ g])
        d = shortest(mixed @ mixed.T, np.zeros(len(mixed)), np.ones(len(mixed))) @ mixed
        d *= np.linalg.norm(g.mean(0)) / np.linalg.norm(d)
        longest = halvings if len(heard) == len(plain.clients) else 0
        chosen = 0.0
        for wanted in ("all", "sum"):
            for step in server_lr * 2.0 ** np.arange(longest, -halvings - 1, -1):
                after = np.array([plain.loss(i, model - step * d) for i in heard])
                good = (losses - after >= 1e-4 * step * g @ d).all() and (not fair or uneven(after) < uneven(losses))
                if not chosen and (good if wanted == "all" else after.sum() < losses.sum()):
                    chosen = step
        model = model - chosen * d
        yield model, {"step": chosen, "fair": fair}


@pytest.mark.parametrize("angle", [4.0, 90.0])
@pytest.mark.parametrize("presence", [{}, ALL_REPLY], ids=["some", "all"])
@pytest.mark.parametrize("server_lr", [0.9, 8.0])
def test_fedmdfg(angle, presence, server_lr):
    given = {"angle": angle, "server_lr": server_lr, "halvings": 3}
    agrees(make_algorithm("fedmdfg", given), partial(fedmdfg, **given), limit=1e-8, **presence)


def adafedadam(plain, weighting="size", alpha=1.5, eta=0.05, beta=0.8, beta2=0.9, tau=0.01):
    """Adaptive FedAdam (Ju et al. 2024, algorithm 1); what a client's loss was at first counts from its first reply."""
    model, first, m, v, left, left2 = plain.initial, {}, 0.0, 0.0, 1.0, 1.0
    for t in plain.rounds:
        heard = plain.heard(t)
        losses = {i: plain.loss(i, model) for i in heard}
        first = losses | first
        weights = plain.shares(heard, weighting) * [(losses[i] / first[i]) ** alpha for i in heard]
        weights /= weights.sum()
        change = model - np.stack([plain.descend(i, model, t) for i in heard])
        batches = [plain.minibatches(i, t, "gradients", steps=1)[0] for i in heard]
        slopes = [np.linalg.norm(plain.gradient(i, model, rows)) for i, rows in zip(heard, batches, strict=True)]
        reach = np.linalg.norm(change, axis=1) / slopes
        g = (weights / reach) @ change
        certainty = max(weights @ (np.log(reach / plain.lr) + 1), 0.1)
        kept, kept2 = beta**certainty, beta2**certainty
        m, v, left, left2 = kept * m + (1 - kept) * g, kept2 * v + (1 - kept2) * g**2, left * kept, left2 * kept2
        model = model - certainty * eta * m / (1 - left) / (np.sqrt(v / (1 - left2)) + tau)
        yield model, {"certainty": certainty}


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_adafedadam(weighting, alpha):
    given = {"weighting": weighting, "alpha": alpha, "server_lr": 0.05, "beta": 0.8, "beta2": 0.9, "tau": 0.01}
    agrees(make_algorithm("adafedadam", given), partial(adafedadam, weighting=weighting, alpha=alpha))


# -- weights by losses ---------------------------------------------------------------------------------------------


def q_fedavg(plain, q=2.0, lipschitz=None):
    """q-FedAvg (Li et al. 2020, algorithm 2) with L = 1/lr."""
    big, model = lipschitz or 1 / plain.lr, plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        f = np.array([plain.loss(i, model) for i in heard])
        deltas = big * (model - np.stack([plain.descend(i, model, t) for i in heard]))
        h = q * f ** (q - 1) * (deltas**2).sum(1) + big * f**q
        model = model - f**q @ deltas / h.sum()
        yield model


@pytest.mark.parametrize("given", [{"q": 0.0}, {"q": 2.5}, {"q": 0.5, "lipschitz": 3.0}])
def test_q_fedavg(given):
    agrees(make_algorithm("q-fedavg", given), partial(q_fedavg, **given))


def afl(plain, weight_lr=0.4, mean=True):
    """AFL (Mohri et al. 2019): λ ascends by the losses of those who replied, projected to the simplex of all.

    Where none of them has any weight they count alike.
    """
    model, models = plain.initial, []
    weights = np.full(len(plain.clients), 1 / len(plain.clients))
    for t in plain.rounds:
        heard = plain.heard(t)
        losses = np.zeros(len(weights))
        losses[heard] = [plain.loss(i, model) for i in heard]
        found = [plain.descend(i, model, t) for i in heard]
        shares = weights[heard] if weights[heard].any() else np.ones(len(heard))
        model = shares / shares.sum() @ found
        weights = projected(weights + weight_lr * losses)
        models.append(model)
        yield np.mean(models, axis=0) if mean else model, {"weights": weights}


@pytest.mark.parametrize("weight_lr", [0.05, 0.4])
@pytest.mark.parametrize("result", ["mean", "last"])
def test_afl(result, weight_lr):
    given = {"weight_lr": weight_lr, "result": result}
    agrees(make_algorithm("afl", given), partial(afl, weight_lr=weight_lr, mean=result == "mean"))
