"""One run and its numbers, and which runs can be compared. `reading.load` makes it of a run folder.

Arrays are indexed by started seed first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import front
from fedpareto.moo.fairness import AcrossClients, Evaluation, across_objectives, shares_improved
from fedpareto.moo.filters import counted
from fedpareto.moo.indicators import all_indicators, own_utilities
from fedpareto.moo.tested import Constant, Tested
from fedpareto.record.entries import OWN_TEST, ROWS, Event, Line, Objective, Output, Solution, Status
from fedpareto.record.lines import by_seed
from fedpareto.record.phrases import collapse_in_words, few_rows_in_words, stop_in_words
from fedpareto.record.run_files import Array, Clusters, printable


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """One run: an algorithm on a problem, over several seeds."""

    folder: Path
    label: str
    """The name in legends and tables; `distinguish` makes it unique among compared runs."""
    algorithm: str
    problem: str
    parameters: Mapping[str, Any]
    """Parameters of the problem; empty in older folders."""
    seeds: tuple[int, ...]
    """The requested seeds; `started` are those that have results."""
    clients: int
    rounds: int
    objectives: tuple[Objective, ...]
    outputs: tuple[Output, ...]
    """Outputs of the models; empty where the problem does not say."""
    splits: tuple[str, ...]
    tested: tuple[Tested, ...]
    """Test rows of each seed, in the order of `seeds`; empty where the rows are elsewhere."""
    central: dict[int, Array] = field(default_factory=dict)
    """Points by seed, `[n, m]` on the held-out split: a model for each client's preference, trained on the rows of all;
    empty unless it was asked for.
    """
    names: tuple[str, ...]
    """Name of each client, such as a branch; empty where they are only numbers."""
    known_front: Array | None
    versions: dict[str, str]
    choices: dict[str, str]
    attack: str
    """The attack, in words; empty without one."""
    defence: str
    """The rule that replies go through; empty without one."""
    spec: str = ""
    status: Status = Status()
    lines: Sequence[Line] = ()
    """Lines by seed and round."""
    events: tuple[Event, ...] = ()
    solutions: tuple[Solution, ...] = field(default=(), repr=False)
    """One per started seed."""
    rank: int = 1
    """Rank of the fronts that are drawn and measured."""
    attackers: tuple[tuple[int, ...], ...] = ()
    """Attackers of each seed; empty without an attack."""
    changes: tuple[Mapping[str, Any], ...] = ()
    """Changes of the spec when the run was resumed, each with its round."""
    tiers: tuple[str, ...] = ()
    """Kinds of machines that clients have; empty where they are not told apart."""
    began: str = ""
    """Start of the run in UTC, in ISO 8601; empty where it does not say."""
    converged: bool = False
    """True if models that did not converge are left out of the fronts."""

    @property
    def finished(self) -> bool:
        return self.status.name == "finished"

    @property
    def single(self) -> bool:
        return len(self.objectives) == 1

    @property
    def maximise(self) -> list[bool]:
        """Directions by objective, as the functions of `fedpareto.moo` expect them."""
        return [objective.maximise for objective in self.objectives]

    @property
    def held_out(self) -> str:
        return held_out_split(self.splits)

    @property
    def measured(self) -> str:
        """Name the rows that results were measured on, or where clients have none, the measure."""
        if self.held_out not in ROWS:
            return f"by {self.held_out}"
        if OWN_TEST in self.splits:
            return "on the test rows of all clients"
        return "on each client's own test rows" if self.held_out == "test" else f"on the {self.held_out} split"

    @property
    def started(self) -> tuple[int, ...]:
        """The seeds that have at least one round, in the requested order."""
        return tuple(self._of_seeds)

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

    def of_seed(self, seed: int) -> Sequence[Line]:
        if seed not in self._of_seeds:
            known = ", ".join(str(s) for s in self.started)
            raise UserError(f"{self.folder}: nothing of seed {seed}; it has {known}")
        return self._of_seeds[seed]

    def solution(self, seed: int) -> Solution:
        self.of_seed(seed)
        return next(solution for solution in self.solutions if solution.seed == seed)

    def points(self, split: str | None = None) -> list[Array]:
        """Final points `[n, m]` of each started seed on the held-out or the given split, NaN included."""
        return [solution.objectives[split or self.held_out] for solution in self.solutions]

    def pooled(self) -> Array:
        """`[k, m]`: the final points of all seeds on the held-out split that fronts are drawn of."""
        return np.concatenate([self.drawn(solution) for solution in self.solutions])

    def drawn(self, solution: Solution) -> Array:
        """`[k, m]`: those of one seed: the finite ones, but for outliers where these are to be left out."""
        return np.asarray(solution.objectives[self.held_out][self.counts(solution)])

    def counts(self, solution: Solution) -> NDArray[np.bool_]:
        """`[k]`: True for the points that fronts are drawn of."""
        fairness = [objective.fairness for objective in self.objectives] if self.converged else None
        return counted(solution.objectives[self.held_out], self.maximise, self.rank, fairness)

    def without_outliers(self, rank: int = 1, converged: bool = False) -> Record:
        """Return the same run with its fronts of this rank, and of the models that converged (thesis, A.3.5).

        Indicators of a front follow; what clients have of their own models stays.
        """
        if converged and not any(objective.fairness for objective in self.objectives):
            raise UserError(f"'{self.problem}' has no fairness objective by which models that did not converge show")
        chosen = dataclasses.replace(self, rank=rank, converged=converged)
        return dataclasses.replace(chosen, solutions=tuple(chosen._measured_anew(one) for one in self.solutions))

    def _measured_anew(self, solution: Solution) -> Solution:
        reference, points = [objective.reference for objective in self.objectives], self.drawn(solution)
        found = all_indicators(points, reference, self.maximise, self.known_front, solution.preferences)
        indicators = solution.indicators | {key: value for key, value in found.items() if key in solution.indicators}
        if "regret" in indicators:
            indicators["regret"] = indicators["expected_utility"] - indicators["own_utility"]
        return dataclasses.replace(solution, indicators=indicators)

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

    def own_utilities(self, seed: int, evaluation: Evaluation = "sent") -> Array | None:
        """`[n]`: what each client has of its own model under its own preference; None where that is not known.

        Of the final models, or of those that clients trained last, which only participants have.
        """
        one = self.solution(seed)
        if one.preferences is None:
            return None
        if evaluation == "sent":
            return self._utilities(one.objectives[self.held_out], one.preferences)
        line = self._last(seed, evaluation)
        if line is None or len(one.clients) != self.clients:
            return None
        points = line.measured(evaluation)[self.held_out]
        known = np.isfinite(points).all(axis=1)
        return own_utilities(points[known], one.preferences[known], self.maximise)

    def _utilities(self, points: Array, preferences: Array) -> Array:
        """`[n]`; NaN for points that are not finite, which a run under way may have."""
        found, known = np.full(len(points), np.nan), np.isfinite(points).all(axis=1)
        if known.any():
            found[known] = own_utilities(points[known], preferences[known], self.maximise)
        return found

    def preferences(self, seed: int) -> Array | None:
        """`[n, m]`: what each client wants, NaN where that is not known; None if clients keep it private.

        It is on record from the first round on. An older folder tells it once the run has finished.
        """
        lines = self.of_seed(seed)
        if lines[0].preferences is not None:
            return lines[0].preferences
        one = self.solution(seed)
        if one.preferences is None or "front" in lines[-1].row:  # These are the weights of a front of the server's.
            return None
        whole = np.full((self.clients, len(self.objectives)), np.nan)
        whole[list(one.clients)] = one.preferences
        return whole

    def constant(self, seed: int) -> Constant | None:
        """Return the score of the best constant answer under a seed, if the run says so."""
        found = self.tested_on(seed)
        return None if found is None else found.constant(self.objectives)

    @property
    def references(self) -> dict[str, dict[int, Array]]:
        """Points `[n, m]` by name and seed to compare a run with, as far as all started seeds have them."""
        found = dict[str, dict[int, Array]]()
        for seed in self.started:
            on = self.tested_on(seed)
            for name, points in ({} if on is None else on.references(self.objectives)).items():
                found.setdefault(name, {})[seed] = points
        every = found | {"central": self.central}
        return {name: points for name, points in every.items() if set(self.started) <= set(points)}

    @property
    def beside(self) -> dict[str, Array]:
        """Gains `[started]` over each reference: see Tested.beside."""
        found = []
        for one in self.solutions:
            on, points = self.tested_on(one.seed), one.objectives[self.held_out]
            is_known = on is not None and np.isfinite(points).all() and len(points)
            found.append(on.beside(points, one.preferences, self.objectives) if on and is_known else {})
        names = set.intersection(*(set(one) for one in found)) if found else set()
        return {name: np.array([one[name] for one in found]) for name in found[0] if name in names} if names else {}

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose every model scores what a constant answer does."""
        found = ((one, self.tested_on(one.seed)) for one in self.solutions)
        return [one.seed for one, on in found if on is not None and on.collapsed(one.objectives[self.held_out])]

    def tested_on(self, seed: int) -> Tested | None:
        place = self.seeds.index(seed)
        return self.tested[place] if place < len(self.tested) else None

    @property
    def warnings(self) -> list[str]:
        """Sentences about what makes the numbers doubtful."""
        return collapse_in_words(self.collapsed, len(self.started)) + few_rows_in_words(self.tested)

    @property
    def own_split(self) -> str:
        """The split of each client's own held-out rows: how clients fare is measured on these."""
        return OWN_TEST if OWN_TEST in self.splits else self.held_out

    def values(self, seed: int, evaluation: Evaluation = "sent") -> dict[int, Array]:
        """`[n, m]` by round, on clients' own held-out rows, where any has a value; NaN for those that have none."""
        return {line.round: line.measured(evaluation)[self.own_split] for line in self._evaluated(seed, evaluation)}

    def _evaluated(self, seed: int, evaluation: Evaluation) -> list[Line]:
        """The rounds in which any client has a value on its own held-out rows."""
        return [line for line in self.of_seed(seed) if line.has(evaluation, self.own_split)]

    def last_values(self, evaluation: Evaluation = "sent") -> list[Array]:
        """Return the last `values` of each started seed that has any, without the clients that have none.

        Where a seed was stopped early, the last of the models that were kept.
        """
        lasts = (self._last(seed, evaluation) for seed in self.started)
        found = [line.measured(evaluation)[self.own_split] for line in lasts if line is not None]
        return [points[np.isfinite(points).all(axis=1)] for points in found]

    def _last(self, seed: int, evaluation: Evaluation) -> Line | None:
        """The last round with such an evaluation, up to the one whose models were kept."""
        kept = self.solution(seed).round
        return max(
            (one for one in self._evaluated(seed, evaluation) if one.round <= kept),
            key=attrgetter("round"),
            default=None,
        )

    @property
    def early_stop(self) -> str:
        """Rounds of early stops, and rounds whose models were kept, in words; empty without early stopping."""
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
            rounds = {line.round: line for line in self._evaluated(seed, evaluation)}
            line = self._last(seed, evaluation) if round == -1 else rounds.get(round)
            if line is None:
                which = "" if round == -1 else f" after round {round}"
                raise UserError(f"{self.folder}: seed {seed} has no evaluation '{evaluation}'{which}")
            points = line.measured(evaluation)[self.own_split]
            names = (objective.name for objective in self.objectives)
            found.append(dict(zip(names, across_objectives(points, self.maximise), strict=True)))
        return found

    def across_rounds(self, evaluation: Evaluation) -> tuple[NDArray[np.int64], list[list[list[AcrossClients]]]]:
        """The rounds `[r]` of which all started seeds have the evaluation; and by seed, round and objective,
        statistics over the clients.
        """
        by_seed = [{line.round: line for line in self._evaluated(seed, evaluation)} for seed in self.started]
        rounds = sorted(set.intersection(*(set(lines) for lines in by_seed)))
        found = [
            [across_objectives(lines[r].measured(evaluation)[self.own_split], self.maximise) for r in rounds]
            for lines in by_seed
        ]
        return np.array(rounds, dtype=np.int64), found

    def mean_over_rounds(self, j: int) -> Array:
        """`[started, r]` over `common_rounds`: the mean over clients of an objective of what the server sends."""
        rounds, split = self.common_rounds, self.own_split
        unknown = np.full(len(self.objectives), np.nan)
        rows = [
            [lines[int(r)].means["sent"].get(split, unknown)[j] for r in rounds] for lines in self._by_seed.values()
        ]
        return np.array(rows, dtype=np.float64)

    def share_improved(self) -> tuple[NDArray[np.int64], Array]:
        """Rounds `[r]`, and `[started, r]`: the share of the participants whose training loss did not rise in them.

        Both are empty if the losses were not measured.
        """
        by_seed = []
        for seed in self.started:
            measured = ((line, line.losses) for line in self.of_seed(seed))
            by_seed.append(
                shares_improved(
                    (line.round, losses, line.columns.participants(line.row))
                    for line, losses in measured
                    if losses is not None
                )
            )
        rounds = sorted(set.intersection(*(set(shares) for shares in by_seed)))
        shares = np.array([[of_seed[r] for r in rounds] for of_seed in by_seed], dtype=np.float64)
        return np.array(rounds, dtype=np.int64), shares

    def clusters(self, seed: int) -> dict[int, Clusters]:
        """Groups of client ids by round, where they were recorded."""
        found = ((line.round, line.clusters) for line in self.of_seed(seed))
        return {r: clusters for r, clusters in found if clusters is not None}

    def similarity(self, seed: int) -> dict[int, Array]:
        """`[k, k]` by round, where it was recorded; rows and columns as in `similarity_of`."""
        return {line.round: line.similarity for line in self.of_seed(seed) if line.similarity is not None}

    def similarity_of(self, seed: int) -> tuple[int, ...]:
        """The clients that are compared, ascending: all, or where there are many, a sample that a run keeps to."""
        found = next((line for line in self.of_seed(seed) if line.similarity is not None), None)
        return tuple(range(self.clients)) if found is None or found.similarity_of is None else found.similarity_of

    @cached_property
    def _of_seeds(self) -> dict[int, Sequence[Line]]:
        """Lines by seed, for those that have any."""
        grouped = by_seed(self.lines)
        return {seed: grouped[seed] for seed in self.seeds if seed in grouped}

    @cached_property
    def _by_seed(self) -> dict[int, dict[int, Line]]:
        return {seed: {line.round: line for line in lines} for seed, lines in self._of_seeds.items()}


def held_out_split(splits: Sequence[str]) -> str:
    return "test" if "test" in splits else splits[-1]


def mean_and_deviation(values: Array) -> tuple[float, float]:
    """Mean and population deviation (ddof 0) of `values` `[k]`."""
    # An infinite distance of one seed makes inf - inf; the NaN that follows is the honest answer.
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.mean(values)), float(np.std(values))


def distinguish(records: Sequence[Record]) -> list[Record]:
    """Return the same runs with distinct labels: theirs, else the algorithm, and where that is not enough the folder
    too.
    """
    if len({record.label for record in records}) == len(records):
        return list(records)
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
