"""Faults on demand, for studying what an algorithm does when clients fail. Part of a run's spec."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from fedpareto.core import rng
from fedpareto.core.messages import Message
from fedpareto.errors import UserError


@dataclass(frozen=True)
class Faults:
    """How often, per client and round, something goes wrong. Drawn from the client's own stream."""

    dropout: float = 0.0
    """Share of clients that drop out after being selected: no work, no reply."""
    stragglers: float = 0.0
    """Share of clients that do the work but reply too late: no reply, private state advanced."""
    corrupt: float = 0.0
    """Share of clients whose update arrives damaged: not-a-number, infinite, or of the wrong shape."""

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if not 0 <= share <= 1:
                raise UserError(f"faults: {field.name} is {share}; it is a share between 0 and 1")


@dataclass(frozen=True)
class Fate:
    """The faults of one client in one round."""

    drops_out: bool = False
    straggles: bool = False
    damage: str | None = None
    """"nan", "inf" or "shape"."""


UNHARMED = Fate()


def fate(faults: Faults, address: rng.Address) -> Fate:
    """Drawn from (seed, client, round), so that a resumed run has the same faults."""
    if not (faults.dropout or faults.stragglers or faults.corrupt):
        return UNHARMED
    stream = rng.generator(address, "faults")
    draws, kind = stream.random(3), str(stream.choice(["nan", "inf", "shape"]))
    return Fate(
        drops_out=bool(draws[0] < faults.dropout),
        straggles=bool(draws[1] < faults.stragglers),
        damage=kind if draws[2] < faults.corrupt else None,
    )


def damaged(message: Message, damage: str) -> Message:
    """A copy of a reply with its largest tensor corrupted."""
    if not message:
        return message
    name = max(message, key=lambda key: message[key].numel())
    tensor = message[name].clone()
    if damage == "shape":
        tensor = torch.cat([tensor.reshape(-1), tensor.new_zeros(1)])
    else:
        tensor.reshape(-1)[0] = float(damage)
    return message | {name: tensor}
