"""One page for a mission, which needs no other file: the constellation over a map, who talked to whom and what
travelled then, what was learnt by when, what it took, and what went wrong.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.record.phrases import counted
from fedpareto.record.units import BYTES, ENERGY, TIME
from fedpareto.report.style import PALETTE, render
from fedpareto_space.report import mission_figures as draw
from fedpareto_space.report.mission import HOUR, Mission, Station, Summary, Transfer

COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#e6e6e6": "var(--edge)"}
"""What becomes of colours that are right on white paper only."""
TAG = re.compile("<[^>]+>")
DIGITS = re.compile(r"(\d\.\d)\d+(?![\de])")
"""Of a place, to a tenth of a point."""


def inline_svg(figure: Figure, name: str, alt: str, colours: Mapping[str, str] | None = None) -> str:
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
    return re.sub(size, rf'<svg class="chart" viewBox="\1" role="img" aria-label="{html.escape(alt)}">', text, count=1)


PAGE = "mission.html"
"""In a run's folder."""
STATES = {"waiting": "#8A8F98", "receiving": "#0072B2", "training": "#E69F00", "sending": "#009E73"}
"""What a satellite does, and its colour; safe for colour-blind readers."""
BAD = "#D62728"
MOST_TRANSFERS = 30_000
"""On a page; it would take long to open with more."""
MOST_FAULTS = 200
"""Rows of the fault log."""
SPEEDS = {"1 min a second": 60, "5 min a second": 300, "20 min a second": 1200, "1 h a second": 3600}
USUAL_SPEED = "5 min a second"


def write_page(mission: Mission, out: Path) -> Path:
    """Writes the page in one step; its path."""
    write_atomically(out, page(mission))
    return out


def write_pictures(mission: Mission, folder: Path, kind: str) -> list[Path]:
    """The figures as `png` or `pdf`, a file each."""
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
    """The whole page."""
    record = mission.record
    title = f"{record.algorithm} on {record.problem}: {counted(len(mission.satellites), 'satellite')}"
    sections = [
        _head(mission),
        _constellation(mission),
        _contacts(mission),
        _learnt(mission),
        _cost(mission),
        _faults(mission),
        _satellites(mission),
        _details("The run's spec", f"<pre>{html.escape(record.spec)}</pre>"),
    ]
    data = json.dumps(_data(mission), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    style, script = _own_file("mission.css"), _own_file("mission.js")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{''.join(sections)}"
        f'<script type="application/json" id="mission-data">{data}</script>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _own_file(name: str) -> str:
    return resources.files("fedpareto_space.report").joinpath(name).read_text(encoding="utf-8")


# -- what it came to -----------------------------------------------------------------------------------------------


def facts(found: Summary) -> dict[str, str]:
    """The mission in a few words each."""
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


def _head(mission: Mission) -> str:
    record, summary = mission.record, mission.summary
    of_seeds = f"; means of {summary.seeds} seeds" if summary.seeds > 1 else ""
    goals = ", ".join(f"{o.name} ({o.better} is better)" for o in record.objectives)
    going = "" if record.finished else f" The run is not finished: this is how it stands ({record.status.name})."
    about = (
        f"From {mission.start:%Y-%m-%d %H:%M} UTC, {counted(len(mission.satellites), 'satellite')}, "
        f"{counted(len(mission.stations), 'station')}{of_seeds}. Objectives: {goals}.{going}"
    )
    cells = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in facts(summary).items()
    )
    return f'<p class="soft">{html.escape(about)}</p>\n<dl class="facts">{cells}</dl>\n'


# -- the constellation ---------------------------------------------------------------------------------------------


