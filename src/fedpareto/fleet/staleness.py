"""What a late reply means: it is measured from where it began, and counts from where its client would begin now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedpareto.core.algorithm import Algorithm, unwrapped
from fedpareto.core.messages import Replies, Tasks, beginnings_of, is_all, only_of, taken
from fedpareto.fleet.policy import Policy
from fedpareto.fleet.roster import Roster


def refreshed(
    algorithm: Algorithm[Any], policy: Policy, flight: Roster, now: Sequence[Tasks], replies: Replies
) -> Replies:
    """The replies, with those that began in an earlier round brought to this one; `now` are its tasks for them."""
    if not len(replies):
        return replies
    staleness = now[0].round - replies.rounds
    late = np.flatnonzero(staleness > 0)
    if not len(late):
        return replies
    clients, reply = replies.clients[late], taken(replies.tensors, late)
    begun = beginnings_of(flight.tasks_of(clients), clients, reply)
    at = beginnings_of(only_of(now, clients), clients, reply)
    weights = torch.as_tensor(policy.weights(staleness[late]))
    fresh = unwrapped(algorithm).refreshed(reply, begun, at, weights)
    if is_all(late, len(replies)):
        return replace(replies, tensors=fresh)
    where = torch.as_tensor(late)
    tensors = {name: rows.index_copy(0, where.to(rows.device), fresh[name]) for name, rows in replies.tensors.items()}
    return replace(replies, tensors=tensors)
