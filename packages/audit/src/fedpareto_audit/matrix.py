"""Every algorithm under every attack behind every defence, from one spec file: a small run for each cell, one heat map.

A cell's value is the mean, over seeds and over clients that attack in no cell, of the problem's first objective on
held-out rows at the end, or of what clients have under their own preference: so all cells measure the same clients. Of
a backdoor it is also measured how often it opens.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.folder import Ledger, held
from fedpareto.campaigns.parallel import ONE_TO_A_CORE, Jobs, Pieces, side_by_side
from fedpareto.config.errors import DamagedFile, UserError, reading
from fedpareto.config.files import read_object, write_atomically
from fedpareto.config.interrupts import Stopped
from fedpareto.config.parameters import build
from fedpareto.contract.problem import Objective
from fedpareto.contract.solutions import held_out
from fedpareto.runs import runner
from fedpareto.runs.progress import Tally
from fedpareto.runs.result import Result
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import MATRIX, NAMED_SECTIONS, WORDS, Spec, first_difference
from fedpareto.trust.attacks import Attack
from fedpareto.trust.backdoor import SPLIT
from fedpareto.trust.defences import Defence

AXES = ("algorithm", "attack", "defence")
MEASURE, OWN = "measure", "own"
"""The key that says what a cell's value is, and its value for what clients have under their own preference; without it,
the first objective.
"""
OWN_UTILITY = Objective("value under the own preference", maximise=True)
FILE, PICTURE = "matrix.json", "matrix.png"
NAMES = {"algorithm": "name", **WORDS}
"""Parameter that names an entry, by axis."""
DERIVED = ("value", "worst", "opens", "failed")
"""Values of a cell that follow from those of its clients."""
DIVERGED = "training diverged: not every honest client's objectives are finite numbers"
NEVER = 10**9
"""Rounds between two evaluations, so that only the final models are measured."""

Say = Callable[[str], None]
Entry = str | dict[str, Any]
Cell = tuple[int, int, int]
"""Positions of a cell's entries on the three axes."""


