"""MOFL/D whose candidates share one federation, on Adult (thesis, sections 2.3 (v), 3.1.2 and 7.2).

MOFL/D trains a model for each proposed weight, separately. Candidates with different weights could also be trained in
one federation that finds out itself which of them help one another: FedPref as the inner algorithm. Both get the same
weights (a lattice), rows, rounds and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedpareto_papers.catalogue import Options, known
from fedpareto_papers.studies.study import Judged, Point, Study, Values, cell, contrast, said
from fedpareto_papers.study import Run

SEPARATE, TOGETHER, SPLIT = "separate (fedavg)", "together (fedpref)", "together, split in every round"
WAYS: Mapping[str, Mapping[str, Any]] = {
    SEPARATE: {"inner": "fedavg"},
    TOGETHER: {"inner": "fedpref"},
    SPLIT: {"inner": "fedpref", "threshold": 1e6},
}
"""FedPref with its own ε, by which few rounds split nothing, and with one that every movement is below."""
PROBLEMS: Mapping[str, Mapping[str, Any]] = {"adult": {}, "synthetic": {}}
SAMPLES, QUICK_SAMPLES = (5, 10), (5,)
"""Candidates in the federation: one iteration, all of its rounds are a training."""
USUAL, QUICK = {"seeds": 10, "rounds": 20, "clients": 5}, {"seeds": 2, "rounds": 2, "clients": 3}
VOLUME = "hypervolume"


def prepare(name: str, options: Options) -> Study:
    options.refuse(name, "preferences")
    options.must_name_parts()
    problems = known("problem of this study", options.problems, PROBLEMS) or (
        ("synthetic",) if options.quick else ("adult",)
    )
    ways = [way for way in WAYS if way in (known("way of training", options.algorithms, WAYS) or WAYS)]
    options = options.sized(USUAL, QUICK)
    counts = QUICK_SAMPLES if options.quick else SAMPLES
    cells = [
        cell(
            _name(problem, count, way),
            options,
            read,
            algorithm={
                "name": "mofld",
                "generator": "lattice",
                "samples": count,
                "training_rounds": options.rounds,
                **WAYS[way],
            },
            problem={"name": problem, **PROBLEMS[problem]},
        )
        for problem in problems
        for count in counts
        for way in ways
    ]
    return Study(
        name,
        options,
        said(options),
        cells,
        partial(judge, problems, counts, ways),
        "candidates in one federation",
        "hypervolume of the front",
    )


def _name(problem: str, count: int, way: str) -> str:
    plain = "".join(letter for letter in way if letter not in ",()").replace(" ", "-")
    return f"{problem}/candidates-{count}/{plain}"


def read(run: Run) -> Values:
    """Read the hypervolume of the front that the search ends with, on the rows for the comparison."""
    return {VOLUME: run.record.indicator("hypervolume").tolist()}


def judge(problems: Sequence[str], counts: Sequence[int], ways: Sequence[str], found: Mapping[str, Values]) -> Judged:
    """Each way of training together less separate trainings."""

    def of(problem: str, count: int, way: str) -> Sequence[float]:
        return found[_name(problem, count, way)][VOLUME]

    points = [
        Point(problem, count, way, of(problem, count, way)) for problem in problems for count in counts for way in ways
    ]
    contrasts = [
        contrast(
            f"{problem}, {count} candidates: {way} less {SEPARATE}",
            of(problem, count, way),
            of(problem, count, SEPARATE),
        )
        for problem in problems
        for count in counts
        for way in ways
        if way != SEPARATE and SEPARATE in ways
    ]
    counted = {sign: sum(one.sign == sign for one in contrasts) for sign in (1, -1, 0)}
    verdict = (
        f"of {len(contrasts)} comparisons, candidates that share a federation find a better front in {counted[1]}, a "
        f"worse one in {counted[-1]}; in {counted[0]} no difference is shown."
    )
    return Judged(points, contrasts, verdict)
