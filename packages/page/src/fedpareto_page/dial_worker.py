"""The process that predicts for the page's dial: torch and the models are here, not in the server."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted
from fedpareto.inputs.dialect import Sent
from fedpareto.inputs.images_texts import Inputs
from fedpareto.inputs.table import VALUE, InputSchema, as_number
from fedpareto.record.store import RunFolder
from fedpareto.runs.final_files import CONDITIONED_FILE
from fedpareto_serve import runs, tables
from fedpareto_serve.answers import meaning
from fedpareto_serve.models import AnyPreference, Point, Servable, is_yes_or_no
from fedpareto_serve.predictions import Predictions, Prepared, prepared

MOST_GROUPS = 8
"""Different values up to which a column's rows are counted by value."""
BOUND = re.compile(r"(?P<operator>>=|<=|<|>)\s*(?P<bound>[-+.\deE]+)$")
"""The end of a rule that compares numbers, such as age>=25."""
LONGEST_SHOWN = 200
"""Characters of a cell that are sent to the page."""
MISSING = "not given"
MOST_ROWS = 10_000
MOST_EXAMPLES = 500
"""Held-out rows of a client that are shown where the user has given none."""
MOST_SEATS = 8
"""Models with their rows that stay in memory."""
HEAD = 5
"""Rows of a file that was sent, to show what was understood."""
NO_FILE = "ROWS.csv"
"""Name in a command where the rows are in no file yet."""


@dataclass(frozen=True)
class Table:
    """Rows and where they come from."""

    rows: Sequence[Mapping[str, Any]]
    """Values by column name."""
    name: str
    """A name in words, such as people.csv."""
    file: str | None
    """File that `fedpareto predict` can read them from; None: they are in no file."""
    rules: Mapping[str, str]
    """The sensitive columns, with the rule for one of two groups where there is one."""

    @cached_property
    def columns(self) -> list[str]:
        """Columns whose values can be shown; an image cannot."""
        return [name for name, value in self.rows[0].items() if value is None or isinstance(value, str | int | float)]

    @cached_property
    def cells(self) -> list[list[Any]]:
        """Values that the page shows of each row, in the order of `columns`."""
        return [[_shown(row.get(name)) for name in self.columns] for row in self.rows]

    @cached_property
    def groups(self) -> dict[str, Grouping]:
        """Groupings by column, sensitive ones first, then those with few values, then numbers in four bands."""
        named = [name for name in self.rules if name in self.columns]
        found, bands = {}, {}
        for name in (*named, *(column for column in self.columns if column not in named)):
            values = [row.get(name) for row in self.rows]
            grouping = _grouping(values, name, self.rules.get(name, ""))
            if grouping is not None:
                found[name] = grouping
            elif (quarters := _by_quarter(values)) is not None:
                bands[name] = quarters
        return found | bands

    def edited(self, edits: Sequence[tuple[int, str, Any]]) -> Table:
        """Put other values in some cells: (row from 0, column, value)."""
        rows = list(self.rows)
        for row, column, value in edits:
            if not 0 <= row < len(rows):
                raise UserError(f"there is no row {row + 1}; there are {len(rows)}")
            if column not in rows[row]:
                raise UserError(f"row {row + 1} has no column '{column}'")
            rows[row] = {**rows[row], column: value}
        return replace(self, rows=rows)


@dataclass(frozen=True)
class Grouping:
    """Groups of rows."""

    names: tuple[str, ...]
    codes: np.ndarray
    """`[rows]`, positions in `names`."""

    def counts(self, decisions: np.ndarray) -> dict[str, dict[str, int]]:
        """Numbers of rows, and of those with the decision 1, in each group."""
        rows = np.bincount(self.codes, minlength=len(self.names))
        yes = np.bincount(self.codes[decisions == 1], minlength=len(self.names))
        return {name: {"rows": int(rows[i]), "yes": int(yes[i])} for i, name in enumerate(self.names)}


