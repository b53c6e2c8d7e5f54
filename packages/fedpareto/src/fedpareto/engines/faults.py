"""Faults on demand, for studying what an algorithm does when clients fail. Part of a run's spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedpareto.config.bounds import Bounded, Share
from fedpareto.contract.messages import Message
from fedpareto.tensors import rng


@dataclass(frozen=True)
class Faults(Bounded):
    """Rates, per client and round, at which something goes wrong. Drawn from the client's own stream."""

    prefix: ClassVar[str] = "faults: "

    dropout: Share = 0.0
    """Share of clients that drop out after being selected: no work, no reply."""
    stragglers: Share = 0.0
    """Share of clients that do the work but reply too late: no reply, private state advanced."""
    corrupt: Share = 0.0
    """Share of clients whose update arrives damaged: not-a-number, infinite, or of the wrong shape."""

    @property
    def happen(self) -> bool:
        return bool(self.dropout or self.stragglers or self.corrupt)


DAMAGES = ("nan", "inf", "shape")


@dataclass(frozen=True)
class Fates:
    """The faults of n clients in one round, `[n]` each."""

    drops_out: np.ndarray
    straggles: np.ndarray
    damage: np.ndarray
    """0 for none, else 1 + the number of its kind in DAMAGES."""


def fates(faults: Faults, addresses: rng.Addresses) -> Fates:
    """Drawn from (seed, client, round), so that a resumed run has the same faults."""
    draws = addresses.to("cpu").uniform("faults", 4, dtype=torch.float64).numpy()
    kind = 1 + (draws[:, 3] * len(DAMAGES)).astype(int)
    return Fates(
        drops_out=draws[:, 0] < faults.dropout,
        straggles=draws[:, 1] < faults.stragglers,
        damage=np.where(draws[:, 2] < faults.corrupt, kind, 0),
    )


def damaged(message: Message, damage: str) -> Message:
    """A copy of a reply with its largest tensor corrupted."""
    if not message:
        return message
    name = max(message, key=lambda key: message[key].numel())
    tensor = message[name].clone()
    if damage == "shape" or not tensor.is_floating_point():
        tensor = torch.cat([tensor.reshape(-1), tensor.new_zeros(1)])
    else:
        tensor.reshape(-1)[0] = float(damage)
    return message | {name: tensor}
