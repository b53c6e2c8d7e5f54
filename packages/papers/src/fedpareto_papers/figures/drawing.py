"""Figures of the papers, drawn by matplotlib: series, fronts, clouds of points and bars, a panel for each title."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from fedpareto.report.style import colour, marker, short, styled, width_with_legend
from fedpareto_papers.figures.data import WIDTH, Bar, Curve, Panel, Series

MOST_COLUMNS = 4
"""Panels in a row; fronts have fewer where there are at most five."""
NOTE_WIDTH = 34
"""Letters in a line of a note."""
HEIGHT = 0.22
"""Inches of a bar, with the space beside it."""


# -- series --------------------------------------------------------------------------------------------------------


@styled
def series_panels(
    panels: Mapping[str, Sequence[Series]],
    x_label: str,
    y_label: str,
    *,
    tone_label: str = "",
    width: float = WIDTH,
    places: Mapping[float, str] | None = None,
) -> Figure:
    """A panel for each title, so wide each, one legend above; `places` have names on the horizontal axis."""
    names = list(dict.fromkeys(series.name for panel in panels.values() for series in panel))
    columns = min(len(panels), MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(width * columns, 2.8 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    toned = None
    for axes, (title, panel) in zip(grid, panels.items(), strict=False):
        for series in panel:
            toned = _draw(axes, series, names.index(series.name)) or toned
        axes.set_title(short(title))
        axes.margins(0.06)
        if places:
            axes.set_xticks(list(places), list(places.values()))
            axes.margins(x=0.15)
            continue
        counts = all((np.asarray(series.points, dtype=float).reshape(-1, 2)[:, 0] % 1 == 0).all() for series in panel)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=counts))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    if toned is not None:
        figure.colorbar(toned, ax=list(grid), label=tone_label)
        return figure
    handles = [
        Line2D(
            [], [], color=colour(i), marker=marker(i), ms=5, lw=1.3 if _is_line(panels, name) else 0, label=short(name)
        )
        for i, name in enumerate(names)
    ]
    entry = width_with_legend(0, [str(handle.get_label()) for handle in handles])
    fitting = max(int(width * columns / entry), 1)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(names), 2 * columns, fitting))
    return figure


def _is_line(panels: Mapping[str, Sequence[Series]], name: str) -> bool:
    return any(series.kind == "line" for panel in panels.values() for series in panel if series.name == name)


def _draw(axes: Axes, series: Series, place: int) -> PathCollection | None:
    """Returns what a colour bar needs, if the series has tones."""
    xs, ys = np.asarray(series.points, dtype=float).reshape(-1, 2).T
    if series.kind == "line":
        axes.plot(xs, ys, color=colour(place), marker=marker(place), ms=4, lw=1.3, mec="white", mew=0.4)
        if series.spread is not None:
            axes.fill_between(xs, ys - series.spread, ys + series.spread, color=colour(place), alpha=0.15, lw=0)
        return None
    if series.tones is not None:
        return axes.scatter(xs, ys, c=series.tones, cmap="viridis", s=14, lw=0)
    faint = np.zeros(len(xs), dtype=bool) if series.pale is None else np.asarray(series.pale, dtype=bool)
    axes.scatter(xs[faint], ys[faint], s=12, color=colour(place), marker=marker(place), alpha=0.2, lw=0)
    axes.scatter(xs[~faint], ys[~faint], s=26, color=colour(place), marker=marker(place), ec="white", lw=0.4, zorder=3)
    return None


# -- fronts --------------------------------------------------------------------------------------------------------


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
    _front_legend(grid[len(panels)], list(places), frame_label, note)
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    return figure


def _columns(places: int) -> int:
    if places <= 3:
        return places
    return 2 if places == 4 else 3 if places <= 6 else MOST_COLUMNS


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


def _front_legend(axes: Axes, names: Sequence[str], frame_label: str, note: str) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour(i), marker=marker(i), ms=4.5, mec="white", mew=0.4, label=short(name))
        for i, name in enumerate(names)
    ]
    if frame_label:
        handles.append(Patch(fill=False, ec="#555555", ls="--", lw=0.9, label=frame_label))
    axes.legend(handles=handles, loc="upper left")
    if note:
        axes.text(0.02, 0.0, textwrap.fill(note, NOTE_WIDTH), transform=axes.transAxes, fontsize=7, color="#555555")


# -- clouds of points ----------------------------------------------------------------------------------------------


@styled
def beside_each_other(panels: Sequence[Panel], x_label: str, y_label: str) -> Figure:
    """One panel beside the other, with the same limits."""
    figure = Figure(figsize=(3.6 * len(panels), 4.1), layout="constrained")
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)
    for i, (axes, panel) in enumerate(zip(grid[0], panels, strict=True)):
        axes.scatter(*panel.single.T, s=16, color=colour(i), marker=marker(i), alpha=0.25, lw=0)
        axes.scatter(*panel.means.T, s=26, color=colour(i), marker=marker(i), ec="white", lw=0.4, zorder=3)
        # Between two points of a front only the one that is better in y counts; it lies on the worse side of x.
        axes.plot(*panel.front.T, color=colour(i), lw=1.4, ds="steps-pre")
        axes.set_title(short(panel.title))
        axes.set_xlabel(x_label)
        axes.margins(0.06)
    grid[0, 0].set_ylabel(y_label)
    handles = [
        Line2D([], [], color="#555555", marker="o", ms=4, alpha=0.3, lw=0, label="a single run"),
        Line2D([], [], color="#555555", marker="o", ms=5, lw=0, label="mean over runs"),
        Line2D([], [], color="#555555", lw=1.4, label="front of the means"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


# -- bars ----------------------------------------------------------------------------------------------------------


@styled
def bar_panels(panels: Mapping[str, Sequence[Bar]], x_label: str, levels: Mapping[str, float] | None = None) -> Figure:
    """A panel for each title, its bars from top to bottom; in some of them a dashed line at a level."""
    kinds = list(dict.fromkeys(bar.kind for bars in panels.values() for bar in bars))
    tallest = max(len(bars) for bars in panels.values())
    figure = Figure(figsize=(4.6 * len(panels), HEIGHT * tallest + 1.3), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, bars) in zip(grid, panels.items(), strict=True):
        places = np.arange(len(bars))
        axes.barh(
            places,
            [bar.value for bar in bars],
            xerr=[bar.spread for bar in bars],
            color=[colour(kinds.index(bar.kind)) for bar in bars],
            error_kw={"ecolor": "#555555", "elinewidth": 0.8},
        )
        axes.set_yticks(places, [short(bar.label) for bar in bars])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_title(short(title))
        axes.set_xlabel(x_label)
        if levels and title in levels:
            axes.axvline(levels[title], color="#333333", ls="--", lw=1.0)
    if len(kinds) > 1:
        handles = [Line2D([], [], color=colour(i), marker="s", lw=0, label=short(kind)) for i, kind in enumerate(kinds)]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(kinds))
    return figure
