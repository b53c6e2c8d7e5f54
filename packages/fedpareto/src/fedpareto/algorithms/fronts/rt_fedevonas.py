"""RT-FedEvoNAS: Zhu and Jin, "Real-time federated evolutionary neural architecture search", 2022."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Count, PositiveShare
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy, participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.moo import choices
from fedpareto.moo.dominance import is_nondominated
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.widths import cost_of, slice_of


@dataclass(frozen=True)
class NASState(FedAvgState):
    """The super-network θ, and the architectures: a choice for each block, a row each."""

    codes: Tensor = torch.empty(0, 0, dtype=torch.int64)
    """2N architectures, `[2N, b]`: those that survived, then their children, which clients train next."""
    front: Tensor = torch.empty(0, 0, dtype=torch.int64)
    """Architectures among those measured last than which no other was better in both objectives, `[f, b]`."""
    values: Tensor = torch.empty(0, 2, dtype=torch.float64)
    """Mean losses of the front and its shares of the super-network's multiplications, `[f, 2]`."""


@dataclass(frozen=True)
class RTFedEvoNAS(FedAvg):
    """A super-network whose sub-networks clients train in turn, while NSGA-II searches for small and good ones.

    A block is a hidden layer, and its choices are widths: a sub-network is a slice of θ (see tensors.widths). In every
    round each client trains one of N children from θ ⊙ m, and tells the losses that all survivors and children have as
    slices of the θ that it was sent. Each entry of θ becomes the mean over those who had it; NSGA-II selects the next N
    by mean loss and multiplications, and they have children.

    The paper's blocks are branches of convolutions, its losses are error rates on validation rows of the θ after the
    round, and what a client did not train is filled up with θ before averaging. Everything else is as there.
    """

    name: ClassVar[str] = "rt-fedevonas"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "online architecture search",
        "linearised preferences, NSGA-II over slices of a super-network",
        "loss and multiplications",
    )
    waits: ClassVar[str] = "its losses are of the architectures of its own round"
    needs: ClassVar[Needs] = "weighted sum"
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    reveals: ClassVar[tuple[str, ...]] = ("losses",)

    widths: tuple[PositiveShare, ...] = (1.0, 0.75, 0.5, 0.25)
    """The choices of each hidden layer, as shares of its units."""
    population: Count = 4
    """N, the size of the population. Clients measure 2N architectures in every round."""
    pick: Literal["loss", "knee"] = "loss"
    """Architecture of the front that everybody uses: that with the smallest loss, or the one nearest to the best of
    both.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths:
            raise UserError("widths is empty; it is shares of the layers' widths, such as 1.0,0.5")

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> NASState:
        """θ⁰ with random architectures, and the widest as the front."""
        stream = rng.generator(rng.Address(setting.seed, round=0), "architectures")
        blocks = len(setting.layout.hidden or ())
        slice_of(setting.layout, min(self.widths))
        codes = stream.integers(len(self.widths), size=(2 * self.population, blocks))
        widest = np.full((1, blocks), np.argmax(self.widths))
        values = torch.full((1, 2), torch.inf, dtype=torch.float64)
        return NASState(
            setting, model=setting.initial, codes=torch.tensor(codes), front=torch.tensor(widest), values=values
        )

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant measures all architectures and trains one of the children."""
        assert isinstance(state, NASState)
        asked, codes = participants(state), state.codes.to(state.model)
        child = self._children(state)[state.setting.rows(asked)]
        own = {"code": codes[torch.as_tensor(child, device=codes.device)]}
        return [Tasks(asked, {"model": state.model, "codes": codes}, own, round=state.round + 1, groups=child)]

    def tell(self, state: FedAvgState, replies: Replies) -> NASState:
        """Averages what each entry's owners sent, and selects."""
        assert isinstance(state, NASState)
        shares, codes, layout = self._shares(state, replies), state.codes.cpu().numpy(), state.setting.layout
        child = self._children(state)[state.setting.rows(replies.clients)]
        total, weight = torch.zeros_like(state.model), torch.zeros_like(state.model)
        for each in np.unique(child):
            own = shares * torch.as_tensor(child == each).to(shares)
            has = self._slice(layout, codes[each]).to(state.model)
            total, weight = total + has * replies.sum("model", own), weight + has * own.sum()
        model = torch.where(weight > 0, total / weight.where(weight > 0, 1), state.model)
        losses = (replies["losses"].double() * shares.double()[:, None]).sum(0).cpu().numpy()
        values = np.stack([losses, [cost_of(layout, self._slice(layout, code))[0] for code in codes]], axis=1)
        return self._selected(replace(state, model=model, round=state.round + 1), codes, values)

    def _selected(self, state: NASState, codes: np.ndarray, values: np.ndarray) -> NASState:
        """The next N and their children, from what was measured."""
        stream = rng.generator(rng.Address(state.setting.seed, round=state.round), "architectures")
        kept = choices.survivors(codes, values, len(self.widths), self.population)
        born = choices.children(kept, len(self.widths), stream)
        _, first = np.unique(codes, axis=0, return_index=True)
        best = first[is_nondominated(values[first])]
        return replace(
            state,
            codes=torch.tensor(np.vstack([kept, born])),
            front=torch.tensor(codes[best]),
            values=torch.tensor(values[best]),
        )

    def _children(self, state: NASState) -> np.ndarray:
        """The architecture that each client trains in the next round, `[n]`: the children are dealt out at random."""
        n = len(state.setting.clients)
        stream = rng.generator(rng.Address(state.setting.seed, round=state.round + 1), "who trains which architecture")
        return np.asarray(self.population + stream.permutation(n) % self.population)

    def picked(self, state: NASState) -> Tensor:
        """The architecture that everybody uses, `[b]`."""
        values = state.values.cpu().numpy()
        if self.pick == "loss" or len(values) == 1:
            return state.front[int(values[:, 0].argmin())]
        best, width = values.min(axis=0), np.ptp(values, axis=0)
        distances = np.linalg.norm((values - best) / np.where(width > 0, width, 1), axis=1)
        return state.front[int(distances.argmin())]

    def solutions(self, state: FedAvgState) -> Parcels:
        """The super-network, and which slice of it to use."""
        assert isinstance(state, NASState)
        shared = {"model": state.model, "code": self.picked(state).to(state.model)}
        return Parcels(state.setting.clients, shared)

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """The front: widths, loss and multiplications."""
        assert isinstance(state, NASState)
        rows = zip(state.front.tolist(), state.values.tolist(), strict=True)
        return {
            "front": [
                {"widths": [self.widths[choice] for choice in code], "loss": loss, "multiplications": share}
                for code, (loss, share) in rows
                if math.isfinite(loss)  # Before the first round nothing is measured.
            ]
        }

    # -- the client half -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← local training from θ ⊙ m of its own architecture; and the losses of all of them.

        Where m is 0 the reply is θ as it was sent, so that updates are 0.
        """
        layout, theta = clients.problem.layout, message["model"]
        losses = [
            clients.learner.loss(clients, theta.where(self._slices(layout, codes, theta.device), 0))
            for codes in message["codes"].unbind(1)
        ]
        has = self._slices(layout, message["code"], theta.device)
        trained = clients.learn(theta.where(has, 0))
        return {**self._reply(clients, trained.where(has, theta)), "losses": torch.stack(losses, dim=1)}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """θ ⊙ m."""
        theta = message["model"]
        return theta.where(self._slices(clients.problem.layout, message["code"], theta.device), 0)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        return {"train": {**super().reply_shapes(setting)["train"], "losses": (2 * self.population,)}}

    def _slices(self, layout: Layout, codes: Tensor, device: torch.device) -> Tensor:
        """Masks m of each client's architecture `[n, b]`, `[n, d]`."""
        rows, place = np.unique(codes.long().numpy(force=True), axis=0, return_inverse=True)
        slices = torch.stack([self._slice(layout, row) for row in rows])
        return slices[torch.as_tensor(place.reshape(-1))].to(device)

    def _slice(self, layout: Layout, code: np.ndarray) -> Tensor:
        """Mask m of one architecture, `[d]`."""
        return slice_of(layout, [self.widths[choice] for choice in code.tolist()])
