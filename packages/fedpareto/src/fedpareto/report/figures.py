"""The figures of a report, each a separate matplotlib `Figure` without pyplot's global state. Compared runs keep their
colour and marker in every figure, by their position in the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedpareto.moo.tested import CHANCE
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.report.axes import Axis, axis_of
from fedpareto.report.client_figures import clients_at_the_end
from fedpareto.report.clusters import cluster_evolution, similarity_matrices
from fedpareto.report.likeness import comparable, unlike
from fedpareto.report.style import axis_label, colour, marker, render, run_label, short, styled, width_with_legend

__all__ = ["cluster_evolution", "fronts", "hypervolume_curves", "render", "similarity_matrices"]

FEW = 25
"""Most points of a known front that are drawn as dots: such a front is a set, not a curve."""

MARKS = {"constant": "X", "plain alone": "P", "plain pooled": "s", CHANCE: "D", "central": "*"}
"""Of what runs are held against."""


@styled
def fronts(records: Sequence[Record]) -> Figure:
    """Final solutions of all clients and seeds on the held-out split, and each run's non-dominated front.

    Two objectives make one plane with staircases; more make a grid with one plane per pair, where
    the solid points are those that no other dominates in all objectives together. A single objective has no front: its
    figure is `clients_at_the_end`. What the runs are held against on the same rows is black: one mark each, the mean
    over seeds and clients.
    """
    runs = comparable(records)
    m = len(runs[0].objectives)
    if m == 1:
        return clients_at_the_end(runs)
    return _plane(runs) if m == 2 else _grid(runs)


@styled
def hypervolume_curves(records: Sequence[Record], over: str | None = None) -> Figure:
    """Mean hypervolume over the seeds with a band of one population deviation, over rounds or another axis.

    Solid is what the server sends. Dotted is what the clients have after their local steps: those of round r + 1 are
    drawn at r + 1, just before the server's aggregation.
    """
    runs = comparable(records)
    axis = axis_of(runs, over)
    handles = _curve_handles(runs)
    figure, axes = _beside_legend(4.7, 3.4, handles)
    for i, run in enumerate(runs):
        _curve(axes, axis, *axis.placed(run, run.common_rounds, run.hypervolume), i, "-")
        _curve(axes, axis, *axis.placed(run, run.common_rounds + 1, run.trained_hypervolume), i, ":")
    axes.set_xlabel(axis.label)
    axes.set_ylabel("hypervolume (higher is better)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=not axis.is_stepped))
    return figure


def _curve_handles(runs: Sequence[Record]) -> list[Line2D]:
    handles = [Line2D([], [], color=colour(i), label=short(run.label)) for i, run in enumerate(runs)]
    if any(np.isfinite(run.trained_hypervolume).any() for run in runs):
        handles.append(Line2D([], [], color="black", label="sent by the server"))
        handles.append(Line2D([], [], color="black", ls=":", label="after local training"))
    return handles


def _beside_legend(width: float, height: float, handles: Sequence[Line2D]) -> tuple[Figure, Axes]:
    """A figure whose plot keeps its size, with the legend to the right of it."""
    size = (width_with_legend(width, [str(handle.get_label()) for handle in handles]), height)
    figure = Figure(figsize=size, layout="constrained")
    figure.legend(handles=list(handles), loc="outside right upper")
    return figure, figure.add_subplot()


def _curve(axes: Axes, axis: Axis, places: Array, values: Array, i: int, line: str) -> None:
    # A run that diverged has a gap where its mean is not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        mean, deviation = values.mean(axis=0), values.std(axis=0)
    # A line through one point is invisible.
    dot = "o" if np.isfinite(mean).sum() == 1 else None
    axes.plot(places, mean, line, color=colour(i), lw=1.6, marker=dot, ms=4, drawstyle=axis.drawstyle)
    if len(values) > 1:
        axes.fill_between(
            places,
            mean - deviation,
            mean + deviation,
            color=colour(i),
            alpha=0.15 if line == "-" else 0.07,
            lw=0,
            step=axis.step,
        )


def _plane(runs: Sequence[Record]) -> Figure:
    handles = [*_run_handles(runs, line="-"), *_known_handles(runs), *_reference_handles(runs)]
    figure, axes = _beside_legend(4.9, 4.2, handles)
    first, second = runs[0].objectives
    _draw_known(axes, runs, 0, 1)
    # Between two points of a front only the one that is better in y counts; it lies on the worse side of x.
    step = "steps-pre" if first.maximise else "steps-post"
    for i, (run, halo) in enumerate(zip(runs, _halos(runs), strict=True)):
        points, best = run.pooled(), run.front()
        axes.scatter(points[:, 0], points[:, 1], s=16, color=colour(i), marker=marker(i), alpha=0.25, lw=0)
        axes.plot(
            best[:, 0],
            best[:, 1],
            color=colour(i),
            marker=marker(i),
            ms=4.5 + halo,
            lw=1.4 + halo / 2,
            ds=step,
            mec="white",
            mew=0.4,
        )
    _draw_references(axes, runs, 0, 1)
    axes.set_xlabel(axis_label(first))
    axes.set_ylabel(axis_label(second))
    axes.margins(0.06)
    return figure


def _grid(runs: Sequence[Record]) -> Figure:
    """One plane per pair of objectives, the lower triangle of a grid; the legend fills the free corner."""
    objectives = runs[0].objectives
    size = len(objectives) - 1
    side = max(1.55, 5.0 / size)
    figure = Figure(figsize=(side * size + 0.7, side * size + 0.7), layout="constrained")
    grid = figure.subplots(size, size, sharex="col", sharey="row", squeeze=False)
    for x, y in combinations(range(len(objectives)), 2):
        _panel(grid[y - 1, x], runs, x, y)
    for row, column in combinations(range(size), 2):
        grid[row, column].remove()
    for j in range(size):
        grid[size - 1, j].set_xlabel(axis_label(objectives[j], "\n"))
        grid[j, 0].set_ylabel(axis_label(objectives[j + 1], "\n"))
    figure.align_labels()
    handles = [*_run_handles(runs), *_known_handles(runs, "."), *_reference_handles(runs), *_dominated_handle()]
    figure.legend(handles=handles, loc="upper right")
    return figure


def _panel(axes: Axes, runs: Sequence[Record], x: int, y: int) -> None:
    _draw_known(axes, runs, x, y, ".")
    for i, (run, halo) in enumerate(zip(runs, _halos(runs), strict=True)):
        points, best, size = run.pooled(), run.front(), (3.6 + halo) ** 2
        axes.scatter(points[:, x], points[:, y], s=10, color=colour(i), marker=marker(i), alpha=0.2, lw=0)
        axes.scatter(best[:, x], best[:, y], s=size, color=colour(i), marker=marker(i), alpha=0.9, ec="white", lw=0.3)
    _draw_references(axes, runs, x, y)
    axes.margins(0.08)
    axes.tick_params(labelsize=7.5)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _halos(runs: Sequence[Record]) -> list[float]:
    """By how many points the markers of each run are larger, to be visible under those of later runs.

    Where only few results are possible (deep-sea treasure has ten) fronts often meet.
    """
    fronts = [run.front() for run in runs]
    return [2.6 * min(sum(_meet(own, later) for later in fronts[i + 1 :]), 4) for i, own in enumerate(fronts)]


def _meet(some: Array, others: Array) -> bool:
    """Whether two fronts have a point in common."""
    return bool(np.isclose(some[:, None], others[None]).all(axis=2).any())


def _known_front(runs: Sequence[Record]) -> Array | None:
    return next((run.known_front for run in runs if run.known_front is not None), None)


def _draw_known(axes: Axes, runs: Sequence[Record], x: int, y: int, dots: str | None = None) -> None:
    known = _known_front(runs)
    if known is None:
        return
    if dots:
        axes.plot(known[:, x], known[:, y], dots, color="black", ms=4, alpha=0.6, mew=0, zorder=0.9)
        return
    known = known[np.argsort(known[:, x])]
    axes.plot(known[:, x], known[:, y], "--", color="black", lw=1, marker="." if len(known) <= FEW else None, ms=4)


def _run_handles(runs: Sequence[Record], line: str = "none") -> Iterator[Line2D]:
    for i, run in enumerate(runs):
        label = run_label(run)
        yield Line2D([], [], color=colour(i), marker=marker(i), ls=line, ms=4.5, mec="white", mew=0.4, label=label)


def _known_handles(runs: Sequence[Record], dots: str | None = None) -> Iterator[Line2D]:
    if _known_front(runs) is not None:
        style = {"marker": dots, "ls": "none", "ms": 4} if dots else {"ls": "--", "lw": 1}
        yield Line2D([], [], color="black", label="known front", **style)  # type: ignore[arg-type]


def _references(runs: Sequence[Record]) -> dict[str, Array]:
    """By name, the mean point `[m]` of each reference over seeds and clients; none where rows are not the same."""
    if unlike(runs):
        return {}
    found = {name: by_seed for run in reversed(runs) for name, by_seed in run.references.items()}
    points = {
        name: np.mean([one.mean(axis=0) for one in found[name].values()], axis=0) for name in MARKS if name in found
    }
    return {name: point for name, point in points.items() if np.isfinite(point).all()}


def _draw_references(axes: Axes, runs: Sequence[Record], x: int, y: int) -> None:
    for name, point in _references(runs).items():
        axes.plot(point[x], point[y], MARKS[name], color="black", ms=6, mec="white", mew=0.6, zorder=4)


def _reference_handles(runs: Sequence[Record]) -> Iterator[Line2D]:
    for name in _references(runs):
        yield Line2D([], [], color="black", marker=MARKS[name], ls="none", ms=6, mec="white", mew=0.6, label=name)


def _dominated_handle() -> Iterator[Line2D]:
    yield Line2D([], [], color="black", marker="o", ls="none", ms=4, alpha=0.25, mew=0, label="dominated (pale)")
