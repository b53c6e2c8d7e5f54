"""One global model: FedAvg and what corrects it, each beside a plain loop from its paper."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees

from fedpareto.contract.registry import make_algorithm

BY = ("size", "equal")


def fedavg(plain, weighting="size", mu=0.0):
    """FedAvg (McMahan et al. 2017, algorithm 1): w ← Σ n_k w_k / Σ n_k over those who replied.

    With μ FedProx (Li et al. 2020): local training of F_k(w) + (μ/2)‖w − wᵗ‖².
    """
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        models = [plain.descend(i, model, t, lambda w, start=model: mu * (w - start)) for i in heard]
        model = plain.shares(heard, weighting) @ models
        yield model


@pytest.mark.parametrize("weighting", BY)
def test_fedavg_and_fedprox(weighting):
    agrees(make_algorithm("fedavg", {"weighting": weighting}), partial(fedavg, weighting=weighting))
    fedprox = make_algorithm("fedprox", {"weighting": weighting, "mu": 0.7})
    agrees(fedprox, partial(fedavg, weighting=weighting, mu=0.7))


def fedopt(plain, kind, weighting="size", server_lr=0.3, beta=0.8, beta2=0.9, tau=0.02):
    """FedAvgM (Hsu et al. 2019), FedAdam and FedYogi (Reddi et al. 2021, algorithm 2), without bias correction."""
    model, m, v = plain.initial, 0.0, tau**2
    for t in plain.rounds:
        heard = plain.heard(t)
        change = plain.shares(heard, weighting) @ [plain.descend(i, model, t) - model for i in heard]
        if kind == "fedavgm":
            m = beta * m + change
            model = model + server_lr * m
        else:
            m = beta * m + (1 - beta) * change
            if kind == "fedadam":
                v = beta2 * v + (1 - beta2) * change**2
            else:
                v = v - (1 - beta2) * change**2 * np.sign(v - change**2)
            model = model + server_lr * m / (np.sqrt(v) + tau)
        yield model


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("kind", ["fedavgm", "fedadam", "fedyogi"])
def test_optimisers_of_the_server(kind, weighting):
    given = {"weighting": weighting, "server_lr": 0.3, "beta": 0.8}
    given |= {} if kind == "fedavgm" else {"beta2": 0.9, "tau": 0.02}
    agrees(make_algorithm(kind, given), partial(fedopt, kind=kind, weighting=weighting))


def fedavg_n(plain, weighting="equal", server_lr=0.8, decay=0.25, every=2):
    """FedAvg-N (Hu et al. 2022): θ ← θ − η_t Σ λ_i g_i / ‖g_i‖ with g_i = θ − θ_i; η falls every so many rounds."""
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        updates = np.stack([model - plain.descend(i, model, t) for i in heard])
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        falls = decay ** (every / len(plain.rounds))
        model = model - server_lr * falls ** ((t - 1) // every) * plain.shares(heard, weighting) @ updates
        yield model


@pytest.mark.parametrize("weighting", BY)
def test_fedavg_n(weighting):
    given = {"weighting": weighting, "server_lr": 0.8, "decay": 0.25, "decay_every": 2}
    agrees(make_algorithm("fedavg-n", given), partial(fedavg_n, weighting=weighting))


def fedavg_groups(plain, groups, weighting="size"):
    """FedAvg by itself in each group; a group of which nobody replied stays."""
    models = dict.fromkeys(groups, plain.initial)
    for t in plain.rounds:
        for g, model in models.items():
            heard = [i for i in plain.heard(t) if groups[i] == g]
            if heard:
                models[g] = plain.shares(heard, weighting) @ [plain.descend(i, model, t) for i in heard]
        yield np.stack([models[g] for g in groups])


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize(("given", "groups"), [((3,), (0, 0, 1, 1, 2, 2)), ((7, 4, 7, 7, 4, 5), (7, 4, 7, 7, 4, 5))])
def test_fedavg_in_groups(given, groups, weighting):
    algorithm = make_algorithm("fedavg-groups", {"groups": given, "weighting": weighting})
    agrees(algorithm, partial(fedavg_groups, groups=groups, weighting=weighting))


def scaffold(plain, weighting="equal", server_lr=0.9, correction=1.0):
    """SCAFFOLD (Karimireddy et al. 2020, algorithm 1, option II)."""
    x, c, own = plain.initial, np.zeros_like(plain.initial), np.zeros((len(plain.clients), len(plain.initial)))
    for t in plain.rounds:
        heard, y, change = plain.heard(t), {}, {}
        for i in plain.trained(t):
            steps = len(plain.minibatches(i, t))
            y[i] = plain.descend(i, x, t, lambda _, i=i, c=c: correction * (c - own[i]))
            new = own[i] - c + (x - y[i]) / (steps * plain.lr)
            if correction != 1:  # y_i moved along g_i + correction (c − c_i): what is left is the mean of g_i.
                new = (x - y[i]) / (steps * plain.lr) - correction * (c - own[i])
            change[i], own[i] = new - own[i], new
        x = x + server_lr * plain.shares(heard, weighting) @ [y[i] - x for i in heard]
        c = c + sum(change[i] for i in heard) / len(plain.clients)
        yield x, {"control": c}


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("correction", [1.0, 0.6])
def test_scaffold(weighting, correction):
    given = {"weighting": weighting, "server_lr": 0.9, "correction": correction}
    agrees(make_algorithm("scaffold", given), partial(scaffold, weighting=weighting, correction=correction))


def feddyn(plain, alpha=0.4):
    """FedDyn (Acar et al. 2021, algorithm 1): m clients in all, h ← h − (α/m) Σ (θ_k − θ), θ ← mean of θ_k − h/α."""
    theta, h = plain.initial, np.zeros_like(plain.initial)
    own = np.zeros((len(plain.clients), len(theta)))
    for t in plain.rounds:
        found = {}
        for i in plain.trained(t):
            found[i] = plain.descend(i, theta, t, lambda w, i=i, theta=theta: -own[i] + alpha * (w - theta))
            own[i] = own[i] - alpha * (found[i] - theta)
        h = h - alpha / len(plain.clients) * sum(found[i] - theta for i in plain.heard(t))
        theta = np.mean([found[i] for i in plain.heard(t)], axis=0) - h / alpha
        yield theta


def test_feddyn():
    agrees(make_algorithm("feddyn", {"alpha": 0.4}), partial(feddyn, alpha=0.4))


def moon(plain, weighting="size", mu=2.0, tau=0.5):
    """MOON (Li et al. 2021, equations 3 and 4, algorithm 1); z is the last hidden layer, w⁰ the last model at first."""

    def cosine(z, u):
        """cos(z, u) of each row, and its gradient in z; a row of zeros is like nothing."""
        length, other = (np.linalg.norm(one, axis=1, keepdims=True) for one in (z, u))
        product = np.where(length * other > 0, length * other, np.inf)
        cos = (z * u).sum(1, keepdims=True) / product
        return cos, u / product - cos * z / np.where(length > 0, length, np.inf) ** 2

    def contrast(w, model, last, rows):
        """The gradient of mean −log(e^(cos(z, z_glob)/τ) / (e^(cos(z, z_glob)/τ) + e^(cos(z, z_prev)/τ)))."""
        z, z_glob, z_prev = (plain.problem.plain_values(one, rows["inputs"])[-2] for one in (w, model, last))
        (near, of_near), (far, of_far) = cosine(z, z_glob), cosine(z, z_prev)
        slopes = (of_far - of_near) / tau / (1 + np.exp((near - far) / tau)) / len(z)
        return plain.problem.plain_backwards(w, rows, slopes, last=False)

    model, last = plain.initial, dict.fromkeys(plain.clients, plain.initial)
    for t in plain.rounds:
        found = {}
        for i in plain.trained(t):
            w = model
            for rows in plain.minibatches(i, t):
                w = w - plain.lr * (plain.gradient(i, w, rows) + mu * contrast(w, model, last[i], rows))
            found[i] = last[i] = w
        model = plain.shares(plain.heard(t), weighting) @ [found[i] for i in plain.heard(t)]
        yield model


@pytest.mark.parametrize("weighting", BY)
def test_moon(weighting):
    given = {"weighting": weighting, "mu": 2.0, "temperature": 0.4}
    agrees(make_algorithm("moon", given), partial(moon, weighting=weighting, tau=0.4))


def heterofl(plain, widths, weighting="size"):
    """HeteroFL (Diao et al. 2021): each entry is the mean over the clients whose slice has it."""

    def slice_of(width):
        """1 where the first ⌈width · units⌉ units of each hidden layer are, and all inputs and outputs."""
        sizes, parts = (3, *plain.problem.hidden, plain.problem.goals), []
        kept = [3, *(int(np.ceil(width * units)) for units in plain.problem.hidden), plain.problem.goals]
        for layer in range(len(sizes) - 1):
            inside = [np.arange(sizes[layer + side]) < kept[layer + side] for side in (0, 1)]
            parts += [np.outer(*inside).ravel(), inside[1]]
        return np.concatenate(parts).astype(float)

    masks = np.stack([slice_of(widths[i % len(widths)]) for i in plain.clients])
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        weights = plain.shares(heard, weighting)[:, None] * masks[heard]
        models = [plain.descend(i, model * masks[i], t) for i in heard]
        total = weights.sum(0)
        model = np.where(total > 0, (weights * models).sum(0) / np.where(total > 0, total, 1), model)
        yield model * masks, {"model": model}


@pytest.mark.parametrize("weighting", BY)
@pytest.mark.parametrize("widths", [(1.0, 0.5, 0.25), (0.7, 0.3)])
def test_heterofl(widths, weighting):
    given = {"widths": widths, "weighting": weighting}
    agrees(make_algorithm("heterofl", given), partial(heterofl, widths=widths, weighting=weighting))


def fedbuff(plain, weighting="equal", server_lr=0.7):
    """FedBuff (Nguyen et al. 2022, algorithm 1) of one buffer a round: θ ← θ + η mean(Δ_i)."""
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        model = model + server_lr * plain.shares(heard, weighting) @ [plain.descend(i, model, t) - model for i in heard]
        yield model


@pytest.mark.parametrize("weighting", BY)
def test_fedbuff(weighting):
    given = {"weighting": weighting, "server_lr": 0.7}
    agrees(make_algorithm("fedbuff", given), partial(fedbuff, weighting=weighting))


def fedasync(plain, weighting="equal", mixing=0.4):
    """FedAsync (Xie et al. 2019, algorithm 1), replies of a round one after the other: x ← (1 − α) x + α x_new."""
    model = plain.initial
    for t in plain.rounds:
        heard, begun = plain.heard(t), model
        for i, share in zip(heard, plain.shares(heard, weighting), strict=True):
            alpha = min(1, mixing * share * len(heard))
            model = (1 - alpha) * model + alpha * plain.descend(i, begun, t)
        yield model


@pytest.mark.parametrize("weighting", BY)
def test_fedasync(weighting):
    given = {"weighting": weighting, "mixing": 0.4}
    agrees(make_algorithm("fedasync", given), partial(fedasync, weighting=weighting))


def test_fedasync_counts_the_reply_of_a_large_client_no_more_than_whole():
    algorithm = make_algorithm("fedasync", {"weighting": "size", "mixing": 0.9})
    agrees(algorithm, partial(fedasync, weighting="size", mixing=0.9))
