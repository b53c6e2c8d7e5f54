"""A model of one's own, or one of a few: each method beside a plain loop from its paper."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees

from fedpareto.contract.registry import make_algorithm

BY = ("size", "equal")


def everyones(plain, model=None):
    """A copy of a model for every client, `[n, d]`."""
    return np.tile(plain.initial if model is None else model, (len(plain.clients), 1))


def local(plain):
    """Everybody alone, in the rounds in which it takes part; a reply that is lost changes nothing."""
    models = everyones(plain)
    for t in plain.rounds:
        for i in plain.trained(t):
            models[i] = plain.descend(i, models[i], t)
        yield models


def test_local():
    agrees(make_algorithm("local", {}), local)


def ditto(plain, weighting="size", strength=0.8):
    """Ditto (Li et al. 2021, algorithm 1): v_k ← v_k − η (∇F_k(v_k) + λ (v_k − wᵗ)) beside FedAvg of w."""
    w, own = plain.initial, everyones(plain)
    for t in plain.rounds:
        for k in plain.trained(t):
            own[k] = plain.descend(k, own[k], t, lambda v, w=w: strength * (v - w))
        w = plain.shares(plain.heard(t), weighting) @ [plain.descend(k, w, t) for k in plain.heard(t)]
        yield own, {"model": w}


@pytest.mark.parametrize("weighting", BY)
def test_ditto(weighting):
    given = {"weighting": weighting, "strength": 0.8}
    agrees(make_algorithm("ditto", given), partial(ditto, weighting=weighting))


def apfl(plain, weighting="size", mixing=0.3, mixing_lr=0.6):
    """APFL (Deng et al. 2020, algorithm 1): w_i down ∇f(w_i), v_i down α_i ∇f(v̄_i), v̄_i = α_i v_i + (1 − α_i) w_i."""
    w, own = plain.initial, everyones(plain)
    alphas = np.full(len(plain.clients), mixing)
    for t in plain.rounds:
        found = {}
        for i in plain.trained(t):
            (rows,) = plain.minibatches(i, t, "gradients", steps=1)
            slope = (own[i] - w) @ plain.gradient(i, alphas[i] * own[i] + (1 - alphas[i]) * w, rows)
            alphas[i] = np.clip(alphas[i] - mixing_lr * slope, 0, 1)
            found[i] = w
            for rows in plain.minibatches(i, t):
                mixed = alphas[i] * own[i] + (1 - alphas[i]) * found[i]
                own[i] = own[i] - plain.lr * alphas[i] * plain.gradient(i, mixed, rows)
                found[i] = found[i] - plain.lr * plain.gradient(i, found[i], rows)
        w = plain.shares(plain.heard(t), weighting) @ [found[i] for i in plain.heard(t)]
        yield alphas[:, None] * own + (1 - alphas[:, None]) * w, {"model": w}


@pytest.mark.parametrize("weighting", BY)
def test_apfl(weighting):
    given = {"weighting": weighting, "mixing": 0.3, "mixing_lr": 0.6}
    agrees(make_algorithm("apfl", given), partial(apfl, weighting=weighting))


def shared_body(plain, head_layers):
    """The entries of the body, and those of the head, the last layers."""
    start = plain.layers[-head_layers].start
    return slice(0, start), slice(start, None)


def fedrep(plain, weighting="size", head_layers=1, head_epochs=3):
    """FedRep (Collins et al. 2021, algorithm 1): the head by some passes, then the body once; bodies are averaged."""
    body, head = shared_body(plain, head_layers)
    models, shared = everyones(plain), plain.initial[body]
    for t in plain.rounds:
        found = {}
        for i in plain.trained(t):
            model = np.concatenate([shared, models[i][head]])
            model = plain.descend(i, model, t, moves=head, epochs=head_epochs, purpose="head")
            models[i] = found[i] = plain.descend(i, model, t, moves=body)
        shared = plain.shares(plain.heard(t), weighting) @ [found[i][body] for i in plain.heard(t)]
        models[:, body] = shared
        yield models


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("head_layers", [1, 2])
def test_fedrep(weighting, head_layers):
    given = {"weighting": weighting, "head_layers": head_layers, "head_epochs": 3}
    agrees(make_algorithm("fedrep", given), partial(fedrep, weighting=weighting, head_layers=head_layers))


def fedper(plain, weighting="size", head_layers=1):
    """FedPer (Arivazhagan et al. 2019): both are trained together, the body is averaged, the head stays."""
    body, head = shared_body(plain, head_layers)
    models, shared = everyones(plain), plain.initial[body]
    for t in plain.rounds:
        for i in plain.trained(t):
            models[i] = plain.descend(i, np.concatenate([shared, models[i][head]]), t)
        shared = plain.shares(plain.heard(t), weighting) @ models[plain.heard(t)][:, body]
        models[:, body] = shared
        yield models


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("head_layers", [1, 2])
def test_fedper(weighting, head_layers):
    given = {"weighting": weighting, "head_layers": head_layers}
    agrees(make_algorithm("fedper", given), partial(fedper, weighting=weighting, head_layers=head_layers))


def fedamp(plain, strength=0.7, sigma=0.5, cloud_step=0.4, relative=False):
    """FedAMP (Huang et al. 2021, algorithm 1): each client is pulled to a mixture u_i of what everybody sent last."""
    own, models, n = everyones(plain), everyones(plain), len(plain.clients)
    for t in plain.rounds:
        squares = ((models[:, None] - models) ** 2).sum(-1)
        if relative and squares.any():
            squares = squares / squares[~np.eye(n, dtype=bool)].mean()
        weights = cloud_step / sigma * np.exp(-squares / sigma) * (1 - np.eye(n))
        others = weights.sum(1, keepdims=True)  # At least 1/n is left for a client's own model.
        weights *= np.minimum(1, (1 - 1 / n) / others)
        mixtures = weights @ models + (1 - weights.sum(1, keepdims=True)) * models
        for i in plain.trained(t):
            own[i] = plain.descend(i, own[i], t, lambda w, u=mixtures[i]: strength / cloud_step * (w - u))
        models[plain.heard(t)] = own[plain.heard(t)]
        yield own


@pytest.mark.parametrize("cloud_step", [0.05, 0.4])
@pytest.mark.parametrize("distances", ["absolute", "relative"])
def test_fedamp(distances, cloud_step):
    strength = 2 * cloud_step
    given = {"strength": strength, "sigma": 0.5, "cloud_step": cloud_step, "distances": distances}
    loop = partial(fedamp, strength=strength, cloud_step=cloud_step, relative=distances == "relative")
    agrees(make_algorithm("fedamp", given), loop)


def mocha(plain, strength=0.6, learned=False, ridge=0.05):
    """MOCHA (Smith et al. 2017): local training of F_i + λ tr(W Ω Wᵀ) while what the others sent last stands still."""
    own, models, n = everyones(plain), everyones(plain), len(plain.clients)
    for t in plain.rounds:
        omega = np.eye(n) - 1 / n
        if learned:
            gram = models @ models.T
            values, vectors = np.linalg.eigh(gram / np.trace(gram) + ridge * np.eye(n))
            omega = vectors @ np.diag(values**-0.5) @ vectors.T
            omega *= (n - 1) / np.trace(omega)
        for i in plain.trained(t):
            rest, diagonal = omega[i] @ models - omega[i, i] * models[i], omega[i, i]
            own[i] = plain.descend(i, own[i], t, lambda w, o=diagonal, rest=rest: 2 * strength * (o * w + rest))
        models[plain.heard(t)] = own[plain.heard(t)]
        yield own


@pytest.mark.parametrize("relation", ["mean", "learned"])
def test_mocha(relation):
    given = {"strength": 0.6, "relation": relation, "ridge": 0.05}
    agrees(make_algorithm("mocha", given), partial(mocha, learned=relation == "learned"))


def pfedme(plain, strength=3.0, local_rounds=2, local_lr=0.1, beta=0.7):
    """pFedMe (Dinh et al. 2020, algorithm 1); θ_i goes on from where it was the last time."""
    w, own = plain.initial, everyones(plain)
    for t in plain.rounds:
        found = {}
        for i in plain.trained(t):
            found[i] = w
            for r in range(local_rounds):
                own[i] = plain.descend(i, own[i], t, lambda theta, w=found[i]: strength * (theta - w), lane=r)
                found[i] = found[i] - local_lr * strength * (found[i] - own[i])
        w = (1 - beta) * w + beta * np.mean([found[i] for i in plain.heard(t)], axis=0)
        yield own, {"model": w}


def test_pfedme():
    agrees(make_algorithm("pfedme", {"strength": 3.0, "local_rounds": 2, "local_lr": 0.1, "beta": 0.7}), pfedme)


def per_fedavg(plain, weighting="size", alpha=0.3, first_order=False):
    """Per-FedAvg (Fallah et al. 2020, algorithm 1): w ← w − β (I − α ∇²f(w; D)) ∇f(w − α ∇f(w; D); D').

    D is the first half of a minibatch, D' the second. Personal is one step from w on a minibatch of the client's.
    """
    tiny = 1e-30

    def meta(i, w, rows):
        half = (len(rows["inputs"]) + 1) // 2
        first, second = ({name: column[part] for name, column in rows.items()} for part in (np.s_[:half], np.s_[half:]))
        if not len(second["inputs"]):
            second = first
        outer = plain.gradient(i, w - alpha * plain.gradient(i, w, first), second)
        bend = plain.gradient(i, w + 1j * tiny * outer, first).imag / tiny
        return outer - (0 if first_order else alpha * bend)

    model = plain.initial
    for t in plain.rounds:
        found = []
        for i in plain.heard(t):
            w = model
            for rows in plain.minibatches(i, t):
                w = w - plain.lr * meta(i, w, rows)
            found.append(w)
        model = plain.shares(plain.heard(t), weighting) @ found
        steps = [plain.minibatches(i, 0, "gradients", steps=1)[0] for i in plain.clients]
        yield np.stack([model - alpha * plain.gradient(i, model, steps[i]) for i in plain.clients]), {"model": model}


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("first_order", [False, True])
def test_per_fedavg(weighting, first_order):
    given = {"weighting": weighting, "alpha": 0.3, "first_order": first_order}
    agrees(make_algorithm("per-fedavg", given), partial(per_fedavg, weighting=weighting, first_order=first_order))


def ifca(plain, weighting="equal"):
    """IFCA (Ghosh et al. 2020, algorithm 1, model averaging): j ← argmin_j F_i(θ_j), which is trained and averaged."""
    models = plain.begun.models.numpy().copy()
    for t in plain.rounds:
        heard = plain.heard(t)
        nearest = [int(np.argmin([plain.loss(i, model) for model in models])) for i in plain.clients]
        found = {i: plain.descend(i, models[nearest[i]], t) for i in heard}
        for j in set(nearest):
            members = [i for i in heard if nearest[i] == j]
            if members:
                models[j] = plain.shares(members, weighting) @ [found[i] for i in members]
        uses = [int(np.argmin([plain.loss(i, model) for model in models])) for i in plain.clients]
        yield models[uses], {"models": models}


@pytest.mark.parametrize("weighting", BY)
def test_ifca(weighting):
    agrees(make_algorithm("ifca", {"models": 3, "weighting": weighting}), partial(ifca, weighting=weighting))


def fedfew(plain, mu=0.3, weighting="size", server_lr=1.5, loss="before"):
    """FedFew (Guo et al. 2026, algorithm 1, equations 11 to 13): θ_k ← θ_k + η Σ_i α_i w_ik (θ_ik − θ_k)."""
    models = plain.begun.models.numpy().copy()
    for t in plain.rounds:
        heard = plain.heard(t)
        found = np.array([[plain.descend(i, model, t, lane=k) for k, model in enumerate(models)] for i in heard])
        losses = np.array([[plain.loss(i, model) for model in models] for i in heard])
        if loss == "after":
            losses = np.array([[plain.loss(i, one) for one in own] for i, own in zip(heard, found, strict=True)])
        if loss == "during":
            losses = np.array([[running(plain, i, model, t, k) for k, model in enumerate(models)] for i in heard])
        if weighting == "size":
            losses = losses * plain.shares(heard)[:, None]
        sums = np.exp(-losses / mu).sum(1)
        alpha, w = 1 / sums / (1 / sums).sum(), np.exp(-losses / mu) / sums[:, None]
        models = models + server_lr * np.einsum("i,ik,ikd->kd", alpha, w, found - models)
        uses = [int(np.argmin([plain.loss(i, model) for model in models])) for i in plain.clients]
        everyones = np.zeros(len(plain.clients))
        everyones[heard] = alpha
        yield models[uses], {"models": models, "weights": everyones, "objective": mu * np.log((1 / sums).sum())}


def running(plain, i, model, t, lane):
    """The mean loss of the rows of the last epoch, each before the step that it is part of."""
    theta, batches = model, plain.minibatches(i, t, lane=lane)
    total, last = 0.0, len(batches) // plain.learner.epochs
    for rows in batches[:-last]:
        theta = theta - plain.lr * plain.gradient(i, theta, rows)
    for rows in batches[-last:]:
        total += plain.loss(i, theta, rows) * len(rows["inputs"])
        theta = theta - plain.lr * plain.gradient(i, theta, rows)
    return total / plain.sizes[i]


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("loss", ["before", "during", "after"])
def test_fedfew(loss, weighting):
    given = {"mu": 0.3, "weighting": weighting, "server_lr": 1.5, "loss": loss}
    agrees(make_algorithm("fedfew", {"models": 3, **given}), partial(fedfew, **given))


@pytest.mark.parametrize("models", [1, 2])
def test_fedfew_from_copies(models):
    algorithm = make_algorithm("fedfew", {"models": models, "mu": 0.3, "initial": "identical", "server_lr": 1.5})
    agrees(algorithm, fedfew)


def fesem(plain, weighting="equal"):
    """FeSEM (Long et al. 2022, algorithm 1) with two centres, at first the best two groups of the first models."""
    centres, choices = None, {}
    for t in plain.rounds:
        heard = plain.heard(t)
        usual = max((0, 1), key=lambda k: (list(choices.values()).count(k), -k))
        start = everyones(plain) if centres is None else centres[[choices.get(i, usual) for i in plain.clients]]
        found = np.stack([plain.descend(i, start[i], t) for i in heard])
        if centres is None:
            halves = [np.array([k >> j & 1 for j in range(len(heard))]) for k in range(1, 2 ** len(heard) - 1)]
            means = [np.stack([found[half == k].mean(0) for k in (0, 1)]) for half in halves]
            spreads = [((found - mean[half]) ** 2).sum() for mean, half in zip(means, halves, strict=True)]
            centres = means[int(np.argmin(spreads))]
        nearest = ((found[:, None] - centres) ** 2).sum(-1).argmin(1)
        choices |= dict(zip(heard, nearest, strict=True))
        for k in set(nearest):
            members = [i for i in heard if choices[i] == k]
            centres[k] = plain.shares(members, weighting) @ found[nearest == k]
        usual = max((0, 1), key=lambda k: (list(choices.values()).count(k), -k))
        yield centres[[choices.get(i, usual) for i in plain.clients]]


@pytest.mark.parametrize("weighting", BY)
def test_fesem(weighting):
    agrees(make_algorithm("fesem", {"models": 2, "weighting": weighting}), partial(fesem, weighting=weighting))
