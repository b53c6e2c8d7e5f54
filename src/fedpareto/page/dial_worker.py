"""What the process that predicts for the page's dial does: torch and the models are there, not in the server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.errors import UserError
from fedpareto.experiments.keeping import CONDITIONED_FILE
from fedpareto.experiments.store import RunFolder
from fedpareto.files import quoted
from fedpareto.inputs.dialect import Sent
from fedpareto.inputs.images_texts import Inputs
from fedpareto.inputs.table import VALUE, InputSchema
from fedpareto.page.dial_rows import Table
from fedpareto.serving import runs, tables
from fedpareto.serving.answers import is_yes_or_no, meaning
from fedpareto.serving.models import AnyPreference, Point, Servable
from fedpareto.serving.predictions import Predictions, Prepared, prepared

MOST_ROWS = 10_000
MOST_EXAMPLES = 500
"""Held-out rows of a client that are shown where the user has given none."""
MOST_SEATS = 8
"""Models with their rows that stay in memory."""
HEAD = 5
"""Rows of a file that was sent, to show what was understood."""
NO_FILE = "ROWS.csv"
"""In a command, where the rows are in no file yet."""


@dataclass(frozen=True)
class Seat:
    """A model at work: its run, its rows, and the rows as it reads them."""

    path: Path
    source: runs.Source
    model: Servable
    table: Table | None
    reason: str
    """Why there are no rows; empty where there are."""

    @cached_property
    def prepared(self) -> Prepared:
        """The rows, encoded once for all preferences."""
        return prepared(self.model, self.needed.rows)

    @property
    def needed(self) -> Table:
        """The rows, or why there are none."""
        if self.table is None:
            raise UserError(self.reason)
        return self.table


class Desk:
    """Answers questions; keeps the rows that were given and the models that were asked for last."""

    def __init__(self) -> None:
        self._sent: tuple[int, Sent] | None = None
        self._seats: OrderedDict[tuple[Any, ...], Seat] = OrderedDict()
        self._edited: tuple[Any, Seat] | None = None

    def answer(self, name: str, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a question; None where it is about rows that have not been sent here."""
        if name == "load":
            return self._load(question)
        given = question["given"]
        if given is not None and "sent" in given and (self._sent is None or self._sent[0] != given["sent"]):
            return None
        return {"about": self._about, "rows": self._rows, "dial": self._dial}[name](question)

    def _load(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Rows of a text that was sent, to be asked about by their number."""
        sent = Sent(question["name"], question["csv"].encode())
        found, lines = tables.read_table(sent)
        if not lines:
            raise UserError(f"{sent} has no rows")
        self._sent, self._edited = (question["number"], sent), None
        self._seats.clear()
        return {"count": min(len(lines), MOST_ROWS), "columns": list(found.names), "head": lines[:HEAD]}

    def _about(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What can be asked of a run; where it cannot be served, why."""
        try:
            seat = self._seat(question)
        except UserError as problem:
            return {"ready": False, "reason": str(problem)}
        card, table = seat.model.card, seat.table
        return {
            "ready": True,
            "reason": None,
            "algorithm": card.algorithm,
            "problem": card.problem,
            "objectives": [
                {"name": objective.name, "maximise": objective.maximise, "fairness": objective.fairness}
                for objective in card.objectives
            ],
            "clients": seat.source.clients,
            "seeds": seat.source.seeds,
            "client": card.client,
            "seed": card.seed,
            "columns": _choices(card.inputs),
            "outputs": [output.to_json() for output in card.outputs],
            "meaning": meaning(card),
            "sensitive": [] if table is None else [name for name in table.rules if name in table.groups],
            "grouped": [] if table is None else list(table.groups),
            "points": [_plain(point) for point in seat.model.points],
            "any": isinstance(seat.model, AnyPreference),
            "rows": None if table is None else {"count": len(table.rows), "name": table.name, "file": table.file},
            "rows_reason": seat.reason or None,
            "source": _origin(question["given"]),
        }

    def _rows(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The cells of all rows."""
        table = self._seat(question).needed
        return {"columns": table.columns, "rows": table.cells}

    def _dial(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions under a preference, or the decisions under each of several."""
        seat = self._with_edits(self._seat(question), question)
        output = question.get("output", 0)
        if not 0 <= output < max(1, len(seat.model.card.outputs)):
            raise UserError(f"there is no answer {output}; there are {len(seat.model.card.outputs)}")
        if question.get("preferences") is not None:
            each = [_one(seat.prepared.under(preference).decisions, output) for preference in question["preferences"]]
            return {"decisions": [one.tolist() for one in each], "groups": [_counted(seat, one) for one in each]}
        preference = question["preference"]
        found_here = seat.prepared.under(preference)
        decisions = _one(found_here.decisions, output)
        point = nearest(seat.model, found_here, preference)
        return {
            "probabilities": _certainty(found_here, output).tolist(),
            "decisions": decisions.tolist(),
            "values": None if point is None else list(point.values),
            "measured_at": None if point is None else point.preference,
            "served_by": {"client": _client(seat.model, found_here), "words": seat.model.describe(preference)},
            "groups": _counted(seat, decisions),
            "unseen": found_here.unseen,
            "command": command(seat, preference),
            "source": _origin(question["given"]),
        }

    # -- models and their rows -------------------------------------------------------------------------------------

    def _seat(self, question: Mapping[str, Any]) -> Seat:
        path, given = Path(question["run"]), question["given"]
        client, seed = question.get("client"), question.get("seed")
        key = path, _stamp(path), client, seed, None if given is None else tuple(given.items())
        if key not in self._seats:
            self._seats[key] = _seated(path, client, seed, self._file(given))
            while len(self._seats) > MOST_SEATS:
                self._seats.popitem(last=False)
        self._seats.move_to_end(key)
        return self._seats[key]

    def _file(self, given: Mapping[str, Any] | None) -> Path | Sent | None:
        """Where the user's rows are; None: there are none."""
        if given is None:
            return None
        return Path(given["file"]) if "file" in given or self._sent is None else self._sent[1]

    def _with_edits(self, seat: Seat, question: Mapping[str, Any]) -> Seat:
        """The same model with some cells changed; the last such table is kept while the dial turns."""
        edits = [tuple(edit) for edit in question.get("edits") or ()]
        if not edits:
            return seat
        key = id(seat), edits
        if self._edited is None or self._edited[0] != key:
            table = seat.needed.edited(edits)
            self._edited = key, Seat(seat.path, seat.source, seat.model, table, "")
        return self._edited[1]


def _seated(path: Path, client: int | None, seed: int | None, given: Path | Sent | None) -> Seat:
    source = runs.load(path)
    if client is None and (path / CONDITIONED_FILE).exists():
        client = source.clients[0]  # Each has a model for every preference; the page offers the others.
    model = source.conditioned(client, seed)
    try:
        return Seat(path, source, model, _table(path, source, model, given), "")
    except UserError as problem:
        return Seat(path, source, model, None, str(problem))


def _table(path: Path, source: runs.Source, model: Servable, given: Path | Sent | None) -> Table:
    """The rows that the user gave, else some of the problem's own."""
    rules: dict[str, str] = {}
    examples: list[dict[str, Any]] = []
    whose = source.clients[0] if model.card.client is None else model.card.client
    with suppress(UserError):  # Of a run whose problem cannot be made here, the user's rows can still be predicted.
        spec = RunFolder(path).spec()
        rules = spec.problem.sensitive_columns()
        examples = [] if given is not None else spec.problem.examples(spec.clients, model.card.seed, whose)
    if given is not None:
        rows = tables.read_rows(given, model.card.inputs)
        shown = f"{'the first ' if len(rows) > MOST_ROWS else ''}{min(len(rows), MOST_ROWS):,} rows of {given.name}"
        return Table(rows[:MOST_ROWS], shown, str(given), rules)
    if not examples:
        raise UserError("there are no rows yet; drop a CSV file on the page, or start it with --rows FILE")
    shown = f"{min(len(examples), MOST_EXAMPLES)} of {len(examples):,}"
    return Table(examples[:MOST_EXAMPLES], f"{shown} held-out rows of client {whose}", None, rules)


def nearest(model: Servable, found: Predictions, preference: Sequence[float]) -> Point | None:
    """The held-out figures of the model in use: its own, or those of the nearest preference that was measured."""
    if found.served_by[0] is not None:
        return found.served_by[0]
    known = [point for point in model.points if point.preference is not None]
    wanted = np.asarray(preference)
    return min(known, key=lambda point: float(((np.array(point.preference) - wanted) ** 2).sum()), default=None)


def command(seat: Seat, preference: Sequence[float]) -> str | None:
    """What gives the same in a terminal; None for images that are in no file."""
    card, table = seat.model.card, seat.needed
    if table.file is None and not isinstance(card.inputs, InputSchema):
        return None
    written = ",".join(f"{weight:.12g}" for weight in preference)
    parts = ["fedpareto predict", quoted(seat.path)]
    parts += [] if card.client is None else [f"--client {card.client}"]
    parts += [] if card.seed == seat.source.seeds[0] else [f"--seed {card.seed}"]
    return " ".join([*parts, f"--preference {written}", f"--input {quoted(Path(table.file or NO_FILE))}"])


def _counted(seat: Seat, decisions: np.ndarray) -> dict[str, dict[str, dict[str, int]]]:
    """By column and group; nothing where a decision is not yes or no."""
    if not is_yes_or_no(seat.model.card):
        return {}
    return {name: grouping.counts(decisions) for name, grouping in seat.needed.groups.items()}


def _one(decisions: np.ndarray, output: int) -> np.ndarray:
    """Of models with several outputs, those of one."""
    return decisions if decisions.ndim == 1 else decisions[:, output]


def _certainty(found: Predictions, output: int) -> np.ndarray:
    """The probability of a yes; of several classes, the number of the one that was chosen."""
    if found.decisions.ndim == 1:
        return found.probabilities
    chosen = found.decisions[:, output : output + 1]
    return np.take_along_axis(found.probabilities[:, output], chosen, axis=1)[:, 0]


def _client(model: Servable, found: Predictions) -> int | None:
    return model.card.client if found.served_by[0] is None else found.served_by[0].client


def _choices(inputs: Inputs) -> dict[str, Any]:
    """The columns that a model reads: a number, or one of the values that it knows."""
    if not isinstance(inputs, InputSchema):
        return dict(inputs.columns)
    found: dict[str, Any] = dict(inputs.columns)
    for name in (name for name, kind in inputs.columns.items() if kind == VALUE):
        found[name] = [entry.value for entry in inputs.inputs if entry.column == name and entry.kind == VALUE]
    return found


def _plain(point: Point) -> dict[str, Any]:
    return {
        "client": point.client,
        "preference": point.preference,
        "values": list(point.values),
        "on_front": point.on_front,
    }


def _origin(given: Mapping[str, Any] | None) -> str:
    """Which rows are asked about: "own" of the run, of a "file", or "sent" with a number; another tab may change it."""
    if given is None:
        return "own"
    return f"sent {given['sent']}" if "sent" in given else "file"


def _stamp(path: Path) -> int:
    """Changes when a run is made anew."""
    try:
        return (path / "status.json").stat().st_mtime_ns
    except OSError:
        return 0


torch.set_num_threads(1)  # A few hundred rows are too few to share.
answer = Desk().answer
"""What the process is started for."""
