"""FedPref without private preferences: what would clients have if the server knew what they want?

Of our own, for the question of section 2.3 (viii) of the thesis. Where FedPref (chapter 4) compares clients by their
updates, this compares the preferences w that they send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms.clustered.fedpref import FedPref, FedPrefState
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes


@dataclass(frozen=True)
class FedPrefPublicState(FedPrefState):
    """FedPref's, and what the clients said."""

    preferences: Tensor = torch.empty(0)
    """w, `[n, m]`; 0 before a client's first reply."""


@dataclass(frozen=True)
class FedPrefPublic(FedPref):
    """FedPref whose similarity is that of the clients' true preferences, which they send with their models."""

    name: ClassVar[str] = "fedpref-public"
    taxonomy: ClassVar[Taxonomy] = replace(
        FedPref.taxonomy, method="linearised public preferences, preference-based aggregation and clustering"
    )
    reveals: ClassVar[tuple[str, ...]] = ("preference",)
    waits: ClassVar[str] = "its clusters are examined with the preferences of a whole round"

    def begin(self, setting: Setting) -> FedPrefPublicState:
        """One cluster, and nothing known about anybody."""
        nothing = setting.initial.new_zeros(len(setting.clients), len(setting.objectives))
        return FedPrefPublicState(**vars(super().begin(setting)), preferences=nothing)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i as in FedPref, and w_i."""
        return {**super().train(clients, message), "preference": clients.preferences}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model and the preference."""
        return {"train": {"model": (setting.layout.size,), "preference": (len(setting.objectives),)}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Weights are shares."""
        return {**super().reply_limits, "preference": (0.0, 1.0)}

    def tell(self, state: FedPrefState, replies: Replies) -> FedPrefState:
        """Note the preferences, then go on as in FedPref."""
        assert isinstance(state, FedPrefPublicState), "made so by begin"
        known = personal_models.with_rows(state.preferences, state.setting.rows(replies.clients), replies["preference"])
        return super().tell(replace(state, preferences=known), replies)

    def _compared(self, state: FedPrefState, rows: np.ndarray, updates: Tensor) -> Tensor:
        """1 − ‖w_i − w_j‖₁: 1 for who wants the same, −1 for who wants nothing in common, as far apart as cosines."""
        assert isinstance(state, FedPrefPublicState), "made so by begin"
        wanted = state.preferences[torch.as_tensor(rows, device=state.preferences.device)].to(updates)
        return 1 - torch.cdist(wanted, wanted, p=1)
