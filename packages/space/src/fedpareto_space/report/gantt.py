"""Gantt charts: a row for each name, bars along time, a colour for each kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedpareto.report.style import PALETTE, colour, render, short, styled

__all__ = ["Span", "gantt", "render"]

ROW = 0.17
"""Inches of a row."""
MOST_LABELS = 60
"""Rows that have a name beside them; of more, only some have."""
TALLEST = 24.0
"""Inches of a figure; with more rows, they are lower."""
OTHERS = "#BDBDBD"
"""The colour of kinds after the last of the palette."""
PARTS = {"whole": (-0.4, 0.8), "upper": (-0.34, 0.32), "lower": (0.02, 0.32)}
"""Beginning of a bar in its row, downwards, and its height."""
PALE = 0.35


@dataclass(frozen=True)
class Span:
    """One bar."""

    row: str
    start: float
    end: float
    kind: str = ""
    """Bars of one kind have one colour."""
    part: Literal["whole", "upper", "lower"] = "whole"
    """Part of the row's height."""
    pale: bool = False
    """Other bars are to be seen in it."""


@styled
def gantt(
    spans: Sequence[Span], rows: Sequence[str], kinds: Sequence[str], x_label: str, until: float | None = None
) -> Figure:
    """The rows from top to bottom, also those without a bar; the kinds in the order of the legend. Time ends at
    `until`, or with the last bar.
    """
    tall = min(TALLEST, ROW * len(rows))
    figure = Figure(figsize=(9.0, tall + 1.1), layout="constrained")
    axes = figure.subplots()
    colours = {kind: colour(place) if place < len(PALETTE) else OTHERS for place, kind in enumerate(kinds)}
    place = {row: number for number, row in enumerate(rows)}
    bars = defaultdict[tuple[str, str, str, bool], list[tuple[float, float]]](list)
    for span in spans:
        bars[span.row, span.kind, span.part, span.pale].append((span.start, span.end - span.start))
    for (row, kind, part, pale), found in bars.items():
        top, height = PARTS[part]
        faint = PALE if pale else 1.0
        # What is shorter than a dot is a dot.
        edge = {"linewidth": 0} if pale or part == "whole" else {"linewidth": 0.6, "edgecolors": colours[kind]}
        axes.broken_barh(found, (place[row] + top, height), facecolors=colours[kind], alpha=faint, **edge)
    every = -(-len(rows) // MOST_LABELS)
    axes.set_yticks(range(0, len(rows), every), [short(row) for row in rows[::every]], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.005)
    if until is not None:
        axes.set_xlim(-0.005 * until, 1.005 * until)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 3, 6, 10]))  # Of hours, parts of a day.
    axes.set_xlabel(x_label)
    handles = [Patch(color=colours[kind], label=short(kind)) for kind in kinds[: len(PALETTE)]]
    if len(kinds) > len(PALETTE):
        handles.append(Patch(color=OTHERS, label="others"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure
