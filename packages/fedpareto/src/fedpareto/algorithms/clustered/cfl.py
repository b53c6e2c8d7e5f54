"""CFL: Sattler, Müller, Samek, "Clustered federated learning: model-agnostic distributed multi-task optimization under
privacy constraints", 2019.

Clients train one model together until it is stationary while some of them still have large updates; then they are
split in two by the direction of their updates, and each half continues on its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import Cluster, Heard, PersonalState, means, split_calm
from fedpareto.config.bounds import AtLeast, Count
from fedpareto.contract.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.moo.similarity import cosines, cosines_of


@dataclass(frozen=True)
class CFLState(PersonalState):
    """The clients' models; under full participation those of a cluster are equal."""

    clusters: tuple[Cluster, ...] = ()
    """𝒞."""
    similarity: Tensor = torch.empty(0)
    """α_ij of the last round, `[n, n]`; where rounds do not wait, of the clients' last replies."""


@dataclass(frozen=True)
class CFL(Algorithm[CFLState]):
    """One model for each cluster; clusters whose mean update vanishes are recursively split in two."""

    name: ClassVar[str] = "cfl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging inside clusters of similar updates",
        "arbitrary",
    )
    personalised: ClassVar[bool] = True
    clusters_all: ClassVar[bool] = True

    threshold: Annotated[float, AtLeast(0, besides=(math.inf,))] = 0.05
    """ε₁: a cluster is stationary when its mean update is shorter. The paper advises a tenth of the longest update."""
    largest_update: Annotated[float, AtLeast(0, besides=(math.inf,))] = 0.0
    """ε₂: it is split only if the longest update of a member is longer; 0 is the thesis's single threshold."""
    threshold_in: Literal["norm", "percent"] = "norm"
    """Unit of both thresholds: norms (the paper), or percentages of the norm of the cluster's mean model (as for
    FedPref).
    """
    patience: Count = 1
    """Rounds in a row in which both must hold before a cluster is split; the paper's is 1, the thesis tries 1 and 2."""
    linkage: Literal["single", "complete"] = "single"
    """Clustering by which a cluster is split: as in the paper's algorithm 1, which is optimal, or by the published
    code's clustering.
    """
    absent: Literal["keep", "follow"] = "keep"
    """Model of a client without a reply: it keeps its own, or gets that of the others in its cluster."""

    def begin(self, setting: Setting) -> CFLState:
        """One cluster, all clients at the same model."""
        n = len(setting.clients)
        return CFLState(
            setting,
            models=personal_models.same_start(setting),
            heard=personal_models.heard_nobody(setting),
            clusters=(Cluster(tuple(range(n))),),
            similarity=torch.eye(n, dtype=setting.initial.dtype),
        )

    def ask(self, state: CFLState) -> list[Tasks]:
        """Each client trains the model of its cluster."""
        return personal_models.tasks(state, state.clusters)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i + Δθ_i ← local training under the client's own preference."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: CFLState, replies: Replies) -> CFLState:
        """Splits stationary clusters, then averages inside every cluster."""
        trained, replied = personal_models.trained_models(state, replies)
        heard = None if state.heard is None else personal_models.hear(state, replied, replies["model"])
        if heard is not None and len(replied) < len(trained):
            return self._tell_some(state, heard, replied)
        updates = trained - state.models
        similarity = cosines(updates)
        clusters = self._split(state, updates, similarity, replied)
        models = self._average(clusters, trained, replied)
        if heard is not None:
            heard = replace(heard, since=torch.zeros_like(heard.since))  # All clusters were examined.
        return replace(
            state, models=models, heard=heard, clusters=clusters, similarity=similarity, round=state.round + 1
        )

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Left as it is, unless the model of its client has followed others meanwhile."""
        return super().refreshed(reply, begun, now, weights) if self.absent == "follow" else reply

    def solutions(self, state: CFLState) -> Parcels:
        """Each client's model."""
        return personal_models.solutions(state)

    def describe(self, state: CFLState) -> dict[str, Any]:
        """The clusters as client ids, and the similarities, of many clients those of a sample."""
        rows = torch.as_tensor(personal_models.shown(state.setting), device=state.similarity.device)
        similarity = state.similarity[rows[:, None], rows]
        return {
            "clusters": personal_models.ids(state, state.clusters),
            **personal_models.told(state.setting, similarity),
        }

    def _split(self, state: CFLState, updates: Tensor, similarity: Tensor, replied: np.ndarray) -> tuple[Cluster, ...]:
        """Every cluster, or its two halves if ‖mean Δθ_i‖ < ε₁ and max ‖Δθ_i‖ > ε₂."""
        mean_update = means(state.clusters, updates).norm(dim=1)
        length = updates.norm(dim=1)
        longest = torch.stack([length[list(cluster.members)].max() for cluster in state.clusters])
        if self.threshold_in == "percent":
            own = means(state.clusters, state.models).norm(dim=1).clamp_min(1e-12)
            mean_update, longest = 100 * mean_update / own, 100 * longest / own
        stands_still = (mean_update < self.threshold) & (longest > self.largest_update)

        def halve(number: int) -> list[list[int]]:
            # These are positions among the cluster's members, not clients: split_calm maps them to clients.
            members = list(state.clusters[number].members)
            return bipartition(similarity[members][:, members], self.linkage)

        return split_calm(state.clusters, stands_still.tolist(), replied, self.patience, halve)

    def _average(self, clusters: Sequence[Cluster], trained: Tensor, replied: np.ndarray) -> Tensor:
        """θ_i ← mean of the trained models of i's cluster."""
        models = trained.clone()
        for cluster in clusters:
            present = np.intersect1d(cluster.members, replied)
            if len(present):
                models[list(cluster.members) if self.absent == "follow" else present] = trained[present].mean(dim=0)
        return models

    def _tell_some(self, state: CFLState, heard: Heard, replied: np.ndarray) -> CFLState:
        """Take the round where it does not wait for all: of the others their last replies count, once they have
        replied.

        A cluster is examined when each member has replied since the last time.
        """
        rows, everyone = torch.as_tensor(replied, device=state.models.device), np.arange(len(state.models))
        similarity = state.similarity.clone()
        similarity[rows] = cosines_of(rows, heard.moves)
        similarity[:, rows] = similarity[rows].T

        def split(complete: Sequence[Cluster]) -> tuple[Cluster, ...]:
            return self._split(replace(state, clusters=tuple(complete)), heard.moves, similarity, everyone)

        clusters, after = personal_models.examined(state.clusters, heard, replied, split)
        known, models = np.flatnonzero(heard.ever.cpu().numpy()), state.models.clone()
        for number in np.unique(personal_models.cluster_numbers(clusters, len(models))[replied]):
            members = np.array(clusters[number].members)
            changed = members if self.absent == "follow" else np.intersect1d(members, replied)
            models[changed] = heard.trained[np.intersect1d(members, known)].mean(dim=0)
        return replace(
            state, models=models, heard=after, clusters=clusters, similarity=similarity, round=state.round + 1
        )


def bipartition(similarity: Tensor, linkage: Literal["single", "complete"] = "single") -> list[list[int]]:
    """Two halves whose largest similarity across is as small as possible (algorithm 1, "optimal bipartition").

    The paper joins the most similar pairs first until two groups are left, which is single linkage. The published code
    uses complete linkage, which keeps the halves compact instead and can leave a more similar pair apart.
    """
    from scipy.cluster.hierarchy import cut_tree
    from scipy.cluster.hierarchy import linkage as merge
    from scipy.spatial.distance import squareform

    distance = (1 - similarity.double()).clamp_min(0).cpu().numpy()
    condensed = squareform((distance + distance.T) / 2, checks=False)
    labels = cut_tree(merge(condensed, method=linkage), n_clusters=2).ravel()
    return sorted([i for i, label in enumerate(labels) if label == side] for side in (0, 1))
