"""Success of an attacker under each protection: a panel for each measure, with the level of guessing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from fedpareto.report.style import colour, render, short, styled

__all__ = ["audit_figure", "render"]

PANELS_IN_A_ROW = 4
PANEL = (2.5, 1.9)
"""Size of a panel in inches."""


@styled
def audit_figure(record: Mapping[str, Any]) -> Figure:
    """Draw bars: means over seeds with their deviation; the dashed line is guessing."""
    measures, protections = record["measures"], record["protections"]
    useful = {"name": f"what it costs: {record['usefulness']['name']}", "values": record["usefulness"]["values"]}
    panels = [*measures, useful]
    across = min(len(panels), PANELS_IN_A_ROW)
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
