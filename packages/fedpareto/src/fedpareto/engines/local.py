"""The local engine: a whole federation, or several side by side, as one batched tensor program.

Clients are stacked and the stack is cut into chunks. A chunk of one is the plain loop over clients: the same code and
the same numbers, chosen where it is faster.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.client_state import Kept
from fedpareto.contract.clients import Clients
from fedpareto.contract.federation import Federation
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import ByClient, Message, Outcome, Parcels, Tasks, take_rows, taken
from fedpareto.contract.model_parts import calibrated, lattice, trade_off
from fedpareto.contract.problem import Problem
from fedpareto.contract.solutions import tested_on
from fedpareto.engines.choosing import Choosing
from fedpareto.engines.coding import LOST, Coding
from fedpareto.engines.counting import Law, law_of
from fedpareto.engines.faults import Faults
from fedpareto.engines.machine import Choices, device_named, products_in
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.engines.reply_checks import Done, Part, Screening, enforce_quorum, failure, rows_missing
from fedpareto.engines.work import Registered, Work, by_kind, in_order, lane_of
from fedpareto.learners.plain import compile_ahead
from fedpareto.moo.tested import Tested
from fedpareto.tensors import rng
from fedpareto.tensors.jit import need_numba, products_on_one_thread
from fedpareto.tensors.replay import Recordings
from fedpareto.tensors.rows import Rows
from fedpareto.trust.attacks import Attack, raid_on
from fedpareto.trust.reports import reported

log = logging.getLogger("fedpareto.local")
WORTH_TELLING = 3.0
"""Seconds of compiling."""
MEMORY = "learner."
"""Prefix of the names of learner state in a client's private state."""

_NOTHING = np.empty(0, dtype=np.int64)
_NO_CLIENT = ByClient.none()

Letter = tuple[int, int, int, str, int]
"""A reply by its federation, client, lane, step and round."""


