"""HeteroFL: Diao, Ding and Tarokh, "HeteroFL: computation and communication efficient federated learning for
heterogeneous clients", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import PositiveShare
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy, participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Tasks
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.widths import ROUNDING, cost_of, slice_of


@dataclass(frozen=True)
class HeteroFL(FedAvg):
    """FedAvg of networks of different widths: a weak device trains the first units of each hidden layer.

    A client of width r has the slice θ ⊙ m_r of the global model θ, which is a narrower network (see widths). It
    trains, sends and uses only that. Of the paper without its scaler, static batch normalisation and masked loss.
    """

    name: ClassVar[str] = "heterofl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging of slices of the model",
        "arbitrary",
    )
    personalised: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"

    widths: tuple[PositiveShare, ...] = (1.0, 0.5, 0.25)
    """r, the widths there are, as shares of the whole; a client has the largest that its device can train. If nothing
    is known about devices, they are dealt to clients in turn.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths:
            raise UserError("widths is empty; it is shares of the layers' widths, such as 1.0,0.5")

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedAvgState:
        """θ⁰, if it can be narrowed for those who need it."""
        self.shares(setting)
        return super().begin(setting)

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant trains its slice of θ."""
        rows = state.setting.rows(participants(state))
        asked, level = self.solutions(state).only(rows), self._levels(state.setting)[rows]
        return [Tasks(asked.clients, asked.shared, asked.own, round=state.round + 1, groups=level)]

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """Every entry of θ becomes the mean over those who have it; without any it stays."""
        level = self._levels(state.setting)[state.setting.rows(replies.clients)]
        weights, width, model = self._weights(state, replies), np.array(self.widths)[level], state.model
        for r in sorted(set(width.tolist()), reverse=True):  # Slices are nested: a narrower one replaces its part.
            own = weights * torch.as_tensor(width >= r).to(weights)
            mean = replies.sum("model", own / own.sum())
            model = torch.where(slice_of(state.setting.layout, r).to(model.device), mean, model)
        return replace(state, model=model, round=state.round + 1)

    def solutions(self, state: FedAvgState) -> Parcels:
        """The global model, and for each client which slice of it is its own: it can hold no more."""
        level = torch.as_tensor(self._levels(state.setting)).to(state.model)
        return Parcels(state.setting.clients, {"model": state.model}, {"level": level})

    def shares(self, setting: Setting) -> np.ndarray:
        """Share of multiplications and of entries in each client's slice."""
        level, costs = self._levels(setting), np.ones((len(self.widths), 2))
        for each in set(level.tolist()):
            costs[each] = cost_of(setting.layout, slice_of(setting.layout, self.widths[each]))
        return np.asarray(costs[level])

    def _levels(self, setting: Setting) -> np.ndarray:
        """Index of the width that each client has, `[n]`."""
        if setting.widths is None:
            return np.arange(len(setting.clients)) % len(self.widths)
        fitting = np.where(np.array(self.widths) <= setting.widths[:, None] + ROUNDING, self.widths, 0)
        weak = np.flatnonzero(fitting.max(axis=1) == 0)
        if len(weak):
            raise UserError(
                f"the device of client {setting.clients[weak[0]]} can train {setting.widths[weak[0]]:g} of the width; "
                f"the smallest of widths is {min(self.widths):g}"
            )
        return np.asarray(fitting.argmax(axis=1))

    # -- the client half ------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← local training from θ ⊙ m_r. Where m_r is 0 the reply is θ as it was sent, so that updates are 0."""
        has = self._slices(clients.problem.layout, message)
        trained = clients.learn(message["model"].where(has, 0))
        return self._reply(clients, trained.where(has, message["model"]))

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """θ ⊙ m_r."""
        return message["model"].where(self._slices(clients.problem.layout, message), 0)

    def _slices(self, layout: Layout, message: Message) -> Tensor:
        """m_r of each client, `[n, d]`."""
        levels, row = np.unique(message["level"].long().numpy(force=True), return_inverse=True)
        slices = torch.stack([slice_of(layout, self.widths[level]) for level in levels.tolist()])
        return slices[torch.as_tensor(row)].to(message["model"].device)
