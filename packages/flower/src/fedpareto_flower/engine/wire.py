"""Messages on the wire: tensors as raw buffers, and one small header of plain values. Never a pickle.

A node gets one envelope in an exchange, with the work of all seeds and lanes, and returns one answer. Decoding trusts
nothing: names, types, shapes and sizes are checked before a tensor is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedpareto.contract.messages import Failure, Message
from fedpareto.engines.single import Reply, Task

PROTOCOL = 2
STYPE = "fedpareto.raw"
HEADER, TENSORS = "header", "tensors"

DTYPES = {"float32": "<f4", "float64": "<f8", "int64": "<i8", "int32": "<i4", "uint8": "|u1"}
"""The types of a tensor on the wire, and their byte order."""

LONGEST_HEADER, LONGEST_NAME, LONGEST_REASON, MOST_DIMENSIONS, MOST_FINGERPRINTS = 2**20, 100, 500, 8, 32
MOST_ITEMS = 4096
"""Jobs, tasks or parts of the data in one message."""
LARGEST_NUMBER = 2**53
"""Largest round, lane or client: what every JSON reader keeps exactly."""


class Malformed(ValueError):
    """A message that is not what the protocol says; the text says why."""


@dataclass(frozen=True)
class Limits:
    """Limits on what a receiver accepts."""

    tensors: int = MOST_ITEMS
    bytes: int = 2**31


GENEROUS = Limits()


@dataclass(frozen=True)
class Job:
    """A node's work in one exchange for one seed: measure `solution`, then run the tasks."""

    run: int
    round: int
    exchange: int
    """Number of the exchange in the round, from 0: private state is kept by (round, exchange)."""
    tasks: tuple[Task, ...] = ()
    solution: Message | None = field(default=None, repr=False)
    measure: bool = False
    """The trained model is measured too."""
    since: int = LARGEST_NUMBER
    """The last round whose reply the server has: private state of later ones does not count. By default all does."""


@dataclass(frozen=True)
class Envelope:
    """All tasks of one node in one exchange."""

    federation: str
    client: int
    nonce: str
    """Number that is new in every exchange: an answer to an earlier one cannot pass for an answer to this."""
    jobs: tuple[Job, ...]
    final: bool = False
    """The solutions are the run's final ones, for the node to keep."""


@dataclass(frozen=True)
class Result:
    """The result of a job. Objectives are `[parts, m]`."""

    run: int
    replies: tuple[Reply, ...] = ()
    failures: tuple[Failure, ...] = ()
    sent: Tensor | None = None
    trained: Tensor | None = None


@dataclass(frozen=True)
class Answer:
    """A node's answer to an envelope."""

    federation: str
    client: int
    nonce: str
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Hello:
    """Identification of a node."""

    federation: str
    client: int
    nonce: str
    parts: tuple[str, ...]
    """The parts of its data, in the order of its evaluations."""
    schema: Mapping[str, str]
    """Fingerprints by subject (model, data, …)."""


# -- encoding ------------------------------------------------------------------------------------------------------


def encode_envelope(envelope: Envelope) -> RecordDict:
    """A Flower message's content. A solution's tensor that a task carries already is named, not sent again."""
    tensors: dict[str, Tensor] = {}
    jobs = []
    for number, job in enumerate(envelope.jobs):
        tasks = []
        for place, task in enumerate(job.tasks):
            if task.round != job.round or task.client != envelope.client:
                raise ValueError("the tasks of a job belong to its round and its client")
            names = _put(tensors, f"{number}/{place}", task.message)
            tasks.append({"lane": task.lane, "step": task.step, "message": names})
        jobs.append(
            {
                "run": job.run,
                "round": job.round,
                "exchange": job.exchange,
                "measure": job.measure,
                "since": job.since,
                "tasks": tasks,
                "solution": _put_solution(tensors, number, job),
            }
        )
    return _content(tensors, "envelope", envelope, {"final": envelope.final, "jobs": jobs})


def encode_answer(answer: Answer) -> RecordDict:
    tensors: dict[str, Tensor] = {}
    results = []
    for number, result in enumerate(answer.results):
        measured = {"sent": result.sent, "trained": result.trained}
        known = {name: values for name, values in measured.items() if values is not None}
        results.append(
            {
                "run": result.run,
                "replies": [
                    _task_key(reply) | {"message": _put(tensors, f"{number}/{place}", reply.message)}
                    for place, reply in enumerate(result.replies)
                ],
                "failures": [_task_key(failure) | {"reason": printable(failure.reason)} for failure in result.failures],
                "measured": _put(tensors, f"{number}/measured", known),
            }
        )
    return _content(tensors, "answer", answer, {"results": results})


def encode_greeting(federation: str, client: int, nonce: str) -> RecordDict:
    """The server's identification request; it knows no client yet, so `client` is rng.SERVER."""
    return _content({}, "greeting", Answer(federation, client, nonce, ()), {})


def encode_hello(hello: Hello) -> RecordDict:
    return _content({}, "hello", hello, {"parts": list(hello.parts), "schema": dict(hello.schema)})


