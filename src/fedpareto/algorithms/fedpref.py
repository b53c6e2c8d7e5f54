"""FedPref: Hartmann, Danoy, Bouvry; thesis chapter 4 (algorithms 3, 4 and 5; equations 4.2 to 4.5).

Every client has a private preference and gets a personal model. Clients whose updates are similar are aggregated with
more weight; a cluster whose mean has converged is split in two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms import personal
from fedpareto.algorithms.personal import Cluster, PersonalState, means, split_calm
from fedpareto.core import rng
from fedpareto.core.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.core.clients import Clients
from fedpareto.core.layout import Layout
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError
from fedpareto.moo.selection import kth_smallest
from fedpareto.moo.separation import separation_p_value
from fedpareto.moo.similarity import cosines


@dataclass(frozen=True)
class FedPrefState(PersonalState):
    """A personal model for every client, in clusters."""

    clusters: tuple[Cluster, ...] = ()
    """𝒞."""
    similarity: Tensor = torch.empty(0)
    """sim(Δθ_i, Δθ_j) of the last round, `[n, n]`; each Δθ is taken from its client's own cluster mean."""


@dataclass(frozen=True)
class FedPref(Algorithm[FedPrefState]):
    """Personal models by similarity-weighted aggregation inside clusters that are recursively split in two."""

    name: ClassVar[str] = "fedpref"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client",
        "preference-driven",
        "linearised preferences, similarity-based aggregation and clustering",
        "arbitrary",
    )
    personalised: ClassVar[bool] = True

    similarity_bound: float = -1.0
    """s_min: similarities below it do not count. The thesis finds −1 good everywhere; −inf weights all members
    equally.
    """
    top_ratio: float = 0.4
    """R of topR: the share of each layer's largest entries that similarity looks at; 0 or 1 is the plain cosine."""
    threshold: float = 0.05
    """ε: a cluster has converged when its mean moved by no more."""
    threshold_in: Literal["norm", "percent"] = "norm"
    """Whether ε is the norm of the movement (section 4.2.5) or a percentage of the mean's own norm (table A.10)."""
    patience: int = 1
    """Rounds in a row below the threshold before a cluster is split."""
    split_level: float = 1.0
    """α: a converged cluster is split only if halves chosen in the round before stand apart in this round with a p
    value of at most α. 1 splits always, as algorithm 4 does; 0.01 stops where no difference can be shown.
    """
    weighting: bool = True
    """Weighted aggregation (algorithm 3); off: the plain mean of the cluster."""
    clustering: bool = True
    """Recursive clustering (algorithm 4); off: a single cluster."""

    def __post_init__(self) -> None:
        if not self.similarity_bound < 1:
            raise UserError(
                f"similarity_bound is {self.similarity_bound}; it must be below 1 (1 − 1e-9 is local training)"
            )
        if not 0 <= self.top_ratio <= 1:
            raise UserError(f"top_ratio is {self.top_ratio}; it is a share between 0 and 1")
        if self.patience < 1:
            raise UserError(f"patience is {self.patience}; at least 1 round below the threshold is needed")
        if not 0 < self.split_level <= 1:
            raise UserError(
                f"split_level is {self.split_level}; it is a level above 0, such as 0.01, and at most 1 (split always)"
            )

    # -- algorithm 5, the server -----------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedPrefState:
        """Lines 1 and 2: one cluster, all clients at the same model."""
        n = len(setting.clients)
        return FedPrefState(
            setting,
            models=personal.same_start(setting),
            clusters=(Cluster(tuple(range(n))),),
            similarity=torch.eye(n, dtype=setting.initial.dtype),
        )

    def ask(self, state: FedPrefState) -> list[Tasks]:
        """Line 4: each client trains its own model θ_i."""
        return personal.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training under the client's own preference (eq. 4.1)."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedPrefState, replies: Replies) -> FedPrefState:
        """Lines 5 to 21. A client without a valid reply keeps its model and its cluster."""
        trained, replied = personal.trained_models(state, replies)
        clusters = self._split_converged(state, trained, replied)
        similarity = self._similarity(clusters, state.models, trained, state.setting.layout)
        weights = self._weights(clusters, similarity, replied)
        return replace(state, models=weights @ trained, clusters=clusters, similarity=similarity, round=state.round + 1)

    def solutions(self, state: FedPrefState) -> Parcels:
        """Each client's personal model."""
        return personal.solutions(state)

    def describe(self, state: FedPrefState) -> dict[str, Any]:
        """The clusters as client ids, and the similarities."""
        return {"clusters": personal.ids(state, state.clusters), "similarity": state.similarity}

    # -- algorithm 3, weighted aggregation -------------------------------------------------------------------------

    def _weights(self, clusters: Sequence[Cluster], similarity: Tensor, replied: np.ndarray) -> Tensor:
        """ŵ of all clients, `[n, n]`: rows sum to one, zero outside a client's cluster (lines 8 to 11)."""
        weights = torch.eye(len(similarity), dtype=similarity.dtype, device=similarity.device)
        for cluster in clusters:
            present = torch.as_tensor(np.intersect1d(cluster.members, replied), device=weights.device)
            block = present[:, None], present
            own = self._scaled(similarity[block]) if self.weighting else torch.ones_like(similarity[block])
            weights[block] = own / own.sum(dim=1, keepdim=True)
        return weights

    def _scaled(self, similarity: Tensor) -> Tensor:
        """w_ij ← (max(sim, s_min) − s_min) / (1 − s_min): clipped (section 4.2.3), then scaled to [0, 1] (line 5)."""
        s_min = self.similarity_bound
        if math.isinf(s_min):
            return torch.ones_like(similarity)
        return (similarity.clamp_min(s_min) - s_min) / (1 - s_min)

    # -- algorithm 4, clustering -----------------------------------------------------------------------------------

    def _split_converged(self, state: FedPrefState, trained: Tensor, replied: np.ndarray) -> tuple[Cluster, ...]:
        """Lines 7 to 14: every cluster, or its two halves once its mean has converged.

        A cluster none of whose members moved has not begun to learn (reinforcement learners collect data first), so it
        has not converged either; a split now would follow rounding errors. Algorithm 4 does not cover this case.
        """
        if not self.clustering:
            return state.clusters
        before = means(state.clusters, state.models)
        change = (before - means(state.clusters, trained)).norm(dim=1)
        if self.threshold_in == "percent":
            change = 100 * change / before.norm(dim=1).clamp_min(1e-12)

        def halve(number: int) -> list[list[int]]:
            members = list(state.clusters[number].members)
            if self.split_level < 1:
                return self._confirmed_halves(state, trained, members)
            updates = trained[members] - before[number]
            return bipartition(similarities(updates, state.setting.layout, self.top_ratio))

        learned = (trained != state.models).any(dim=1).cpu().numpy()
        stands_still = [
            moved <= self.threshold and bool(learned[list(cluster.members)].any())
            for cluster, moved in zip(state.clusters, change.tolist(), strict=True)
        ]
        return split_calm(state.clusters, stands_still, replied, self.patience, halve)

    def _confirmed_halves(self, state: FedPrefState, trained: Tensor, members: list[int]) -> list[list[int]]:
        """Two halves that differ in two rounds, or all members in one. Ours: algorithm 4 has no such test.

        Halves that similarities chose look different in them even if nobody differs. So the round before chooses, and
        this one judges, by what clients did in it: θ'_i − θ_i, for Δθ_i holds what the weights of the round before did.
        """
        rows = torch.tensor(members, device=trained.device)
        halves = bipartition(state.similarity[rows[:, None], rows])
        moves = similarities(trained[rows] - state.models[rows], state.setting.layout, self.top_ratio)
        address = rng.Address(state.setting.seed, client=int(state.setting.clients[members[0]]), round=state.round)
        p = separation_p_value(moves, halves[0], rng.generator(address, "split"))
        return halves if p <= self.split_level else [list(range(len(members)))]

    def _similarity(self, clusters: Sequence[Cluster], before: Tensor, trained: Tensor, layout: Layout) -> Tensor:
        """sim(Δθ_i, Δθ_j) with Δθ_i = θ'_i − θ̄_C (eq. 4.2), where θ̄_C is the mean of i's cluster before training."""
        cluster_of = torch.empty(len(trained), dtype=torch.long, device=trained.device)
        for number, cluster in enumerate(clusters):
            cluster_of[list(cluster.members)] = number
        reference = means(clusters, before)
        updates = trained - (reference if len(clusters) == 1 else reference[cluster_of])
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
    """FedPref's ablation with weighted aggregation only (section 4.3.3): a single cluster."""

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
        total += cosines(top_entries(updates[:, place], ratio))
    return total / len(layout.layers)


