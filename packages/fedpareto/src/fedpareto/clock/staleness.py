"""Meaning of a late reply: it is measured from where it began, and counts from where its client would begin now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fedpareto.clock.activity import Roster
from fedpareto.clock.policy import Policy
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.messages import Message, Replies, Tasks, beginnings_of, but


def refreshed(
    algorithm: Algorithm[Any], policy: Policy, flight: Roster, now: Sequence[Tasks], replies: Replies
) -> Replies:
    """The replies, with those that began in an earlier round brought to this one; `now` are its tasks."""
    if not len(replies):
        return replies
    staleness = now[0].round - replies.rounds
    (rows,) = (staleness > 0).nonzero()
    if not len(rows):
        return replies
    late = replies.only(rows)
    begun = beginnings_of(flight.tasks_of_replies(late), late.clients, late.tensors)
    at = beginnings_of(now, late.clients, late.tensors)
    weights = torch.from_numpy(policy.weights(staleness[rows]))
    reply = late.tensors if policy.compensation == "none" else compensated(late.tensors, begun, at, policy.strength)
    fresh = algorithm.refreshed(reply, begun, at, weights)
    if late is replies:
        return but(replies, tensors={name: tensor.contiguous() for name, tensor in fresh.items()})
    where = torch.as_tensor(rows)
    tensors = {
        name: whole.index_copy(0, where.to(whole.device), fresh[name]) for name, whole in replies.tensors.items()
    }
    return replace(replies, tensors=tensors)


def compensated(reply: Message, begun: Message, now: Message, strength: float) -> Message:
    """Late replies `[k, ...]` with their updates as they would be from where the server is now, in first order.

    A gradient g at w_then is about g + λ g ⊙ g ⊙ (w_now − w_then) at w_now, where g ⊙ g stands for the diagonal of the
    Hessian (Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", 2017, equation 10; FedGSM
    of Wu and Zhang, 2023, does so for satellites). Of an update u = −g that is u − λ u ⊙ u ⊙ (w_now − w_then): the less
    is left to do, the more the server has gone the same way.
    """
    if not strength:
        return reply
    moved = {name: (reply[name] - begun[name]).square() * (now[name] - begun[name]) for name in begun}
    return {**reply, **{name: torch.sub(reply[name], moved[name], alpha=strength) for name in begun}}
