"""A run folder read back into a Record: its files are checked here, once.

A run that has not finished is described by what it wrote so far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.columns import Columns, in_folder
from fedpareto.errors import DamagedFile, UserError
from fedpareto.files import quoted, read_json
from fedpareto.moo.indicators import all_indicators
from fedpareto.moo.tested import Tested
from fedpareto.report._files import (
    Array,
    as_object,
    get,
    id_groups,
    integers,
    json_lines,
    matrix,
    number,
    numbers,
    printable,
    read_text,
    square,
    texts,
)
from fedpareto.report.entries import Event, Line, Objective, Output, Solution, Status
from fedpareto.report.record import Record

FORMAT = 2
"""The layout of a run folder that this version writes and reads."""
CENTRAL_FILE = "central.json"
"""In a run's folder, where it was asked for: the points of models trained on the rows of all clients."""
MOST_NAMED = 10
"""Attackers up to which each is named."""


class NoRoundsYet(UserError):
    """A run without anything to show yet."""


def load(folder: Path) -> Record:
    """The run in `folder`; `UserError` says in one line why it cannot be shown."""
    folder = Path(folder)
    run = _read_run(folder)
    where = str(folder / "run.json")
    objectives = tuple(_objective(entry, where) for entry in get(run, "objectives", list, where))
    m = len(objectives)
    if not m:
        raise DamagedFile(f"{where}: 'objectives' is empty")
    status = _read_status(folder / "status.json")
    clients = get(run, "clients", int, where)
    splits = _splits(run.get("splits"), f"{where}: 'splits'")
    columns = in_folder(folder, clients, splits, m)
    lines = _read_lines(folder / "metrics.jsonl", columns, status.name == "finished")
    seeds = integers(run.get("seeds"), f"{where}: 'seeds'")
    if not any(line.seed in seeds for line in lines):
        if status.name == "finished":
            raise DamagedFile(f"{folder / 'metrics.jsonl'} is damaged: the run is finished, but it holds no round")
        reason = f": {status.message}" if status.message else ""
        raise NoRoundsYet(f"{folder}: no rounds yet (status: {status.name}{reason})")
    record = Record(
        folder=folder,
        label=printable(get(run, "algorithm", str, where)),
        algorithm=printable(get(run, "algorithm", str, where)),
        problem=printable(get(run, "problem", str, where)),
        seeds=seeds,
        clients=clients,
        rounds=get(run, "rounds", int, where),
        objectives=objectives,
        outputs=tuple(_output(entry, where) for entry in get(run, "outputs", list, where, [])),
        splits=splits,
        tested=_tested(get(run, "tested", list, where, []), m, f"{where}: 'tested'"),
        central=_central(folder / CENTRAL_FILE, m),
        names=tuple(printable(name) for name in get(run, "names", list, where, [])),
        known_front=_known_front(run.get("known_front"), m, f"{where}: 'known_front'"),
        versions=texts(run.get("versions")),
        choices=texts(run.get("choices")),
        attack=_attack(run, where),
        defence=printable(get(run, "defence", str, where, "")),
        spec=read_text(folder / "spec.yaml"),
        status=status,
        lines=lines,
        events=_read_events(folder / "events.jsonl"),
        solutions=(),
        tiers=tuple(printable(name) for name in get(run, "tiers", list, where, [])),
    )
    return dataclasses.replace(record, solutions=_solutions(record))


def _output(entry: object, where: str) -> Output:
    output = as_object(entry, f"{where}: 'outputs'")
    classes = get(output, "classes", list, where)
    return Output(printable(get(output, "name", str, where)), tuple(printable(name) for name in classes))


def _attack(run: dict[str, Any], where: str) -> str:
    """Kind, strength, attackers and first round of an attack, in words."""
    if "attack" not in run:
        return ""
    attack = as_object(run["attack"], f"{where}: 'attack'")
    by_seed = [integers(of_seed, f"{where}: 'attackers'") for of_seed in get(run, "attackers", list, where)]
    strength = f", strength {number(attack['strength'], where):g}" if "strength" in attack else ""
    return (
        f"{printable(get(attack, 'kind', str, where))}{strength}, by {_attackers(by_seed)}, "
        f"from round {get(attack, 'from_round', int, where)} on"
    )


