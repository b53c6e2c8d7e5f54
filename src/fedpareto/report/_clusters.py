"""How clients find each other: figures 4.11 and 4.12 of Hartmann's thesis."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fedpareto.errors import UserError
from fedpareto.report._files import Array, Clusters
from fedpareto.report._style import PALETTE, short, styled
from fedpareto.report.record import Record

MOST_ROWS = 24
"""Rounds that the picture of the clusters shows; with more it would not fit on a page."""

MOST_IDS = 40
"""Clients up to which their ids can be read."""

BAR, GAP, BOX, BAR_HEIGHT = "#D0D0D0", 0.5, 0.92, 0.74
"""Colour of a cluster's bar; space between neighbours that part, and box and bar height, in boxes."""

UNKNOWN = "#8FA8BF"
"""Clients whose preference is not known, because the run has not finished."""


@styled
def cluster_evolution(record: Record, seed: int | None = None) -> Figure:
    """Figure 4.12: one row per round at which the clustering changed, and the first and the last.

    A box is a client and a connected bar a cluster. Clients with equal preferences share a colour;
    where hardly any are equal, the colour is the preference for the first objective.
    """
    seed = record.started[0] if seed is None else seed
    states = _changes(_needed(record.clusters(seed), record, seed, "clusters"))
    order = client_order(record, seed)
    columns = _columns([_arranged(clusters, order) for clusters in states.values()])
    width = float(np.clip(0.27 * columns[-1] + 2.6, 4.5, 11.0))
    figure = Figure(figsize=(width, 0.9 + 0.36 * len(states)), layout="constrained")
    axes = figure.add_subplot()
    colours = _client_colours(figure, axes, record, seed)
    for row, clusters in enumerate(states.values()):
        _row(axes, row, _arranged(clusters, order), columns, colours)
    axes.set_yticks(range(len(states)), [f"round {r}" for r in states])
    axes.set(xlim=(-0.4, columns[-1] + 1.3), ylim=(len(states) - 0.4, -0.6), xticks=[])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{short(record.label)}, seed {seed}: clusters of clients", loc="left")
    return figure


@styled
def similarity_matrices(record: Record, seed: int | None = None) -> Figure:
    """Figure 4.11: similarity of the clients at an early, a middle and the last round, on one scale.

    Clients stand in the order of their clusters, the same in every matrix; frames are the clusters
    of that round.
    """
    seed = record.started[0] if seed is None else seed
    found = _needed(record.similarity(seed), record, seed, "similarity")
    chosen = _early_middle_last(list(found))
    ids = _clients(record, seed, len(found[chosen[-1]]))
    order = [client for client in client_order(record, seed) if client in ids]
    places = [ids.index(client) for client in order]
    figure = Figure(figsize=(2.45 * len(chosen) + 1.1, 3.0), layout="constrained")
    panels = figure.subplots(1, len(chosen), squeeze=False)[0]
    for axes, r in zip(panels, chosen, strict=True):
        image = _matrix(axes, found[r][np.ix_(places, places)], order)
        _frames(axes, record.clusters(seed).get(r, ()), order)
        axes.set_title(f"after round {r} of {record.rounds}")
    figure.colorbar(image, ax=list(panels), label="similarity", shrink=0.8, ticks=[-1, -0.5, 0, 0.5, 1])
    figure.suptitle(f"{short(record.label)}, seed {seed}", fontsize=9, x=0.01, ha="left")
    return figure


def client_order(record: Record, seed: int) -> list[int]:
    """All client ids of a seed so that clusters stay together in every round, as far as they are nested.

    Clusters are sorted by what their members prefer, so neighbours want similar things.
    """
    preferences = _preferences(record, seed)
    ids = set(_clients(record, seed, record.clients))
    history = list(_changes(record.clusters(seed)).values())
    ids |= {client for clusters in history for cluster in clusters for client in cluster}
    keys: dict[int, list[object]] = {client: [] for client in ids}
    for clusters in history:
        ranked = sorted(clusters, key=lambda cluster: (_mean_preference(cluster, preferences), min(cluster)))
        rank = {client: i for i, cluster in enumerate(ranked) for client in cluster}
        for client in ids:
            keys[client].append(rank.get(client, len(ranked)))
    return sorted(ids, key=lambda client: (keys[client], preferences.get(client, ()), client))


def _needed[T](found: dict[int, T], record: Record, seed: int, what: str) -> dict[int, T]:
    if not found:
        raise UserError(f"{record.folder}: '{record.algorithm}' wrote down no {what} for seed {seed}")
    return found
