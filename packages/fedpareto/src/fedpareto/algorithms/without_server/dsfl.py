"""DSFL: Wu, Zhu, Wang, "DSFL: Decentralized satellite federated learning for energy-aware LEO constellation computing",
2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.neighbours import Gossip
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.messages import Replies
from fedpareto.moo import graphs


@dataclass(frozen=True)
class DSFL(Gossip):
    """No server: each client trains its own model and mixes it with those of its neighbours, θ_i ← Σ_j W_ij θ'_j.

    W has Metropolis weights, so the mean of all models is that of the trained ones. The paper also chooses by their
    energy who trains; here that is the run's selection.
    """

    name: ClassVar[str] = "dsfl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "fully distributed", "linearised preferences, gossip averaging", "arbitrary"
    )

    graph: Literal["ring", "grid", "torus", "random-regular", "small-world", "complete", "edges"] = "torus"
    """Kind of graph, as of gossip-fedavg."""

    def mixtures(self, state: PersonalState, rows: np.ndarray, replies: Replies) -> Tensor:
        """Σ_j W_ij θ'_j. The weights of those who did not train stay with their neighbours' own models."""
        graph = self.neighbours(len(state.setting.clients))
        heard = graph.among(rows).neighbourhoods
        return heard.mixed(torch.as_tensor(graphs.metropolis(heard, graph.degrees[rows])), replies["model"])
