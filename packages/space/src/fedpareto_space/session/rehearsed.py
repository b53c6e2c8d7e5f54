"""What came of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivered:
    """The first case study: a whole model from the ground to a satellite."""

    size: int
    """Bytes of the packed model …"""
    sent: int
    """… and of all that was sent for it, with headers and repetitions."""
    seconds: float
    """Simulated."""
    packets: int
    lost: int
    """Packets that never arrived."""
    digest: str
    """SHA-256 of what arrived."""
    identical: bool
    """Whether that is what was sent."""
    rows: int
    predictions_equal: bool
    """Whether the model that arrived says the same of every row as the one on the ground, bit for bit."""
    difference: float
    """The largest difference to the network that was trained, which has not travelled."""


@dataclass(frozen=True)
class Federated:
    """The second: clients that learn together by the protocol."""

    algorithm: str
    clients: int
    rounds: int
    agreement: str
    seconds: float
    """Simulated."""
    sent: int
    """Bytes of all nodes, with headers and repetitions."""
    messages: Mapping[str, int]
    """How many of each type."""
    digest: str | None
    reference: str
    """That of the local engine."""
    equal: bool


@dataclass(frozen=True)
class Rehearsal:
    """All of it."""

    loss: float
    rate: float
    delivered: Delivered
    federated: Federated
    faults: Mapping[str, bool] = field(default_factory=dict)
    """Whether each of the failure matrix ended as agreed, if they were tried."""

    @property
    def good(self) -> bool:
        """Whether everything is as it should be."""
        model = self.delivered.identical and self.delivered.predictions_equal
        return model and self.federated.equal and all(self.faults.values())