@dataclass
class LocalEngine:
    """Runs the client half of `algorithm` for one federation, or for several (seeds) in one stack."""

    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    federations: Sequence[Federation]
    settings: Sequence[Setting]
    options: EngineOptions = LocalOptions()
    faults: Faults = Faults()
    attack: Attack = Attack()
    quorum: float = 0.0
    choices: Choices | None = None
    coding: Coding = Coding(Codec())
    """Coding of the replies."""
    private: Kept = field(default_factory=Kept)
    """Every client's private state."""
    holds: bool = False
    """True if what clients keep after a step counts only once their replies have `landed`."""
    held: Kept = field(default_factory=Kept)
    """Private state that clients keep until their replies have landed."""
    letters: dict[Letter, dict[str, bytes]] = field(default_factory=dict)
    """The coded tensors of the last replies, if the coding writes them."""
    own: Mapping[str, Tensor] = field(default_factory=dict)
    """Parameters of the learner that each federation has for itself, `[runs]` by name."""
    remote: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.device = device_named(self.options.device)
        self.settings = [self.place(setting) for setting in self.settings]
        first = self.federations[0]
        self._splits = {
            name: Rows.concat([federation.splits[name] for federation in self.federations]).to(
                self.device, self.options.dtype
            )
            for name in first.splits
        }
        preferences = np.concatenate([federation.preferences for federation in self.federations])
        self._preferences = torch.as_tensor(preferences).to(self.device, self.options.dtype)
        self._registered = Registered(self.federations)
        self._privacy = self.algorithm.channel.privacy
        self._is_plain = self.coding.codec.plain
        self.own = {name: values.to(self.device, self.options.dtype) for name, values in self.own.items()}
        self._raid = raid_on(self.settings, self.attack, self.problem)
        if self._raid is not None:
            here = self._raid.among([federation.ids for federation in self.federations])
            self._splits = dict(here.with_twins(self._splits, self.problem, self._registered.of_run))
            self._raid = here
        self._screening = Screening(
            self.algorithm, self.settings, self.options.dtype, self.device, self.faults, self._raid
        )
        when: Literal["pays", "never"] = "pays" if self.options.record else "never"
        self._recordings = Recordings(when=when, compiled=self.options.compiled)
        if self.options.compiled:
            self._compile()
        if self.choices is None:
            self.choices = self._choosing().choices()

    def _compile(self) -> None:
        need_numba()
        seconds = compile_ahead(self.options.dtype)
        if seconds > WORTH_TELLING:
            log.warning("numba has compiled the training of small networks in %.0f s, and keeps it", seconds)

    def place(self, setting: Setting) -> Setting:
        """The setting with its initial model on this engine's device and in its precision."""
        return replace(setting, initial=setting.initial.to(self.device, self.options.dtype))

    @property
    def split_names(self) -> list[str]:
        """The parts of the data, in the order of the evaluations."""
        return self.problem.parts(self._splits)

    @property
    def chosen(self) -> dict[str, Any]:
        """Threads and chunk."""
        assert self.choices is not None, "an engine has measured its choices once it exists"
        return asdict(self.choices)

    @property
    def tested(self) -> tuple[Tested, ...]:
        found = [tested_on(self.problem, one.splits, one.addresses) for one in self.federations]
        return tuple(one for one in found if one is not None)

    @property
    def not_recorded(self) -> dict[str, str]:
        """Reasons why some of the clients' work could not be recorded on a GPU, by what it is."""
        return self._recordings.refused

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
        """Run the tasks of the first (usually only) federation."""
        return self.run_all([tasks], [evaluate])[0]

    def run_all(
        self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None], *, enforce: bool = True
    ) -> list[Outcome]:
        """Exchange with all clients of every federation in one stack: measure what is sent, work, check the replies.

        `enforce`: whether the quorum counts.
        """
        measured = list(map(partial(operator.is_not, None), evaluate))
        done: list[Done] = []
        with self.working():
            sent = self._sent(tasks, evaluate)
            for work in by_kind(tasks):
                done.append(self._done(work, measured))
        outcomes = self._screening.outcomes(sent, done, measured)
        for run, outcome in enumerate(outcomes):
            if enforce and outcome.failures:
                enforce_quorum(self.quorum, outcome.replies, outcome.failures, run)
        return outcomes

    def exchange(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """Run the tasks of all federations, whatever the quorum is."""
        return self.run_all(tasks, evaluate, enforce=False)

    def work(
        self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> tuple[list[ByClient], list[Done]]:
        """The objectives of what is sent, and what came of the tasks before replies are checked."""
        measured = [solutions is not None for solutions in evaluate]
        with self.working():
            return self._sent(tasks, evaluate), [self._done(work, measured) for work in by_kind(tasks)]

    def _sent(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[ByClient]:
        """The objectives of what clients are sent, as they report them."""
        for run, of_run in enumerate(tasks):
            if of_run and len(self.private.shelves) > len(self.settings):  # Lanes that no task names are over.
                self.private.keep_lanes(run, (some.lane for some in of_run))
        found = self._measured(evaluate, Clients.evaluate)
        if self._privacy.objectives != "exact":
            found = [self._reported(run, one) for run, one in enumerate(found)]
        return found

    def _reported(self, run: int, exact: ByClient) -> ByClient:
        """Reports of clients on the objectives of what they were sent."""
        if not len(exact):
            return exact
        addresses = rng.Addresses.at(self.settings[run].seed, exact.clients, 0, device=self.device)
        told = reported(self._privacy, exact.rows, self.problem.objectives, addresses)
        return ByClient.none() if told is None else ByClient(exact.clients, told)

    def objectives(self, run: int, solutions: Parcels) -> ByClient:
        """Measure the models that the clients would use, as they are: for the clients themselves."""
        with self.working():
            every = [solutions if one == run else None for one in range(len(self.settings))]
            return self._measured(every, Clients.evaluate)[run]

    def models(self, run: int, solutions: Parcels) -> ByClient:
        """The models that the clients would use, `[d]` each: what they are sent, combined with what they keep."""
        with self.working(), torch.no_grad():
            models = self._over(solutions, run, self.algorithm.personal)
        return ByClient(solutions.clients, models)

    def model_parts(self, run: int, solutions: Parcels) -> dict[int, Message]:
        """Return what the clients keep to make models for any preference, and the objectives of these models on
        held-out rows.
        """
        anatomy = self.algorithm.anatomy(self.problem.layout, len(self.problem.objectives))
        if anatomy is None:
            return {}
        parts: dict[int, Message] = {}
        work = Work.of([solutions], [run])
        with self.working(), torch.no_grad():
            for rows in self._chunks(work):
                chunk = work.only(rows)
                clients = self._clients(chunk)
                kept = self.algorithm.model_parts(clients, chunk.message())
                kept = calibrated(clients, anatomy, kept)
                kept = {**kept, "front": trade_off(clients, anatomy, kept, lattice(anatomy.objectives))}
                for row, client in enumerate(chunk.client.tolist()):
                    parts[client] = {name: tensor[row] for name, tensor in kept.items()}
        return parts

    def losses(self, solutions: Sequence[Parcels]) -> list[ByClient]:
        """Compute the losses; for attackers the true ones."""
        with self.working():
            return self._measured(solutions, Clients.loss)

    def operations(self, run: int) -> np.ndarray:
        """Operations of one `train` step for each client of a federation, `[n]`, in the order of its setting's clients.

        Products of matrices and convolutions, where a multiplication and an addition are two operations; what is done
        number by number is not counted. They are counted on a few rows of one client, and grow with the rows of each.
        """
        return self._law.operations(self._counts[self._registered.of_run(run, self.settings[run].clients)])

    @cached_property
    def _law(self) -> Law:
        with self.working():
            return law_of(self.algorithm, self.settings[0], self._probe(1))

    def _measured(
        self, solutions: Sequence[Parcels | None], measure: Callable[[Clients, Tensor], Tensor]
    ) -> list[ByClient]:
        """The values of `measure` for the models that clients use under each federation's solutions."""

        def measured(clients: Clients, message: Message) -> Tensor:
            return measure(clients, self.algorithm.personal(clients, message))

        values = [_NO_CLIENT] * len(solutions)
        parcels: list[Sequence[Parcels]] = []
        for some in solutions:
            parcels.append([] if some is None else [some])
        for work in by_kind(parcels):
            found = self._over_work(work, measured)
            for run, parcel, rows in work.parts():
                values[run] = ByClient(parcel.clients, take_rows(found, rows))
        return values

    def _over(self, parcels: Parcels, run: int, compute: Callable[[Clients, Message], Tensor]) -> Tensor:
        return self._over_work(Work.of([parcels], [run]), compute)

    def _over_work(self, work: Work, compute: Callable[[Clients, Message], Tensor]) -> Tensor:
        """The values of a computation for all rows, `[n, ...]`, done in chunks."""
        chunks, values = list(self._chunks(work)), []
        for rows in chunks:
            chunk = work.only(rows)
            values.append(compute(self._clients(chunk), chunk.message()))
        if len(values) == 1:
            return values[0]
        return in_order(values, np.argsort(np.concatenate(chunks), kind="stable"))

    def _done(self, work: Work, measured: Sequence[bool]) -> Done:
        """The client steps of some work; `measured`: of which federations trained models are.

        If a chunk raises, its clients run one by one to find out which one failed.
        """
        awake, failures = self._screening.awake(work)
        is_measured = work.step == "train" and any(measured[run] for run in work.runs)
        parts: list[Part] = []
        chunks = list(self._chunks(work, awake))
        while chunks:
            rows = chunks.pop(0)
            chunk = work.only(rows)
            try:
                clients, message = self._at_work(chunk), chunk.message()
                before = dict(clients.state)
                if self._blank:
                    clients.memory = self._recalled(chunk, [self._blank] * len(self.settings), MEMORY)
                result = self.algorithm.client_step(work.step, clients, message)
                if (why := rows_missing(result, len(rows))) is not None:
                    raise ValueError(why)
                values = self._trained(chunk, clients, message, result) if is_measured else None
                sizes = _NOTHING
                if not self._is_plain:
                    result, sizes = self._coded(chunk, message, result, clients)
            except Exception as problem:  # Whatever a client's own code raises is that client's failure alone.
                if len(rows) == 1:
                    reason = f"raised {type(problem).__name__}: {problem}"
                    failures[int(rows[0])] = failure(work, int(rows[0]), reason)
                else:
                    chunks[:0] = [np.array([row]) for row in rows]
                continue
            self._keep(chunk, before, clients)
            parts.append(Part(rows, result, values, sizes))
        return Done.of(work, parts, failures)

    def _trained(self, chunk: Work, clients: Clients, message: Message, result: Message) -> Tensor | None:
        """Objectives of the models that a chunk's clients trained, as they report them; None if they withhold them."""
        honest = self._honest(clients, chunk)
        values = honest.evaluate(self.algorithm.personal(honest, {**message, **result, **clients.trained}))
        if self._privacy.objectives == "exact":
            return values
        return reported(self._privacy, values, self.problem.objectives, honest.addresses)

    def _coded(self, chunk: Work, message: Message, result: Message, clients: Clients) -> tuple[Message, np.ndarray]:
        """The replies as they will be held, and their bytes; what they lost is private state from now on."""
        fresh = [self.coding.nothing_lost(self.algorithm, setting) for setting in self.settings]
        way = self.coding.travelled(chunk.step, message, result, self._recalled(chunk, fresh, LOST))
        clients.state = {**clients.state, **{LOST + name: tensor for name, tensor in way.lost.items()}}
        keys = zip(chunk.run.tolist(), chunk.client.tolist(), chunk.lane.tolist(), chunk.round.tolist(), strict=True)
        for (run, client, lane, round_), letter in zip(keys, way.letters, strict=False):
            self.letters[run, client, lane, chunk.step, round_] = letter
        return way.reply, way.sizes

    # -- stacks ----------------------------------------------------------------------------------------------------

    def _chunks(self, work: Work, rows: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """The rows of some work in stacks of at most the chosen size."""
        rows = work.everything if rows is None else rows
        size = self.choices.chunk if self.choices else 1
        if len(rows) <= size:
            return iter([rows] if len(rows) else [])
        counts = self._counts[self._registered.positions(work.only(rows))]
        if (counts != counts[0]).any():
            # Clients of similar size side by side: less padding, and no small client waits for a large one.
            rows = rows[np.argsort(-counts, kind="stable")]
        if self.device.type == "cpu":  # Chunks of equal size: a last one of few clients would cost nearly a whole one.
            return iter(np.array_split(rows, max(1, -(-len(rows) // size))))
        return (rows[i : i + size] for i in range(0, len(rows), size))

    @cached_property
    def _counts(self) -> np.ndarray:
        """Training rows of every client; 0 where clients have none."""
        return self._splits["train"].counts if "train" in self._splits else np.zeros(len(self._registered), dtype=int)

    def _at_work(self, chunk: Work) -> Clients:
        """A chunk's clients as they train: attackers falsify."""
        clients = self._clients(chunk)
        if self._raid is None:
            return clients
        lies = np.zeros(len(chunk), dtype=bool)
        for run, tasks, rows in chunk.parts():
            assert isinstance(tasks, Tasks), "only tasks are work"
            lies[rows] = self._raid.lies(run, chunk.client[rows], tasks.round)
        return self._raid.join(clients, lies)

    def _honest(self, clients: Clients, chunk: Work) -> Clients:
        """Return the clients as they are measured: by their real rows."""
        return (
            clients
            if self._raid is None
            else replace(clients, positions=self._registered.positions(chunk), tampering=None)
        )

    def _clients(self, chunk: Work) -> Clients:
        positions = self._registered.positions(chunk)
        return Clients(
            problem=self.problem,
            learner=self.learner,
            splits=self._splits,
            addresses=self._addresses(chunk),
            positions=positions,
            preferences=take_rows(self._preferences, positions),
            state=self._recalled(chunk, self._fresh) if self._fresh[0] else {},
            recordings=self._recordings,
            own=self._own(chunk) if self.own else {},
        )

    def _own(self, chunk: Work) -> Message:
        return {name: values[torch.as_tensor(chunk.run)].unsqueeze(1) for name, values in self.own.items()}

    @cached_property
    def _seeds(self) -> list[int]:
        return [setting.seed for setting in self.settings]

    def _addresses(self, work: Work) -> rng.Addresses:
        seeds = self._seeds
        if len(work.parcels) > 1:
            return work.addresses(seeds, self.device)
        # The clients are the same, so only the round changes.
        place = "addresses", work.runs[0], int(work.lane[0])
        known = self._recordings.noted(place, work.client, lambda: work.addresses(seeds, self.device))
        return replace(known, round=torch.full_like(known.client, int(work.round[0])))

    @cached_property
    def _fresh(self) -> list[Message]:
        """Private state of a client that has not worked yet, by federation."""
        return [self.algorithm.private_state(setting) for setting in self.settings]

    @cached_property
    def _blank(self) -> Message:
        """Learner state of a client that has not trained yet."""
        return {name: tensor.to(self.device) for name, tensor in self.learner.memory(self.problem).items()}

    def _recalled(self, chunk: Work, fresh: Sequence[Message], prefix: str = "") -> Message:
        """Private state that each client of a chunk kept or, if new, its run's initial one, by name; `[n, ...]`."""
        if not fresh[0]:
            return {}
        found = []
        for run, parcel, rows in chunk.parts():
            named = {prefix + name: tensor for name, tensor in fresh[run].items()}
            state = self.private.shelf(run, lane_of(parcel)).read(chunk.client[rows], named)
            found.append((rows, state))
        order = np.argsort(np.concatenate([rows for rows, _ in found]), kind="stable")
        return {name: in_order([state[prefix + name] for _, state in found], order) for name in fresh[0]}

    def _keep(self, chunk: Work, before: Message, clients: Clients) -> None:
        """Keeps the private state after a step; what the step left out is as before."""
        kept = before | clients.state
        if clients.memory:
            kept |= {MEMORY + name: tensor for name, tensor in clients.memory.items()}
        if kept:
            for run, parcel, rows in chunk.parts():
                shelves = self.held if self.holds else self.private
                shelves.shelf(run, lane_of(parcel)).write(chunk.client[rows], taken(kept, rows))

    def landed(self, run: int, clients: np.ndarray) -> None:
        """The replies of these clients have arrived."""
        for (of, lane), shelf in self.held.shelves.items():
            if of == run and len(shelf.clients):
                blank = {name: tensor[0] for name, tensor in shelf.tensors.items()}
                self.private.shelf(run, lane).write(clients, shelf.read(clients, blank))

    # -- choices ---------------------------------------------------------------------------------------------------

    @contextmanager
    def threads(self, count: int | None = None) -> Iterator[None]:
        """Torch with the chosen number of threads."""
        wanted = count or (self.choices.threads if self.choices else 1)
        before = torch.get_num_threads()
        if wanted == before:
            yield
            return
        torch.set_num_threads(wanted)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def working(self, threads: int | None = None) -> Iterator[None]:
        """Set threads, and the chosen precision of matrix products: for client steps, not for the server's."""
        alone = products_on_one_thread() if self.options.compiled else nullcontext()
        with self.threads(threads), alone, self._products():
            yield

    def _products(self) -> AbstractContextManager[None]:
        is_usual = self.device.type == "cpu" and self.options.precision != "bfloat16"
        return nullcontext() if is_usual else products_in(self.options.precision, self.device)

    def _choosing(self) -> Choosing:
        lanes, initial = self.algorithm.lanes, self.settings[0].initial
        return Choosing(
            self.learner, self.options, self.device, initial, len(self._registered), lanes, self._probe, self.working
        )

    def _probe(self, size: int) -> Clients:
        """The largest clients, as a stack outside any round."""
        return self._clients(self._registered.largest(self._counts, size))
