"""FedAvg within groups that are known beforehand, such as the planes of a constellation.

Where it is known who has similar data, section 6.1.2 of the thesis advises to group clients by it instead of finding
clusters while they learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedpareto.algorithms._shared import few_models
from fedpareto.algorithms._shared.few_models import FewState
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class FedAvgGroups(Algorithm[FewState]):
    """One model for each of some given groups: the mean of its members' models after local training."""

    name: ClassVar[str] = "fedavg-groups"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging inside given groups", "arbitrary"
    )
    personalised: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"

    groups: tuple[int, ...] = (5,)
    """One number: so many groups of neighbours, as even as can be, such as the planes of a shell. Several: the group of
    each client.
    """
    weighting: Literal["size", "equal"] = "size"
    """Weighting of the clients of a group: by their number of training rows (`size`), or equally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.groups or min(self.groups) < (1 if len(self.groups) == 1 else 0):
            raise UserError(
                f"groups is {list(self.groups)}; it is how many there are, such as 5, or the group of each client, "
                "such as 0,0,1,1"
            )

    def begin(self, setting: Setting) -> FewState:
        """All groups at θ⁰."""
        return FewState(setting, models=few_models.same_start(setting, int(self._of(setting).max()) + 1))

    def ask(self, state: FewState) -> list[Tasks]:
        """Every participant trains the model of its group."""
        present = participants(state)
        group = self._of(state.setting)[state.setting.rows(present)]
        return [Tasks(present, own={"model": state.models[group]}, round=state.round + 1, groups=group)]

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← local training from the group's model under the client's own preference."""
        size = {"size": clients.sizes} if self.weighting == "size" else {}
        return {"model": clients.learn(message["model"])} | size

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the number of rows where weights need it."""
        size: Shapes = {"size": ()} if self.weighting == "size" else {}
        return {"train": {"model": (setting.layout.size,), **size}}

    def tell(self, state: FewState, replies: Replies) -> FewState:
        """θ_g ← Σ_{i ∈ g} (n_i / Σ_{i ∈ g} n) θ_i; a group without a reply stays where it is."""
        models = state.models
        group = torch.as_tensor(self._of(state.setting)[state.setting.rows(replies.clients)], device=models.device)
        models = few_models.means(models, replies, group, self.weighting)
        return replace(state, models=models, round=state.round + 1)

    def solutions(self, state: FewState) -> Parcels:
        return Parcels(state.setting.clients, own={"model": state.models[self._of(state.setting)]})

    def describe(self, state: FewState) -> dict[str, Any]:
        """The groups as client ids."""
        group = self._of(state.setting)
        return {"clusters": [state.setting.clients[group == g].tolist() for g in range(len(state.models))]}

    def _of(self, setting: Setting) -> np.ndarray:
        """The number of each client's group, `[n]`: 0, 1, … without gaps."""
        n = len(setting.clients)
        if len(self.groups) == 1:
            return np.arange(n) * min(self.groups[0], n) // n
        if len(self.groups) != n:
            raise UserError(
                f"groups has {len(self.groups)} numbers for {n} clients; give one for each of them, or a single one, "
                "which is how many groups there are"
            )
        return np.unique(self.groups, return_inverse=True)[1]
