"""The loop, written once: ask, run, tell; all seeds of a run side by side; a record and a checkpoint every round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from fedpareto.config.errors import DamagedFile, QuorumLost, UserError, reading
from fedpareto.config.interrupts import RunStopped, StopFile, Stopped
from fedpareto.contract.algorithm import State
from fedpareto.contract.client_state import Kept
from fedpareto.contract.engine import Engine
from fedpareto.contract.messages import Failure, Outcome, Parcels, Replies, Tasks
from fedpareto.contract.solutions import SolutionSet
from fedpareto.moo.tested import Tested
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.recording import Entry, Recorder, by_split, event
from fedpareto.record.store import RunFolder
from fedpareto.runs import resuming, solution_sets
from fedpareto.runs.callbacks import Callback, Callbacks, Ending
from fedpareto.runs.defended import Oversight
from fedpareto.runs.dispatch import Dispatch
from fedpareto.runs.final_files import save_for_serving, save_result
from fedpareto.runs.progress import OnRound, Progress
from fedpareto.runs.recovery import healed, lost_in_words
from fedpareto.runs.result import Result
from fedpareto.runs.stopping import VALIDATION, Watch, score
from fedpareto.spec import steps
from fedpareto.spec.settings import begun_as
from fedpareto.spec.spec import Spec
from fedpareto.tensors import rng

log = logging.getLogger("fedpareto.run")

CHECKPOINT_SHARE = 0.1
"""Writing checkpoints takes at most about this share of a run's time."""

REFUSED = "refused"
"""Word in the reason of a failure that is a reply's own fault."""


Observe = Callable[["Experiment", int], Mapping[str, Any]]
"""Function that returns more to record of a seed (by its index) after a round, in its row of metrics.jsonl."""


