"""Ray, which another machine's work is handed to: the cluster at an address, or a Ray of our own on this machine."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from fedpareto.config.errors import UserError, in_words

ADDRESS = "RAY_ADDRESS"
"""The environment variable that Ray itself reads."""
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray tells nobody that it is used, and keeps its coming behaviour: tasks without GPUs leave the environment alone."""
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
"""A Ray of our own is for this machine only, on Linux as elsewhere: all its listeners are on loopback. An address of
the node would not do: Ray takes 127.0.0.1 for a mistake. It reads this when it is imported. And its workers, which do
the work here, do not stand back behind everybody else's.
"""
PATIENCE = 5.0
"""Seconds after which nobody listens at an address."""


@contextmanager
def connected(address: str = "", what: str = "--jobs ray", cpus: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected; `what` needs it. Without an address RAY_ADDRESS counts, and without that a Ray is
    started on this machine, with all its CPUs or with `cpus`, and ended again. A connection that exists already is used
    and left.
    """
    if find_spec("ray") is None:
        raise UserError(f"{what} needs Ray; try: pip install 'fedpareto[cluster]'")
    address = address or os.environ.get(ADDRESS, "")
    prepare(alone=not address)
    import ray

    if ray.is_initialized():
        yield ray
        return
    with _quietly(), _own_signals():
        _connect(ray, address, cpus)
    try:
        yield ray
    finally:
        with _quietly():
            ray.shutdown()


def prepare(alone: bool) -> None:
    """Set what Ray must know before it is imported; `alone` if it is to be for this machine only."""
    for name, value in (ENVIRONMENT | ALONE if alone else ENVIRONMENT).items():
        os.environ.setdefault(name, value)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence what Ray warns of about itself; files that it leaves open are warned of when they go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        gc.collect()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM when it begins, and would end the process; whoever had it before has it again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _connect(ray: Any, address: str, cpus: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if not address:
        ray.init(address="local", include_dashboard=False, num_cpus=cpus, **quiet)
        return
    _must_listen(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        if "mismatch" in str(problem):  # The versions of Ray or Python differ.
            raise UserError(f"the Ray cluster at {address} does not fit: {in_words(problem)}") from None
        raise UserError(_nobody(address)) from None


def _must_listen(address: str) -> None:
    """Raises UserError if nobody does: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError):
        raise UserError(_nobody(address)) from None


def _nobody(address: str) -> str:
    return f"there is no Ray cluster at '{address}'; start one with: ray start --head, or leave the address out"
