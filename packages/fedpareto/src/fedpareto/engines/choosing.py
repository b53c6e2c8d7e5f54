"""Choice of how many clients an engine stacks and how many threads it uses: measured once, within a memory budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.engines.machine import Choices, clock_for, memory_of
from fedpareto.engines.options import EngineOptions, bytes_of, rounded_up

HOPELESS = 4
"""Memory estimates are rough and conservative; what exceeds a machine's memory by this factor does not fit."""
TOO_LITTLE = 0.005
"""Seconds of a few training steps below which other threads are not tried: the work is calls, which nobody shares."""


@dataclass(frozen=True)
class Choosing:
    """Everything needed to try a few training steps."""

    learner: Learner
    options: EngineOptions
    device: torch.device
    initial: Tensor
    clients: int
    """Number of all clients."""
    lanes: int
    """Tasks that each of them may have at once."""
    probe: Callable[[int], Clients]
    """The largest clients, as a stack of this size."""
    working: Callable[[int], AbstractContextManager[None]]
    """Torch with this number of threads."""

    def choices(self) -> Choices:
        """Times a few training steps for stacks of several sizes, then the best of them with more threads."""
        cap, total = self.largest_chunk(), self.clients
        crowd = min(total * self.lanes, cap)
        if self.options.chunk:
            sizes = [min(self.options.chunk, crowd)]
        else:
            wanted = [1, total] if self.device.type == "cuda" else [1, 16, 64, 256, *([total] if total < 512 else [])]
            sizes = sorted({min(size, cap, total) for size in wanted})
        one = self.options.threads or 1
        times = {size: self._time(size, one) for size in sizes} if len(sizes) > 1 else {}
        chunk = min(times, key=lambda size: times[size], default=sizes[0])
        threads = self.options.threads or self._threads(min(chunk, total), times.get(chunk))
        # Where one stack of all clients is best, so is one stack of all their tasks.
        return Choices(threads, max(chunk, crowd) if chunk == total else chunk)

    def _threads(self, size: int, known: float | None) -> int:
        """Choose one thread or one per core, for a stack that takes `known` seconds per client with one."""
        cores = os.cpu_count() or 1
        if cores == 1 or self.device.type != "cpu":
            return 1
        alone = self._time(size, 1) if known is None else known
        if alone * size < TOO_LITTLE:
            return 1
        return cores if self._time(size, cores) < alone else 1

    def _time(self, size: int, threads: int) -> float:
        """Seconds per client of a few steps in a stack of `size`; the best of three tries."""
        clients = self.probe(size)
        model = self.initial.expand(size, -1)
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

    def largest_chunk(self) -> int:
        """Choose as many clients as the memory budget allows, by the learner's own estimate for the largest client."""
        whole = memory_of(self.device)
        budget = bytes_of(self.options.memory) if self.options.memory else whole // 2
        need = self.learner.bytes_per_client(self.probe(1))
        if need > budget and self.options.memory:
            raise UserError(
                f"engine: one client needs about {rounded_up(need)} of working memory, "
                f"the budget is {self.options.memory}"
            )
        if need > HOPELESS * whole:
            raise UserError(
                f"engine: one client needs about {rounded_up(need)} of working memory, this machine has "
                f"{rounded_up(whole)}; smaller batches, buffers or networks would do"
            )
        return max(1, budget // max(need, 1))
