"""What the studies share: cells that are run side by side, paired differences over seeds, a table and a picture.

A study answers a question that the thesis leaves open. Its module says which cells there are, what is read of each,
and which differences answer the question; the rest is here. A difference counts only where the 95 % interval of the
paired differences over seeds excludes zero: otherwise nobody is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.parallel import Pieces, announced
from fedpareto.config.files import write_atomically
from fedpareto.moo.intervals import Interval, interval
from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import Pulse
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known

if TYPE_CHECKING:
    from rich.table import Table

Values = Mapping[str, Sequence[float]]
"""By name, one number for each seed."""
WIDE = 5.5
"""Inches of a panel that is alone: names of ways in its legend are long."""
TOLD = 0.0005
"""A smaller difference has less than one digit among four decimals."""
Read = Callable[[Record], Values]
"""What a study takes from a run: a function of a module, so that workers find it."""


@dataclass(frozen=True)
class Cell:
    """One spec with all its seeds."""

    name: str
    """Also its folder."""
    draft: Mapping[str, Any]
    """The spec as plain values; see experiments.draft."""


@dataclass(frozen=True)
class Found:
    """The result of a cell."""

    name: str
    values: Values
    seconds: float
    is_new: bool
    """False if all of it was done already."""


@dataclass(frozen=True)
class Point:
    """What is compared: of each place of a panel and each way one number for each seed; larger is better."""

    panel: str
    place: float
    """On the horizontal axis."""
    way: str
    values: Sequence[float]


@dataclass(frozen=True)
class Contrast:
    """A difference that answers a part of the question."""

    about: str
    """What is subtracted from what."""
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
    """With four decimals, or as a power of ten where these would show nothing."""
    return f"{difference:+.4f}" if not difference or abs(difference) >= TOLD else f"{difference:+.1e}"


@dataclass(frozen=True)
class Judged:
    """What a study concludes."""

    points: Sequence[Point]
    contrasts: Sequence[Contrast]
    verdict: str
    """The answer in a few sentences."""


@dataclass(frozen=True)
class Study:
    """A study, ready to run."""

    name: str
    size: str
    """In words."""
    cells: Sequence[Cell]
    read: Read
    judge: Callable[[Mapping[str, Values]], Judged]
    """From what was read of each cell, by its name."""
    place_label: str
    value_label: str
    options: Options = field(default_factory=Options)
    places: Mapping[float, str] = field(default_factory=dict)
    """What places are called, where their numbers say little."""

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.options.quick else ""
        given = "".join(f", {text}" for text in self.options.settings)
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {len(self.cells)} runs, {self.size}{given}"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The runs that are not in the folder yet, a table, a picture and the verdict."""
        work = partial(_find, self.read, tuple(self.options.settings))
        pieces = Pieces(work, [_inside(self.name, cell) for cell in self.cells], folder, _name_of)
        found = announced(pieces, self.options.jobs, say, stop)
        judged = self.judge({cell.name: one.values for cell, one in zip(self.cells, found, strict=True)})
        record = as_json(self, judged) | {"seconds": {one.name: one.seconds for one in found}}
        files = [folder / f"{self.name}.json", *draw(self, judged.points, folder)]
        write_atomically(files[0], json_text(record))
        return Outcome(
            record, [table(self, judged.points), *map(str, judged.contrasts), *_verdict(self, judged)], files
        )


def _inside(name: str, cell: Cell) -> Cell:
    return Cell(f"{name}/{cell.name}", cell.draft)


def _name_of(cell: Cell) -> str:
    return cell.name


def _find(read: Read, settings: Sequence[str], out: Path, cell: Cell, stop: Callable[[], bool]) -> Found:
    """Runs a cell, or what is missing of it."""
    spec, folder = Draft(dict(cell.draft)).with_settings(settings).finish(), out / cell.name
    shown = Pulse(spec, folder)
    shown.name = cell.name
    is_new = ensure(folder, spec, stop, shown=shown, keep_models=False)
    RunFolder(folder).checkpoint_file.unlink(missing_ok=True)  # A finished run is never resumed.
    loaded = reading.load(folder)
    return Found(cell.name, read(loaded), loaded.status.seconds, is_new)