def _grouping(values: Sequence[Any], column: str, rule: str) -> Grouping | None:
    """Groups by a rule that compares numbers, else by value, else by whether it is the rule's value; None: neither
    fits.
    """
    bound = BOUND.search(rule)
    if bound is not None:
        return _by_bound(values, column, bound["operator"], float(bound["bound"]))
    texts = [_text(value) for value in values]
    different = sorted(set(texts), key=_in_order)
    privileged = rule.partition("=")[2].strip()
    if len(different) > MOST_GROUPS and privileged in different:
        return Grouping((f"not {privileged}", privileged), np.array([int(text == privileged) for text in texts]))
    if not 2 <= len(different) <= MOST_GROUPS:
        return None
    place = {text: position for position, text in enumerate(different)}
    return Grouping(tuple(different), np.array([place[text] for text in texts]))


def _by_bound(values: Sequence[Any], column: str, operator: str, bound: float) -> Grouping | None:
    numbers = _numbers(values)
    reached = numbers >= bound if operator in (">=", "<") else numbers > bound
    below, above = ("<", "≥") if operator in (">=", "<") else ("≤", ">")
    names = [f"{column} {below} {bound:g}", f"{column} {above} {bound:g}", MISSING]
    codes = np.where(np.isnan(numbers), 2, reached.astype(int))
    present = np.unique(codes)
    if len(present) < 2:
        return None
    return Grouping(tuple(names[code] for code in present), np.searchsorted(present, codes))


def _by_quarter(values: Sequence[Any]) -> Grouping | None:
    """Numbers in up to four bands of about as many rows each; None: some are no numbers, or there is one band only."""
    numbers = _numbers(values)
    known = ~np.isnan(numbers)
    if any(_text(value) != MISSING for value, is_known in zip(values, known, strict=True) if not is_known):
        return None
    if not known.any():
        return None
    edges = np.unique(np.quantile(numbers[known], [0.25, 0.5, 0.75]))
    _, codes = np.unique(np.where(known, np.searchsorted(edges, numbers), len(edges) + 1), return_inverse=True)
    bands = [numbers[codes == code] for code in range(codes.max() + 1)]
    names = tuple(MISSING if np.isnan(band).all() else _span(band.min(), band.max()) for band in bands)
    return Grouping(names, codes) if len(set(names)) == len(bands) > 1 else None


def _span(low: float, high: float) -> str:
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Numbers of values; NaN where there is none."""
    return np.array([np.nan if (number := as_number(value)) is None else number for value in values])


def _in_order(text: str) -> tuple[bool, float, str]:
    """Order numbers by size, then texts by letter."""
    number = as_number(text)
    return number is None, number or 0.0, text


def _text(value: Any) -> str:
    """The name of a value's group; 1 and 1.0 are the same one."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value == "":
        return MISSING
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()[:LONGEST_SHOWN] or MISSING


def _shown(value: Any) -> Any:
    return value[:LONGEST_SHOWN] if isinstance(value, str) else value


