"""Hiding of a client in what it sends: each tensor of a reply is clipped or kept within bounds, and has noise by its
share of the reply's privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Message, origins
from fedpareto.contract.privacy import Part, Privacy
from fedpareto.contract.problem import Objective
from fedpareto.tensors import rng

Draw = Callable[[str, int, Tensor], Tensor]
"""N(0, 1) for a purpose, so many for each of n clients, `[n, count]`; of the type of a tensor."""

PURPOSE = "privacy"
"""The name of the random streams that noise is drawn from."""
HIDDEN: frozenset[Part] = frozenset({"losses", "objectives", "choice"})
"""Parts that are hidden otherwise than by a clip."""


def draws(privacy: Privacy, addresses: rng.Addresses) -> Draw:
    """Draw from the streams of n addresses, or from the machine's own randomness."""

    def draw(purpose: str, count: int, like: Tensor) -> Tensor:
        if privacy.randomness == "seed":
            return addresses.to(like.device).normal(purpose, count).to(like)
        return torch.as_tensor(np.random.default_rng().standard_normal((len(addresses), count))).to(like)

    return draw


@dataclass(frozen=True)
class Hiding:
    """Protection of a client's reply under local privacy, so that it costs `privacy.reply_cost` as a whole."""

    privacy: Privacy
    parts: Mapping[str, Part]
    """Part that each tensor of the reply is."""
    ranges: tuple[Tensor, Tensor] | None
    """The objectives' smallest and largest values, `[m]` each, where a part needs them."""
    choices: Mapping[str, int]
    """Number of answers of which each choice is one."""

    def hidden(self, sent: Message, reply: Message, draw: Draw) -> Message:
        """The reply to what was `sent`, with noise; `[n, ...]`. A choice comes first: updates begin where it says."""
        begun = origins(sent, reply)
        found = {name: self._value(name, tensor, draw) for name, tensor in reply.items() if self._is_value(name)}
        begins = origins(sent, {**reply, **found})
        for name in (name for name in reply if self.parts[name] == "update"):
            update = clipped_from(begun.get(name), reply[name], self.privacy.clip)
            if name in begun and begins[name] is not begun[name]:
                update = self._moved(update, begun[name], begins[name])
            found[name] = update + self._noise(name, update, self.privacy.deviation, draw)
        return {name: found.get(name, self._plain(name, reply[name])) for name in reply}

    def clipped(self, sent: Message, reply: Message) -> Message:
        """The reply as it is before any noise: that of the server comes later."""
        begun = origins(sent, reply)
        return {
            name: clipped_from(begun.get(name), tensor, self.privacy.clip)
            if self.parts[name] == "update"
            else self._plain(name, tensor)
            for name, tensor in reply.items()
        }

    def _moved(self, update: Tensor, begun: Tensor, begins: Tensor) -> Tensor:
        """Give the update another beginning, in the rows whose client says that it chose another model than it did."""
        moved = (update.double() - begun.double() + begins.double()).to(update)
        stays = (begun == begins).flatten(1).all(dim=1).view(-1, *[1] * (update.dim() - 1))
        return torch.where(stays, update, clipped_from(begins, moved, self.privacy.clip))

    def _is_value(self, name: str) -> bool:
        return self.parts[name] in HIDDEN

    def _plain(self, name: str, tensor: Tensor) -> Tensor:
        """Leave what says nothing about rows; their number becomes 1."""
        return torch.ones_like(tensor) if self.parts[name] == "count" else tensor

    def share(self, name: str) -> float:
        """Share of the reply's privacy that one of its tensors has."""
        updates = [one for one, part in self.parts.items() if part == "update"]
        values = [one for one, part in self.parts.items() if part in HIDDEN]
        of_values = self.privacy.values_share if updates and values else float(bool(values))
        return of_values / len(values) if name in values else (1 - of_values) / len(updates)

    def _noise(self, name: str, tensor: Tensor, deviation: float, draw: Draw) -> Tensor:
        if not deviation:
            return torch.zeros_like(tensor)
        purpose = PURPOSE if name == "model" else f"{PURPOSE} {name}"
        drawn = draw(purpose, tensor[0].numel(), tensor).view_as(tensor)
        return deviation / math.sqrt(self.share(name)) * drawn

    def _value(self, name: str, tensor: Tensor, draw: Draw) -> Tensor:
        if self.parts[name] == "choice":
            return self._chosen(name, tensor, draw)
        low, high = self._bounds(name, tensor)
        # Any client's values differ by √k of their ranges from any other's, at the most.
        noise = self._noise(name, tensor, math.sqrt(tensor[0].numel()) * self.privacy.noise / 2, draw)
        return bounded(bounded(tensor, low, high) + (high - low) * noise, low, high)

    def _bounds(self, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
        if self.parts[name] == "losses":
            return like.new_zeros(()), like.new_tensor(self.privacy.largest_loss)
        assert self.ranges is not None, "given where there are objectives"
        low, high = self.ranges
        return low.to(like), high.to(like)

    def _chosen(self, name: str, choice: Tensor, draw: Draw) -> Tensor:
        """Answer by k-ary randomised response: the true answer with the probability that the share allows, else another
        one.
        """
        count = self.choices[name]
        if count < 2 or not self.privacy.noise:
            return choice
        ratio = math.exp(pure(math.sqrt(self.share(name) * self.privacy.reply_cost)))
        truth = ratio / (ratio + count - 1)
        drawn = torch.special.ndtr(draw(f"{PURPOSE} {name}", 2, choice.double()))
        step = 1 + (drawn[:, 1] * (count - 1)).floor().clamp(max=count - 2)
        other = (choice.double() + step) % count
        return torch.where(drawn[:, 0] < truth, choice.double(), other).to(choice)


def pure(mu: float) -> float:
    """The ε of pure differential privacy that is no worse than a Gaussian mechanism of sensitivity μ and deviation 1.

    Whoever tells two clients apart under ε errs in at least 1 / (1 + e^ε) of both cases if he errs equally often. His
    curve of errors consists of two straight lines through that point, and the Gaussian's, which is convex, lies below.
    """
    error = NormalDist().cdf(-mu / 2)
    return math.log1p(-error) - math.log(error) if error else math.inf


def ranges_of(objectives: Sequence[Objective]) -> tuple[Tensor, Tensor]:
    """The smallest and largest values that count, `[m]` each; UserError where an objective has no such bounds.

    A value that is worse than the reference adds nothing to the hypervolume: where there is no bound, it is cut there.
    """
    found = []
    for one in objectives:
        worst = one.lowest if one.maximise else one.highest
        worst = one.reference if worst is None else worst
        best = one.highest if one.maximise else one.lowest
        if best is None or best == worst:
            raise UserError(
                f"privacy: the objective '{one.name}' has no best value, so no noise could hide how good a model is; "
                "take a problem whose objectives have bounds, such as accuracy"
            )
        found.append(sorted((worst, best)))
    low, high = torch.tensor(found, dtype=torch.float64).T
    return low, high


def bounded(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Cut off at both ends; what is no number is the smallest."""
    return torch.minimum(torch.maximum(values.nan_to_num(-math.inf, math.inf, -math.inf), low), high)


def clipped_from(begun: Tensor | None, tensor: Tensor, clip: float) -> Tensor:
    """Each row of `[n, ...]` at most `clip` from where it began, over all its entries; None: from 0."""
    begun = torch.zeros_like(tensor) if begun is None else begun
    return clipped(begun.reshape(len(tensor), -1), tensor.reshape(len(tensor), -1), clip).view_as(tensor)


def clipped(received: Tensor, trained: Tensor, clip: float) -> Tensor:
    """θ + Δ · min(1, C / ‖Δ‖) with Δ = θ_i − θ, for each row of `[n, d]`; rows that are short enough as they are.

    What is returned is never further than C from θ, however coarse the numbers of its type are at θ.
    """
    origin = received.double()
    update = trained.double() - origin
    length = update.norm(dim=1, keepdim=True)
    allowed = update * (clip / length)
    near = (origin + allowed).to(trained)
    # Rounding may have moved an entry away from θ; the next number towards θ is within the allowed update.
    is_beyond = (near.double() - origin).abs() > allowed.abs()
    return torch.where(length <= clip, trained, torch.where(is_beyond, torch.nextafter(near, received), near))
