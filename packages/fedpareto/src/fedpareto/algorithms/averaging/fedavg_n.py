"""FedAvg-n: FedAvg of normalised updates, a baseline of Hu et al., "Federated learning meets multi-objective
optimization", 2022."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.algorithms.common_descent.fedmgda_plus import CommonDescent, CommonDescentState
from fedpareto.contract.algorithm import Needs, Taxonomy, by_client
from fedpareto.contract.averaged import Averaged
from fedpareto.contract.messages import Message, Replies
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class FedAvgN(CommonDescent):
    """w ← w − η_t Σ_i λ0_i g_i / ‖g_i‖: no client's step is longer than another's."""

    name: ClassVar[str] = "fedavg-n"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging of normalised updates", "arbitrary"
    )
    needs: ClassVar[Needs] = "Gram matrix"
    sums: ClassVar[bool] = True

    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """λ0."""
        return shares

    def summand(self, message: Message, reply: Message) -> Message:
        """w − g_i / ‖g_i‖: in a secure sum clients normalise their updates themselves."""
        received = message["model"].double()
        update = reply["model"].double() - received
        length = update.norm(dim=1, keepdim=True)
        return {**reply, "model": received + update / length.where(length > 0, 1)}

    def tell(self, state: FedAvgState, replies: Replies) -> CommonDescentState:
        """Step as every common descent does; of a secure sum one step along the mean, in which all lengths are 1
        already.
        """
        if not isinstance(replies, Averaged):
            return super().tell(state, replies)
        assert isinstance(state, CommonDescentState), "a state made by begin"
        step = replies.mean("model").double() - state.model.double()
        model = state.model + (self.step_size(state) * step).to(state.model)
        alike = torch.full((len(replies),), 1 / len(replies), dtype=torch.float64, device=model.device)
        return replace(state, model=model, weights=by_client(state.setting, replies, alike), round=state.round + 1)
