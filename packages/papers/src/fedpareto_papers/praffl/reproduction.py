"""Table 1 and figures 6 to 10 of PraFFL (Ye et al., 2024), and an ablation of what the paper leaves open.

A cell is one algorithm on one data set, its seeds in one stack, kept in an ordinary run folder; the table and the
figures share their cells. A point is (error rate, ΔDP) of all test rows, each classified by its client's model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, side_by_side
from fedpareto.config.errors import UnknownName
from fedpareto.config.files import write_atomically
from fedpareto.moo.dominance import is_nondominated
from fedpareto.record.store import RunFolder
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, Outcome, Say
from fedpareto_papers.praffl import claims, pooled, published
from fedpareto_papers.praffl.cells import FROM_ALL, Cell, Found

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto_papers.figures.series_panels import Series

TABLE, ABLATION = "praffl-table-1", "praffl-ablation"
NOTHING = published.Entry(np.nan, np.nan, np.nan, np.nan)
"""Where nothing was published."""
BETWEEN = 101
"""Preferences after every round but the last."""
LARGEST_CLOUD = 50
"""More points than this are a set of solutions, not one solution under several seeds."""
QUICK = {"rounds": 2, "seeds": 2, "preferences": 101}
QUICK_PRAFFL = {"body_epochs": 2, "head_epochs": 4, "sampled": 16}
"""About a minute: enough to see that everything works."""


@dataclass(frozen=True)
class Plan:
    """How large a reproduction is."""

    rounds: int
    seeds: int
    preferences: int
    quick: bool
    settings: tuple[str, ...] = ()
    """Parameters of every run that the user set, such as problem.sensitive=gender."""


# -- which cells ---------------------------------------------------------------------------------------------------


def cells_of(name: str, data: Sequence[str], algorithms: Sequence[str]) -> list[Cell]:
    """The cells of a table or figure."""
    praffl = published.PRAFFL
    if name == "praffl-fig-8":
        return [
            Cell(f"synthetic-{level}", algorithm, algorithm, problem={"partition": partition})
            for level, partition in published.LEVELS.items()
            for algorithm in algorithms
        ]
    if name == "praffl-fig-9":
        return [
            Cell(each, f"tau_p-{tau}", praffl, own={"head_epochs": tau, "body_epochs": published.EPOCHS - tau})
            for each in data
            for tau in published.HEAD_EPOCHS_TRIED
        ]
    if name == "praffl-fig-10":
        return [Cell(each, praffl, praffl) for each in data if each in ("synthetic", "adult")]
    if name == ABLATION:
        return [Cell(each, label, praffl, own, problem) for each in data for label, (own, problem) in ABLATIONS.items()]
    return [Cell(each, algorithm, algorithm) for each in data for algorithm in algorithms]


ABLATIONS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "as reproduced": ({}, {}),
    "loss: tanh": ({}, {"relaxation": "tanh"}),
    "loss: tanh, a tenth of cross entropy": ({}, {"relaxation": "tanh", "regularisation": 0.1}),
    "loss: covariance": ({}, {"relaxation": "covariance"}),
    "g: smooth, as the code": ({"scalarisation": "smooth-tchebycheff"}, {}),
    "g: smooth, covariance, as the code": ({"scalarisation": "smooth-tchebycheff"}, {"relaxation": "covariance"}),
    "g: linear": ({"scalarisation": "linear"}, {}),
    "head: one layer": ({"head_layers": 1}, {}),
    "head: wider hypernetwork": ({"hypernetwork": [16, 16]}, {}),
    "head: all preferences weigh alike": ({"balanced": True}, {}),
    "epochs: 15 and 15": ({"body_epochs": 15, "head_epochs": 15}, {}),
}
"""By what they change: PraFFL's own parameters, and the problem's."""


def spec_of(plan: Plan, cell: Cell) -> Spec:
    """A cell as one run with all its seeds."""
    data = cell.data.partition("-")[0]
    problem = {**published.DATA[data], "hidden": list(published.HIDDEN), "test": "own", **published.FAIRNESS}
    problem |= cell.problem
    if data != "synthetic":
        problem["split"] = list(published.SPLIT)
    own = dict(cell.own)
    if cell.algorithm == published.PRAFFL:
        own = {**published.PRAFFL_OWN, **(QUICK_PRAFFL if plan.quick else {}), **own}
    draft = Draft(
        {
            "algorithm": {"name": cell.algorithm, **own},
            "problem": problem,
            "clients": published.CLIENTS[data],
            "rounds": plan.rounds,
            "seeds": list(range(plan.seeds)),
            "evaluate_every": plan.rounds,
            # Cells run side by side, one to a core.
            "engine": {"name": "local", "threads": 1, "chunk": published.CLIENTS[data] * plan.seeds},
            "learner": {**published.LEARNER, "epochs": 3 if plan.quick else published.EPOCHS, "steps": 0},
        }
    )
    return draft.with_settings(plan.settings).finish()


def find(plan: Plan, out: Path, cell: Cell, stop: Callable[[], bool]) -> Found:
    """Runs a cell, or what is missing of it."""
    folder = out / own(cell)
    trained = ensure(folder, spec_of(plan, cell), stop, pooled.Pooled(plan.preferences, BETWEEN))
    run = RunFolder(folder)
    rows = run.read_lines("metrics.jsonl")
    points = [[np.array(row[pooled.KEY]) for row in rows if row["seed"] == seed] for seed in range(plan.seeds)]
    seconds = float((run.read_json("status.json") or {}).get("seconds", np.nan))
    return Found(cell, points, seconds, trained)


def own(cell: Cell) -> str:
    """The folder of a cell."""
    label = cell.label.replace(": ", "-").replace(", ", "-").replace(" ", "-")
    return f"praffl/{cell.data}/{label}"


# -- on the command line -------------------------------------------------------------------------------------------


def prepare(name: str, options: Options) -> PraFFLStudy:
    """A table or figure, with what the user chose."""
    options.refuse(name, "clients", "preferences")
    options.must_name_parts()
    usual = {"rounds": published.ROUNDS, "seeds": published.SEEDS, "preferences": published.PREFERENCES}
    sizes = QUICK if options.quick else usual
    plan = Plan(
        rounds=options.rounds or sizes["rounds"],
        seeds=options.seeds or sizes["seeds"],
        preferences=sizes["preferences"],
        quick=options.quick,
        settings=options.settings,
    )
    default = (
        ("synthetic",) if options.quick else ("synthetic", "compas") if name == ABLATION else tuple(published.DATA)
    )
    data = _known("data set", options.problems, published.DATA) or default
    algorithms = _known("algorithm", options.algorithms, published.ALGORITHMS) or published.ALGORITHMS
    return PraFFLStudy(name, plan, cells_of(name, data, algorithms), options.jobs)


def _known(kind: str, given: Sequence[str], known: Sequence[str] | Mapping[str, Any]) -> tuple[str, ...]:
    for one in given:
        if one not in known:
            raise UnknownName(kind, one, list(known))
    return tuple(given)


@dataclass(frozen=True)
class PraFFLStudy:
    """A reproduction, ready to run."""

    name: str
    plan: Plan
    cells: list[Cell]
    jobs: Jobs

    @property
    def headline(self) -> str:
        """What it is and how large."""
        plan = self.plan
        size = f"{len(self.cells)} cells, {plan.rounds} rounds, {plan.seeds} seeds, {plan.preferences} preferences"
        size += "".join(f", {text}" for text in plan.settings)
        return f"{'QUICK VERSION of ' if plan.quick else ''}{self.name}: {size}"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The cells, a table of them and the figure."""
        start, found = time.monotonic(), dict[int, Found]()
        pieces = Pieces(partial(find, self.plan), self.cells, folder, own)
        for number, one in side_by_side(pieces, self.jobs, stop):
            found[number] = one
            left = (time.monotonic() - start) / len(found) * (len(self.cells) - len(found))
            how = f"{one.seconds:.0f} s" if one.trained else "already done"
            about = f"about {timedelta(seconds=round(left))} left"
            say(f"{len(found)} of {len(self.cells)}, {one.cell.label} on {one.cell.data} ({how}), {about}")
        ordered = [found[number] for number in range(len(self.cells))]
        files = draw(self.name, ordered, folder)
        judged = [] if self.plan.quick else claims.verdicts(self.name, ordered)
        record = as_json(self, ordered) | {"claims": [asdict(claim) for claim in judged]}
        return Outcome(record, [table(self, ordered), *remarks(self, ordered), *map(str, judged)], files)


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: PraFFLStudy, found: Sequence[Found]) -> Table:
    """A row for each cell, ours and the published figure side by side where there is one."""
    from rich.table import Table

    shown = Table(title=study.headline)
    for column in (
        "data",
        "algorithm",
        "error",
        "ΔDP",
        "hypervolume",
        "best round",
        "by the code's measure",
        "minutes",
    ):
        shown.add_column(column, justify="left" if column in ("data", "algorithm") else "right")
    for one in found:
        entry = _entry(study, one) or NOTHING
        lowest, fairest = one.best(0).mean(0), one.best(1).mean(0)
        shown.add_row(
            one.cell.data,
            one.cell.label,
            _beside(lowest[0], entry.error),
            _beside(lowest[1], entry.gap),
            _with_deviation(one.volumes(), entry.hypervolume),
            _with_deviation(one.best_volumes()),
            _with_deviation(one.volumes(FROM_ALL)),
            _beside(one.seconds / 60, entry.minutes, 1),
        )
        if one.cell.algorithm == published.PRAFFL:
            errors, gaps = _beside(fairest[0], entry.fairest_error), _beside(fairest[1], entry.fairest_gap)
            shown.add_row("", "  its fairest model", errors, gaps)
    return shown


