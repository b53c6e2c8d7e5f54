"""Group fairness: each method beside a plain loop from its paper, where clients lack groups and people have none."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from plain_optima import projected
from plain_problem import Answers, Groups

from fedpareto.contract.registry import make_algorithm

NOTIONS = {
    "parity": Groups(),
    "parity of three": Groups(many=3),
    "opportunity": Groups(among=(1,)),
    "odds": Groups(among=(1, 0)),
}
notions = pytest.mark.parametrize("notion", NOTIONS)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def entropies(z, y):
    """−log p of each row's label y, 0 or 1."""
    return np.log1p(np.exp(-(2 * y - 1) * z))


def labels(rows):
    return (rows["answers"][:, 0] > 0).astype(float)


def descend(plain, i, theta, t, slopes, factor=1.0):
    """Local training on a loss whose slopes in a minibatch's logits are given."""
    for rows in plain.minibatches(i, t):
        slope = slopes(plain.problem.plain_logits(theta, rows), rows)
        theta = theta - factor * plain.lr * plain.problem.plain_backwards(theta, rows, slope[:, None])
    return theta


def of_rows(weights, cells):
    """Each row's weight by its cell; 1 for who is in no group."""
    return np.einsum("yz,yzb->b", weights, cells) + 1 - cells.sum((0, 1))


def weighted(plain, weights):
    """The slopes of cross entropy in which cells weigh differently."""
    return lambda z, rows: of_rows(weights, plain.problem.plain_cells(rows)) * (sigmoid(z) - labels(rows)) / len(z)


class FairBatch:
    """Roh et al. 2021 as docs/algorithms.md has it: of a client, with λ and what it has seen of an epoch."""

    def __init__(self, plain, i, alpha):
        self.plain, self.i, self.alpha = plain, i, alpha
        self.rows = plain.problem.plain_cells(plain.rows(i)).sum(-1)
        self.natural = self.rows / np.maximum(self.rows.sum(1, keepdims=True), 1)
        self.shares = self.natural.copy()
        self.losses = self.seen = np.zeros_like(self.rows)

    def train(self, theta, t):
        return descend(self.plain, self.i, theta, t, self.slopes)

    def slopes(self, z, rows):
        weights = np.where(self.rows > 0, self.shares / np.where(self.rows > 0, self.natural, 1), 1)
        found, cells = weighted(self.plain, weights)(z, rows), self.plain.problem.plain_cells(rows)
        parity = None in self.plain.problem.among
        self.losses = self.losses + cells @ entropies(z, np.ones_like(z) if parity else labels(rows))
        self.seen = self.seen + cells.sum(-1)
        if self.seen.sum() >= self.rows.sum():
            self.adapt(parity)
            self.losses = self.seen = np.zeros_like(self.rows)
        return found

    def adapt(self, parity):
        """For the label whose groups differ most α goes from who is best off to who is worst off."""
        best_change = (0.0, None)
        for y in (0, 1) if parity else self.plain.problem.among:
            there = np.flatnonzero(self.seen[y])
            if not len(there):
                continue
            badly = self.losses[y] / np.maximum(self.seen.sum(0) if parity else self.seen[y], 1)
            badly = -badly if parity and y == 0 else badly
            worst, best = there[badly[there].argmax()], there[badly[there].argmin()]
            if badly[worst] - badly[best] > best_change[0]:
                best_change = badly[worst] - badly[best], (y, worst, best)
        if best_change[1]:
            y, worst, best = best_change[1]
            moved = np.clip(self.shares[y, best], 0, self.alpha)
            self.shares[y, worst] += moved
            self.shares[y, best] -= moved


def lft_fedavg(plain, weighting="size", alpha=0.15):
    """Locally fair training: FairBatch, then FedAvg."""
    fair, model = [FairBatch(plain, i, alpha) for i in plain.clients], plain.initial
    for t in plain.rounds:
        found = {i: fair[i].train(model, t) for i in plain.trained(t)}
        model = plain.shares(plain.heard(t), weighting) @ [found[i] for i in plain.heard(t)]
        yield model


