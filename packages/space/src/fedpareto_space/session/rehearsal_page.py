"""A rehearsal as one page: what was sent, what came of it, and when which node did what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fedpareto_space.session.drive import Finished
from fedpareto_space.session.host import Note
from fedpareto_space.session.rehearsed import Rehearsal

WIDTH, ROW, LEFT = 860, 26, 90
"""Of the timeline, in pixels: its width, the height of a node's row, and the space for names."""
COLOURS = {"trains": "#4477aa", "asks": "#228833", "adopted": "#ccbb44"}
"""Safe for colour-blind readers."""
STYLE = """
body { font-family: system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .25rem .8rem; border-bottom: 1px solid #ddd; }
th { text-align: left; } .good { color: #117733; } .bad { color: #cc3311; font-weight: bold; }
svg text { font: 12px system-ui, sans-serif; } code { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } td, th { border-color: #444; }
 svg text { fill: #ddd; } .good { color: #77cc88; } .bad { color: #ff8866; } }
"""


def page(found: Rehearsal, finished: Finished) -> str:
    """The whole page; it needs no other file."""
    model, learnt = found.delivered, found.federated
    first = [
        ("packed model", f"{model.size:,} bytes"),
        ("sent for it", f"{model.sent:,} bytes in {model.packets:,} packets, of which {model.lost:,} were lost"),
        ("simulated time", f"{model.seconds:.1f} s at {found.rate:,.0f} bit/s, {found.loss:.0%} loss"),
        ("what arrived", _verdict(model.identical, "the same bytes", "other bytes")),
        ("predictions", _verdict(model.predictions_equal, f"equal bit for bit on {model.rows} rows", "not equal")),
        ("against the trained network", f"largest difference {model.difference:.1e}"),
    ]
    counted = ", ".join(f"{name} {count}" for name, count in learnt.messages.items())
    second = [
        ("run", f"{learnt.algorithm}, {learnt.clients} clients, {learnt.rounds} rounds"),
        ("agreement", f"<code>{learnt.agreement}</code>"),
        ("messages", escape(counted)),
        ("sent by all", f"{learnt.sent:,} bytes in {learnt.seconds:.1f} simulated seconds"),
        ("global model", f"<code>{learnt.digest}</code>"),
        ("against the local engine", _compared(learnt.equal, learnt.reference)),
    ]
    parts = [
        "<h1>A rehearsal for space</h1>",
        "<h2>A model from the ground to a satellite</h2>",
        _table(first),
        "<h2>A federation over the protocol</h2>",
        _table(second),
        timeline(finished.log, finished.seconds),
    ]
    if found.faults:
        done = sum(found.faults.values())
        parts.append(f"<h2>What goes wrong: {done} of {len(found.faults)} as agreed</h2>")
        parts.append(
            _table([(name, _verdict(good, "as agreed", "not as agreed")) for name, good in found.faults.items()])
        )
    head = f'<meta charset="utf-8"><title>A rehearsal for space</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _compared(equal: bool, reference: str) -> str:
    return _verdict(equal, "equal", f"not equal: {reference}") if reference else "not compared: the codec is lossy"


def _verdict(good: bool, yes: str, no: str) -> str:
    return f'<span class="{"good" if good else "bad"}">{escape(yes if good else no)}</span>'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{escape(name)}</th><td>{value}</td></tr>' for name, value in rows)}</table>"


def timeline(log: Sequence[Note], seconds: float) -> str:
    """When which node did what: a row for each."""
    nodes = sorted({note.node for note in log})
    whole = max(seconds, 1e-9)

    def across(at: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * at / whole

    marks = []
    for place, node in enumerate(nodes):
        y = ROW * place + ROW / 2
        marks.append(f'<text x="0" y="{y + 4:.0f}">node {node}</text>')
        marks.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - 20}" y2="{y}" stroke="#999" stroke-width="1"/>')
        for note in log:
            if note.node == node and note.what != "left":
                colour = COLOURS.get(note.what, "#ee6677")
                said = escape(" ".join(filter(None, (f"{note.at:.1f} s", note.what, note.action, note.detail))))
                title = f"<title>{said}</title>"
                marks.append(f'<circle cx="{across(note.at):.1f}" cy="{y}" r="5" fill="{colour}">{title}</circle>')
    height = ROW * len(nodes) + 30
    marks.append(f'<text x="{LEFT}" y="{height - 8}">0 s</text>')
    marks.append(f'<text x="{WIDTH - 20}" y="{height - 8}" text-anchor="end">{seconds:.1f} s</text>')
    label = "When which node did what"
    meanings = {**COLOURS, "a fault": "#ee6677"}.items()
    key = " ".join(f'<span style="color:{colour}">●</span> {escape(name)}' for name, colour in meanings)
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(marks)}</svg>'
    return f"{svg}<p>{key}</p>"
