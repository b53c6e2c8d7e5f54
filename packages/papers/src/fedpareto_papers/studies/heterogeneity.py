"""The cost of unequal preferences, and whether unequal data as well cost more (thesis, section 2.3, vi and vii).

Clients draw preferences from a Dirichlet distribution: α = 0.05 gives each an objective of its own, α = 50 all nearly
the same. What a client has of its model under its own preference depends on α whatever is done, so everything is
compared with training alone under the same preferences, on the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo.indicators import own_utilities
from fedpareto_papers.catalogue import Options, known
from fedpareto_papers.studies.study import (
    Contrast,
    Judged,
    Point,
    Study,
    Values,
    best,
    by_place,
    cell,
    contrast,
    less,
    problems_of,
    said,
    sorted_out,
)
from fedpareto_papers.study import Run

ALPHAS = (0.05, 0.5, 5.0, 50.0)
"""Concentrations of the preferences."""
ALIKE, APART = "alike", "apart"
PROBLEMS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "convex": {ALIKE: {"heterogeneity": 0.0}, APART: {"heterogeneity": 0.5}},
    "synthetic": {ALIKE: {"partition": "iid"}, APART: {"partition": "dirichlet", "alpha": 1.0}},
    "adult": {ALIKE: {"partition": "stratified"}, APART: {"partition": "dirichlet-group", "alpha": 0.3}},
}
"""Parameters by problem, with rows that are alike on all clients, or apart: shifted optima, or other shares of the
groups."""
ALONE = "local"
ALGORITHMS = (ALONE, "fedavg", "fedprox", "fsmgda", "fedcmoo", "cfl", "fedpref", "praffl")
OWN: Mapping[str, Mapping[str, object]] = {"praffl": {"body_epochs": 10, "head_epochs": 20, "sampled": 64}}
"""Parameters of the papers."""
USUAL, QUICK = {"seeds": 10, "rounds": 30, "clients": 10}, {"seeds": 2, "rounds": 3, "clients": 4}
QUICK_ALGORITHMS = (ALONE, "fedavg", "fedpref")
LAST, OVER_ROUNDS = "last", "over rounds"


def read(run: Run) -> Values:
    """Read the mean over clients of the values under their own preferences: in the end, and on average over rounds,
    which is more the sooner it is reached.
    """
    record = run.record
    rounds = []
    for seed in record.started:
        preferences = record.preferences(seed)
        if preferences is None:
            raise UserError(f"{record.folder}: clients keep their preferences private, so there is nothing to compare")
        values = record.values(seed).values()
        rounds.append([float(np.mean(own_utilities(points, preferences, record.maximise))) for points in values])
    return {LAST: record.indicator("own_utility").tolist(), OVER_ROUNDS: [float(np.mean(one)) for one in rounds]}


def prepare(name: str, options: Options) -> Study:
    options.must_name_parts()
    alphas = tuple(_alpha(text) for text in options.preferences) or (ALPHAS[::3] if options.quick else ALPHAS)
    problems = problems_of(options, PROBLEMS, 3)
    chosen = known("algorithm of this study", options.algorithms, ALGORITHMS)
    ways = [way for way in ALGORITHMS if way in (chosen or (QUICK_ALGORITHMS if options.quick else ALGORITHMS))]
    if ways in ([], [ALONE]):
        raise UserError(f"{name} compares algorithms with training alone; choose one, such as --algorithm fedpref")
    ways = [ALONE, *(way for way in ways if way != ALONE)]
    options = options.sized(USUAL, QUICK)
    cells = [
        cell(
            _name(problem, data, alpha, way),
            options,
            read,
            algorithm={"name": way, **OWN.get(way, {})},
            problem={"name": problem, **own},
            preferences=f"dirichlet:{alpha:g}",
        )
        for problem in problems
        for data, own in PROBLEMS[problem].items()
        for alpha in alphas
        for way in ways
    ]
    return Study(
        name,
        options,
        said(options),
        cells,
        partial(judge, problems, sorted(alphas), ways[1:]),
        "α of the preferences",
        "own-preference value, less that of training alone",
        {math.log10(alpha): f"{alpha:g}" for alpha in alphas},
    )


def _alpha(text: str) -> float:
    word, _, number = text.partition(":")
    try:
        alpha = float(number)
    except ValueError:
        alpha = 0.0
    if word != "dirichlet" or not 0 < alpha < math.inf:
        raise UserError(f"--preferences {text}: this study has Dirichlet preferences only, such as dirichlet:0.05")
    return alpha


def _name(problem: str, data: str, alpha: float, way: str) -> str:
    return f"{problem}/data-{data}/preferences-{alpha:g}/{way}"


def judge(problems: Sequence[str], alphas: Sequence[float], ways: Sequence[str], found: Mapping[str, Values]) -> Judged:
    """Compare how the gain over training alone changes with α, with the rows, and with both."""

    def gain(problem: str, data: str, alpha: float, way: str, measure: str = LAST) -> list[float]:
        own, alone = (found[_name(problem, data, alpha, one)][measure] for one in (way, ALONE))
        return less(own, alone)

    points = [
        Point(f"{problem}, rows {data}", math.log10(alpha), way, gain(problem, data, alpha, way))
        for problem in problems
        for data in (ALIKE, APART)
        for alpha in alphas
        for way in ways
    ]
    low, high = alphas[0], alphas[-1]
    contrasts: list[Contrast] = []
    verdict = []
    for problem in problems:
        effects: dict[str, dict[str, Contrast]] = {"preferences": {}, "speed": {}, "data": {}, "both": {}}
        for way in ways:
            of = partial(gain, problem, way=way)
            more = less(of(APART, low), of(ALIKE, low)), less(of(APART, high), of(ALIKE, high))
            told = f"{problem}, {way}: gain over training alone"
            effects["preferences"][way] = contrast(
                f"{told}, rows alike, α {low:g} less α {high:g}", of(ALIKE, low), of(ALIKE, high)
            )
            effects["speed"][way] = contrast(
                f"{told}, the same on average over rounds",
                of(ALIKE, low, measure=OVER_ROUNDS),
                of(ALIKE, high, measure=OVER_ROUNDS),
            )
            effects["data"][way] = contrast(
                f"{told}, α {high:g}, rows apart less alike", of(APART, high), of(ALIKE, high)
            )
            effects["both"][way] = contrast(f"{told}, effect of rows apart at α {low:g} less that at α {high:g}", *more)
        contrasts += [one for of_ways in effects.values() for one in of_ways.values()]
        verdict.append(_sentences(problem, effects))
    return Judged(points, contrasts, " ".join([*verdict, _winners(points)]))


def _sentences(problem: str, effects: Mapping[str, Mapping[str, Contrast]]) -> str:
    told = {
        "preferences": "with unequal preferences",
        "speed": "the same on average over rounds",
        "data": "with unequal rows",
        "both": "with both, beyond the sum of both effects",
    }
    found = ". ".join(f"{text.capitalize()}: {sorted_out(effects[key])}" for key, text in told.items())
    return f"On {problem}, the gain over training alone is changed so. {found}."


def _winners(points: Sequence[Point]) -> str:
    """Count how often each algorithm is ahead of all others beyond doubt."""
    winners = [best(of) for of in by_place(points).values() if len(of) > 1]
    counts = {way: winners.count(way) for way in dict.fromkeys(winners) if way is not None}
    told = ", ".join(f"{way} in {count}" for way, count in counts.items()) or "nobody in any"
    return f"Ahead of all other algorithms beyond doubt, of {len(winners)} settings: {told}."