@notions
@pytest.mark.parametrize("steps", [0, 3])
def test_lft_fedavg(notion, steps):
    """Two whole epochs in a round; or three steps, which are less than an epoch of a large client."""
    problem = NOTIONS[notion]
    learner = replace(problem.learner(), steps=steps)
    agrees(make_algorithm("lft-fedavg", {"weight_lr": 0.15}), lft_fedavg, problem=problem, learner=learner)


def test_lft_fedavg_with_equal_weights():
    algorithm = make_algorithm("lft-fedavg", {"weight_lr": 0.15, "weighting": "equal"})
    agrees(algorithm, partial(lft_fedavg, weighting="equal"), problem=Groups())


def lft_ensemble(plain, alpha=0.15):
    """The same alone; in the last round all are asked, and those of whom one hears are the ensemble."""
    fair = [FairBatch(plain, i, alpha) for i in plain.clients]
    models = np.tile(plain.initial, (len(plain.clients), 1))
    for t in plain.rounds:
        is_last = t == len(plain.rounds)
        for i in plain.clients if is_last else plain.trained(t):
            if plain.works(i, t):
                models[i] = fair[i].train(models[i], t)
        yield models[[i for i in plain.clients if plain.arrives(i, t)]] if is_last else models


def test_lft_ensemble():
    agrees(make_algorithm("lft-ensemble", {"weight_lr": 0.15}), lft_ensemble, problem=Groups())


def rates(plain, positive, rows):
    """How the rate of each group differs from that of group 0, `[labels, groups]`; NaN where one has no rows."""
    counts = plain.problem.plain_compared(rows)
    found = np.where(counts > 0, plain.problem.plain_compared(positive) / np.maximum(counts, 1), np.nan)
    return found - found[:, :1]


def fairfed(plain, beta=0.8, alpha=0.15, debias=True):
    """FairFed (Ezzeldin et al. 2023, algorithm 1): ω_k ← ω_k − β(Δ_k − mean Δ), kept as a distance from n_k/Σn."""
    model, problem = plain.initial, plain.problem
    fair = [FairBatch(plain, i, alpha if debias else 0.0) for i in plain.clients]
    shift = np.zeros(len(plain.clients))
    for t in plain.rounds:
        found = {i: fair[i].train(model, t) for i in plain.trained(t)}
        heard, counts, positive, right = plain.heard(t), [], [], []
        for i in heard:
            decisions, here = problem.plain_logits(model, plain.rows(i)) > 0, problem.plain_cells(plain.rows(i))
            counts.append(here.sum(-1))
            positive.append(here @ decisions)
            right.append((positive[-1][1].sum() + (counts[-1] - positive[-1])[0].sum()) / counts[-1].sum())
        of_all = np.nan_to_num(rates(plain, np.sum(positive, axis=0), np.sum(counts, axis=0)))
        gaps = np.array([abs(rates(plain, *one) - of_all).max() for one in zip(positive, counts, strict=True)])
        delta = np.where(np.isnan(gaps), abs(right - np.mean(right)), gaps)
        natural = plain.shares(heard)
        weights = np.maximum(natural + shift[heard] - beta * (delta - delta.mean()), 0)
        weights /= weights.sum()
        shift[heard] = weights - natural
        model = weights @ [found[i] for i in heard]
        yield model, {"shift": shift}


@notions
def test_fairfed(notion):
    agrees(make_algorithm("fairfed", {"beta": 0.8, "weight_lr": 0.15}), fairfed, problem=NOTIONS[notion])


def test_fairfed_on_plain_cross_entropy():
    algorithm = make_algorithm("fairfed", {"beta": 0.3, "debias": "none"})
    agrees(algorithm, partial(fairfed, beta=0.3, debias=False), problem=Groups())


