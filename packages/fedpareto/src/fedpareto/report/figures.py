"""The figures of a report, each a separate matplotlib `Figure` without pyplot's global state. Compared runs keep their
colour and marker in every figure, by their position in the list.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from fedpareto.config.errors import UserError
from fedpareto.moo.tested import CHANCE
from fedpareto.record.run_files import Array, Clusters
from fedpareto.record.run_record import Record
from fedpareto.report.axes import Axis, axis_of
from fedpareto.report.client_figures import clients_at_the_end
from fedpareto.report.likeness import comparable, unlike
from fedpareto.report.style import PALETTE, axis_label, beside_legend, colour, marker, render, run_label, short, styled

__all__ = ["cluster_evolution", "fronts", "hypervolume_curves", "render", "similarity_matrices"]

FEW = 25
"""Most points of a known front that are drawn as dots: such a front is a set, not a curve."""

MARKS = {"constant": "X", "plain alone": "P", "plain pooled": "s", CHANCE: "D", "central": "*"}
"""Markers of the references that runs are held against."""
MOST_ROWS = 24
"""Most rounds in the figure of the clusters; more would not fit on a page."""
MOST_IDS = 40
"""Most clients whose ids are readable."""
BAR, GAP, BOX, BAR_HEIGHT = "#D0D0D0", 0.5, 0.92, 0.74
"""Colour of a cluster's bar; space between neighbours in different clusters, and box and bar height, in boxes."""
UNKNOWN = "#8FA8BF"
"""Colour of clients whose preference is not known, because it is private."""
T = TypeVar("T")


@styled
def fronts(records: Sequence[Record]) -> Figure:
    """Final solutions of all clients and seeds on the held-out split, and each run's non-dominated front.

    Two objectives make one plane with staircases; more make a grid with one plane per pair, where
    the solid points are those that no other dominates in all objectives together. A single objective has no front: its
    figure is `clients_at_the_end`. What the runs are held against on the same rows is black: one mark each, the mean
    over seeds and clients.
    """
    runs = comparable(records)
    m = len(runs[0].objectives)
    if m == 1:
        return clients_at_the_end(runs)
    return _plane(runs) if m == 2 else _grid(runs)


