"""One page for a mission, which needs no other file: the constellation over a map, who talked to whom and what
travelled then, what was learnt by when, what it took, and what went wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.record.phrases import counted
from fedpareto.record.units import BYTES, ENERGY, TIME
from fedpareto.report.style import PALETTE, render
from fedpareto_space.report import mission_figures as draw
from fedpareto_space.report.mission import HOUR, Mission, Station, Summary, Transfer

COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#e6e6e6": "var(--edge)"}
"""Replacements of colours that are right on white paper only."""
TAG = re.compile("<[^>]+>")
DIGITS = re.compile(r"(\d\.\d)\d+(?![\de])")
"""Places in an SVG are cut to a tenth of a point."""
PAGE = "mission.html"
STATES = {"waiting": "#8A8F98", "receiving": "#0072B2", "training": "#E69F00", "sending": "#009E73"}
"""States of a satellite with their colours; safe for colour-blind readers."""
BAD = "#D62728"
MOST_TRANSFERS = 30_000
"""On a page; it would take long to open with more."""
MOST_FAULTS = 200
SPEEDS = {"1 min a second": 60, "5 min a second": 300, "20 min a second": 1200, "1 h a second": 3600}
USUAL_SPEED = "5 min a second"


def write_page(mission: Mission, out: Path) -> Path:
    write_atomically(out, page(mission))
    return out


def write_pictures(mission: Mission, folder: Path, kind: str) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"the folder {folder} cannot be made: {problem.strerror or problem}") from None
    found = []
    for name, figure in draw.FIGURES.items():
        found.append(folder / f"{name}.{kind}")
        write_atomically(found[-1], render(figure(mission), kind))
    return found


def page(mission: Mission) -> str:
    seeds = mission.record.started
    data = json.dumps(_data(mission), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    loader = PackageLoader("fedpareto_space", "report")
    made = Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["counted"] = counted
    whole = made.get_template("mission.html").render(
        mission=mission,
        record=mission.record,
        summary=mission.summary,
        facts=facts(mission.summary),
        stations=counted(len(mission.stations), "station"),
        figures=_figures(mission),
        names=[_beside(one) for one in mission.stations if np.isfinite(one.latitude)],
        shown=_shown(mission),
        faults=[
            [*([seed] if len(seeds) > 1 else []), clock(fault.time), fault.fault, fault.who, fault.action]
            for seed in seeds
            for fault in mission.faults.get(seed, ())
        ],
        each=[_satellite(mission, place) for place in range(len(mission.satellites))],
        whole_model=BYTES.text(mission.model_bytes),
        hour=HOUR,
        palette=PALETTE,
        states=STATES,
        speeds=SPEEDS,
        usual_speed=USUAL_SPEED,
        most_tracks=draw.MOST_TRACKS,
        most_faults=MOST_FAULTS,
        data=Markup(data),
        style=_own_file("mission.css"),
        script=_own_file("mission.js"),
    )
    return whole.lstrip()


def _own_file(name: str) -> Markup:
    return Markup(resources.files("fedpareto_space.report").joinpath(name).read_text(encoding="utf-8"))


# -- what it came to -----------------------------------------------------------------------------------------------


def facts(found: Summary) -> dict[str, str]:
    whole = found.planned_hours
    time = f"{found.hours:.1f} h" if found.hours >= 1 else TIME.text(HOUR * found.hours)
    return {
        "simulated time": time + (f" of {whole:g} h" if found.hours < 0.999 * whole else ""),
        "rounds": f"{found.rounds:,.0f}",
        "replies": f"{found.replies:,.0f}",
        "without a reply": f"{found.failures:,.0f}",
        "on the air to satellites": BYTES.text(found.air_down),
        "on the air from satellites": BYTES.text(found.air_up),
        "energy of all satellites": ENERGY.text(found.joules) if found.joules else "not simulated",
        "staleness": "0 rounds" if np.isnan(found.staleness) else f"{found.staleness:.1f} rounds",
        found.measure: f"{found.value:.4f}",
        "went wrong": counted(sum(found.faults.values()), "fault") if found.faults else "nothing",
    }


def clock(seconds: float) -> str:
    """Hours, minutes and seconds since the mission began."""
    if not np.isfinite(seconds):
        return "never"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _figures(mission: Mission) -> dict[str, Markup]:
    """All figures but that of the contacts, which the script draws; the map where orbits are known."""
    titles = {
        "learning": "What was learnt by when",
        "front": "Clients at the end" if mission.record.single else "The front at the end",
        "bytes": "Bytes a round",
        "staleness": "Staleness of replies",
    }
    found = {name: inline_svg(draw.FIGURES[name](mission), f"{name}-figure", title) for name, title in titles.items()}
    if mission.tracks is not None:
        alt = f"A map of the Earth with {counted(len(mission.stations), 'station')} and ground tracks"
        colours = {draw.SEA: "var(--sea)", draw.LAND: "var(--land)"}
        found["map"] = inline_svg(draw.mission_map(mission, named=False), "map", alt, colours)
    return found


def _beside(station: Station) -> dict[str, str]:
    """A station's name on the map: at the right edge it stands on the left, near the top below."""
    east = (station.longitude + 180) % 360 - 180
    place = {"left": f"{(east + 180) / 3.6:.1f}", "top": f"{(90 - station.latitude) / 1.8:.1f}"}
    beside = "name" + " left" * (east > 100) + " below" * (station.latitude > 60)
    return {"name": station.name, "beside": beside, **place}