# -- what a module needs to make its cells and its judgement -------------------------------------------------------


def size_of(options: Options, usual: Mapping[str, int], quick: Mapping[str, int]) -> dict[str, int]:
    """Seeds, rounds and clients as the user asked, or as usual, or as a quick version has them."""
    given = {key: getattr(options, key) for key in usual}
    return {key: given[key] or (quick if options.quick else usual)[key] for key in usual}


def said(size: Mapping[str, int]) -> str:
    """In words."""
    return "{clients} clients, {rounds} rounds, {seeds} seeds".format(**size)


def problems_of(options: Options, problems: Mapping[str, Any], usual: int) -> tuple[str, ...]:
    """Those that the user chose, or the first ones, as many as usual; of a quick version only the first."""
    return (
        known("problem of this study", options.problems, problems) or tuple(problems)[: 1 if options.quick else usual]
    )


def spec_of(size: Mapping[str, int], **values: Any) -> dict[str, Any]:
    """A spec of that size for a worker among others: one thread, all seeds in one stack; step sizes are as they are."""
    engine = {"threads": 1, "chunk": size["clients"] * size["seeds"]}
    return {**size, "seeds": list(range(size["seeds"])), "engine": engine, "step": "fixed", **values}


def less(values: Sequence[float], other: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [float(a - b) for a, b in zip(values, other, strict=True)]


def mean_of(several: Sequence[Sequence[float]]) -> list[float]:
    """Seed by seed."""
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
    """For whom a difference is shown, and in which direction."""
    groups = {
        text: [name for name, one in contrasts.items() if one.sign == sign]
        for text, sign in (("more for", 1), ("less for", -1), ("not shown for", 0))
    }
    return "; ".join(f"{text} {', '.join(names)}" for text, names in groups.items() if names)


# -- what is shown -------------------------------------------------------------------------------------------------


def by_place(points: Sequence[Point]) -> dict[tuple[str, float], dict[str, Sequence[float]]]:
    """By panel and place, the values of each way."""
    found: dict[tuple[str, float], dict[str, Sequence[float]]] = {}
    for point in points:
        found.setdefault((point.panel, point.place), {})[point.way] = point.values
    return found


def table(study: Study, points: Sequence[Point]) -> Table:
    """Means and deviations over seeds; the best way of a row is marked where it is beyond doubt."""
    from rich.table import Table

    ways = list(dict.fromkeys(point.way for point in points))
    shown = Table(
        "", study.place_label, *ways, title=study.headline, caption=f"{study.value_label}; * better than all others"
    )
    for (panel, place), of in by_place(points).items():
        winner = best(of) if len(of) > 1 else None
        cells = [_spread(of[way]) + ("*" if way == winner else "") if way in of else "" for way in ways]
        shown.add_row(panel, study.places.get(place, f"{place:g}"), *cells)
    return shown


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def _verdict(study: Study, judged: Judged) -> Iterator[str]:
    yield f"Verdict: {judged.verdict}"
    if study.options.quick:
        yield "This was --quick: fewer settings, and unless you set its size, too little to judge anything."


def as_json(study: Study, judged: Judged) -> dict[str, Any]:
    """Every number that was compared, and the verdict."""
    return {
        "name": study.name,
        "size": study.size,
        "settings": list(study.options.settings),
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


def draw(study: Study, points: Sequence[Point], folder: Path) -> list[Path]:
    """A line for each way over the places of each panel, with the deviation over seeds, as .png and .pdf."""
    from fedpareto_papers.figures.series_panels import WIDTH, Series, render, series_panels

    panels: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        panels.setdefault(point.panel, {}).setdefault(point.way, []).append(point)
    drawn = {
        panel: [
            Series(
                way,
                np.array([[one.place, np.mean(one.values)] for one in line]),
                "line",
                np.array([np.std(one.values) for one in line]),
            )
            for way, line in ways.items()
        ]
        for panel, ways in panels.items()
    }
    width = WIDE if len(drawn) == 1 else WIDTH
    figure = series_panels(drawn, study.place_label, study.value_label, width=width, places=study.places)
    files = [folder / f"{study.name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files
