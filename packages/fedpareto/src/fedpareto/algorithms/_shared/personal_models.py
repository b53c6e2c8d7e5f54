"""Common parts of algorithms with a model for every client: who trains from which model, and who replied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.algorithm import Setting, State, participants
from fedpareto.contract.messages import Parcels, Replies, Tasks, take_rows
from fedpareto.tensors import rng

SMALLEST_SPLIT = 3
"""Smaller clusters are never split: recursive clustering has no stopping rule of its own, and would split even a pair
of equal clients.
"""
MOST_COMPARED = 64
"""Clients up to which the similarities of all are told; of more, those of so many of them."""


@dataclass(frozen=True)
class Heard:
    """Last replies of clients whose replies are not in the round, where rounds do not wait for them."""

    trained: Tensor
    """θ'_i, with which each client replied last, `[n, d]`; the initial model before."""
    moves: Tensor
    """The change of the model from which it began, θ'_i − θ_i, `[n, d]`; 0 before."""
    ever: Tensor
    """True for each client that has replied at all, `[n]`."""
    since: Tensor
    """True for each client that has replied since its cluster was last examined, `[n]`."""


@dataclass(frozen=True)
class PersonalState(State):
    """Row i of each tensor belongs to the client `setting.clients[i]`."""

    models: Tensor = torch.empty(0)
    """θ_1 … θ_n, `[n, d]`."""
    heard: Heard | None = None
    """Last replies; None where rounds wait for all."""


@dataclass(frozen=True)
class Cluster:
    """Clients that learn together."""

    members: tuple[int, ...]
    """Rows of the state's tensors."""
    calm: int = 0
    """Rounds in a row in which the cluster was stationary."""


def shown(setting: Setting) -> np.ndarray:
    """The rows of the clients whose similarities are told, ascending: of many, the same sample for the whole run."""
    clients = len(setting.clients)
    if clients <= MOST_COMPARED:
        return np.arange(clients)
    drawn = rng.generator(rng.Address(setting.seed), "similarity").choice(clients, MOST_COMPARED, replace=False)
    return np.sort(drawn)


def told(setting: Setting, similarity: Tensor) -> dict[str, Any]:
    """Give the record the similarities of `shown` clients, and who they are if they are not all."""
    rows = shown(setting)
    if len(rows) == len(setting.clients):
        return {"similarity": similarity}
    return {"similarity": similarity, "similarity_of": setting.clients[rows].tolist()}


def same_start(setting: Setting) -> Tensor:
    """All clients at the same model, `[n, d]`."""
    return setting.initial.expand(len(setting.clients), -1).clone()


def heard_nobody(setting: Setting) -> Heard | None:
    """Last replies before the first one; nothing, where rounds wait for all."""
    if setting.waits:
        return None
    models = same_start(setting)
    nobody = torch.zeros(len(models), dtype=torch.bool, device=models.device)
    return Heard(models, torch.zeros_like(models), nobody, nobody)


def hear(state: PersonalState, replied: np.ndarray, trained: Tensor) -> Heard:
    """Add the replies of some rows, the models `[k, d]`."""
    known, rows = state.heard, torch.as_tensor(replied, device=state.models.device)
    assert known is not None, "a state made by begin has it where rounds do not wait"
    return Heard(
        with_rows(known.trained, replied, trained),
        with_rows(known.moves, replied, trained - take_rows(state.models, replied)),
        known.ever.index_fill(0, rows, True),
        known.since.index_fill(0, rows, True),
    )


def tasks(state: PersonalState, clusters: Sequence[Cluster] = ()) -> list[Tasks]:
    """Each client that takes part trains its own model; those of a cluster learn together, or else all."""
    present = participants(state)
    rows = state.setting.rows(present)
    own = {"model": take_rows(state.models, rows)}
    groups = cluster_numbers(clusters, len(state.models))[rows] if len(clusters) > 1 else np.empty(0, dtype=np.int64)
    return [Tasks(present, own=own, round=state.round + 1, groups=groups)]


