"""A run folder read back: its files are checked here, once; the rest is arithmetic.

Arrays are indexed by started seed first. A run that has not finished is described by what it wrote so far.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DamagedFile, UserError
from fedpareto.files import read_json
from fedpareto.moo.dominance import front
from fedpareto.moo.fairness import AcrossClients, Evaluation, across_objectives, shares_improved
from fedpareto.moo.indicators import all_indicators, own_utilities
from fedpareto.moo.tested import FEWEST_ROWS, Constant, Tested
from fedpareto.report._files import (
    Array,
    Clusters,
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

FORMAT = 1
"""The newest layout of a run folder that this version reads."""
ROWS = ("train", "validation", "test")
"""Splits that are parts of the clients' data."""
CENTRAL_FILE = "central.json"
"""In a run's folder, where it was asked for: the points of models trained on the rows of all clients."""
OWN_TEST = "own-test"
"""The split of each client's own test rows, where "test" is those of all clients."""
MOST_NAMED = 10
"""Attackers up to which each is named."""


@dataclass(frozen=True)
class Objective:
    """One objective of the problem and its direction."""

    name: str
    maximise: bool
    reference: float

    @property
    def better(self) -> str:
        """`higher` or `lower`."""
        return "higher" if self.maximise else "lower"


@dataclass(frozen=True)
class Output:
    """What the models predict: a label's name and its classes, of two the negative one first."""

    name: str
    classes: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """In one line."""
        if len(self.classes) != 2:
            return f"{self.name}, {len(self.classes)} classes"
        negative, positive = self.classes
        return f"{self.name}: {positive} counts as positive (1), {negative} as negative (0)"


@dataclass(frozen=True)
class Status:
    """The status that the run wrote. `unknown` if it never wrote one."""

    name: str = "unknown"
    round: int = 0
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Event:
    """One reply that the server refused or never received."""

    seed: int
    round: int
    client: int
    reason: str


@dataclass(frozen=True, eq=False)
class Line:
    """One seed after one round. Clients without a value have a row of NaN."""

    seed: int
    round: int
    sent: dict[str, Array]
    """By split, `[n, m]`: the models that the server sends out; empty in a round without an evaluation."""
    trained: dict[str, Array] | None
    """By split, `[n, m]`: the models after the local steps that follow; None after the last round."""
    hypervolume: float
    trained_hypervolume: float
    """NaN where there is none."""
    seconds: float
    replies: int
    failures: int
    bytes_up: int
    bytes_down: int
    clusters: Clusters | None
    similarity: Array | None
    """`[n, n]`, rows in the order of the client ids."""
    epsilon: float = float("nan")
    """ε of differential privacy so far; NaN without it, or without noise."""
    losses: Array | None = None
    """`[n]`, of what the server sends: each client's training loss; None where it was not measured."""
    participants: tuple[int, ...] = ()
    """The participants of the next round, where losses were measured."""

    def measured(self, evaluation: Evaluation) -> dict[str, Array]:
        """By split, `[n, m]`; empty where there was no such evaluation."""
        return self.sent if evaluation == "sent" else self.trained or {}


@dataclass(frozen=True, eq=False)
class Solution:
    """What one seed ended with, or has so far."""

    seed: int
    round: int
    clients: tuple[int, ...]
    preferences: Array | None
    """`[n, m]`; None until the run has finished, or if the clients keep theirs private."""
    objectives: dict[str, Array]
    """By split, `[n, m]`."""
    indicators: dict[str, float]


