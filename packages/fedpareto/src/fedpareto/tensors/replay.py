"""CUDA graphs: a step of many small kernels is recorded once and replayed at the cost of a few launches."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from fedpareto.tensors.workspace import Workspace

T = TypeVar("T")

MOST_NOTES = 256
"""Kept by recordings beside themselves: small things about stacks of clients."""
WARM_UPS = 2
"""Calls before one is recorded: libraries initialise themselves in them."""


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """An older recording that is collected while a new one is made would spoil it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Recordings:
    """The latest few recordings, for reuse: each holds memory of the device."""

    def __init__(
        self, most: int = 8, when: Literal["pays", "always", "never"] = "pays", compiled: bool = False
    ) -> None:
        """`when` to record: where launching kernels takes long; everywhere, to try how a recording works; or nowhere.
        `compiled`: whether small networks on a CPU are trained by machine code that numba makes.
        """
        self.most, self.when, self.compiled = most, when, compiled
        self.kept: dict[Hashable, Any] = {}
        self.refused: dict[str, str] = {}
        """Reasons why something could not be recorded."""
        self.notes: dict[Hashable, tuple[np.ndarray, Any]] = {}
        self.workspace = Workspace()
        self.last: tuple[tuple[object, ...], Any] = (), None

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Recording that was made for `key`, or is made now."""
        found: T = self.kept.pop(key) if key in self.kept else make()
        self.kept[key] = found
        while len(self.kept) > self.most:
            del self.kept[next(iter(self.kept))]
        return found

    def are_made(self, device: torch.device) -> bool:
        return self.when == "always" or (self.when == "pays" and device.type == "cuda")

    def noted(self, key: Hashable, positions: np.ndarray, make: Callable[[], T]) -> T:
        """Result that was made for `key` and these clients, or is made now."""
        ends = (int(positions[0]), int(positions[-1])) if len(positions) else ()
        place = key, len(positions), ends
        if place in self.notes and np.array_equal(self.notes[place][0], positions):
            known: T = self.notes[place][1]
            return known
        found = make()
        self.notes[place] = positions, found
        while len(self.notes) > MOST_NOTES:
            del self.notes[next(iter(self.notes))]
        return found

    def again(self, of: tuple[object, ...], make: Callable[[], T]) -> T:
        """Result that was made last, if it was made of these very objects; else it is made now."""
        known, made = self.last
        if len(known) != len(of) or any(map(operator.is_not, known, of)):
            made = make()
            self.last = of, made
        found: T = made
        return found


class Replayed:
    """A function without arguments or result that changes tensors in place, the same ones in every call.

    On a CUDA device it is recorded in its third call and replayed from then on; elsewhere it is just called. It must
    not read a value on the host, nor create a tensor on which a later call depends; with `or_called`, one that does is
    called without recording.
    """

    def __init__(self, function: Callable[[], None], device: torch.device | None, or_called: bool = False) -> None:
        self.function, self.or_called = function, or_called
        self.graph: torch.cuda.CUDAGraph | None = None
        self.refused = ""
        """Reason why it could not be recorded, if it could not."""
        self.calls = 0
        self.is_recorded = device is not None and device.type == "cuda"

    def __call__(self) -> None:
        if not self.is_recorded:
            self.function()
            return
        self.calls += 1
        if self.calls <= WARM_UPS:
            self._aside()
            return
        if self.graph is None and not self._record():
            self.function()
            return
        assert self.graph is not None, "recorded just now or before"
        self.graph.replay()

    def _record(self) -> bool:
        """True if recording succeeded; nothing has been computed yet, recording only notes the kernels."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with no_garbage_collected(), torch.cuda.graph(graph):
                self.function()
        except RuntimeError as problem:
            if not self.or_called:
                raise
            self.refused = str(problem).splitlines()[0]
            torch.cuda.set_stream(stream)
            torch.cuda.synchronize()
            self.is_recorded = False
            return False
        self.graph = graph
        return True

    def release(self) -> None:
        self.graph = None

    def _aside(self) -> None:
        """Run it on a separate stream, as recording requires for its warm-up."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.function()
        torch.cuda.current_stream().wait_stream(stream)
