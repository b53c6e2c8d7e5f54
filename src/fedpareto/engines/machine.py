"""The machine that the local engine works on: its options, device, precision, memory and clock."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from fedpareto.engines.memory import physical_memory
from fedpareto.errors import UserError

MOST_THREADS = 1024


@dataclass(frozen=True)
class LocalOptions:
    """How the local engine works; none of it changes the numbers beyond rounding."""

    name: ClassVar[str] = "local"
    plans: ClassVar[bool] = False
    """The engine plans ahead and needs the same work in every round."""

    device: str = "cpu"
    """"cpu", "cuda" or "cuda:1"."""
    precision: Literal["float32", "float64", "tf32", "bfloat16"] = "float32"
    """Of models and data; with tf32 and bfloat16 these are float32 and only matrix products are less precise, as on a
    GPU's tensor cores.
    """
    memory: str = ""
    """Working memory for a stack of clients, such as "4GB"; empty: half of the machine's (or the device's) memory."""
    threads: int = 0
    """Torch threads; 0: measured."""
    chunk: int = 0
    """Clients in one stack, 1 being the plain loop; 0: measured."""
    record: bool = True
    """Whether a GPU's work is recorded as CUDA graphs, which are replayed in later rounds; false: to find a mistake."""
    compiled: bool = False
    """Whether MLPs on a CPU are trained by machine code that numba makes, on one thread; needs the extra "compiled"."""

    def __post_init__(self) -> None:
        for name in ("threads", "chunk"):
            if getattr(self, name) < 0:
                raise UserError(f"engine: {name} is {getattr(self, name)}; it is at least 0 (0: measured)")
        if self.threads > MOST_THREADS:
            raise UserError(f"engine: threads is {self.threads}; more than {MOST_THREADS} never help")
        if self.memory:
            bytes_of(self.memory)
        if self.compiled and self.device != "cpu":
            raise UserError(f"engine: compiled is for device=cpu, and device is {self.device}, whose work is recorded")

    @property
    def dtype(self) -> torch.dtype:
        """As torch names it."""
        return torch.float64 if self.precision == "float64" else torch.float32


UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def rounded_up(size: int) -> str:
    """A number of bytes in the notation of a budget."""
    unit = "K" if size < UNITS["M"] else "M" if size < 10 * UNITS["G"] else "G"
    return f"{math.ceil(size / UNITS[unit])}{unit}B"


def bytes_of(text: str) -> int:
    """ "4GB" as a number."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(?:([KMGT])I?B?|B)", text.strip().upper())
    if found:
        return int(float(found[1]) * UNITS[found[2] or ""])
    raise UserError(f"engine: memory is '{text}'; write a number with a unit, such as 4GB or 512MB")


@dataclass(frozen=True)
class Choices:
    """What was measured (or given) once; a resumed run uses the same, so that it continues bit for bit."""

    threads: int
    chunk: int


def clock_for(device: torch.device, threads: int) -> Callable[[], float]:
    """For work on one thread of a CPU its own seconds: on a busy machine the wall clock is noise. Else the wall's."""
    return time.thread_time if device.type == "cpu" and threads == 1 else time.perf_counter


@contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """Products of matrices, and convolutions, in that precision."""
    if precision == "bfloat16":
        # Without its cache: later code must not find there what a CUDA graph has recorded.
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
    """Its bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return physical_memory()
