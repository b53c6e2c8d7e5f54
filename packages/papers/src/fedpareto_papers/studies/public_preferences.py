"""The cost of private preferences for FedPref (thesis, section 2.3, viii).

FedPref guesses from updates who wants the same; fedpref-public is told. Both are run on the same rows under the same
preferences, with and without clustering, beside training alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedpareto_papers.catalogue import Options
from fedpareto_papers.studies.heterogeneity import ALIKE, PROBLEMS
from fedpareto_papers.studies.study import (
    OWN,
    Judged,
    Point,
    Study,
    Values,
    cell,
    contrast,
    own_utility,
    problems_of,
    said,
    sorted_out,
)

KINDS: Mapping[str, str] = {"opposed groups": "groups", "drawn": "dirichlet:0.5"}
"""Preferences: two halves that want one objective each, or Dirichlet draws."""
PRIVATE, PUBLIC = "fedpref", "fedpref-public"
WAYS: Mapping[str, Mapping[str, Any]] = {
    "alone": {"name": "local"},
    "private": {"name": PRIVATE},
    "public": {"name": PUBLIC},
    "private, one cluster": {"name": PRIVATE, "clustering": False},
    "public, one cluster": {"name": PUBLIC, "clustering": False},
}
PAIRS = {"FedPref": ("public", "private"), "FedPref in one cluster": ("public, one cluster", "private, one cluster")}
USUAL, QUICK = {"seeds": 10, "rounds": 30, "clients": 10}, {"seeds": 2, "rounds": 3, "clients": 4}


def prepare(name: str, options: Options) -> Study:
    options.refuse(name, "algorithms", "preferences")
    options.must_name_parts()
    problems = problems_of(options, PROBLEMS, 3)
    options = options.sized(USUAL, QUICK)
    cells = [
        cell(
            _name(problem, kind, way),
            options,
            own_utility,
            algorithm=algorithm,
            problem={"name": problem, **PROBLEMS[problem][ALIKE]},
            preferences=_groups(options.clients or 0) if text == "groups" else text,
        )
        for problem in problems
        for kind, text in KINDS.items()
        for way, algorithm in WAYS.items()
    ]
    return Study(
        name,
        options,
        said(options),
        cells,
        partial(judge, problems),
        "preferences",
        "own-preference value",
        dict(enumerate(KINDS, start=1)),
    )


def _groups(clients: int) -> str:
    """Two halves that want one objective each."""
    return f"groups:{clients // 2},{clients - clients // 2}@1,0;0,1"


def _name(problem: str, kind: str, way: str) -> str:
    return f"{problem}/{kind}/{way}".replace(",", "").replace(" ", "-")


def judge(problems: Sequence[str], found: Mapping[str, Values]) -> Judged:
    """Public less private, everywhere."""

    def of(problem: str, kind: str, way: str) -> Sequence[float]:
        return found[_name(problem, kind, way)][OWN]

    points = [
        Point(problem, place, way, of(problem, kind, way))
        for problem in problems
        for place, kind in enumerate(KINDS, start=1)
        for way in WAYS
    ]
    differences = {
        f"{name} on {problem} ({kind})": contrast(
            f"{problem}, preferences {kind}, {name}: public less private", of(problem, kind, a), of(problem, kind, b)
        )
        for problem in problems
        for kind in KINDS
        for name, (a, b) in PAIRS.items()
    }
    return Judged(
        points, list(differences.values()), f"with public preferences clients have {sorted_out(differences)}."
    )
