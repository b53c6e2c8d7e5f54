"""Panels side by side that show named series, the same name in the same colour everywhere: points or lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedpareto.record.run_files import Array
from fedpareto.report.style import colour, marker, render, short, styled, width_with_legend

__all__ = ["Series", "render", "series_panels"]

COLUMNS = 4
WIDTH = 3.1
"""Of a panel, in inches."""


@dataclass(frozen=True)
class Series:
    """Points `[k, 2]`, or a line through them."""

    name: str
    points: Array
    kind: Literal["points", "line"] = "points"
    spread: Array | None = None
    """Of a line, how far its values deviate, `[k]`."""
    tones: Array | None = None
    """Of points, a number for each that becomes its colour, `[k]`."""
    pale: NDArray[np.bool_] | None = None
    """Points that are shown faintly, `[k]` true or false."""


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
    columns = min(len(panels), COLUMNS)
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
