"""Contribution of each client's update to the mean of all, as far as a server can tell from replies.

With updates Δ_i, weights a_i (by the rows that clients claim, where they say so; else equal) and U = Σ a_i Δ_i, all but
the last come from the inner products of updates, so they cost about as much as one pass over the replies:

- share: a_i ⟨Δ_i, U⟩ / ‖U‖², of which the sum is 1: how much of the step is the client's; negative if it pulls back;
- cosine: of Δ_i with the mean of the others, U_{−i} = (U − a_i Δ_i) / (1 − a_i);
- change: ‖U_{−i} − U‖ / ‖U‖, how far the step would be another one without the client;
- gain: where the server has rows of its own, how much better the objectives are there after U than after U_{−i}, under
  the preference that all clients share, or else their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Message, Replies, Tasks, beginnings, places
from fedpareto.moo.updates import gram_of_updates, sum_of_updates

Judge = Callable[[Tensor], Tensor]
"""Score of models `[k, d]` on the server's own rows, `[k]`; larger is better."""


class Contributions(NamedTuple):
    """Contributions of those who replied in a round."""

    clients: np.ndarray
    """Clients `[k]`, ascending."""
    values: np.ndarray
    """`[k, 4]`: share, cosine, change and gain; NaN where one is not known."""


def contributions(tasks: Sequence[Tasks], replies: Replies, judge: Judge | None = None) -> Contributions | None:
    """Contribution of each of the replies to these tasks to its lane; None if they hold no models.

    A client that works in several lanes has the mean over them.
    """
    whole, found = replies.whole(), []
    for some in tasks:
        own = whole.in_lane(some.lane)
        if len(own) and (begun := beginnings(some.only(places(some.clients, own.clients)), own.tensors)):
            found.append((own.clients, _of_lane(some, own, begun, judge)))
    if not found:
        return None
    who, place = np.unique(np.concatenate([clients for clients, _ in found]), return_inverse=True)
    total = np.zeros((len(who), 4))
    np.add.at(total, place, np.concatenate([values for _, values in found]))
    return Contributions(who, total / np.bincount(place)[:, None])


def _of_lane(tasks: Tasks, replies: Replies, begun: Message, judge: Judge | None) -> np.ndarray:
    """`[k, 4]`, of replies whose models were `begun`, `[k, ...]` each."""
    updates = {name: (replies[name] - origin).flatten(1) for name, origin in begun.items()}
    gram = torch.stack([gram_of_updates(one, torch.zeros_like(one[0])) for one in updates.values()]).sum(0).cpu()
    weights = replies["size"].double().reshape(-1).cpu() if "size" in replies else torch.ones(len(replies))
    shares = weights.double() / weights.sum()
    gain = torch.full((len(replies),), torch.nan, dtype=torch.float64)
    if judge is not None and len(replies) > 1 and "model" in tasks.shared and "model" in updates:
        gain = _gains(tasks.shared["model"], updates["model"], shares, judge).cpu()
    return torch.stack([*from_gram(gram, shares), gain], dim=1).numpy()


def from_gram(gram: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share, cosine and change, `[n]` each, from the updates' inner products `[n, n]` and weights `[n]` with sum 1."""
    along, squares = gram @ weights, gram.diagonal()
    whole = weights @ along
    others = (whole - 2 * weights * along + weights**2 * squares).clamp_min(0)
    scale = (squares * others).sqrt()
    cosine = torch.where(scale > 0, (along - weights * squares) / scale, torch.zeros_like(scale))
    apart = (squares - 2 * along + whole).clamp_min(0).sqrt()
    if whole <= 0:  # Nobody moved, or together nowhere.
        return torch.zeros_like(along), cosine, torch.full_like(along, torch.nan)
    return weights * along / whole, cosine, weights / (1 - weights) * apart / whole.sqrt()


def _gains(origin: Tensor, updates: Tensor, weights: Tensor, judge: Judge) -> Tensor:
    """Gain of the model with each client over the model without it, `[n]`."""
    own = weights.to(updates)
    step = sum_of_updates(weights, updates, torch.zeros_like(origin)).to(updates)
    with_all = judge((origin + step).unsqueeze(0))
    without = [judge((origin + (step - a * one) / (1 - a)).unsqueeze(0)) for a, one in zip(own, updates, strict=True)]
    return (with_all - torch.cat(without)).double()
