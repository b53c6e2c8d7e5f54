"""The layers between an algorithm and its clients: in one value, whatever of it a run has."""

from __future__ import annotations

from dataclasses import dataclass

from fedpareto.contract.privacy import Privacy
from fedpareto.contract.secure_sum import SecureSum

OUTWARD = ("step sizes", "normalisation", "privacy", "secure sum", "codec")
"""The steps that a reply passes at its client, in this order. The server undoes them in the reverse one: so noise is on
what a sum adds up, and nothing private of a normalisation layer reaches either.
"""


@dataclass(frozen=True)
class Channel:
    """The steps around an algorithm that change what clients send. A codec belongs to the engine, not to these."""

    privacy: Privacy = Privacy()
    secure_sum: SecureSum = SecureSum()
    normalisation: str = "averaged"
    """Sharing of normalisation layers between clients."""
    validated: bool = False
    """True if step sizes are chosen on validation rows."""


OPEN = Channel()
"""Replies as the algorithm makes them."""
