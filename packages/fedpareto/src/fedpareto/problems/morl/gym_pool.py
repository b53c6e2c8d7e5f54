"""The processes that run mo-gymnasium's environments (see gym_worker), shared by all sessions of this process."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import multiprocessing
import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from fedpareto.config.files import python
from fedpareto.problems.morl import gym_worker
from fedpareto.problems.morl.gym_worker import HEADER, LENGTH, Command

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PATIENCE = 5.0
"""Seconds that a worker has to exit."""
WORKER_OF_RAY = "RAY_RAYLET_PID"
"""The environment variable that Ray sets for its workers."""


class WorkerDied(RuntimeError):
    """A process that runs environments ended although it was needed."""


class Worker:
    """A gym_worker process, seen from this process."""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self.process = subprocess.Popen(
            python(gym_worker.__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=os.environ | ONE_THREAD,
            start_new_session=True,  # A process that is stopped may first finish its round.
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # The same on Windows.
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def ask(self, command: Command, session: int = 0, count: int = 0, *content: memoryview) -> None:
        length = sum(part.nbytes for part in content)
        try:
            self._requests.write(HEADER.pack(command, session, count, length))
            for part in content:
                self._requests.write(part)
            self._requests.flush()
        except OSError:
            raise self._death() from None

    def answer(self, into: memoryview) -> None:
        self._fill(into.cast("B"))

    def text(self) -> str:
        length = bytearray(LENGTH.size)
        self._fill(memoryview(length))
        content = bytearray(*LENGTH.unpack(length))
        self._fill(memoryview(content))
        return content.decode()

    def _fill(self, place: memoryview) -> None:
        if self._answers.readinto(place) < len(place):  # type: ignore[attr-defined]
            raise self._death()

    def _death(self) -> WorkerDied:
        code = self.process.wait(PATIENCE)
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return WorkerDied(f"a process that runs environments ended with code {code}: {last}")

    def close(self) -> None:
        """Lets it end, which it does when its input is closed."""
        for stream in (self._requests, self._answers, self._complaints):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """Workers that are started when needed, and what they have described."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.owner, self.is_open = os.getpid(), True
        self.numbers = itertools.count()
        """Numbers of sessions."""
        self.over: deque[tuple[int, list[Worker]]] = deque()
        """Sessions whose copies may be reused, with the workers that hold them."""
        self._described: dict[bytes, dict[str, Any]] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Requests and answers must stay paired: if one is interrupted, the workers can no longer be used."""
        with self._lock:
            if not self.is_open:
                raise WorkerDied("the processes that run environments were ended")
            try:
                yield
            except BaseException:
                self.close()
                raise

    def team(self, copies: int) -> list[Worker]:
        """Workers for a number of copies: at most one for each core. Copies no longer needed are released."""
        count = min(cores(), copies)
        self.workers += [Worker() for _ in range(count - len(self.workers))]
        while self.over:
            session, holders = self.over.popleft()
            for worker in holders:
                worker.ask(Command.CLOSE, session)
        return self.workers[:count]

    def described(self, key: bytes) -> dict[str, Any]:
        """`gym_worker.described`, cached unless something was missing, which may be installed later."""
        if key in self._described:
            return self._described[key]
        with self.exchange():
            worker = self.team(1)[0]
            worker.ask(Command.DESCRIBE, 0, 0, memoryview(key))
            facts: dict[str, Any] = json.loads(worker.text())
        if "observation_size" in facts:
            self._described[key] = facts
        return facts

    def close(self) -> None:
        """Ends all workers, unless they are those of the process from which this one was forked."""
        self.is_open = False
        if self.owner == os.getpid():
            for worker in self.workers:
                worker.close()
        self.workers = []


_pool: Pool | None = None


def pool() -> Pool:
    global _pool  # noqa: PLW0603 (processes belong to a process)
    if _pool is None or not _pool.is_open or _pool.owner != os.getpid():
        _pool = Pool()
    return _pool


@atexit.register
def close_pool() -> None:
    """Ends all workers of this process; a later session starts new ones."""
    if _pool is not None:
        _pool.close()


def cores() -> int:
    """Cores that this process may use: one, if it is itself one of several parallel processes."""
    if multiprocessing.parent_process() is not None or WORKER_OF_RAY in os.environ:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
