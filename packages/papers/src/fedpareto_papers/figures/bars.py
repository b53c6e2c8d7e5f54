"""Bar charts, a panel for each comparison: a few numbers with their spread, and a reference level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedpareto.report.style import colour, render, short, styled

__all__ = ["Bar", "bar_panels", "render"]

HEIGHT = 0.22
"""Inches of a bar, with the space beside it."""


@dataclass(frozen=True)
class Bar:
    """One number."""

    label: str
    value: float
    spread: float = 0.0
    kind: str = ""
    """Bars of one kind have one colour; the legend shows the kinds."""


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