@dataclass(frozen=True, eq=False)
class Record:
    """One run: an algorithm on a problem, over several seeds."""

    folder: Path
    label: str
    """The name in legends and tables; `distinguish` makes it unique among compared runs."""
    algorithm: str
    problem: str
    seeds: tuple[int, ...]
    """The requested seeds; `started` are those that have results."""
    clients: int
    rounds: int
    objectives: tuple[Objective, ...]
    outputs: tuple[Output, ...]
    """What the models predict; empty where the problem does not say."""
    splits: tuple[str, ...]
    tested: tuple[Tested, ...]
    """What each seed's models are tested on, in the order of `seeds`; empty where the rows are elsewhere."""
    central: dict[int, Array]
    """By seed, `[n, m]` on the held-out split: a model for each client's preference, trained on the rows of all; empty
    unless it was asked for."""
    names: tuple[str, ...]
    """What each client is, such as a branch; empty where they are only numbers."""
    known_front: Array | None
    versions: dict[str, str]
    choices: dict[str, str]
    attack: str
    """The attack, in words; empty without one."""
    defence: str
    """The rule that replies go through; empty without one."""
    spec: str
    status: Status
    lines: tuple[Line, ...]
    events: tuple[Event, ...]
    solutions: tuple[Solution, ...] = field(repr=False)
    """One per started seed."""

    @property
    def finished(self) -> bool:
        """Whether every seed completed all rounds."""
        return self.status.name == "finished"

    @property
    def single(self) -> bool:
        """Whether there is one objective only, so that clients differ but there is no trade-off."""
        return len(self.objectives) == 1

    @property
    def maximise(self) -> list[bool]:
        """Per objective, as the functions of `fedpareto.moo` expect it."""
        return [objective.maximise for objective in self.objectives]

    @property
    def held_out(self) -> str:
        """The split that results are reported on."""
        return held_out_split(self.splits)

    @property
    def measured(self) -> str:
        """How results were measured, in words: on held-out rows, or where clients have none, by which measure."""
        if self.held_out not in ROWS:
            return f"by {self.held_out}"
        if OWN_TEST in self.splits:
            return "on the test rows of all clients"
        return "on each client's own test rows" if self.held_out == "test" else f"on the {self.held_out} split"

    @property
    def started(self) -> tuple[int, ...]:
        """The seeds that have at least one round, in the requested order."""
        return tuple(self._by_seed)

    @property
    def common_rounds(self) -> NDArray[np.int64]:
        """`[r]`: the rounds that every started seed has, and in which solutions were evaluated."""
        evaluated = ({line.round for line in lines.values() if line.sent} for lines in self._by_seed.values())
        common = set.intersection(*evaluated)
        return np.array(sorted(common), dtype=np.int64)

    @property
    def hypervolume(self) -> Array:
        """`[started, r]` over `common_rounds`: of the models that the server sends."""
        return self.over_rounds("hypervolume")

    @property
    def trained_hypervolume(self) -> Array:
        """`[started, r]` over `common_rounds`: after the next local steps; NaN where there are none."""
        return self.over_rounds("trained_hypervolume")

    def over_rounds(self, name: str) -> Array:
        """`[started, r]`: any number of a row, over `common_rounds`."""
        rounds = self.common_rounds
        rows = [[getattr(lines[int(r)], name) for r in rounds] for lines in self._by_seed.values()]
        return np.array(rows, dtype=np.float64)

    def total(self, name: str) -> Array:
        """`[started]`: the sum of a number over all rounds that a seed has, `common_rounds` or not."""
        sums = [sum(getattr(line, name) for line in self.of_seed(seed)) for seed in self.started]
        return np.array(sums, dtype=np.float64)

    def of_seed(self, seed: int) -> list[Line]:
        """The rounds of one seed, in order."""
        if seed not in self._by_seed:
            known = ", ".join(str(s) for s in self.started)
            raise UserError(f"{self.folder}: nothing of seed {seed}; it has {known}")
        return list(self._by_seed[seed].values())

    def solution(self, seed: int) -> Solution:
        """What one seed ended with, or has so far."""
        self.of_seed(seed)
        return next(solution for solution in self.solutions if solution.seed == seed)

    def points(self, split: str | None = None) -> list[Array]:
        """Final points `[n, m]` of each started seed on the held-out or the given split, NaN included."""
        return [solution.objectives[split or self.held_out] for solution in self.solutions]

    def pooled(self) -> Array:
        """`[k, m]`: the finite final points of all seeds on the held-out split."""
        points = np.concatenate(self.points())
        return np.asarray(points[np.isfinite(points).all(axis=1)])

    def front(self) -> Array:
        """`[f, m]`: the non-dominated ones among `pooled`, ascending by the first objective."""
        return front(self.pooled(), self.maximise)

    def indicator(self, name: str) -> Array:
        """`[started]`: one indicator of each seed; NaN where it is not known."""
        return np.array([s.indicators.get(name, np.nan) for s in self.solutions], dtype=np.float64)

    @property
    def indicators(self) -> dict[str, tuple[float, float]]:
        """Mean and population deviation over the seeds, by name."""
        names = dict.fromkeys(name for solution in self.solutions for name in solution.indicators)
        return {name: mean_and_deviation(self.indicator(name)) for name in names}

    def own_utilities(self, seed: int) -> Array | None:
        """`[n]`: what each client has of its own model under its own preference; None where that is not known."""
        one = self.solution(seed)
        if one.preferences is None:
            return None
        return own_utilities(one.objectives[self.held_out], one.preferences, self.maximise)

    def constant(self, seed: int) -> Constant | None:
        """What the best constant answer scores under a seed, if the run says so."""
        found = self._tested_on(seed)
        return None if found is None else found.constant(self.objectives)

    @property
    def references(self) -> dict[str, dict[int, Array]]:
        """By name and seed, points `[n, m]` to hold a run against, as far as all started seeds have them."""
        found = {seed: self._constant_points(seed) for seed in self.started}
        constant = {seed: points for seed, points in found.items() if points is not None}
        every = {"constant": constant, "central": self.central}
        return {name: points for name, points in every.items() if set(self.started) <= set(points)}

    def _constant_points(self, seed: int) -> Array | None:
        on, best = self._tested_on(seed), self.constant(seed)
        return None if on is None or best is None else on.constants[best.answer]

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose every model scores what a constant answer does."""
        found = ((one, self._tested_on(one.seed)) for one in self.solutions)
        return [one.seed for one, on in found if on is not None and on.collapsed(one.objectives[self.held_out])]

    def _tested_on(self, seed: int) -> Tested | None:
        place = self.seeds.index(seed)
        return self.tested[place] if place < len(self.tested) else None

    @property
    def warnings(self) -> list[str]:
        """What makes the numbers doubtful, in words."""
        return collapse_in_words(self.collapsed, len(self.started)) + few_rows_in_words(self.tested)

    @property
    def own_split(self) -> str:
        """The split of each client's own held-out rows: how clients fare is measured on these."""
        return OWN_TEST if OWN_TEST in self.splits else self.held_out

    def values(self, seed: int, evaluation: Evaluation = "sent") -> dict[int, Array]:
        """By round, `[n, m]` on clients' own held-out rows, where any has a value; NaN for those that have none."""
        lines = ((line.round, line.measured(evaluation).get(self.own_split)) for line in self.of_seed(seed))
        return {r: points for r, points in lines if points is not None and np.isfinite(points).all(axis=1).any()}

    def last_values(self, evaluation: Evaluation = "sent") -> list[Array]:
        """Of each started seed that has any, the last `values`, without the clients that have none.

        Where a seed was stopped early, the last of the models that were kept.
        """
        of_seeds = [list(self._up_to_kept(seed, evaluation).values()) for seed in self.started]
        return [found[-1][np.isfinite(found[-1]).all(axis=1)] for found in of_seeds if found]

    def _up_to_kept(self, seed: int, evaluation: Evaluation) -> dict[int, Array]:
        """Of `values`, those up to the round whose models were kept."""
        kept = self.solution(seed).round
        return {r: points for r, points in self.values(seed, evaluation).items() if r <= kept}

    @property
    def early_stop(self) -> str:
        """When seeds were stopped early and which rounds' models were kept, in words; empty without early stopping."""
        ends, kept = zip(*((self.of_seed(one.seed)[-1].round, one.round) for one in self.solutions), strict=True)
        is_chosen = self.finished and min(kept) < self.rounds
        return stop_in_words(ends, kept) if is_chosen else ""

    def across_clients(self, evaluation: Evaluation = "sent", round: int = -1) -> list[dict[str, AcrossClients]]:
        """For each started seed and objective, statistics over the clients on their own held-out rows.

        After `round` rounds; −1 is the last of which a seed has such an evaluation. "sent" is about the models that
        the server sends, "trained" about the same after the next local steps, of the clients that took part.
        """
        found = []
        for seed in self.started:
            values = self.values(seed, evaluation)
            if not values or round not in (-1, *values):
                which = "" if round == -1 else f" after round {round}"
                raise UserError(f"{self.folder}: seed {seed} has no evaluation '{evaluation}'{which}")
            points = values[max(self._up_to_kept(seed, evaluation)) if round == -1 else round]
            names = (objective.name for objective in self.objectives)
            found.append(dict(zip(names, across_objectives(points, self.maximise), strict=True)))
        return found

    def across_rounds(self, evaluation: Evaluation) -> tuple[NDArray[np.int64], list[list[list[AcrossClients]]]]:
        """The rounds `[r]` of which all started seeds have the evaluation; and by seed, round and objective,
        statistics over the clients.
        """
        by_seed = [self.values(seed, evaluation) for seed in self.started]
        rounds = sorted(set.intersection(*(set(values) for values in by_seed)))
        found = [[across_objectives(values[r], self.maximise) for r in rounds] for values in by_seed]
        return np.array(rounds, dtype=np.int64), found

    def share_improved(self) -> tuple[NDArray[np.int64], Array]:
        """Rounds `[r]`, and `[started, r]`: the share of the participants whose training loss did not rise in them.

        Both are empty if the losses were not measured.
        """
        by_seed = []
        for seed in self.started:
            lines = [line for line in self.of_seed(seed) if line.losses is not None]
            losses = {line.round: line.losses for line in lines if line.losses is not None}
            by_seed.append(shares_improved(losses, {line.round + 1: line.participants for line in lines}))
        rounds = sorted(set.intersection(*(set(shares) for shares in by_seed)))
        shares = np.array([[of_seed[r] for r in rounds] for of_seed in by_seed], dtype=np.float64)
        return np.array(rounds, dtype=np.int64), shares

    def clusters(self, seed: int) -> dict[int, Clusters]:
        """By round, where it was recorded: the groups of client ids."""
        return {line.round: line.clusters for line in self.of_seed(seed) if line.clusters is not None}

    def similarity(self, seed: int) -> dict[int, Array]:
        """By round, where it was recorded: `[n, n]`, in the order of the client ids."""
        return {line.round: line.similarity for line in self.of_seed(seed) if line.similarity is not None}

    @cached_property
    def _by_seed(self) -> dict[int, dict[int, Line]]:
        grouped: dict[int, dict[int, Line]] = {}
        for line in self.lines:
            grouped.setdefault(line.seed, {})[line.round] = line
        return {seed: grouped[seed] for seed in self.seeds if seed in grouped}


