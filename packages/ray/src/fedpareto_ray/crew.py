"""The workers of one run. One that dies is replaced by another, which does again what it had done."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fedpareto.config.errors import UserError, in_words
from fedpareto_ray import packing, room
from fedpareto_ray.options import RayOptions
from fedpareto_ray.packing import Plain
from fedpareto_ray.worker import MISTAKE, Worker, versions

log = logging.getLogger("fedpareto.ray")

MOST_DEATHS = 5
"""Workers that die one after the other over the same call; then something is wrong that no other worker mends."""
INLINE = 100_000
"""Bytes up to which Ray sends an argument with the call; larger ones are stored once for all workers."""
WAIT, SHORT_WAIT = 30.0, 3.0
"""Seconds after which it is said that workers are still waited for, and between two looks whether GPUs are there."""

Call = tuple[str, tuple[Any, ...]]
"""A method of Worker and its arguments."""


class Crew:
    """Calls workers, all at once. `down` and `up` count the bytes of tensors that have travelled."""

    def __init__(self, options: RayOptions, count: int) -> None:
        import ray

        self._ray, self._options = ray, options
        self._class = ray.remote(max_restarts=0, max_task_retries=0)(Worker)
        self._history: list[list[Call]] = [[] for _ in range(count)]
        """Calls that a replacement does first, for each worker: its beginning, and the work since."""
        self._beginning: list[int] = [0] * count
        self._workers = [self._hired(options.cpus) for _ in range(count)]
        self._hosts, self.processes = [""] * count, [0] * count
        """Host of each worker, and the number of its process there."""
        self.down = self.up = 0

    def __len__(self) -> int:
        return len(self._workers)

    def dismiss(self) -> None:
        """Ends all of them."""
        for worker in self._workers:
            self._ray.kill(worker)

    # -- beginning -------------------------------------------------------------------------------------------------

    def begin(self, make: str, given: Sequence[dict[str, Plain]], chosen: dict[str, int] | None) -> dict[str, Plain]:
        """The workers load their clients; the first one measures how they are stacked, unless that is `chosen`."""
        for number, about in enumerate(self._introduced()):
            self._meet(number, about)
        more = self.each("prepare", [(make, one) for one in given])
        first: list[tuple[Any, ...] | None] = [None] * len(self)
        first[0] = (chosen,)
        found: dict[str, Plain] = self.each("start", first)[0]
        rest: list[tuple[Any, ...] | None] = [(found["chosen"],)] * len(self)
        self.each("start", [None, *rest[1:]])
        self._history = [[("prepare", (make, one)), ("start", (found["chosen"],))] for one in given]
        self._beginning = [2] * len(self)
        return {**found, "more": more[0]}

    def _introduced(self) -> list[dict[str, Plain]]:
        calls = [worker.do.remote("about") for worker in self._workers]
        while self._ray.wait(calls, num_returns=len(calls), timeout=WAIT)[1]:
            log.warning("still waiting for %d workers; is somebody else using the cluster?", len(calls))
        try:
            return [about for _, about in self._ray.get(calls)]
        except self._ray.exceptions.RayError as problem:
            last = str(problem).strip().splitlines()[-1]
            raise UserError(
                f"engine: a worker cannot begin; is the same fedpareto installed everywhere? ({last})"
            ) from None

    def _meet(self, number: int, about: dict[str, Plain]) -> None:
        """Notes where a worker is; it must have what this process has."""
        self._hosts[number], self.processes[number] = f"{about['host']}, process {about['pid']}", about["pid"]
        for name, version in versions().items():
            if about[name] != version:
                raise UserError(
                    f"engine: worker {number} ({self._hosts[number]}) has {name} {about[name]}, this process has "
                    f"{version}; install the same version everywhere"
                )

    # -- calls -----------------------------------------------------------------------------------------------------

    def share(self, plain: Plain) -> Any:
        """An argument for several workers: if it is large, it is stored once."""
        return self._ray.put(plain) if packing.size(plain) > INLINE else plain

    def each(self, what: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method at each worker that there are arguments for, and return the results."""
        calls = [
            None if one is None else worker.do.remote(what, *one)
            for worker, one in zip(self._workers, arguments, strict=True)
        ]
        found = []
        for number, (call, one) in enumerate(zip(calls, arguments, strict=True)):
            found.append(None if one is None else self._received(number, call, (what, one)))
        self.up += sum(packing.size(one) for one in found)
        return found

    def _received(self, number: int, reference: Any, call: Call) -> Any:
        """Wait for what a call returned; if the worker died, for its replacement's."""
        errors = self._ray.exceptions
        reason = ""
        for _ in range(MOST_DEATHS):
            try:
                if reference is None:
                    reference = self._replaced(number).do.remote(call[0], *call[1])
                return self._value(number, self._ray.get(reference))
            except (errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError) as died:
                reference, reason = None, in_words(died)
                log.warning("worker %d (%s) died, and another one does its work again", number, self._hosts[number])
        raise UserError(
            f"engine: worker {number} died {MOST_DEATHS} times over the same work; is there enough memory? ({reason})"
        )

    def _value(self, number: int, answer: tuple[str, Any]) -> Any:
        kind, value = answer
        if kind == MISTAKE:
            raise UserError(f"worker {number} ({self._hosts[number]}): {value}")
        return value

    # -- replacements ----------------------------------------------------------------------------------------------

    def note(self, calls: Sequence[Call]) -> None:
        """Note what each worker has done, which a replacement does again."""
        for history, call in zip(self._history, calls, strict=True):
            history.append(call)

    def forget(self, private: Sequence[Plain] | None = None) -> None:
        """Forget the calls before now, none to be repeated: clients keep `private`, by worker, or nothing."""
        for number, (history, beginning) in enumerate(zip(self._history, self._beginning, strict=True)):
            del history[beginning:]
            if private is not None:
                history.append(("restore", (private[number],)))

    @property
    def noted(self) -> int:
        """Number of calls that a replacement would have to do again after its beginning."""
        return max(len(history) - beginning for history, beginning in zip(self._history, self._beginning, strict=True))

    def _replaced(self, number: int) -> Any:
        """A new worker in a dead one's place, as far as that one was."""
        self._ray.kill(self._workers[number])  # Perhaps only the way to it was broken: there must not be two.
        self._workers[number] = worker = self._arrived()
        self._meet(number, self._value(number, self._ray.get(worker.do.remote("about"))))
        for what, arguments in self._history[number]:
            self._value(number, self._ray.get(worker.do.remote(what, *arguments)))
        return worker

    def _arrived(self) -> Any:
        """A worker in a dead one's place. It asks for no CPU: that of the dead one may not be free yet, or taken by
        somebody else, or gone with its machine, and a run never waits for room that it has had. For a GPU it waits, as
        long as there are enough of them.
        """
        worker = self._hired(cpus=0)
        while self._gpus and not self._ray.wait([worker.do.remote("about")], timeout=SHORT_WAIT)[0]:
            if room.places(self._options) < len(self):
                self._ray.kill(worker)
                raise UserError(
                    "engine: a GPU was lost with its machine; go on with 'fedpareto resume' once it is back"
                )
        return worker

    @property
    def _gpus(self) -> int:
        return 1 if self._options.device == "cuda" else 0

    def _hired(self, cpus: int) -> Any:
        """A new worker, spread over the machines."""
        return self._class.options(num_cpus=cpus, num_gpus=self._gpus, scheduling_strategy="SPREAD").remote()