@styled
def hypervolume_curves(records: Sequence[Record], over: str | None = None) -> Figure:
    """Mean hypervolume over the seeds with a band of one population deviation, over rounds or another axis.

    Solid is what the server sends. Dotted is what the clients have after their local steps: those of round r + 1 are
    drawn at r + 1, just before the server's aggregation.
    """
    runs = comparable(records)
    axis = axis_of(runs, over)
    handles = _curve_handles(runs)
    figure = beside_legend(4.7, 3.4, handles)
    axes = figure.add_subplot()
    for i, run in enumerate(runs):
        _curve(axes, axis, *axis.placed(run, run.common_rounds, run.hypervolume), i, "-")
        _curve(axes, axis, *axis.placed(run, run.common_rounds + 1, run.trained_hypervolume), i, ":")
    axes.set_xlabel(axis.label)
    axes.set_ylabel("hypervolume (higher is better)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=not axis.is_stepped))
    return figure


def _curve_handles(runs: Sequence[Record]) -> list[Line2D]:
    handles = [Line2D([], [], color=colour(i), label=short(run.label)) for i, run in enumerate(runs)]
    if any(np.isfinite(run.trained_hypervolume).any() for run in runs):
        handles.append(Line2D([], [], color="black", label="sent by the server"))
        handles.append(Line2D([], [], color="black", ls=":", label="after local training"))
    return handles


def _curve(axes: Axes, axis: Axis, places: Array, values: Array, i: int, line: str) -> None:
    # A run that diverged has a gap where its mean is not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        mean, deviation = values.mean(axis=0), values.std(axis=0)
    # A line through one point is invisible.
    dot = "o" if np.isfinite(mean).sum() == 1 else None
    axes.plot(places, mean, line, color=colour(i), lw=1.6, marker=dot, ms=4, drawstyle=axis.drawstyle)
    if len(values) > 1:
        axes.fill_between(
            places,
            mean - deviation,
            mean + deviation,
            color=colour(i),
            alpha=0.15 if line == "-" else 0.07,
            lw=0,
            step=axis.step,
        )


def _plane(runs: Sequence[Record]) -> Figure:
    handles = [*_run_handles(runs, line="-"), *_known_handles(runs), *_reference_handles(runs)]
    figure = beside_legend(4.9, 4.2, handles)
    axes = figure.add_subplot()
    first, second = runs[0].objectives
    _draw_known(axes, runs, 0, 1)
    # Between two points of a front only the one that is better in y counts; it lies on the worse side of x.
    step = "steps-pre" if first.maximise else "steps-post"
    for i, (run, halo) in enumerate(zip(runs, _halos(runs), strict=True)):
        points, best = run.pooled(), run.front()
        axes.scatter(points[:, 0], points[:, 1], s=16, color=colour(i), marker=marker(i), alpha=0.25, lw=0)
        axes.plot(
            best[:, 0],
            best[:, 1],
            color=colour(i),
            marker=marker(i),
            ms=4.5 + halo,
            lw=1.4 + halo / 2,
            ds=step,
            mec="white",
            mew=0.4,
        )
    _draw_references(axes, runs, 0, 1)
    axes.set_xlabel(axis_label(first))
    axes.set_ylabel(axis_label(second))
    axes.margins(0.06)
    return figure


def _grid(runs: Sequence[Record]) -> Figure:
    """One plane per pair of objectives, the lower triangle of a grid; the legend fills the free corner."""
    objectives = runs[0].objectives
    size = len(objectives) - 1
    side = max(1.55, 5.0 / size)
    figure = Figure(figsize=(side * size + 0.7, side * size + 0.7), layout="constrained")
    grid = figure.subplots(size, size, sharex="col", sharey="row", squeeze=False)
    for x, y in combinations(range(len(objectives)), 2):
        _panel(grid[y - 1, x], runs, x, y)
    for row, column in combinations(range(size), 2):
        grid[row, column].remove()
    for j in range(size):
        grid[size - 1, j].set_xlabel(axis_label(objectives[j], "\n"))
        grid[j, 0].set_ylabel(axis_label(objectives[j + 1], "\n"))
    figure.align_labels()
    handles = [*_run_handles(runs), *_known_handles(runs, "."), *_reference_handles(runs)]
    handles.append(
        Line2D([], [], color="black", marker="o", ls="none", ms=4, alpha=0.25, mew=0, label="dominated (pale)")
    )
    figure.legend(handles=handles, loc="upper right")
    return figure


def _panel(axes: Axes, runs: Sequence[Record], x: int, y: int) -> None:
    _draw_known(axes, runs, x, y, ".")
    for i, (run, halo) in enumerate(zip(runs, _halos(runs), strict=True)):
        points, best, size = run.pooled(), run.front(), (3.6 + halo) ** 2
        axes.scatter(points[:, x], points[:, y], s=10, color=colour(i), marker=marker(i), alpha=0.2, lw=0)
        axes.scatter(best[:, x], best[:, y], s=size, color=colour(i), marker=marker(i), alpha=0.9, ec="white", lw=0.3)
    _draw_references(axes, runs, x, y)
    axes.margins(0.08)
    axes.tick_params(labelsize=7.5)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _halos(runs: Sequence[Record]) -> list[float]:
    """Points by which the markers of each run are larger, to be visible under those of later runs.

    Where only few results are possible (deep-sea treasure has ten) fronts often meet.
    """
    fronts = [run.front() for run in runs]
    met = (
        sum(bool(np.isclose(own[:, None], later[None]).all(axis=2).any()) for later in fronts[i + 1 :])
        for i, own in enumerate(fronts)
    )
    return [2.6 * min(count, 4) for count in met]


def _known_front(runs: Sequence[Record]) -> Array | None:
    return next((run.known_front for run in runs if run.known_front is not None), None)


def _draw_known(axes: Axes, runs: Sequence[Record], x: int, y: int, dots: str | None = None) -> None:
    known = _known_front(runs)
    if known is None:
        return
    if dots:
        axes.plot(known[:, x], known[:, y], dots, color="black", ms=4, alpha=0.6, mew=0, zorder=0.9)
        return
    known = known[np.argsort(known[:, x])]
    axes.plot(known[:, x], known[:, y], "--", color="black", lw=1, marker="." if len(known) <= FEW else None, ms=4)


def _run_handles(runs: Sequence[Record], line: str = "none") -> Iterator[Line2D]:
    for i, run in enumerate(runs):
        label = run_label(run)
        yield Line2D([], [], color=colour(i), marker=marker(i), ls=line, ms=4.5, mec="white", mew=0.4, label=label)


def _known_handles(runs: Sequence[Record], dots: str | None = None) -> Iterator[Line2D]:
    if _known_front(runs) is not None:
        style = {"marker": dots, "ls": "none", "ms": 4} if dots else {"ls": "--", "lw": 1}
        yield Line2D([], [], color="black", label="known front", **style)  # type: ignore[arg-type]


def _references(runs: Sequence[Record]) -> dict[str, Array]:
    """Mean point `[m]` of each reference over seeds and clients; none where rows are not the same."""
    if unlike(runs):
        return {}
    found = {name: by_seed for run in reversed(runs) for name, by_seed in run.references.items()}
    points = {
        name: np.mean([one.mean(axis=0) for one in found[name].values()], axis=0) for name in MARKS if name in found
    }
    return {name: point for name, point in points.items() if np.isfinite(point).all()}


def _draw_references(axes: Axes, runs: Sequence[Record], x: int, y: int) -> None:
    for name, point in _references(runs).items():
        axes.plot(point[x], point[y], MARKS[name], color="black", ms=6, mec="white", mew=0.6, zorder=4)


def _reference_handles(runs: Sequence[Record]) -> Iterator[Line2D]:
    for name in _references(runs):
        yield Line2D([], [], color="black", marker=MARKS[name], ls="none", ms=6, mec="white", mew=0.6, label=name)


# -- clusters ---------------------------------------------------------------------------------------------------------


@styled
def cluster_evolution(record: Record, seed: int | None = None) -> Figure:
    """Figure 4.12: one row per round at which the clustering changed, and the first and the last.

    A box is a client and a connected bar a cluster. Clients with equal preferences share a colour;
    where hardly any are equal, the colour is the preference for the first objective.
    """
    seed = record.started[0] if seed is None else seed
    found = _changes(_needed(record.clusters(seed), record, seed, "clusters"))
    changes = list(found)
    places = np.linspace(0, len(changes) - 1, min(MOST_ROWS, len(changes))).round().astype(int)
    states = {changes[place]: found[changes[place]] for place in places}
    order = client_order(record, seed)
    rows = [_arranged(clusters, order) for clusters in states.values()]
    # Clients that never change places stay in their column.
    is_aligned = all([client for cluster in row for client in cluster] == list(order) for row in rows)
    columns = [_box_edges(rows)] * len(rows) if is_aligned else [_box_edges([row]) for row in rows]
    right = max(float(edges[-1]) for edges in columns)
    width = float(np.clip(0.27 * right + 2.6, 4.5, 11.0))
    figure = Figure(figsize=(width, 0.9 + 0.36 * len(states)), layout="constrained")
    axes = figure.add_subplot()
    colours = _client_colours(figure, axes, record, seed)
    for y, (row, edges) in enumerate(zip(rows, columns, strict=True)):
        _row(axes, y, row, edges, colours)
    axes.set_yticks(range(len(states)), [f"round {r}" for r in states])
    axes.set(xlim=(-0.4, right + 1.3), ylim=(len(states) - 0.4, -0.6), xticks=[])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    left_out = f" ({len(states)} of {len(found)} changes)" if len(states) < len(found) else ""
    axes.set_title(f"{short(record.label)}, seed {seed}: clusters of clients{left_out}", loc="left")
    return figure


@styled
def similarity_matrices(
    record: Record, seed: int | None = None, rounds: Sequence[int] = (), by_cluster: bool = True
) -> Figure:
    """Figure 4.11: similarity of the clients after some rounds (an early, a middle and the last one), on one scale.

    Clients are in the order of their clusters or of their ids, the same in every matrix; frames are
    the clusters of that round.
    """
    seed = record.started[0] if seed is None else seed
    found = _needed(record.similarity(seed), record, seed, "similarity")
    last = len(found) - 1  # The first of the three shortly after the start, as in the thesis.
    early_middle_last = [list(found)[place] for place in sorted({last // 6, last // 2, last})]
    chosen = [r for r in rounds if r in found] or early_middle_last
    ids = list(record.similarity_of(seed))
    order = [client for client in (_last_order(record, seed) if by_cluster else sorted(ids)) if client in ids]
    places = [ids.index(client) for client in order]
    figure = Figure(figsize=(2.45 * len(chosen) + 1.1, 3.0), layout="constrained")
    panels = figure.subplots(1, len(chosen), squeeze=False)[0]
    for axes, r in zip(panels, chosen, strict=True):
        image = _matrix(axes, found[r][np.ix_(places, places)], order)
        _frames(axes, record.clusters(seed).get(r, ()), order)
        axes.set_title(f"after round {r} of {record.rounds}")
        axes.set_xlabel("client, by cluster" if by_cluster else "client")
    figure.colorbar(image, ax=list(panels), label="similarity", shrink=0.8, ticks=[-1, -0.5, 0, 0.5, 1])
    sample = "" if len(ids) == record.clients else f": {len(ids)} of {record.clients} clients"
    figure.suptitle(f"{short(record.label)}, seed {seed}{sample}", fontsize=9, x=0.01, ha="left")
    return figure


def client_order(record: Record, seed: int) -> list[int]:
    """All client ids of a seed so that clusters stay together in every round, as far as they are nested.

    Clusters are sorted by their members' preferences, so neighbours have similar ones.
    """
    preferences = _rounded_preferences(record, seed)
    ids = set(range(record.clients))
    history = list(_changes(record.clusters(seed)).values())
    ids |= {client for clusters in history for cluster in clusters for client in cluster}
    keys: dict[int, list[object]] = {client: [] for client in ids}
    for clusters in history:
        ranked = sorted(clusters, key=lambda cluster: (_mean_preference(cluster, preferences), min(cluster)))
        rank = {client: i for i, cluster in enumerate(ranked) for client in cluster}
        for client in ids:
            keys[client].append(rank.get(client, len(ranked)))
    return sorted(ids, key=lambda client: (keys[client], preferences.get(client, ()), client))


def _last_order(record: Record, seed: int) -> list[int]:
    """`client_order`, rearranged where clients changed places so that the last clusters stay together."""
    order = client_order(record, seed)
    last = list(record.clusters(seed).values())[-1:]
    together = [client for clusters in last for row in _arranged(clusters, order) for client in row]
    return together + [client for client in order if client not in together]


def _needed(found: dict[int, T], record: Record, seed: int, what: str) -> dict[int, T]:
    if not found:
        raise UserError(f"{record.folder}: '{record.algorithm}' recorded no {what} for seed {seed}")
    return found


def _rounded_preferences(record: Record, seed: int) -> dict[int, tuple[float, ...]]:
    """Preferences by client id, rounded so that equal means equal; without unknown ones."""
    found = record.preferences(seed)
    if found is None:
        return {}
    known = np.flatnonzero(np.isfinite(found).all(axis=1))
    return {int(client): tuple(np.round(found[client], 6).tolist()) for client in known}


def _mean_preference(cluster: Sequence[int], preferences: dict[int, tuple[float, ...]]) -> list[float]:
    known = [preferences[client] for client in cluster if client in preferences]
    return [float(value) for value in np.mean(known, axis=0)] if known else []


def _changes(history: dict[int, Clusters]) -> dict[int, Clusters]:
    rounds = list(history)
    sets = [{frozenset(cluster) for cluster in history[r]} for r in rounds]
    kept = [r for i, r in enumerate(rounds) if i == 0 or sets[i] != sets[i - 1]]
    if rounds and kept[-1] != rounds[-1]:
        kept.append(rounds[-1])
    return {r: history[r] for r in kept}


def _arranged(clusters: Clusters, order: Sequence[int]) -> list[list[int]]:
    """The clusters from left to right, each with its members from left to right."""
    place = {client: i for i, client in enumerate(order)}
    rows = [sorted(cluster, key=lambda client: place[client]) for cluster in clusters]
    return sorted(rows, key=lambda row: float(np.mean([place[client] for client in row])))


def _box_edges(rows: Sequence[list[list[int]]]) -> Array:
    """Left edges of boxes: neighbours in different clusters in any row are apart in all rows."""
    n = max(sum(len(cluster) for cluster in row) for row in rows)
    steps = np.ones(n)
    steps[0] = 0
    for row in rows:
        starts = np.cumsum([len(cluster) for cluster in row])[:-1]
        steps[starts] = 1 + GAP
    return np.asarray(np.cumsum(steps))


def _row(axes: Axes, y: int, row: list[list[int]], edges: Array, colours: dict[int, tuple[float, ...]]) -> None:
    start, bars = 0, []
    for cluster in row:
        left, right = edges[start], edges[start + len(cluster) - 1] + 1
        bars.append((left - 0.12, right - left + 0.24 - (1 - BOX)))
        start += len(cluster)
    clients = [client for cluster in row for client in cluster]
    boxes = [(x, BOX) for x in edges[: len(clients)]]
    axes.broken_barh(bars, (y - BAR_HEIGHT / 2, BAR_HEIGHT), facecolor=BAR, edgecolor="#808080", lw=0.6)
    axes.broken_barh(boxes, (y - BOX / 4, BOX / 2), facecolors=[colours[client] for client in clients])
    if len(clients) <= MOST_IDS:
        for x, client in zip(edges, clients, strict=False):
            lightness = float(np.dot(colours[client][:3], (0.2126, 0.7152, 0.0722)))  # By ITU-R BT.709.
            ink = "black" if lightness > 0.5 else "white"
            axes.text(x + BOX / 2, y, str(client), ha="center", va="center_baseline", fontsize=6.5, color=ink)


def _client_colours(figure: Figure, axes: Axes, record: Record, seed: int) -> dict[int, tuple[float, ...]]:
    preferences = _rounded_preferences(record, seed)
    ids = client_order(record, seed)
    if any(client not in preferences for client in ids):
        figure.legend(
            handles=[Patch(color=UNKNOWN, label="client (preference\nnot known)")],
            loc="outside right upper",
        )
        return dict.fromkeys(ids, to_rgb(UNKNOWN))
    groups = sorted(set(preferences.values()), reverse=True)
    if len(groups) <= len(PALETTE) and (len(groups) < len(ids) or len(ids) == 1):
        colours = {group: to_rgb(PALETTE[i]) for i, group in enumerate(groups)}
        handles = [
            Patch(color=colours[group], label=", ".join(f"{weight:.3g}" for weight in group)) for group in groups
        ]
        names = ", ".join(short(objective.name) for objective in record.objectives)
        title = textwrap.fill(f"preference for {names}", 26)
        figure.legend(handles=handles, loc="outside right upper", title=title, alignment="left")
        return {client: colours[preference] for client, preference in preferences.items()}
    scale = ScalarMappable(Normalize(0, 1), mpl.colormaps["viridis"])
    label = f"preference for {short(record.objectives[0].name)}"
    figure.colorbar(scale, ax=axes, label=label, ticks=[0, 0.5, 1], fraction=0.03, pad=0.02)
    return {client: tuple(scale.to_rgba(row[0])) for client, row in preferences.items()}  # type: ignore[arg-type]


def _matrix(axes: Axes, values: Array, order: Sequence[int]) -> AxesImage:
    colours = mpl.colormaps["RdBu_r"].with_extremes(bad="#BBBBBB")
    image = axes.imshow(values, vmin=-1, vmax=1, cmap=colours, interpolation="nearest")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=5.5)
    shown = range(len(order)) if len(order) <= MOST_IDS // 2 else []
    labels = [str(order[i]) for i in shown]
    axes.set_xticks(shown, labels)
    axes.set_yticks(shown, labels)
    return image


def _frames(axes: Axes, clusters: Clusters, order: Sequence[int]) -> None:
    place = {client: i for i, client in enumerate(order)}
    for cluster in clusters:
        where = sorted(place[client] for client in cluster if client in place)
        # A cluster of an earlier round may be scattered over the order; a frame would then be wrong.
        if where and where[-1] - where[0] == len(where) - 1:
            corner, side = where[0] - 0.5, len(where)
            axes.add_patch(Rectangle((corner, corner), side, side, fill=False, ec="black", lw=1, clip_on=False))
