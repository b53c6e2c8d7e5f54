"""What algorithms with a model for every client have in common: who trains from which model, and who replied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedpareto.core.algorithm import Setting, State, participants
from fedpareto.core.messages import Message, Reply, Task, stack

SMALLEST_SPLIT = 3
"""Smaller clusters are never split: recursive clustering has no stopping rule of its own, and would split even a pair
of equal clients.
"""


@dataclass(frozen=True)
class PersonalState(State):
    """Row i of each tensor belongs to the client `setting.clients[i]`."""

    models: Tensor = torch.empty(0)
    """θ_1 … θ_n, `[n, d]`."""


@dataclass(frozen=True)
class Cluster:
    """Clients that learn together."""

    members: tuple[int, ...]
    """Rows of the state's tensors."""
    calm: int = 0
    """Rounds in a row in which the cluster was stationary."""


def same_start(setting: Setting) -> Tensor:
    """All clients at the same model, `[n, d]`."""
    return setting.initial.expand(len(setting.clients), -1).clone()


def tasks(state: PersonalState) -> list[Task]:
    """Each client that takes part trains its own model."""
    row_of = {client: row for row, client in enumerate(state.setting.clients)}
    return [Task(client, state.round + 1, {"model": state.models[row_of[client]]}) for client in participants(state)]


def trained_models(state: PersonalState, replies: Sequence[Reply]) -> tuple[Tensor, list[int]]:
    """The models after training, `[n, d]`, and the rows that replied; a client that did not keeps its model."""
    row_of = {client: row for row, client in enumerate(state.setting.clients)}
    replied = [row_of[reply.client] for reply in replies]
    trained = stack(replies, "model")
    if len(replied) < len(row_of):
        trained = state.models.index_copy(0, torch.tensor(replied, device=trained.device), trained)
    return trained, replied


def solutions(state: PersonalState) -> dict[int, Message]:
    """Each client's personal model."""
    return {client: {"model": model} for client, model in zip(state.setting.clients, state.models, strict=True)}


def ids(state: PersonalState, clusters: Sequence[Cluster]) -> list[list[int]]:
    """The clusters as the clients' ids, which need not be their rows."""
    return [[state.setting.clients[row] for row in cluster.members] for cluster in clusters]


def means(clusters: Sequence[Cluster], models: Tensor) -> Tensor:
    """θ̄_C of every cluster, `[clusters, d]`."""
    shares = models.new_zeros(len(clusters), len(models))
    for row, cluster in zip(shares, clusters, strict=True):
        row[list(cluster.members)] = 1 / len(cluster.members)
    return shares @ models


def split_calm(
    clusters: Sequence[Cluster],
    stands_still: Sequence[bool],
    replied: set[int],
    patience: int,
    halve: Callable[[int], Sequence[Sequence[int]]],
) -> tuple[Cluster, ...]:
    """Every cluster, or its halves once it was stationary for `patience` rounds in a row.

    `halve` gives the halves of a cluster by its index, as positions in its `members`. Only a full set of replies can
    show that a cluster is stationary; without one it stays as it is.
    """
    result: list[Cluster] = []
    for number, (cluster, still) in enumerate(zip(clusters, stands_still, strict=True)):
        if not replied.issuperset(cluster.members):
            result.append(cluster)
            continue
        calm = cluster.calm + 1 if still else 0
        if calm < patience or len(cluster.members) < SMALLEST_SPLIT:
            result.append(replace(cluster, calm=calm))
            continue
        result += [Cluster(tuple(cluster.members[i] for i in half)) for half in halve(number)]
    return tuple(result)