def nothing_more(experiment: Experiment, run: int) -> Mapping[str, Any]:
    """Records nothing more."""
    return {}


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
        settings = [begun_as(spec, setting) for setting in self.engine.settings]
        self.states: list[State] = [spec.algorithm.begin(setting) for setting in settings]
        self.recorder = Recorder(spec.problem, settings[0].clients, engine.split_names, folder)
        self.dispatch = Dispatch(spec, engine, settings)
        self.oversight = Oversight(spec, settings, self.recorder)
        self.tested = self._tested()
        self._all = range(len(self.states))
        self._has_callbacks = self._is_followed = False
        """True if somebody wants to know of each round."""
        self._told: list[Replies | None] = [None] * len(self.states)
        """Replies that the algorithm of each seed was told last."""
        self._watches = self._begin_watching()
        self.seconds = 0.0
        self._failures = 0
        self._not_recorded: dict[str, str] = {}
        self._checkpoint_cost, self._since_checkpoint = 0.0, float("inf")

    def _tested(self) -> tuple[Tested, ...]:
        """Plain models are measured on clients' rows as they are, so they are withheld where objectives are."""
        is_exact = self.spec.privacy.objectives == "exact"
        return self.engine.tested if is_exact else tuple(replace(one, plain={}) for one in self.engine.tested)

    @property
    def round(self) -> int:
        """Rounds completed by all active seeds; if none is active, those of the one that ran longest."""
        if len(self.states) == 1:
            return self.states[0].round
        going = [self.states[run].round for run in self._going()]
        return min(going) if going else max(state.round for state in self.states)

    def _going(self) -> list[int]:
        """The seeds, by index, that have a next round: they were not stopped early, and have simulated time left."""
        over = self.dispatch.over
        if not over and not self._watches:
            return list(self._all)
        return [run for run in self._unstopped() if run not in over]

    def _unstopped(self) -> list[int]:
        """The seeds, by index, that were not stopped early."""
        if not self._watches:
            return list(self._all)
        return [run for run, watch in enumerate(self._watches) if not watch.stopped]

    def _is_over(self) -> bool:
        return not self._going() or self.round >= self.spec.rounds

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(
        self,
        on_round: OnRound | None = None,
        stop: Callable[[], bool] = lambda: False,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Run to the end, or until `stop`, a callback or a file in the folder says so after a round; or at once, if
        the file does.
        """
        file = StopFile(self.folder.path if self.folder else None)
        others = Callbacks(callbacks, self)
        self._has_callbacks = bool(others)
        self._is_followed = bool(others) or on_round is not None
        how: Ending = "failed"
        result: Result | None = None
        try:
            with self.engine.threads(), file.watched():
                others.begin()
                while not self._is_over():
                    now = self._one_round()
                    if now is not None and on_round is not None:
                        on_round(now)
                    if now is not None and others:
                        told, self._told = self._told, [None] * len(self.states)
                        if self._is_ended(others.round(now, told)):
                            break
                    is_asked = file.asked()
                    if (is_asked or stop()) and not self._is_over():
                        self.checkpoint()
                        said = RunStopped if is_asked else Stopped
                        raise said(f"stopped after round {self.round} of {self.spec.rounds}")
                result, how = self._finish(), "finished"
                return result
        except Stopped as stopped:
            how = "stopped"
            self._end("stopped", str(stopped))
            raise
        except KeyboardInterrupt:
            how = "stopped"
            when = f"in round {self.round + 1} of" if self.round < self.spec.rounds else "after all"
            message = f"interrupted {when} {self.spec.rounds} rounds"
            self._end("stopped", message)
            if file.obeyed_at_once:
                raise RunStopped(message) from None
            raise
        except BaseException as problem:
            kind = [] if isinstance(problem, UserError) else [type(problem).__name__]
            self._end("failed", ": ".join([*kind, *filter(None, [str(problem)])]))
            raise
        finally:
            others.end(how, result)
            file.clear()

    def _is_ended(self, by: str) -> bool:
        """True if a callback ends the run now, which an algorithm with a last round of its own does not survive."""
        if not by or self._is_over():
            return False
        if self.spec.algorithm.ends_as_planned:
            why = f"{self.spec.algorithm.name} does in its last round what it does in no other"
            log.warning("the callback %s cannot end the run: %s; the run goes on", by, why)
            return False
        log.warning("the callback %s ends the run after round %d of %d", by, self.round, self.spec.rounds)
        return True

    def _one_round(self) -> Progress | None:
        """Run all exchanges of one round of every seed; None if no seed has gone on."""
        start, before = time.perf_counter(), self.round
        algorithm = self.spec.algorithm
        going = self._going()
        entries: dict[int, Entry] = {}
        for run in going:
            entries[run] = self._begun(run, before)
        events: list[dict[str, Any]] = []
        if self.spec.measure_losses:
            self._note_losses(entries, before)
        first = True
        if self._watches:
            first, going = not self._judged(entries, before), self._going()
        exchanges = 0
        while unfinished := [run for run in going if self.states[run].round == before]:
            if exchanges == algorithm.exchanges:
                raise UserError(
                    f"{algorithm.name} does not end round {before + 1}: after {exchanges} exchange(s), as many as it "
                    "says that it takes (exchanges), `tell` has to return a state with round=state.round + 1"
                )
            # 1. Tasks of every seed; one whose round took fewer exchanges waits for the others.
            tasks: list[Sequence[Tasks]] = [[] for _ in self.states]
            for run in unfinished:
                asked = algorithm.ask(self.states[run])
                tasks[run] = self.oversight.askable(run, asked) if self.oversight.acts else asked
            # 2. Clients work. The trained model is measured in the exchange that trains it, not always the first.
            measured = self._measured(first, before)
            try:
                outcomes = self.dispatch.exchange(self.states, tasks, measured)
            except QuorumLost as lost:
                raise self._in_words(lost, tasks) from None
            # 3. The server makes a new state of their replies.
            going = self._going()
            for run in going:
                outcome = outcomes[run]
                self.recorder.note(entries[run], outcome)
                if run not in unfinished:
                    continue
                for failure in outcome.failures:
                    events.append(self._event(run, failure))
                replies = self.oversight.told(run, entries[run], outcome) if self.oversight.acts else outcome.replies
                if self._has_callbacks:
                    self._told[run] = replies
                self.states[run] = algorithm.tell(self.states[run], replies)
            if self.engine.remote:
                events += self._heal()
            first = False
            exchanges += 1
        return self._recorded(start, before, entries, events, going)

    def _recorded(
        self, start: float, before: int, entries: Mapping[int, Entry], events: list[dict[str, Any]], going: list[int]
    ) -> Progress | None:
        """The round after `before` rounds is over: its record, and a checkpoint where it is due."""
        elapsed = time.perf_counter() - start
        self.seconds += elapsed
        self._failures += len(events)
        # The last row of a seed whose time is up is written at the end; that of one that was stopped early, here.
        done = list(entries.values())
        if self.dispatch.over:
            done = [entry for run, entry in entries.items() if run not in self.dispatch.over]
        for entry in done:
            entry.row["seconds"] = elapsed / len(done)
        self.recorder.record(done, events)
        if self.dispatch.flights:
            self._keep_log()
        if self.folder is not None:
            if self.engine.remote and not any(REFUSED in event["reason"] for event in events):
                self.folder.keep_good_checkpoint()  # All who replied could train from it.
            self._since_checkpoint += elapsed
            is_cheap = self._since_checkpoint * CHECKPOINT_SHARE >= self._checkpoint_cost
            if is_cheap or self.engine.remote or self._is_over():
                self.checkpoint()
        if self.engine.not_recorded:
            self._tell_what_is_not_recorded()
        if not going or not self._is_followed:
            return None
        hypervolume, means = self.recorder.mean_hypervolume(done), self.recorder.means(done)
        return Progress(
            self.round, self.spec.rounds, before, hypervolume, self._failures, means, self.dispatch.clock(going)
        )

    def _keep_log(self) -> None:
        """Log the events on the way, where there is a folder for them."""
        happened = self.dispatch.happened()
        if self.folder is not None:
            self.folder.append("mission.jsonl", happened)

    def _tell_what_is_not_recorded(self) -> None:
        """Say it once: in the log, and in run.json."""
        found = dict(self.engine.not_recorded)
        if found == self._not_recorded:
            return
        self._not_recorded = found
        said = "; ".join(f"{what} ({why})" for what, why in found.items())
        log.warning("not recorded as a CUDA graph, so slower: %s", said)
        if self.folder is not None:
            self.folder.write_json("run.json", (self.folder.read_json("run.json") or {}) | {"not_recorded": found})

    def _heal(self) -> list[dict[str, Any]]:
        """Heal states that other machines' replies made unsound: clients get models that they can train from.

        Return what was changed, as events: no client is at fault, so they bear the number of none.
        """
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
        """Make one Watch for each seed; none without early stopping."""
        if not self.spec.stop_after:
            return []
        names = self.engine.split_names
        if VALIDATION not in names:
            raise UserError(
                f"stop_after is {self.spec.stop_after}, but '{self.spec.problem.name}' has no validation rows to "
                f"decide on, only {' and '.join(names)}; leave it out, or take a problem that sets some aside"
            )
        return [Watch(self.spec.stop_after, self.spec.stop_margin, state) for state in self.states]

    def _judged(self, entries: Mapping[int, Entry], done: int) -> bool:
        """Measure the solutions before training if it is due, so that seeds can end with them; true if it was."""
        if not self._is_evaluated(done):
            return False
        outcomes = self.engine.run_all([[] for _ in self.states], self._measured(True, done))
        for run, entry in entries.items():
            self.recorder.note(entry, outcomes[run])
            self._look(run, entry, outcomes[run])
        return True

    def _look(self, run: int, entry: Entry, outcome: Outcome) -> None:
        """Takes one evaluation of a seed into account; its score on validation rows is in the row."""
        state, watch = self.states[run], self._watches[run]
        values = self._by_split(run, outcome)
        found = entry.row["validation_score"] = score(values[VALIDATION], self.spec.problem)
        watch.look(found, state, self.engine.private, run)

    def _take_best(self) -> list[State]:
        """The state of every seed's best round, with the clients' private state restored to that round."""
        self.engine.private = _together(watch.private for watch in self._watches)
        return [watch.state for watch in self._watches]

    # -- the end of the loop ---------------------------------------------------------------------------------------

    def _is_evaluated(self, done: int) -> bool:
        """Check whether solutions are measured after `done` rounds."""
        return done % self.spec.evaluate_every == 0

    def _measured(self, first: bool, done: int) -> list[Parcels | None]:
        """Parcels to be measured in the round after `done` rounds: all solutions, none of them, or nothing."""
        if not self._is_evaluated(done):
            return [None for _ in self.states]
        found: list[Parcels | None] = [None] * len(self.states)
        for run in self._going():
            found[run] = self.spec.algorithm.solutions(self.states[run]) if first else Parcels(np.empty(0))
        return found

    def _in_words(self, lost: QuorumLost, tasks: Sequence[Sequence[Tasks]]) -> QuorumLost:
        """A lost quorum, whose reasons are now in the folder."""
        self.recorder.record([], [self._event(lost.run, failure) for failure in lost.failures])
        seed = f"seed {self.spec.seeds[lost.run]}, " if len(self.spec.seeds) > 1 else ""
        asked = sum(len(some) for some in tasks[lost.run])
        return QuorumLost(lost_in_words(lost, asked, seed, self.folder), lost.failures, lost.run)

    def _finish(self) -> Result:
        """The last evaluation, of the final models."""
        algorithm, states = self.spec.algorithm, self.states
        solutions, outcomes = self._measure(states)
        entries: dict[int, Entry] = {}
        for run in self._unstopped():
            entries[run] = self._begun(run, states[run].round)
            self.recorder.note(entries[run], outcomes[run])
            entries[run].row["seconds"] = 0.0
        if self.spec.measure_losses:
            self._note_losses(entries, self.spec.rounds)
        if algorithm.channel.validated and not self.engine.remote:
            private = self.engine.private
            for run, entry in entries.items():
                entry.row |= steps.chosen(private, run)
        if self._watches:
            for run, entry in entries.items():
                self._look(run, entry, outcomes[run])
            states = self._take_best()
            solutions, outcomes = self._measure(states)
        events: list[dict[str, Any]] = []
        sets: list[SolutionSet] = []
        models: list[Mapping[int, Tensor]] = []
        for run, (state, outcome) in enumerate(zip(states, outcomes, strict=True)):
            values = self._by_split(run, outcome)
            of_clients = solution_sets.of_clients(self.spec, run, values)
            lost = solution_sets.lost(self.spec, of_clients)
            reason = "no solution: the model's objectives are not finite numbers"
            events += [self._event(run, Failure(client, state.round, reason, "evaluate")) for client in lost]
            found = algorithm.found(state)
            if found is not None and len(found.models):
                sets.append(solution_sets.of_server(self.spec, self.engine.split_names, found))
                models.append(dict(enumerate(found.models)))
            else:
                sets.append(of_clients)
                models.append(self.engine.models(run, solutions[run]) if self.keep_models else {})
        self.recorder.record(list(entries.values()), events)
        self._keep_log()
        kept = tuple(state.round for state in states)
        where = self.folder.path if self.folder else None
        record = self.recorder
        result = Result(self.spec, sets, models, record.history, record.columns, where, kept, self.tested)
        if self.folder is not None:
            save_for_serving(self.folder, self.spec, self.engine, solutions)
            save_result(self.folder, result, self.keep_models)
        self._status("finished")  # Last: all files are there.
        return result

    def _by_split(self, run: int, outcome: Outcome) -> dict[str, np.ndarray]:
        """Objectives that clients reported of what they were sent, `{split: [n, m]}`."""
        names, clients = self.engine.split_names, self.states[run].setting.clients
        return by_split(outcome.evaluations.sent, clients, names, len(self.spec.problem.objectives))

    def _measure(self, states: Sequence[State]) -> tuple[list[Parcels], list[Outcome]]:
        """Measure what every seed's clients would be sent: the solutions and their objectives."""
        solutions = [self.spec.algorithm.solutions(state) for state in states]
        return solutions, self.engine.run_all([[] for _ in solutions], solutions)

    # -- the record ------------------------------------------------------------------------------------------------

    def _begun(self, run: int, done: int) -> Entry:
        """Begin the entry of a seed with what there is to record before its next round."""
        algorithm, state = self.spec.algorithm, self.states[run]
        entry = Entry({"seed": self.spec.seeds[run], "round": done} | self.dispatch.noted(run))
        if not done:
            entry.values.update(self.dispatch.of_clients(run))
            self.recorder.note_preferences(entry, self.spec.preferences_of(self.spec.seeds[run]))
        found = algorithm.found(state)
        if found is not None:  # The clients' choices from it, which are measured too, may be fewer.
            own = solution_sets.of_server(self.spec, self.engine.split_names, found)
            entry.row["hypervolume"] = self.recorder.hypervolume(own.points)
        self.recorder.describe(entry, algorithm.describe(state))
        entry.row |= {"trained": None, "trained_hypervolume": None} | dict(self.observe(self, run))
        return entry

    def _note_losses(self, entries: Mapping[int, Entry], done: int) -> None:
        """Adds each client's training loss after `done` rounds, before and after every round that is evaluated."""
        wanted = self._is_evaluated(done) or self._is_evaluated(done - 1) or done == self.spec.rounds
        if not wanted:
            return
        measured = self.engine.losses([self.spec.algorithm.solutions(state) for state in self.states])
        for run, entry in entries.items():
            self.recorder.note_losses(entry, measured[run])

    def _event(self, run: int, failure: Failure) -> dict[str, Any]:
        return event(self.spec.seeds[run], failure)

    def _status(self, status: str, message: str = "") -> None:
        if self.folder is not None:
            self.folder.status(status, self.round, round(self.seconds, 3), message)

    def _end(self, status: str, message: str) -> None:
        """Marks a run that ends early. If not even that can be written, the first problem is still the one reported."""
        with suppress(UserError):
            self.recorder.write()
        with suppress(UserError):
            self._status(status, message)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Saves the rounds so far."""
        if self.folder is None:
            return
        start = time.perf_counter()
        self.recorder.write()
        checkpoint = Checkpoint(
            values={
                "spec": resuming.fixed(self.spec),
                "seconds": self.seconds,
                "failures": self._failures,
                **resuming.settled(self.folder),
            }
        )
        for run, state in enumerate(self.states):
            checkpoint.put_state(state, f"state/{run}")
        checkpoint.put_private(self.engine.private)
        self.dispatch.save(checkpoint)
        self.oversight.save(checkpoint)
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
            resuming.cut(folder, {})
            return
        if "spec" not in checkpoint.values:
            raise DamagedFile(f"{folder.checkpoint_file} is not a run's checkpoint; delete it to begin the run again")
        resuming.must_be_same(checkpoint.values["spec"], self.spec, folder)
        with reading(str(folder.checkpoint_file)):
            self._restore(checkpoint, folder)

    def _restore(self, checkpoint: Checkpoint, folder: RunFolder) -> None:
        self.states = [checkpoint.get_state(state, f"state/{run}") for run, state in enumerate(self.states)]
        for state in self.states:  # States that do not fit are found here, not in the next round.
            if type(state.round) is not int or not 0 <= state.round <= self.spec.rounds:
                raise ValueError(f"its round is {state.round}, the run has {self.spec.rounds}")
            self.spec.algorithm.solutions(state)
            self.spec.algorithm.describe(state)
        self.engine.private = checkpoint.get_private(self.engine.device)
        self.dispatch.restore(checkpoint)
        self.oversight.restore(checkpoint)
        best = checkpoint.get_private(self.engine.device, "best-private")
        for run, (watch, state) in enumerate(zip(self._watches, self.states, strict=bool(self._watches))):
            kept = checkpoint.get_state(state, f"best/{run}")
            self._watches[run] = watch.restored(checkpoint.values["watches"][run], kept, best.of_run(run))
        self.seconds, self._failures = float(checkpoint.values["seconds"]), checkpoint.values["failures"]
        resuming.cut(folder, checkpoint.values)
        folder.read_lines("metrics.jsonl")  # A damaged row is found now, and not after the last round.
        self.recorder.record([], self._heal() if self.engine.remote else [])


def _together(parts: Iterable[Kept]) -> Kept:
    """The clients' private state of all seeds."""
    whole = Kept()
    for part in parts:
        whole.add(part)
    return whole
