"""Independent pieces of a reproduction side by side, one process for each core; stopping keeps all that was done."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from multiprocessing.synchronize import Event
from typing import Protocol, TypeVar

from fedpareto import workers
from fedpareto.errors import UserError
from fedpareto.experiments.progress import Stopped

Work = TypeVar("Work")
Answer = TypeVar("Answer")
Kept = TypeVar("Kept", bound="Done")
Piece = Callable[[Work, Callable[[], bool]], Answer]
"""Runs one job; calls its second argument after every round to see whether to stop, and raises Stopped then."""

PATIENCE = 0.2
"""Seconds between two checks whether the user wants to stop."""


def side_by_side(
    piece: Piece[Work, Answer], work: Sequence[Work], jobs: int, stop: Callable[[], bool]
) -> Iterator[tuple[int, Answer]]:
    """Index and result of each piece of work as it is done; with one job in this process, in order."""
    if jobs == 1 or len(work) < 2:
        for number, item in enumerate(work):
            if stop():
                raise Stopped(f"stopped after {number} of {len(work)} pieces")
            yield number, piece(item, stop)
        return
    context = workers.context("fedpareto.api")
    asked = context.Event()
    with ProcessPoolExecutor(min(jobs, len(work)), context, _begin, (asked,)) as pool:
        futures = {pool.submit(_do, piece, item): number for number, item in enumerate(work)}
        try:
            for future in _as_done(futures, asked, stop):
                yield futures[future], future.result()
        except BrokenProcessPool:
            asked.set()
            raise UserError(
                f"a worker process was killed, perhaps for lack of memory: try fewer jobs than {jobs}; "
                "what was done is kept, and the same command goes on with the rest"
            ) from None
        except BaseException:
            asked.set()
            pool.shutdown(cancel_futures=True)
            raise


class Done(Protocol):
    """A result that can be kept."""

    @property
    def name(self) -> str:
        """Of the piece."""

    @property
    def seconds(self) -> float:
        """That it took."""

    @property
    def is_new(self) -> bool:
        """Whether it was done now, and not only read."""


def announced(
    piece: Piece[Work, Kept], work: Sequence[Work], jobs: int, say: Callable[[str], None], stop: Callable[[], bool]
) -> list[Kept]:
    """The answers in the order of the work; a message for each as it is done, with an estimate of the time left."""
    start, reading = time.monotonic(), 0.0
    last, new = start, 0
    found: dict[int, Kept] = {}
    for number, one in side_by_side(piece, work, jobs, stop):
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


def _as_done(futures: dict[Future[Answer], int], asked: Event, stop: Callable[[], bool]) -> Iterator[Future[Answer]]:
    """Like concurrent.futures.as_completed, but passes a request to stop on to the workers."""
    left = set(futures)
    while left:
        done, left = wait(left, PATIENCE, FIRST_COMPLETED)
        if stop():
            asked.set()
        yield from sorted(done, key=lambda future: futures[future])


_asked: Event


def _begin(asked: Event) -> None:
    """In a new worker: the parent handles signals and passes them on through `asked`."""
    global _asked  # noqa: PLW0603 (of a worker)
    _asked = asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_to_stop() -> bool:
    """Also if the parent was killed: no process would read the result."""
    parent = multiprocessing.parent_process()
    return _asked.is_set() or (parent is not None and not parent.is_alive())


def _do(piece: Piece[Work, Answer], item: Work) -> Answer:
    if _is_to_stop():
        raise Stopped("stopped before it began")
    return piece(item, _is_to_stop)
