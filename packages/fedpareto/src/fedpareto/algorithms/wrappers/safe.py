"""+safe, of our own: nobody has to take a model that is worse for it than the one that it has alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import scalarised, senses, supervised
from fedpareto.algorithms.wrappers import ladder
from fedpareto.algorithms.wrappers.wrapper import Outer, Stateful, inner, own
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, S, Setting, Taxonomy, overrides
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes, Tasks

SHARES = (0.25, 0.5, 0.75)
"""Shares of the federation in the mixtures with the local model."""
OWN, CHOSEN = "safe.own", "safe.chosen"
"""Private state: the local model, and from the last round on the one that was chosen; whether it has been."""
ALONE = "safe.alone."
"""Prefix of the names of what the local model needs where its step sizes are chosen on validation rows."""
SETTLE = "settle"
ROUNDING = 1e-6
"""Models whose worth differs by less are worth the same."""


@dataclass(frozen=True)
class SafeState(Outer[S]):
    """The algorithm's own state: of choices a server knows nothing."""


@dataclass(frozen=True)
class Safe(Stateful[SafeState[S]], Generic[S]):
    """Any algorithm, beside which every client trains a model alone, and at the end keeps what is best for itself.

    The local model is that of `local`, on the same minibatches. The last round has no aggregation: every client takes
    the best of its local model, of what it was sent, of that after local steps, and of mixtures, on its validation rows
    under its own preference. Nothing of that is sent.
    """

    algorithm: Algorithm[S]
    personalised: ClassVar[bool] = True
    ends_as_planned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        why = ""
        if overrides(self.algorithm, "found"):
            why = "its solutions are the server's own, and belong to no client"
        elif overrides(self.algorithm, "shares"):
            why = "its clients train networks of different widths, and a model of their own would have the widest"
        if why:
            raise UserError(f"+safe does not fit {self.algorithm.name}: {why}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """The algorithm's own name with "+safe"."""
        return f"{self.algorithm.name}+safe"

    @property
    def taxonomy(self) -> Taxonomy:  # type: ignore[override]
        """The algorithm's own."""
        own = self.algorithm.taxonomy
        return replace(own, method=f"{own.method}, the best for each client")

    needs = own("needs")

    @property
    def requires(self) -> tuple[str, ...]:  # type: ignore[override]
        """Requirements of the algorithm, and losses to compare models."""
        return (*self.algorithm.requires, "losses")

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> SafeState[S]:
        """The algorithm's own beginning."""
        return SafeState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: SafeState[S]) -> list[Tasks]:
        """The algorithm's own tasks; in the last round all clients are sent their solutions, and settle."""
        if state.round < state.setting.rounds - 1:
            return self.algorithm.ask(inner(state))
        sent = self.algorithm.solutions(inner(state))
        alone = np.full(len(sent), -1)
        return [Tasks(sent.clients, sent.shared, sent.own, round=state.round + 1, step=SETTLE, groups=alone)]

    def tell(self, state: SafeState[S], replies: Replies) -> SafeState[S]:
        """The algorithm's own aggregation; of the last round only that it is over."""
        if state.round == state.setting.rounds - 1:
            return replace(state, round=state.round + 1)
        told = self.algorithm.tell(inner(state), replies)
        # An algorithm that ends early leaves the last round to us as well.
        return replace(state, inner=told, round=min(told.round, state.setting.rounds - 1))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own, and nothing in the last round."""
        return {**self.algorithm.reply_shapes(setting), SETTLE: {}}

    # -- the client half ------------------------------------------------------------------------------------------

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and a local model."""
        own = {OWN: setting.initial, CHOSEN: setting.initial.new_zeros(1)}
        more = ladder.alone(setting, ALONE) if self.channel.validated else {}
        return {**self.algorithm.private_state(setting), **own, **more}

    def _alone(self, clients: Clients) -> Tensor:
        """One more training of the local model."""
        return ladder.train_alone(clients, ALONE) if self.channel.validated else clients.learn(clients.state[OWN])

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        """The algorithm's own; beside `train`, one more training of the local model."""
        if step == SETTLE:
            return self.settle(clients, message)
        supervised(clients, self.name)  # A reinforcement learner keeps state for one model, not two.
        trained = {OWN: self._alone(clients)} if step == "train" else {}
        # The algorithm may replace all private state that it knows of.
        kept = {name: one for name, one in clients.state.items() if name.startswith("safe.")}
        reply = self.algorithm.client_step(step, clients, message)
        clients.state = {**clients.state, **kept, **trained}
        return reply

    def settle(self, clients: Clients, message: Message) -> Message:
        """The best of all candidates becomes the client's own model; the reply is empty."""
        supervised(clients, self.name)
        sent = self.algorithm.personal(clients, message)
        own, tuned = (
            self._alone(clients),
            ladder.tuned(clients, sent) if self.channel.validated else clients.learn(sent),
        )
        models = candidates(own, sent, tuned)
        chosen = models[best(clients, models), torch.arange(len(clients), device=models.device)]
        clients.state = {**clients.state, OWN: chosen, CHOSEN: torch.ones_like(clients.state[CHOSEN])}
        return {}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The model that was chosen; before, the algorithm's own."""
        return torch.where(clients.state[CHOSEN] > 0, clients.state[OWN], self.algorithm.personal(clients, message))


def candidates(own: Tensor, sent: Tensor, tuned: Tensor) -> Tensor:
    """The models that each client chooses from, `[k, n, d]`, the local one first."""
    mixed = [torch.lerp(own, other, share) for other in (sent, tuned) for share in SHARES]
    return torch.stack([own, sent, tuned, *mixed])


def best(clients: Clients, models: Tensor) -> Tensor:
    """Index of the model `[k, n, d]` of which each client has most, `[n]`; of several, that with the least loss."""
    worth, loss = (torch.stack(each) for each in zip(*[measured(clients, one) for one in models], strict=True))
    is_best = worth >= worth.max(0).values - ROUNDING
    return loss.where(is_best, torch.inf).argmin(0)


def measured(clients: Clients, model: Tensor) -> tuple[Tensor, Tensor]:
    """Value of `model` `[n, d]` under each client's preference, and its loss there, `[n]` each.

    Both on validation rows, or on training rows where a client has no others. A model that is not finite is worth less
    than any other.
    """
    worth, loss = _on(clients, model, "train")
    if "validation" in clients.splits:
        has_rows = clients.tensor(clients.splits["validation"].counts[clients.positions] > 0)
        there = _on(clients, model, "validation")
        worth, loss = there[0].where(has_rows, worth), there[1].where(has_rows, loss)
    return worth.nan_to_num(nan=-torch.inf), loss.nan_to_num(nan=torch.inf)


def _on(clients: Clients, model: Tensor, split: str) -> tuple[Tensor, Tensor]:
    problem = supervised(clients, "+safe")
    parameters = problem.layout.unflatten(model)
    with torch.no_grad():
        values = problem.over_rows(lambda batch: problem.evaluate(parameters, batch), clients, split)
        losses = problem.over_rows(lambda batch: problem.losses(parameters, batch), clients, split)
    broken = ~model.isfinite().all(1)
    worth = (clients.preferences * senses(clients) * values).sum(1)
    return worth.masked_fill(broken, torch.nan), scalarised(clients, losses)