def fedfb(plain, rate=0.4):
    """FedFB (Zeng et al. 2021, algorithm 1): λ·N/M of the server's cells, moved by gaps in the sums of losses."""
    model, problem = plain.initial, plain.problem
    weights = np.ones((2, problem.many))
    for t in plain.rounds:
        heard = plain.heard(t)
        masses = {i: of_rows(weights, problem.plain_cells(plain.rows(i))).sum() for i in heard}
        found = []
        for i in heard:
            slopes, scale = weighted(plain, weights), plain.sizes[i] / masses[i]
            found.append(descend(plain, i, model, t, lambda z, rows, s=slopes, c=scale: c * s(z, rows)))
        model = np.array(list(masses.values())) / sum(masses.values()) @ found
        losses = rows = np.zeros((2, problem.many))
        for i in heard:
            here, z = problem.plain_cells(plain.rows(i)), problem.plain_logits(model, plain.rows(i))
            losses, rows = losses + here @ entropies(z, labels(plain.rows(i))), rows + here.sum(-1)
        gaps = rates(plain, np.stack([losses[0], rows[1] - losses[1]]), rows)
        gaps[:, 0] = -gaps[:, 1:].sum(1)
        weights = weights.copy()
        for label, gap, count in zip(problem.among, gaps, problem.plain_compared(rows), strict=True):
            step = rate / np.sqrt(t) * gap * count.sum() / count
            weights[0] += step if label != 1 else 0
            weights[1] -= step if label != 0 else 0
        weights = np.clip(weights, 0, 2)
        yield model, {"weights": weights}


@notions
@pytest.mark.parametrize("rate", [0.1, 1.5])
def test_fedfb(notion, rate):
    """The larger rate brings weights to their bounds."""
    agrees(make_algorithm("fedfb", {"weight_lr": rate}), partial(fedfb, rate=rate), problem=NOTIONS[notion])


def agnosticfair(plain, penalty=2.0, rate=0.3):
    """AgnosticFair (Du et al. 2021): cross entropy and cov(group, logit)², for the worst mixture of clients.

    Of more than two groups the covariances with belonging to each of them, half the sum of their squares.
    """

    def covariances(z, rows):
        """cov and its slope in the logits, for each comparison and group."""
        cells = plain.problem.plain_cells(rows)
        for label in plain.problem.among:
            belongs = cells.sum(0) if label is None else cells[label]
            here = belongs.sum(0)
            for mine in belongs:
                centred = here * (mine - mine.sum() / max(here.sum(), 1)) / max(here.sum(), 1)
                yield centred @ z, centred

    def slopes(z, rows):
        bend = sum((covariance * slope for covariance, slope in covariances(z, rows)), np.zeros_like(z))
        return (sigmoid(z) - labels(rows)) / len(z) + penalty * bend

    model, weights = plain.initial, np.full(len(plain.clients), 1 / len(plain.clients))
    for t in plain.rounds:
        heard, losses = plain.heard(t), np.zeros(len(weights))
        for i in heard:
            rows, z = plain.rows(i), plain.problem.plain_logits(model, plain.rows(i))
            losses[i] = entropies(z, labels(rows)).mean() + penalty * sum(c**2 for c, _ in covariances(z, rows)) / 2
        found = [descend(plain, i, model, t, slopes) for i in heard]
        model = weights[heard] / weights[heard].sum() @ found
        weights = projected(weights + rate * losses)
        yield model, {"weights": weights}


@notions
def test_agnosticfair(notion):
    algorithm = make_algorithm("agnosticfair", {"penalty": 2.0, "weight_lr": 0.1})
    agrees(algorithm, partial(agnosticfair, rate=0.1), problem=NOTIONS[notion])


# -- servers with rows of their own --------------------------------------------------------------------------------


def fedval(plain, places, weighting="equal", importance=None, sharpness=1.0):
    """FedVal (Mehrabi et al. 2022) as docs/algorithms.md reads it: a mean by ranks on the server's rows."""
    rows = plain.server_rows
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        found = np.stack([plain.descend(i, model, t) for i in heard])
        merits = -np.stack([plain.problem.plain_losses(one, rows)[places] for one in found])
        ranks = (merits[:, None] > merits).sum(1) + ((merits[:, None] == merits).sum(1) + 1) / 2
        wanted = np.array(importance or np.ones(len(places)))
        scores = ranks @ wanted / wanted.sum()
        weights = plain.shares(heard, weighting) * scores**sharpness
        model = weights / weights.sum() @ found
        everyones = np.zeros(len(plain.clients))
        everyones[heard] = scores
        yield model, {"scores": everyones}


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({}, [0, 1, 2]),
        ({"weighting": "size", "sharpness": 2.5}, [0, 1, 2]),
        ({"importance": (3.0, 1.0), "criteria": ("loss 2", "loss 0")}, [2, 0]),
    ],
)
def test_fedval(given, places):
    options = {name: value for name, value in given.items() if name != "criteria"}
    agrees(make_algorithm("fedval", given), partial(fedval, places=places, **options), problem=Answers(goals=3, held=9))


