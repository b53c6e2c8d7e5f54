"""Server processes: one, or several that share a socket. On a stop signal they answer all requests already sent."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from fedpareto.config import workers
from fedpareto.config.errors import UserError
from fedpareto_serve import metrics, runs
from fedpareto_serve.access_log import AccessLog, LogFormat
from fedpareto_serve.listening import (
    ENDING,
    LOOPBACK,
    Server,
    in_url,
    is_loopback,
    listening,
    on_signals,
)
from fedpareto_serve.metrics import Counters
from fedpareto_serve.request_checks import Gate
from fedpareto_serve.service import app_of

LINGER = 3.0
"""Seconds for which idle connections are kept when the service stops: a request already on its way gets its answer,
and a header that closes the connection.
"""
TICK = 0.02
"""Seconds between two checks whether all connections are closed."""
FEWEST_SECONDS = 2.0
"""A worker that ends sooner than this after its start would do so again: the service stops with it."""


@dataclass(frozen=True)
class Options:
    """Options of a service."""

    host: str = "127.0.0.1"
    port: int = 8000
    client: int | None = None
    seed: int | None = None
    workers: int = 1
    token: str | None = None
    access_log: str | None = None
    """A file, or - for stderr; None: no log."""
    log_format: LogFormat = LogFormat.TEXT
    drain: float = 0.0
    """Seconds for which new connections are still accepted after the stop signal, while /ready returns 503."""
    hosts: tuple[str, ...] = ()
    """More names under which requests may come; without any, a service on another address than loopback takes all."""

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """All names under which requests may come; none: any."""
        if is_loopback(self.host):
            return (*LOOPBACK, *self.hosts)
        return (in_url(self.host), *self.hosts) if self.hosts else ()


def serve(path: Path, options: Options, ready: Callable[[str], None]) -> None:
    """Serves until a stop signal; `ready` is called with the address once all workers answer."""
    with listening(options.host, options.port) as listener:
        address = f"http://{in_url(options.host)}:{listener.getsockname()[1]}"
        if options.workers == 1:
            _answer(path, options, listener, Counters(), lambda: ready(address))
        else:
            _Workers(path, options, listener).run(lambda: ready(address))


def _answer(
    path: Path,
    options: Options,
    listener: socket.socket,
    counters: Counters,
    ready: Callable[[], None],
    signals: tuple[int, ...] = ENDING,
) -> None:
    """Serve in this process until a stop signal."""
    torch.set_num_threads(1)  # For a few rows, threads cost more than they gain; workers scale.
    log = None if options.access_log is None else AccessLog(options.access_log, options.log_format)
    gate = app_of(runs.load(path), options.client, options.seed, counters, options.token, log, options.known_hosts)
    gc.collect()
    gc.freeze()  # These objects stay; scanning them in every garbage collection would delay requests.
    _Server(gate, ready, listener, options.drain).serve_until([listener], signals)


class _Server(Server):
    """A server that answers every request that was sent on an accepted connection.

    Uvicorn's own closes idle connections at once when it stops, even with a request on its way.
    """

    def __init__(self, gate: Gate, ready: Callable[[], None], listener: socket.socket, drain: float) -> None:
        super().__init__(gate, ready)
        self._gate, self._drain = gate, drain
        self._own = listener.dup()  # Uvicorn closes its own before it has accepted all pending connections.
        self._own.setblocking(False)
        self._hurried = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Announces the stop, accepts pending connections, answers all requests, and closes idle connections."""
        self._gate.draining = True
        await self._until(self._drain, lambda: False)
        for server in self.servers:
            server.close()
        await self._accept_the_last()
        await self._until(LINGER, lambda: not self.server_state.connections)
        await super().shutdown(sockets)

    async def _accept_the_last(self) -> None:
        """Connections that the system has made but not yet accepted: they would be reset."""
        protocol: Any = self.config.http_protocol_class
        last = []
        with suppress(BlockingIOError):
            while True:
                last.append(self._own.accept()[0])
        self._own.close()
        for connection in last:
            connection.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state),
                connection,
            )

    async def _until(self, seconds: float, over: Callable[[], bool]) -> None:
        """Waits for a time, unless it is done earlier, or a second signal comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not over() and not self._hurried:
            await asyncio.sleep(TICK)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops gracefully, the second does not wait for idle connections, the third for none."""
        self.force_exit, self._hurried, self.should_exit = self._hurried, self.should_exit, True


# -- several processes ---------------------------------------------------------------------------------------------


@dataclass
class _Worker:
    """A server process, and the pipe on which it reports."""

    process: BaseProcess
    pipe: Connection
    started: float
    is_ready: bool = False


class _Workers:
    """Starts workers, restarts those that die, and passes stop signals on to them."""

    def __init__(self, path: Path, options: Options, listener: socket.socket) -> None:
        self._path, self._options, self._listener = path, options, listener
        self._context = workers.context("fedpareto_serve.server", "fedpareto_serve.service", "uvicorn")
        self._table = metrics.shared(options.workers)
        self._running: dict[int, _Worker] = {}
        self._stopping = False
        self._problem: str | None = None

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until a stop signal; raise UserError if a worker cannot even start."""
        told = False
        with on_signals(self._stop):
            for number in range(self._options.workers):
                self._start(number)
            while self._running:
                wait([end for worker in self._running.values() for end in (worker.process.sentinel, worker.pipe)])
                for number, worker in list(self._running.items()):
                    self._listen_to(number, worker)
                if not told and not self._stopping and all(worker.is_ready for worker in self._running.values()):
                    told = True
                    ready()
        if self._problem is not None:
            raise UserError(self._problem)

    def _start(self, number: int) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(
            target=_work,
            args=(self._path, self._options, self._listener, self._table, number, there),
            daemon=True,
        )
        process.start()
        there.close()
        self._running[number] = _Worker(process, here, time.monotonic())

    def _listen_to(self, number: int, worker: _Worker) -> None:
        """Take a worker's report: ready, an error, or, by its end, nothing."""
        is_alive = worker.process.is_alive()  # First: an ended worker sends nothing more.
        with suppress(EOFError, OSError):
            if worker.pipe.poll():
                problem = worker.pipe.recv()
                worker.is_ready = problem is None
                self._problem = self._problem or problem  # The first error stays, though others report ready.
        if is_alive:
            return
        worker.process.join()
        del self._running[number]
        if self._stopping:
            return
        if worker.is_ready and time.monotonic() - worker.started > FEWEST_SECONDS:
            print(f"worker {number} ended with {worker.process.exitcode}; it is replaced", file=sys.stderr)
            self._start(number)
            return
        self._problem = self._problem or f"a worker ended at once, with {worker.process.exitcode}"
        self._stop()

    def _stop(self, *_: Any) -> None:
        """Workers accept pending connections and close the socket; this process's copy would keep it open."""
        self._stopping = True
        self._listener.close()
        for worker in list(self._running.values()):
            worker.process.terminate()


def _work(path: Path, options: Options, listener: socket.socket, table: Any, number: int, pipe: Connection) -> None:
    """A worker's main function. Ctrl+C reaches all processes of a terminal: here only the parent's signal counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        _answer(path, options, listener, Counters(table, number), lambda: pipe.send(None), (signal.SIGTERM,))
    except UserError as problem:
        pipe.send(str(problem))


def _end_with(pipe: Connection) -> None:
    """Stops this process when its parent has gone, however it ended."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)
