"""The figures of audits: bars for each measure with the level of guessing, and heat maps on one scale with numbers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from fedpareto.record.run_files import Array
from fedpareto.report.style import colour, render, short, styled

__all__ = ["audit_figure", "heat_map", "render"]

PANELS_IN_A_ROW = 3
BARS_IN_A_ROW = 4
PANEL = (2.5, 1.9)
"""Size of a panel of bars in inches."""
CELL = (0.47, 0.30)
"""Size of a cell in inches."""
LEAST_HEIGHT = 1.7
"""Inches of all panels in a column: the scale beside them has room for its name."""
LETTER = 0.08
"""Average width of a character of that name, in inches."""
NOTHING, FAILED = "#F2F2F2", "#1A1A1A"
"""The colours of impossible cells, and of failed ones."""
HATCH = "////"


@styled
def heat_map(
    values: Array,
    refused: NDArray[np.bool_],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    panels: Sequence[str],
    measure: str,
    maximise: bool,
    across: int = PANELS_IN_A_ROW,
) -> Figure:
    """Draw `values` `[panels, rows, columns]`; NaN is a failure, or an empty cell where it was `refused`."""
    across = min(len(panels), across)
    down = math.ceil(len(panels) / across)
    names = 0.075 * max(len(short(name)) for name in rows)
    heads = 0.065 * max(len(short(name)) for name in columns)
    tall = max(down * CELL[1] * len(rows), LEAST_HEIGHT)
    values, measure = _readable_units(values, measure)
    label = textwrap.wrap(f"{measure} ({'higher' if maximise else 'lower'} is better)", int(tall / LETTER))
    size = (
        across * (CELL[0] * len(columns) + 0.25) + names + 1.15 + 0.15 * len(label),
        tall + down * 0.45 + heads + 0.45,
    )
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    colours = mpl.colormaps["viridis" if maximise else "viridis_r"]
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    scale = Normalize(low, high if high > low else low + 1)
    for panel, axes in enumerate(grid.flat):
        if panel >= len(panels):
            axes.remove()
            continue
        _panel(axes, values[panel], refused[panel], colours, scale)
        axes.set_title(short(panels[panel]))
        # A panel without one below it shows the columns' names itself.
        if panel + across >= len(panels):
            axes.tick_params(labelbottom=True)
        axes.set_xticks(range(len(columns)), [short(name) for name in columns], rotation=45, ha="right", fontsize=8)
        axes.set_yticks(range(len(rows)), [short(name) for name in rows], fontsize=8)
    bar = figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=list(figure.axes), shrink=0.8, pad=0.01)
    bar.set_label("\n".join(label))
    _explain(figure, values, refused)
    return figure


def _panel(axes: Axes, values: Array, refused: NDArray[np.bool_], colours: Colormap, scale: Normalize) -> None:
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(values.shape[0] - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        corner = (column - 0.5, row - 0.5)
        if refused[row, column]:
            axes.add_patch(Rectangle(corner, 1, 1, fc=NOTHING, ec="#BBBBBB", hatch=HATCH, lw=0))
            continue
        good = bool(np.isfinite(value))
        face = colours(scale(value)) if good else FAILED
        axes.add_patch(Rectangle(corner, 1, 1, fc=face, ec="white", lw=0.8))
        red, green, blue = to_rgb(face)
        ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
        text = f"{value:#.3g}".rstrip(".") if good else "×"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)


def _readable_units(values: Array, measure: str) -> tuple[Array, str]:
    """In percent, if all values lie between 0 and 1; three digits of each then fit into a cell."""
    known = values[np.isfinite(values)]
    are_shares = bool(len(known)) and known.min() >= 0 and known.max() <= 1
    return (100 * values, f"{measure}, in %") if are_shares else (values, measure)


def _explain(figure: Figure, values: Array, refused: NDArray[np.bool_]) -> None:
    handles = []
    if refused.any():
        handles.append(Patch(fc=NOTHING, ec="#BBBBBB", hatch=HATCH, lw=0, label="do not fit together"))
    if (~np.isfinite(values) & ~refused).any():
        handles.append(Patch(fc=FAILED, label="× failed"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3)


@styled
def audit_figure(record: Mapping[str, Any]) -> Figure:
    """Draw bars: means over seeds with their deviation; the dashed line is guessing."""
    measures, protections = record["measures"], record["protections"]
    useful = {"name": f"what it costs: {record['usefulness']['name']}", "values": record["usefulness"]["values"]}
    panels = [*measures, useful]
    across = min(len(panels), BARS_IN_A_ROW)
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(across * PANEL[0], down * PANEL[1] + 0.3), layout="constrained")
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.remove()
            continue
        panel = panels[place]
        shown = [(row, panel["values"][name]) for row, name in enumerate(protections) if name in panel["values"]]
        axes.barh(
            [row for row, _ in shown],
            [entry["mean"] for _, entry in shown],
            xerr=[entry["deviation"] for _, entry in shown],
            color=[colour(2 if panel is useful else 1) for _ in shown],
            error_kw={"ecolor": "#555555", "elinewidth": 0.8},
        )
        for row, name in enumerate(protections):
            if name not in panel["values"]:
                axes.text(0.02, row, "–", transform=axes.get_yaxis_transform(), va="center", color="#777777")
        axes.set_yticks(range(len(protections)), [short(name) for name in protections])
        axes.grid(visible=False, axis="y")
        axes.set_title(short(panel["name"]), fontsize=8)
        if "guess" in panel:
            axes.axvline(panel["guess"], color="#333333", ls="--", lw=1.0)
    grid[0, 0].invert_yaxis()
    return figure