def fair_fate(plain, measure, weighting="size", lambda0=0.3, rho=0.4, most=0.5, beta=0.9):
    """FAIR-FATE (Salazar et al. 2023, algorithm 1): the momentum of whoever is fairer than the model."""
    model, v = plain.initial, np.zeros_like(plain.initial)
    for t in plain.rounds:
        heard = plain.heard(t)
        found = np.stack([plain.descend(i, model, t) for i in heard])
        merits = np.stack([measure(plain, one) for one in (model, *found)])
        width = np.ptp(merits, axis=0)
        fair = np.where(width > 0, (merits - merits.min(0)) / np.where(width > 0, width, 1), 0).sum(1)
        ahead = np.where(fair[1:] > fair[0], fair[1:], 0)
        alpha_f = ahead / max(ahead.sum(), 1e-300) @ (found - model)
        left = 1 - t / len(plain.rounds)
        kept = beta * left / (1 - beta + beta * left)
        v = kept * v + (1 - kept) * alpha_f
        weight = min(lambda0 * (1 + rho) ** t, most)
        model = model + weight * v / (1 - kept**t) + (1 - weight) * plain.shares(heard, weighting) @ (found - model)
        everyones = np.zeros(len(plain.clients))
        everyones[heard] = fair[1:] - fair[0]
        yield model, {"fairness": everyones}


@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize(("criteria", "places"), [((), [0, 1, 2]), (("loss 1",), [1])])
def test_fair_fate(criteria, places, weighting):
    given = {"weighting": weighting, "lambda0": 0.3, "rho": 0.4, "most": 0.5}

    def measure(plain, model):
        return -plain.problem.plain_losses(model, plain.server_rows)[places]

    algorithm = make_algorithm("fair-fate", {**given, "criteria": criteria})
    agrees(algorithm, partial(fair_fate, measure=measure, **given), problem=Answers(goals=3, held=9))


@notions
def test_fair_fate_by_a_notion_of_fairness(notion):
    def measure(plain, model):
        problem, rows = plain.problem, plain.server_rows
        here = problem.plain_cells(rows)
        gaps = rates(plain, here @ (problem.plain_logits(model, rows) > 0), here.sum(-1))
        return np.array([1 - np.nanmax(abs(gaps))])

    loop = partial(fair_fate, measure=measure)
    algorithm = make_algorithm("fair-fate", {"lambda0": 0.3, "rho": 0.4, "most": 0.5})
    agrees(algorithm, loop, problem=replace(NOTIONS[notion], held=40))


# -- FairTrade -----------------------------------------------------------------------------------------------------

STEPS = 21
LATTICE = np.array([[a, b] for a in np.linspace(0, 1, STEPS) for b in np.linspace(0, 1, STEPS)])


def apart(some, others):
    return np.sqrt(((some[:, None] - others) ** 2).sum(-1))


def process(points, values, places):
    """Mean and deviation of a Gaussian process (Matérn, ν = 5/2) with the likeliest of some lengths and noises."""

    def kernel(some, others, length):
        r = np.sqrt(5) * apart(some, others) / length
        return (1 + r + r**2 / 3) * np.exp(-r)

    centre, scale = values.mean(), values.std() or 1.0
    y, likeliest = (values - centre) / scale, (-np.inf, None)
    for length in (0.1, 0.2, 0.4, 0.8, 1.6):
        for noise in (1e-6, 1e-2, 1e-1):
            k = kernel(points, points, length) + noise * np.eye(len(points))
            likelihood = -y @ np.linalg.solve(k, y) / 2 - np.linalg.slogdet(k)[1] / 2
            if likelihood > likeliest[0]:
                across = kernel(places, points, length)
                variance = 1 - np.einsum("cp,pc->c", across, np.linalg.solve(k, across.T))
                likeliest = likelihood, (across @ np.linalg.solve(k, y), np.sqrt(np.maximum(variance, 0)))
    mean, deviation = likeliest[1]
    return centre + scale * mean, scale * deviation


def improvement(means, deviations, values):
    """The expected growth of the hypervolume up to (1, 1): ∫∫ of P(a point is below u in both) over u in no front."""
    both = np.vectorize(math.erf)

    def below(bound, j):
        t = (bound - means[:, j]) / deviations[:, j]
        density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
        return (bound - means[:, j]) * (1 + both(t / np.sqrt(2))) / 2 + deviations[:, j] * density

    inside = [one for one in values if (one < 1).all()]
    front = sorted(tuple(one) for one in inside if not any((o <= one).all() and (o < one).any() for o in inside))
    total, left, height = 0.0, 0.0, 1.0
    for right, top in [*front, (1.0, None)]:
        total = total + (below(right, 0) - left) * below(height, 1)
        left, height = below(right, 0), top
    return total


def next_proposal(tried, seen):
    """The place with the largest expected improvement; before two are known the one that is furthest from all."""
    if len(seen) < 2:
        return LATTICE[apart(LATTICE, tried).min(1).argmax()]
    waiting = tried[len(seen) :]
    guesses = np.stack([process(tried[: len(seen)], column, waiting)[0] for column in seen.T], axis=1)
    seen = np.vstack([seen, guesses])
    found = [process(tried, column, LATTICE) for column in seen.T]
    means, deviations = (np.stack(one, axis=1) for one in zip(*found, strict=True))
    return LATTICE[improvement(means, deviations, seen).argmax()]


def fairtrade(plain, weighting="size", alpha=2.0, sigma=0.7, proposals=4):
    """FairTrade (Badar et al. 2024) as docs/algorithms.md has it: a measurement is of the round before."""
    problem, model = plain.problem, plain.initial
    ranges = np.log([[0.1, 10.0], [0.25, 2.0]])
    first = ((np.log([alpha, sigma]) - ranges[:, 0]) / (ranges[:, 1] - ranges[:, 0]))[None]
    tried, seen = first, np.empty((0, 2))
    for t in plain.rounds:
        heard = plain.heard(t)
        a, s = np.exp(ranges[:, 0] + tried[-1] * (ranges[:, 1] - ranges[:, 0]))

        def slopes(z, rows, a=a):
            p, here, bend = sigmoid(z), problem.plain_cells(rows), np.zeros_like(z)
            for label in problem.among:
                belongs = here.sum(0) if label is None else here[label]
                for mine in belongs[1:] * (belongs[0].any() and 1):
                    if mine.any():
                        each = mine / mine.sum() - belongs[0] / belongs[0].sum()
                        bend += 2 * (each @ p) * each * p * (1 - p)
            return (p - labels(rows)) / len(z) + a * bend

        cells = {i: problem.plain_cells(plain.rows(i)) for i in heard}
        rows = sum(one.sum(-1) for one in cells.values())
        positive = sum(one @ (problem.plain_logits(model, plain.rows(i)) > 0) for i, one in cells.items())
        found = [descend(plain, i, model, t, slopes, factor=s) for i in heard]
        model = plain.shares(heard, weighting) @ found
        if len(tried) > proposals:
            tried, seen = first, np.empty((0, 2))
        else:
            if len(tried) > 1:
                error = (positive[0].sum() / rows[0].sum() + (rows - positive)[1].sum() / rows[1].sum()) / 2
                gaps = np.nan_to_num(rates(plain, positive, rows))
                seen = np.vstack([seen, [error, np.ptp(gaps, axis=1).max()]])
            tried = np.vstack([tried, next_proposal(tried, seen)])
        yield model, {"tried": tried, "seen": seen}


@notions
def test_fairtrade(notion):
    given = {"fairness": 2.0, "step": 0.7, "proposals": 4}
    agrees(make_algorithm("fairtrade", given), fairtrade, problem=NOTIONS[notion], rounds=8)


def test_fairtrade_with_equal_weights_and_one_long_search():
    algorithm = make_algorithm("fairtrade", {"fairness": 2.0, "step": 0.7, "weighting": "equal"})
    agrees(algorithm, partial(fairtrade, weighting="equal", proposals=10), problem=Groups(), rounds=10)