def counted(count: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def stop_in_words(ends: Sequence[int], kept: Sequence[int]) -> str:
    """For each seed, after which round it ended and which round was the best on validation rows."""
    s = "s" if len(ends) > 1 else ""
    after, best = (", ".join(map(str, rounds)) for rounds in (ends, kept))
    return f"ended after round{s} {after}; best on validation rows, and kept: round{s} {best}"


def collapse_in_words(collapsed: Sequence[int], seeds: int) -> list[str]:
    """A line where every model of some seeds scores what a constant answer does."""
    if not collapsed:
        return []
    which = "" if seeds == 1 else f" of seed{'s' if len(collapsed) > 1 else ''} {', '.join(map(str, collapsed))}"
    return [f"collapsed: every model{which} scores what the same answer for everybody does"]


def few_rows_in_words(tested: Sequence[Tested]) -> list[str]:
    """A line where results are mostly luck, or a client's own are."""
    if not tested:
        return []
    rows, smallest = min(one.rows for one in tested), min(one.smallest for one in tested)
    if rows < FEWEST_ROWS:
        return [f"only {rows} test rows are behind a point: differences are mostly luck below {FEWEST_ROWS}"]
    if smallest < FEWEST_ROWS:
        return [f"a client has only {smallest} test rows of its own: its values on them ({OWN_TEST}) are mostly luck"]
    return []


def held_out_split(splits: Sequence[str]) -> str:
    """`test` if there is one, else the last."""
    return "test" if "test" in splits else splits[-1]


def mean_and_deviation(values: Array) -> tuple[float, float]:
    """Mean and population deviation (ddof 0) of `values` `[k]`."""
    # An infinite distance of one seed makes inf - inf; the NaN that follows is the honest answer.
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.mean(values)), float(np.std(values))


