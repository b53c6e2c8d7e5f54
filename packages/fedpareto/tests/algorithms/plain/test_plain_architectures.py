"""RT-FedEvoNAS beside a plain loop: slices of a super-network, and NSGA-II by loss and multiplications."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from plain_federation import agrees
from plain_problem import Answers

from fedpareto.contract.registry import make_algorithm
from fedpareto.tensors import rng

WIDTHS = (1.0, 0.75, 0.5, 0.25)


def dominated(values):
    """Of each point whether another is nowhere worse and somewhere better."""
    return np.array([any((o <= one).all() and (o < one).any() for o in values) for one in values])


def survivors(codes, values, population):
    """Ranks, then room around (Deb et al. 2002); of equal architectures only the first, and again from the best."""
    first = sorted({tuple(code): k for k, code in reversed(list(enumerate(codes)))}.values())
    codes, values = codes[first], values[first]
    left, order = np.arange(len(codes)), []
    while len(left):
        front = left[~dominated(values[left])]
        room = np.zeros(len(front))
        for column in values[front].T:
            ranked = np.argsort(column, kind="stable")
            ends = np.ptp(column) or 1.0
            room[ranked[[0, -1]]] = np.inf
            room[ranked[1:-1]] += (column[ranked[2:]] - column[ranked[:-2]]) / ends
        order += list(front[np.argsort(-room, kind="stable")])
        left = np.setdiff1d(left, front)
    return np.resize(codes[order[:population]], (population, codes.shape[1]))


def rt_fedevonas(plain, population=3, weighting="size", pick="loss"):
    """Zhu and Jin 2022: everybody measures 2N architectures and trains one of N children; entries are averaged."""
    hidden, stream = plain.problem.hidden, partial(rng.generator, purpose="architectures")
    layers = (3, *hidden, plain.problem.goals)

    def slice_of(code):
        """1 where a slice has an entry, and the share of the weights, which are the multiplications."""
        kept = [3, *(int(np.ceil(WIDTHS[c] * u)) for c, u in zip(code, hidden, strict=True)), plain.problem.goals]
        inside = [np.arange(units) < some for units, some in zip(layers, kept, strict=True)]
        weights = [np.outer(a, b).ravel() for a, b in pairwise(inside)]
        parts = [part for pair in zip(weights, inside[1:], strict=True) for part in pair]
        return np.concatenate(parts), np.concatenate(weights).mean()

    def at(t):
        return stream(rng.Address(plain.setting.seed, round=t))

    codes = at(0).integers(len(WIDTHS), size=(2 * population, len(hidden)))
    model = plain.initial
    for t in plain.rounds:
        address = rng.Address(plain.setting.seed, round=t)
        dealt = rng.generator(address, "who trains which architecture").permutation(len(plain.clients)) % population
        heard, masks = plain.heard(t), [slice_of(code)[0] for code in codes]
        shares = plain.shares(heard, weighting)
        own = np.stack([masks[population + dealt[i]] for i in heard]).astype(float)
        found = np.stack([plain.descend(i, model * has, t) for i, has in zip(heard, own, strict=True)])
        losses = shares @ [[plain.loss(i, model * has) for has in masks] for i in heard]
        values = np.stack([losses, [slice_of(code)[1] for code in codes]], axis=1)
        total = shares @ own
        model = np.where(total > 0, shares @ (own * found) / np.where(total > 0, total, 1), model)
        kept, draws = survivors(codes, values, population), at(t)
        mothers, fathers = draws.integers(population, size=(2, population, 2)).min(2)
        cuts = draws.integers(len(hidden) + 1, size=(population, 1))
        born = np.where(np.arange(len(hidden)) < cuts, kept[mothers], kept[fathers])
        is_new = draws.random(born.shape) < 1 / len(hidden)
        born = np.where(is_new, draws.integers(len(WIDTHS), size=born.shape), born)
        _, first = np.unique(codes, axis=0, return_index=True)
        front = first[~dominated(values[first])]
        best = int(values[front, 0].argmin())
        if pick == "knee":
            width = np.ptp(values[front], axis=0)
            away = (values[front] - values[front].min(0)) / np.where(width > 0, width, 1)
            best = int(np.linalg.norm(away, axis=1).argmin())
        used = slice_of(codes[front[best]])[0]
        named = {"model": model, "front": codes[front], "values": values[front]}
        codes = np.concatenate([kept, born])
        yield model * used, {**named, "codes": codes}


@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize(("population", "pick"), [(3, "loss"), (4, "knee")])
def test_rt_fedevonas(population, pick, weighting):
    given = {"widths": WIDTHS, "population": population, "pick": pick, "weighting": weighting}
    loop = partial(rt_fedevonas, population=population, pick=pick, weighting=weighting)
    agrees(make_algorithm("rt-fedevonas", given), loop, problem=Answers(hidden=(8, 6)), rounds=6)