def _entry(study: PraFFLStudy, found: Found) -> published.Entry | None:
    """What was published for a cell; figures show no numbers."""
    if study.name not in (TABLE, "praffl-fig-6", "praffl-fig-7", "praffl-fig-10"):
        return None
    return published.TABLE_1[found.cell.data].get(found.cell.label)


def _beside(ours: float, other: float, digits: int = 3) -> str:
    return f"{ours:.{digits}f}" + ("" if np.isnan(other) else f" ({other:.{digits}f})")


def _with_deviation(values: Sequence[float], other: float = np.nan) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" + ("" if np.isnan(other) else f" ({other:.3f})")


def remarks(study: PraFFLStudy, found: Sequence[Found]) -> list[str]:
    """How to read the table, and how PraFFL did."""
    lines = ["Error and ΔDP of PraFFL: its model with the smallest error, then its fairest one."]
    if any(_entry(study, one) for one in found):
        lines.append("In brackets: published.")
    if study.plan.quick:
        return [*lines, "This was --quick: too little to compare with what was published."]
    for one in found:
        entry = _entry(study, one)
        if entry is not None and one.cell.algorithm == published.PRAFFL:
            ours, best, code = (
                float(np.mean(values)) for values in (one.volumes(), one.best_volumes(), one.best_volumes(FROM_ALL))
            )
            reached = [
                text
                for text, value in (
                    ("at the end", ours),
                    ("in the best round", best),
                    ("in the best round by the measure of the published code", code),
                )
                if value >= entry.hypervolume - 5e-4
            ]
            lines.append(
                f"PraFFL on {one.cell.data}: {ours:.3f} at the end, {best:.3f} in the best round, {code:.3f} there by "
                f"the code's measure; published {entry.hypervolume:.3f}"
                + (f", reached {reached[0]}" if reached else ", not reached")
            )
    return lines