def distinguish(records: Sequence[Record]) -> list[Record]:
    """The same runs with distinct labels: the algorithm, and where that is not enough the folder too."""
    shared = Counter(record.algorithm for record in records)
    used: Counter[str] = Counter()
    result = []
    for record in records:
        alone = shared[record.algorithm] == 1
        label = record.algorithm if alone else f"{record.algorithm} ({printable(record.folder.name)})"
        used[label] += 1
        label += f" #{used[label]}" if used[label] > 1 else ""
        result.append(dataclasses.replace(record, label=label))
    return result


def comparable(records: Sequence[Record]) -> list[Record]:
    """The runs under distinct labels, or `UserError` if their numbers cannot be compared."""
    if not records:
        raise UserError("nothing to compare: give at least one run folder")
    first = records[0]
    for other in records[1:]:
        for what, mine, theirs in _differences(first, other):
            sides = f"{first.folder} has {mine}, {other.folder} has {theirs}"
            raise UserError(f"cannot compare runs with different {what}: {sides}")
    return distinguish(records)


def _differences(a: Record, b: Record) -> Iterator[tuple[str, str, str]]:
    """What prevents a comparison: in words, in `a`, in `b`; the most important first."""
    if a.problem != b.problem:
        yield "problems", f"'{a.problem}'", f"'{b.problem}'"
    if a.objectives != b.objectives:
        yield "objectives", _in_words(a.objectives), _in_words(b.objectives)
    if a.held_out != b.held_out:
        yield "splits", f"'{a.held_out}'", f"'{b.held_out}'"