@dataclass(frozen=True)
class Seat:
    """A model at work: its run, its rows, and the rows as it reads them."""

    path: Path
    source: runs.Source
    model: Servable
    table: Table | None
    reason: str
    """Why there are no rows, or not those that were given; empty where all is well."""
    origin: str
    """Origin of the rows: "own" of the run, of a "file", or "sent" with a number; another tab may change it."""

    @cached_property
    def prepared(self) -> Prepared:
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
        self._sent: dict[tuple[str, ...], tuple[int, Sent]] = {}
        self._seats: OrderedDict[tuple[Any, ...], Seat] = OrderedDict()
        self._edited: tuple[Any, Seat] | None = None

    def answer(self, name: str, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a question; None where it is about rows that have not been sent here."""
        if name == "load":
            return self._load(question)
        if name == "keep":
            self._keep(question)
            return {}
        self._sent = {inputs: one for inputs, one in self._sent.items() if one[0] in question["sent"]}
        if len(self._sent) < len(question["sent"]):
            return None
        return {"about": self._about, "rows": self._rows, "dial": self._dial}[name](question)

    def _load(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Rows of a text that was sent, kept for all models with the inputs of this run's."""
        inputs = _served(Path(question["run"]), None, None)[1].card.inputs
        found: dict[str, Any] = {"count": None, "columns": [], "head": [], "inputs": _kept_by(inputs)}
        if question["csv"] is None:
            return found
        rows = tables.read_rows(Sent(question["name"], question["csv"].encode()), inputs)
        self._keep({**question, **found})
        self._edited = None
        self._seats.clear()
        head = [list(row.values()) for row in rows[:HEAD]]
        return found | {"count": min(len(rows), MOST_ROWS), "columns": list(rows[0]), "head": head}

    def _keep(self, question: Mapping[str, Any]) -> None:
        sent = Sent(question["name"], question["csv"].encode())
        self._sent[tuple(question["inputs"])] = question["number"], sent

    def _about(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Describe what can be asked of a run; where it cannot be served, why."""
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
            "points": [asdict(point) for point in seat.model.points],
            "any": isinstance(seat.model, AnyPreference),
            "rows": None if table is None else {"count": len(table.rows), "name": table.name, "file": table.file},
            "rows_reason": seat.reason or None,
            "source": seat.origin,
        }

    def _rows(self, question: Mapping[str, Any]) -> dict[str, Any]:
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
        point, by = nearest(seat.model, found_here, preference), found_here.served_by[0]
        client = seat.model.card.client if by is None else by.client
        return {
            "probabilities": _certainty(found_here, output).tolist(),
            "decisions": decisions.tolist(),
            "values": None if point is None else list(point.values),
            "measured_at": None if point is None else point.preference,
            "served_by": {"client": client, "words": seat.model.describe(preference)},
            "groups": _counted(seat, decisions),
            "unseen": found_here.unseen,
            "command": command(seat, preference),
            "source": seat.origin,
        }

    # -- models and their rows -------------------------------------------------------------------------------------

    def _seat(self, question: Mapping[str, Any]) -> Seat:
        path, client, seed = Path(question["run"]), question.get("client"), question.get("seed")
        key = path, _stamp(path), client, seed, question["file"], tuple(question["sent"])
        if key in self._seats:
            self._seats.move_to_end(key)
            return self._seats[key]
        file = None if question["file"] is None else Path(question["file"])
        seat = _seated(path, client, seed, file, self._sent)
        if seat.table is not None:  # Else the data may come meanwhile.
            self._seats[key] = seat
            while len(self._seats) > MOST_SEATS:
                self._seats.popitem(last=False)
        return seat

    def _with_edits(self, seat: Seat, question: Mapping[str, Any]) -> Seat:
        """A seat with some cells changed; the last such table is kept while the dial turns."""
        edits = [tuple(edit) for edit in question.get("edits") or ()]
        if not edits:
            return seat
        key = id(seat), edits
        if self._edited is None or self._edited[0] != key:
            table = seat.needed.edited(edits)
            self._edited = key, replace(seat, table=table)
        return self._edited[1]


def _seated(
    path: Path, client: int | None, seed: int | None, file: Path | None, sent: Mapping[Any, tuple[int, Sent]]
) -> Seat:
    """A model with the rows that were sent for its inputs, else those of the file if they fit, else the run's own."""
    source, model = _served(path, client, seed)
    seat = Seat(path, source, model, None, "", "own")
    number, given = sent.get(_kept_by(model.card.inputs), (0, None))
    if given is not None:
        seat = replace(seat, origin=f"sent {number}")
        try:
            return replace(seat, table=_given(seat, given, ", brought to this page for all who look at it"))
        except UserError as problem:
            return replace(seat, reason=str(problem))
    unfit = ""
    if file is not None:
        try:
            return replace(seat, table=_given(seat, file, ""), origin="file")
        except UserError as problem:
            unfit = f"The file of --rows does not fit this run ({problem})"
    try:
        return replace(seat, table=_own(seat), reason=unfit and f"{unfit}, so its own rows are shown")
    except UserError as problem:
        return replace(seat, reason=f"{unfit}. {problem}" if unfit else str(problem))


def _served(path: Path, client: int | None, seed: int | None) -> tuple[runs.Source, Servable]:
    source = runs.load(path)
    if client is None and (path / CONDITIONED_FILE).exists():
        client = source.clients[0]  # Each has a model for every preference; the page offers the others.
    return source, source.conditioned(client, seed)


def _given(seat: Seat, given: Path | Sent, whose: str) -> Table:
    rules: dict[str, str] = {}
    with suppress(UserError):  # Of a run whose problem cannot be made here, the user's rows can still be predicted.
        rules = RunFolder(seat.path).spec().problem.sensitive_columns()
    rows = tables.read_rows(given, seat.model.card.inputs)
    shown = f"{'the first ' if len(rows) > MOST_ROWS else ''}{min(len(rows), MOST_ROWS):,} rows of {given.name}{whose}"
    return Table(rows[:MOST_ROWS], shown, str(given), rules)


def _own(seat: Seat) -> Table:
    """Some of the problem's own rows; a UserError says why there are none."""
    card = seat.model.card
    whose = seat.source.clients[0] if card.client is None else card.client
    try:
        spec = RunFolder(seat.path).spec()
        examples = spec.problem.examples(spec.clients, card.seed, whose)
    except UserError as problem:
        raise UserError(f"There are no rows yet: {problem}") from None
    if not examples:
        raise UserError(f"There are no rows yet: the problem {card.problem} has none to show")
    shown = f"{min(len(examples), MOST_EXAMPLES)} of {len(examples):,} held-out rows of client {whose}"
    return Table(examples[:MOST_EXAMPLES], shown, None, spec.problem.sensitive_columns())


def _kept_by(inputs: Inputs) -> tuple[str, ...]:
    """The columns that a model reads, sorted: rows are kept by them."""
    return tuple(sorted(inputs.columns))


def nearest(model: Servable, found: Predictions, preference: Sequence[float]) -> Point | None:
    """The held-out figures of the model in use: its own, or those of the nearest preference that was measured."""
    if found.served_by[0] is not None:
        return found.served_by[0]
    known = [point for point in model.points if point.preference is not None]
    wanted = np.asarray(preference)
    return min(known, key=lambda point: float(((np.array(point.preference) - wanted) ** 2).sum()), default=None)


def command(seat: Seat, preference: Sequence[float]) -> str | None:
    """A command that gives the same in a terminal; None for images that are in no file."""
    card, table = seat.model.card, seat.needed
    if table.file is None and not isinstance(card.inputs, InputSchema):
        return None
    written = ",".join(f"{weight:.12g}" for weight in preference)
    parts = ["fedpareto predict", quoted(seat.path)]
    parts += [] if card.client is None else [f"--client {card.client}"]
    parts += [] if card.seed == seat.source.seeds[0] else [f"--seed {card.seed}"]
    return " ".join([*parts, f"--preference {written}", f"--input {quoted(Path(table.file or NO_FILE))}"])


def _counted(seat: Seat, decisions: np.ndarray) -> dict[str, dict[str, dict[str, int]]]:
    """Counts by column and group; empty where a decision is not yes or no."""
    if not is_yes_or_no(seat.model.card):
        return {}
    return {name: grouping.counts(decisions) for name, grouping in seat.needed.groups.items()}


def _one(decisions: np.ndarray, output: int) -> np.ndarray:
    return decisions if decisions.ndim == 1 else decisions[:, output]


def _certainty(found: Predictions, output: int) -> np.ndarray:
    """The probability of a yes; of several classes, the number of the one that was chosen."""
    if found.decisions.ndim == 1:
        return found.probabilities
    chosen = found.decisions[:, output : output + 1]
    return np.take_along_axis(found.probabilities[:, output], chosen, axis=1)[:, 0]


def _choices(inputs: Inputs) -> dict[str, Any]:
    """The columns that a model reads: a number, or one of the values that it knows."""
    if not isinstance(inputs, InputSchema):
        return dict(inputs.columns)
    found: dict[str, Any] = dict(inputs.columns)
    for name in (name for name, kind in inputs.columns.items() if kind == VALUE):
        found[name] = [entry.value for entry in inputs.inputs if entry.column == name and entry.kind == VALUE]
    return found


def _stamp(path: Path) -> int:
    """A number that changes when a run is made anew."""
    try:
        return (path / "status.json").stat().st_mtime_ns
    except OSError:
        return 0


torch.set_num_threads(1)  # A few hundred rows are too few to share.
answer = Desk().answer
