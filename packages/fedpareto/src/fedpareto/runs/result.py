"""The result of a run: solutions, models, and what the record of its rounds says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.solutions import SolutionSet, held_out
from fedpareto.moo.dominance import front
from fedpareto.moo.fairness import AcrossClients, Evaluation, across_objectives, shares_improved
from fedpareto.moo.indicators import igd
from fedpareto.moo.intervals import interval
from fedpareto.moo.tested import Constant, Tested
from fedpareto.record.columns import Columns
from fedpareto.record.phrases import (
    beside_in_words,
    collapse_in_words,
    few_rows_in_words,
    no_plain_in_words,
    simulated_in_words,
    stop_in_words,
)
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import OWN_TEST

EVALUATIONS: dict[Evaluation, str] = {"sent": "sent by the server", "trained": "after local training"}
"""The two evaluations, and their names."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    spec: Spec
    solutions: list[SolutionSet]
    """One set for each seed."""
    models: list[Mapping[int, Tensor]] = field(repr=False)
    """For each seed, each client's model `[d]`."""
    history: list[dict[str, Any]] = field(repr=False)
    """The rows of metrics.jsonl: what a round came to, without single clients."""
    columns: Columns = field(repr=False)
    """The values of single clients in every round, by row: see `of_round`."""
    folder: Path | None = None
    kept: tuple[int, ...] = ()
    """For each seed, the round whose models these are: the last, or with early stopping the best on validation rows."""
    tested: tuple[Tested, ...] = ()
    """Test rows of each seed's models and the score of a constant answer; empty where no rows are here."""

    def __repr__(self) -> str:
        spec = self.spec
        what = f"{spec.algorithm.name} on {spec.problem.name}, {spec.clients} clients, {spec.rounds} rounds"
        return f"<Result of {what}, seeds {list(spec.seeds)}: {self.summary()[0]}>"

    def summary(self) -> list[str]:
        """The result in a line or two: the hypervolume, or of a single objective the clients' mean, worst and best."""
        if len(self.spec.problem.objectives) > 1:
            return [*self._trade_off(), *self._references(), *self._simulated(), *self._doubts(), *self._early_stop()]
        lines = []
        name = self.spec.problem.objectives[0].name
        for evaluation, words in EVALUATIONS.items():
            if all(any(self._evaluated(seed, evaluation)) for seed in self.spec.seeds):
                found = [of_seed[name] for of_seed in self.across_clients(evaluation)]
                mean = _with_spread([one.mean for one in found])
                worst, best = (np.mean([getattr(one, end) for one in found]) for end in ("worst", "best"))
                lines.append(f"mean {name} {mean}, worst client {worst:.4f}, best {best:.4f} ({words})")
        return [*lines, *self._references(), *self._simulated(), *self._doubts(), *self._early_stop()]

    def _trade_off(self) -> list[str]:
        """The hypervolume beside that of a constant answer, and what clients have under their own preferences."""
        constant, own, regret = self.constant, self.own_utility, self.regret
        beside = "" if constant is None else f"; a constant answer has {constant.hypervolume:.4f}"
        lines = [f"hypervolume {_with_spread([one.hypervolume() for one in self.solutions])}{beside}"]
        if own is not None:
            lines.append(f"utility under clients' own preferences {own:.4f}, regret {regret:.4f}")
        return lines

    @property
    def references(self) -> list[dict[str, np.ndarray]]:
        """For each seed, points to hold the models against on the same rows, by name: `[n, m]`, or `[1, m]` of one for
        all. The best constant answer, and plain models, as far as there are any; see Tested.
        """
        return [one.references(self.spec.problem.objectives) for one in self.tested]

    @property
    def beside(self) -> dict[str, np.ndarray]:
        """Worth of the models to their clients beyond each reference, `[seeds]`; see Tested.beside."""
        found = [
            on.beside(one.points, one.preferences, self.spec.problem.objectives)
            for one, on in zip(self.solutions, self.tested, strict=False)
            if len(one.points) and np.isfinite(one.points).all()
        ]
        if len(found) < len(self.solutions):
            return {}
        return {name: np.array([one[name] for one in found]) for name in found[0] if all(name in one for one in found)}

    def _references(self) -> list[str]:
        """Say in a line what the models are worth beside the references."""
        told, names = beside_in_words(self.beside), {name for one in self.references for name in one}
        return ([told] if told else []) + no_plain_in_words(self.spec.problem.name, names)

    def _simulated(self) -> list[str]:
        """Simulated time and energy, mean over seeds, and how old replies were; nothing without devices."""
        if not self.spec.simulates:
            return []
        last = {row["seed"]: row for row in self.history}.values()
        clock = float(np.mean([row.get("over", row["clock"]) for row in last]))
        joules = float(np.mean([row["joules"] for row in last]))
        late = [(row["staleness"], row["replies"]) for row in self.history if "staleness" in row]
        return [simulated_in_words(clock, joules, late)]

    def _doubts(self) -> list[str]:
        return collapse_in_words(self.collapsed, len(self.spec.seeds)) + few_rows_in_words(self.tested)

    @property
    def constant(self) -> Constant | None:
        """Score of the best constant answer, mean over seeds; None where a problem has none."""
        found = [one.constant(self.spec.problem.objectives) for one in self.tested]
        known = [one for one in found if one is not None]
        if not known:
            return None
        values = np.mean([one.values for one in known], axis=0)
        return Constant(known[0].answer, values, float(np.mean([one.hypervolume for one in known])))

    @property
    def collapsed(self) -> list[int]:
        """The seeds whose every model scores what a constant answer does."""
        found = zip(self.spec.seeds, self.solutions, self.tested, strict=False)
        return [seed for seed, one, on in found if on.collapsed(one.points)]

    @property
    def own_utility(self) -> float | None:
        """Utility that clients have of their own models under their own preferences, mean over clients and seeds.

        None where preferences are private.
        """
        return self._mean_of("own_utility")

    @property
    def regret(self) -> float | None:
        """Gain of clients if each could choose among all clients' models, mean over clients and seeds."""
        return self._mean_of("regret")

    def _mean_of(self, indicator: str) -> float | None:
        found = [one.indicators().get(indicator) for one in self.solutions]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None

    def gain_over(self, other: Result) -> list[np.ndarray]:
        """For each seed, the utility that each client gains over `other` under its own preference, `[n]`.

        With a run of `local` as the other: what taking part is worth to each client.
        """
        if self.spec.seeds != other.spec.seeds:
            raise UserError(f"a gain needs the same seeds; here are {self.spec.seeds} and {other.spec.seeds}")
        found = []
        for mine, theirs in zip(self.solutions, other.solutions, strict=True):
            a, b = mine.own_utilities(), theirs.own_utilities()
            if a is None or b is None or not _same_clients(mine, theirs):
                raise UserError("a gain needs two runs with the same clients and preferences, which must be known")
            found.append(a - b)
        return found

    def _early_stop(self) -> list[str]:
        """Say which rounds' models were kept, with early stopping."""
        if not self.spec.stop_after:
            return []
        ends = [max(row["round"] for row in self.history if row["seed"] == seed) for seed in self.spec.seeds]
        return [stop_in_words(ends, self.kept)]

    def front(self, rank: int = 1, converged: bool = False) -> list[np.ndarray]:
        """For each seed the front `[k, m]` of its solutions on held-out rows, or the one of a higher rank.

        Both ways to keep outliers out are those of the thesis, A.3.5: see SolutionSet.only.
        """
        return [solutions.only(rank, converged).front() for solutions in self.solutions]

    def igd(self, *others: Result) -> list[float]:
        """For each seed, the mean distance to its front from the front of all seeds of this run and of `others`.

        That is for problems whose front is not known; lower is better.
        """
        runs = (self, *others)
        if any(one.spec.problem.objectives != self.spec.problem.objectives for one in others):
            raise UserError("runs with different objectives have no front in common")
        every = np.concatenate([solutions.points for one in runs for solutions in one.solutions])
        maximise = self.spec.problem.maximise
        return [igd(solutions.front(), front(every, maximise), maximise) for solutions in self.solutions]

    @property
    def hypervolume(self) -> float:
        """Mean over seeds."""
        return float(np.mean([solutions.hypervolume() for solutions in self.solutions]))

    @property
    def epsilon(self) -> float | None:
        """ε of differential privacy after the last round, of all seeds together; None without privacy."""
        if self.spec.privacy.kind == "none":
            return None
        last = {row["seed"]: row["epsilon"] for row in self.history}  # With a limit of hours, seeds end when they end.
        return max(np.inf if value is None else value for value in last.values())  # JSON has null for infinity.

    def across_clients(self, evaluation: Evaluation = "sent", round: int = -1) -> list[dict[str, AcrossClients]]:
        """For each seed and objective, statistics over the clients on their own held-out rows after `round` rounds.

        "sent" is about the models that the server sends, "trained" about the same after the next local steps, of the
        clients that took part. −1 is the last round of which there is such an evaluation.
        """
        return [self._across_clients(seed, evaluation, round) for seed in self.spec.seeds]

    def _across_clients(self, seed: int, evaluation: Evaluation, round: int) -> dict[str, AcrossClients]:
        rows = {row["round"]: row for row in self._evaluated(seed, evaluation)}
        if not rows or round not in (-1, *rows):
            which = "" if round == -1 else f" after round {round}"
            raise UserError(f"seed {seed} has no evaluation '{evaluation}'{which}; see evaluate_every")
        kept = self.kept[self.spec.seeds.index(seed)]
        row = rows[max(done for done in rows if done <= kept) if round == -1 else round]
        found, problem = self.columns.evaluated(row, evaluation), self.spec.problem
        assert found is not None, "a row with means has the values behind them"
        names = [objective.name for objective in problem.objectives]
        return dict(zip(names, across_objectives(found[self._own_split], problem.maximise), strict=True))

    @property
    def _own_split(self) -> str:
        """Split of each client's own held-out rows, where there are any."""
        splits = self.columns.splits
        return OWN_TEST if OWN_TEST in splits else held_out(list(splits))

    def _evaluated(self, seed: int, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
        """The rows of a seed in which any client has values on its own held-out rows."""
        for row in self.history:
            means = row.get(evaluation)
            if row["seed"] == seed and means and means[self._own_split] is not None:
                yield row

    def of_round(self, round: int, seed: int | None = None) -> dict[str, Any]:
        """The row of a round, of the first seed unless said otherwise: `columns` reads single clients' values by it."""
        wanted = self.spec.seeds[0] if seed is None else seed
        for row in self.history:
            if (row["seed"], row["round"]) == (wanted, round):
                return row
        raise UserError(f"there is no record of round {round} of seed {wanted}")

    def share_improved(self) -> list[dict[int, float]]:
        """For each seed, by round: the share of its participants whose training loss did not rise.

        Needs a run with `measure_losses`.
        """
        if not self.spec.measure_losses:
            raise UserError("the clients' losses were not measured; run with measure_losses=True")
        return [
            shares_improved(
                (row["round"], losses, self.columns.participants(row)) for row, losses in self._losses(seed)
            )
            for seed in self.spec.seeds
        ]

    def contributions(self) -> list[dict[str, np.ndarray]]:
        """For each seed, the contributions of each client, `[n]` by name: share, cosine, change, gain, participation.

        Needs a run with `measure_contribution`. What they mean: Columns.contributions and trust.contribution.
        """
        if not self.spec.measure_contribution:
            raise UserError("contributions were not measured; run with measure_contribution=True")
        return [
            self.columns.contributions(row for row in self.history if row["seed"] == seed) for seed in self.spec.seeds
        ]

    def _losses(self, seed: int) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        for row in self.history:
            if row["seed"] == seed and (losses := self.columns.losses(row)) is not None:
                yield row, losses


def _with_spread(values: Sequence[float]) -> str:
    """Mean and population deviation over the seeds, where there are several, and the interval of the mean."""
    spread = f" ± {np.std(values):.4f} over {len(values)} seeds" if len(values) > 1 else ""
    around = interval(values)
    between = "" if around is None else f" (95 % interval {around.low:.4f} to {around.high:.4f})"
    return f"{np.mean(values):.4f}{spread}{between}"


def _same_clients(a: SolutionSet, b: SolutionSet) -> bool:
    """Check whether row i of both belongs to the same client with the same preference."""
    if a.preferences is None or b.preferences is None:
        return False
    return a.clients == b.clients and np.array_equal(a.preferences, b.preferences)
