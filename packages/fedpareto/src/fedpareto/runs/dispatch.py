"""Between the loop and the engine: who is asked, and whose replies a round has, by the run's policy and its clock.

On the local engine the clock is simulated: what is under way is a `Flight`. Where clients are nodes the clock is the
wall, and what is under way is on its way: an `Airmail`, which the engine gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch

from fedpareto.clock import in_flight_io
from fedpareto.clock.activity import TimeIsUp
from fedpareto.clock.in_flight import Flight
from fedpareto.clock.round_policies import Choose, Gathering
from fedpareto.clock.selection import stream_of
from fedpareto.clock.staleness import refreshed
from fedpareto.codecs import Codec
from fedpareto.contract.algorithm import Setting, State, participant_count
from fedpareto.contract.engine import Engine, Simulating
from fedpareto.contract.messages import (
    ByClient,
    Evaluations,
    Failure,
    Outcome,
    Parcels,
    Replies,
    Tasks,
    Traffic,
    but,
    bytes_down,
    only_of,
    places,
    traffic,
)
from fedpareto.engines.downlink import Downlink
from fedpareto.engines.reply_checks import enforce_quorum
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.runs import in_flight
from fedpareto.runs.in_flight import Mail
from fedpareto.spec.spec import Spec

Work = Callable[[Sequence[Sequence[Tasks]], Sequence[Parcels | None]], list[Outcome]]
"""Function of an engine on the tasks of all seeds, and on what is to be measured."""
_NOTHING = Outcome(Replies(np.empty(0)))
_NOBODY = np.empty(0, dtype=np.int64)
_NO_TRAFFIC = traffic([], _NOTHING.replies)


class Dispatch:
    """Exchanges of all seeds, each with a clock of its own where devices are known."""

    def __init__(self, spec: Spec, engine: Engine, settings: Sequence[Setting]) -> None:
        self.spec, self.engine, self.settings = spec, cast(Simulating, engine), settings
        self.flights = [in_flight.of(spec, engine, run, one) for run, one in enumerate(settings)] if spec.timed else []
        self._known = [in_flight.known(flight) for flight in self.flights]
        self._heard = [np.zeros(len(setting.clients), dtype=np.int64) for setting in settings]
        """The round in which each client was last heard, of each seed; 0: never."""
        self._chosen: dict[int, tuple[int, np.ndarray]] = {}
        self.over: dict[int, float] = {}
        """Seeds, by index, whose simulated hours are over, and when their last round was."""
        self._began: list[float] = []
        """The clock of each seed when an exchange began."""
        self._graph = spec.algorithm.neighbours(spec.clients)
        """Graph of who sends to whom where there is no server; None: there is one."""
        count = participant_count(spec.participation, spec.clients)
        self._gatherings = [
            Gathering(spec.policy, flight, count, in_flight.tiers(spec, flight)) for flight in self.flights
        ]
        if self.flights and not engine.remote:
            self.engine.holds = True
        self._downlinks = self._coded_downlinks()
        for run, flight in enumerate(self._simulated):
            flight.weigh = None if Codec.parse(spec.codec).plain else self._weigh
            if self._downlinks:
                flight.post = self._downlinks[run].post
            spec.policy.must_be_met(flight.soonest())
        self._is_plain = spec.policy.waits and not self.flights and not self._downlinks
        """True if all who are asked reply, at once."""
        self._timetables = [in_flight.timetable(spec, flight, count) for flight in self.flights]

    def _coded_downlinks(self) -> list[Downlink]:
        """Make the downlinks, coded, to the clients of each seed; none if messages travel as they are."""
        codec = Codec.parse(self.spec.server_codec)
        return [] if codec.plain else [Downlink(codec, setting.clients) for setting in self.settings]

    # -- an exchange -----------------------------------------------------------------------------------------------

    def exchange(
        self, states: Sequence[State], tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> list[Outcome]:
        """Run an exchange of every seed that has tasks; with `evaluate`, its solutions are measured before."""
        if self._is_plain:
            outcomes = self.engine.run_all(tasks, evaluate)
            for run, outcome in enumerate(outcomes):
                outcomes[run] = but(outcome, tasks=tasks[run], cost=self._cost(run, tasks[run], outcome.replies))
            return outcomes
        self._began = [flight.now for flight in self.flights]
        if not self.spec.policy.waits:
            return self._exchange_policy(states, tasks, evaluate)
        if self.flights:
            tasks = [self._asked(run, states[run], of_run) for run, of_run in enumerate(tasks)]
            if not self.engine.remote:
                return self._exchange_simulated(states, tasks, evaluate)
        return self._exchange_all(states, tasks, evaluate)

    def _exchange_all(
        self, states: Sequence[State], tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> list[Outcome]:
        """Run an exchange with all who are asked."""
        for link, some in zip(self._downlinks, tasks, strict=bool(self._downlinks)):
            if some:
                link.post(some, np.unique(np.concatenate([one.clients for one in some])))
        outcomes = self._worked(self.engine.run_all, tasks, evaluate)
        for run, outcome in enumerate(outcomes):
            self._answered(run, outcome.replies)
            self._learn(run, states[run].round + 1, outcome.replies, outcome.evaluations.sent)
            outcomes[run] = but(outcome, tasks=tasks[run], cost=self._cost(run, tasks[run], outcome.replies))
        return outcomes

    def _worked(
        self, work: Work, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> list[Outcome]:
        """Run the tasks of every seed, as their clients hold them; what the server gets is as if they held what it
        meant.
        """
        if not self._downlinks:
            return work(tasks, evaluate)
        held = [link.held(some) for link, some in zip(self._downlinks, tasks, strict=True)]
        return [
            replace(outcome, replies=link.as_meant(meant, theirs, outcome.replies))
            for link, meant, theirs, outcome in zip(self._downlinks, tasks, held, work(held, evaluate), strict=True)
        ]

    def _answered(self, run: int, replies: Replies) -> None:
        """Note that these replies are here, so what they answer was received."""
        if self._downlinks:
            self._downlinks[run].answered(replies.clients)

    def _cost(self, run: int, tasks: Sequence[Tasks], replies: Replies, sent: np.ndarray | None = None) -> Traffic:
        """Bytes of what was sent since the last round, to all clients of the tasks or to these, and of what came."""
        down: np.ndarray | int
        if self._downlinks:
            sent, down = self._downlinks[run].posted()
        elif sent is None:
            return traffic(tasks, replies, self._graph, self.settings[run].clients)
        else:
            down = bytes_down(tasks, sent)
        both_ways = np.zeros((2, len(sent) + len(replies)), dtype=np.int64)
        both_ways[0, : len(sent)] = down
        both_ways[1, len(sent) :] = replies.coded if len(replies.coded) else replies.size
        return Traffic(np.concatenate([sent, replies.clients]), both_ways)

    def _exchange_simulated(
        self, states: Sequence[State], tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> list[Outcome]:
        """Exchange by a simulated clock, which goes on to where all of them have replied."""
        outcomes = self._worked(self.engine.exchange, tasks, evaluate)
        handed = [but(outcome, replies=_NOTHING.replies, cost=_NO_TRAFFIC) for outcome in outcomes]
        for run, (some, outcome) in enumerate(zip(tasks, outcomes, strict=True)):
            if not some:
                continue
            try:
                there = self._returned(run, some, outcome)
            except TimeIsUp:
                self.over[run] = self._began[run]
                continue
            enforce_quorum(self.spec.quorum, there.replies, there.failures, run)
            self.engine.landed(run, there.replies.clients)
            self._answered(run, there.replies)
            self._learn(run, states[run].round + 1, there.replies, there.evaluations.sent)
            asked = np.concatenate([one.clients for one in some])
            cost = self._cost(run, some, there.replies)
            handed[run] = but(there, replies=replace(there.replies, asked=asked), tasks=some, cost=cost)
        return handed

    def _returned(self, run: int, tasks: Sequence[Tasks], outcome: Outcome) -> Outcome:
        """Return the replies that come back by the clock. Where all got lost on their way, all are asked again."""
        flight, rows = self._simulated[run], np.flatnonzero(~self.flights[run].idle)
        lost: list[Failure] = []
        while True:
            flight.came_of_it(outcome)
            self._gatherings[run].all_back(rows)
            there = flight.without_lost(outcome)
            nobody = len(outcome.replies) and not len(there.replies)
            lost += there.failures[len(outcome.failures) :]
            flight.free(rows)
            if not nobody:
                return replace(there, failures=[*outcome.failures, *lost])
            flight.send(rows, tasks)

    def _asked(self, run: int, state: State, tasks: Sequence[Tasks]) -> list[Tasks]:
        """The tasks of those who are asked in this round; with a simulated clock, they are under way."""
        if not tasks:
            return []
        flight, gathering, clients = self.flights[run], self._gatherings[run], self.settings[run].clients
        askable = flight.askable(tasks)
        if not askable.any():
            self.over[run] = flight.now  # Nobody is left.
            return []
        if self.spec.chooses:
            if self._chosen.get(run, (-1,))[0] != state.round:  # All exchanges of a round have the same clients.
                choose = self._choose(run, state, [])
                rows = choose(np.flatnonzero(askable), gathering.count)
                self._chosen[run] = state.round, rows
            askable = askable & np.isin(np.arange(len(clients)), self._chosen[run][1])
        if self.engine.remote:
            return only_of(tasks, clients[askable])
        flight.send(np.flatnonzero(askable), tasks)
        return only_of(tasks, clients[askable])

    def _exchange_policy(
        self, states: Sequence[State], tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> list[Outcome]:
        """Exchange as the policy says. Only solutions are measured, not trained models, which may be on their way."""
        if self.engine.remote and any(self._needs_everyone(state) for state in states):
            for flight in self.flights:
                flight.free(np.flatnonzero(~flight.idle))
            return self._exchange_all(states, tasks, evaluate)
        measured = self._measured(states, evaluate)
        handed = [but(outcome, cost=_NO_TRAFFIC) for outcome in measured]
        missing = {run: _Waiting() for run, of_run in enumerate(tasks) if of_run}
        while missing:
            for run, waiting in list(missing.items()):
                try:
                    waiting.rows = self._gather(run, states[run], tasks[run], waiting.sent)
                except TimeIsUp:
                    self.over[run] = self._began[run]
                    del missing[run]
            self._compute({run: waiting.rows for run, waiting in missing.items()})
            for run, waiting in list(missing.items()):
                replies = self._taken(run, waiting)
                if len(replies) or len(waiting.failures) >= self.spec.clients:
                    found = self._reported(run) if self.engine.remote and evaluate[run] is not None else measured[run]
                    handed[run] = self._handed(run, states[run], tasks[run], replies, waiting, found)
                    del missing[run]
                self.flights[run].free(waiting.rows)
        return handed

    def _measured(self, states: Sequence[State], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """The solutions' objectives. Nodes measure them beside their next task, so that nobody waits for that."""
        if self.engine.remote:
            for flight, solutions in zip(self.flights, evaluate, strict=True):
                cast(Mail, flight).solutions = solutions
        elif any(solutions is not None for solutions in evaluate):
            measured = self.engine.run_all([[] for _ in states], evaluate)
            for run, outcome in enumerate(measured):
                self._learn(run, states[run].round, outcome.replies, outcome.evaluations.sent)
            return measured
        return [_NOTHING] * len(states)

    def _reported(self, run: int) -> Outcome:
        """Outcome with what nodes measured last, each of them the solution that it was sent with its task."""
        return replace(_NOTHING, evaluations=Evaluations(cast(Mail, self.flights[run]).reports()))

    def _needs_everyone(self, state: State) -> bool:
        """Check whether a round has all clients, whatever the policy is."""
        return self.spec.algorithm.ends_as_planned and state.round == self.spec.rounds - 1

    def _gather(self, run: int, state: State, tasks: Sequence[Tasks], sent: list[np.ndarray]) -> np.ndarray:
        """The rows of those whose replies this round has; `sent` gets those of whom was asked."""
        everyone, timetable = self._needs_everyone(state), self._timetables[run]
        turn = timetable.turn(tasks) if timetable is not None and not everyone else None
        if turn is not None:
            self._simulated[run].follow(turn, tasks)
            self._known[run].asked[turn.asked] += 1
            sent.append(turn.asked)
            return turn.came
        askable = self.flights[run].askable(tasks)
        choose = self._choose(run, state, sent)
        came = self._gatherings[run].gathered(tasks, askable, choose, everyone)
        if everyone:
            choose(came, len(came))
        return came

    def _choose(self, run: int, state: State, sent: list[np.ndarray]) -> Choose:
        """Make the run's choice of who is asked; `sent` gets the rows of everybody who was."""
        known, flight, selection = self._known[run], self.flights[run], self.spec.selection
        streams: list[np.random.Generator] = []  # Made if needed.

        def choose(free: np.ndarray, count: int) -> np.ndarray:
            rows = free
            if len(free) > count:
                if not streams:
                    streams.append(stream_of(self.settings[run].seed, state.round + 1))
                if selection.kind != "random":
                    known.version, known.heard = state.round, state.round + 1 - self._heard[run]
                    known.present = flight.present
                rows = selection.chosen(known, free, count, streams[0])
            known.asked[rows] += 1
            sent.append(rows)
            return rows

        return choose

    def _compute(self, arrived: Mapping[int, np.ndarray]) -> None:
        """Compute what these replies hold, and with it all that is under way: one stack of all seeds."""
        due = [self.flights[run].due(arrived[run]) if run in arrived else [] for run in range(len(self.flights))]
        if not any(due):
            return
        outcomes = self._worked(self.engine.exchange, due, [None for _ in due])
        for run, outcome in enumerate(outcomes):
            if due[run]:
                self.flights[run].computed(outcome)

    def _weigh(self) -> None:
        """Compute what all clients of all seeds are at, so that it is known how long their replies are."""
        due = [flight.unknown() for flight in self._simulated]
        outcomes = self._worked(self.engine.exchange, due, [None for _ in due])
        for flight, tasks, outcome in zip(self._simulated, due, outcomes, strict=True):
            if tasks:
                flight.computed(outcome)

    @property
    def _simulated(self) -> list[Flight]:
        return [flight for flight in self.flights if isinstance(flight, Flight)]

    def _taken(self, run: int, waiting: _Waiting) -> Replies:
        replies, failures = self.flights[run].taken(waiting.rows)
        waiting.failures += failures
        if not self.engine.remote:
            self.engine.landed(run, replies.clients)
            self._answered(run, replies)
        return replies

    def _handed(
        self,
        run: int,
        state: State,
        tasks: Sequence[Tasks],
        replies: Replies,
        waiting: _Waiting,
        measured: Outcome,
    ) -> Outcome:
        enforce_quorum(self.spec.quorum, replies, waiting.failures, run)
        rows = waiting.sent[0] if len(waiting.sent) == 1 else np.concatenate([_NOBODY, *waiting.sent])
        sent = self.settings[run].clients[rows]
        told = but(replies, asked=sent)
        fresh = refreshed(self.spec.algorithm, self.spec.policy, self.flights[run], tasks, told)
        heard = waiting.rows if len(replies) == len(waiting.rows) == 1 else None
        self._learn(run, state.round + 1, replies, measured.evaluations.sent, heard)
        cost, staleness = self._cost(run, tasks, replies, sent), state.round + 1 - replies.rounds
        return Outcome(fresh, waiting.failures, measured.evaluations, tasks, cost, staleness)

    def _learn(self, run: int, round_: int, replies: Replies, sent: ByClient, heard: np.ndarray | None = None) -> None:
        """Note what the server learns of clients from what they said, and from the objectives of what they were sent.

        `heard`: the rows of those who replied, where they are known.
        """
        if not self.flights:
            return
        clients, known = self.settings[run].clients, self._known[run]
        heard = places(clients, replies.clients) if heard is None else heard
        self._heard[run][heard] = round_
        if self.engine.remote:
            known.seconds, known.joules = self.flights[run].expected()
            if "size" in replies:
                known.rows[heard] = replies["size"].double().cpu().numpy().reshape(-1)
        if len(sent):
            names, worse = (
                self.engine.split_names,
                [1.0 if not one.maximise else -1.0 for one in self.spec.problem.objectives],
            )
            part = names.index("train") if "train" in names else 0
            values = sent.rows[:, part].double().cpu().numpy() * worse
            known.value[places(clients, sent.clients)] = values.mean(axis=1)

    # -- the record ------------------------------------------------------------------------------------------------

    def noted(self, run: int) -> dict[str, float]:
        """Columns of the record about the clock: seconds, and joules of all clients, so far."""
        found = self.flights[run].noted() if self.flights else {}
        return found | ({"clock": self.over[run], "over": found["clock"]} if run in self.over else {})

    def of_clients(self, run: int) -> dict[str, tuple[np.ndarray, None]]:
        """Facts about each client's machine that the record says once: the number of its tier, and how long an
        exchange is expected to take.
        """
        flight = self.flights[run] if self.spec.simulates else None
        if not isinstance(flight, Flight):
            return {}
        return {"device_tier": (flight.fleet.tier, None), "device_seconds": (self._known[run].seconds, None)}

    def clock(self, runs: Sequence[int]) -> float | None:
        """Simulated seconds so far, mean over these seeds; None without devices."""
        return float(np.mean([self.flights[run].now for run in runs])) if self.spec.simulates else None

    def about(self) -> dict[str, Any] | None:
        """Facts about what a mission's satellites see, for its folder; None without one."""
        flight = self.flights[0] if self.flights else None
        return flight.about() if isinstance(flight, Flight) else None

    def happened(self) -> list[dict[str, Any]]:
        """Events on the way since the last round, of all seeds."""
        if not self.flights:
            return []
        return [
            {"seed": self.settings[run].seed, **one}
            for run, flight in enumerate(self._simulated)
            for one in flight.happened()
        ]

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> None:
        """Adds everything that is under way."""
        for run, (flight, known) in enumerate(zip(self.flights, self._known, strict=True)):
            tensors, values = in_flight_io.written(flight)
            checkpoint.values[f"flight/{run}"] = values | {"tiers": self._gatherings[run].done}
            checkpoint.put_tensors(f"flight/{run}", tensors)
            about = {"asked": known.asked, "value": known.value, "rows": known.rows, "heard": self._heard[run]}
            checkpoint.put_tensors(f"known/{run}", {name: torch.as_tensor(array) for name, array in about.items()})
        if self.flights and not self.engine.remote:
            checkpoint.put_private(self.engine.held, "held")
        checkpoint.values["over"] = {str(run): clock for run, clock in self.over.items()}
        for run, link in enumerate(self._downlinks):
            tensors, checkpoint.values[f"downlink/{run}"] = link.written()
            checkpoint.put_tensors(f"downlink/{run}", tensors)

    def restore(self, checkpoint: Checkpoint) -> None:
        self.over = {int(run): float(clock) for run, clock in checkpoint.values["over"].items()}
        for run, link in enumerate(self._downlinks):
            link.read(checkpoint.get_tensors(f"downlink/{run}"), checkpoint.values[f"downlink/{run}"])
        for run, (flight, known) in enumerate(zip(self.flights, self._known, strict=True)):
            values = checkpoint.values[f"flight/{run}"]
            in_flight_io.read(flight, checkpoint.get_tensors(f"flight/{run}"), values)
            self._gatherings[run].done = list(values["tiers"])
            found = {name: one.numpy().copy() for name, one in checkpoint.get_tensors(f"known/{run}").items()}
            known.asked, known.value, known.rows = found["asked"], found["value"], found["rows"]
            self._heard[run] = found["heard"]
        if self.flights and not self.engine.remote:
            self.engine.held = checkpoint.get_private(self.engine.device, "held")


@dataclass
class _Waiting:
    """A seed that has no reply yet."""

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rows of those who came."""
    sent: list[np.ndarray] = field(default_factory=list)
    """Rows of those who were asked."""
    failures: list[Failure] = field(default_factory=list)
