"""The files of a run folder, parsed: each is checked here, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import quoted, read_json
from fedpareto.moo.indicators import all_indicators, own_utilities
from fedpareto.moo.tested import Tested
from fedpareto.record.columns import Columns
from fedpareto.record.entries import EVALUATIONS, Event, Line, Objective, Output, Packed, Process, Solution, Status
from fedpareto.record.lines import COUNTS, MEASURED
from fedpareto.record.run_files import (
    Array,
    as_object,
    get,
    id_groups,
    integers,
    matrix,
    number,
    numbers,
    printable,
    square,
    texts,
)
from fedpareto.record.run_record import Record

FORMAT = 2
"""The layout of a run folder that this version writes and reads."""
IN_FIELDS = {*EVALUATIONS, *COUNTS, *MEASURED}
"""Values of a row that a Line has fields for."""
CENTRAL_FILE = "central.json"
"""In a run's folder, where it was asked for: the points of models trained on the rows of all clients."""
MOST_NAMED = 10
"""Attackers up to which each is named."""


def run_of(folder: Path) -> Record:
    """Read run.json, before any round of a run is known."""
    path = folder / "run.json"
    where = str(path)
    if not path.is_file():
        raise UserError(_not_a_run(folder))
    run = as_object(read_json(path), where)
    must_be_readable(run, folder)

    def text(name: str, default: str | None = None) -> str:
        return printable(get(run, name, str, where, default))

    def listed(name: str) -> Any:
        return get(run, name, list, where, [])

    objectives = tuple(_objective(entry, where) for entry in get(run, "objectives", list, where))
    m, splits, known_front = len(objectives), run.get("splits"), None
    if not m:
        raise DamagedFile(f"{where}: 'objectives' is empty")
    if not isinstance(splits, list) or not splits:
        raise DamagedFile(f"{where}: 'splits': expected a list of names")
    if run.get("known_front"):
        known_front = matrix(run["known_front"], m, f"{where}: 'known_front'")
        if not np.isfinite(known_front).all():
            raise DamagedFile(f"{where}: 'known_front' holds values that are not finite")
    outputs = [as_object(entry, f"{where}: 'outputs'") for entry in listed("outputs")]
    attackers = get(run, "attackers", list, where) if "attack" in run else []
    by_seed = tuple(integers(of_seed, f"{where}: 'attackers'") for of_seed in attackers)
    return Record(
        folder=folder,
        label=text("algorithm"),
        algorithm=text("algorithm"),
        problem=text("problem"),
        parameters=as_object(run.get("parameters", {}), f"{where}: 'parameters'"),
        seeds=integers(run.get("seeds"), f"{where}: 'seeds'"),
        clients=get(run, "clients", int, where),
        rounds=get(run, "rounds", int, where),
        objectives=objectives,
        outputs=tuple(
            Output(printable(get(one, "name", str, where)), tuple(map(printable, get(one, "classes", list, where))))
            for one in outputs
        ),
        splits=tuple(map(printable, splits)),
        tested=_tested(listed("tested"), m, f"{where}: 'tested'"),
        names=tuple(map(printable, listed("names"))),
        known_front=known_front,
        versions=texts(run.get("versions")),
        choices=texts(run.get("choices")),
        attack=_attack(as_object(run["attack"], f"{where}: 'attack'"), by_seed, where) if "attack" in run else "",
        defence=text("defence", ""),
        tiers=tuple(map(printable, listed("tiers"))),
        attackers=by_seed,
        began=text("began", ""),
        changes=tuple(as_object(one, f"{where}: 'changes'") for one in listed("changes")),
    )


def _attack(attack: dict[str, Any], by_seed: Sequence[tuple[int, ...]], where: str) -> str:
    """Kind, strength, attackers and first round of an attack, in words."""
    strength = f", strength {number(attack['strength'], where):g}" if "strength" in attack else ""
    return (
        f"{printable(get(attack, 'kind', str, where))}{strength}, by {_attackers(by_seed)}, "
        f"from round {get(attack, 'from_round', int, where)} on"
    )


def _attackers(by_seed: Sequence[tuple[int, ...]]) -> str:
    """Name the attackers, or count them where each seed has its own or there are many."""
    counts = sorted({len(of_seed) for of_seed in by_seed})
    if len(set(by_seed)) > 1:
        return f"{' or '.join(map(str, counts))} clients of each seed's own"
    clients = by_seed[0] if by_seed else ()
    if len(clients) > MOST_NAMED:
        return f"{len(clients)} clients"
    return f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"


