"""What a late reply means: it is measured from where it began, and counts from where its client would begin now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedpareto.core.algorithm import Algorithm, unwrapped
from fedpareto.core.messages import Message, Replies, Tasks, beginnings, is_all, only_of, places, take_rows, taken
from fedpareto.fleet.flight import Flight
from fedpareto.fleet.policy import Policy


def refreshed(
    algorithm: Algorithm[Any], policy: Policy, flight: Flight, now: Sequence[Tasks], replies: Replies
) -> Replies:
    """The replies, with those that began in an earlier round brought to this one; `now` are its tasks for them."""
    if not len(replies):
        return replies
    staleness = now[0].round - replies.rounds
    late = np.flatnonzero(staleness > 0)
    if not len(late):
        return replies
    clients, reply = replies.clients[late], taken(replies.tensors, late)
    begun = _beginnings(flight.tasks_of(clients), clients, reply)
    at = _beginnings(only_of(now, clients), clients, reply)
    weights = torch.as_tensor(policy.weights(staleness[late]))
    fresh = unwrapped(algorithm).refreshed(reply, begun, at, weights)
    if is_all(late, len(replies)):
        return replace(replies, tensors=fresh)
    where = torch.as_tensor(late)
    tensors = {name: rows.index_copy(0, where.to(rows.device), fresh[name]) for name, rows in replies.tensors.items()}
    return replace(replies, tensors=tensors)


def _beginnings(tasks: Sequence[Tasks], clients: np.ndarray, reply: Message) -> Message:
    """Where the tensors of the clients' replies `[k, ...]` begin, if these are their tasks, `[k, ...]`."""
    rows = [places(clients, some.clients) for some in tasks]
    parts = [beginnings(some, taken(reply, own)) for some, own in zip(tasks, rows, strict=True)]
    if len(parts) == 1:
        return parts[0]
    back = np.argsort(np.concatenate(rows), kind="stable")
    return {name: take_rows(torch.cat([part[name] for part in parts]), back) for name in parts[0]}