def size(content: RecordDict) -> int:
    """Bytes of a message's tensors and header; Flower's own framing (about 1 KB a message) is not counted."""
    tensors = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    headers = sum(
        len(value) if isinstance(value, str | bytes) else 8
        for record in content.config_records.values()
        for value in record.values()
    )
    return tensors + headers


def _content(tensors: Mapping[str, Tensor], kind: str, who: Envelope | Answer | Hello, more: Any) -> RecordDict:
    header = {
        "protocol": PROTOCOL,
        "kind": kind,
        "federation": who.federation,
        "client": who.client,
        "nonce": who.nonce,
        **more,
    }
    text = json.dumps(header, separators=(",", ":"))
    records: dict[str, Any] = {HEADER: ConfigRecord({HEADER: text})}
    if tensors:
        records[TENSORS] = ArrayRecord({name: _array(tensor) for name, tensor in tensors.items()})
    return RecordDict(records)


def _put(tensors: dict[str, Tensor], path: str, message: Message) -> list[str]:
    for name, tensor in message.items():
        tensors[f"{path}/{name}"] = tensor
    return list(message)


def _put_solution(tensors: dict[str, Tensor], number: int, job: Job) -> Any:
    """Put the solution's tensors, and return which of them are the first task's own and which are sent beside them."""
    if job.solution is None:
        return None
    known = job.tasks[0].message if job.tasks else {}
    shared = [name for name, tensor in job.solution.items() if name in known and torch.equal(tensor, known[name])]
    own = {name: tensor for name, tensor in job.solution.items() if name not in shared}
    return {"shared": shared, "own": _put(tensors, f"{number}/solution", own)}


def _task_key(item: Reply | Failure) -> dict[str, Any]:
    return {"lane": item.lane, "step": item.step, "round": item.round}


def _array(tensor: Tensor) -> Array:
    array = tensor.detach().cpu().contiguous().numpy()
    if array.dtype.name not in DTYPES:
        raise ValueError(f"a tensor of type {tensor.dtype} cannot be sent; {', '.join(DTYPES)} can")
    raw = array.astype(DTYPES[array.dtype.name], copy=False).tobytes()
    return Array(dtype=array.dtype.name, shape=tuple(array.shape), stype=STYPE, data=raw)