@dataclass(frozen=True)
class Matrix:
    """The section `matrix` of a spec file."""

    base: Draft
    """The rest of the file, which all cells share, and the lines of the axes."""
    axes: Mapping[str, tuple[Entry, ...]]
    own: bool = False
    """True if a cell's value is the utility under the clients' own preferences, not the first objective."""

    @classmethod
    def read(cls, path: Path, settings: Sequence[str] = ()) -> Matrix:
        """From a YAML file, with `key=value` texts applied to every cell; raises UserError for what no cell can use."""
        draft = Draft.read(path)
        section, _, rest = draft.parted(MATRIX)
        unknown = [str(key) for key in section if key not in (*AXES, MEASURE)] if isinstance(section, dict) else []
        if not isinstance(section, dict) or unknown:
            but = f", not {unknown[0]}" if unknown else ""
            raise UserError(f"{path}: a matrix has a section '{MATRIX}' with lists: {', '.join(AXES)}{but}")
        measure = section.get(MEASURE, "first")
        if measure not in ("first", OWN):
            place = draft.where.get((MATRIX, MEASURE), path)
            raise UserError(
                f"{place}: {MATRIX}.{MEASURE} is {measure!r}; it is 'first', the first objective, or '{OWN}'"
            )
        axes = {axis: _entries(section.get(axis), axis, path) for axis in AXES}
        base = rest.with_settings(settings)
        for axis in AXES:
            if axis in base.values:
                place = next(place for keys, place in base.where.items() if keys[0] == axis)
                raise UserError(
                    f"{place}: {axis} is outside the section '{MATRIX}'; its entries belong in the list there"
                )
        places: dict[tuple[str, ...], str] = {
            (axis,): f"{draft.where.get((MATRIX, axis), path)}: {MATRIX}.{axis}" for axis in AXES
        }
        matrix = cls(Draft(base.values, {**base.where, **places}), axes, measure == OWN)
        matrix.check()
        return matrix

    def check(self) -> None:
        """Raises UserError if an entry is invalid by itself; that two do not fit together is no error."""
        for algorithm in self.axes["algorithm"]:
            self._assembled(algorithm).finish()
        for attack in self.axes["attack"]:
            self._assembled(self.axes["algorithm"][0], attack).finish()
        _ = self.judged
        for defence in self.axes["defence"]:
            try:
                build(Defence, _parameters(defence, "defence"), "defence")
            except UserError as problem:
                raise UserError(f"{self._place('defence')}{problem}") from None

    def must_begin(self) -> None:
        """Raises UserError if no cell could begin, such as for data that are missing or too few for the clients."""
        try:
            with backends.opened(self.calm):
                pass
        except UserError as problem:
            raise UserError(f"no cell can begin: {problem}") from None

    @property
    def shape(self) -> tuple[int, int, int]:
        algorithms, attacks, defences = (len(self.axes[axis]) for axis in AXES)
        return algorithms, attacks, defences

    @property
    def cells(self) -> list[Cell]:
        """List the cells, one defence after the other."""
        rows, columns, panels = self.shape
        return [(row, column, panel) for panel in range(panels) for row in range(rows) for column in range(columns)]

    def labels(self, axis: str) -> list[str]:
        """Labels of an axis's entries: the name, with parameters where two have the same."""
        parameters = [_parameters(entry, axis) for entry in self.axes[axis]]
        names = [str(entry[NAMES[axis]]) for entry in parameters]
        return [
            name
            if names.count(name) == 1
            else f"{name} {', '.join(f'{key}={value}' for key, value in entry.items() if key != NAMES[axis])}".strip()
            for name, entry in zip(names, parameters, strict=True)
        ]

    def entries(self, cell: Cell) -> tuple[Entry, Entry, Entry]:
        algorithm, attack, defence = (self.axes[axis][place] for axis, place in zip(AXES, cell, strict=True))
        return algorithm, attack, defence

    def key(self, cell: Cell) -> str:
        """Identifies a cell among finished ones, whatever else is on the axes."""
        return json.dumps(self.entries(cell), sort_keys=True)

    def draft(self, cell: Cell) -> Draft:
        return self._assembled(*self.entries(cell))

    def spec(self, cell: Cell) -> Spec | str:
        """Return the spec of a cell; or the reason why there is none: the defence does not fit the algorithm."""
        algorithm, attack, _ = self.entries(cell)
        self._assembled(algorithm, attack).finish()
        try:
            return Draft(self.draft(cell).values).finish()  # The line of the entry is not part of the reason.
        except UserError as problem:
            return str(problem)

    def _assembled(self, algorithm: Entry, attack: Entry = "none", defence: Entry = "none") -> Draft:
        entries = {"algorithm": algorithm, "attack": attack, "defence": defence}
        # Unless the file asks for it, nothing is evaluated on the way, and how to stack clients is not measured.
        values = {"evaluate_every": NEVER, **self.base.values, **entries}
        return Draft(values, self.base.where).with_engine(ONE_TO_A_CORE)

    def _place(self, axis: str) -> str:
        """The line of an axis, as the beginning of a message."""
        place = self.base.where.get((axis,))
        return f"{place}: " if place else ""

    @cached_property
    def calm(self) -> Spec:
        """The spec of a cell without attack and defence."""
        return self._assembled(self.axes["algorithm"][0]).finish()

    @property
    def objective(self) -> Objective:
        return OWN_UTILITY if self.own else self.calm.problem.objectives[0]

    @cached_property
    def judged(self) -> list[list[int]]:
        """Clients that attack in no cell, by seed."""
        attacks = [build(Attack, _parameters(entry, "attack"), "attack") for entry in self.axes["attack"]]
        everyone = range(self.calm.clients)
        found = []
        for seed in self.calm.seeds:
            attackers = frozenset[int]().union(*(attack.attackers(everyone, seed) for attack in attacks))
            found.append([client for client in everyone if client not in attackers])
            if not found[-1]:
                raise UserError(
                    f"{self._place('attack')}with seed {seed} every client attacks in some cell, "
                    "so none is left to compare them by"
                )
        return found


def run(matrix: Matrix, out: Path, jobs: Jobs, say: Say, stop: Callable[[], bool]) -> dict[str, Any]:
    """Run what the folder does not hold yet, keep every finished cell there, and draw the heat map."""
    matrix.must_begin()
    with held(out, stop) as asked:
        store = _Store(out, matrix)
        _run_missing(store, jobs, say, asked)
        record = store.record()
        _draw(record, out)
    return record


