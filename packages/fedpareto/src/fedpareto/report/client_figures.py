"""Figures of the clients' results: at the end, on the way, against training alone, and the share whose loss did not
rise. Compared runs
keep their colour in every figure, by their position in the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedpareto.config.errors import UserError
from fedpareto.moo.fairness import LOW_SHARE, Evaluation
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.report.axes import Axis, axis_of
from fedpareto.report.gains import LOCAL, gain
from fedpareto.report.likeness import comparable
from fedpareto.report.style import axis_label, beside_legend, colour, marker, render, run_label, short, styled

__all__ = ["clients_at_the_end", "clients_curves", "gains", "render", "share_improved_curves"]

TITLES: dict[Evaluation, str] = {"sent": "sent by the server", "trained": "after local training"}
APART = 0.24
"""Distance between the runs' marks of a client, as a share of that between two clients."""
JITTER = 0.13
"""Largest distance of a client's dot from its run's line."""


@styled
def clients_at_the_end(records: Sequence[Record]) -> Figure:
    """Every client of every seed by both evaluations, of a single objective: a dot each, a box for half of them.

    Whiskers reach from the 10th to the 90th percentile, the diamond is the mean.
    """
    runs = comparable(records)
    figure = Figure(figsize=(7.2, 1.15 + 0.5 * len(runs)), layout="constrained")
    panels = figure.subplots(1, len(TITLES), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (evaluation, title) in zip(panels, TITLES.items(), strict=True):
        for i, run in enumerate(runs):
            values = np.concatenate([np.zeros(0), *(points[:, 0] for points in run.last_values(evaluation))])
            if len(values):
                _box(axes, values, -i, colour(i))
        axes.set_title(title)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks([-i for i in range(len(runs))], [run_label(run) for run in runs])
    panels[0].set_ylim(-len(runs) + 0.45, 0.55)
    figure.supxlabel(axis_label(runs[0].objectives[0]), fontsize=9)
    return figure


@styled
def clients_curves(records: Sequence[Record], over: str | None = None) -> Figure:
    """For each objective, over rounds or another axis: the clients' mean, the band down to what nine tenths of them
    reach, and the worst of them (thin); all means over the seeds. Left is what the server sends, right after local
    training.
    """
    runs = comparable(records)
    axis = axis_of(runs, over)
    objectives = runs[0].objectives
    figure = beside_legend(6.4, 0.7 + 2.3 * len(objectives), _curve_handles(runs))
    grid = figure.subplots(len(objectives), len(TITLES), sharex=True, sharey="row", squeeze=False)
    for column, (evaluation, title) in enumerate(TITLES.items()):
        grid[0, column].set_title(title)
        grid[-1, column].set_xlabel(axis.label)
        for i, run in enumerate(runs):
            _draw_curves(list(grid[:, column]), axis, run, evaluation, colour(i))
    for axes, objective in zip(grid[:, 0], objectives, strict=True):
        axes.set_ylabel(axis_label(objective, "\n"))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=not axis.is_stepped))
    return figure


@styled
def share_improved_curves(records: Sequence[Record], over: str | None = None) -> Figure:
    """Share of each round's participants whose training loss did not rise: mean over the seeds and a band of one
    population deviation, for the runs that measured it.
    """
    runs = comparable(records)
    axis = axis_of(runs, over)
    measured = [(i, run) for i, run in enumerate(runs) if len(run.share_improved()[0])]
    handles = [Line2D([], [], color=colour(i), label=short(run.label)) for i, run in measured]
    figure = beside_legend(4.7, 3.0, handles)
    axes = figure.add_subplot()
    for i, run in measured:
        places, shares = axis.placed(run, *run.share_improved())
        mean, deviation = shares.mean(axis=0), shares.std(axis=0)
        dot = "o" if len(places) == 1 else None
        axes.plot(places, mean, color=colour(i), lw=1.6, marker=dot, ms=4, drawstyle=axis.drawstyle)
        high = np.minimum(mean + deviation, 1)
        axes.fill_between(places, mean - deviation, high, color=colour(i), alpha=0.15, lw=0, step=axis.step)
    axes.set_xlabel(axis.label)
    axes.set_ylabel("participants whose loss did not rise")
    axes.set_ylim(None, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=not axis.is_stepped))
    return figure


