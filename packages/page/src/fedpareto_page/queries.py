"""Answers to all that the page asks about a shelf: the server and the saved page call these functions alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted
from fedpareto.config.version import VERSION
from fedpareto.record.entries import EVALUATIONS, Solution
from fedpareto.record.lines import Lines
from fedpareto.record.run_record import Record, distinguish
from fedpareto.report.across import across_clients
from fedpareto.report.by_device import by_device
from fedpareto.report.comparison import comparison
from fedpareto.report.likeness import comparable
from fedpareto.report.table import Table
from fedpareto_page import clients as of_clients
from fedpareto_page import other_runs
from fedpareto_page.entries import entry, finite, finite_rows
from fedpareto_page.frames import frame
from fedpareto_page.run import Run, values_of
from fedpareto_page.watch import Shelf, Unknown

MOST_POINTS = 200_000
"""Values in one answer; of more, rounds are left out."""
MOST_EVENTS = 500
"""Refusals in one answer: the newest."""


def runs(shelf: Shelf) -> dict[str, Any]:
    """The shelf, but for `server`, `read_only` and `changes`, which only the server knows."""
    with shelf.lock:
        labels = _labels(shelf)
        return {
            "version": VERSION,
            "title": shelf.title,
            "reading": shelf.reading,
            "runs": [entry(run, labels.get(run.id, ""), shelf.deployment_of(run)) for run in shelf.runs.values()],
            "others": [other.plain for other in shelf.others.values()],
        }


def about(shelf: Shelf, id: str) -> dict[str, Any]:
    """All about one run that does not grow line by line."""
    with shelf.lock:
        run = shelf.run(id)
        record = run.latest
        references = record.references if record.lines else {}
        files = sorted(path for path in run.folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return {
            "id": run.id,
            "name": run.name,
            "label": _labels(shelf).get(id, ""),
            "spec": run.following.spec.value,
            "versions": record.versions,
            "choices": record.choices,
            "outputs": [
                {"name": one.name, "classes": list(one.classes), "words": one.in_words} for one in record.outputs
            ],
            "names": list(record.names),
            "tiers": list(record.tiers),
            "attack": record.attack,
            "attackers": [list(of_seed) for of_seed in record.attackers],
            "attack_from": run.spec.get("attack.from_round") if record.attack else None,
            "defence": record.defence,
            "warnings": record.warnings if record.lines else [],
            "early_stop": record.early_stop if record.lines else "",
            "known_front": None if record.known_front is None else finite_rows(record.known_front),
            "references": {
                name: {str(seed): finite_rows(points) for seed, points in by_seed.items()}
                for name, by_seed in references.items()
            },
            "changes": [dict(one) for one in record.changes],
            "files": [{"name": path.name, "bytes": path.stat().st_size} for path in files],
            "commands": _commands(run, shelf.deployment_of(run)),
        }


def _commands(run: Run, deployment: str | None) -> dict[str, str | None]:
    """Commands that do in a terminal what the page shows of this run."""
    folder, is_over = quoted(run.folder), run.status.name == "finished"
    parent = quoted(run.folder.parent)
    if deployment is not None:
        resume, stop = f"fedpareto server resume {parent}", f"fedpareto server stop {parent}"
    else:
        resume, stop = f"fedpareto resume {folder}", f"fedpareto stop {folder}"
    predict = None
    if run.is_servable:
        m = len(run.about.objectives)
        predict = f"fedpareto predict {folder} --preference {','.join([f'{1 / m:.3g}'] * m)} --input ROWS.csv"
    return {
        "show": f"fedpareto show {folder}",
        "resume": None if is_over or run.busy else resume,
        "repeat": f"fedpareto run --spec {quoted(run.folder / 'spec.yaml')} --out NEW",
        "stop": stop if run.busy else None,
        "predict": predict,
        "look": f"fedpareto space look {folder}" if (run.folder / "mission.json").is_file() else None,
        "page": f"fedpareto page {folder}",
    }


def solutions(shelf: Shelf, id: str, split: str) -> bytes:
    """A frame: by seed the final models' objectives `[m, k]` on a split and all clients' preferences `[n, m]`.

    A run that goes on has no solutions yet. Whose the models are is told where they are not those of clients 0, 1, ….
    Private preferences are left out.
    """
    with shelf.lock:
        run = shelf.run(id)
        _split(run, "sent", split)
        record = run.latest
        found = [_without_outliers(one, record) for one in record.solutions] if record.finished else []
        columns = {f"values.{one.seed}": one.objectives[split].T for one in found if split in one.objectives}
        for seed in () if run.is_private else record.started:
            if (wishes := record.preferences(seed)) is not None:
                columns[f"preferences.{seed}"] = wishes
        return frame({"solutions": [_solution(one, record) for one in found]}, columns)


def _without_outliers(one: Solution, record: Record) -> Solution:
    if record.rank == 1 and not record.converged:
        return one
    kept = np.flatnonzero(record.counts(one))
    objectives = {split: points[kept] for split, points in one.objectives.items()}
    return dataclasses.replace(one, clients=tuple(one.clients[i] for i in kept), objectives=objectives)


def _solution(one: Solution, record: Record) -> dict[str, Any]:
    is_everybody = one.clients == tuple(range(record.clients))
    return {
        "seed": one.seed,
        "round": one.round,
        "clients": None if is_everybody else list(one.clients),
        "count": len(one.clients),
        "indicators": {name: finite(value) for name, value in one.indicators.items()},
    }


def lines(shelf: Shelf, id: str, since: int = 0, epoch: int = 0) -> bytes:
    """A frame: the numbers of each line from `since` on."""
    with shelf.lock:
        run = shelf.run(id)
        since = run.at(since, epoch)
        return frame({"epoch": run.following.epoch, "since": since, "total": len(run.lines)}, run.numbers(since))


def values(shelf: Shelf, id: str, eval: str, split: str, since: int = 0, epoch: int = 0) -> bytes:
    """A frame: what single clients have, line by line."""
    with shelf.lock:
        run = shelf.run(id)
        known, part, lines = run.about, _split(run, eval, split), run.following.kept
        assert lines is not None, "run.json can be read"
        since, epoch = run.at(since, epoch), run.following.epoch
        every, rounds = _every(run), lines.numbers()[:, 1].astype(int).tolist()
        chosen = _thinned(lines, rounds, since, every)
    head = {"epoch": epoch, "since": since, "total": len(rounds), "clients": known.clients, "every": every}
    told = [[lines.seed_of(place), rounds[place]] for place in chosen]
    return frame(head | {"lines": told}, {"values": values_of(lines, chosen, eval, part)})


def _split(run: Run, eval: str, split: str) -> int:
    known = run.about.splits
    if eval not in EVALUATIONS:
        raise UserError(f"there is no evaluation '{eval}'; there are {' and '.join(EVALUATIONS)}")
    if split not in known:
        raise UserError(f"{run.name} has no split '{split}'; it has {', '.join(known)}")
    return known.index(split)


def _every(run: Run) -> int:
    """A power of two, so that it seldom changes as a run grows."""
    points = len(run.lines) * run.about.clients
    return 1 if points <= MOST_POINTS else 2 ** math.ceil(math.log2(points / MOST_POINTS))


def _thinned(lines: Lines, rounds: Sequence[int], since: int, every: int) -> Sequence[int]:
    """Places of the lines that are sent."""
    places = range(since, len(rounds))
    if every == 1:
        return places
    last: dict[int, int] = {}
    for place, round in enumerate(rounds):
        seed = lines.seed_of(place)
        last[seed] = max(round, last.get(seed, 0))
    return [place for place in places if not rounds[place] % every or rounds[place] == last[lines.seed_of(place)]]


def events(shelf: Shelf, id: str, since: int = 0) -> dict[str, Any]:
    with shelf.lock:
        found = shelf.run(id).following.events
        new = found[max(since, len(found) - MOST_EVENTS, 0) :]
    told = [{"seed": one.seed, "round": one.round, "client": one.client, "reason": one.reason} for one in new]
    return {"total": len(found), "events": told}


def film(shelf: Shelf, id: str, seed: int) -> bytes:
    """A frame: clusters and similarities round by round."""
    with shelf.lock:
        run = shelf.run(id)
        record = run.record
        wishes = None if run.is_private else record.preferences(seed)
    return of_clients.film(record, seed, wishes)


def grid(shelf: Shelf, id: str, seed: int) -> bytes:
    """A frame: what became of each client in each round."""
    with shelf.lock:
        run = shelf.run(id)
        record, quorum = run.record, run.spec.get("quorum")
    return of_clients.grid(record, seed, quorum)


def clients(shelf: Shelf, id: str, seed: int, round: int | None, runs: Sequence[str]) -> dict[str, Any]:
    """A table of what each client wanted and got; `round` None is the latest."""
    with shelf.lock:
        run = shelf.run(id)
        record, is_private = run.record, run.is_private
        wishes = None if is_private else record.preferences(seed)
        others = {other: found for other in runs if (found := _loaded(shelf.run(other))) is not None}
    return of_clients.clients({id: record, **others}, id, seed, round, wishes, is_private)


def compare(shelf: Shelf, runs: Sequence[str]) -> dict[str, Any]:
    """Runs side by side: the tables of the report for those that have rounds, and in what the specs of all differ."""
    with shelf.lock:
        chosen = {id: shelf.run(id) for id in runs}
        labels = _labels(shelf)  # One name on all screens, whichever runs are chosen.
        loaded = {id: found for id, run in chosen.items() if (found := _loaded(run)) is not None}
        records = [dataclasses.replace(one, label=labels.get(id, one.label)) for id, one in loaded.items()]
        differences = _differences({id: run.spec for id, run in chosen.items()})
    try:
        ids = {one.label: id for id, one in zip(loaded, comparable(records), strict=True)}
    except UserError as problem:
        return {"table": None, "across": [], "by_device": [], "differences": differences, "refused": str(problem)}
    return {
        "table": _with_ids(comparison(records), ids),
        "across": [_with_ids(table, ids) for table in across_clients(records)],
        "by_device": [_with_ids(table, ids) for table in by_device(records)],
        "differences": differences,
        "refused": None,
    }


def _with_ids(table: Table, ids: Mapping[str, str]) -> dict[str, Any]:
    """A table with the id of each row's run; the row of a reference has none."""
    found = table.to_plain()
    for row in found["rows"]:
        label = row["label"]
        row["run"] = ids.get(label) or ids.get(label.rpartition(", ")[0])
    return found


