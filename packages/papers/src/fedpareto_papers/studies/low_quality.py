"""Recognition of low-quality clients by λ of FedMGDA+, α of FedFew and FedPref's similarity (thesis, section 2.3, ii).

A fifth of the clients has false labels, or sends noise instead of training. A score's AUC is the probability that it is
smaller for one of them than for another client; beside the three stand scores that a server can compute of any
algorithm (trust.contribution). Without false labels the same clients are honest: that AUC is chance, from which the
others are subtracted seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedpareto.record.run_record import Record
from fedpareto.report.machines import contributions
from fedpareto.trust.attacks import Attack
from fedpareto_papers.catalogue import Options
from fedpareto_papers.studies.study import (
    Contrast,
    Judged,
    Point,
    Study,
    Values,
    cell,
    contrast,
    problems_of,
    said,
    sorted_out,
)
from fedpareto_papers.study import Cell, Run

PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "synthetic": {"name": "synthetic", "rows": 8000},
    "adult": {"name": "adult"},
}
NOISES, QUICK_NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), (0.0, 0.5)
"""Shares of false labels."""
RIDES, QUICK_RIDES = (0.0, 0.1, 1.0), (0.1,)
"""Lengths of a free rider's noise, as shares of the update that it does not compute."""
SHARE = 0.2
"""Share of the clients that are dishonest."""
SEEN: Mapping[str, tuple[str, str]] = {
    "share": ("fedavg", "none"),
    "cosine": ("fedavg", "none"),
    "confidence": ("fedavg", "confidence"),
    "λ of FedMGDA+": ("fedmgda-plus", "none"),
    "α of FedFew": ("fedfew", "none"),
    "FedPref's similarity": ("fedpref", "none"),
}
"""The algorithm and the defence of the run in which a score is seen."""
ASKED = tuple(SEEN)[3:]
"""The scores that the thesis asks about."""
USUAL, QUICK = {"seeds": 10, "rounds": 10, "clients": 20}, {"seeds": 2, "rounds": 2, "clients": 10}
STEPS = 10
LABELS, RIDERS = "false labels", "free riders"


def prepare(name: str, options: Options) -> Study:
    options.refuse(name, "algorithms", "preferences")
    options.must_name_parts()
    problems = problems_of(options, PROBLEMS, 2)
    options = options.sized(USUAL, QUICK)
    noises, rides = (QUICK_NOISES, QUICK_RIDES) if options.quick else (NOISES, RIDES)
    kinds = [(LABELS, noise) for noise in noises] + [(RIDERS, length) for length in rides]
    cells = [
        _cell(problem, kind, strength, run, options)
        for problem in problems
        for kind, strength in kinds
        for run in dict.fromkeys(SEEN.values())
    ]
    return Study(
        name,
        options,
        said(options),
        cells,
        partial(judge, problems, kinds),
        "share of false labels, or length of a free rider's noise",
        "AUC: how surely a low score means dishonest",
    )


def _name(problem: str, kind: str, strength: float, run: tuple[str, str]) -> str:
    return f"{problem}/{kind.replace(' ', '-')}-{strength:g}/{'-'.join(run)}"


def _cell(problem: str, kind: str, strength: float, run: tuple[str, str], options: Options) -> Cell:
    algorithm, defence = run
    attack: Any = {"kind": "free-rider" if kind == RIDERS else "low-quality", "share": SHARE, "strength": strength}
    return cell(
        _name(problem, kind, strength, run),
        options,
        read,
        algorithm=algorithm,
        problem=PROBLEMS[problem],
        preferences="1,0",
        evaluate_every=options.rounds,
        learner={"steps": STEPS, "batch_size": 64},
        measure_contribution=algorithm == "fedavg",
        defence=defence,
        attack="none" if kind == LABELS and strength == 0 else attack,
    )


def read(run: Run) -> Values:
    """Read the AUC of each score that the run has, a number for each seed."""
    record = run.record
    dishonest = [_dishonest(record.clients, seed) for seed in record.started]
    scores = [_scores(record, seed) for seed in record.started]
    return {
        name: [auc(of[name], who) for of, who in zip(scores, dishonest, strict=True)]
        for name, (algorithm, _) in SEEN.items()
        if algorithm == record.algorithm and name in scores[0]
    }


def _dishonest(clients: int, seed: int) -> np.ndarray:
    """`[n]`: whether a client is dishonest, or without an attack would be."""
    everyone = np.arange(clients)
    attackers = Attack(kind="low-quality", share=SHARE).attackers(everyone, seed)
    return np.isin(everyone, list(attackers))


def auc(score: np.ndarray, is_dishonest: np.ndarray) -> float:
    """The probability that an honest client has the larger score; ties count half."""
    low, high = score[is_dishonest], score[~is_dishonest]
    return float(np.mean((high > low[:, None]) + 0.5 * (high == low[:, None])))


def _scores(record: Record, seed: int) -> dict[str, np.ndarray]:
    """Means over the rounds, `[n]` by name."""
    lines = record.of_seed(seed)
    if record.algorithm == "fedpref":
        mean = np.mean(list(record.similarity(seed).values())[:-1], axis=0)
        return {"FedPref's similarity": (mean.sum(axis=1) - mean.diagonal()) / (len(mean) - 1)}
    if record.algorithm != "fedavg":
        weights = [line.columns.described(line.row, "weights") for line in lines[:-1]]  # The last one only measures.
        name = "λ of FedMGDA+" if record.algorithm == "fedmgda-plus" else "α of FedFew"
        return {name: np.mean(np.asarray(weights, dtype=float), axis=0)}
    given = contributions(record, seed)
    found = {name: given[name] for name in ("share", "cosine")}
    confidence = [line.row["confidence"] for line in lines if "confidence" in line.row]
    return {"confidence": np.asarray(confidence[-1])} if confidence else found


def judge(problems: Sequence[str], kinds: Sequence[tuple[str, float]], found: Mapping[str, Values]) -> Judged:
    """Each score at each strength against the same score while all are honest."""

    def of(problem: str, kind: str, strength: float, score: str) -> Sequence[float]:
        return found[_name(problem, kind, strength, SEEN[score])][score]

    points = [
        Point(f"{problem}, {kind}", strength, score, of(problem, kind, strength, score))
        for problem in problems
        for kind, strength in kinds
        for score in SEEN
    ]
    contrasts: list[Contrast] = []
    told = []
    for problem in problems:
        for kind, strength in kinds:
            if (kind, strength) == (LABELS, 0.0):
                continue
            against = {
                score: contrast(
                    f"{problem}, {kind} {strength:g}, {score}: AUC less that while all are honest",
                    of(problem, kind, strength, score),
                    of(problem, LABELS, 0.0, score),
                )
                for score in ASKED
            }
            contrasts += against.values()
            told.append(f"{problem}, {kind} {strength:g}: AUC {sorted_out(against)}")
    verdict = ". ".join(told) + ". More: low scores betray the dishonest; less: high ones do, so they steer."
    return Judged(points, contrasts, verdict)
