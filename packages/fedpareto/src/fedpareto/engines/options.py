"""The section `engine` of a spec: the parameters of all engines, and the features of each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config.bounds import AtLeast, Bounded, Whole
from fedpareto.config.errors import UserError

MOST_THREADS = 1024
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

Feature = Literal["losses", "stopping", "attack", "codec", "server_codec", "secure_sum", "step", "server"]
"""A part of a run that some engines do not have."""


@dataclass(frozen=True)
class EngineOptions(Bounded):
    """Options for computing clients' work on any engine; none of them changes the numbers beyond rounding.

    An engine's own options inherit from it. The class variables and properties below say what the engine can do; nobody
    else asks which engine it is.
    """

    prefix: ClassVar[str] = "engine: "

    name: ClassVar[str]
    simulates_time: ClassVar[bool] = False
    """True if a simulated clock moves with this engine even if clients have no devices. A run then ends by that
    clock, after `hours`.
    """
    remote: ClassVar[bool] = False
    """True if clients are other processes, which keep their rows, their preferences and their private state."""
    in_process: ClassVar[bool] = False
    """True if it does nothing but the clients' work, in this process: then runs may share one stack."""

    device: str = "cpu"
    """"cpu", "cuda" or "cuda:1"."""
    precision: Literal["float32", "float64", "tf32", "bfloat16"] = "float32"
    """Numbers of models and data; with tf32 and bfloat16 they are float32, and matrix products less precise, as on a
    GPU's tensor cores.
    """
    memory: str = ""
    """Working memory for a stack of clients, such as "4GB"; empty: half of the machine's (or the device's) memory."""
    threads: Annotated[int, AtLeast(0, MOST_THREADS)] = 0
    """Torch threads; 0: measured."""
    chunk: Whole = 0
    """Clients in one stack, 1 being the plain loop; 0: measured."""
    record: bool = True
    """Record a GPU's work as CUDA graphs, which are replayed in later rounds; false: to find a mistake."""
    compiled: bool = False
    """Train MLPs on a CPU by machine code that numba makes, on one thread; needs the extra "compiled"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory:
            bytes_of(self.memory)
        if self.compiled and self.device != "cpu":
            raise UserError(f"engine: compiled is for device=cpu, and device is {self.device}, whose work is recorded")

    @property
    def dtype(self) -> torch.dtype:
        """The type of models and data in torch."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """The features that runs on this engine do not have, each with the reason, as a message ends."""
        return {}

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Values of a spec that follow from the engine where a user leaves them out."""
        return {}

    def check_time(self, devices: Devices, policy: Policy, selection: Selection, seeds: int) -> None:
        """Raises UserError if devices, a policy or a selection of clients does not fit the engine."""


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
class LocalOptions(EngineOptions):
    """Options for all clients in this process."""

    name: ClassVar[str] = "local"
    in_process: ClassVar[bool] = True
