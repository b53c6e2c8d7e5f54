"""Figure 2.4 of the thesis with our occupants: levels, branches and boxes from left to right, then who is there."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedpareto.contract.taxonomy import Box
from fedpareto.report.style import render, styled

__all__ = ["render", "taxonomy_figure"]

TINTS = {"top": "#FBE7D3", "federation": "#D9ECF7", "client": "#DDF0E4"}
"""Light enough for black letters, and different in grey as well."""
COLUMNS = {"level": (0.0, 0.95), "branch": (1.03, 1.15), "box": (2.26, 1.8), "names": (4.14, 2.9)}
"""Left edge and width of each column, in inches."""
LINE, GAP, LETTERS = 0.13, 0.07, 56
"""Height of a line and gap between boxes in inches; letters of occupants in a line."""


@styled
def taxonomy_figure(boxes: Mapping[Box, Sequence[str]]) -> Figure:
    """Draw the boxes: a dashed outline where the thesis knows no work; red letters where nobody is here either."""
    texts = {box: textwrap.wrap(", ".join(names), LETTERS, break_on_hyphens=False) for box, names in boxes.items()}
    heights = {box: max(len(text), 1) * LINE + 0.1 for box, text in texts.items()}
    width = sum(COLUMNS["names"])
    height = sum(heights.values()) + GAP * len(boxes)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.05, width), ylim=(height, -0.02))
    axes.set_axis_off()
    tops, top = {}, GAP / 2
    for box in boxes:
        tops[box], top = top, top + heights[box] + GAP
    for level, of_level in groupby(boxes, key=lambda box: box.level):
        some = list(of_level)
        _spanning(axes, "level", f"{level} level", some, tops, heights)
        for branch, of_branch in groupby(some, key=lambda box: box.branch):
            _spanning(axes, "branch", branch, list(of_branch), tops, heights)
    for box, text in texts.items():
        _drawn(axes, "box", f"{box.number}  {box.family}", tops[box], heights[box], box, box.was_empty)
        where = COLUMNS["names"][0], tops[box] + heights[box] / 2
        axes.text(*where, "\n".join(text) or "empty", va="center", fontsize=6, color="#222222" if text else "#B00020")
    return figure


def _spanning(
    axes: Axes, column: str, text: str, some: Sequence[Box], tops: Mapping[Box, float], heights: Mapping[Box, float]
) -> None:
    """Draw one patch beside several boxes."""
    first, last = some[0], some[-1]
    _drawn(
        axes, column, "\n".join(textwrap.wrap(text, 18)), tops[first], tops[last] + heights[last] - tops[first], first
    )


def _drawn(axes: Axes, column: str, text: str, top: float, height: float, box: Box, is_dashed: bool = False) -> None:
    left, width = COLUMNS[column]
    axes.add_patch(
        FancyBboxPatch(
            (left, top),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=TINTS[box.level],
            edgecolor="#666666",
            linewidth=0.8,
            linestyle="--" if is_dashed else "-",
        )
    )
    axes.text(left + width / 2, top + height / 2, text, ha="center", va="center", fontsize=6)