def _tested(entries: list[Any], m: int, where: str) -> tuple[Tested, ...]:
    found = []
    for entry in entries:
        data = as_object(entry, where)
        answers = [matrix(points, m, f"{where}: 'constants'") for points in get(data, "constants", list, where)]
        if len({len(points) for points in answers}) > 1:
            raise DamagedFile(f"{where}: 'constants' are not of equally many clients")
        constants = np.stack(answers) if answers else np.zeros((0, 1, m))
        plain = as_object(data.get("plain", {}), f"{where}: 'plain'")
        points = {printable(name): matrix(one, m, f"{where}: 'plain'") for name, one in plain.items()}
        rows, smallest = (get(data, name, int, where) for name in ("rows", "smallest"))
        test, clients = (get(data, f"{name}_digest", str, where, "") for name in ("test", "clients"))
        found.append(Tested(rows, smallest, constants, points, test, clients))
    return tuple(found)


def _by_seed(path: Path) -> list[dict[str, Any]]:
    """Read a list with one entry per seed; empty without a file."""
    entries = read_json(path) if path.is_file() else []
    if not isinstance(entries, list):
        raise DamagedFile(f"{path}: expected a list with one entry per seed")
    return [as_object(entry, str(path)) for entry in entries]


def central_of(path: Path, m: int) -> dict[int, Array]:
    """Points of central.json by seed, if the file is there."""
    where = str(path)
    return {get(one, "seed", int, where): matrix(one.get("points"), m, f"{where}: 'points'") for one in _by_seed(path)}


def must_be_readable(run: dict[str, Any], folder: Path) -> None:
    """Raises UserError, with what to do, if a run was written by a fedpareto that kept its record in another way."""
    version = run.get("format")
    if type(version) is not int:
        raise DamagedFile(f"{folder / 'run.json'} is damaged: 'format' is {version!r}")
    if version > FORMAT:
        raise UserError(
            f"{folder}: written by a newer fedpareto (format {version}, this one reads {FORMAT}); update fedpareto"
        )
    if version < FORMAT:
        again = f"fedpareto run --spec {quoted(folder / 'spec.yaml')} --out NEW"
        raise UserError(
            f"{folder}: written by an older fedpareto (format {version}, this one reads {FORMAT}); "
            f"run it again with '{again}', or read it with fedpareto 0.1"
        )


def _not_a_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: there is no such folder"
    inside = sorted(path.parent for path in folder.glob("*/run.json"))
    hint = f"; did you mean {inside[0]}?" if inside else ""
    return f"{folder} is not a run folder: it has no run.json{hint}"


def _objective(entry: object, where: str) -> Objective:
    data = as_object(entry, f"{where}: 'objectives'")
    name, maximise = get(data, "name", str, where), get(data, "maximise", bool, where)
    reference, fairness = number(data.get("reference"), f"{where}: 'reference'"), data.get("fairness") is True
    return Objective(printable(name), maximise, reference, fairness)


def status_of(path: Path) -> Status:
    """Read status.json; unknown without one."""
    if not path.is_file():
        return Status()
    data, process = as_object(read_json(path), str(path)), None
    if data.get("process") is not None:
        where = f"{path}: 'process'"
        found = as_object(data["process"], where)
        process = Process(get(found, "pid", int, where), printable(get(found, "host", str, where)))
    return Status(
        name=printable(get(data, "status", str, str(path))),
        round=get(data, "round", int, str(path), 0),
        seconds=number(data.get("seconds", 0.0), f"{path}: 'seconds'"),
        message=printable(data.get("message") or ""),
        process=process,
    )


def line_of(data: dict[str, Any], where: str, columns: Columns) -> Line:
    """One row of metrics.jsonl, checked; what has a field of its own is not kept twice."""
    # Empty lists mean nothing, like null.
    clusters = id_groups(data.pop("clusters", None) or [], f"{where}: 'clusters'")
    similarity = square(data.pop("similarity", None) or [], f"{where}: 'similarity'")
    compared = _compared(data.pop("similarity_of", None), len(similarity), columns.clients, where)
    means = np.full((len(EVALUATIONS), len(columns.splits), columns.objectives), np.nan)
    for name, of_evaluation in zip(EVALUATIONS, means, strict=True):
        _fill_means(of_evaluation, data, name, columns, where)
    whole = {name: get(data, name, int, where) for name in ("seed", "round")}
    whole |= {name: get(data, name, int, where, 0) for name in COUNTS}
    measured: Any = {name: number(data.get(name), f"{where}: '{name}'") for name in MEASURED}
    rest = {intern(name): value for name, value in data.items() if name not in IN_FIELDS}
    return Line(
        **whole,
        **measured,
        averages=means,
        few_clusters=clusters or None,
        packed=Packed.of(similarity) if similarity.size else None,
        similarity_of=compared,
        row=rest,
        columns=columns,
    )


