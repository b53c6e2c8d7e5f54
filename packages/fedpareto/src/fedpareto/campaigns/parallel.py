"""Independent pieces of work side by side, in one process for each core or on a Ray cluster: the runs of a sweep, the
cells of a matrix or of a reproduction. Stopping keeps all that was done.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from fedpareto.config import plugins, workers
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped

Work = TypeVar("Work")
Answer = TypeVar("Answer")
Kept = TypeVar("Kept", bound="Done")
Stop = Callable[[], bool]
"""Returns True if the user wants to stop."""

KILLED = "its process was killed, perhaps for lack of memory"
PATIENCE = 0.2
"""Seconds between two checks whether the user wants to stop."""
ONE_TO_A_CORE = {"threads": 1, "chunk": 1024}
"""Options of an engine among others: one thread, and stacks as large as memory allows. Nothing is measured, so every
piece is the same whenever it is done.
"""


def nothing(item: Any) -> str:
    """Return no file, for pieces that keep none."""
    return ""


@dataclass(frozen=True)
class Pieces(Generic[Work, Answer]):
    """Independent pieces of work."""

    do: Callable[[Path, Work, Stop], Answer]
    """Function that does a piece in a folder; it calls its last argument after every round, and raises Stopped to stop.
    """
    work: Sequence[Work]
    out: Path = Path()
    """Folder of all pieces."""
    own: Callable[[Work], str] = nothing
    """The file or folder in it that belongs to one piece: all that it reads and writes."""
    lost: Callable[[str], Answer] | None = None
    """Makes the answer for a piece whose process was killed from the reason; without it, a kill ends everything."""


class Elsewhere(Protocol):
    """Machines that do pieces of work instead of processes of this one."""

    def answers(self, pieces: Pieces[Work, Answer], stop: Stop) -> Iterator[tuple[int, Answer]]:
        """Index and result of each piece as it is done."""


Jobs = int | Elsewhere
"""Number of pieces at a time, or the machines that do them."""


def on_ray(address: str = "", gpus: float = 0) -> Elsewhere:
    """The tasks of a Ray cluster, with so many GPUs for each piece; empty: RAY_ADDRESS, or a Ray of our own."""
    found: Elsewhere = plugins.need("fedpareto.jobs", "ray", "--jobs ray")(address, gpus)
    return found


def side_by_side(pieces: Pieces[Work, Answer], jobs: Jobs, stop: Stop) -> Iterator[tuple[int, Answer]]:
    """Index and result of each piece of work as it is done; with one job in this process, in order."""
    if not isinstance(jobs, int):
        yield from jobs.answers(pieces, stop)
    elif jobs > 1 and len(pieces.work) > 1:
        yield from _in_workers(pieces, jobs, stop)
    else:
        for number, item in enumerate(pieces.work):
            if stop():
                raise Stopped(f"stopped after {number} of {len(pieces.work)} pieces")
            yield number, pieces.do(pieces.out, item, stop)


def _in_workers(pieces: Pieces[Work, Answer], jobs: int, stop: Stop) -> Iterator[tuple[int, Answer]]:
    left = dict(enumerate(pieces.work))
    try:
        for number, answer in _pooled(pieces, left, jobs, stop):
            yield number, answer
            del left[number]
    except BrokenProcessPool:
        if pieces.lost is None:
            raise UserError(
                f"a worker process was killed, perhaps for lack of memory: try fewer jobs than {jobs}; "
                "what was done is kept, and the same command goes on with the rest"
            ) from None
    else:
        return
    for number, item in list(left.items()):  # One at a time, so that it is known whose process is killed.
        try:
            yield from _pooled(pieces, {number: item}, 1, stop)
        except BrokenProcessPool:
            yield number, pieces.lost(KILLED)


def _pooled(
    pieces: Pieces[Work, Answer], work: Mapping[int, Work], jobs: int, stop: Stop
) -> Iterator[tuple[int, Answer]]:
    context = workers.context("fedpareto.api")
    asked = context.Event()
    with ProcessPoolExecutor(min(jobs, len(work)), context, _begin, (asked,)) as pool:
        futures = {pool.submit(_do, pieces.do, pieces.out, item): number for number, item in work.items()}
        try:
            for future in _as_done(futures, asked, stop):
                yield futures[future], future.result()
        except BaseException:
            asked.set()
            pool.shutdown(cancel_futures=True)
            raise


class Done(Protocol):
    """A result that can be kept."""

    @property
    def name(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    @property
    def is_new(self) -> bool:
        """False if the result was only read."""


def announced(pieces: Pieces[Work, Kept], jobs: Jobs, say: Callable[[str], None], stop: Stop) -> list[Kept]:
    """The answers in the order of the work; a message for each as it is done, with an estimate of the time left."""
    start, reading, work = time.monotonic(), 0.0, pieces.work
    last, new = start, 0
    found: dict[int, Kept] = {}
    for number, one in side_by_side(pieces, jobs, stop):
        found[number] = one
        now, left = time.monotonic(), ""
        new += one.is_new
        reading += 0.0 if one.is_new else now - last
        last = now
        if new and len(found) < len(work):
            seconds = (now - start - reading) / new * (len(work) - len(found))
            left = f", about {timedelta(seconds=round(seconds))} left"
        how = f"{one.seconds:.0f} s" if one.is_new else "already done"
        say(f"{len(found)} of {len(work)}, {one.name} ({how}){left}")
    return [found[number] for number in range(len(work))]


def _as_done(futures: dict[Future[Answer], int], asked: Event, stop: Stop) -> Iterator[Future[Answer]]:
    """Like concurrent.futures.as_completed, but passes a request to stop on to the workers."""
    left = set(futures)
    while left:
        done, left = wait(left, PATIENCE, FIRST_COMPLETED)
        if stop():
            asked.set()
        yield from sorted(done, key=lambda future: futures[future])


_asked: Event
_busy = threading.Lock()
"""Held while a worker does a piece."""


def _begin(asked: Event) -> None:
    """In a new worker: the parent handles signals and passes them on through `asked`."""
    global _asked  # noqa: PLW0603 (of a worker)
    _asked = asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    """End this worker if its parent was killed, after the round it is in: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has one"
    parent.join()
    with _busy:
        os._exit(1)


def _is_to_stop() -> bool:
    """Return True if the user, or the parent's death, wants a stop: no process would read the result."""
    parent = multiprocessing.parent_process()
    return _asked.is_set() or (parent is not None and not parent.is_alive())


def _do(piece: Callable[[Path, Work, Stop], Answer], out: Path, item: Work) -> Answer:
    with _busy:
        if _is_to_stop():
            raise Stopped("stopped before it began")
        return piece(out, item, _is_to_stop)