def _constellation(mission: Mission) -> str:
    if mission.tracks is None:
        return _section("The constellation", "Only a contact plan is known, and no orbits: there is no map.", "")
    many = len(set(mission.planes)) > 1
    lines = "of the first satellite of each plane" if many else "of the first satellites"
    most = f" ({draw.MOST_TRACKS} at most)"
    until = min(mission.tracks.seconds, mission.seconds)
    short = "" if until >= mission.seconds else f" Places are known for the first {until / HOUR:.0f} h."
    sentence = (
        f"Lines are the ground tracks of one revolution {lines}{most}. A station hears satellites inside its circle; a "
        "line to it is a contact, a thick one a message on its way. Where it is dark it is night. On the map, the "
        f"space bar plays and stops, arrow keys move a minute, with Shift ten.{short}"
    )
    figure = draw.mission_map(mission, named=False)
    alt = f"A map of the Earth with {counted(len(mission.stations), 'station')} and ground tracks"
    drawn = inline_svg(figure, "map", alt, {draw.SEA: "var(--sea)", draw.LAND: "var(--land)"})
    names = "".join(
        f'<span class="{_beside(one)}" '
        f'style="left:{(_east(one.longitude) + 180) / 3.6:.1f}%;top:{(90 - one.latitude) / 1.8:.1f}%">'
        f"{html.escape(one.name)}</span>"
        for one in mission.stations
        if np.isfinite(one.latitude)
    )
    canvas = '<canvas id="sky" tabindex="0" role="img" aria-label="The satellites at the chosen time"></canvas>'
    return _section("The constellation", sentence, f'<div id="map">{drawn}{canvas}{names}</div>{_controls()}')


def _controls() -> str:
    speeds = "".join(
        f'<option value="{seconds}"{" selected" * (name == USUAL_SPEED)}>{name}</option>'
        for name, seconds in SPEEDS.items()
    )
    states = "".join(f"<span>{_dot(colour)}{name} <b>0</b></span>" for name, colour in STATES.items())
    return (
        '<div class="controls"><button type="button" id="play">Play</button>'
        '<input type="range" id="time" min="0" value="0" aria-label="Simulated time">'
        '<output id="now">0:00:00 h</output>'
        f'<label>speed <select id="speed">{speeds}</select></label>'
        '<label>colours <select id="colouring"><option value="doing">what they do</option>'
        '<option value="plane">planes</option></select></label>'
        '<label><input type="checkbox" id="tracks" checked> ground tracks</label></div>'
        f'<p class="soft key" id="counts">{states}</p>'
    )


def _beside(station: Station) -> str:
    """Where a name has room: at the right edge it stands on the left, near the top below."""
    return "name" + " left" * (_east(station.longitude) > 100) + " below" * (station.latitude > 60)