def _differences(specs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys of which not all runs have the same value; null where a run has no such key."""
    every, missing = list(specs.values()), object()
    return [
        {"key": key, "values": {id: spec.get(key) for id, spec in specs.items()}}
        for key in dict.fromkeys(key for spec in every for key in spec)
        if any(spec.get(key, missing) != every[0].get(key, missing) for spec in every)
    ]


def matrix(shelf: Shelf, id: str) -> dict[str, Any]:
    """Algorithms under attacks behind defences, as far as they were run."""
    with shelf.lock:
        return other_runs.matrix(_other(shelf, id, "matrix"))


def federation(shelf: Shelf, id: str) -> dict[str, Any]:
    with shelf.lock:
        other = _other(shelf, id, "deployment")
        run = next((run for run in shelf.runs.values() if other.is_deployment_of(run.folder)), None)
        return other_runs.federation(other, run)


def _other(shelf: Shelf, id: str, kind: str) -> other_runs.Other:
    found = shelf.other(id)
    if found.kind != kind:
        raise Unknown(f"'{id}' is a {found.kind}, not a {kind}")
    return found


def _loaded(run: Run) -> Record | None:
    """A run with its rounds; None if it has none yet, or cannot be read."""
    try:
        return run.record
    except UserError:
        return None


def _labels(shelf: Shelf) -> dict[str, str]:
    """Names by id that tell runs of one problem apart; those of others never stand beside them."""
    sound = [run for run in shelf.runs.values() if run.error is None]
    found: dict[str, str] = {}
    for problem in {run.about.problem for run in sound}:
        some = [run for run in sound if run.about.problem == problem]
        found |= {run.id: one.label for run, one in zip(some, distinguish([run.about for run in some]), strict=True)}
    return found
