"""The control that figure 5.1 of the thesis lacks: is it the opposed preferences that help, or twice the images?

In section 5.1 two clients with opposed preferences do better in a federation than alone. In a federation they also see
twice as many images, and twice as many steps are taken. So the same is run with equal preferences, and alone with
twice the images, and with twice the steps as well. All ways are tested on equally many images that the seed draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedpareto.moo import preferences
from fedpareto_papers.catalogue import Options, known
from fedpareto_papers.studies.study import OWN, Judged, Point, Study, Values, cell, contrast, mean_of, own_utility
from fedpareto_papers.study import Cell
from fedpareto_papers.thesis import figure_5_1

ALONE, IMAGES, STEPS, EQUAL, OPPOSED = (
    "alone",
    "alone, twice the images",
    "alone, twice the images and steps",
    "federated, equal",
    "federated, opposed",
)
WAYS = (ALONE, IMAGES, STEPS, EQUAL, OPPOSED)
PROBLEMS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "multi-mnist": (
        {
            "name": "multi-mnist",
            "samples": figure_5_1.SAMPLES,
            "test_samples": figure_5_1.TEST_SAMPLES,
            "network": figure_5_1.NETWORK,
        },
        {
            "lr": figure_5_1.LR,
            "steps": figure_5_1.STEPS,
            "batch_size": figure_5_1.BATCH_SIZE,
            "optimiser": figure_5_1.OPTIMISER,
        },
    ),
    "digit-pairs": (
        {"name": "digit-pairs", "samples": 600},
        {"lr": 0.005, "steps": figure_5_1.STEPS, "batch_size": 32, "optimiser": "adam"},
    ),
}
"""The problem and how clients learn: as in figure 5.1, and the same question about small images."""
USUAL, QUICK = {"seeds": 5, "rounds": figure_5_1.ROUNDS}, {"seeds": 2, "rounds": 2}
CONFIGURATIONS, QUICK_CONFIGURATIONS = 5, 2


def prepare(name: str, options: Options) -> Study:
    options.refuse(name, "clients", "preferences")
    options.must_name_parts()
    chosen = known("way of training", options.algorithms, WAYS) or WAYS
    ways = [way for way in WAYS if way in chosen]
    options = options.sized(USUAL, QUICK)
    firsts = [
        row[0] for row in preferences.sweep(QUICK_CONFIGURATIONS if options.quick else CONFIGURATIONS, 2).tolist()
    ]
    problems = known("problem of this study", options.problems, PROBLEMS) or (
        ("digit-pairs",) if options.quick else tuple(PROBLEMS)
    )
    cells = [
        one for problem in problems for first in firsts for way in ways for one in _cells(problem, way, first, options)
    ]
    return Study(
        name,
        options,
        f"{options.rounds} rounds, {options.seeds} seeds, {len(firsts)} pairs of preferences",
        cells,
        partial(judge, problems, firsts, ways),
        "weight of the left digit for one client (1 less it for the other)",
        "own-preference value (accuracy)",
    )


def _cells(problem: str, way: str, first: float, options: Options) -> list[Cell]:
    """The runs of a way: one, or with equal preferences one for each of the two."""
    pair = [[first, 1 - first], [1 - first, first]]
    images, learner = PROBLEMS[problem]
    return [
        cell(
            _name(problem, way, first, part),
            replace(options, clients=figure_5_1.CLIENTS),
            own_utility,
            algorithm="fedavg" if way in (EQUAL, OPPOSED) else "local",
            problem={**images, "samples": images["samples"] * (2 if way in (IMAGES, STEPS) else 1)},
            learner={**learner, "steps": learner["steps"] * (2 if way == STEPS else 1)},
            evaluate_every=options.rounds,
            preferences=rows,
        )
        for part, rows in enumerate([pair] if way != EQUAL else [[row, row] for row in pair])
    ]


def _name(problem: str, way: str, first: float, part: int = 0) -> str:
    return f"{problem}/weight-{first:.2f}/{way.replace(',', '').replace(' ', '-')}" + ("-other" if part else "")


def judge(problems: Sequence[str], firsts: Sequence[float], ways: Sequence[str], found: Mapping[str, Values]) -> Judged:
    """Opposed preferences in a federation against each control, on average over the pairs of preferences."""

    def own(problem: str, way: str, first: float) -> list[float]:
        parts = range(2 if way == EQUAL else 1)
        return mean_of([found[_name(problem, way, first, part)][OWN] for part in parts])

    points = [
        Point(problem, first, way, own(problem, way, first)) for problem in problems for way in ways for first in firsts
    ]
    contrasts, verdicts = [], []
    for problem in problems:
        means = {way: mean_of([own(problem, way, first) for first in firsts]) for way in ways}
        pairs = [
            (OPPOSED, ALONE),
            (OPPOSED, IMAGES),
            (OPPOSED, STEPS),
            (OPPOSED, EQUAL),
            (EQUAL, ALONE),
            (IMAGES, ALONE),
        ]
        contrasts += [
            contrast(f"{problem}: {one} less {other}, mean over the pairs", means[one], means[other])
            for one, other in pairs
            if one in means and other in means
        ]
        verdicts.append(f"On {problem}: {_verdict(means)}")
    return Judged(points, contrasts, " ".join(verdicts))


def _verdict(means: Mapping[str, Sequence[float]]) -> str:
    if not {ALONE, IMAGES, STEPS, EQUAL, OPPOSED} <= set(means):
        return "nothing, since not all ways were run."
    told = []
    for other, better, worse, same in (
        (ALONE, "federated clients have more than alone", "less than alone", "it is not shown that federation helps"),
        (IMAGES, "more than alone with twice the images", "less than alone with twice the images", _same("images")),
        (STEPS, "more than with twice the steps too", "less than with twice the steps too", _same("images and steps")),
        (EQUAL, "opposed preferences help", "opposed preferences harm", "opposed preferences are not shown to matter"),
    ):
        told.append({1: better, -1: worse, 0: same}[contrast("", means[OPPOSED], means[other]).sign])
    shown = ", ".join(f"{way} {np.mean(values):.3f}" for way, values in means.items())
    return f"{'; '.join(told)} ({shown})."


def _same(what: str) -> str:
    return f"no difference is shown to training alone with twice the {what}"