def _compared(value: object, size: int, clients: int, where: str) -> tuple[int, ...] | None:
    """Return the clients whose similarities these are, if not all."""
    if value is None:
        return None
    found = integers(value, f"{where}: 'similarity_of'")
    if len(set(found)) != size or list(found) != sorted(found) or not all(0 <= one < clients for one in found):
        raise DamagedFile(f"{where}: 'similarity_of' does not name {size} of {clients} clients")
    return found


def _fill_means(means: Array, data: dict[str, Any], evaluation: str, columns: Columns, where: str) -> None:
    """Fill in the means `[splits, m]` of one evaluation where any client has values; then there must be a block."""
    entry = as_object(data.get(evaluation) or {}, f"{where}: '{evaluation}'")
    if entry and columns.block(data, evaluation) is None:
        raise DamagedFile(f"{where}: '{evaluation}' has no values of clients")
    for split, of_split in entry.items():
        if split not in columns.splits:
            raise DamagedFile(f"{where}: '{evaluation}' has an unknown split '{printable(split)}'")
        if of_split is not None:
            found = numbers(of_split, f"{where}: '{evaluation}'")
            if len(found) != columns.objectives:
                raise DamagedFile(f"{where}: '{evaluation}': expected {columns.objectives} numbers")
            means[columns.splits.index(split)] = found


def event_of(data: dict[str, Any], where: str) -> Event:
    return Event(
        seed=get(data, "seed", int, where),
        round=get(data, "round", int, where),
        client=get(data, "client", int, where),
        reason=printable(data.get("reason", "")),
    )


def solutions_of(record: Record, path: Path) -> dict[int, Solution]:
    """Read solutions.json by seed, if it is there."""
    m, known = len(record.objectives), {}
    for entry in _by_seed(path):
        solution = _solution(entry, record.rounds, m, str(path))
        if record.held_out not in solution.objectives:
            raise DamagedFile(f"{path}: seed {solution.seed} has no split '{record.held_out}'")
        known[solution.seed] = solution
    return known


def _solution(data: dict[str, Any], rounds: int, m: int, where: str) -> Solution:
    indicators = as_object(data.get("indicators"), f"{where}: 'indicators'")
    points = as_object(data.get("objectives") or {}, f"{where}: 'objectives'")
    objectives = {name: matrix(rows, m, f"{where}: 'objectives', '{name}'") for name, rows in points.items()}
    if not objectives:
        raise DamagedFile(f"{where}: 'objectives' is missing")
    clients, preferences = data.get("clients"), data.get("preferences")
    lengths = {len(rows) for rows in objectives.values()}
    for rows in (clients, preferences):
        if isinstance(rows, list) and {len(rows)} != lengths:
            raise DamagedFile(f"{where}: 'clients', 'preferences' and 'objectives' differ in length")
    return Solution(
        seed=get(data, "seed", int, where),
        round=get(data, "round", int, where, rounds),
        clients=integers(data.get("clients"), f"{where}: 'clients'"),
        preferences=None if preferences is None else matrix(preferences, m, f"{where}: 'preferences'"),
        objectives=objectives,
        indicators={name: number(value, f"{where}: '{name}'") for name, value in indicators.items()},
    )


def solution_so_far(record: Record, seed: int) -> Solution:
    """Return the last round of a seed that has not ended."""
    line = [line for line in record.of_seed(seed) if line.sent][-1]
    points = line.sent[record.held_out]
    known, wishes = np.isfinite(points).all(axis=1), record.of_seed(seed)[0].preferences
    reference = [objective.reference for objective in record.objectives]
    wanted = None if wishes is None or not known.any() else wishes[known]
    indicators = all_indicators(points[known], reference, record.maximise, record.known_front, wanted)
    if wanted is not None:
        own = float(own_utilities(points[known], wanted, record.maximise).mean())
        indicators |= {"own_utility": own, "regret": indicators["expected_utility"] - own}
    return Solution(seed, line.round, tuple(range(len(points))), wishes, line.sent, indicators)
