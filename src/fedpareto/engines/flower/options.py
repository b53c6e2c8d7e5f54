"""What a user may choose of a federation on Flower; needs no Flower itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.engines.local import LocalOptions
from fedpareto.errors import UserError


@dataclass(frozen=True)
class FlowerOptions(LocalOptions):
    """How clients work, each in a node of its own, and how patient the server is. Times are in seconds."""

    name: ClassVar[str] = "flower-local"

    join_timeout: float = 300.0
    """How long to wait for all nodes before the first round."""
    timeout: float = 600.0
    """How long a node may take for one exchange."""
    retries: int = 1
    """How often a node that gave no answer is asked again, if it is connected."""
    hello_timeout: float = 60.0
    """How long a node may take to say who it is before it is asked again."""
    forgiveness: float = 60.0
    """After how long a node that was refused may introduce itself again."""
    poll: float = 0.1
    """Pause between two looks for answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise UserError(f"engine: device is '{self.device}'; nodes of Flower work on the cpu")
        for name in ("join_timeout", "timeout", "hello_timeout", "poll"):
            if getattr(self, name) <= 0:
                raise UserError(f"engine: {name} is {getattr(self, name)}; it is a time in seconds, above 0")
        if self.retries < 0 or self.forgiveness < 0:
            raise UserError("engine: retries and forgiveness are at least 0")


@dataclass(frozen=True)
class SimulationOptions(FlowerOptions):
    """The same in Flower's simulation."""

    name: ClassVar[str] = "flower-sim"
