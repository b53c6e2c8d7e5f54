"""FedCMOO and FedCMOO-Pref: Askin et al., "Federated communication-efficient multi-objective optimization", 2025.

A round has two exchanges. First the clients send the gradients of all objectives at the global model, compressed, and
the server chooses the objectives' weights; then the clients train on the weighted loss. So about 2d numbers are
uploaded, whatever the number of objectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import Count, Positive, Share, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part
from fedpareto.moo.compression import compress, default_rank, near_square, restore
from fedpareto.moo.epo import epo_weights
from fedpareto.moo.min_norm import Array, projected_gradient


@dataclass(frozen=True)
class FedCMOOState(State):
    """The global model, and the objectives' weights."""

    model: Tensor = torch.empty(0)
    """w, `[d]`."""
    weights: tuple[float, ...] = ()
    """λ, one for each objective; the next round starts from it."""
    weighed: bool = False
    """True once this round's gradients have come in, so that training is next."""


@dataclass(frozen=True)
class FedCMOO(Algorithm[FedCMOOState]):
    """One global model, trained on a weighted loss whose weights tend to those of MGDA."""

    name: ClassVar[str] = "fedcmoo"
    taxonomy: ClassVar[Taxonomy] = Taxonomy("client", "single-solution", "linearised objectives, MGDA", "arbitrary")
    exchanges: ClassVar[int] = 2
    waits: ClassVar[str] = "its weights are of the gradients of the same clients that train with them"
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    needs: ClassVar[Needs] = "weighted sum"

    server_lr: Positive = 1.0
    """η_s, the step size of the server ("global learning rate" in the thesis)."""
    rank: Whole = 0
    """Rank of the compressed gradients; 0: ⌊d / (2√(dM))⌋, with which they take as many bytes as the model."""
    weight_steps: Count = 1000
    """Projected gradient steps on the weights in each round."""
    weight_lr: Positive = 0.001
    """Step size of the weights, on the normalised Gram matrix."""

    def begin(self, setting: Setting) -> FedCMOOState:
        """w⁰, equal weights."""
        m = len(setting.objectives)
        return FedCMOOState(setting, model=setting.initial, weights=(1 / m,) * m)

    def ask(self, state: FedCMOOState) -> list[Tasks]:
        """Gradients first, then training; the same clients for both."""
        if not state.weighed:
            return to_participants(state, "gradients", model=state.model)
        weights = torch.tensor(state.weights, dtype=torch.float64).to(state.model)
        return to_participants(state, model=state.model, weights=weights)

    # -- first exchange --------------------------------------------------------------------------------------------

    def gradients(self, clients: Clients, message: Message) -> Message:
        """The client's Jacobian on a minibatch, as two factors of low rank; and the losses, where they are needed."""
        losses, jacobians = clients.gradients(message["model"])
        m, d = jacobians.shape[1:]
        left, right = compress(jacobians, self._rank(d, m), partial(clients.addresses.normal, "compression"))
        return {"left": left, "right": right} | self._report(losses)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The factors of the gradients, then the trained model."""
        d, m = setting.layout.size, len(setting.objectives)
        (rows, columns), rank = near_square(d, m), self._rank(d, m)
        return {
            "gradients": {"left": (rows, rank), "right": (rank, columns)} | self._report_shapes(m),
            "train": {"model": (d,)},
        }

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Two factors, whose lengths do not matter to the weights; then the model."""
        return {**super().reply_parts, "left": "update", "right": "update", "losses": "losses"}

    def _rank(self, d: int, m: int) -> int:
        return min(self.rank, *near_square(d, m)) if self.rank else default_rank(d, m)

    def _report(self, losses: Tensor) -> Message:
        """Numbers beside the gradients on which the weights depend."""
        return {}

    def _report_shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        return {}

    def _weigh(self, state: FedCMOOState, gram: Array, replies: Replies) -> Array:
        """λ ← projected gradient descent of λᵀGᵀGλ from the last λ."""
        return projected_gradient(gram, state.weights, self.weight_steps, self.weight_lr)

    # -- second exchange -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """Local training on Σ_k λ_k f_k; for fine-tuning, where no weights are sent, on the client's own preference."""
        return {"model": clients.learn(message["model"], weights=message.get("weights"))}

    def tell(self, state: FedCMOOState, replies: Replies) -> FedCMOOState:
        """λ from the Gram matrix of the mean gradients; then w ← w + η_s · mean of the clients' updates."""
        if not state.weighed:
            d, m = len(state.model), len(state.weights)
            mean = replies.sum_of_products("left", "right") / len(replies)
            jacobian = restore(mean[None], d, m)[0].double()
            weights = self._weigh(state, (jacobian @ jacobian.T).cpu().numpy(), replies)
            return replace(state, weights=tuple(weights.tolist()), weighed=True)
        update = replies.mean("model") - state.model
        return replace(state, model=state.model + self.server_lr * update, weighed=False, round=state.round + 1)

    def solutions(self, state: FedCMOOState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: FedCMOOState) -> dict[str, Any]:
        """The objectives' weights."""
        return {"weights": list(state.weights)}


@dataclass(frozen=True)
class FedCMOOPref(FedCMOO):
    """FedCMOO towards the Pareto-optimal point where preference_k · f_k is the same for all objectives.

    The preference is public. Where clients have private ones that differ, they have to agree on one, such as the mean.
    """

    name: ClassVar[str] = "fedcmoo-pref"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "single-solution", "linearised objectives, exact Pareto optimal search", "arbitrary"
    )

    preference: tuple[float, ...] = ()
    """Importance of each objective, public: the larger, the smaller that loss; empty: the one that all clients share,
    or equal weights if each has its own.
    """
    tolerance: float = 0.01
    """Distance of the weighted losses from uniform above which they are balanced rather than descended."""
    floor: Share = 0.2
    """Share of the weight that is spread evenly, so that no objective is ignored: (1 − floor) α + floor / M."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preference and (min(self.preference) < 0 or sum(self.preference) <= 0):
            raise UserError(f"preference is {list(self.preference)}; its entries are not negative and not all 0")

    def begin(self, setting: Setting) -> FedCMOOState:
        """w⁰; checks that the preference has an entry for each objective."""
        m = len(setting.objectives)
        if self.preference and len(self.preference) != m:
            raise UserError(f"preference has {len(self.preference)} entries, the problem has {m} objectives")
        return super().begin(setting)

    def _report(self, losses: Tensor) -> Message:
        return {"losses": losses}

    def _report_shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        return {"losses": (m,)}

    def _weigh(self, state: FedCMOOState, gram: Array, replies: Replies) -> Array:
        """λ ← 0.8 α + 0.2 / M with α from the linear programme of exact Pareto optimal search."""
        losses = replies["losses"].mean(dim=0).double().cpu().numpy()
        preference = self.preference or state.setting.preference or np.ones(len(losses))
        alpha = epo_weights(losses, gram, preference, self.tolerance)
        return (1 - self.floor) * alpha + self.floor / len(alpha)