def _east(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


def _dot(colour: str) -> str:
    return f'<span class="dot" style="background:{colour}"></span>'


def _contacts(mission: Mission) -> str:
    title = "Contacts, and what travelled in them"
    if not mission.stations:
        return _section(title, "Nobody is on the ground: satellites exchange their models with each other.", "")
    shown = _shown(mission)
    cut = ""
    if len(shown) < len(mission.transfers):
        cut = f" Only the first {len(shown):,} transfers are drawn, those until {shown[-1].end / HOUR:.0f} h."
    of_seed = "" if len(mission.record.started) == 1 else f" This is seed {mission.seed}."
    sentence = (
        "A row for each satellite; a bar is a contact, in the colour of the station. In it, above a task on its way to "
        "the satellite, below a reply on its way back, if it arrived. A message that also travels through other "
        "satellites is drawn only in its own satellite's contacts. A cross is a fault. Click or tap for what happens "
        "then; drag, or use + − ← → and 0 on the keyboard, to look closer."
        f"{of_seed}{cut}"
    )
    key = "".join(
        f"<span>{_dot(_coloured(place))}{html.escape(one.name)}</span>" for place, one in enumerate(mission.stations)
    )
    ways = {"zoom-in": "Closer", "zoom-out": "Farther", "earlier": "Earlier", "later": "Later", "everything": "All"}
    buttons = "".join(f'<button type="button" id="{name}">{word}</button>' for name, word in ways.items())
    label = f"{len(mission.contacts)} contacts of {counted(len(mission.satellites), 'satellite')}"
    body = (
        f'<p class="soft key">{key}</p><div class="controls">{buttons}</div>'
        f'<canvas id="chart" tabindex="0" role="img" aria-label="{label}"></canvas>'
        '<p class="soft" id="readout" aria-live="polite"></p>'
        "<noscript><p>This chart and the moving satellites need JavaScript; pictures of them are made by "
        "<code>fedpareto space look FOLDER --pictures FOLDER</code>.</p></noscript>"
    )
    return _section(title, sentence, body)


def _coloured(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


# -- figures -------------------------------------------------------------------------------------------------------


def _learnt(mission: Mission) -> str:
    front = "Clients at the end" if mission.record.single else "The front at the end"
    at_the_end = (
        "Every dot is a client's final model, over all seeds."
        if mission.record.single
        else "Every point is a client's final model; those that no other beats in all objectives are joined."
    )
    return (
        '<div class="pair">'
        + _figure(
            "What was learnt by when",
            "Of the models that the server has at that time, mean over clients; the band is one deviation over seeds.",
            draw.learning_figure,
            mission,
        )
        + _figure(front, at_the_end, draw.front_figure, mission)
        + "</div>\n"
    )


def _cost(mission: Mission) -> str:
    whole = BYTES.text(mission.model_bytes)
    sentence = (
        "With headers, frames and what was sent again, mean over seeds; the dashed line is as many whole models of "
        f"{whole} as messages arrived, without any of that."
    )
    return (
        '<div class="pair">'
        + _figure("Bytes a round", sentence, draw.bytes_figure, mission)
        + _figure(
            "Staleness of replies",
            "How many rounds before the one that it counted in a reply began.",
            draw.staleness_figure,
            mission,
        )
        + "</div>\n"
    )


def _figure(title: str, sentence: str, make: Callable[[Mission], Figure], mission: Mission) -> str:
    return _section(title, sentence, inline_svg(make(mission), make.__name__.replace("_", "-"), title))


# -- tables --------------------------------------------------------------------------------------------------------


def _faults(mission: Mission) -> str:
    every = [(seed, fault) for seed in mission.record.started for fault in mission.faults.get(seed, ())]
    if not every:
        return _section("What went wrong", "Nothing did.", "")
    by_name = ", ".join(f"{name} ({times})" for name, times in mission.summary.faults.items())
    left_out = f" The first {MOST_FAULTS} are listed." if len(every) > MOST_FAULTS else ""
    several = len(mission.record.started) > 1
    heads = [*(["seed"] if several else []), "when", "what", "who", "what was done"]
    rows = [
        [*([seed] if several else []), clock(fault.time), fault.fault, fault.who, fault.action]
        for seed, fault in every[:MOST_FAULTS]
    ]
    return _section("What went wrong", f"By kind: {by_name}.{left_out}", _table(heads, rows))


def _satellites(mission: Mission) -> str:
    trips = mission.trips.get(mission.seed, ())
    heads = ["satellite", "plane", "contacts", "minutes in contact", "tasks received", "replies", "on the air"]
    end, rows = mission.clock(mission.seed), []
    for place, name in enumerate(mission.satellites):
        own = mission.contacts[mission.contacts[:, 2] == place]
        tasks = [trip for trip in trips if trip.satellite == place and trip.received <= end]
        back = [trip for trip in tasks if trip.arrives <= end]
        air = sum(trip.down for trip in tasks) + sum(trip.up for trip in back)
        minutes = (own[:, 1] - own[:, 0]).sum() / 60
        rows.append(
            [name, mission.planes[place] + 1, len(own), f"{minutes:,.0f}", len(tasks), len(back), BYTES.text(air)]
        )
    return _details("Each satellite", _table(heads, rows))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds since the mission began."""
    if not np.isfinite(seconds):
        return "never"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    table = f'<table class="text">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
    return f'<div class="wide">{table}</div>\n'


def _details(title: str, body: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{body}</details>\n"


def _section(title: str, sentence: str, body: str) -> str:
    """A heading, a few sentences (escaped here) and a body that is HTML already."""
    return f"<section>\n<h2>{html.escape(title)}</h2>\n<p>{html.escape(sentence)}</p>\n{body}\n</section>\n"


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
    """Tenths of a degree, each from the one before."""
    whole = np.rint(10 * row).astype(int)
    return [int(whole[0]), *np.diff(whole).tolist()]
