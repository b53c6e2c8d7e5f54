"""Common parts of searches for a front: trainings of some rounds, what is compared by what, and who takes what."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import senses
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.moo.dominance import is_nondominated

TRAINED_FOR, CHOSEN_ON, COMPARED_BY = 0, 1, 2
"""The splits on which candidates are measured: training rows; validation rows, by which the search accepts, the
archive keeps and clients choose (section 3.1.2.1); and the rows for the final comparison.
"""


FEW_ROUNDS = 5
"""The most rounds of a training, unless the user says otherwise."""


class InTrainings(Protocol):
    """An algorithm whose run is a number of trainings."""

    @property
    def name(self) -> str:
        """The name by which users call it."""

    @property
    def training_rounds(self) -> int:
        """Rounds of one training, as given; 0: up to `FEW_ROUNDS`."""


def training_rounds(algorithm: InTrainings, setting: Setting) -> int:
    """Rounds of one training: as given, or the largest number that the run's rounds are a multiple of."""
    return algorithm.training_rounds or max(n for n in range(1, FEW_ROUNDS + 1) if setting.rounds % n == 0)


def must_be_a_multiple(algorithm: InTrainings, setting: Setting) -> None:
    """Raises UserError if the last training would not end."""
    if setting.rounds % training_rounds(algorithm, setting):
        fitting = max(setting.rounds // algorithm.training_rounds, 1) * algorithm.training_rounds
        raise UserError(
            f"rounds is {setting.rounds}, no multiple of {algorithm.name}'s training_rounds, "
            f"{algorithm.training_rounds}: the last training would not end; {fitting} rounds would do"
        )


def front_of(values: Tensor, setting: Setting) -> Tensor:
    """The places of the non-dominated among objective values `[k, m]`; NaN is not known."""
    points = values.cpu().numpy()
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    maximise = [objective.maximise for objective in setting.objectives]
    return torch.as_tensor(known[is_nondominated(points[known], maximise)], device=values.device)


def favourite(clients: Clients, message: Message) -> Tensor:
    """Pick from a front of models with values the one of largest weighted sum under each client's own preference."""
    models = message["model"]
    if "values" not in message or models.dim() == 2:  # One model, before there is a front or after fine-tuning.
        return models
    utilities = (message["values"] * (clients.preferences * senses(clients)).unsqueeze(1)).sum(-1)
    return models[torch.arange(len(clients), device=models.device), utilities.argmax(dim=1)]
