"""The local engine: a whole federation, or several side by side, as one batched tensor program.

Clients are stacked and the stack is cut into chunks. A chunk of one is the plain loop over clients: the same code and
the same numbers, chosen where it is faster.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.algorithm import Algorithm, Setting, unwrapped
from fedpareto.core.clients import Clients
from fedpareto.core.federation import Federation
from fedpareto.core.learner import Learner
from fedpareto.core.messages import Evaluations, Failure, Message, Outcome, Reply, Task
from fedpareto.core.model_parts import calibrated, lattice, trade_off
from fedpareto.core.problem import Problem, Rows
from fedpareto.core.replay import Recordings
from fedpareto.engines.attacks import Answer, Attack, Raid
from fedpareto.engines.checks import enforce_quorum, refusal, sound
from fedpareto.engines.faults import Fate, Faults, damaged, fate
from fedpareto.engines.memory import physical_memory
from fedpareto.errors import UserError

MOST_THREADS = 1024
MEMORY = "learner."
"""Prefix of the names of learner state in a client's private state."""


@dataclass(frozen=True)
class LocalOptions:
    """How the local engine works; none of it changes the numbers beyond rounding."""

    name: ClassVar[str] = "local"

    device: str = "cpu"
    """"cpu", "cuda" or "cuda:1"."""
    precision: Literal["float32", "float64", "tf32", "bfloat16"] = "float32"
    """Of models and data; with tf32 and bfloat16 these are float32 and only matrix products are less precise, as on a
    GPU's tensor cores.
    """
    memory: str = ""
    """Working memory for a stack of clients, such as "4GB"; empty: half of the machine's (or the device's) memory."""
    threads: int = 0
    """Torch threads; 0: measured."""
    chunk: int = 0
    """Clients in one stack, 1 being the plain loop; 0: measured."""

    def __post_init__(self) -> None:
        for name in ("threads", "chunk"):
            if getattr(self, name) < 0:
                raise UserError(f"engine: {name} is {getattr(self, name)}; it is at least 0 (0: measured)")
        if self.threads > MOST_THREADS:
            raise UserError(f"engine: threads is {self.threads}; more than {MOST_THREADS} never help")
        if self.memory:
            bytes_of(self.memory)

    @property
    def dtype(self) -> torch.dtype:
        """As torch names it."""
        return torch.float64 if self.precision == "float64" else torch.float32


HOPELESS = 4
"""Memory estimates are rough and conservative; what exceeds a machine's memory by this factor does not fit."""
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _rounded_up(size: int) -> str:
    """A number of bytes in the notation of a budget."""
    unit = "K" if size < UNITS["M"] else "M" if size < 10 * UNITS["G"] else "G"
    return f"{math.ceil(size / UNITS[unit])}{unit}B"


def bytes_of(text: str) -> int:
    """ "4GB" as a number."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(?:([KMGT])I?B?|B)", text.strip().upper())
    if found:
        return int(float(found[1]) * UNITS[found[2] or ""])
    raise UserError(f"engine: memory is '{text}'; write a number with a unit, such as 4GB or 512MB")


@dataclass(frozen=True)
class Choices:
    """What was measured (or given) once; a resumed run uses the same, so that it continues bit for bit."""

    threads: int
    chunk: int


@dataclass(frozen=True)
class _Work:
    """A task of one of the federations."""

    run: int
    task: Task

    @property
    def key(self) -> tuple[int, int, int]:
        """Whose private state."""
        return self.run, self.task.lane, self.task.client


class _Answer(NamedTuple):
    """The result of a task."""

    item: _Work
    message: Message
    value: Tensor | None
    """The trained model's objectives, if requested."""
    is_sound: bool
    """Whether the values of the message are known to pass."""


