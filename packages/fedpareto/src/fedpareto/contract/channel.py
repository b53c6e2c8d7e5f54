"""The layers between an algorithm and its clients: in one value, whatever of it a run has."""

from __future__ import annotations

from dataclasses import dataclass

from fedpareto.contract.privacy import Privacy
from fedpareto.contract.secure_sum import SecureSum


@dataclass(frozen=True)
class Channel:
    """The steps around an algorithm that change its clients' replies; a codec is the engine's.

    At a client a reply passes the chosen step size, private normalisation layers, privacy and the secure sum, in this
    order: noise is on what a sum adds up, and nothing private of a normalisation layer reaches either.
    """

    privacy: Privacy = Privacy()
    secure_sum: SecureSum = SecureSum()
    normalisation: str = "averaged"
    """Sharing of normalisation layers between clients."""
    validated: bool = False
    """True if step sizes are chosen on validation rows."""


OPEN = Channel()
"""Replies as the algorithm makes them."""
