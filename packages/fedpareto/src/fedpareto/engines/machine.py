"""The machine that the local engine works on: its device, precision, memory and clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fedpareto.config.errors import UserError
from fedpareto.engines.memory import physical_memory


@dataclass(frozen=True)
class Choices:
    """Choices that were measured (or given) once; a resumed run uses the same, so that it continues bit for bit."""

    threads: int
    chunk: int


def clock_for(device: torch.device, threads: int) -> Callable[[], float]:
    """Clock of the thread for one thread of a CPU: on a busy machine the wall clock, used otherwise, is noise."""
    return time.thread_time if device.type == "cpu" and threads == 1 else time.perf_counter


@contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """Products of matrices, and convolutions, in that precision."""
    if precision == "bfloat16":
        # The cache is left out: later code must not find there what a CUDA graph has recorded.
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            yield
        return
    # torch itself allows it in a GPU's library of convolutions and recurrent layers, but not in products.
    libraries: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [library.allow_tf32 for library in libraries]
    for library in libraries:
        library.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for library, allowed in zip(libraries, before, strict=True):
            library.allow_tf32 = allowed


def device_named(name: str) -> torch.device:
    """The device, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"engine: device is '{name}'; it is cpu, cuda or cuda:1") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"engine: device is '{name}'; it is cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("engine: device is cuda, but this machine has no CUDA device that torch can use; try cpu")
    return device


def memory_of(device: torch.device) -> int:
    """Bytes of memory of a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return physical_memory()
