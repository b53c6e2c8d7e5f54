"""What goes around any algorithm: fine-tuning, +safe, and replies that arrive a round late."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plain_federation import agrees
from test_plain_averaging import fedavg
from test_plain_clusters import fedpref
from test_plain_personal import ditto, ifca, local
from test_plain_single_objectives import descent, fedcmoo, fsmgda

from fedpareto.clock.policy import Policy
from fedpareto.contract.registry import make_algorithm


def solutions(plain, loop):
    """The models of each round, `[n, d]`."""
    for told in loop(plain):
        models = told[0] if isinstance(told, tuple) else told
        yield np.broadcast_to(models, (len(plain.clients), len(plain.initial)))


def fine_tuned(plain, loop):
    """The thesis, section 4.3.2: in the last round everybody trains from its solution, and nothing is aggregated."""
    models, last = solutions(plain, loop), plain.rounds[-1]
    for _ in plain.rounds[:-1]:
        found = next(models)
        yield found
    yield np.stack([plain.descend(i, found[i], last) if plain.arrives(i, last) else found[i] for i in plain.clients])


@pytest.mark.parametrize(
    ("name", "given", "loop"),
    [
        ("fedavg", {}, fedavg),
        ("fedpref-weighting", {}, partial(fedpref, clustering=False)),
        ("fsmgda", {"server_lr": 0.7}, fsmgda),
        (
            "fedcmoo",
            {"server_lr": 0.8, "rank": 99, "weight_steps": 40, "weight_lr": 0.03},
            partial(fedcmoo, weigh=descent, rank=99),
        ),
        ("ifca", {"models": 3}, ifca),
    ],
)
def test_fine_tuning(name, given, loop):
    agrees(make_algorithm(f"{name}+ft", given), partial(fine_tuned, loop=loop), limit=1e-8)


def safe(plain, loop):
    """docs/safe.md: beside the algorithm a model of one's own; at the end the best of both and of what is between."""

    def worth(i, theta):
        return plain.loss(i, theta, plain.rows(i, "validation"))

    models, alone, last = solutions(plain, loop), np.tile(plain.initial, (len(plain.clients), 1)), plain.rounds[-1]
    for t in plain.rounds[:-1]:
        found = next(models)
        for i in plain.trained(t):
            alone[i] = plain.descend(i, alone[i], t)
        yield found
    kept = found.copy()
    for i in plain.clients:
        if plain.works(i, last):
            own, tuned = plain.descend(i, alone[i], last), plain.descend(i, found[i], last)
            between = [(1 - s) * own + s * other for other in (found[i], tuned) for s in (0.25, 0.5, 0.75)]
            kept[i] = min([own, found[i], tuned, *between], key=partial(worth, i))
    yield kept


@pytest.mark.parametrize(
    ("name", "given", "loop"),
    [
        ("fedavg", {}, fedavg),
        ("fedpref-weighting", {}, partial(fedpref, clustering=False)),
        ("ditto", {"strength": 0.8}, ditto),
        ("local", {}, local),
    ],
)
def test_safe(name, given, loop):
    agrees(make_algorithm(f"{name}+safe", given), partial(safe, loop=loop))


# -- rounds that do not wait ---------------------------------------------------------------------------------------

LATE = [Policy(kind="buffered", exponent=1.3), Policy(kind="buffered", staleness="hinge", grace=0.0, slope=3.0)]
late = pytest.mark.parametrize("policy", LATE, ids=lambda one: one.staleness)


def beginnings(plain, step):
    """Models of each round: `step` gets θ, and of each reply its client, θ_i, where it began, and s(τ)."""
    models = [plain.initial]
    for t in plain.rounds:
        begun = {i: models[plain.began(i, t) - 1] for i in plain.heard(t)}
        found = [
            (i, plain.descend(i, start, plain.began(i, t)), start, plain.fading(i, t)) for i, start in begun.items()
        ]
        models.append(step(plain, models[-1], found))
        yield models[-1]


@late
@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_fedbuff(policy, weighting):
    """Nguyen et al. 2022, algorithm 1: θ ← θ + η mean s(τ) Δ_i."""

    def step(plain, theta, found):
        changes = [s * (model - start) for _, model, start, s in found]
        return theta + 0.7 * plain.shares([i for i, *_ in found], weighting) @ changes

    algorithm = make_algorithm("fedbuff", {"weighting": weighting, "server_lr": 0.7})
    agrees(algorithm, partial(beginnings, step=step), late=policy)


@late
@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize("mixes", ["models", "updates"])
def test_fedasync(policy, mixes, weighting):
    """Xie et al. 2019, algorithm 1: x ← (1 − α s(τ)) x + α s(τ) x_i, one after the other."""

    def step(plain, theta, found):
        x, shares = theta, plain.shares([i for i, *_ in found], weighting)
        for (_, model, start, s), share in zip(found, shares, strict=True):
            arrived = theta + s * (model - (theta if mixes == "models" else start))
            alpha = min(1, 0.4 * share * len(found))
            x = (1 - alpha) * x + alpha * arrived
        return x

    algorithm = make_algorithm("fedasync", {"weighting": weighting, "mixing": 0.4, "mixes": mixes})
    agrees(algorithm, partial(beginnings, step=step), late=policy)


@late
def test_fedavg(policy):
    """θ ← the mean of θ + s(τ) Δ_i."""

    def step(plain, theta, found):
        return plain.shares([i for i, *_ in found]) @ [theta + s * (model - start) for _, model, start, s in found]

    agrees(make_algorithm("fedavg", {}), partial(beginnings, step=step), late=policy)
