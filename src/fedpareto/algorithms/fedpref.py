"""FedPref: Hartmann, Danoy, Bouvry; thesis chapter 4 (algorithms 3, 4 and 5; equations 4.2 to 4.5).

Every client has a private preference and gets a personal model. Clients whose models develop alike are aggregated
with more weight; a cluster whose mean stands still is cut in two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, Setting, State, Taxonomy, participants
from fedpareto.core.clients import Clients
from fedpareto.core.layout import Layout
from fedpareto.core.messages import Message, Reply, Shapes, Task
from fedpareto.errors import UserError


@dataclass(frozen=True)
class Cluster:
    """Clients that learn together."""

    members: tuple[int, ...]
    """Rows of the state's tensors."""
    calm: int = 0
    """Rounds in a row in which the cluster's mean moved by at most ε."""


@dataclass(frozen=True)
class FedPrefState(State):
    """Row i of each tensor belongs to the client `setting.clients[i]`."""

    models: Tensor = torch.empty(0)
    """θ_1 … θ_n, `[n, d]`."""
    clusters: tuple[Cluster, ...] = ()
    """𝒞."""
    similarity: Tensor = torch.empty(0)
    """sim(Δθ_i, Δθ_j) of the last round, `[n, n]`; each Δθ is taken from its client's own cluster mean."""


@dataclass(frozen=True)
class FedPref(Algorithm[FedPrefState]):
    """Personal models by similarity-weighted aggregation inside clusters that are recursively cut in two."""

    name: ClassVar[str] = "fedpref"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client",
        "preference-driven",
        "linearised preferences, similarity-based aggregation and clustering",
        "arbitrary",
    )
    personalised: ClassVar[bool] = True

    similarity_bound: float = -1.0
    """s_min: similarities below it do not count. The thesis finds −1 good everywhere; −inf weighs all members alike."""
    top_ratio: float = 0.4
    """R of topR: the share of each layer's largest entries that similarity looks at; 0 or 1 is the plain cosine."""
    threshold: float = 0.05
    """ε: a cluster has converged when its mean moved by no more."""
    threshold_in: Literal["norm", "percent"] = "norm"
    """Whether ε is the norm of the movement (section 4.2.5) or a percentage of the mean's own norm (table A.10)."""
    patience: int = 1
    """Rounds in a row below the threshold before a cluster is cut."""
    weighting: bool = True
    """Weighted aggregation (algorithm 3); off: the plain mean of the cluster."""
    clustering: bool = True
    """Recursive clustering (algorithm 4); off: one cluster for ever."""

    smallest_split: ClassVar[int] = 3
    """Smaller clusters are never cut: the algorithm has no stopping rule of its own, and a pure pair would go on."""

    def __post_init__(self) -> None:
        if not self.similarity_bound < 1:
            raise UserError(
                f"similarity_bound is {self.similarity_bound}; it must be below 1 (1 − 1e-9 is local training)"
            )
        if not 0 <= self.top_ratio <= 1:
            raise UserError(f"top_ratio is {self.top_ratio}; it is a share between 0 and 1")
        if self.patience < 1:
            raise UserError(f"patience is {self.patience}; at least 1 round below the threshold is needed")

    # -- algorithm 5, the server -----------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedPrefState:
        """Lines 1 and 2: one cluster, everyone at the same model."""
        n = len(setting.clients)
        return FedPrefState(
            setting,
            models=setting.initial.expand(n, -1).clone(),
            clusters=(Cluster(tuple(range(n))),),
            similarity=torch.eye(n, dtype=setting.initial.dtype),
        )

    def ask(self, state: FedPrefState) -> list[Task]:
        """Line 4: each client trains its own model θ_i."""
        row_of = {client: row for row, client in enumerate(state.setting.clients)}
        return [
            Task(client, state.round + 1, {"model": state.models[row_of[client]]}) for client in participants(state)
        ]

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training under the client's own preference (eq. 4.1)."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedPrefState, replies: Sequence[Reply]) -> FedPrefState:
        """Lines 5 to 21. A client without a valid reply keeps its model and its cluster."""
        row_of = {client: row for row, client in enumerate(state.setting.clients)}
        replied = [row_of[reply.client] for reply in replies]
        before, trained = state.models, state.models.clone()
        for row, reply in zip(replied, replies, strict=True):
            trained[row] = reply.message["model"]
        clusters = [part for cluster in state.clusters for part in self._split(cluster, state, trained, set(replied))]
        similarity = self._similarity(clusters, before, trained, state.setting.layout)
        models = trained.clone()
        for cluster in clusters:
            present = [row for row in cluster.members if row in set(replied)]
            models[present] = self._aggregate(trained[present], similarity[present][:, present])
        return replace(state, models=models, clusters=tuple(clusters), similarity=similarity, round=state.round + 1)

    def solutions(self, state: FedPrefState) -> dict[int, Message]:
        """Each client's personal model."""
        return {client: {"model": model} for client, model in zip(state.setting.clients, state.models, strict=True)}

    def describe(self, state: FedPrefState) -> dict[str, Any]:
        """The clusters as client ids, and the similarities."""
        ids = state.setting.clients
        return {
            "clusters": [[ids[row] for row in cluster.members] for cluster in state.clusters],
            "similarity": state.similarity,
        }

    # -- algorithm 3, weighted aggregation -------------------------------------------------------------------------

    def _aggregate(self, models: Tensor, similarity: Tensor) -> Tensor:
        """θ_i ← Σ_c ŵ_ic θ_c for the members of one cluster: `[c, d]`, `[c, c]` to `[c, d]`."""
        weights = self._weights(similarity) if self.weighting else torch.ones_like(similarity)
        return (weights / weights.sum(dim=1, keepdim=True)) @ models

    def _weights(self, similarity: Tensor) -> Tensor:
        """w_ij ← (max(sim, s_min) − s_min) / (1 − s_min): clipped (section 4.2.3), then scaled to [0, 1] (line 5)."""
        s_min = self.similarity_bound
        if math.isinf(s_min):
            return torch.ones_like(similarity)
        return (similarity.clamp_min(s_min) - s_min) / (1 - s_min)

    # -- algorithm 4, clustering -----------------------------------------------------------------------------------

    def _split(self, cluster: Cluster, state: FedPrefState, trained: Tensor, replied: set[int]) -> list[Cluster]:
        """Lines 7 to 14: the cluster, or its two halves once its mean stands still."""
        members = list(cluster.members)
        if not self.clustering or not replied.issuperset(members):
            return [cluster]
        mean_before = state.models[members].mean(dim=0)
        change = float((mean_before - trained[members].mean(dim=0)).norm())
        if self.threshold_in == "percent":
            change = 100 * change / max(float(mean_before.norm()), 1e-12)
        calm = cluster.calm + 1 if change <= self.threshold else 0
        if calm < self.patience or len(members) < self.smallest_split:
            return [replace(cluster, calm=calm)]
        similarity = similarities(trained[members] - mean_before, state.setting.layout, self.top_ratio)
        halves = bipartition(similarity)
        return [Cluster(tuple(members[i] for i in half)) for half in halves]

    def _similarity(self, clusters: Sequence[Cluster], before: Tensor, trained: Tensor, layout: Layout) -> Tensor:
        """sim(Δθ_i, Δθ_j) with Δθ_i = θ'_i − θ̄_C (eq. 4.2), where θ̄_C is the mean of i's cluster before training."""
        updates = trained.clone()
        for cluster in clusters:
            members = list(cluster.members)
            updates[members] -= before[members].mean(dim=0)
        return similarities(updates, layout, self.top_ratio)


