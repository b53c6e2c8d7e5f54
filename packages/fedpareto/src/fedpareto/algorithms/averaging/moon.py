"""MOON: Li, He and Song, "Model-contrastive federated learning", 2021, equations 3 and 4, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedpareto.algorithms._shared.local_loss import PREFERENCES, OwnLoss, found_under, under
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.bounds import NotNegative, Positive
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import Readout
from fedpareto.tensors.rows import Batch

GLOBAL, PREVIOUS = "global.", "previous."
"""Prefixes of the tensors of θ^t and of the client's last model in what a loss is given."""


@dataclass(frozen=True)
class MOON(FedAvg):
    """FedAvg whose clients are drawn towards what the global model sees in a row, and away from what their own last
    model saw.

    A representation z is the values of the last hidden layer; the paper's network has another two layers there, its
    projection head, which are left out here. A model without hidden layers has none, and MOON is FedAvg.
    """

    name: ClassVar[str] = "moon"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging with model-contrastive training",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses", "hidden layer")

    mu: NotNegative = 1.0
    """μ, the weight of the contrastive loss; 0 is FedAvg. The paper tries 0.1, 1, 5 and 10."""
    temperature: Positive = 0.5
    """τ of the contrastive loss, as in the paper."""

    def private_state(self, setting: Setting) -> Message:
        """The client's last model; before its first one, that from which all begin."""
        return {"previous": setting.initial}

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← local training from θ on ℓ_sup + μ ℓ_con; in the first round of all ℓ_con has no slope."""
        received, layout = message["model"], clients.problem.layout
        objective = OwnLoss.of(clients, self.name)
        readout = objective.problem.readout()
        if not self.mu or readout is None:
            model = clients.learn(received)
        else:
            given = under(GLOBAL, layout.unflatten(received)) | under(
                PREVIOUS, layout.unflatten(clients.state["previous"])
            )
            loss = Contrastive(objective, self.mu, self.temperature)
            model = clients.minimise(received, layout, loss, {**given, PREFERENCES: clients.preferences})
        clients.state["previous"] = model
        return self._reply(clients, model)


@dataclass(frozen=True)
class Contrastive:
    """ℓ_sup + μ ℓ_con, equation 4."""

    objective: OwnLoss
    mu: float
    temperature: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds both models to compare with."""
        readout = self.objective.problem.readout()
        assert readout is not None, "a network without it is trained as by FedAvg"
        z = representation(readout, parameters, batch)
        with torch.no_grad():
            like, unlike = (representation(readout, found_under(one, given), batch) for one in (GLOBAL, PREVIOUS))
        closer = cosine_similarity(z, like, dim=-1) - cosine_similarity(z, unlike, dim=-1)
        # Equation 3: −log(e^a / (e^a + e^b)) = log(1 + e^(b − a)).
        contrast = batch.mean(softplus(-closer / self.temperature))
        return self.objective(parameters, batch, given) + self.mu * contrast


def representation(readout: Readout, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """z of each row, `[n, b, h]`: what the last layer gets."""
    last = f"{len(readout.network.hidden)}."
    before = {name: tensor for name, tensor in parameters.items() if not name.startswith(last)}
    return readout.network(before, readout.inputs(batch))
