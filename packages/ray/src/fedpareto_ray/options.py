"""The options of a federation on Ray; does not import Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config.bounds import AtLeast
from fedpareto.config.errors import UserError
from fedpareto.engines.options import EngineOptions, Feature

MOST_WORKERS = 10_000
AUTO = "auto"
"""The cluster to which this machine belongs."""
ADDRESS = re.compile(rf"{AUTO}|(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{{1,5}}")


@dataclass(frozen=True)
class RayOptions(EngineOptions):
    """Options for workers that hold the clients on a cluster; none of them changes the numbers beyond rounding."""

    name: ClassVar[str] = "ray"

    address: str = ""
    """The cluster: "auto" for the one that this machine belongs to, or the head's host:port; empty: one is started on
    this machine for the time of the run.
    """
    workers: Annotated[int, AtLeast(0, MOST_WORKERS)] = 0
    """Processes that hold a part of the clients each; 0: as many as there are GPUs with device=cuda, else as the CPUs
    allow.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.address and not ADDRESS.fullmatch(self.address):
            raise UserError(f"engine: address is '{self.address}'; it is auto, or host:port such as 10.0.0.1:6379")
        if self.device not in ("cpu", "cuda"):
            raise UserError(
                f"engine: device is '{self.device}'; on Ray it is cpu or cuda: each worker is given its GPU"
            )

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """Codecs: clients are summed up where they are."""
        return {
            "codec": "on ray clients are summed up where they are, and no client's reply travels; take local or Flower",
            "server_codec": "with the engine ray what the server sends travels as it is; take local or mission",
        }

    def check_time(self, devices: Devices, policy: Policy, selection: Selection, seeds: int) -> None:
        """Raises UserError for everything but rounds that wait for all."""
        if devices.kind != "none" or not policy.waits or selection.kind != "random":
            raise UserError(
                "devices, policy and selection work with the engine local; on ray every round waits for all: "
                "policy=sync"
            )

    @property
    def cpus(self) -> int:
        """CPUs of each worker, which are also its threads."""
        return max(self.threads, 1)