def _run_missing(store: _Store, jobs: Jobs, say: Say, stop: Callable[[], bool]) -> None:
    matrix = store.matrix
    missing = [cell for cell in matrix.cells if matrix.key(cell) not in store.found]
    specs = {cell: matrix.spec(cell) for cell in missing}
    for cell, spec in specs.items():
        if isinstance(spec, str):
            store.keep(cell, {"refused": spec})
    store.write()  # So that a reader sees from the beginning which cells there are.
    work = [cell for cell in missing if isinstance(specs[cell], Spec)]
    say(_counts(store, len(work)))
    tally = Tally("cells", len(work), say)

    def is_to_stop() -> bool:
        store.catch_up()  # What was done meanwhile; this is asked several times a second.
        return stop()

    try:
        measure = partial(_measure, own=True) if matrix.own else _measure
        pieces = Pieces(measure, [matrix.draft(cell).values for cell in work], store.path.parent)
        for number, found in side_by_side(pieces, jobs, is_to_stop):
            store.keep(work[number], found)
            store.changed()
            tally.one_more()
    except Stopped:
        raise Stopped(f"stopped after {tally.done} of {len(work)} cells") from None
    finally:
        store.write()


def _counts(store: _Store, work: int) -> str:
    cells = store.matrix.cells
    unfit = sum("refused" in store.found.get(store.matrix.key(cell), {}) for cell in cells)
    done = len(cells) - work - unfit
    before = f"{done} done before, " if done else ""
    return f"{len(cells)} cells: {before}{work} to run, {unfit} that do not fit together"


def _measure(out: Path, values: dict[str, Any], stop: Callable[[], bool], own: bool = False) -> dict[str, Any]:
    """Run one cell, of which no file is kept; return every client's value of each seed."""
    start = time.perf_counter()
    spec = Draft(values).finish()
    seeds, measure = range(len(spec.seeds)), _own_utility if own else _first_objective
    try:
        result = runner.start(spec, stop=stop)
        found = {"clients": [_finite(measure(result, run)) for run in seeds]}
    except UserError as problem:  # Such as a model that diverged: that is the attack's effect.
        return {"failed": str(problem)}
    if spec.attack.kind == SPLIT:
        found["opened"] = [_finite(_final(result, run)[SPLIT][:, 0]) for run in seeds]
    return {**found, "seconds": round(time.perf_counter() - start, 3)}


