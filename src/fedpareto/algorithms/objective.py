"""A client's own objective on a minibatch, for algorithms that train a part of a model, or a mixture of models."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedpareto.core.clients import Clients
from fedpareto.core.learner import Loss
from fedpareto.core.problem import Batch, SupervisedProblem
from fedpareto.errors import UserError


def supervised(clients: Clients, algorithm: str) -> SupervisedProblem:
    """The clients' problem, which has losses on rows."""
    if not isinstance(clients.problem, SupervisedProblem):
        raise UserError(f"{algorithm} needs a problem with losses on rows; '{clients.problem.name}' has none")
    return clients.problem


def own_loss(clients: Clients, algorithm: str) -> Loss:
    """What `clients.learn` minimises: the losses, scalarised under each client's preference as its learner does."""
    problem = supervised(clients, algorithm)

    def loss(parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return scalarised(clients, problem.losses(parameters, batch))

    return loss


def scalarised(clients: Clients, losses: Tensor) -> Tensor:
    """`losses` `[n, m]` as one, `[n]`."""
    return clients.learner.scalarised(losses, clients.preferences)
