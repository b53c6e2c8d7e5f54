"""The loop, written once: ask, run, tell; all seeds of a run side by side; a record and a checkpoint every round."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.algorithm import Found, State
from fedpareto.core.engine import Engine
from fedpareto.core.federation import setting_of
from fedpareto.core.kept import Kept
from fedpareto.core.messages import ByClient, Failure, Ids, Outcome, Parcels, Tasks, Traffic, places, traffic
from fedpareto.core.problem import OWN_TEST
from fedpareto.core.solutions import SolutionSet, held_out, roles, tested_on
from fedpareto.engines.local import LocalEngine
from fedpareto.errors import DamagedFile, QuorumLost, UserError, reading
from fedpareto.experiments import engines
from fedpareto.experiments.checkpoint import Checkpoint
from fedpareto.experiments.keeping import save_for_serving
from fedpareto.experiments.recovery import healed
from fedpareto.experiments.spec import Spec
from fedpareto.experiments.stopping import VALIDATION, Watch, score
from fedpareto.experiments.store import RunFolder, describe, versions
from fedpareto.files import write_atomically
from fedpareto.moo.fairness import AcrossClients, Evaluation, across_objectives, shares_improved
from fedpareto.moo.indicators import hypervolume
from fedpareto.moo.intervals import interval
from fedpareto.moo.tested import Constant, Tested
from fedpareto.report.words import collapse_in_words, few_rows_in_words, stop_in_words

log = logging.getLogger("fedpareto.run")

LARGEST_SIMILARITY_MATRIX = 64
"""Clients up to which a similarity matrix is recorded every round."""

CHECKPOINT_SHARE = 0.1
"""Writing checkpoints takes at most about this share of a run's time."""

EVALUATIONS: dict[Evaluation, str] = {"sent": "sent by the server", "trained": "after local training"}
"""The two evaluations, and their names."""

REFUSED = "refused"
"""What stands in the reason of a failure that is a reply's own fault."""

CHANGEABLE = ("quorum", "faults")
"""What a resumed run may change in its spec: whether it continues, not what an undisturbed round computes."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run, after each round."""

    round: int
    rounds: int
    measured: int
    """The round after which solutions were measured: the one before, whose solutions this round began with."""
    hypervolume: float
    """Of the solutions that the server sends, mean over seeds; NaN in a round without an evaluation."""
    failures: int
    means: Mapping[str, float] = field(default_factory=dict)
    """By objective, the mean over clients and seeds of what the server sends; empty without an evaluation."""

    @property
    def headline(self) -> tuple[str, float]:
        """The summary measure and its value: the hypervolume, or of a single objective the clients' mean."""
        if len(self.means) == 1:
            ((name, mean),) = self.means.items()
            return f"mean {name}", mean
        return "hypervolume", self.hypervolume


OnRound = Callable[[Progress], None]
OnBegin = Callable[[int], None]
"""Called once all is ready, with the number of rounds that are over: 0, or more in a resumed run."""
Observe = Callable[["Experiment", int], Mapping[str, Any]]
"""More to record of a seed (by its index) after each round: goes into its row of metrics.jsonl."""


