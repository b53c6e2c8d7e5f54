"""Common parts of FedAMP and MOCHA: the server, which knows all models, sends each client the point of its pull."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Algorithm, Setting, participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks, take_rows


@dataclass(frozen=True)
class PulledState(PersonalState):
    """The models that the clients sent last, and the pull on each of them."""

    towards: Tensor = torch.empty(0)
    """Points to which clients are pulled, `[n, d]`."""
    strengths: Tensor = torch.empty(0)
    """Strengths of the pulls, `[n]`."""


@dataclass(frozen=True)
class Pulled(Algorithm[PulledState]):
    """Every client trains its own model on f^i(θ) + ½ s_i ‖θ − u_i‖², where s_i and u_i come from all the models."""

    personalised: ClassVar[bool] = True

    strength: NotNegative = 1.0
    """λ, the weight of the regulariser; 0 is local training."""

    @abstractmethod
    def pulls(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Compute s `[n]` and u `[n, d]` for the clients' models `[n, d]`."""

    def begin(self, setting: Setting) -> PulledState:
        """All clients at the same model."""
        return self._with_pulls(PulledState(setting, models=personal_models.same_start(setting)))

    def ask(self, state: PulledState) -> list[Tasks]:
        """Every participant gets its pull, and begins from the model that it sent last."""
        present = participants(state)
        rows = state.setting.rows(present)
        own, begun = self.solutions(state).only(rows).own, {"model": take_rows(state.models, rows)}
        return [Tasks(present, own=own, round=state.round + 1, begun=begun)]

    def private_state(self, setting: Setting) -> Message:
        """θ_i: the client continues from its own model."""
        return {"model": setting.initial}

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← θ_i − η(∇f(θ_i) + s_i (θ_i − u_i))."""
        pull = Pull(message["strength"][:, None], message["model"]) if self.strength else None
        clients.state["model"] = clients.learn(clients.state["model"], pull=pull)
        return {"model": clients.state["model"]}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        return clients.state["model"]

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: PulledState, replies: Replies) -> PulledState:
        """New pulls; of a client that did not reply the last known model counts."""
        models, _ = personal_models.trained_models(state, replies)
        return self._with_pulls(replace(state, models=models, round=state.round + 1))

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Left as it is: a client goes on from the model that it sent, so that is the one that counts."""
        return reply

    def _with_pulls(self, state: PulledState) -> PulledState:
        strengths, towards = self.pulls(state.models)
        return replace(state, strengths=strengths.to(towards), towards=towards)

    def solutions(self, state: PulledState) -> Parcels:
        """The pulls; a client keeps its own model."""
        return Parcels(state.setting.clients, own={"model": state.towards, "strength": state.strengths})