def top_entries(vectors: Tensor, ratio: float) -> Tensor:
    """topR of eq. 4.4: the ⌈R·dim⌉ entries largest in magnitude of each row, zeros elsewhere."""
    # R as it is written: 0.55 · 100 is 55, but the product of the floats lies just above it.
    keep = math.ceil(Fraction(str(ratio)) * vectors.shape[1])
    if keep in (0, vectors.shape[1]):
        return vectors
    magnitude = vectors.abs()
    smallest_kept = kth_smallest(magnitude, vectors.shape[1] - keep + 1)
    return magnitude.ge_(smallest_kept).mul_(vectors)  # In place: ones and zeros, then the entries themselves.


def bipartition(similarity: Tensor) -> list[list[int]]:
    """Two halves by spectral clustering (line 9); its affinities must not be negative, hence (s + 1) / 2."""
    from sklearn.cluster import SpectralClustering

    # A positive floor keeps the graph connected, which spectral clustering requires.
    affinity = ((similarity.double() + 1) / 2).clamp_min(1e-6).cpu().numpy()
    labels = SpectralClustering(n_clusters=2, affinity="precomputed", random_state=0).fit_predict(affinity)
    halves = [[i for i, label in enumerate(labels) if label == side] for side in (0, 1)]
    return sorted(half for half in halves if half)
