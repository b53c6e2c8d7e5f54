"""The figures of a mission: the map, contacts with what travelled in them, bytes, staleness, and what was learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from fedpareto.record.run_files import Array
from fedpareto.record.units import BYTES
from fedpareto.report.axes import Axis
from fedpareto.report.figures import fronts
from fedpareto.report.style import axis_label, colour, short, styled
from fedpareto_space.report import globe
from fedpareto_space.report.gantt import Span, gantt
from fedpareto_space.report.mission import HOUR, Mission

SEA, LAND = "#EAF1F7", "#CFD6CB"
MOST_TRACKS = 6
"""Satellites whose ground tracks are drawn; more would hide the map."""
MOST_ROUNDS = 200
"""Points of a curve over rounds; of more rounds, some are drawn together."""
MOST_PANELS = 6
WIDTH = 4.9
"""Inches of a chart; on a phone its letters are still read."""


def followed(mission: Mission) -> list[int]:
    """The satellites whose tracks are drawn: the first of each plane, or where there is only one, the first few."""
    first = [mission.planes.index(plane) for plane in sorted(set(mission.planes))]
    return (first if len(first) > 1 else list(range(len(mission.satellites))))[:MOST_TRACKS]


@styled
def mission_map(mission: Mission, named: bool = True) -> Figure:
    """Ground tracks of one revolution, and stations with the circles within which they hear satellites.

    The map fills the figure, so that a page can draw over it; `named` puts the stations' names beside them.
    """
    figure = Figure(figsize=(9.0, 4.5))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-180, 180)
    axes.set_ylim(-90, 90)
    figure.patch.set_facecolor(SEA)
    axes.add_collection(PolyCollection(globe.coastlines(), facecolors=LAND, linewidths=0))
    for place, station in enumerate(mission.stations):
        if np.isfinite(station.latitude):
            _station(axes, mission, place, named)
    if mission.tracks is not None:
        _tracks(axes, mission)
    return figure


def _station(axes: Axes, mission: Mission, place: int, named: bool) -> None:
    station = mission.stations[place]
    if not station.relay and np.isfinite(mission.altitude):
        around = globe.circle(station, globe.sight(station, mission.altitude))
        for turn in (-360, 0, 360):
            line = around + np.array([turn, 0.0])
            if line[:, 0].max() > -180 and line[:, 0].min() < 180:
                axes.fill(*globe.filled(line).T, facecolor=colour(place), alpha=0.16, lw=0)
                axes.plot(*line.T, color=colour(place), lw=0.8)
    mark = "s" if station.relay else "^"
    at = (station.longitude + 180) % 360 - 180, station.latitude
    axes.plot(*at, marker=mark, ms=6, color=colour(place), mec="white", mew=0.6, zorder=4)
    if named:
        on_the_right = at[0] > 120
        axes.annotate(
            short(station.name),
            at,
            (-6 if on_the_right else 6, 5),
            textcoords="offset points",
            ha="right" if on_the_right else "left",
            fontsize=8.5,
            zorder=5,
        )


def _tracks(axes: Axes, mission: Mission) -> None:
    """One revolution of each satellite that is followed, from a dot on."""
    tracks, which = mission.tracks, np.array(followed(mission))
    assert tracks is not None, "only orbits have tracks"
    end = min(globe.revolution(mission.altitude), tracks.seconds)
    at = np.linspace(0, end, 120)
    for place, (latitude, longitude) in enumerate(zip(*globe.between(tracks, which, at), strict=True)):
        line = globe.cut_at_the_edge(longitude, latitude)
        axes.plot(*line, color=colour(place), lw=1.1, alpha=0.75, gid=f"track-{place}")
        axes.plot(longitude[0], latitude[0], "o", ms=3.5, color=colour(place), zorder=3)


def contacts(mission: Mission) -> Figure:
    """A row for each satellite: its contacts, pale in the colour of the station; in them tasks above, replies below."""
    names, stations = mission.satellites, [one.name for one in mission.stations]
    spans = [
        Span(names[int(satellite)], start / HOUR, end / HOUR, stations[int(station)], pale=True)
        for start, end, satellite, station in mission.contacts.tolist()
    ]
    spans += [
        Span(
            names[one.satellite],
            one.start / HOUR,
            one.end / HOUR,
            stations[one.station],
            part="upper" if one.way == "task" else "lower",
        )
        for one in mission.transfers
    ]
    return gantt(spans, names, stations, "simulated hours", mission.seconds / HOUR)


def bytes_by_round(mission: Mission) -> tuple[NDArray[np.int64], Array, Array]:
    """Rounds `[r]`; bytes on the air `[r, 2]`, of tasks and of replies that were asked in each, mean over seeds; and
    what so many whole models would have been, `[r, 2]`.
    """
    trips = [trip for seed in mission.record.started for trip in mission.trips.get(seed, ())]
    rounds = np.array([trip.round for trip in trips], dtype=np.int64)
    size = int(rounds.max(initial=0)) + 1
    arrived = np.array([[trip.received, trip.arrives] for trip in trips]).reshape(-1, 2) <= mission.seconds
    sent = np.array([[trip.down, trip.up] for trip in trips]).reshape(-1, 2) * arrived
    seeds = len(mission.record.started)
    air, count = (
        np.stack([np.bincount(rounds, one[:, way], size) for way in (0, 1)], axis=1) / seeds
        for one in (sent, arrived.astype(np.float64))
    )
    asked = np.flatnonzero(count.any(axis=1)).astype(np.int64)
    return asked, air[asked], count[asked] * mission.model_bytes


@styled
def bytes_figure(mission: Mission) -> Figure:
    """Bytes on the air of each round in both directions, beside as many whole models."""
    figure, axes = _chart(2.9)
    rounds, air, whole = bytes_by_round(mission)
    every = max(1, -(-len(rounds) // MOST_ROUNDS))
    places = _grouped(rounds.astype(np.float64)[:, None], every)[:, 0]
    name, size = BYTES.unit(float(max(air.max(initial=0.0), whole.max(initial=0.0))))
    for way, label in enumerate(("tasks, to satellites", "replies, from satellites")):
        line = "-" if len(places) > 1 else "o"
        axes.plot(places, _grouped(air, every)[:, way] / size, line, color=colour(way), lw=1.5, label=label)
    ways = {"as many whole models": 0} if np.array_equal(whole[:, 0], whole[:, 1]) else {"tasks": 0, "replies": 1}
    for label, way in ways.items():
        told = label if len(ways) == 1 else f"as many whole models ({label})"
        line = "--" if len(places) > 1 else "x"
        axes.plot(
            places, _grouped(whole, every)[:, way] / size, line, color="black", lw=1, alpha=1 - 0.5 * way, label=told
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("round in which it was asked" + (f" (means of {every})" if every > 1 else ""))
    axes.set_ylabel(f"{name} on the air")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _grouped(values: Array, every: int) -> Array:
    """Means `[g, k]` of so many rows each of `[r, k]`."""
    starts = np.arange(0, len(values), every)
    sizes = np.diff(np.append(starts, len(values)))
    return np.asarray(np.add.reduceat(values, starts, axis=0) / sizes[:, None]) if len(values) else values


@styled
def staleness_figure(mission: Mission) -> Figure:
    figure, axes = _chart(2.6)
    counts = Counter(late for seed in mission.record.started for late in mission.staleness(seed))
    axes.bar(list(counts), list(counts.values()), width=0.85, color=colour(0))
    axes.set_xlabel("rounds ago that a reply began")
    axes.set_ylabel("replies")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(min(counts, default=0) - 0.6, max(counts, default=0) + 0.6)
    return figure


@styled
def learning_figure(mission: Mission) -> Figure:
    """Hypervolume, where there are several objectives, and the clients' mean of each, over simulated hours."""
    panels = list(_learnt(mission))[:MOST_PANELS]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 2.3 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    axis = Axis("clock", "simulated hours", HOUR)
    for axes, (title, values) in zip(grid, panels, strict=False):
        places, found = axis.placed(mission.record, mission.record.common_rounds, values)
        mean, deviation = found.mean(axis=0), found.std(axis=0)
        dot = "o" if len(places) == 1 else None
        axes.plot(places, mean, color=colour(0), lw=1.5, marker=dot, drawstyle=axis.drawstyle)
        if len(found) > 1:
            low, high = mean - deviation, mean + deviation
            axes.fill_between(places, low, high, color=colour(0), alpha=0.18, lw=0, step=axis.step)
        axes.set_title(title)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 3, 6, 10]))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.supxlabel(axis.label, fontsize=9)
    return figure


def _learnt(mission: Mission) -> Iterator[tuple[str, Array]]:
    record = mission.record
    if not record.single:
        yield "hypervolume\n(higher is better)", record.hypervolume
    for place, objective in enumerate(record.objectives):
        yield f"mean {axis_label(objective, chr(10))}", record.mean_over_rounds(place)


def front_figure(mission: Mission) -> Figure:
    """The final models of all clients and seeds; of a single objective, which has no front, the clients."""
    return fronts([mission.record])


def _chart(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure, axes


FIGURES = {
    "map": mission_map,
    "contacts": contacts,
    "learning": learning_figure,
    "front": front_figure,
    "bytes": bytes_figure,
    "staleness": staleness_figure,
}
