"""One folder that answers "which run is better, and why": a self-contained page, and its parts."""

from __future__ import annotations

import base64
import contextlib
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from fedpareto.errors import UserError
from fedpareto.files import write_atomically
from fedpareto.report import across, client_figures, figures
from fedpareto.report._template import CSS, SCRIPT
from fedpareto.report.axes import MEANINGS, Over, chosen_of, common
from fedpareto.report.by_device import by_device
from fedpareto.report.comparison import comparison
from fedpareto.report.reading import load
from fedpareto.report.record import Record, comparable
from fedpareto.report.table import Table
from fedpareto.report.words import counted

FRONTS, CLIENTS = "fronts", "clients"
"""Names of figures."""
MOST_REFUSALS = 30
"""Rows of the table of refused replies; an attacker in every round would flood the page."""


@dataclass(frozen=True)
class Picture:
    """One figure of the page."""

    name: str
    """Of its files, without the ending."""
    title: str
    sentence: str
    """What it shows."""
    figure: Figure
    others: Mapping[str, Figure] = field(default_factory=dict)
    """By what else it is over, the same over that: the reader chooses."""


def write_comparison(
    folders: Sequence[Path],
    out: Path,
    rank: int = 1,
    converged: bool = False,
    drawn: Sequence[Path] = (),
    over: str | None = None,
) -> Path:
    """Write the comparison of the run folders into `out`; the path of its `index.html`.

    Beside the page are its figures as PNG and PDF, `table.md` and `table.json`. Every file appears
    whole or not at all. `rank` and `converged` keep outliers out of the fronts: see Record.without_outliers.
    Of many runs only those in `drawn` are in the figures; the tables have all. `over` is what curves are drawn over:
    see axes.axis_of.
    """
    found = comparable([load(folder) for folder in _distinct(folders)])
    records = [one.without_outliers(rank, converged) for one in found] if rank > 1 or converged else found
    chosen_axis = chosen_of(records, over)
    table, of_clients, of_devices = comparison(records, over), across.across_clients(records), by_device(records)
    out = Path(out)
    # Before the drawing, which takes seconds that a wrong folder would waste.
    with _as_user_error(out):
        out.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {}
    chosen = [record for record in records if not drawn or record.folder in drawn]
    pictures = list(_pictures(chosen, bool(drawn), chosen_axis))
    for picture in pictures:
        for ending in ("png", "pdf"):
            files[f"{picture.name}.{ending}"] = figures.render(picture.figure, ending)
    files["table.md"] = "\n".join(one.to_markdown() for one in (table, *of_clients, *of_devices)).encode()
    plain = table.to_plain() | {
        "across_clients": [one.to_plain() for one in of_clients],
        "by_device": [one.to_plain() for one in of_devices],
    }
    files["table.json"] = (json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    # Last, so that a page never points to a figure that is not there yet.
    files["index.html"] = _page(records, table, [*of_clients, *of_devices], pictures, files, len(chosen)).encode()
    with _as_user_error(out):
        for name, content in files.items():
            write_atomically(out / name, content)
    return out / "index.html"


def main_picture(records: Sequence[Record]) -> str:
    """The main figure: the fronts, or of a single objective, which has none, the clients."""
    return f"{CLIENTS if records[0].single else FRONTS}.png"


@contextlib.contextmanager
def _as_user_error(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror or error}") from None


def _distinct(folders: Sequence[Path]) -> list[Path]:
    """The folders without repetitions, in their order."""
    return list({Path(folder).resolve(): Path(folder) for folder in folders}.values())


def _pictures(records: Sequence[Record], is_some: bool, over: Over) -> Iterator[Picture]:
    if records[0].single:
        yield Picture(
            CLIENTS,
            "Clients at the end",
            f"Every dot is a client {records[0].measured}, over all seeds: with the model that the server sends, and "
            "with the same after local training. The box holds half of the clients, the whiskers eight of ten; the "
            "diamond is the mean.",
            client_figures.clients_at_the_end(records),
        )
    else:
        yield Picture(FRONTS, "Pareto fronts", _front_sentence(records), figures.fronts(records))
        yield Picture(
            "hypervolume",
            f"Hypervolume over {MEANINGS[over].words}",
            "The line is the mean over the seeds and the band one deviation; where it rises, the clients "
            "together offer better trade-offs.",
            figures.hypervolume_curves(records, over),
            _others(records, over, figures.hypervolume_curves),
        )
    yield from _client_pictures(records, over)
    if is_some:  # Of many runs, what single ones look like is for a page of their own.
        return
    names = _file_names(records)
    for record, name in zip(records, names, strict=True):
        yield from _cluster_pictures(record, name)


def _others(records: Sequence[Record], over: Over, draw: Callable[..., Figure]) -> dict[str, Figure]:
    """The same over everything else; only of runs with a clock, for drawing takes time."""
    known = common(records)
    return {MEANINGS[one].words: draw(records, one) for one in known if one != over} if "clock" in known else {}


def _client_pictures(records: Sequence[Record], over: Over) -> Iterator[Picture]:
    if any(record.clients > 1 for record in records):
        yield Picture(
            "clients-curves",
            f"Clients over {MEANINGS[over].words}",
            "The line is the mean of the clients, the band reaches down to what nine tenths of them have, the thin "
            "line is the worst client; means over the seeds.",
            client_figures.clients_curves(records, over),
            _others(records, over, client_figures.clients_curves) if records[0].single else {},
        )
    if any(len(record.share_improved()[0]) for record in records):
        yield Picture(
            "share-improved",
            "Participants whose loss did not rise",
            "Of each round's participants, the share whose training loss was not larger after it; mean over the seeds "
            "and a band of one deviation.",
            client_figures.share_improved_curves(records, over),
        )


def _front_sentence(records: Sequence[Record]) -> str:
    shape = "the line joins those" if len(records[0].objectives) == 2 else "the solid ones are those"
    return (
        f"Every point is the final model of one client {records[0].measured}, over all seeds; "
        f"{shape} that no other model of the same run beats in one objective without losing in another."
    )


def _cluster_pictures(record: Record, name: str) -> Iterator[Picture]:
    seed = record.started[0]
    clusters, similarity = record.clusters(seed), record.similarity(seed)
    if clusters:
        states = list(clusters.values())
        yield Picture(
            f"clusters-{name}",
            f"Clusters of {record.label}",
            f"Each box is a client and each connected bar a cluster: the clients of seed {seed} start in "
            f"{counted(len(states[0]), 'cluster')} and end in {len(states[-1])}.",
            figures.cluster_evolution(record, seed),
        )
    if similarity:
        yield Picture(
            f"similarity-{name}",
            f"Similarity of clients under {record.label}",
            f"The redder a cell, the more alike are the models of two clients of seed {seed}{_sample(record, seed)}; "
            "frames are the clusters of that round.",
            figures.similarity_matrices(record, seed),
        )


def _sample(record: Record, seed: int) -> str:
    """How many clients are compared, where not all are."""
    compared = len(record.similarity_of(seed))
    return "" if compared == record.clients else f" ({compared} of {record.clients}, drawn from the seed)"


def _file_names(records: Sequence[Record]) -> list[str]:
    """The labels as file names, without characters that are special to a shell or a file system."""
    used: Counter[str] = Counter()
    names = []
    for record in records:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", record.label).strip("-.")[:80] or "run"
        # Some file systems ignore case.
        used[name.lower()] += 1
        names.append(name if used[name.lower()] == 1 else f"{name}-{used[name.lower()]}")
    return names


def _page(
    records: Sequence[Record],
    table: Table,
    of_clients: Sequence[Table],
    pictures: Sequence[Picture],
    files: dict[str, bytes],
    drawn: int,
) -> str:
    title = f"{records[0].problem}: {counted(len(records), 'run')} compared"
    sections = [
        _table_section("Results", table),
        *_main_part_first(
            [_table_section(one.title, one) for one in of_clients],
            [_picture_section(picture, files[f"{picture.name}.png"]) for picture in pictures],
            records[0].single,
        ),
        _refusals(records),
        _runs(records),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{_objectives(records[0])}{_drawn(records, drawn)}{_disturbed(records)}"
        f"{''.join(sections)}"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _main_part_first(of_clients: list[str], pictures: list[str], single: bool) -> list[str]:
    """With one objective the clients' statistics are the result; with several, the front comes first."""
    return of_clients + pictures if single else pictures + of_clients


def _table_section(title: str, table: Table) -> str:
    return _section(title, "", f'<div class="wide">{table.to_html()}</div>')


def _section(title: str, sentence: str, body: str) -> str:
    """A heading, one sentence (escaped here) and a body that is HTML already."""
    text = f"<p>{html.escape(sentence)}</p>\n" if sentence else ""
    return f"<section>\n<h2>{html.escape(title)}</h2>\n{text}{body}\n</section>\n"


def _objectives(record: Record) -> str:
    goals = ", ".join(f"{o.name} ({o.better} is better)" for o in record.objectives)
    return f'<p class="soft">Objectives: {html.escape(goals)}.</p>\n'


def _drawn(records: Sequence[Record], drawn: int) -> str:
    """How many runs are in the figures, where not all are."""
    if drawn == len(records):
        return ""
    return f'<p class="soft">The tables have all {len(records)} runs, the figures the best {drawn} of them.</p>\n'


def _disturbed(records: Sequence[Record]) -> str:
    """A paragraph for each run that was attacked or defended."""
    lines = []
    for record in records:
        named = {"attack": record.attack, "defence": record.defence}
        words = "; ".join(f"{name}: {what}" for name, what in named.items() if what)
        if words:
            lines.append(f'<p class="soft">{html.escape(f"{record.label}: {words}")}.</p>\n')
    return "".join(lines)


def _picture_section(picture: Picture, png: bytes) -> str:
    name = html.escape(picture.name)
    about, _, words = picture.title.rpartition(" over ")
    images = {words: png} | {one: figures.render(figure, "png") for one, figure in picture.others.items()}
    shown = "".join(
        _image(f"{about} over {one}" if picture.others else picture.title, data, hidden=i > 0)
        for i, (one, data) in enumerate(images.items())
    )
    choice = _choice(name, list(images)) if picture.others else ""
    body = (
        f'<figure>\n{choice}{shown}<figcaption>For a paper: <a href="{name}.pdf">{name}.pdf</a></figcaption>\n</figure>'
    )
    return _section(picture.title, picture.sentence, body)


def _image(title: str, png: bytes, hidden: bool) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{html.escape(title)}"{" hidden" if hidden else ""} src="data:image/png;base64,{data}">\n'


def _choice(name: str, words: Sequence[str]) -> str:
    """What to see a figure over: the script shows one image of several."""
    options = "".join(f"<option>{html.escape(one)}</option>" for one in words)
    return f'<label class="soft">over <select class="over" name="{name}">{options}</select></label>\n'


def _refusals(records: Sequence[Record]) -> str:
    counts: Counter[tuple[str, int, str]] = Counter()
    for record in records:
        counts.update((record.label, event.client, event.reason) for event in record.events)
    if not counts:
        return _section("Missing replies", "Every reply arrived and was accepted.", "")
    rows = [[label, client, reason, times] for (label, client, reason), times in counts.most_common()]
    hidden = len(rows) - MOST_REFUSALS
    sentence = "Replies that the server did not use, and why."
    if hidden > 0:
        sentence += f" The {MOST_REFUSALS} most frequent of {len(rows)} kinds are shown."
    body = _text_table(["run", "client", "reason", "times"], rows[:MOST_REFUSALS])
    return _section("Missing replies", sentence, body)


def _runs(records: Sequence[Record]) -> str:
    heads = ["run", "folder", "status", "clients", "rounds", "seeds", "versions", "choices"]
    rows = [
        [
            record.label,
            record.folder.name,
            f"{record.status.name} {record.status.message}".strip(),
            record.clients,
            record.rounds,
            ", ".join(str(seed) for seed in record.seeds),
            ", ".join(f"{name} {version}" for name, version in record.versions.items()),
            ", ".join(f"{name} {choice}" for name, choice in record.choices.items()),
        ]
        for record in records
    ]
    specs = "".join(
        f"<details><summary>spec.yaml of {html.escape(record.label)}</summary>"
        f"<pre>{html.escape(record.spec)}</pre></details>\n"
        for record in records
        if record.spec
    )
    return _section("Runs", "What was run, and with what.", _text_table(heads, rows) + specs)


def _text_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(value))}</td>' for value in row)}</tr>\n" for row in rows)
    table = f'<table class="text">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
    return f'<div class="wide">{table}</div>\n'
