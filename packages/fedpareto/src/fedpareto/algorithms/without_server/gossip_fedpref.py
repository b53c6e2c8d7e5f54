"""Gossip FedPref: the weighted aggregation of thesis chapter 4 (algorithm 3) without a server, among neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.neighbours import Gossip
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.algorithms.clustered.fedpref import scaled, top_entries
from fedpareto.config.bounds import Bounds, Share
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.messages import Replies, take_rows
from fedpareto.moo.neighbourhoods import Neighbourhoods
from fedpareto.moo.similarity import cosines_of_pairs
from fedpareto.moo.updates import ENTRIES
from fedpareto.tensors.layout import Layout


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

    similarity_bound: Annotated[float, Bounds(below=1)] = -1.0
    """s_min of FedPref: similarities below it do not count; −inf weighs all neighbours equally."""
    top_ratio: Share = 0.4
    """R of topR: the share of each layer's largest entries that similarity looks at; 0 or 1 is the plain cosine."""

    def mixtures(self, state: PersonalState, rows: np.ndarray, replies: Replies) -> Tensor:
        """Σ_j ŵ_ij θ'_j with ŵ of algorithm 3, lines 5 to 11, over those heard."""
        return mixtures(state, rows, replies["model"], self.heard(state, rows), self.similarity_bound, self.top_ratio)


def mixtures(
    state: PersonalState, rows: np.ndarray, trained: Tensor, heard: Neighbourhoods, bound: float, ratio: float
) -> Tensor:
    """Mix for each of the clients in these rows, who trained `[k, d]`, the models of those whom it heard, `[k, d]`."""
    before = take_rows(state.models, rows)
    return heard.mean(scaled(_alike(before, trained, heard, state.setting.layout, ratio), bound), trained)


def _alike(before: Tensor, trained: Tensor, heard: Neighbourhoods, layout: Layout, ratio: float) -> Tensor:
    """sim(Δθ_i, Δθ_j) of eq. 4.3 of each client i and those whom it hears, `[pairs]`: the cosine of the topR entries,
    averaged over layers; with oneself 1. A block of pairs at a time, so that no more memory is needed than for models.
    """
    who, whom = (torch.as_tensor(ends, device=trained.device) for ends in (heard.who, heard.whom))
    own = [top_entries(trained[:, place] - before[:, place], ratio) for place in layout.layers.values()]
    found = trained.new_zeros(len(who))
    size = max(ENTRIES // layout.size, 1)
    for start in range(0, len(who), size):
        block = slice(start, start + size)
        one, other = who[block], whom[block]
        for mine, place in zip(own, layout.layers.values(), strict=True):
            theirs = top_entries(trained[other, place] - before[one, place], ratio)
            found[block] += cosines_of_pairs(mine[one], theirs)
    return torch.where(who == whom, 1.0, found / len(own))
