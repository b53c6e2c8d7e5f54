"""Two or more clouds of points side by side on the same axes, both objectives maximised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedpareto.record.run_files import Array
from fedpareto.report.style import colour, marker, render, short, styled

__all__ = ["Panel", "beside_each_other", "render"]


@dataclass(frozen=True)
class Panel:
    """What one panel shows."""

    title: str
    single: Array
    """Of every single run, `[k, 2]`: pale."""
    means: Array
    """Over runs, `[p, 2]`: solid."""
    front: Array
    """The means that no other dominates, `[f, 2]`, ascending by the first: joined by a staircase."""


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