@styled
def gains(records: Sequence[Record]) -> Figure:
    """Every client's gain over training alone: mean over the seeds, and from the worst seed to the best.

    With two objectives clients stand where their preference is, else side by side.
    """
    runs = comparable(records)
    alone = next((run for run in runs if run.algorithm == LOCAL), None)
    found = {} if alone is None else {i: gain(run, alone) for i, run in enumerate(runs)}
    drawn = {i: one.by_client for i, one in found.items() if one is not None}
    if alone is None or not drawn:
        raise UserError(f"gains need a run of '{LOCAL}' and another with the same seeds, clients and preferences")
    figure = beside_legend(5.4, 3.4, [Line2D([], [], label=run_label(runs[i]), ls="none", **_mark(i)) for i in drawn])
    axes = figure.add_subplot()
    places, name = _places(alone)
    gaps = np.diff(np.unique(places))
    step = APART * (float(gaps.min()) if len(gaps) else 1.0)
    for number, (i, values) in enumerate(drawn.items()):
        at, mean = places + (number - (len(drawn) - 1) / 2) * step, values.mean(axis=0)
        ends = np.abs(np.stack([values.min(axis=0), values.max(axis=0)]) - mean)
        axes.errorbar(at, mean, yerr=ends, ls="none", elinewidth=1, **_mark(i))
    axes.axhline(0, color="black", lw=1.2)
    axes.text(1, 0, "alone", transform=axes.get_yaxis_transform(), ha="right", va="bottom")
    axes.set_xlabel(name)
    axes.set_ylabel("gain over training alone\n(utility under a client's own preference)")
    return figure


def _box(axes: Axes, values: Array, place: float, paint: str) -> None:
    # Always the same scatter: the same run gives the same figure.
    heights = place + np.random.default_rng(0).uniform(-JITTER, JITTER, len(values))
    axes.scatter(values, heights, s=11, color=paint, alpha=0.35, lw=0)
    low, first, middle, third, high = np.percentile(values, [LOW_SHARE, 25, 50, 75, 100 - LOW_SHARE])
    axes.plot([low, high], [place, place], color=paint, lw=1, zorder=2.2)
    axes.barh(place, third - first, left=first, height=0.4, fc="none", ec=paint, lw=1.2, zorder=2.5)
    axes.plot([middle, middle], [place - 0.2, place + 0.2], color=paint, lw=1.6, zorder=2.6)
    axes.plot([values.mean()], [place], "D", color=paint, ms=5, mec="white", mew=0.6, zorder=3)


def _draw_curves(column: Sequence[Axes], axis: Axis, run: Record, evaluation: Evaluation, paint: str) -> None:
    rounds, found = run.across_rounds(evaluation)
    if not len(rounds):
        return
    # What is trained in round r + 1 is in the row of round r.
    rounds = rounds + (1 if evaluation == "trained" else 0)
    dot = "o" if len(rounds) == 1 else None
    for j, axes in enumerate(column):
        drawn = {}
        for name in ("mean", "low", "worst"):
            values = np.array([[getattr(at[j], name) for at in of_seed] for of_seed in found])
            places, of_seeds = axis.placed(run, rounds, values)
            drawn[name] = of_seeds.mean(axis=0)
        axes.plot(places, drawn["mean"], color=paint, lw=1.6, marker=dot, ms=4, drawstyle=axis.drawstyle)
        axes.fill_between(places, drawn["low"], drawn["mean"], color=paint, alpha=0.15, lw=0, step=axis.step)
        axes.plot(places, drawn["worst"], color=paint, lw=0.8, alpha=0.8, marker=dot, ms=2, drawstyle=axis.drawstyle)


def _curve_handles(runs: Sequence[Record]) -> list[Line2D | Patch]:
    named = [Line2D([], [], color=colour(i), label=short(run.label)) for i, run in enumerate(runs)]
    return [
        *named,
        Line2D([], [], color="#555555", lw=1.6, label="mean of the clients"),
        Patch(color="#555555", alpha=0.15, lw=0, label="down to what 9 of 10 reach"),
        Line2D([], [], color="#555555", lw=0.8, alpha=0.8, label="the worst client"),
    ]


def _places(run: Record) -> tuple[Array, str]:
    """Places `[n]` of the clients, and their meaning."""
    wants = run.preferences(run.started[0])
    if wants is None or wants.shape[1] != 2:
        return np.arange(run.clients, dtype=float), "client"
    first, second = (objective.name for objective in run.objectives)
    return wants[:, 0], f"how much a client cares for {first}; the rest is for {second}"


def _mark(i: int) -> dict[str, Any]:
    return {"marker": marker(i), "color": colour(i), "ms": 5.5, "mec": "white", "mew": 0.4}
