"""The options of a federation on Flower; does not import Flower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.engines.machine import LocalOptions
from fedpareto.errors import UserError


@dataclass(frozen=True)
class FlowerOptions(LocalOptions):
    """How clients run, each in its own node, and how long the server waits. Times are in seconds."""

    name: ClassVar[str] = "flower-local"

    join_timeout: float = 300.0
    """How long to wait for all nodes before the first round; for the first of them, if the policy does not wait."""
    timeout: float = 600.0
    """How long a node may take for one exchange. Under a policy that does not wait for everybody it may take any time;
    this is after how long a silent node that is connected gets its task again, the next time after twice as long.
    """
    retries: int = 1
    """How often a task is sent again to a connected node that did not answer."""
    hello_timeout: float = 60.0
    """How long a node may take to identify itself before the request is repeated; under a policy that does not wait,
    also how long a server waits for the others once a node has joined.
    """
    forgiveness: float = 60.0
    """After how long a refused node may identify itself again."""
    poll: float = 0.1
    """Pause between two polls for answers, at least; after a long wait it is longer, at most a second."""

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
