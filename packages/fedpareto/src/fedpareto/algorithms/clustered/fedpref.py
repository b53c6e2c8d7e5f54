"""FedPref: Hartmann, Danoy, Bouvry; thesis chapter 4 (algorithms 3, 4 and 5; equations 4.2 to 4.5).

Every client has a private preference and gets a personal model. Clients whose updates are similar are aggregated with
more weight; a cluster whose mean has converged is split in two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import Cluster, Heard, PersonalState, means, split_calm
from fedpareto.config.bounds import Bounds, Count, PositiveShare, Share
from fedpareto.contract.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks, take_rows
from fedpareto.moo.selection import kth_smallest
from fedpareto.moo.separation import separation_p_value
from fedpareto.moo.similarity import cosines
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout


@dataclass(frozen=True)
class FedPrefState(PersonalState):
    """A personal model for every client, in clusters."""

    clusters: tuple[Cluster, ...] = ()
    """𝒞."""
    similarity: Tensor = torch.empty(0)
    """sim(Δθ_i, Δθ_j) of the clients that replied in the last round, `[k, k]`; each Δθ is taken from its client's own
    cluster mean.
    """
    compared: Tensor = torch.empty(0, dtype=torch.int64)
    """Rows of these clients in the state's tensors, ascending, `[k]`."""
    directions: Tensor = torch.empty(0)
    """Vectors of each client's last Δθ whose products are sim, `[n, d]`, where rounds do not wait; 0 before."""
    examined: Tensor = torch.empty(0)
    """Directions when the cluster was last examined, `[n, d]`, with a `split_level`."""


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
    clusters_all: ClassVar[bool] = True
    of_server: ClassVar[tuple[str, ...]] = (
        *("similarity_bound", "top_ratio", "threshold", "threshold_in", "patience", "split_level"),
        *("weighting", "clustering"),
    )

    similarity_bound: Annotated[float, Bounds(below=1)] = -1.0
    """Threshold s_min: similarities below it do not count. The thesis finds −1 good everywhere; −inf weights all
    members equally.
    """
    top_ratio: Share = 0.4
    """R of topR: the share of each layer's largest entries that similarity looks at; 0 or 1 is the plain cosine."""
    threshold: float = 0.05
    """ε: a cluster has converged when its mean moved by no more."""
    threshold_in: Literal["norm", "percent"] = "norm"
    """Unit of ε: the norm of the movement (section 4.2.5), or a percentage of the mean's own norm (table A.10)."""
    patience: Count = 1
    """Rounds in a row below the threshold before a cluster is split."""
    split_level: PositiveShare = 1.0
    """α: a converged cluster is split only if halves chosen in the round before stand apart in this round with a p
    value of at most α. 1 splits always, as algorithm 4 does; 0.01 stops where no difference can be shown.
    """
    weighting: bool = True
    """Weighted aggregation (algorithm 3); off: the plain mean of the cluster."""
    clustering: bool = True
    """Recursive clustering (algorithm 4); off: a single cluster."""

    # -- algorithm 5, the server -----------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedPrefState:
        """Lines 1 and 2: one cluster, all clients at the same model."""
        everyone = Cluster(tuple(range(len(setting.clients))))
        state = FedPrefState(setting, models=personal_models.same_start(setting), clusters=(everyone,))
        if setting.waits:
            return state
        nothing = torch.zeros_like(state.models)
        return replace(state, heard=personal_models.heard_nobody(setting), directions=nothing, examined=nothing)

    def ask(self, state: FedPrefState) -> list[Tasks]:
        """Line 4: each client trains its own model θ_i."""
        return personal_models.tasks(state, state.clusters)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training under the client's own preference (eq. 4.1)."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedPrefState, replies: Replies) -> FedPrefState:
        """Lines 5 to 21. A client without a valid reply keeps its model and its cluster."""
        replied, trained = state.setting.rows(replies.clients), replies["model"]
        if state.heard is not None and len(replied) < len(state.models):
            return self._tell_some(state, replied, trained)
        clusters = self._split_converged(state, trained, replied)
        here = [_places(cluster, replied) for cluster in clusters]
        similarity = self._similarity(state, clusters, replied, here, trained)
        mixed = self._weights(here, similarity) @ trained
        after = replace(
            state,
            models=personal_models.with_rows(state.models, replied, mixed),
            clusters=clusters,
            similarity=similarity,
            compared=torch.as_tensor(replied),
            round=state.round + 1,
        )
        return after if state.heard is None else self._remembered(state, after, trained)

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Left as it is: nobody else changes a client's θ_i, so a late reply meets the model from which it began."""
        return reply

    def solutions(self, state: FedPrefState) -> Parcels:
        """Each client's personal model."""
        return personal_models.solutions(state)

    def describe(self, state: FedPrefState) -> dict[str, Any]:
        """The clusters as client ids, and the similarities `[n, n]`, of many clients those of a sample."""
        rows = personal_models.shown(state.setting)
        _, here, there = np.intersect1d(rows, state.compared.cpu().numpy(), assume_unique=True, return_indices=True)
        similarity = torch.eye(len(rows), dtype=state.models.dtype, device=state.models.device)
        if len(here):
            similarity[here[:, None], here] = state.similarity[there[:, None], there].to(similarity)
        return {
            "clusters": personal_models.ids(state, state.clusters),
            **personal_models.told(state.setting, similarity),
        }

    # -- algorithm 3, weighted aggregation -------------------------------------------------------------------------

    def _weights(self, here: Sequence[np.ndarray], similarity: Tensor) -> Tensor:
        """ŵ of the clients that replied, `[k, k]`: rows sum to one, zero outside a client's cluster (lines 8 to 11).

        `here` are the places of each cluster's members among them.
        """
        weights = torch.zeros_like(similarity)
        for places in here:
            present = torch.as_tensor(places, device=weights.device)
            block = present[:, None], present
            own = self._scaled(similarity[block]) if self.weighting else torch.ones_like(similarity[block])
            weights[block] = own / own.sum(dim=1, keepdim=True)
        return weights

    def _scaled(self, similarity: Tensor) -> Tensor:
        return scaled(similarity, self.similarity_bound)

    # -- algorithm 4, clustering -----------------------------------------------------------------------------------

    def _split_converged(self, state: FedPrefState, trained: Tensor, replied: np.ndarray) -> tuple[Cluster, ...]:
        """Lines 7 to 14: every cluster, or its two halves once its mean has converged.

        A cluster none of whose members moved has not begun to learn (reinforcement learners collect data first), so it
        has not converged either; a split now would follow rounding errors. Algorithm 4 does not cover this case.
        """
        if not self.clustering:
            return state.clusters
        before, here = means(state.clusters, state.models), [_places(cluster, replied) for cluster in state.clusters]
        # For a cluster that did not reply as a whole this is no movement, and does not count: see split_calm.
        change = self._change(before - personal_models.means_of(here, trained), before)

        def halve(number: int) -> list[list[int]]:
            own = trained[torch.as_tensor(here[number], device=trained.device)]
            if self.split_level < 1:
                return self._confirmed_halves(state, own, np.array(state.clusters[number].members))
            return bipartition(self._compared(state, replied[here[number]], own - before[number]))

        learned = (trained != take_rows(state.models, replied)).any(dim=1).cpu().numpy()
        stands_still = [
            moved <= self.threshold and bool(learned[places].any())
            for places, moved in zip(here, change.tolist(), strict=True)
        ]
        return split_calm(state.clusters, stands_still, replied, self.patience, halve)

    def _change(self, movement: Tensor, before: Tensor) -> Tensor:
        """The movement that is compared with ε, `[clusters]`."""
        change: Tensor = movement.norm(dim=1)
        return 100 * change / before.norm(dim=1).clamp_min(1e-12) if self.threshold_in == "percent" else change

    def _confirmed_halves(self, state: FedPrefState, trained: Tensor, members: np.ndarray) -> list[list[int]]:
        """Two halves that differ in two rounds, or all members in one. Ours: algorithm 4 has no such test.

        Halves that similarities chose look different in them even if nobody differs. So the round before chooses, and
        this one judges, by what clients did in it: θ'_i − θ_i, for Δθ_i holds what the weights of the round before did.
        `trained` are the members' models `[members, d]`.
        """
        everyone, compared = [list(range(len(members)))], state.compared.cpu().numpy()
        if not np.isin(members, compared).all():
            return everyone  # There was no such round.
        places = torch.as_tensor(np.searchsorted(compared, members), device=state.similarity.device)
        halves = bipartition(state.similarity[places[:, None], places])
        return self._if_shown(halves, state, trained - take_rows(state.models, members), members)

    def _if_shown(
        self, halves: list[list[int]], state: FedPrefState, moves: Tensor, members: np.ndarray
    ) -> list[list[int]]:
        """The halves if the members' moves `[members, d]` differ between them, or all members in one."""
        similarity = self._compared(state, members, moves)
        address = rng.Address(state.setting.seed, client=int(state.setting.clients[members[0]]), round=state.round)
        p = separation_p_value(similarity, halves[0], rng.generator(address, "split"))
        return halves if p <= self.split_level else [list(range(len(members)))]

    def _similarity(
        self,
        state: FedPrefState,
        clusters: Sequence[Cluster],
        replied: np.ndarray,
        here: Sequence[np.ndarray],
        trained: Tensor,
    ) -> Tensor:
        """sim(Δθ_i, Δθ_j) with Δθ_i = θ'_i − θ̄_C (eq. 4.2), where θ̄_C is the mean of i's cluster before training."""
        cluster_of = torch.empty(len(trained), dtype=torch.long, device=trained.device)
        for number, places in enumerate(here):
            cluster_of[torch.as_tensor(places, device=trained.device)] = number
        reference = means(clusters, state.models)
        updates = trained - (reference if len(clusters) == 1 else reference[cluster_of])
        return self._compared(state, replied, updates)

    def _compared(self, state: FedPrefState, rows: np.ndarray, updates: Tensor) -> Tensor:
        """sim among the clients in these rows, `[k, k]`, by their updates `[k, d]`."""
        return similarities(updates, state.setting.layout, self.top_ratio)

    # -- rounds that do not wait for all ---------------------------------------------------------------------------

    def _tell_some(self, state: FedPrefState, replied: np.ndarray, trained: Tensor) -> FedPrefState:
        """Lines 5 to 21 with some replies: of the others of a cluster those models count that they last replied with.

        Only the θ_i of those who replied change. Algorithm 4 has its turn once a cluster's members have all replied.
        The similarities of k replies with all n are computed, and no others.
        """
        heard = personal_models.hear(state, replied, trained)
        state = self._directed(replace(state, heard=heard), replied)
        if self.clustering:
            state = self._examine(state, heard, replied)
        rows = torch.as_tensor(replied, device=trained.device)
        similarity = products(state.directions[rows], state.directions)
        similarity[torch.arange(len(rows), device=rows.device), rows] = 1
        number = torch.as_tensor(personal_models.cluster_numbers(state.clusters, len(state.models)), device=rows.device)
        together = (number[rows, None] == number) & heard.ever
        weights = (self._scaled(similarity) if self.weighting else torch.ones_like(similarity)) * together
        return replace(
            state,
            models=personal_models.with_rows(
                state.models, replied, weights / weights.sum(dim=1, keepdim=True) @ heard.trained
            ),
            similarity=similarity[:, rows],
            compared=torch.as_tensor(replied),
            round=state.round + 1,
        )

    def _examine(self, state: FedPrefState, heard: Heard, replied: np.ndarray) -> FedPrefState:
        """Algorithm 4, lines 7 to 14, for clusters whose members have all replied; each counts with its last reply."""

        def split(complete: Sequence[Cluster]) -> tuple[Cluster, ...]:
            change = self._change(means(complete, heard.moves), means(complete, state.models))
            stands_still = [
                moved <= self.threshold and bool(heard.moves[list(cluster.members)].any())
                for cluster, moved in zip(complete, change.tolist(), strict=True)
            ]

            def halve(number: int) -> list[list[int]]:
                members = np.array(complete[number].members)
                if self.split_level == 1:
                    return bipartition(products_of(state.directions[members]))
                if not state.examined[members].any():
                    return [list(range(len(members)))]
                halves = bipartition(products_of(state.examined[members]))
                return self._if_shown(halves, state, heard.moves[members], members)

            return split_calm(complete, stands_still, np.arange(len(state.models)), self.patience, halve)

        clusters, after = personal_models.examined(state.clusters, heard, replied, split)
        looked_at = np.flatnonzero((heard.since & ~after.since).cpu().numpy())
        state = replace(state, clusters=clusters, heard=after)
        if not len(looked_at):
            return state
        state = self._directed(state, looked_at)
        return replace(
            state, examined=personal_models.with_rows(state.examined, looked_at, state.directions[looked_at])
        )

    def _directed(self, state: FedPrefState, rows: np.ndarray) -> FedPrefState:
        """Note the directions of Δθ_i = θ'_i − θ̄_C (eq. 4.2) of some rows, from their clusters' means as they are."""
        assert state.heard is not None, "a state made by begin has it where rounds do not wait"
        number, place = np.unique(
            personal_models.cluster_numbers(state.clusters, len(state.models))[rows], return_inverse=True
        )
        reference = means([state.clusters[each] for each in number], state.models)
        updates = take_rows(state.heard.trained, rows) - reference[torch.as_tensor(place, device=reference.device)]
        found = directions(updates, state.setting.layout, self.top_ratio)
        return replace(state, directions=personal_models.with_rows(state.directions, rows, found))

    def _remembered(self, state: FedPrefState, after: FedPrefState, trained: Tensor) -> FedPrefState:
        """Update the memory after a round in which all have replied, and all clusters were examined."""
        everyone = np.arange(len(trained))
        heard = personal_models.hear(state, everyone, trained)
        directed = self._directed(replace(state, clusters=after.clusters, heard=heard), everyone).directions
        heard = replace(heard, since=torch.zeros_like(heard.since))
        return replace(after, heard=heard, directions=directed, examined=directed)


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


