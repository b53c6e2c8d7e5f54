"""The options of a federation on Flower; does not import Flower."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config.bounds import AtLeast, Endless, Positive, Whole
from fedpareto.config.errors import UserError
from fedpareto.engines.options import EngineOptions, Feature


@dataclass(frozen=True)
class FlowerOptions(EngineOptions):
    """Options for clients that run each in its own node, and for how long the server waits. Times are in seconds."""

    name: ClassVar[str] = "flower-local"
    remote: ClassVar[bool] = True
    on_the_clock: ClassVar[bool] = True
    """True if nodes take time of their own, so that some may be late."""

    join_timeout: Endless = 300.0
    """Seconds to wait for all nodes before the first round; for the first of them, if the policy does not wait."""
    timeout: Endless = 600.0
    """Seconds that a node may take for one exchange. Under a policy that does not wait for everybody it may take
    any time; then a silent node that is connected gets its task again after so many seconds, the next time after
    twice as long.
    """
    retries: Whole = 1
    """Number of times that a task is sent again to a connected node that did not answer."""
    hello_timeout: Endless = 60.0
    """Seconds that a node may take to identify itself before the request is repeated; under a policy that does not
    wait, also how long a server waits for the others once a node has joined.
    """
    forgiveness: Annotated[float, AtLeast(0, besides=(math.inf,))] = 60.0
    """Seconds after which a refused node may identify itself again."""
    poll: Positive = 0.1
    """Pause between two polls for answers, at least; after a long wait it is longer, at most a second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise UserError(f"engine: device is '{self.device}'; nodes of Flower work on the cpu")

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """Losses, private state and rows stay with the nodes."""
        return {
            "losses": (
                f"with the engine {self.name} clients' losses stay with them: beside the objectives, a loss would give "
                "a preference away; it works with the engine local"
            ),
            "stopping": f"with the engine {self.name} clients' private state stays with them and cannot be put back",
            "attack": (
                f"is simulated by the engine local only, not by {self.name}, whose nodes are their owners'; a defence "
                "works with both"
            ),
            "server_codec": (
                f"with the engine {self.name} what the server sends travels as it is; take local or mission"
            ),
        }

    def check_time(self, devices: Devices, policy: Policy, selection: Selection, seeds: int) -> None:
        """Raises UserError for simulated devices, and for a policy that nodes cannot follow."""
        if devices.kind != "none":
            raise UserError(f"devices are simulated by the engine local; with {self.name} time is what the clock says")
        if policy.waits:
            return
        if policy.kind == "planned":
            raise UserError(f"policy.kind=planned: nobody knows when nodes of {self.name} come and go; take buffered")
        if not self.on_the_clock:
            raise UserError(
                f"policy.kind={policy.kind}: nodes of {self.name} have no time of their own; take flower-local, or "
                "local"
            )
        if seeds > 1:
            raise UserError(
                f"policy.kind={policy.kind}: a node works on one task at a time, so with the engine {self.name} a run "
                f"has one seed, not {seeds}"
            )


@dataclass(frozen=True)
class SimulationOptions(FlowerOptions):
    """Options for nodes in Flower's simulation."""

    name: ClassVar[str] = "flower-sim"
    on_the_clock: ClassVar[bool] = False
