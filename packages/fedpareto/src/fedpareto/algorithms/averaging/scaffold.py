"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", 2020, algorithm 1
with option II.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Positive, Share
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part


@dataclass(frozen=True)
class ScaffoldState(FedAvgState):
    """The global model x, and c, where all clients together would go, `[d]` each."""

    control: Tensor = torch.empty(0)


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg whose clients correct each local step by how their own gradients differ from everybody's.

    A control variate c_i, the mean gradient of client i when it trained last, stays with the client; their mean over
    all clients, c, is the server's. A local step goes along g_i(y) − c_i + c instead of g_i(y).
    """

    name: ClassVar[str] = "scaffold"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging of corrected local steps",
        "arbitrary",
    )
    needs: ClassVar[Needs] = "weighted sum"
    reveals: ClassVar[tuple[str, ...]] = ("change",)  # A gradient, however short the steps are.
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    waits: ClassVar[str] = "a control variate corrects steps from the model that everybody was sent"

    weighting: Literal["size", "equal"] = "equal"
    """Weighting of clients: by their number of training rows (`size`), or equally, as in the paper."""
    server_lr: Positive = 1.0
    """η_g: how far the server goes along the mean update."""
    correction: Share = 1.0
    """The share of c − c_i that is added to gradients; 1 is the paper's, 0 is FedAvg."""

    @property
    def sums(self) -> bool:  # type: ignore[override]
        """True with equal weights; otherwise models and changes of controls have different ones."""
        return self.weighting == "equal"

    def begin(self, setting: Setting) -> ScaffoldState:
        """x⁰ and c = 0."""
        return ScaffoldState(setting, model=setting.initial, control=torch.zeros_like(setting.initial))

    def private_state(self, setting: Setting) -> Message:
        """c_i = 0."""
        return {"control": torch.zeros_like(setting.initial)}

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant gets x and c (line 3)."""
        assert isinstance(state, ScaffoldState), "a state made by begin"
        return to_participants(state, model=state.model, control=state.control)

    def train(self, clients: Clients, message: Message) -> Message:
        """y_i ← y_i − η_l (g_i(y_i) + c − c_i), then c_i ← c_i − c + (x − y_i) / (K η_l) (lines 10 and 12)."""
        x, c, c_i = message["model"], message["control"], clients.state["control"]
        slope = self.correction * (c - c_i)
        y = clients.learn(x, pull=Pull(0.0, x, slope) if self.correction else None)
        # The client's own gradients: the mean of all steps, without what was added to them.
        reach = clients.reach().unsqueeze(1)
        own = torch.where(reach > 0, (x - y) / reach.clamp_min(torch.finfo(x.dtype).tiny) - slope, c_i)
        clients.state["control"] = own
        return {**self._reply(clients, y), "change": own - c_i}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, what c_i has changed by, and the number of rows where weights need it."""
        return {"train": {**super().reply_shapes(setting)["train"], "change": (setting.layout.size,)}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """A change beside the model."""
        return {**super().reply_parts, "change": "update"}

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """x ← x + η_g mean of (y_i − x), c ← c + |S|/N mean of the changes (lines 16 and 17)."""
        assert isinstance(state, ScaffoldState), "a state made by begin"
        update = replies.weighted_mean("model", self._weights(state, replies)) - state.model
        everybody = state.model.new_full((len(replies),), 1 / len(state.setting.clients))
        control = state.control + replies.sum("change", everybody)
        return replace(state, model=state.model + self.server_lr * update, control=control, round=state.round + 1)
