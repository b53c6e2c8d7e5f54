"""Checks of an answer: it belongs to its request, and what it holds is possible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from fedpareto.codecs import Codec, CodecError
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.messages import ByClient, Failure
from fedpareto.engines.coding import opened
from fedpareto.engines.reply_checks import impossible, refusal, too_large
from fedpareto.engines.single import Reply, Task
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.members import Members


@dataclass(frozen=True)
class Judge:
    """Trusts no answer of a node."""

    algorithm: Algorithm[Any]
    settings: Sequence[Setting]
    federation: str
    dtype: torch.dtype
    members: Members
    codec: Codec = Codec()

    @property
    def objectives_shape(self) -> tuple[int, int]:
        """Shape of the objectives that a client reports: parts of its data, and objectives."""
        return len(self.members.parts), len(self.settings[0].objectives)

    def limits(self, envelope: wire.Envelope) -> wire.Limits:
        """Size of the largest honest answer."""
        types = self.algorithm.reply_types
        tensors, size = 0, 0
        for job in envelope.jobs:
            tensors, size = tensors + 2, size + 2 * math.prod(self.objectives_shape) * self.dtype.itemsize
            shapes = self.algorithm.reply_shapes(self.settings[job.run])
            for task in job.tasks:
                tensors += len(shapes[task.step])
                for name, shape in shapes[task.step].items():
                    size += math.prod(shape) * types.get(name, self.dtype).itemsize
        # A tensor that a codec cannot make shorter becomes longer, but not twice as long.
        return wire.Limits(tensors, size * (1 if self.codec.plain else 2))

    def opened(self, content: RecordDict, envelope: wire.Envelope) -> wire.Answer | str:
        """The answer to an envelope, or why it is refused."""
        try:
            answer = wire.decode_answer(content, self.limits(envelope))
        except wire.Malformed as problem:
            return f"refused: {problem}"
        return self._wrong(answer, envelope) or self._decoded(answer, envelope)

    def _decoded(self, answer: wire.Answer, envelope: wire.Envelope) -> wire.Answer | str:
        """Return the answer with coded tensors as numbers again."""
        if self.codec.plain:
            return answer
        tasks = {(job.run, task.round, task.step, task.lane): task for job in envelope.jobs for task in job.tasks}
        results = []
        for result in answer.results:
            shapes, replies = self.algorithm.reply_shapes(self.settings[result.run]), []
            for reply in result.replies:
                task = tasks.get((result.run, reply.round, reply.step, reply.lane))
                if task is None:
                    return "refused: it answers a task that it was not sent"
                try:
                    message, size = opened(self.codec, shapes[task.step], task.message, reply.message)
                except CodecError as problem:
                    return f"refused: {problem}"
                replies.append(replace(reply, message=message, coded=size))
            results.append(replace(result, replies=tuple(replies)))
        return replace(answer, results=tuple(results))

    def _wrong(self, answer: wire.Answer, envelope: wire.Envelope) -> str | None:
        """Why a well-formed answer does not fit this envelope."""
        if answer.federation != self.federation:
            return "refused: it belongs to another federation"
        if answer.client != envelope.client:
            return f"refused: it claims to come from client {answer.client}"
        if answer.nonce != envelope.nonce:
            return "refused: it answers an earlier message (a replay)"
        if sorted(result.run for result in answer.results) != sorted(job.run for job in envelope.jobs):
            return "refused: it answers for other seeds than requested"
        shape = self.objectives_shape
        for result in answer.results:
            for values in (result.sent, result.trained):
                if values is not None and tuple(values.shape) != shape:
                    return f"refused: its objectives have the shape {list(values.shape)}, not {list(shape)}"
        return None

    def reply(self, run: int, task: Task, result: wire.Result | None, lost: str | None) -> Reply | Failure:
        """The reply to a task, or why there is none."""

        def failure(reason: str) -> Failure:
            return Failure(task.client, task.round, reason, task.step, task.lane)

        if lost is not None or result is None:
            return failure(lost or "its answer omits this task")
        key = task.round, task.step, task.lane
        for said in result.failures:
            if (said.round, said.step, said.lane) == key:
                return failure(said.reason)
        found = [reply for reply in result.replies if (reply.round, reply.step, reply.lane) == key]
        if len(found) != 1:
            return failure(f"refused: its answer holds {len(found)} replies to this task")
        message = found[0].message
        why = refusal(message, self.algorithm, self.settings[run], task.step, self.dtype) or too_large(message)
        return found[0] if why is None else failure(f"refused: {why}")

    def measured(self, run: int, round_: int, values: Mapping[int, Tensor | None]) -> tuple[ByClient, list[Failure]]:
        """The objectives that clients reported, as far as these are possible; the others as failures, which cost
        nobody the quorum: the models are judged by themselves.
        """
        found: dict[int, Tensor] = {}
        failures: list[Failure] = []
        for client, reported in sorted(values.items()):
            if reported is None:
                continue
            why = impossible(reported, self.settings[run].objectives)
            if why is None:
                found[client] = reported
            else:
                failures.append(Failure(client, round_, f"refused: {why}", "evaluate"))
        if not found:
            return ByClient.none(), failures
        return ByClient(np.array(list(found)), torch.stack(list(found.values()))), failures
