"""Gossip FedPref: the weighted aggregation of thesis chapter 4 (algorithm 3) without a server, among neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.distributed import Gossip
from fedpareto.algorithms.fedpref import FedPref, scaled, similarities
from fedpareto.algorithms.personal import PersonalState
from fedpareto.core.algorithm import Taxonomy
from fedpareto.core.messages import Replies, take_rows
from fedpareto.moo.updates import weighted_sum


@dataclass(frozen=True)
class GossipFedPref(Gossip):
    """Each client weighs its neighbours by how similar their models moved, as FedPref's server does.

    Ours: Δθ_j = θ'_j − θ_i is taken from the client's own model, the only one from before that it knows, where FedPref
    takes a cluster's mean. There are no clusters: nobody sees one as a whole.
    """

    name: ClassVar[str] = "gossip-fedpref"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "fully distributed", "linearised preferences, similarity-based aggregation of neighbours", "arbitrary"
    )

    similarity_bound: float = -1.0
    """s_min of FedPref: similarities below it do not count; −inf weighs all neighbours equally."""
    top_ratio: float = 0.4
    """R of topR: the share of each layer's largest entries that similarity looks at; 0 or 1 is the plain cosine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        FedPref(similarity_bound=self.similarity_bound, top_ratio=self.top_ratio)  # It says what is wrong with them.

    def mixtures(self, state: PersonalState, rows: np.ndarray, replies: Replies) -> Tensor:
        """Σ_j ŵ_ij θ'_j with ŵ of algorithm 3, lines 5 to 11, over those heard."""
        return mixtures(state, rows, replies["model"], self.heard(state, rows), self.similarity_bound, self.top_ratio)


def mixtures(
    state: PersonalState, rows: np.ndarray, trained: Tensor, heard: Sequence[np.ndarray], bound: float, ratio: float
) -> Tensor:
    """Of clients in these rows, who trained `[k, d]`, the mixtures `[k, d]` of those whom each of them heard."""
    found = []
    for place, (row, others) in enumerate(zip(rows.tolist(), heard, strict=True)):
        models = take_rows(trained, others)
        own = int(np.searchsorted(others, place))
        alike = similarities(models - state.models[row], state.setting.layout, ratio)[own]
        weights = scaled(alike, bound)
        found.append(weighted_sum(weights / weights.sum(), models))
    return torch.stack(found)