def _in_words(objectives: Sequence[Objective]) -> str:
    return ", ".join(f"{o.name} ({o.better} is better, reference {o.reference:g})" for o in objectives)


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
    lines = _read_lines(folder / "metrics.jsonl", m)
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
        clients=get(run, "clients", int, where),
        rounds=get(run, "rounds", int, where),
        objectives=objectives,
        outputs=tuple(_output(entry, where) for entry in get(run, "outputs", list, where, [])),
        splits=_splits(run.get("splits"), f"{where}: 'splits'"),
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
    )
    for line in lines:
        place = f"{folder / 'metrics.jsonl'}: seed {line.seed}, round {line.round}"
        if line.sent:
            _needs(record.held_out, line.sent, place)
        if line.losses is not None:
            _check_losses(line.losses, line.participants, record.clients, place)
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


def _needs(split: str, found: dict[str, Array], where: str) -> None:
    if split not in found:
        raise DamagedFile(f"{where} has no split '{split}'")


def _check_losses(losses: Array, participants: Sequence[int], clients: int, where: str) -> None:
    if len(losses) != clients:
        raise DamagedFile(f"{where} has {len(losses)} losses of {clients} clients")
    if not set(participants) <= set(range(clients)):
        raise DamagedFile(f"{where}: 'participants' names unknown clients")


def _read_run(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        raise UserError(_not_a_run(folder))
    run = as_object(read_json(path), str(path))
    version = get(run, "format", int, str(path))
    if version > FORMAT:
        raise UserError(
            f"{folder}: written by a newer fedpareto (format {version}, this one reads up to {FORMAT}); "
            "update fedpareto"
        )
    return run


def _not_a_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: there is no such folder"
    inside = sorted(path.parent for path in folder.glob("*/run.json"))
    hint = f"; did you mean {inside[0]}?" if inside else ""
    return f"{folder} is not a run folder: it has no run.json{hint}"


def _objective(entry: object, where: str) -> Objective:
    data = as_object(entry, f"{where}: 'objectives'")
    name, maximise = get(data, "name", str, where), get(data, "maximise", bool, where)
    return Objective(printable(name), maximise, number(data.get("reference"), f"{where}: 'reference'"))


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


def _read_lines(path: Path, m: int) -> tuple[Line, ...]:
    # A resumed run writes the round it was stopped in again; the later row counts.
    lines = {(line.seed, line.round): line for line in (_line(*entry, m) for entry in json_lines(path))}
    return tuple(lines[key] for key in sorted(lines))


def _line(data: dict[str, Any], where: str, m: int) -> Line:
    # Empty lists mean nothing, like null.
    clusters = id_groups(data.get("clusters") or [], f"{where}: 'clusters'")
    similarity = square(data.get("similarity") or [], f"{where}: 'similarity'")
    return Line(
        seed=get(data, "seed", int, where),
        round=get(data, "round", int, where),
        sent=_points_by_split(data.get("sent"), m, f"{where}: 'sent'") or {},
        trained=_points_by_split(data.get("trained"), m, f"{where}: 'trained'"),
        hypervolume=number(data.get("hypervolume"), f"{where}: 'hypervolume'"),
        trained_hypervolume=number(data.get("trained_hypervolume"), f"{where}: 'trained_hypervolume'"),
        seconds=number(data.get("seconds"), f"{where}: 'seconds'"),
        replies=get(data, "replies", int, where, 0),
        failures=get(data, "failures", int, where, 0),
        bytes_up=get(data, "bytes_up", int, where, 0),
        bytes_down=get(data, "bytes_down", int, where, 0),
        clusters=clusters or None,
        similarity=similarity if similarity.size else None,
        epsilon=number(data.get("epsilon"), f"{where}: 'epsilon'"),
        losses=numbers(data["losses"], f"{where}: 'losses'") if "losses" in data else None,
        participants=integers(data.get("participants", []), f"{where}: 'participants'"),
    )


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
