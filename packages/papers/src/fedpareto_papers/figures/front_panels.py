"""Fronts of several runs on several problems: a panel for each problem, one legend, both objectives maximised."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from fedpareto.report.style import colour, marker, render, short, styled

__all__ = ["Curve", "front_panels", "render"]

COLUMNS = 4
"""Panels in a row, where there are more than five."""
NOTE_WIDTH = 34


@dataclass(frozen=True)
class Curve:
    """One front."""

    name: str
    """Of the algorithm, which has the same colour in every panel."""
    points: Sequence[Sequence[float]]
    """`[k, 2]`; may be empty."""
    frame: tuple[tuple[float, float], tuple[float, float]] | None = None
    """The range of another front of that name: ((least, largest x), (least, largest y))."""


@styled
def front_panels(
    panels: Mapping[str, Sequence[Curve]], x_label: str, y_label: str, *, frame_label: str = "", note: str = ""
) -> Figure:
    """A panel for each title; the place after the last one holds the legend and the note."""
    places = {name: place for place, name in enumerate(dict.fromkeys(c.name for cs in panels.values() for c in cs))}
    columns = _columns(len(panels) + 1)
    rows = math.ceil((len(panels) + 1) / columns)
    figure = Figure(figsize=(2.9 * columns, 2.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        for curve in curves:
            _frame(axes, curve, places[curve.name])
        for curve in curves:
            _staircase(axes, curve, places[curve.name])
        _finish(axes, title, [curve.name for curve in curves if not len(curve.points)])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    _legend(grid[len(panels)], list(places), frame_label, note)
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    return figure


def _columns(places: int) -> int:
    if places <= 3:
        return places
    return 2 if places == 4 else 3 if places <= 6 else COLUMNS


def _staircase(axes: Axes, curve: Curve, place: int) -> None:
    if not len(curve.points):
        return
    xs, ys = zip(*sorted(tuple(point) for point in curve.points), strict=True)
    # Between two points of a front only the one that is better in y counts; it lies on the worse side of x.
    axes.plot(
        xs,
        ys,
        color=colour(place),
        marker=marker(place),
        ms=4.5,
        lw=1.3,
        ds="steps-pre",
        mec="white",
        mew=0.4,
        zorder=3,
    )


def _frame(axes: Axes, curve: Curve, place: int) -> None:
    """A dashed rectangle; where it would be a single point, an open marker."""
    if curve.frame is None:
        return
    (left, right), (bottom, top) = curve.frame
    if left == right and bottom == top:
        axes.plot([left], [bottom], color=colour(place), marker=marker(place), ms=6, mfc="none", ls="none", alpha=0.6)
        return
    size = (right - left, top - bottom)
    axes.add_patch(Rectangle((left, bottom), *size, fill=False, ec=colour(place), ls="--", lw=0.9, alpha=0.55))
    axes.update_datalim([(left, bottom), (right, top)])


def _finish(axes: Axes, title: str, without_front: Sequence[str]) -> None:
    axes.set_title(short(title))
    if without_front:
        names = textwrap.fill(f"no front: {', '.join(without_front)}", 28)
        axes.text(0.03, 0.03, names, transform=axes.transAxes, fontsize=7.5, color="#555555")
    axes.margins(0.08)
    axes.autoscale_view()
    axes.tick_params(labelsize=7.5)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _legend(axes: Axes, names: Sequence[str], frame_label: str, note: str) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour(i), marker=marker(i), ms=4.5, mec="white", mew=0.4, label=short(name))
        for i, name in enumerate(names)
    ]
    if frame_label:
        handles.append(Patch(fill=False, ec="#555555", ls="--", lw=0.9, label=frame_label))
    axes.legend(handles=handles, loc="upper left")
    if note:
        axes.text(0.02, 0.0, textwrap.fill(note, NOTE_WIDTH), transform=axes.transAxes, fontsize=7, color="#555555")