def as_json(study: PraFFLStudy, found: Sequence[Found]) -> dict[str, Any]:
    """The plan, and of each cell the hypervolumes and the last points of every seed."""
    cells = []
    for one in found:
        entry = _entry(study, one)
        cells.append(
            {
                "data": one.cell.data,
                "label": one.cell.label,
                "algorithm": one.cell.algorithm,
                "own": dict(one.cell.own),
                "problem": dict(one.cell.problem),
                "error": one.best(0)[:, 0].tolist(),
                "gap": one.best(0)[:, 1].tolist(),
                "fairest": one.best(1)[:, :2].tolist(),
                "hypervolume": one.volumes(),
                "hypervolume_best_round": one.best_volumes(),
                "hypervolume_by_the_codes_measure": one.volumes(FROM_ALL),
                "hypervolume_over_rounds": [one.volumes(when=i) for i in range(len(one.points[0]))],
                "seconds": one.seconds,
                "published": None if entry is None else {k: v for k, v in vars(entry).items() if not np.isnan(v)},
                "points": [history[-1].tolist() for history in one.points],
            }
        )
    plan = study.plan
    sizes = {"rounds": plan.rounds, "seeds": plan.seeds, "preferences": plan.preferences, "quick": plan.quick}
    return {"name": study.name, **sizes, "cells": cells}


def draw(name: str, found: Sequence[Found], folder: Path) -> list[Path]:
    """The figure as .png and .pdf."""
    from fedpareto_papers.figures.series_panels import render, series_panels

    panels: dict[str, list[Series]] = {}
    for one in found:
        panels.setdefault(one.cell.data, []).append(_series(name, one))
    if name == "praffl-fig-6":
        axes = "round", "hypervolume"
    else:
        axes = "error rate (lower is better)", "ΔDP (lower is better)"
        panels = {title: _with_dominated(series) for title, series in panels.items()}
    figure = series_panels(panels, *axes, tone_label="importance of the error")
    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files


def _series(name: str, found: Found) -> Series:
    """A cell in a figure: its hypervolume over rounds, or the last points of its first seed (of others, all seeds')."""
    from fedpareto_papers.figures.series_panels import Series

    if name == "praffl-fig-6":
        volumes = np.array([found.volumes(when=i) for i in range(len(found.points[0]))])
        rounds = np.arange(len(volumes))
        means, spread = volumes.mean(axis=1), volumes.std(axis=1)
        return Series(found.cell.label, np.stack([rounds, means], axis=1), "line", spread)
    last = [history[-1][:, :2] for history in found.points]
    if found.cell.algorithm != published.PRAFFL:
        return Series(found.cell.label, np.concatenate(last))
    tones = np.linspace(0, 1, len(last[0])) if name == "praffl-fig-10" else None
    return Series(found.cell.label, last[0], tones=tones)


def _with_dominated(panel: Sequence[Series]) -> list[Series]:
    """The same points; of sets, those that any other point of the panel dominates are pale (PraFFL_d in figure 7)."""
    best = is_nondominated(np.concatenate([series.points for series in panel]), keep_duplicates=True)
    ends = np.cumsum([len(series.points) for series in panel])
    return [
        replace(series, pale=~of_series if len(series.points) > LARGEST_CLOUD else None)
        for series, of_series in zip(panel, np.split(best, ends[:-1]), strict=True)
    ]
