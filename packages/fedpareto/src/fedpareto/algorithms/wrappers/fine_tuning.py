"""Fine-tuning (+FT): the last aggregation is replaced by local training; no round is added (thesis, section 4.3.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.wrappers import ladder
from fedpareto.algorithms.wrappers.wrapper import Outer, Stateful, inner
from fedpareto.contract.algorithm import Algorithm, S, Setting, State, Taxonomy
from fedpareto.contract.messages import Parcels, Replies, Tasks


@dataclass(frozen=True)
class FineTunedState(Outer[S]):
    """The algorithm's own state, and at the end the clients' fine-tuned models."""

    tuned: Tensor = torch.empty(0)
    """`[k, d]` once the last round is over, empty before."""
    tuners: Tensor = torch.empty(0, dtype=torch.int64)
    """The ids of the clients whose models these are, `[k]`."""


@dataclass(frozen=True)
class FineTuned(Stateful[FineTunedState[S]], Generic[S]):
    """Any algorithm whose clients reply with a model, as its "+ft" variant.

    It shares all training with the algorithm itself but the last step: every client trains from its own solution, and
    keeps what would have been aggregated. That step is the algorithm's `train`, or `fine_tune` where it has such a
    step because its replies are not models.
    """

    algorithm: Algorithm[S]
    personalised: ClassVar[bool] = True
    ends_as_planned: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """The algorithm's own name with "+ft"."""
        return f"{self.algorithm.name}+ft"

    @property
    def taxonomy(self) -> Taxonomy:  # type: ignore[override]
        """The algorithm's own."""
        own = self.algorithm.taxonomy
        return replace(own, method=f"{own.method}, fine-tuning")

    def begin(self, setting: Setting) -> FineTunedState[S]:
        """The algorithm's own beginning."""
        return FineTunedState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: FineTunedState[S]) -> list[Tasks]:
        """The algorithm's own tasks; in the last round all clients train, not only the participants."""
        begun = inner(state)
        if not _last_round(state):
            return self.algorithm.ask(begun)
        step = "fine_tune" if "fine_tune" in self.reply_shapes(state.setting) else "train"
        sent = self.algorithm.solutions(begun)
        usual = self._usual_tasks(begun, step) if begun.round == state.round else []
        shared, own = dict(sent.shared), dict(sent.own)
        for tasks in usual:  # A solution comes before what a usual task holds under the same name.
            shared |= {name: tensor for name, tensor in tasks.shared.items() if name not in sent.names}
            own |= {name: tensor for name, tensor in tasks.own.items() if name not in sent.names}
        if self.channel.validated:
            shared[ladder.CLIMB] = state.setting.initial.new_ones(1)
        alone = np.full(len(sent), -1)
        return [Tasks(sent.clients, shared, own, round=state.round + 1, step=step, groups=alone)]

    def _usual_tasks(self, begun: S, step: str) -> list[Tasks]:
        """Tasks of the step in a usual round, for every client: it may read more than a solution."""
        everyone = replace(begun, setting=replace(begun.setting, participation=1.0))
        return [tasks for tasks in self.algorithm.ask(everyone) if tasks.step == step]

    def tell(self, state: FineTunedState[S], replies: Replies) -> FineTunedState[S]:
        """The algorithm's own aggregation, but for the last round, in which clients keep what they trained."""
        begun = inner(state)
        if not _last_round(state):
            told = self.algorithm.tell(begun, replies)
            # An algorithm that ends early leaves the last round to us as well.
            return replace(state, inner=told, round=min(told.round, state.setting.rounds - 1))
        name = _kept(self.algorithm.solutions(begun))
        if name not in replies:  # Local training keeps its models as it is.
            return replace(state, inner=self.algorithm.tell(begun, replies), round=state.round + 1)
        return replace(state, tuned=replies[name], tuners=torch.as_tensor(replies.clients), round=state.round + 1)

    def solutions(self, state: FineTunedState[S]) -> Parcels:
        """The fine-tuned models at the end; before, and for those without one, the algorithm's own solutions."""
        sent = self.algorithm.solutions(inner(state))
        if not len(state.tuners):
            return sent
        name = _kept(sent)
        shared = {other: tensor for other, tensor in sent.shared.items() if other != name}
        if len(state.tuners) == len(sent):
            return Parcels(sent.clients, shared, {**sent.own, name: state.tuned})
        # Clients with a tuned model have it in place of each of several models.
        whole = sent.stacked()[name].clone()
        rows = torch.as_tensor(state.setting.rows(state.tuners.cpu().numpy()), device=whole.device)
        between = [1] * (whole.dim() - state.tuned.dim())
        tuned = state.tuned.view(len(rows), *between, *state.tuned.shape[1:])
        whole[rows] = tuned.expand(-1, *whole.shape[1:])
        return Parcels(sent.clients, shared, {**sent.own, name: whole})

    def found(self, state: FineTunedState[S]) -> None:
        """None: each client has a solution of its own."""


def _kept(solutions: Parcels) -> str:
    """The name of what clients are sent and reply with: the whole model, or the part of it that they share."""
    return next(iter((*solutions.shared, *solutions.own)), "model")


def _last_round(state: State) -> bool:
    return state.round == state.setting.rounds - 1