def _satellite(mission: Mission, place: int) -> list[object]:
    """A satellite's contacts and messages as a row of a table."""
    own, end = mission.contacts[mission.contacts[:, 2] == place], mission.clock(mission.seed)
    trips = [one for one in mission.trips.get(mission.seed, ()) if one.satellite == place and one.received <= end]
    back = [trip for trip in trips if trip.arrives <= end]
    air = sum(trip.down for trip in trips) + sum(trip.up for trip in back)
    minutes = f"{(own[:, 1] - own[:, 0]).sum() / 60:,.0f}"
    counts = (mission.planes[place] + 1, len(own), minutes, len(trips), len(back))
    return [mission.satellites[place], *counts, BYTES.text(air)]


def inline_svg(figure: Figure, name: str, alt: str, colours: Mapping[str, str] | None = None) -> Markup:
    """The element `<svg>`; `name` keeps its ids apart from those of others, `alt` says what is to be seen."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    text = render(figure, "svg", as_text=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    for old, new in (COLOURS | dict(colours or {})).items():
        text = re.sub(old, new, text, flags=re.IGNORECASE)
    text = TAG.sub(lambda tag: DIGITS.sub(r"\1", tag[0]), text)  # Not in what is read: ticks have digits too.
    text = re.sub(r"\s*\n\s*", "\n", text)
    size = r'<svg [^>]*?viewBox="([^"]*)"[^>]*>'
    found = rf'<svg class="chart" viewBox="\1" role="img" aria-label="{escape(alt)}">'
    return Markup(re.sub(size, found, text, count=1))


# -- what the script reads -----------------------------------------------------------------------------------------


def _shown(mission: Mission) -> list[Transfer]:
    return mission.transfers[:MOST_TRANSFERS]


def _data(mission: Mission) -> dict[str, Any]:
    """All that moves, in whole seconds; spans are told by the way to the next one, which takes few digits."""
    satellites = range(len(mission.satellites))
    sent = _shown(mission)
    until = sent[-1].start if len(sent) < len(mission.transfers) else np.inf
    trips = [trip for trip in mission.trips.get(mission.seed, ()) if trip.received < min(until, mission.seconds)]
    found: dict[str, Any] = {
        "start": round(1000 * mission.start.timestamp()),
        "seconds": mission.seconds,
        "satellites": list(mission.satellites),
        "planes": list(mission.planes),
        "stations": [
            {"name": one.name, "latitude": _known(one.latitude), "longitude": _known(one.longitude)}
            for one in mission.stations
        ],
        "palette": list(PALETTE),
        "states": list(STATES.values()),
        "bad": BAD,
        "contacts": [_spans(_of(mission, place)) for place in satellites],
        "transfers": [
            _spans((one.start, one.end, one.station, int(one.way == "reply")) for one in sent if one.satellite == place)
            for place in satellites
        ],
        "training": [
            _spans((one.received, min(one.ready, mission.seconds)) for one in trips if one.satellite == place)
            for place in satellites
        ],
        "faults": [
            [round(fault.time), mission.satellites.index(fault.who)]
            for fault in mission.faults.get(mission.seed, ())
            if fault.who in mission.satellites and np.isfinite(fault.time)
        ],
        "tracks": None,
    }
    if mission.tracks is not None:
        places = (mission.tracks.latitude, mission.tracks.longitude)
        found["tracks"] = {"step": mission.tracks.step} | {
            name: [_steps(row) for row in one] for name, one in zip(("latitude", "longitude"), places, strict=True)
        }
    return found


def _of(mission: Mission, satellite: int) -> Iterator[tuple[float, float, int]]:
    for start, end, _, station in mission.contacts[mission.contacts[:, 2] == satellite].tolist():
        yield start, end, int(station)


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _spans(found: Any) -> list[int]:
    """Start and end of each, and whatever else, flat: the start from the last one's, the end from the start."""
    rows, before = list[tuple[int, ...]](), 0
    for start, end, *others in sorted(found):
        first = round(start)
        rows.append((first - before, round(end) - first, *others))
        before = first
    return list(chain.from_iterable(rows))


def _steps(row: np.ndarray) -> list[int]:
    whole = np.rint(10 * row).astype(int)
    return [int(whole[0]), *np.diff(whole).tolist()]