def _places(cluster: Cluster, replied: np.ndarray) -> np.ndarray:
    """Places of a cluster's members among the clients that replied."""
    return np.flatnonzero(np.isin(replied, cluster.members))


def scaled(similarity: Tensor, s_min: float) -> Tensor:
    """w_ij ← (max(sim, s_min) − s_min) / (1 − s_min): clipped (section 4.2.3), then scaled to [0, 1] (line 5).

    In double precision: in single, an s_min just below 1 is 1, and nobody counts, not even a client for itself.
    """
    if math.isinf(s_min):
        return torch.ones_like(similarity)
    return ((similarity.double().clamp_min(s_min) - s_min) / (1 - s_min)).to(similarity)


def similarities(updates: Tensor, layout: Layout, ratio: float) -> Tensor:
    """sim of eq. 4.3: the cosine of the topR entries, averaged over layers; `[n, d]` to `[n, n]`.

    A client is always similar to itself (1), also where it did not move and a cosine would be undefined.
    """
    total = updates.new_zeros(len(updates), len(updates))
    for place in layout.layers.values():
        total += cosines(top_entries(updates[:, place], ratio))
    return total / len(layout.layers)


def directions(updates: Tensor, layout: Layout, ratio: float) -> Tensor:
    """Vectors `[n, d]` whose inner products are sim of eq. 4.3, of different updates: kept, they are compared with
    others later at the cost of a product.
    """
    found = torch.zeros_like(updates)
    for place in layout.layers.values():
        kept = top_entries(updates[:, place], ratio)
        lengths = kept.norm(dim=1, keepdim=True).clamp_min(torch.finfo(kept.dtype).tiny)
        found[:, place] = kept / (lengths * math.sqrt(len(layout.layers)))
    return found


def products(some: Tensor, others: Tensor) -> Tensor:
    """sim of each pair of directions, `[k, d]` and `[n, d]` to `[k, n]`."""
    return (some @ others.T).clamp(-1, 1)


def products_of(members: Tensor) -> Tensor:
    """sim among directions `[n, d]`, `[n, n]`; a client is always similar to itself."""
    return products(members, members).fill_diagonal_(1)


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
