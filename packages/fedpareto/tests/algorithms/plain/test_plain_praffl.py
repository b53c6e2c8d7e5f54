"""PraFFL beside a plain loop from its paper; the hypernetwork's gradient by the chain rule and complex steps."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from plain_federation import agrees
from plain_problem import Answers

from fedpareto.contract.registry import make_algorithm
from fedpareto.tensors import rng

MARGIN, SAMPLED = 0.02, 3


def inside(points):
    """Each coordinate at least the margin."""
    return points * (1 - points.shape[-1] * MARGIN) + MARGIN


def tolerances(preferences):
    """λ ∝ 1/w."""
    inverse = 1 / inside(preferences)
    return inverse / inverse.sum(-1, keepdims=True)


def heads(beta, lambdas, widths):
    """φ = β(λ), `[k, h]`: linear layers, all but the last two with ReLU. β may be complex."""
    place, x = 0, lambdas
    for layer, (a, b) in enumerate(pairwise(widths)):
        x = x @ beta[place : place + a * b].reshape(a, b) + beta[place + a * b : place + (a + 1) * b]
        place += (a + 1) * b
        if layer < len(widths) - 3:
            x = np.where(x.real > 0, x, 0)
    return x


def g(losses, lambdas, kind, balanced):
    """Equation 6 of several λ, `[k]`, and its slopes in the losses, `[k, m]`."""
    weights = 1 / lambdas
    if balanced:
        weights = weights / weights.sum(1, keepdims=True)
    worse = weights * losses
    if kind == "linear":
        return worse.sum(1), weights
    if kind == "tchebycheff":
        return worse.max(1), weights * (worse == worse.max(1, keepdims=True))
    powers = np.exp(worse / 0.5)
    return 0.5 * np.log(powers.sum(1)), weights * powers / powers.sum(1, keepdims=True)


def praffl(plain, algorithm, kind="tchebycheff", balanced=True, used="best", head_layers=2, hidden=(3, 2)):
    """PraFFL (Ye et al. 2024, algorithm 1)."""
    start, n = plain.layers[-head_layers].start, len(plain.clients)
    m = plain.preferences.shape[1]
    widths = (m, *hidden, len(plain.initial) - start)
    shared, objective = plain.initial[:start], np.eye(m)[0]
    betas = np.tile(algorithm.private_state(plain.setting)["hypernetwork"].double().numpy(), (n, 1))
    bodies = np.tile(shared, (n, 1))

    def mean_g(i, beta, body, lambdas, rows):
        models = [np.append(body, head) for head in heads(beta, lambdas, widths)]
        return g(np.array([plain.losses(i, one, rows) for one in models]), lambdas, kind, balanced)[0].mean()

    def descent(i, beta, body, lambdas, rows):
        """The gradient of the mean of g in β."""
        models = [np.append(body, head) for head in heads(beta, lambdas, widths)]
        slopes = g(np.array([plain.losses(i, one, rows) for one in models]), lambdas, kind, balanced)[1]
        of_heads = [slope @ plain.gradients(i, one, rows)[:, start:] for slope, one in zip(slopes, models, strict=True)]
        steps = [heads(beta + 1e-30j * e, lambdas, widths).imag / 1e-30 for e in np.eye(len(beta))]
        return np.array([(of_heads * one).sum() for one in steps]) / len(lambdas)

    for t in plain.rounds:
        for i in plain.trained(t):
            even = heads(betas[i], np.full((1, m), 1 / m), widths)[0]
            whole = np.append(shared, even)
            moves = slice(0, start)
            bodies[i] = plain.descend(i, whole, t, weights=objective, moves=moves, epochs=3, purpose="body")[:start]
            address = rng.Addresses.at(plain.setting.seed, np.array([i]), t)
            for step, rows in enumerate(plain.minibatches(i, t, "hypernetwork", epochs=2)):
                count = SAMPLED * m
                points = address.exponential("hypernetwork preferences", count, step * (count + count % 2)).numpy()
                points = points.reshape(SAMPLED, m)
                lambdas = inside(points / points.sum(1, keepdims=True))
                betas[i] = betas[i] - plain.lr * descent(i, betas[i], bodies[i], lambdas, rows)
        shared = bodies[plain.heard(t)].mean(0)
        models, spread = [], np.array([[k / 10, 1 - k / 10] for k in range(11)])
        for i in plain.clients:
            body = bodies[i] if used == "own" else shared
            if used == "best":
                worth = [
                    mean_g(i, betas[i], one, tolerances(spread), plain.rows(i, "validation"))
                    for one in (shared, bodies[i])
                ]
                body = bodies[i] if worth[1] < worth[0] else shared
            models.append(np.append(body, heads(betas[i], tolerances(plain.preferences[i : i + 1]), widths)[0]))
        yield np.stack(models), {"hypernetwork": betas}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"scalarisation": "smooth-tchebycheff", "used_body": "own"},
        {"scalarisation": "linear", "used_body": "shared"},
        {"head_layers": 1, "balanced": False},
    ],
    ids=["best", "smooth", "linear", "unbalanced"],
)
def test_praffl(given):
    sizes = {"body_epochs": 3, "head_epochs": 2, "sampled": SAMPLED, "hypernetwork": (3, 2), "margin": MARGIN}
    algorithm = make_algorithm("praffl", {**sizes, "smoothing": 0.5, **given})
    names = {"scalarisation": "kind", "used_body": "used", "balanced": "balanced", "head_layers": "head_layers"}
    loop = partial(praffl, algorithm=algorithm, **{names[name]: value for name, value in given.items()})
    agrees(algorithm, loop, problem=Answers(), limit=1e-8)