def _attackers(by_seed: Sequence[tuple[int, ...]]) -> str:
    """Which clients, or how many where each seed has its own or there are many."""
    counts = sorted({len(of_seed) for of_seed in by_seed})
    if len(set(by_seed)) > 1:
        return f"{' or '.join(map(str, counts))} clients of each seed's own"
    clients = by_seed[0] if by_seed else ()
    if len(clients) > MOST_NAMED:
        return f"{len(clients)} clients"
    return f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"


def _known_front(value: object, m: int, where: str) -> Array | None:
    if not value:
        return None
    points = matrix(value, m, where)
    if not np.isfinite(points).all():
        raise DamagedFile(f"{where} holds values that are not finite")
    return points


def _splits(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise DamagedFile(f"{where}: expected a list of names")
    return tuple(printable(name) for name in value)


def _tested(entries: list[Any], m: int, where: str) -> tuple[Tested, ...]:
    found = []
    for entry in entries:
        data = as_object(entry, where)
        answers = [matrix(points, m, f"{where}: 'constants'") for points in get(data, "constants", list, where)]
        if len({len(points) for points in answers}) > 1:
            raise DamagedFile(f"{where}: 'constants' are not of equally many clients")
        constants = np.stack(answers) if answers else np.zeros((0, 1, m))
        found.append(Tested(get(data, "rows", int, where), get(data, "smallest", int, where), constants))
    return tuple(found)


def _central(path: Path, m: int) -> dict[int, Array]:
    entries = read_json(path) if path.is_file() else []
    if not isinstance(entries, list):
        raise DamagedFile(f"{path}: expected a list with one entry per seed")
    found = [as_object(entry, str(path)) for entry in entries]
    return {get(one, "seed", int, str(path)): matrix(one.get("points"), m, f"{path}: 'points'") for one in found}


def _needs(split: str, found: Mapping[str, Array], where: str) -> None:
    if split not in found:
        raise DamagedFile(f"{where} has no split '{split}'")


def _read_run(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        raise UserError(_not_a_run(folder))
    run = as_object(read_json(path), str(path))
    must_be_readable(run, folder)
    return run


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


def _read_status(path: Path) -> Status:
    if not path.is_file():
        return Status()
    data = as_object(read_json(path), str(path))
    return Status(
        name=printable(get(data, "status", str, str(path))),
        round=get(data, "round", int, str(path), 0),
        seconds=number(data.get("seconds", 0.0), f"{path}: 'seconds'"),
        message=printable(data.get("message") or ""),
    )


def _read_lines(path: Path, columns: Columns, is_over: bool) -> tuple[Line, ...]:
    """The rounds whose values are all there: after a power cut the last ones of a run may not be."""
    length, lines = columns.source.length, {}
    for data, where in json_lines(path):
        if columns.reaches(data) <= length:
            # A resumed run writes the round it was stopped in again; the later row counts.
            line = _line(data, where, columns)
            lines[line.seed, line.round] = line
        elif is_over:
            raise DamagedFile(f"{columns.source.name} is damaged: {length} bytes are left of {columns.reaches(data)}")
    return tuple(lines[key] for key in sorted(lines))


def _line(data: dict[str, Any], where: str, columns: Columns) -> Line:
    # Empty lists mean nothing, like null.
    clusters = id_groups(data.get("clusters") or [], f"{where}: 'clusters'")
    similarity = square(data.get("similarity") or [], f"{where}: 'similarity'")
    return Line(
        seed=get(data, "seed", int, where),
        round=get(data, "round", int, where),
        means={name: _means(data, name, columns, where) for name in ("sent", "trained")},
        hypervolume=number(data.get("hypervolume"), f"{where}: 'hypervolume'"),
        trained_hypervolume=number(data.get("trained_hypervolume"), f"{where}: 'trained_hypervolume'"),
        seconds=number(data.get("seconds"), f"{where}: 'seconds'"),
        replies=get(data, "replies", int, where, 0),
        failures=get(data, "failures", int, where, 0),
        bytes_up=get(data, "bytes_up", int, where, 0),
        bytes_down=get(data, "bytes_down", int, where, 0),
        few_clusters=clusters or None,
        similarity=similarity if similarity.size else None,
        epsilon=number(data.get("epsilon"), f"{where}: 'epsilon'"),
        **{name: number(data.get(name), f"{where}: '{name}'") for name in ("clock", "over", "joules", "staleness")},
        row=data,
        columns=columns,
    )


def _means(data: dict[str, Any], evaluation: str, columns: Columns, where: str) -> dict[str, Array]:
    """By split, of one evaluation, where any client has values; each has its block."""
    entry = as_object(data.get(evaluation) or {}, f"{where}: '{evaluation}'")
    if entry and columns.block(data, evaluation) is None:
        raise DamagedFile(f"{where}: '{evaluation}' has no values of clients")
    found = {}
    for split, means in entry.items():
        _known(split, columns.splits, f"{where}: '{evaluation}'")
        if means is not None:
            found[split] = numbers(means, f"{where}: '{evaluation}'")
            if len(found[split]) != columns.objectives:
                raise DamagedFile(f"{where}: '{evaluation}': expected {columns.objectives} numbers")
    return found


def _known(split: str, splits: Sequence[str], where: str) -> None:
    if split not in splits:
        raise DamagedFile(f"{where} has an unknown split '{printable(split)}'")


def _read_events(path: Path) -> tuple[Event, ...]:
    return tuple(
        Event(
            seed=get(data, "seed", int, where),
            round=get(data, "round", int, where),
            client=get(data, "client", int, where),
            reason=printable(data.get("reason", "")),
        )
        for data, where in json_lines(path)
    )


def _solutions(record: Record) -> tuple[Solution, ...]:
    """The final solutions where the run wrote them, else the last round of each started seed."""
    path = record.folder / "solutions.json"
    entries = read_json(path) if path.is_file() else []
    if not isinstance(entries, list):
        raise DamagedFile(f"{path}: expected a list with one entry per seed")
    m, known = len(record.objectives), {}
    for entry in entries:
        solution = _solution(as_object(entry, str(path)), record.rounds, m, str(path))
        _needs(record.held_out, solution.objectives, f"{path}: seed {solution.seed}")
        known[solution.seed] = solution
    return tuple(known.get(seed) or _so_far(record, seed) for seed in record.started)


def _solution(data: dict[str, Any], rounds: int, m: int, where: str) -> Solution:
    indicators = as_object(data.get("indicators"), f"{where}: 'indicators'")
    objectives = _points_by_split(data.get("objectives"), m, f"{where}: 'objectives'")
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
        preferences=_preferences(data.get("preferences"), m, where),
        objectives=objectives,
        indicators={name: number(value, f"{where}: '{name}'") for name, value in indicators.items()},
    )


def _preferences(value: object, m: int, where: str) -> Array | None:
    return None if value is None else matrix(value, m, f"{where}: 'preferences'")


def _so_far(record: Record, seed: int) -> Solution:
    line = [line for line in record.of_seed(seed) if line.sent][-1]
    points = line.sent[record.held_out]
    finite = points[np.isfinite(points).all(axis=1)]
    reference = [objective.reference for objective in record.objectives]
    indicators = all_indicators(finite, reference, record.maximise, record.known_front)
    return Solution(seed, line.round, tuple(range(len(points))), None, line.sent, indicators)


def _points_by_split(value: object, m: int, where: str) -> dict[str, Array] | None:
    if value is None:
        return None
    return {name: matrix(rows, m, f"{where}, '{name}'") for name, rows in as_object(value, where).items()}
