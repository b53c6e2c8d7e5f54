"""Comparisons of our own: paired differences over seeds, a table and a picture.

A comparison answers a question that the thesis leaves open. Its module says which cells there are, what is read of
each, and which differences answer the question; the rest is here. A difference counts only where the 95 % interval of
the paired differences over seeds excludes zero: otherwise no winner is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.intervals import Interval, interval
from fedpareto_papers import study
from fedpareto_papers.catalogue import Options, Outcome, known
from fedpareto_papers.figures import WIDTH, Series, save_series
from fedpareto_papers.study import Cell, Found, Run, save_json

Values = Mapping[str, Sequence[float]]
"""Numbers of each seed, by name."""
WIDE = 5.5
"""Inches of a panel that is alone: names of ways in its legend are long."""
TOLD = 0.0005
"""A smaller difference has less than one digit among four decimals."""


@dataclass(frozen=True)
class Point:
    """Numbers that are compared, of one way at one place of a panel; larger is better."""

    panel: str
    place: float
    """Position on the horizontal axis."""
    way: str
    values: Sequence[float]


@dataclass(frozen=True)
class Contrast:
    """A difference that answers a part of the question."""

    about: str
    """The two that are subtracted."""
    difference: Interval | None
    """None where too few seeds have a value."""

    @property
    def sign(self) -> int:
        """1 or −1 where the interval excludes zero; else 0."""
        if self.difference is None or not self.difference.excludes_zero:
            return 0
        return 1 if self.difference.mean > 0 else -1

    def __str__(self) -> str:
        if self.difference is None:
            needed = "a paired difference needs two seeds with values, six if they are all equal"
            return f"{self.about}: cannot be judged, {needed}"
        mean, low, high = self.difference
        said = {1: "more", -1: "less", 0: "no difference shown"}[self.sign]
        return f"{self.about}: {_told(mean)} (95 % interval {_told(low)} to {_told(high)}), {said}"


def _told(difference: float) -> str:
    return f"{difference:+.4f}" if not difference or abs(difference) >= TOLD else f"{difference:+.1e}"


@dataclass(frozen=True)
class Judged:
    """The conclusion of a study."""

    points: Sequence[Point]
    contrasts: Sequence[Contrast]
    verdict: str
    """The answer in a few sentences."""


@dataclass(frozen=True)
class Study(study.Study[Values]):
    """A comparison, ready to run."""

    told: str
    """Size in words."""
    runs: Sequence[Cell]
    judge: Callable[[Mapping[str, Values]], Judged]
    """Concludes from the results, by the names of the cells without the study's."""
    place_label: str
    value_label: str
    places: Mapping[float, str] = field(default_factory=dict)
    """Names of places, where their numbers say little."""

    def size(self) -> list[str]:
        return [f"{len(self.runs)} runs", self.told]

    def cells(self) -> list[Cell]:
        return [replace(one, name=f"{self.name}/{one.name}") for one in self.runs]

    def outcome(self, found: Sequence[Found[Values]], folder: Path) -> Outcome:
        judged = self.judge({one.name.removeprefix(f"{self.name}/"): one.result for one in found})
        record = as_json(self, judged) | {"seconds": {one.name: one.seconds for one in found}}
        files = [*save_json(folder, self.name, record), *draw(self, judged.points, folder)]
        return Outcome(
            record, [table(self, judged.points), *map(str, judged.contrasts), *_verdict(self, judged)], files
        )


OWN = "own"


def own_utility(run: Run) -> Values:
    """Read the mean over clients of the values under their own preferences in the end."""
    return {OWN: run.record.indicator("own_utility").tolist()}


# -- what a module needs to make its cells and its judgement -------------------------------------------------------


def said(options: Options) -> str:
    """The size in words."""
    return f"{options.clients} clients, {options.rounds} rounds, {options.seeds} seeds"


def problems_of(options: Options, problems: Mapping[str, Any], usual: int) -> tuple[str, ...]:
    """The problems that the user chose, or the first ones, as many as usual; in a quick version only the first."""
    return (
        known("problem of this study", options.problems, problems) or tuple(problems)[: 1 if options.quick else usual]
    )


