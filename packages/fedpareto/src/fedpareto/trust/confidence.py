"""Confidence of a server in each client, from what it saw of it in all rounds so far.

Muñoz-González, Co, Lupu, "Byzantine-robust federated machine learning through adaptive model averaging", 2019. Whether
client k sends good updates is an unknown probability with the prior Beta(α₀, β₀), here with α₀ = β₀; after g good and b
bad ones it is Beta(α₀ + g, β₀ + b). Its mean weights the client's next updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Ids, places


@dataclass(frozen=True, eq=False)
class Standing:
    """Counts of what was seen of each client of a federation, `[n]`."""

    clients: Ids
    good: np.ndarray
    """Rounds in which its update was taken."""
    bad: np.ndarray
    """Rounds in which it was discarded."""

    @classmethod
    def unknown(cls, clients: Ids) -> Standing:
        """Nobody has been seen yet."""
        nothing = np.zeros(len(clients), dtype=np.int64)
        return cls(clients, nothing, nothing)

    def confidence(self, prior: float) -> np.ndarray:
        """The expected probability `[n]` that the next update is good; one half of clients that nobody knows."""
        found: np.ndarray = (prior + self.good) / (2 * prior + self.good + self.bad)
        return found

    def blocked(self, prior: float, certainty: float) -> np.ndarray:
        """Mask of the clients `[n]` that send bad updates more often than good ones, for all that is known.

        That is where P(p ≤ 1/2) = I_{1/2}(α₀ + g, β₀ + b) exceeds `certainty`.
        """
        from scipy.special import betainc

        found: np.ndarray = betainc(prior + self.good, prior + self.bad, 0.5) > certainty
        return found

    def seen(self, clients: Ids, is_good: np.ndarray) -> Standing:
        """Count one more round with updates of these clients, `[k]`."""
        rows = places(self.clients, clients)
        good, bad = self.good.copy(), self.bad.copy()
        good[rows] += is_good
        bad[rows] += ~is_good
        return replace(self, good=good, bad=bad)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint keeps."""
        return {"good": torch.as_tensor(self.good), "bad": torch.as_tensor(self.bad)}

    def restored(self, tensors: Mapping[str, Tensor]) -> Standing:
        """Restore what a checkpoint kept; ValueError if it is not of these clients."""
        found = {name: tensors[name].numpy().copy() for name in ("good", "bad")}
        if any(one.shape != self.good.shape or one.dtype != np.int64 or (one < 0).any() for one in found.values()):
            raise ValueError(f"confidence is in something else than the {len(self.clients)} clients")
        return replace(self, **found)
