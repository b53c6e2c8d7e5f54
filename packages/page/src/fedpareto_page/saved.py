"""The page as one file: the same scripts, with what they ask for written into it. It needs no server and no network.

Scripts are modules that import each other by path; in a file of its own each has a name instead, and an import map says
that the name is a data: address. The policy of the file lets nothing in but what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text
from fedpareto.record.entries import EVALUATIONS
from fedpareto_page import queries
from fedpareto_page.watch import Shelf

STATIC = Path(__file__).parent / "static"
STYLE, MAIN = (
    '<link rel="stylesheet" href="/static/style.css">',
    '<script type="module" src="/static/main.js"></script>',
)
"""Lines of index.html in place of the style and of the scripts."""
ASK = re.compile(r'((?:from|import)\s*\(?\s*)"(\.\.?/[^"]+)"')
"""A module's name in another module."""
FIRST = "main.js"
LIVE_SCREENS = ("attacks", "dial", "federation", "new", "studies")
"""Screens of what a server does."""
LIVE = frozenset({"stream.js", "tabs.js", *(f"screens/{name}.js" for name in LIVE_SCREENS)})
"""Modules that are of no use without a server; the page does not offer their screens then."""
PREFIX = "fedpareto/"
"""Beginning of the modules' names."""
VIEW = "/fronts"
Answer = dict[str, Any] | bytes


def saved(shelf: Shelf, ids: Sequence[str], view: str = VIEW) -> bytes:
    """One HTML file with these runs, which begins with a view such as "/fronts?seed=1"."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    style = "".join(
        one.read_text(encoding="utf-8") for one in (STATIC / "style.css", *sorted(STATIC.glob("screens/*.css")))
    )
    names, begin = json_text({"imports": dict(_modules())}), f'import "{PREFIX}{FIRST}";'
    policy = (
        f"default-src 'none'; script-src {_digest(names)} {_digest(begin)} data:; style-src {_digest(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    # No text in it can end the script around it.
    content = json_text(dict(_answers(shelf, ids, view)), separators=(",", ":")).replace("<", "\\u003c")
    scripts = (
        f'<script type="importmap">{names}</script>\n'
        f'<script type="application/json" id="saved">{content}</script>\n'
        f'<script type="module">{begin}</script>'
    )
    parts = {
        '<html lang="en">': f'<html lang="en" data-view="{html.escape(_address(view, ids))}">',
        STYLE: f'<meta http-equiv="content-security-policy" content="{policy}">\n<style>{style}</style>',
        MAIN: scripts,
    }
    for place, content in parts.items():
        before, found, after = page.partition(place)
        assert found, f"index.html has no {place}"
        page = before + content + after
    return page.encode()


def _digest(text: str) -> str:
    """The name of a script or a style in a policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _modules() -> Iterator[tuple[str, str]]:
    """Each module's name and address: the first one, those that it asks for, and so on."""
    known, left = {*LIVE, FIRST}, [FIRST]
    while left:
        own = left.pop()
        needed: list[str] = []

        def named(found: re.Match[str], own: str = own, needed: list[str] = needed) -> str:
            needed.append(posixpath.normpath(posixpath.join(posixpath.dirname(own), found[2])))
            return f'{found[1]}"{PREFIX}{needed[-1]}"'

        script = ASK.sub(named, (STATIC / own).read_text(encoding="utf-8"))
        yield PREFIX + own, "data:text/javascript;base64," + base64.b64encode(script.encode()).decode()
        left += sorted(set(needed) - known)
        known |= set(needed)


def _address(view: str, ids: Sequence[str]) -> str:
    path, _, query = view.partition("?")
    given = [(name, value) for name, value in parse_qsl(query) if name not in ("runs", "token")]
    return f"{path if path.startswith('/') else VIEW}?{urlencode([('runs', ','.join(ids)), *given], safe=',:~/')}"


def _answers(shelf: Shelf, ids: Sequence[str], view: str) -> Iterator[tuple[str, Any]]:
    """Everything that the page may ask for, by the path with which it does."""
    for path, answer in _asked(shelf, ids, view):
        yield path, {"frame": base64.b64encode(answer).decode()} if isinstance(answer, bytes) else answer


def _asked(shelf: Shelf, ids: Sequence[str], view: str) -> Iterator[tuple[str, Answer]]:
    found = queries.runs(shelf)
    entries = {entry["id"]: entry for entry in found["runs"] if entry["id"] in ids}
    for entry in entries.values():
        if entry["error"] is not None:
            raise UserError(f"the run {entry['name']} cannot be saved: {entry['error']}")
    chosen = ",".join(ids)
    yield "/api/runs", {**found, "read_only": True, "server": None, "runs": list(entries.values()), "others": []}
    yield f"/api/compare?runs={chosen}", queries.compare(shelf, ids)
    rounds = {"latest": None, **dict(_round_of(view))}
    for id, entry in entries.items():
        path = f"/api/runs/{id}"
        yield path, queries.about(shelf, id)
        if not entry["lines"]:
            continue
        yield f"{path}/lines?since=0&epoch=0", queries.lines(shelf, id)
        yield f"{path}/events?since=0", queries.events(shelf, id)
        for split in entry["splits"]:
            name = quote(split, safe="!'()*~")  # As encodeURIComponent does.
            yield f"{path}/solutions?split={name}", queries.solutions(shelf, id, split)
            for evaluation in EVALUATIONS:
                path_of_values = f"{path}/values?eval={evaluation}&split={name}&since=0&epoch=0"
                yield path_of_values, queries.values(shelf, id, evaluation, split)
        for seed in entry["started"]:
            yield f"{path}/film?seed={seed}", queries.film(shelf, id, seed)
            yield f"{path}/grid?seed={seed}", queries.grid(shelf, id, seed)
            for text, round in rounds.items():
                asked = f"{path}/clients?seed={seed}&round={text}&runs={chosen}"
                yield asked, queries.clients(shelf, id, seed, round, ids)


def _round_of(view: str) -> Iterator[tuple[str, int]]:
    """The round that a view shows, if it is not the latest."""
    for name, text in parse_qsl(view.partition("?")[2]):
        if name == "round" and text.isascii() and text.isdecimal():
            yield text, int(text)