def printable(text: str) -> str:
    """Make one line of bounded length: it ends up in the other side's log."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_REASON])


# -- decoding ------------------------------------------------------------------------------------------------------


def decode_envelope(content: RecordDict, limits: Limits = GENEROUS) -> Envelope:
    """Decode what a server sent, or raise Malformed."""
    header, tensors = _Header.read(content, "envelope"), _Tensors(content, limits)
    jobs = []
    for number, entry in enumerate(header.items("jobs")):
        tasks = [
            Task(
                header.client, entry.integer("round"), tensors.message(f"{number}/{place}", task), **task.lane_and_step
            )
            for place, task in enumerate(entry.items("tasks"))
        ]
        jobs.append(
            Job(
                run=entry.integer("run"),
                round=entry.integer("round"),
                exchange=entry.integer("exchange"),
                tasks=tuple(tasks),
                solution=_solution(entry, number, tasks, tensors),
                measure=entry.truth("measure"),
                since=entry.integer("since"),
            )
        )
    tensors.all_used()
    return Envelope(header.text("federation"), header.client, header.text("nonce"), tuple(jobs), header.truth("final"))


def decode_answer(content: RecordDict, limits: Limits = GENEROUS) -> Answer:
    """Decode what a node answered, or raise Malformed."""
    header, tensors = _Header.read(content, "answer"), _Tensors(content, limits)
    results = []
    for number, entry in enumerate(header.items("results")):
        replies = [
            Reply(
                header.client,
                reply.integer("round"),
                tensors.message(f"{number}/{place}", reply),
                **reply.lane_and_step,
            )
            for place, reply in enumerate(entry.items("replies"))
        ]
        failures = [
            Failure(
                header.client,
                failure.integer("round"),
                printable(failure.text("reason", LONGEST_REASON)),
                **failure.lane_and_step,
            )
            for failure in entry.items("failures")
        ]
        measured = tensors.message(f"{number}/measured", entry, "measured")
        if not measured.keys() <= {"sent", "trained"}:
            raise Malformed(f"it measured {sorted(measured)}, which was not requested")
        run = entry.integer("run")
        results.append(Result(run, tuple(replies), tuple(failures), measured.get("sent"), measured.get("trained")))
    tensors.all_used()
    return Answer(header.text("federation"), header.client, header.text("nonce"), tuple(results))


def decode_greeting(content: RecordDict) -> tuple[str, str]:
    """The federation that sent the request, and its nonce."""
    header = _Header.read(content, "greeting")
    return header.text("federation"), header.text("nonce")


def decode_hello(content: RecordDict) -> Hello:
    """Decode how a node identified itself, or raise Malformed."""
    header = _Header.read(content, "hello")
    schema = header.entries.get("schema")
    if not isinstance(schema, dict) or len(schema) > MOST_FINGERPRINTS:
        raise Malformed("its schema is not a few fingerprints")
    fingerprints = _Header(schema)
    return Hello(
        header.text("federation"),
        header.client,
        header.text("nonce"),
        tuple(header.texts("parts")),
        {name: fingerprints.text(name) for name in schema},
    )


def _solution(entry: _Header, number: int, tasks: Sequence[Task], tensors: _Tensors) -> Message | None:
    if entry.entries.get("solution") is None:
        return None
    solution = entry.part("solution")
    known = tasks[0].message if tasks else {}
    shared = solution.texts("shared")
    if not known.keys() >= set(shared):
        raise Malformed("the solution names tensors that the task does not carry")
    return {name: known[name] for name in shared} | tensors.message(f"{number}/solution", solution, "own")


@dataclass(frozen=True)
class _Header:
    """An untrusted JSON object; every access checks the value."""

    entries: Mapping[str, Any]

    @classmethod
    def read(cls, content: RecordDict, kind: str) -> _Header:
        if not set(content) <= {HEADER, TENSORS}:
            raise Malformed("it holds records that the protocol does not know")
        record = content.config_records.get(HEADER)
        text = None if record is None else record.get(HEADER)
        if not isinstance(text, str) or len(text) > LONGEST_HEADER:
            raise Malformed("it has no header, or one that is too long")
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError):
            raise Malformed("its header is not JSON") from None
        if not isinstance(entries, dict):
            raise Malformed("its header is not an object")
        if entries.get("protocol") != PROTOCOL:
            raise Malformed(f"it speaks another protocol than {PROTOCOL}: both sides need the same fedpareto")
        if entries.get("kind") != kind:
            raise Malformed(f"it is not of the kind '{kind}'")
        return cls(entries)

    @property
    def client(self) -> int:
        return self.integer("client", least=-1)

    @property
    def lane_and_step(self) -> dict[str, Any]:
        return {"lane": self.integer("lane"), "step": self.text("step")}

    def integer(self, name: str, least: int = 0) -> int:
        value = self.entries.get(name)
        if type(value) is not int or not least <= value <= LARGEST_NUMBER:
            raise Malformed(f"its '{name}' is not a valid number")
        return value

    def truth(self, name: str) -> bool:
        value = self.entries.get(name)
        if type(value) is not bool:
            raise Malformed(f"its '{name}' is neither true nor false")
        return value

    def text(self, name: str, longest: int = LONGEST_NAME) -> str:
        return _text(self.entries.get(name), name, longest)

    def texts(self, name: str) -> list[str]:
        found = [_text(value, name, LONGEST_NAME) for value in self._list(name)]
        if len(set(found)) < len(found):
            raise Malformed(f"its '{name}' holds a name twice")
        return found

    def items(self, name: str) -> Iterator[_Header]:
        return (_Header(_object(value, name)) for value in self._list(name))

    def part(self, name: str) -> _Header:
        return _Header(_object(self.entries.get(name), name))

    def _list(self, name: str) -> list[Any]:
        value = self.entries.get(name)
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise Malformed(f"its '{name}' is not a list of reasonable length")
        return value


class _Tensors:
    """The tensors of a message; their total size is checked before the first of them is made."""

    def __init__(self, content: RecordDict, limits: Limits) -> None:
        record = content.array_records.get(TENSORS)
        if record is None:
            record = ArrayRecord()
        if TENSORS in content and TENSORS not in content.array_records:
            raise Malformed("its tensors are not an array record")
        if len(record) > limits.tensors:
            raise Malformed(f"it holds {len(record)} tensors, at most {limits.tensors} are expected")
        total = sum(len(array.data) for array in record.values())
        if total > limits.bytes:
            raise Malformed(f"it holds {total} bytes, at most {limits.bytes} are expected")
        self._arrays = dict(record.items())

    def message(self, path: str, entry: _Header, key: str = "message") -> Message:
        return {name: self._take(f"{path}/{name}", name) for name in entry.texts(key)}

    def all_used(self) -> None:
        if self._arrays:
            raise Malformed("it holds tensors that its header does not name")

    def _take(self, path: str, name: str) -> Tensor:
        array = self._arrays.pop(path, None)
        if array is None:
            raise Malformed(f"the tensor '{name}' is missing")
        return _tensor(array, name)


def _tensor(array: Array, name: str) -> Tensor:
    shape = array.shape
    if array.stype != STYPE or array.dtype not in DTYPES:
        raise Malformed(f"'{name}' is not a raw tensor of a known type")
    if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and 0 <= n <= LARGEST_NUMBER for n in shape):
        raise Malformed(f"'{name}' has an impossible shape")
    layout = np.dtype(DTYPES[array.dtype])
    if math.prod(shape) * layout.itemsize != len(array.data):
        raise Malformed(f"'{name}' announces the shape {list(shape)} and holds {len(array.data)} bytes")
    # astype copies, and into the byte order of this machine: the buffer itself is read-only.
    return torch.from_numpy(np.frombuffer(array.data, layout).astype(layout.newbyteorder("=")).reshape(shape))


def _text(value: Any, name: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise Malformed(f"its '{name}' is not a text of at most {longest} letters")
    return value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"its '{name}' is not valid")
    return value
