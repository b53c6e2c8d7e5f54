"""Draws the graphs of neighbours, coloured by the weights that `dmoead` lays over them; docs/fronts.md.

python benchmarks/graphs.py docs/pictures/graphs.png
"""

from __future__ import annotations

import sys
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from fedpareto.algorithms.without_server.gossip_fedavg import GossipFedAvg
from fedpareto.moo import graphs
from fedpareto.report.style import render, styled

CLIENTS = 12
KINDS = ("ring", "grid", "torus", "random-regular", "small-world", "complete")
OPTIONS = {"random-regular": {"degree": 3}, "small-world": {"rewiring": 0.2}}


def places(kind: str) -> np.ndarray:
    """Where clients are drawn, `[n, 2]`."""
    rows = np.arange(CLIENTS)
    if kind in ("grid", "torus"):
        across, down = rows % 4, rows // 4
        # Bent, so that the edges that close a ring do not lie on the others.
        bent = 0.12 * (kind == "torus") * np.stack([np.sin(np.pi * down / 2), np.sin(np.pi * across / 3)], axis=1)
        return np.stack([across / 1.5 - 1, 0.8 - down * 0.8], axis=1) + bent
    angle = 2 * np.pi * rows / CLIENTS
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)


@styled
def picture() -> Figure:
    """A panel for each kind."""
    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    for number, kind in enumerate(KINDS):
        graph = GossipFedAvg(graph=kind, **OPTIONS.get(kind, {})).neighbours(CLIENTS)  # type: ignore[arg-type]
        where, share = places(kind), np.empty(CLIENTS)
        share[graphs.breadth_first(graph)] = np.linspace(0, 1, CLIENTS)
        panel = figure.add_subplot(2, 3, number + 1, aspect="equal")
        for one, other in graph.edges:
            panel.plot(*where[[one, other]].T, color="#9A9A9A", lw=0.9, zorder=1)
        drawn = panel.scatter(*where.T, c=share, cmap="viridis", vmin=0, vmax=1, s=110, zorder=2, edgecolors="white")
        for client, place in enumerate(where):
            panel.annotate(
                str(client),
                place,
                ha="center",
                va="center",
                fontsize=6.5,
                color="black" if share[client] > 0.7 else "white",
            )
        panel.set_title(f"{kind}: {len(graph.edges)} edges")
        panel.set_axis_off()
    figure.colorbar(drawn, ax=figure.axes, label="what dmoead's clients want of objective 1", shrink=0.6)
    return figure


if __name__ == "__main__":
    # In 64 colours, a quarter of the bytes.
    Image.open(BytesIO(render(picture(), "png"))).convert("RGB").quantize(64).save(sys.argv[1], optimize=True)
