"""The runs that can be compared, and the differences of those that cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.record.entries import Objective
from fedpareto.record.run_files import printable
from fedpareto.record.run_record import Record, distinguish


def comparable(records: Sequence[Record]) -> list[Record]:
    """Return the runs under distinct labels, or raise `UserError` if their numbers cannot be compared."""
    if not records:
        raise UserError("nothing to compare: give at least one run folder")
    first = records[0]
    for other in records[1:]:
        for what, mine, theirs in _differences(first, other):
            sides = f"{first.folder} has {mine}, {other.folder} has {theirs}"
            raise UserError(f"cannot compare runs with different {what}: {sides}")
    return distinguish(records)


def _differences(a: Record, b: Record) -> Iterator[tuple[str, str, str]]:
    """Yield what prevents a comparison: in words, in `a`, in `b`; the most important first."""
    if a.problem != b.problem:
        yield "problems", f"'{a.problem}'", f"'{b.problem}'"
    if a.objectives != b.objectives:
        yield "objectives", _in_words(a.objectives), _in_words(b.objectives)
    if a.held_out != b.held_out:
        yield "splits", f"'{a.held_out}'", f"'{b.held_out}'"


def _in_words(objectives: Sequence[Objective]) -> str:
    return ", ".join(f"{o.name} ({o.better} is better, reference {o.reference:g})" for o in objectives)


def unlike(records: Sequence[Record]) -> list[str]:
    """Name in a sentence each difference of runs that a comparison does not allow.

    Models of runs on other rows, or of other clients, differ for that reason alone: none is better.
    """
    if not records:
        return []
    first, found = records[0], dict[str, list[str]]()
    for other in records[1:]:
        for what in _apart(first, other):
            found.setdefault(what, []).append(other.label)
    return [
        f"Other {what} than {first.label}: {', '.join(labels)}. No winner is marked, and nothing is paired."
        for what, labels in found.items()
    ]


def _apart(a: Record, b: Record) -> Iterator[str]:
    """Name what makes two runs no pair: rows by their digests, in older folders by the scores of constant answers."""
    if a.clients != b.clients or (a.names and b.names and a.names != b.names):
        yield "clients"
    common = ((a.tested_on(seed), b.tested_on(seed)) for seed in a.seeds if seed in b.seeds)
    pairs = [(one, other) for one, other in common if one is not None and other is not None]
    digested = [(one, other) for one, other in pairs if one.test_digest and other.test_digest]
    if any(one.test_digest != other.test_digest for one, other in digested) or not all(
        np.array_equal(one.constants, other.constants) and one.rows == other.rows for one, other in pairs
    ):
        yield "test rows"
    if any(one.clients_digest != other.clients_digest for one, other in digested):
        yield "training rows"
    if not digested and a.parameters and b.parameters:
        keys = {**a.parameters, **b.parameters}
        different = [printable(key) for key in keys if a.parameters.get(key) != b.parameters.get(key)]
        if different:
            yield f"parameters of the problem ({', '.join(different)})"


def same_preferences(records: Sequence[Record]) -> bool:
    """Return True if clients have the same preferences in all runs, as far as they are known, seed by seed."""
    known: dict[int, np.ndarray] = {}
    for record in records:
        for solution in record.solutions:
            wishes = solution.preferences
            if wishes is not None and not np.array_equal(known.setdefault(solution.seed, wishes), wishes, True):
                return False
    return True