class _Store(Ledger):
    """The finished cells in a folder's matrix.json."""

    def __init__(self, out: Path, matrix: Matrix) -> None:
        super().__init__(out / FILE)
        self.matrix = matrix
        self.found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            with reading(str(self.path)):
                record = read_object(self.path)
                base, own = record["base"], record.get("own", False)
                # Without what follows from its clients' values: other clients may be compared now.
                self.found = {
                    cell["key"]: {name: cell[name] for name in cell if "clients" not in cell or name not in DERIVED}
                    for cell in record["cells"]
                }
                different = first_difference(base, _plain(self.matrix.base.values))
                if not different:
                    self.record()  # A damaged cell is found now, and not after the last one.
        except UserError as problem:
            raise DamagedFile(
                f"{self.path} is not a fedpareto matrix, or is damaged ({problem}); name another --out"
            ) from None
        if own != self.matrix.own:
            different = f"another {MATRIX}.{MEASURE}"
        if different:
            raise UserError(f"{self.path} was made with {different}; name another --out")

    def keep(self, cell: Cell, found: Mapping[str, Any]) -> None:
        key = self.matrix.key(cell)
        self.found[key] = {"key": key, **found}

    def record(self) -> dict[str, Any]:
        """Return the whole record: axes, and the cells with their positions and values."""
        matrix, goal = self.matrix, self.matrix.objective
        keys = {matrix.key(cell): cell for cell in matrix.cells}
        cells = [
            {**cell, **self._worth(cell), "at": list(keys[key]) if key in keys else None}
            for key, cell in self.found.items()
        ]
        return {
            "measure": {"name": goal.name, "maximise": goal.maximise},
            "own": matrix.own,
            "labels": {axis: matrix.labels(axis) for axis in AXES},
            "judged": matrix.judged,
            "base": _plain(matrix.base.values),
            "cells": sorted(cells, key=lambda cell: (cell["at"] is None, cell["at"], cell["key"])),
        }

    def _worth(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Average a cell over clients and seeds, and find the worst client; None where one has no value."""
        if "clients" not in cell:
            return {}
        pairs = zip(cell["clients"], self.matrix.judged, strict=True)
        judged = [[of_seed[client] for client in clients] for of_seed, clients in pairs]
        if any(value is None for values in judged for value in values):
            return {"value": None, "worst": None, "failed": DIVERGED}
        least = min if self.matrix.objective.maximise else max
        opened = zip(cell.get("opened", ()), self.matrix.judged, strict=False)
        opens = [np.mean([of_seed[client] or 0.0 for client in clients]) for of_seed, clients in opened]
        return {
            **({"opens": float(np.mean(opens))} if opens else {}),
            "value": float(np.mean([np.mean(values) for values in judged])),
            "worst": float(np.mean([least(values) for values in judged])),
        }


def values_of(record: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The values `[defences, algorithms, attacks]`, NaN where there is none, and where two did not fit together."""
    rows, columns, panels = (len(record["labels"][axis]) for axis in AXES)
    values = np.full((panels, rows, columns), np.nan)
    refused = np.zeros(values.shape, dtype=bool)
    for cell in record["cells"]:
        if cell["at"] is not None:
            row, column, panel = cell["at"]
            value = cell.get("value")
            values[panel, row, column] = np.nan if value is None else value
            refused[panel, row, column] = "refused" in cell
    return values, refused


def _draw(record: Mapping[str, Any], out: Path) -> None:
    from fedpareto_audit.figures import heat_map, render

    values, refused = values_of(record)
    labels, measure = record["labels"], record["measure"]
    figure = heat_map(
        values,
        refused,
        rows=labels["algorithm"],
        columns=labels["attack"],
        panels=[f"defence: {name}" for name in labels["defence"]],
        measure=f"{measure['name']}, mean of honest clients",
        maximise=measure["maximise"],
    )
    for kind in ("png", "pdf"):
        write_atomically((out / PICTURE).with_suffix(f".{kind}"), render(figure, kind))


def _entries(value: Any, axis: str, path: Path) -> tuple[Entry, ...]:
    """Read the entries of an axis: names, or groups of parameters that begin with one."""
    if value is None:
        return (NAMED_SECTIONS.get(axis, "none"),)
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        if not (isinstance(entry, str) or (isinstance(entry, dict) and NAMES[axis] in entry)):
            raise UserError(
                f"{path}: {MATRIX}.{axis} holds {entry!r}; "
                f"an entry is a {NAMES[axis]}, or a group of parameters with it"
            )
    if not entries:
        raise UserError(f"{path}: {MATRIX}.{axis} is empty")
    unique = {json.dumps(entry, sort_keys=True, default=str) for entry in entries}
    if len(unique) < len(entries):
        raise UserError(f"{path}: {MATRIX}.{axis} holds an entry twice")
    return tuple(entries)


def _parameters(entry: Entry, axis: str) -> dict[str, Any]:
    return {NAMES[axis]: entry} if isinstance(entry, str) else entry


def _plain(values: Any) -> Any:
    """Return values as JSON gives them back."""
    return json.loads(json.dumps(values, default=str))


# -- the value of a cell -------------------------------------------------------------------------------------------


def _final(result: Result, run: int) -> Mapping[str, np.ndarray]:
    """Every client's final objectives by split, `[n, m]`."""
    measured = result.columns.evaluated(result.of_round(result.kept[run], result.spec.seeds[run]), "sent")
    assert measured is not None, "solutions are measured in the round whose models are kept"
    return measured


def _first_objective(result: Result, run: int) -> np.ndarray:
    """Every client's final value on held-out rows, `[n]`."""
    measured = _final(result, run)
    return measured[held_out(list(measured))][:, 0]


def _own_utility(result: Result, run: int) -> np.ndarray:
    """Final value of every client under its own preference, on held-out rows, `[n]`; NaN without a solution."""
    solutions = result.solutions[run]
    known = solutions.own_utilities()
    if known is None:
        raise UserError("clients keep their preferences private, so what they have under these is not known")
    found = np.full(result.spec.clients, np.nan)
    found[list(solutions.clients)] = known
    return found


def _finite(values: np.ndarray) -> list[float | None]:
    """Round values for a file; None where one is not finite."""
    return [round(value, 6) if math.isfinite(value) else None for value in values.tolist()]