@dataclass
class LocalEngine:
    """Runs the client half of `algorithm` for one federation, or for several (seeds) in one stack."""

    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    federations: Sequence[Federation]
    settings: Sequence[Setting]
    options: LocalOptions = LocalOptions()
    faults: Faults = Faults()
    attack: Attack = Attack()
    quorum: float = 0.0
    choices: Choices | None = None
    private: dict[tuple[int, int, int], Message] = field(default_factory=dict)
    """Every client's private state by (run, lane, client)."""
    remote: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.device = _device(self.options.device)
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
        bases = np.cumsum([0, *(len(federation.ids) for federation in self.federations)])
        self._position = {
            (run, client): int(base) + row
            for run, (base, federation) in enumerate(zip(bases[:-1], self.federations, strict=True))
            for row, client in enumerate(federation.ids)
        }
        self._raid: Raid | None = None
        if self.attack.kind != "none":
            self.attack.must_fit(self.problem, min(len(federation.ids) for federation in self.federations))
            self._raid = Raid(self.attack, [self.attack.attackers(one.clients, one.seed) for one in self.settings])
            self._splits = dict(self._raid.with_twins(self._splits, self.problem, self._position))
        self._recordings = Recordings()
        if self.choices is None:
            self.choices = self._measure()

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

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Task], evaluate: Mapping[int, Message] | None = None) -> Outcome:
        """See Engine.run; for the first (usually only) federation."""
        return self.run_all([tasks], [evaluate])[0]

    def run_all(
        self, tasks: Sequence[Sequence[Task]], evaluate: Sequence[Mapping[int, Message] | None]
    ) -> list[Outcome]:
        """One exchange of every federation, all clients in one stack."""
        with self.working():
            work = [_Work(run, task) for run, asked in enumerate(tasks) for task in asked]
            self._forget(work)
            sent = self._evaluate_solutions(evaluate)
            replies, failures, trained = self._run(work, evaluate)
        outcomes = []
        for run in range(len(tasks)):
            good = [reply for owner, reply in replies if owner == run]
            bad = [failure for owner, failure in failures if owner == run]
            enforce_quorum(self.quorum, good, bad, run)
            order = sorted(good, key=lambda reply: (reply.lane, reply.client))
            evaluations = Evaluations(_by_client(sent[run]), _by_client(trained[run]))
            outcomes.append(Outcome(order, bad, evaluations))
        return outcomes

    def models(self, run: int, solutions: Mapping[int, Message]) -> dict[int, Tensor]:
        """The models that the clients would use, `[d]` each: what they are sent, combined with what they keep."""
        work = [_Work(run, Task(client, 0, message)) for client, message in solutions.items()]
        models: dict[int, Tensor] = {}
        with self.working(), torch.no_grad():
            for chunk in self._chunks(work):
                rows = self.algorithm.personal(self._clients(chunk), _stacked(chunk))
                models |= {item.task.client: row for item, row in zip(chunk, rows, strict=True)}
        return models

    def model_parts(self, run: int, solutions: Mapping[int, Message]) -> dict[int, Message]:
        """What the clients keep to make models for any preference, and the objectives of these models on held-out
        rows.
        """
        anatomy = self.algorithm.anatomy(self.problem.layout, len(self.problem.objectives))
        if anatomy is None:
            return {}
        work = [_Work(run, Task(client, 0, message)) for client, message in solutions.items()]
        parts: dict[int, Message] = {}
        with self.working(), torch.no_grad():
            for chunk in self._chunks(work):
                clients = self._clients(chunk)
                kept = self.algorithm.model_parts(clients, _stacked(chunk))
                kept = calibrated(clients, anatomy, kept)
                kept = {**kept, "front": trade_off(clients, anatomy, kept, lattice(anatomy.objectives))}
                for row, item in enumerate(chunk):
                    parts[item.task.client] = {name: tensor[row] for name, tensor in kept.items()}
        return parts

    def losses(self, solutions: Sequence[Mapping[int, Message]]) -> list[dict[int, float]]:
        """See Engine.losses; for attackers the true ones."""
        with self.working():
            measured = self._measured(solutions, Clients.loss)
        return [{client: float(loss) for client, loss in sorted(of_run.items())} for of_run in measured]

    def _run(
        self, work: Sequence[_Work], evaluate: Sequence[Mapping[int, Message] | None]
    ) -> tuple[list[tuple[int, Reply]], list[tuple[int, Failure]], list[dict[int, Tensor]]]:
        replies: list[tuple[int, Reply]] = []
        failures: list[tuple[int, Failure]] = []
        trained: list[dict[int, Tensor]] = [{} for _ in evaluate]
        fates = {item.key: fate(self.faults, self._address(item)) for item in work}
        awake = []
        for item in work:
            if fates[item.key].drops_out:
                failures.append((item.run, _failure(item.task, "dropped out (injected fault)")))
            else:
                awake.append(item)
        answers = (answer for chunk in self._chunks(awake) for answer in self._step(chunk, evaluate, failures))
        for answer in self._forged(answers):
            item = answer.item
            reply_or_failure = self._judge(answer, fates[item.key])
            if isinstance(reply_or_failure, Failure):
                failures.append((item.run, reply_or_failure))
                continue
            replies.append((item.run, reply_or_failure))
            if answer.value is not None:
                trained[item.run][item.task.client] = answer.value
        return replies, failures, trained

    def _forged(self, answers: Iterable[_Answer]) -> Iterable[_Answer]:
        """The answers with attackers' replies replaced; attackers may collude, so all of an exchange are processed
        together.
        """
        if self._raid is None or not self._raid.forges:
            return answers
        known = list(answers)
        under_way = [
            Answer(self._address(item), item.task, reply, self._lies(item), _kind_of_work(item))
            for item, reply, _, _ in known
        ]
        forged = self._raid.forged(under_way)
        return [
            answer if reply is answer.message else answer._replace(message=reply, is_sound=False)
            for answer, reply in zip(known, forged, strict=True)
        ]

    def _step(
        self,
        chunk: Sequence[_Work],
        evaluate: Sequence[Mapping[int, Message] | None],
        failures: list[tuple[int, Failure]],
    ) -> Iterator[_Answer]:
        """One client step over a chunk. If it raises, the clients run one by one to find out which one failed."""
        task = chunk[0].task
        try:
            clients, message = self._at_work(chunk), _stacked(chunk)
            clients.memory = self._memory(chunk)
            result = getattr(self.algorithm, task.step)(clients, message)
            values: Sequence[Tensor | None] = [None] * len(chunk)
            if task.step == "train" and evaluate[chunk[0].run] is not None:
                honest = self._honest(clients, chunk)
                values = list(honest.evaluate(self.algorithm.personal(honest, {**message, **result})))
            passed = sound(result, self.algorithm, len(chunk))
        except Exception as problem:  # Whatever a client's own code raises is that client's failure, not the round's.
            if len(chunk) == 1:
                reason = f"raised {type(problem).__name__}: {problem}"
                failures.append((chunk[0].run, _failure(task, reason)))
                return
            for item in chunk:
                yield from self._step([item], evaluate, failures)
            return
        self._keep(chunk, clients)
        for row, item in enumerate(chunk):
            yield _Answer(item, {name: tensor[row] for name, tensor in result.items()}, values[row], passed[row])

    def _judge(self, answer: _Answer, fate_of_client: Fate) -> Reply | Failure:
        item, message, _, is_sound = answer
        task = item.task
        if fate_of_client.straggles:
            return _failure(task, "answered after the round was over (injected straggler)")
        injected = ""
        if fate_of_client.damage and message:
            message, injected = damaged(message, fate_of_client.damage), " (injected fault)"
            is_sound = False
        why = refusal(message, self.algorithm, self.settings[item.run], task.step, self.options.dtype, is_sound)
        if why is not None:
            return _failure(task, f"refused: {why}{injected}")
        return Reply(task.client, task.round, message, task.step, task.lane)

    def _evaluate_solutions(self, evaluate: Sequence[Mapping[int, Message] | None]) -> list[dict[int, Tensor]]:
        """The objectives of each federation's solutions, `{client: [splits, m]}`."""
        return self._measured(evaluate, Clients.evaluate)

    def _measured(
        self, solutions: Sequence[Mapping[int, Message] | None], measure: Callable[[Clients, Tensor], Tensor]
    ) -> list[dict[int, Tensor]]:
        """The values of `measure`, by client, for the models that clients use under each federation's solutions."""
        work = [
            _Work(run, Task(client, 0, message))
            for run, of_run in enumerate(solutions)
            for client, message in (of_run or {}).items()
        ]
        values: list[dict[int, Tensor]] = [{} for _ in solutions]
        for chunk in self._chunks(work):
            clients = self._clients(chunk)
            measured = measure(clients, self.algorithm.personal(clients, _stacked(chunk)))
            for item, value in zip(chunk, measured, strict=True):
                values[item.run][item.task.client] = value
        return values

    # -- stacks ----------------------------------------------------------------------------------------------------

    def _chunks(self, work: Sequence[_Work]) -> Iterator[list[_Work]]:
        """Work of one kind (same step, message of the same shape) in stacks of at most the chosen size."""
        kinds: dict[tuple[str, frozenset[tuple[str, torch.Size]]], list[_Work]] = {}
        for item in work:
            shape = frozenset((name, tensor.shape) for name, tensor in item.task.message.items())
            kinds.setdefault((item.task.step, shape), []).append(item)
        size = self.choices.chunk if self.choices else 1
        for items in kinds.values():
            # Clients of similar size side by side: less padding, and no small client waits for a large one.
            items.sort(key=self._rows, reverse=True)
            yield from (items[i : i + size] for i in range(0, len(items), size))

    def _rows(self, item: _Work) -> int:
        return int(self._counts[self._position[item.run, item.task.client]])

    @cached_property
    def _counts(self) -> np.ndarray:
        """Training rows of every client; 0 where clients have none."""
        return self._splits["train"].counts if "train" in self._splits else np.zeros(len(self._position), dtype=int)

    def _at_work(self, chunk: Sequence[_Work]) -> Clients:
        """A chunk's clients as they train: attackers falsify."""
        clients = self._clients(chunk)
        return clients if self._raid is None else self._raid.join(clients, [self._lies(item) for item in chunk])

    def _honest(self, clients: Clients, chunk: Sequence[_Work]) -> Clients:
        """The same as they are measured: by their real rows."""
        return clients if self._raid is None else replace(clients, positions=self._positions(chunk), tampering=None)

    def _lies(self, item: _Work) -> bool:
        return self._raid is not None and self._raid.lies(item.run, item.task.client, item.task.round)

    def _positions(self, chunk: Sequence[_Work]) -> np.ndarray:
        return np.array([self._position[item.run, item.task.client] for item in chunk])

    def _clients(self, chunk: Sequence[_Work]) -> Clients:
        positions = self._positions(chunk)
        return Clients(
            problem=self.problem,
            learner=self.learner,
            splits=self._splits,
            addresses=tuple(self._address(item) for item in chunk),
            positions=positions,
            preferences=self._preferences[torch.as_tensor(positions, device=self.device)],
            state=self._state(chunk),
            recordings=self._recordings,
        )

    def _address(self, item: _Work) -> rng.Address:
        return rng.Address(self.settings[item.run].seed, item.task.client, item.task.round, item.task.lane)

    def _state(self, chunk: Sequence[_Work]) -> Message:
        """Private state of a chunk, `[n, ...]`; a client that never worked starts from the algorithm's own."""
        return self._recalled(chunk, [self.algorithm.private_state(setting) for setting in self.settings])

    def _memory(self, chunk: Sequence[_Work]) -> Message:
        """Learner state of a chunk, `[n, ...]`."""
        return self._recalled(chunk, [self._blank] * len(self.settings), MEMORY)

    @cached_property
    def _blank(self) -> Message:
        """Learner state of a client that has not trained yet."""
        return {name: tensor.to(self.device) for name, tensor in self.learner.memory(self.problem).items()}

    def _recalled(self, chunk: Sequence[_Work], fresh: Sequence[Message], prefix: str = "") -> Message:
        """By name, what each client of a chunk kept or, if it is new, the initial state of its run."""
        return {
            name: torch.stack(
                [self.private.get(item.key, {}).get(prefix + name, fresh[item.run][name]) for item in chunk]
            )
            for name in fresh[0]
        }

    def _keep(self, chunk: Sequence[_Work], clients: Clients) -> None:
        kept = clients.state | {MEMORY + name: tensor for name, tensor in clients.memory.items()}
        if kept:
            for row, item in enumerate(chunk):
                self.private[item.key] = {name: tensor[row].clone() for name, tensor in kept.items()}

    def _forget(self, work: Sequence[_Work]) -> None:
        """Drops the state of lanes that are over: those that a run's tasks no longer name."""
        lanes: dict[int, set[int]] = {}
        for item in work:
            lanes.setdefault(item.run, set()).add(item.task.lane)
        for run, lane, client in list(self.private):
            if lane not in lanes.get(run, {lane}):
                del self.private[run, lane, client]

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
        """The same, with matrix products in the chosen precision: for client steps, not for the server's."""
        with self.threads(threads), _products(self.options.precision, self.device):
            yield

    def _measure(self) -> Choices:
        """Times a few training steps for stacks of several sizes, then the best of them with more threads."""
        cap = self._largest_chunk()
        total = len(self._position)
        crowd = min(total * unwrapped(self.algorithm).lanes, cap)
        if self.options.chunk:
            sizes = [min(self.options.chunk, crowd)]
        else:
            wanted = [1, total] if self.device.type == "cuda" else [1, 16, 64, 256, *([total] if total < 512 else [])]
            sizes = sorted({min(size, cap, total) for size in wanted})
        one = self.options.threads or 1
        times = {size: self._time(size, one) for size in sizes} if len(sizes) > 1 else {sizes[0]: 0.0}
        chunk = min(times, key=lambda size: times[size])
        threads, cores = one, os.cpu_count() or 1
        if not self.options.threads and cores > 1 and self.device.type == "cpu":
            threads = min((1, cores), key=lambda count: self._time(min(chunk, total), count))
        # Where one stack of all clients is best, so is one stack of all their tasks.
        return Choices(threads, max(chunk, crowd) if chunk == total else chunk)

    def _time(self, size: int, threads: int) -> float:
        """Seconds per client of a few steps in a stack of `size`; the best of three tries."""
        clients = self._probe(size)
        model = self.settings[0].initial.expand(size, -1)
        learner = self.learner.probe()
        best = float("inf")
        clock = clock_for(self.device, threads)
        with self.working(threads):
            for _ in range(3):
                start = clock()
                learner.train(clients, model, clients.preferences)
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                best = min(best, clock() - start)
        return best / size

    def _largest_chunk(self) -> int:
        """As many clients as the memory budget allows, by the learner's own estimate for the largest client."""
        whole = _memory(self.device)
        budget = bytes_of(self.options.memory) if self.options.memory else whole // 2
        need = self.learner.bytes_per_client(self._probe(1))
        if need > budget and self.options.memory:
            raise UserError(
                f"engine: one client needs about {_rounded_up(need)} of working memory, "
                f"the budget is {self.options.memory}"
            )
        if need > HOPELESS * whole:
            raise UserError(
                f"engine: one client needs about {_rounded_up(need)} of working memory, this machine has "
                f"{_rounded_up(whole)}; smaller batches, buffers or networks would do"
            )
        return max(1, budget // max(need, 1))

    def _probe(self, size: int) -> Clients:
        """The largest clients, as a stack outside any round."""
        largest = sorted(self._position, key=lambda key: -self._counts[self._position[key]])[:size]
        return self._clients([_Work(run, Task(client, 0, {})) for run, client in largest])


def clock_for(device: torch.device, threads: int) -> Callable[[], float]:
    """For work on one thread of a CPU its own seconds: on a busy machine the wall clock is noise. Else the wall's."""
    return time.thread_time if device.type == "cpu" and threads == 1 else time.perf_counter


@contextmanager
def _products(precision: str, device: torch.device) -> Iterator[None]:
    """Products of matrices in that precision."""
    if precision == "bfloat16":
        # Without its cache: later code must not find there what a CUDA graph has recorded.
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _stacked(chunk: Sequence[_Work]) -> Message:
    """The messages of a chunk as one, `[n, ...]`; one that all clients share is not copied."""
    messages = [item.task.message for item in chunk]
    stacked = {}
    for name, first in messages[0].items():
        if all(message[name] is first for message in messages):
            stacked[name] = first.expand(len(chunk), *first.shape)
        else:
            stacked[name] = torch.stack([message[name] for message in messages])
    return stacked


def _kind_of_work(item: _Work) -> tuple[int, str, int]:
    return item.run, item.task.step, item.task.lane


def _by_client(values: dict[int, Tensor]) -> dict[int, Tensor]:
    return dict(sorted(values.items()))


def _failure(task: Task, reason: str) -> Failure:
    return Failure(task.client, task.round, reason, task.step, task.lane)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"engine: device is '{name}'; it is cpu, cuda or cuda:1") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"engine: device is '{name}'; it is cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("engine: device is cuda, but this machine has no CUDA device that torch can use; try cpu")
    return device


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return physical_memory()
