"""What the page asks for, each answered by a function of the shelf: the server and the saved page call these alone."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fedpareto.config.errors import UserError
from fedpareto.record.entries import EVALUATIONS
from fedpareto.record.lines import Lines
from fedpareto.record.run_record import Record, distinguish
from fedpareto_page.about import about as about_run
from fedpareto_page.attacks import matrix as matrix_of
from fedpareto_page.clients import clients as clients_of
from fedpareto_page.compare import compare as compare_of
from fedpareto_page.entries import entry
from fedpareto_page.federation import federation as federation_of
from fedpareto_page.film import film as film_of
from fedpareto_page.frames import frame
from fedpareto_page.grid import grid as grid_of
from fedpareto_page.other_runs import Other
from fedpareto_page.run import Run
from fedpareto_page.series import values_of
from fedpareto_page.solutions import solutions as solutions_of
from fedpareto_page.watch import Shelf, Unknown

MOST_POINTS = 200_000
"""Of one answer: above, rounds are left out."""
MOST_EVENTS = 500
"""Of one answer: the newest."""


def runs(shelf: Shelf) -> dict[str, Any]:
    """The shelf, but for `server`, `read_only` and `changes`, which only the server knows."""
    with shelf.lock:
        labels = _labels(shelf)
        return {
            "version": _version(),
            "title": shelf.title,
            "reading": shelf.reading,
            "runs": [entry(run, labels.get(run.id, ""), shelf.deployment_of(run)) for run in shelf.runs.values()],
            "others": [other.plain for other in shelf.others.values()],
        }


def about(shelf: Shelf, id: str) -> dict[str, Any]:
    """What a run is."""
    with shelf.lock:
        run = shelf.run(id)
        return about_run(run, _labels(shelf).get(id, ""), shelf.deployment_of(run))


def solutions(shelf: Shelf, id: str, split: str) -> bytes:
    """A frame: what a run ended with, and what its clients wanted."""
    with shelf.lock:
        run = shelf.run(id)
        _split(run, "sent", split)
        return solutions_of(run, split)


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
    """The places of lines that are sent."""
    places = range(since, len(rounds))
    if every == 1:
        return places
    last: dict[int, int] = {}
    for place, round in enumerate(rounds):
        seed = lines.seed_of(place)
        last[seed] = max(round, last.get(seed, 0))
    return [place for place in places if not rounds[place] % every or rounds[place] == last[lines.seed_of(place)]]


def events(shelf: Shelf, id: str, since: int = 0) -> dict[str, Any]:
    """The newest refusals."""
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
    return film_of(record, seed, wishes)


def grid(shelf: Shelf, id: str, seed: int) -> bytes:
    """A frame: what became of each client in each round."""
    with shelf.lock:
        run = shelf.run(id)
        record, quorum = run.record, run.spec.get("quorum")
    return grid_of(record, seed, quorum)


def clients(shelf: Shelf, id: str, seed: int, round: int | None, runs: Sequence[str]) -> dict[str, Any]:
    """What each client wanted and got; `round` None is the latest."""
    with shelf.lock:
        run = shelf.run(id)
        record, is_private = run.record, run.is_private
        wishes = None if is_private else record.preferences(seed)
        others = {other: found for other in runs if (found := _loaded(shelf.run(other))) is not None}
    return clients_of({id: record, **others}, id, seed, round, wishes, is_private)


def compare(shelf: Shelf, runs: Sequence[str]) -> dict[str, Any]:
    """Runs side by side."""
    with shelf.lock:
        chosen = {id: shelf.run(id) for id in runs}
        labels = _labels(shelf)  # One name on all screens, whichever runs are chosen.
        loaded = {id: found for id, run in chosen.items() if (found := _loaded(run)) is not None}
        records = {id: dataclasses.replace(one, label=labels.get(id, one.label)) for id, one in loaded.items()}
        specs = {id: run.spec for id, run in chosen.items()}
    return compare_of(records, specs)


def matrix(shelf: Shelf, id: str) -> dict[str, Any]:
    """Algorithms under attacks behind defences, as far as they were run."""
    with shelf.lock:
        return matrix_of(_other(shelf, id, "matrix"))


def federation(shelf: Shelf, id: str) -> dict[str, Any]:
    """The nodes of a deployment."""
    with shelf.lock:
        other = _other(shelf, id, "deployment")
        run = next((run for run in shelf.runs.values() if other.is_deployment_of(run.folder)), None)
        return federation_of(other, run)


def _other(shelf: Shelf, id: str, kind: str) -> Other:
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


@functools.cache
def _version() -> str:
    return version("fedpareto")


def _labels(shelf: Shelf) -> dict[str, str]:
    """By id, names that tell runs of one problem apart; those of others never stand beside them."""
    sound = [run for run in shelf.runs.values() if run.error is None]
    found: dict[str, str] = {}
    for problem in {run.about.problem for run in sound}:
        some = [run for run in sound if run.about.problem == problem]
        found |= {run.id: one.label for run, one in zip(some, distinguish([run.about for run in some]), strict=True)}
    return found