def cell(name: str, options: Options, read: Callable[[Run], Values], **values: Any) -> Cell:
    """A run of that size for a worker among others: one thread, all seeds in one stack; step sizes are as they are."""
    clients, seeds = options.clients or 0, options.seeds or 0
    draft = {
        "seeds": list(range(seeds)),
        "rounds": options.rounds,
        "clients": clients,
        "engine": {"threads": 1, "chunk": clients * seeds},
        "step": "fixed",
        **values,
    }
    return Cell(name, draft, read, keeps_models=False)


def less(values: Sequence[float], other: Sequence[float]) -> list[float]:
    """Subtract seed by seed."""
    return [float(a - b) for a, b in zip(values, other, strict=True)]


def mean_of(several: Sequence[Sequence[float]]) -> list[float]:
    """Average seed by seed."""
    return [float(value) for value in np.mean(several, axis=0)]


def contrast(about: str, values: Sequence[float], other: Sequence[float]) -> Contrast:
    """The first less the second, paired over seeds."""
    return Contrast(about, interval(less(values, other)))


def best(of: Mapping[str, Sequence[float]]) -> str | None:
    """The way that is better than every other one beyond doubt; None if there is none."""
    ahead = max(of, key=lambda way: float(np.mean(of[way])))
    others = (contrast("", of[ahead], values) for way, values in of.items() if way != ahead)
    return ahead if all(one.sign > 0 for one in others) else None


def sorted_out(contrasts: Mapping[str, Contrast]) -> str:
    """Say for which a difference is shown, and in which direction."""
    groups = {
        text: [name for name, one in contrasts.items() if one.sign == sign]
        for text, sign in (("more for", 1), ("less for", -1), ("not shown for", 0))
    }
    return "; ".join(f"{text} {', '.join(names)}" for text, names in groups.items() if names)


# -- what is shown -------------------------------------------------------------------------------------------------


def by_place(points: Sequence[Point]) -> dict[tuple[str, float], dict[str, Sequence[float]]]:
    """Group the values of each way by panel and place."""
    found: dict[tuple[str, float], dict[str, Sequence[float]]] = {}
    for point in points:
        found.setdefault((point.panel, point.place), {})[point.way] = point.values
    return found


def table(shown: Study, points: Sequence[Point]) -> Any:
    ways = list(dict.fromkeys(point.way for point in points))
    lines = []
    for (panel, place), of in by_place(points).items():
        winner = best(of) if len(of) > 1 else None
        cells = [_spread(of[way]) + ("*" if way == winner else "") if way in of else "" for way in ways]
        lines.append((panel, shown.places.get(place, f"{place:g}"), *cells))
    caption = f"{shown.value_label}; * better than all others"
    return study.table(shown.headline, ("", shown.place_label, *ways), (), lines, caption=caption)


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def _verdict(shown: Study, judged: Judged) -> Iterator[str]:
    yield f"Verdict: {judged.verdict}"
    if shown.options.quick:
        yield "This was --quick: fewer settings, and unless you set its size, too little to judge anything."


def as_json(shown: Study, judged: Judged) -> dict[str, Any]:
    return {
        "name": shown.name,
        "size": shown.told,
        "settings": list(shown.options.settings),
        "points": [
            {"panel": one.panel, "place": one.place, "way": one.way, "values": list(one.values)}
            for one in judged.points
        ],
        "best": [{"panel": panel, "place": at, "way": best(of)} for (panel, at), of in by_place(judged.points).items()],
        "contrasts": [
            {"about": one.about, "difference": one.difference and one.difference._asdict(), "sign": one.sign}
            for one in judged.contrasts
        ],
        "verdict": judged.verdict,
    }


def draw(shown: Study, points: Sequence[Point], folder: Path) -> list[Path]:
    """Draw a line for each way over the places of each panel, with the deviation over seeds."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        panels.setdefault(point.panel, {}).setdefault(point.way, []).append(point)
    drawn = {
        panel: [
            Series.over_seeds(way, [one.place for one in line], np.array([one.values for one in line]).T)
            for way, line in ways.items()
        ]
        for panel, ways in panels.items()
    }
    width = WIDE if len(drawn) == 1 else WIDTH
    return save_series(
        folder, shown.name, drawn, shown.place_label, shown.value_label, width=width, places=shown.places
    )
