"""LFT+Ensemble, locally fair training: FairBatch on each client alone, and at the end an ensemble of all models.

A baseline of Zeng, Chen and Lee, "Improving fairness via federated learning", 2021, and of PraFFL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.fairness import fairbatch
from fedpareto.config.bounds import Share
from fedpareto.contract.algorithm import Algorithm, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import comparison_of
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class LFTEnsembleState(State):
    """The models that clients have sent, `[k, d]`; empty before the last round."""

    models: Tensor = torch.empty(0)


@dataclass(frozen=True)
class LFTEnsemble(Algorithm[LFTEnsembleState]):
    """Every client trains alone to be fair on its own rows; at the end all use the mean of the models' probabilities.

    In the last round all clients send their models. Until then a client uses its own. Preferences are not used."""

    name: ClassVar[str] = "lft-ensemble"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "loss reweighted by group, ensemble", "accuracy and group-fairness"
    )
    waits: ClassVar[str] = "clients train alone, and hand in once: there is nothing to wait for"
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    ends_as_planned: ClassVar[bool] = True

    weight_lr: Share = 0.005
    """α of FairBatch: how much of a label's loss moves between groups after an epoch."""

    def begin(self, setting: Setting) -> LFTEnsembleState:
        """No model is known yet."""
        comparison_of(setting, self.name)
        return LFTEnsembleState(setting, models=setting.initial.new_empty(0))

    def private_state(self, setting: Setting) -> Message:
        """Each client keeps its model and FairBatch's λ."""
        shares = fairbatch.private_state(comparison_of(setting, self.name), setting.initial)
        return {"model": setting.initial, **shares}

    def ask(self, state: LFTEnsembleState) -> list[Tasks]:
        """Clients train; in the last round they send their models."""
        if state.round < state.setting.rounds - 1:
            return to_participants(state)
        return [Tasks(state.setting.clients, round=state.round + 1, step="hand_in")]

    def train(self, clients: Clients, message: Message) -> Message:
        """FairBatch trains the client's own model further."""
        model = fairbatch.learn(clients, clients.state["model"], self.weight_lr, self.name)
        clients.state = {**clients.state, "model": model}
        return {}

    def hand_in(self, clients: Clients, message: Message) -> Message:
        """Trains once more, and sends the result."""
        self.train(clients, message)
        return {"model": clients.state["model"]}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """Replies hold nothing before the last round, then the model."""
        return {"train": {}, "hand_in": {"model": (setting.layout.size,)}}

    def tell(self, state: LFTEnsembleState, replies: Replies) -> LFTEnsembleState:
        """One more round is over."""
        models = replies["model"] if replies.step == "hand_in" else state.models
        return replace(state, models=models, round=state.round + 1)

    def solutions(self, state: LFTEnsembleState) -> Parcels:
        """All models for every client, once they are there."""
        return to_everyone(state, models=state.models) if len(state.models) else to_everyone(state)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The ensemble, `[n, k, d]`; before it is there, the model that the client keeps."""
        return message["models"] if "models" in message else clients.state["model"]