def nothing_more(experiment: Experiment, run: int) -> Mapping[str, Any]:
    """Records nothing more."""
    return {}


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    spec: Spec
    solutions: list[SolutionSet]
    """One set for each seed."""
    models: list[Mapping[int, Tensor]] = field(repr=False)
    """For each seed, each client's model `[d]`."""
    history: list[dict[str, Any]] = field(repr=False)
    """The rows of metrics.jsonl."""
    folder: Path | None = None
    kept: tuple[int, ...] = ()
    """For each seed, the round whose models these are: the last, or with early stopping the best on validation rows."""
    tested: tuple[Tested, ...] = ()
    """For each seed, what models are tested on and what a constant answer scores; empty where no rows are here."""

    def __repr__(self) -> str:
        spec = self.spec
        what = f"{spec.algorithm.name} on {spec.problem.name}, {spec.clients} clients, {spec.rounds} rounds"
        return f"<Result of {what}, seeds {list(spec.seeds)}: {self.summary()[0]}>"

    def summary(self) -> list[str]:
        """The result in a line or two: the hypervolume, or of a single objective the clients' mean, worst and best."""
        if len(self.spec.problem.objectives) > 1:
            return [*self._trade_off(), *self._doubts(), *self._early_stop()]
        lines = []
        name = self.spec.problem.objectives[0].name
        for evaluation, words in EVALUATIONS.items():
            if all(self._evaluated(seed, evaluation) for seed in self.spec.seeds):
                found = [of_seed[name] for of_seed in self.across_clients(evaluation)]
                mean = _with_spread([one.mean for one in found])
                worst, best = (np.mean([getattr(one, end) for one in found]) for end in ("worst", "best"))
                lines.append(f"mean {name} {mean}, worst client {worst:.4f}, best {best:.4f} ({words})")
        return [*lines, *self._doubts(), *self._early_stop()]

    def _trade_off(self) -> list[str]:
        """The hypervolume beside that of a constant answer, and what clients have under their own preferences."""
        constant, own, regret = self.constant, self.own_utility, self.regret
        beside = "" if constant is None else f"; a constant answer has {constant.hypervolume:.4f}"
        lines = [f"hypervolume {_with_spread([one.hypervolume() for one in self.solutions])}{beside}"]
        if own is not None:
            lines.append(f"utility under clients' own preferences {own:.4f}, regret {regret:.4f}")
        return lines

    def _doubts(self) -> list[str]:
        return collapse_in_words(self.collapsed, len(self.spec.seeds)) + few_rows_in_words(self.tested)

    @property
    def constant(self) -> Constant | None:
        """What the best constant answer scores, mean over seeds; None where a problem has none."""
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
        """What clients have of their own models under their own preferences, mean over clients and seeds.

        None where preferences are private.
        """
        return self._mean_of("own_utility")

    @property
    def regret(self) -> float | None:
        """What clients would gain if each could choose among all clients' models, mean over clients and seeds."""
        return self._mean_of("regret")

    def _mean_of(self, indicator: str) -> float | None:
        found = [one.indicators().get(indicator) for one in self.solutions]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None

    def gain_over(self, other: Result) -> list[np.ndarray]:
        """For each seed, how much more utility each client has under its own preference than in `other`, `[n]`.

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
        """Which rounds' models were kept, with early stopping."""
        if not self.spec.stop_after:
            return []
        ends = [max(row["round"] for row in self.history if row["seed"] == seed) for seed in self.spec.seeds]
        return [stop_in_words(ends, self.kept)]

    @property
    def hypervolume(self) -> float:
        """Mean over seeds."""
        return float(np.mean([solutions.hypervolume() for solutions in self.solutions]))

    @property
    def epsilon(self) -> float | None:
        """ε of differential privacy after the last round, of all seeds together; None without privacy."""
        if self.spec.privacy.kind == "none":
            return None
        last = [row["epsilon"] for row in self.history if row["round"] == self.spec.rounds]
        return max(np.inf if value is None else value for value in last)  # JSON has null for infinity.

    def across_clients(self, evaluation: Evaluation = "sent", round: int = -1) -> list[dict[str, AcrossClients]]:
        """For each seed and objective, statistics over the clients on their own held-out rows after `round` rounds.

        "sent" is about the models that the server sends, "trained" about the same after the next local steps, of the
        clients that took part. −1 is the last round of which there is such an evaluation.
        """
        return [self._across_clients(seed, evaluation, round) for seed in self.spec.seeds]

    def _across_clients(self, seed: int, evaluation: Evaluation, round: int) -> dict[str, AcrossClients]:
        by_round = self._evaluated(seed, evaluation)
        if not by_round or round not in (-1, *by_round):
            which = "" if round == -1 else f" after round {round}"
            raise UserError(f"seed {seed} has no evaluation '{evaluation}'{which}; see evaluate_every")
        kept = self.kept[self.spec.seeds.index(seed)]
        points = by_round[max(done for done in by_round if done <= kept) if round == -1 else round]
        problem = self.spec.problem
        names = [objective.name for objective in problem.objectives]
        return dict(zip(names, across_objectives(points, problem.maximise), strict=True))

    def _evaluated(self, seed: int, evaluation: Evaluation) -> dict[int, list[list[float]]]:
        """By round, the clients' objectives on their own held-out rows, where there are any."""
        found = {}
        for row in self.history:
            by_split = row.get(evaluation)
            if row["seed"] == seed and by_split:
                points = by_split.get(OWN_TEST) or by_split[held_out(list(by_split))]
                found[row["round"]] = [point for point in points if point is not None]
        return {done: points for done, points in found.items() if points}

    def share_improved(self) -> list[dict[int, float]]:
        """For each seed, by round: the share of its participants whose training loss did not rise.

        Needs a run with `measure_losses`.
        """
        if not self.spec.measure_losses:
            raise UserError("the clients' losses were not measured; run with measure_losses=True")
        found = []
        for seed in self.spec.seeds:
            rows = [row for row in self.history if row["seed"] == seed and "losses" in row]
            losses = {row["round"]: np.array(row["losses"], dtype=float) for row in rows}
            found.append(shares_improved(losses, {row["round"] + 1: row["participants"] for row in rows}))
        return found