def trained_models(state: PersonalState, replies: Replies) -> tuple[Tensor, np.ndarray]:
    """The models after training, `[n, d]`, and the rows that replied; a client that did not keeps its model."""
    replied = state.setting.rows(replies.clients)
    return with_rows(state.models, replied, replies["model"]), replied


def with_rows(models: Tensor, rows: np.ndarray, new: Tensor) -> Tensor:
    """The models `[n, d]` with some rows replaced; without a copy where all are."""
    return new if len(rows) == len(models) else models.index_copy(0, torch.as_tensor(rows, device=new.device), new)


def solutions(state: PersonalState) -> Parcels:
    """Each client's personal model."""
    return Parcels(state.setting.clients, own={"model": state.models})


def ids(state: PersonalState, clusters: Sequence[Cluster]) -> list[list[int]]:
    """The clusters as the clients' ids, which need not be their rows."""
    return [state.setting.clients[list(cluster.members)].tolist() for cluster in clusters]


def means(clusters: Sequence[Cluster], models: Tensor) -> Tensor:
    """θ̄_C of every cluster, `[clusters, d]`."""
    return means_of([np.array(cluster.members) for cluster in clusters], models)


def means_of(groups: Sequence[np.ndarray], models: Tensor) -> Tensor:
    """The mean of some rows of `models`, of each group, `[groups, d]`; 0 without any."""
    shares = models.new_zeros(len(groups), len(models))
    for row, group in zip(shares, groups, strict=True):
        row[torch.as_tensor(group, device=row.device)] = 1 / max(len(group), 1)
    return shares @ models


def split_calm(
    clusters: Sequence[Cluster],
    stands_still: Sequence[bool],
    replied: np.ndarray,
    patience: int,
    halve: Callable[[int], Sequence[Sequence[int]]],
) -> tuple[Cluster, ...]:
    """Every cluster, or its halves once it was stationary for `patience` rounds in a row.

    `replied` are the rows of clients with a reply. `halve` gives the halves of a cluster by its index, as positions in
    its `members`. Only a full set of replies can
    show that a cluster is stationary; without one it stays as it is.
    """
    result: list[Cluster] = []
    for number, (cluster, still) in enumerate(zip(clusters, stands_still, strict=True)):
        if not np.isin(cluster.members, replied).all():
            result.append(cluster)
            continue
        calm = cluster.calm + 1 if still else 0
        if calm < patience or len(cluster.members) < SMALLEST_SPLIT:
            result.append(replace(cluster, calm=calm))
            continue
        result += [Cluster(tuple(cluster.members[i] for i in half)) for half in halve(number)]
    return tuple(result)


def cluster_numbers(clusters: Sequence[Cluster], clients: int) -> np.ndarray:
    """The number of each client's cluster, `[n]`."""
    numbers = np.empty(clients, dtype=np.int64)
    for number, cluster in enumerate(clusters):
        numbers[list(cluster.members)] = number
    return numbers


def examined(
    clusters: Sequence[Cluster],
    heard: Heard,
    replied: np.ndarray,
    split: Callable[[Sequence[Cluster]], Sequence[Cluster]],
) -> tuple[tuple[Cluster, ...], Heard]:
    """Examine a cluster, where rounds do not wait, once each of its members has replied since the last time.

    `replied` are the rows of this round. `split` gives the clusters that they complete, or their halves.
    """
    since = heard.since.cpu().numpy().copy()
    numbers = np.unique(cluster_numbers(clusters, len(since))[replied]).tolist()
    complete = [number for number in numbers if since[list(clusters[number].members)].all()]
    if not complete:
        return tuple(clusters), heard
    after = split([clusters[number] for number in complete])
    others = [cluster for number, cluster in enumerate(clusters) if number not in complete]
    members = [row for number in complete for row in clusters[number].members]
    since[members] = False
    heard = replace(heard, since=torch.as_tensor(since, device=heard.since.device))
    return tuple(sorted([*others, *after], key=lambda cluster: cluster.members)), heard
