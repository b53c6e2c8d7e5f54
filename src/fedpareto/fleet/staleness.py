"""What a late reply means: it is measured from where it began, and counts from where its client would begin now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedpareto.core.algorithm import Algorithm, unwrapped
from fedpareto.core.messages import Replies, Tasks, beginnings_of, only_of
from fedpareto.fleet.policy import Policy
from fedpareto.fleet.roster import Roster


def refreshed(
    algorithm: Algorithm[Any], policy: Policy, flight: Roster, now: Sequence[Tasks], replies: Replies
) -> Replies:
    """The replies, with those that began in an earlier round brought to this one; `now` are its tasks for them."""
    if not len(replies):
        return replies
    staleness = now[0].round - replies.rounds
    rows = np.flatnonzero(staleness > 0)
    if not len(rows):
        return replies
    late = replies.only(rows)
    begun = beginnings_of(flight.tasks_of(late.clients), late.clients, late.tensors)
    at = beginnings_of(only_of(now, late.clients), late.clients, late.tensors)
    weights = torch.as_tensor(policy.weights(staleness[rows]))
    fresh = unwrapped(algorithm).refreshed(late.tensors, begun, at, weights)
    if late is replies:
        return replace(replies, tensors=fresh)
    where = torch.as_tensor(rows)
    tensors = {
        name: whole.index_copy(0, where.to(whole.device), fresh[name]) for name, whole in replies.tensors.items()
    }
    return replace(replies, tensors=tensors)