class Stopped(Exception):
    """The user stopped the run; the folder can be resumed."""


class Experiment:
    """A run in progress: its engine and one algorithm state for each seed."""

    def __init__(
        self,
        spec: Spec,
        engine: Engine,
        folder: RunFolder | None = None,
        observe: Observe = nothing_more,
        keep_models: bool = True,
    ) -> None:
        self.spec, self.engine, self.folder, self.observe = spec, engine, folder, observe
        self.keep_models = keep_models
        settings = [replace(setting, repeats=len(spec.seeds)) for setting in self.engine.settings]
        self.states: list[State] = [spec.algorithm.begin(setting) for setting in settings]
        self.history: list[dict[str, Any]] = []
        self.tested = _tested(spec, engine)
        self._watches = self._begin_watching()
        self.seconds = 0.0
        self._failures = 0
        self._checkpoint_cost, self._since_checkpoint = 0.0, float("inf")

    @property
    def round(self) -> int:
        """Rounds completed by all active seeds; if none is active, those of the one that ran longest."""
        going = [self.states[run].round for run in self._going()]
        return min(going) if going else max(state.round for state in self.states)

    def _going(self) -> list[int]:
        """The seeds, by index, that were not stopped early."""
        return [run for run in range(len(self.states)) if not (self._watches and self._watches[run].stopped)]

    def _is_over(self) -> bool:
        return not self._going() or self.round >= self.spec.rounds

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(self, on_round: OnRound | None = None, stop: Callable[[], bool] = lambda: False) -> Result:
        """To the end, or until `stop` says so after a round."""
        try:
            with self.engine.threads():
                while not self._is_over():
                    self._one_round(on_round)
                    if stop() and not self._is_over():
                        self.checkpoint()
                        raise Stopped(f"stopped after round {self.round} of {self.spec.rounds}")
                return self._finish()
        except Stopped as stopped:
            self._end("stopped", str(stopped))
            raise
        except KeyboardInterrupt:
            when = f"in round {self.round + 1} of" if self.round < self.spec.rounds else "after all"
            self._end("stopped", f"interrupted {when} {self.spec.rounds} rounds")
            raise
        except BaseException as problem:
            kind = [] if isinstance(problem, UserError) else [type(problem).__name__]
            self._end("failed", ": ".join([*kind, *filter(None, [str(problem)])]))
            raise

    def _one_round(self, on_round: OnRound | None) -> None:
        """All exchanges of one round of every seed."""
        start, before = time.perf_counter(), self.round
        algorithm = self.spec.algorithm
        rows = {run: self._row(run, before) for run in self._going()}
        events: list[dict[str, Any]] = []
        self._note_losses(rows, before)
        first = not self._judged(rows, before)
        going = self._going()
        while going and self.round == before:
            # A seed whose round took fewer exchanges waits for the others.
            tasks = [
                algorithm.ask(state) if run in going and state.round == before else []
                for run, state in enumerate(self.states)
            ]
            # The trained model is measured in the exchange that trains it, which need not be the first.
            solutions = self._measured(first, before)
            outcomes = self._exchange(tasks, solutions)
            for run in going:
                outcome = outcomes[run]
                self._note(rows[run], outcome, traffic(tasks[run], outcome.replies))
                if self.states[run].round > before:
                    continue
                events += [self._event(run, failure) for failure in outcome.failures]
                defended = self.spec.defence.applied(tasks[run], outcome.replies)
                rows[run].update(defended.notes())
                self.states[run] = algorithm.tell(self.states[run], defended.replies)
            events += self._heal()
            first = False
        elapsed = time.perf_counter() - start
        self.seconds += elapsed
        self._failures += len(events)
        lines = list(rows.values())
        for row in lines:
            row["seconds"] = elapsed / len(lines)
        self._record(lines, events)
        if self.folder is not None and self.engine.remote and not any(REFUSED in event["reason"] for event in events):
            self.folder.keep_good_checkpoint()  # All who replied could train from it.
        self._since_checkpoint += elapsed
        is_cheap = self._since_checkpoint * CHECKPOINT_SHARE >= self._checkpoint_cost
        if is_cheap or self.engine.remote or self._is_over():
            self.checkpoint()
        if on_round is not None and going:
            now = self._mean_hypervolume(lines), self._failures, self._means(lines)
            on_round(Progress(self.round, self.spec.rounds, before, *now))

    def _heal(self) -> list[dict[str, Any]]:
        """On other machines' replies a state may have become unsound; clients get models that they can train from.

        What was changed, as events: no client is at fault, so they bear the number of none.
        """
        if not self.engine.remote:
            return []
        events = []
        for run, state in enumerate(self.states):
            self.states[run], names = healed(state, self.spec.algorithm.begin(state.setting))
            if names:
                reason = f"not finite, or absurdly large, and begun anew: {', '.join(names)}"
                log.warning("after round %d: %s", state.round, reason)
                events.append(self._event(run, Failure(rng.SERVER, state.round, reason, "heal")))
        return events

    # -- early stopping --------------------------------------------------------------------------------------------

    def _begin_watching(self) -> list[Watch]:
        """One Watch for each seed; none without early stopping."""
        if not self.spec.stop_after:
            return []
        names = self.engine.split_names
        if VALIDATION not in names:
            raise UserError(
                f"stop_after is {self.spec.stop_after}, but '{self.spec.problem.name}' has no validation rows to "
                f"decide on, only {' and '.join(names)}; leave it out, or take a problem that sets some aside"
            )
        return [Watch(self.spec.stop_after, self.spec.stop_margin, state) for state in self.states]

    def _judged(self, rows: Mapping[int, dict[str, Any]], done: int) -> bool:
        """Whether the solutions were measured before training, so that seeds can end with them."""
        if not self._watches or not self._is_evaluated(done):
            return False
        outcomes = self.engine.run_all([[] for _ in self.states], self._measured(True, done))
        for run, row in rows.items():
            self._note(row, outcomes[run])
            self._look(run, row, outcomes[run])
        return True

    def _look(self, run: int, row: dict[str, Any], outcome: Outcome) -> None:
        """Takes one evaluation of a seed into account; its score on validation rows is in the row."""
        state, watch = self.states[run], self._watches[run]
        by_split = _by_split(outcome.evaluations.sent, state.setting.clients, self.engine.split_names)
        row["validation_score"] = score(by_split[VALIDATION], self.spec.problem)
        watch.look(row["validation_score"], state, self.engine.private, run)

    def _take_best(self) -> list[State]:
        """The state of every seed's best round, with the clients' private state restored to that round."""
        self.engine.private = _together(watch.private for watch in self._watches)
        return [watch.state for watch in self._watches]

    # -- the end of the loop ---------------------------------------------------------------------------------------

    def _is_evaluated(self, done: int) -> bool:
        """Whether solutions are measured after `done` rounds."""
        return done % self.spec.evaluate_every == 0

    def _measured(self, first: bool, done: int) -> list[Parcels | None]:
        """What is measured in an exchange of the round after `done` rounds: all solutions, none of them, or nothing."""
        if not self._is_evaluated(done):
            return [None for _ in self.states]
        going = self._going()
        of_all = [self.spec.algorithm.solutions(state) if first else Parcels(np.empty(0)) for state in self.states]
        return [solutions if run in going else None for run, solutions in enumerate(of_all)]

    def _exchange(self, tasks: Sequence[Sequence[Tasks]], solutions: Sequence[Parcels | None]) -> list[Outcome]:
        """One exchange of every seed; a lost quorum leaves its reasons in the folder."""
        try:
            return self.engine.run_all(tasks, solutions)
        except QuorumLost as lost:
            self._record([], [self._event(lost.run, failure) for failure in lost.failures])
            asked = sum(len(some) for some in tasks[lost.run])
            mistake = _common_mistake(lost.failures, asked)
            if mistake:
                raise QuorumLost(mistake, lost.failures, lost.run) from None
            seed = f"seed {self.spec.seeds[lost.run]}, " if len(self.spec.seeds) > 1 else ""
            way_on = ""
            if len(lost.failures) == asked:
                way_on = "; without any reply no quorum can be met"
                if any("not finite" in failure.reason for failure in lost.failures):
                    way_on += ": a smaller lr may help if training diverges"
            elif self.folder:
                way_on = f"; go on with: {self.folder.way_on('quorum=…')}"
            raise QuorumLost(f"{seed}{lost}{way_on}", lost.failures, lost.run) from None

    def _finish(self) -> Result:
        """The last evaluation, of the final models."""
        algorithm, names = self.spec.algorithm, self.engine.split_names
        states = self.states
        solutions, outcomes = self._measure(states)
        rows: dict[int, dict[str, Any]] = {}
        for run in self._going():
            row = self._row(run, states[run].round)
            self._note(row, outcomes[run])
            rows[run] = row | {"trained": None, "trained_hypervolume": None, "seconds": 0.0}
        self._note_losses(rows, self.spec.rounds)
        if self._watches:
            for run, row in rows.items():
                self._look(run, row, outcomes[run])
            states = self._take_best()
            solutions, outcomes = self._measure(states)
        events: list[dict[str, Any]] = []
        sets: list[SolutionSet] = []
        models: list[Mapping[int, Tensor]] = []
        for run, (state, outcome) in enumerate(zip(states, outcomes, strict=True)):
            values = _by_split(outcome.evaluations.sent, state.setting.clients, names)
            of_clients = self._solution_set(run, values)
            lost = np.setdiff1d(state.setting.clients, of_clients.clients).tolist()
            reason = "no solution: the model's objectives are not finite numbers"
            events += [self._event(run, Failure(client, state.round, reason, "evaluate")) for client in lost]
            found = algorithm.found(state)
            if found is not None and len(found.models):
                sets.append(self._set_of(found))
                models.append(dict(enumerate(found.models)))
            else:
                sets.append(of_clients)
                models.append(self.engine.models(run, solutions[run]) if self.keep_models else {})
        self._record(list(rows.values()), events)
        kept = tuple(state.round for state in states)
        where = self.folder.path if self.folder else None
        result = Result(self.spec, sets, models, self.history, where, kept, self.tested)
        if self.folder is not None:
            save_for_serving(self.folder, self.spec, self.engine, solutions)
        self._save(result)
        return result

    def _measure(self, states: Sequence[State]) -> tuple[list[Parcels], list[Outcome]]:
        """What every seed's clients would be sent, and its objectives."""
        solutions = [self.spec.algorithm.solutions(state) for state in states]
        return solutions, self.engine.run_all([[] for _ in solutions], solutions)

    def _solution_set(self, run: int, values: Mapping[str, np.ndarray]) -> SolutionSet:
        """The solutions of one seed; a client whose training diverged has none."""
        good = np.isfinite(values[held_out(list(values))]).all(axis=1)
        clients = self.states[run].setting.clients
        preferences = self.spec.preferences_of(self.spec.seeds[run])
        if not good.any():
            raise UserError(
                f"seed {self.spec.seeds[run]}: training diverged, no client's objectives are finite numbers; "
                "a smaller lr may help"
            )
        return SolutionSet(
            objectives=self.spec.problem.objectives,
            clients=tuple(clients[good].tolist()),
            preferences=None if preferences is None else preferences[good],
            values={split: points[good] for split, points in values.items()},
            known_front=self.spec.problem.known_front(),
        )

    def _set_of(self, found: Found) -> SolutionSet:
        """The solutions of one seed, where they are a set of their own."""
        names, values = self.engine.split_names, found.values.double().cpu().numpy()
        return SolutionSet(
            objectives=self.spec.problem.objectives,
            clients=tuple(range(len(values))),
            preferences=found.weights.double().cpu().numpy(),
            values={names[part]: values[:, place] for place, part in enumerate(roles(names))},
            known_front=self.spec.problem.known_front(),
        )

    # -- the record ------------------------------------------------------------------------------------------------

    def _row(self, run: int, done: int) -> dict[str, Any]:
        algorithm, state = self.spec.algorithm, self.states[run]
        row: dict[str, Any] = {"seed": self.spec.seeds[run], "round": done}
        found = algorithm.found(state)
        if found is not None:  # The clients' choices from it, which are measured too, may be fewer.
            row["hypervolume"] = self._hypervolume(self._set_of(found).points)
        for name, value in algorithm.describe(state).items():
            if not isinstance(value, Tensor):
                row[name] = value
            elif value.numel() <= LARGEST_SIMILARITY_MATRIX**2:
                row[name] = np.round(value.double().cpu().numpy(), 4).tolist()
        return row | {"trained": None, "trained_hypervolume": None} | dict(self.observe(self, run))

    def _note(self, row: dict[str, Any], outcome: Outcome, cost: Traffic | None = None) -> None:
        """Adds one exchange to a round's row."""
        clients = self.engine.settings[0].clients
        for kind, values in (("sent", outcome.evaluations.sent), ("trained", outcome.evaluations.trained)):
            if values:
                by_split = _by_split(values, clients, self.engine.split_names)
                row[kind] = {name: _rows(points) for name, points in by_split.items()}
                key = "hypervolume" if kind == "sent" else "trained_hypervolume"
                if row.get(key) is None:
                    row[key] = self._hypervolume(by_split[held_out(list(by_split))])
        row["replies"] = row.get("replies", 0) + len(outcome.replies)
        row["failures"] = row.get("failures", 0) + len(outcome.failures)
        if "losses" in row:
            row["participants"] = np.union1d(row["participants"], outcome.replies.clients).astype(int).tolist()
        total = np.array(row.get("traffic") or np.zeros((len(clients), 2), dtype=int))
        if cost is not None:
            total = total + cost.of(clients)
        row["traffic"] = total.tolist()
        row["bytes_down"], row["bytes_up"] = total.sum(axis=0).tolist()

    def _note_losses(self, rows: Mapping[int, dict[str, Any]], done: int) -> None:
        """Adds each client's training loss after `done` rounds, before and after every round that is evaluated."""
        wanted = self._is_evaluated(done) or self._is_evaluated(done - 1) or done == self.spec.rounds
        if not self.spec.measure_losses or not wanted:
            return
        measured = self.engine.losses([self.spec.algorithm.solutions(state) for state in self.states])
        for run, row in rows.items():
            values = measured[run].rows.double().cpu()
            row["losses"] = [value if math.isfinite(value) else None for value in values.tolist()]
            row.setdefault("participants", [])

    def _event(self, run: int, failure: Failure) -> dict[str, Any]:
        kept = ("round", "client", "step", "reason")
        return {"seed": self.spec.seeds[run], **{name: getattr(failure, name) for name in kept}}

    def _hypervolume(self, points: np.ndarray) -> float:
        known = points[np.isfinite(points).all(axis=1)]
        problem = self.spec.problem
        return hypervolume(known, problem.reference, maximise=problem.maximise) if len(known) else 0.0

    def _means(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """By objective, over the clients and seeds that have values; nothing in a round without an evaluation."""
        split = held_out(self.engine.split_names)
        points = [point for row in rows for point in row.get("sent", {}).get(split, []) if point is not None]
        names = [objective.name for objective in self.spec.problem.objectives]
        return dict(zip(names, np.mean(points, axis=0).tolist(), strict=True)) if points else {}

    def _mean_hypervolume(self, rows: Sequence[Mapping[str, Any]]) -> float:
        return float(np.mean([row.get("hypervolume", np.nan) for row in rows]))

    def _record(self, rows: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> None:
        self.history += rows
        if self.folder is not None:
            self.folder.append("metrics.jsonl", rows)
            self.folder.append("events.jsonl", events)

    def _status(self, status: str, message: str = "") -> None:
        if self.folder is not None:
            self.folder.status(status, self.round, round(self.seconds, 3), message)

    def _end(self, status: str, message: str) -> None:
        """Marks a run that ends early. If not even that can be written, the first problem is still the one reported."""
        with suppress(UserError):
            self._status(status, message)

    def _save(self, result: Result) -> None:
        """The final files; the status last, so that "finished" means that all of them are there."""
        if self.folder is None:
            return
        models = Checkpoint(
            {
                f"seed{seed}/client{client}": model
                for seed, of_seed in zip(self.spec.seeds, result.models, strict=True)
                for client, model in of_seed.items()
            },
            {"layout": self.spec.problem.layout.to_json(), "problem": self.spec.to_mapping()["problem"]},
        )
        if self.keep_models:
            models.save(self.folder.path / "models.safetensors")
        self.folder.write_json(
            "solutions.json",
            [
                {
                    "seed": seed,
                    "round": kept,
                    "clients": list(solutions.clients),
                    "preferences": None if solutions.preferences is None else solutions.preferences.tolist(),
                    "objectives": {split: points.tolist() for split, points in solutions.values.items()},
                    "indicators": solutions.indicators(),
                }
                for seed, kept, solutions in zip(self.spec.seeds, result.kept, result.solutions, strict=True)
            ],
        )
        self._status("finished")

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Saves the rounds so far."""
        if self.folder is None:
            return
        start = time.perf_counter()
        checkpoint = Checkpoint(
            values={
                "spec": _fixed(self.spec),
                "seconds": self.seconds,
                "failures": self._failures,
                "metrics": self.folder.settle("metrics.jsonl"),
                "events": self.folder.settle("events.jsonl"),
            }
        )
        for run, state in enumerate(self.states):
            checkpoint.put_state(state, f"state/{run}")
        checkpoint.put_private(self.engine.private)
        if self._watches:
            checkpoint.values["watches"] = [watch.to_plain() for watch in self._watches]
            for run, watch in enumerate(self._watches):
                checkpoint.put_state(watch.state, f"best/{run}")
            checkpoint.put_private(_together(watch.private for watch in self._watches), "best-private")
        checkpoint.save(self.folder.checkpoint_file)
        self._status("running")
        self._checkpoint_cost, self._since_checkpoint = time.perf_counter() - start, 0.0

    def restore(self, folder: RunFolder) -> None:
        """Continues where the folder's last checkpoint was made; without one, at the beginning."""
        checkpoint = folder.checkpoint()
        if checkpoint is None:
            folder.cut("metrics.jsonl", 0)
            folder.cut("events.jsonl", 0)
            return
        if "spec" not in checkpoint.values:
            raise DamagedFile(f"{folder.checkpoint_file} is not a run's checkpoint; delete it to begin the run again")
        difference = _difference(checkpoint.values["spec"], _fixed(self.spec))
        if difference:
            raise UserError(f"{folder.spec_file} was changed during the run: {difference}; a run keeps its spec")
        with reading(str(folder.checkpoint_file)):
            self._restore(checkpoint, folder)

    def _restore(self, checkpoint: Checkpoint, folder: RunFolder) -> None:
        self.states = [checkpoint.get_state(state, f"state/{run}") for run, state in enumerate(self.states)]
        for state in self.states:  # What does not fit together is found here, not in the next round.
            if type(state.round) is not int or not 0 <= state.round <= self.spec.rounds:
                raise ValueError(f"its round is {state.round}, the run has {self.spec.rounds}")
            self.spec.algorithm.solutions(state)
        self.engine.private = checkpoint.get_private(self.engine.device)
        best = checkpoint.get_private(self.engine.device, "best-private")
        for run, (watch, state) in enumerate(zip(self._watches, self.states, strict=bool(self._watches))):
            kept = checkpoint.get_state(state, f"best/{run}")
            self._watches[run] = watch.restored(checkpoint.values["watches"][run], kept, best.of_run(run))
        self.seconds, self._failures = float(checkpoint.values["seconds"]), checkpoint.values["failures"]
        folder.cut("metrics.jsonl", checkpoint.values["metrics"])
        folder.cut("events.jsonl", checkpoint.values["events"])
        self.history = folder.read_lines("metrics.jsonl")
        self._record([], self._heal())


def start(
    spec: Spec,
    out: Path | None = None,
    on_round: OnRound | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_begin: OnBegin = lambda done: None,
    observe: Observe = nothing_more,
    keep_models: bool = True,
) -> Result:
    """A new run; with `out` everything is kept in that folder.

    Without `keep_models` the clients' models are neither saved nor returned: many clients that share one network would
    have many copies of it.
    """
    # Before anything is read, measured or written: here an algorithm refuses problems that it cannot handle.
    spec.algorithm.begin(setting_of(spec.problem, range(min(spec.clients, 2)), spec.seeds[0], spec.rounds))
    if out is None:
        with engines.opened(spec) as engine:
            return Experiment(spec, engine, None, observe, keep_models).run(on_round, stop)
    with RunFolder.create(out, spec) as folder, ExitStack() as stack:
        try:
            experiment = _in_folder(spec, folder, stack, observe, keep_models)
        except BaseException:
            folder.discard()
            raise
        on_begin(experiment.round)
        return experiment.run(on_round, stop)


def resume(
    path: Path,
    on_round: OnRound | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_begin: OnBegin = lambda done: None,
    spec: Spec | None = None,
    observe: Observe = nothing_more,
    keep_models: bool = True,
) -> Result | None:
    """Continues a run from its last checkpoint, bit for bit; None if it was finished already.

    With `spec`, under that one, which may differ from the run's own in what is CHANGEABLE. `keep_models`: see start.
    """
    with RunFolder.open(path) as folder, ExitStack() as stack:
        if (folder.read_json("status.json") or {}).get("status") == "finished":
            return None
        before = folder.spec()
        experiment = _in_folder(spec or before, folder, stack, observe, keep_models)
        _note_changes(folder, experiment.round, before, experiment.spec)
        on_begin(experiment.round)
        return experiment.run(on_round, stop)


def _in_folder(spec: Spec, folder: RunFolder, stack: ExitStack, observe: Observe, keep_models: bool) -> Experiment:
    """An experiment in its folder, new or where its last checkpoint left it; `stack` ends its engine."""
    record = folder.read_json("run.json")
    chosen = None if record is None else _chosen(record, folder)
    engine = stack.enter_context(engines.opened(spec, folder.path, chosen))
    experiment = Experiment(spec, engine, folder, observe, keep_models)
    if record is None:
        about = describe(spec, engine.split_names, engine.chosen, experiment.tested)
        folder.write_json("run.json", about)
    experiment.restore(folder)
    experiment.checkpoint()
    return experiment


def _chosen(record: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """What the engine measured when the run began."""
    chosen = record.get("choices")
    if not isinstance(chosen, dict):
        raise DamagedFile(f"{folder.path / 'run.json'} is damaged: it has no 'choices'")
    return chosen


def _note_changes(folder: RunFolder, done: int, before: Spec, now: Spec) -> None:
    """Updates spec.yaml and run.json when a run is resumed with another quorum or other packages."""
    record = folder.read_json("run.json") or {}
    old, new = before.to_mapping(), now.to_mapping()
    changes = {key: [old[key], new[key]] for key in CHANGEABLE if old[key] != new[key]}
    if record.get("versions") != versions():
        changes["versions"] = [record.get("versions"), versions()]
    if not changes:
        return
    record["changes"] = [*record.get("changes", []), {"round": done, **changes}]
    folder.write_json("run.json", record | {"versions": versions()})
    write_atomically(folder.spec_file, now.to_yaml())


def _fixed(spec: Spec) -> Any:
    """The parts of a spec that may not change during a run, as JSON values."""
    return json.loads(json.dumps({key: value for key, value in spec.to_mapping().items() if key not in CHANGEABLE}))


def _difference(before: Any, now: Any, path: str = "") -> str:
    """The first value that differs, in words; empty if none does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            found = _difference(before.get(key), now.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return ""
    return "" if before == now else f"{path} is {now!r}, it was {before!r}"


def _common_mistake(failures: Sequence[Failure], asked: int) -> str:
    """The user error that all selected clients raised, if it is the same for all; or nothing."""
    reasons, raised = {failure.reason for failure in failures}, f"raised {UserError.__name__}: "
    if len(failures) == asked and len(reasons) == 1 and (reason := reasons.pop()).startswith(raised):
        return reason.removeprefix(raised)
    return ""


def _with_spread(values: Sequence[float]) -> str:
    """Mean and population deviation over the seeds, where there are several, and the interval of the mean."""
    spread = f" ± {np.std(values):.4f} over {len(values)} seeds" if len(values) > 1 else ""
    around = interval(values)
    between = "" if around is None else f" (95 % interval {around.low:.4f} to {around.high:.4f})"
    return f"{np.mean(values):.4f}{spread}{between}"


def _same_clients(a: SolutionSet, b: SolutionSet) -> bool:
    """Whether row i of both belongs to the same client with the same preference."""
    if a.preferences is None or b.preferences is None:
        return False
    return a.clients == b.clients and np.array_equal(a.preferences, b.preferences)


def _tested(spec: Spec, engine: Engine) -> tuple[Tested, ...]:
    """What each seed's models are tested on; nothing where the rows are elsewhere, or clients have none."""
    if not isinstance(engine, LocalEngine):
        return ()
    found = [tested_on(spec.problem, federation.splits) for federation in engine.federations]
    return tuple(one for one in found if one is not None)


def _by_split(values: ByClient, clients: Ids, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values `[splits, m]` of clients as `{split: [n, m]}`, with NaN for clients that were not measured."""
    table = np.full((len(clients), *values.rows.shape[1:]), np.nan)
    table[places(clients, values.clients)] = values.rows.double().cpu().numpy()
    return {name: table[:, i] for i, name in enumerate(names)}


def _together(parts: Iterable[Kept]) -> Kept:
    """The clients' private state of all seeds."""
    whole = Kept()
    for part in parts:
        whole.add(part)
    return whole


def _rows(points: np.ndarray) -> list[list[float] | None]:
    """As JSON, which has no NaN and no infinity."""
    return [row.tolist() if np.isfinite(row).all() else None for row in points]