@dataclass(frozen=True)
class FedPrefClustering(FedPref):
    """FedPref's ablation with clustering only (section 4.3.3): the plain mean inside each cluster."""

    name: ClassVar[str] = "fedpref-clustering"
    taxonomy: ClassVar[Taxonomy] = replace(
        FedPref.taxonomy, method="linearised preferences, similarity-based clustering"
    )
    weighting: bool = False


@dataclass(frozen=True)
class FedPrefWeighting(FedPref):
    """FedPref's ablation with weighted aggregation only (section 4.3.3): one cluster for ever."""

    name: ClassVar[str] = "fedpref-weighting"
    taxonomy: ClassVar[Taxonomy] = replace(
        FedPref.taxonomy, method="linearised preferences, similarity-based aggregation"
    )
    clustering: bool = False


def similarities(updates: Tensor, layout: Layout, ratio: float) -> Tensor:
    """sim of eq. 4.3: the cosine of the topR entries, averaged over layers; `[n, d]` to `[n, n]`.

    A client is always similar to itself (1), also where it did not move and a cosine would be undefined.
    """
    total = updates.new_zeros(len(updates), len(updates))
    for place in layout.layers.values():
        layer = top_entries(updates[:, place], ratio)
        unit = layer / layer.norm(dim=1, keepdim=True).clamp_min(torch.finfo(layer.dtype).tiny)
        total += unit @ unit.T
    return (total / len(layout.layers)).clamp(-1, 1).fill_diagonal_(1)


def top_entries(vectors: Tensor, ratio: float) -> Tensor:
    """topR of eq. 4.4: the ⌈R·dim⌉ entries largest in magnitude of each row, zeros elsewhere."""
    keep = math.ceil(ratio * vectors.shape[1])
    if keep in (0, vectors.shape[1]):
        return vectors
    magnitude = vectors.abs()
    smallest_kept = magnitude.kthvalue(vectors.shape[1] - keep + 1, dim=1, keepdim=True).values
    return vectors * (magnitude >= smallest_kept)


def bipartition(similarity: Tensor) -> list[list[int]]:
    """Two halves by spectral clustering (line 9); its affinities must not be negative, hence (s + 1) / 2."""
    from sklearn.cluster import SpectralClustering

    # A positive floor keeps the graph connected, which spectral clustering asks for.
    affinity = ((similarity.double() + 1) / 2).clamp_min(1e-6).cpu().numpy()
    labels = SpectralClustering(n_clusters=2, affinity="precomputed", random_state=0).fit_predict(affinity)
    halves = [[i for i, label in enumerate(labels) if label == side] for side in (0, 1)]
    return sorted(half for half in halves if half)
