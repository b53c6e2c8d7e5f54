"""The loss that `clients.learn` minimises, for algorithms that minimise it together with something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors.rows import Batch

PREFERENCES = "preferences"


def supervised(clients: Clients, algorithm: str) -> SupervisedProblem:
    """The clients' problem, which has losses on rows."""
    if not isinstance(clients.problem, SupervisedProblem):
        raise UserError(f"{algorithm} needs a problem with losses on rows; '{clients.problem.name}' has none")
    return clients.problem


@dataclass(frozen=True)
class OwnLoss:
    """The losses, scalarised under each client's preference as its learner does."""

    problem: SupervisedProblem
    learner: Learner

    @classmethod
    def of(cls, clients: Clients, algorithm: str) -> OwnLoss:
        return cls(supervised(clients, algorithm), clients.learner)

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the clients' preferences."""
        return self.learner.scalarised(self.problem.losses(parameters, batch), given[PREFERENCES])


def scalarised(clients: Clients, losses: Tensor) -> Tensor:
    """`losses` `[n, m]` as one, `[n]`."""
    return clients.learner.scalarised(losses, clients.preferences)


def senses(clients: Clients) -> Tensor:
    """1 for objectives to maximise, −1 for those to minimise, `[m]`."""
    return torch.where(torch.tensor(clients.problem.maximise), 1.0, -1.0).to(clients.preferences)


def under(prefix: str, parts: Mapping[str, Tensor]) -> Message:
    """Tensors under names that begin with `prefix`, to be given to a loss …"""
    return {prefix + name: tensor for name, tensor in parts.items()}


def found_under(prefix: str, given: Message) -> Message:
    """… which finds them again."""
    return {name.removeprefix(prefix): tensor for name, tensor in given.items() if name.startswith(prefix)}
