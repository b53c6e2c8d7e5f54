"""Step sizes chosen on validation rows, of our own: around any algorithm, inside of everything else around it.

Where a client's model is its own, so is its step size; it never leaves the client. Where there is one model, there is
one step size: the clients of the first round say how much worse than their best each rung was, and the server takes the
one with the smallest mean. The rungs and the pilot are in algorithms.ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.wrappers import ladder
from fedpareto.algorithms.wrappers.ladder import CLIMB, FACTORS
from fedpareto.algorithms.wrappers.wrapper import Outer, Stateful, Wrapper, inner, own
from fedpareto.contract.algorithm import Algorithm, S, Setting, State, overrides, small_setting
from fedpareto.contract.channel import Channel
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes, Tasks

FACTOR = "step.factor"
"""Factor on a client's step size, in its private state or in a task; 0: nobody has chosen yet."""
REGRET = "regret"
"""The name in a reply of how much worse than its best rung a client found each of them; 0 if it was not asked."""
ALONE = "alone."
CHOSEN = (FACTOR, ALONE + ladder.FACTOR)
"""The names of what a client has chosen for itself."""
W = TypeVar("W", bound=State)


@dataclass(frozen=True)
class Stepped(Wrapper[W], Generic[W]):
    """An algorithm whose step sizes are chosen on validation rows, in part; a subclass says how."""

    said: ClassVar[str]
    """A sentence of what it costs."""

    @property
    def channel(self) -> Channel:
        return replace(self.algorithm.channel, validated=True)

    def _taken(self, step: str, clients: Clients, message: Message, factors: Tensor, climbing: bool) -> Message:
        """The algorithm's own step with these factors `[n]`, or with whichever rung is best."""
        if climbing:
            return ladder.best_of(partial(self.algorithm.client_step, step), clients, message, self.algorithm.personal)
        with ladder.at(clients, factors):
            return self.algorithm.client_step(step, clients, message)


# -- every model its client's own ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnStepped(Stepped[S], Generic[S]):
    """An algorithm of personal models: each client finds its own step size when it is first asked for anything.

    A client without validation rows takes the smallest.
    """

    said: ClassVar[str] = f"each client finds its own once, by {len(FACTORS) * ladder.PILOT} more local trainings"

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and the factor, which nobody else is told."""
        return {**self.algorithm.private_state(setting), FACTOR: setting.initial.new_zeros(1)}

    def personal_state(self, setting: Setting) -> Message:
        """The factor belongs to a model only where the client trains the model that it was sent."""
        is_sent = not overrides(self.algorithm, "personal")
        return self.algorithm.personal_state(setting) if is_sent else self.private_state(setting)

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        message = dict(message)
        climbing = message.pop(CLIMB, None) is not None
        factors = clients.state[FACTOR]
        new = np.flatnonzero((factors[:, 0] == 0).cpu().numpy())
        if len(new):
            factors = factors.clone()
            best = ladder.pilot(clients, new).argmin(1)
            factors[clients.tensor(new)] = ladder.rungs(factors)[best].unsqueeze(1)
        reply = self._taken(step, clients, message, factors[:, 0], climbing)
        # An algorithm may have replaced the whole state.
        clients.state = {**clients.state, FACTOR: factors}
        return reply

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own, which may train a little."""
        if FACTOR not in clients.state:
            return self.algorithm.personal(clients, message)
        factors = clients.state[FACTOR][:, 0]
        with ladder.at(clients, factors.where(factors > 0, torch.ones_like(factors))):
            return self.algorithm.personal(clients, message)


@dataclass(frozen=True)
class AloneStepped(OwnStepped[S], Generic[S]):
    """Local training on every rung side by side; the best model of all rounds and rungs is the client's own."""

    said: ClassVar[str] = f"each client trains on all {len(FACTORS)}, and keeps the best model of all rounds"

    def private_state(self, setting: Setting) -> Message:
        """A model for each rung, and the best so far."""
        return ladder.alone(setting, ALONE)

    def personal_state(self, setting: Setting) -> Message:
        return self.private_state(setting)

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        ladder.train_alone(clients, ALONE)
        return {}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The best model so far."""
        return clients.state[ALONE + ladder.BEST]


# -- one model for all ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SteppedState(Outer[S]):
    """The algorithm's own state, and the factor; 0 until clients have said which is best."""

    factor: float = 0.0


@dataclass(frozen=True)
class CommonStepped(Stepped[SteppedState[S]], Stateful[SteppedState[S]], Generic[S]):
    """An algorithm of one model: the clients of the first round choose its step size by their mean regret.

    They train with the smallest in that round. Who is asked later finds the choice made, and tries nothing.
    """

    said: ClassVar[str] = (
        f"each client of the first round tries all by {len(FACTORS) * ladder.PILOT} more local trainings, and one is "
        "chosen for all"
    )
    needs, sums, averages = own("needs"), own("sums"), own("averages")

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own, and the regrets."""
        steps = self.algorithm.reply_shapes(setting)
        return {**steps, "train": {**steps["train"], REGRET: (len(FACTORS),)}}

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        message = dict(message)
        climbing, told = message.pop(CLIMB, None) is not None, message.pop(FACTOR, clients.preferences.new_ones(()))
        told = told.to(clients.preferences).expand(len(clients))
        regrets = clients.preferences.new_zeros(len(clients), len(FACTORS))
        if step == "train" and len(new := np.flatnonzero((told == 0).cpu().numpy())):
            losses = ladder.pilot(clients, new)
            # At most 1, so that nobody has more to say than all others together.
            regrets[clients.tensor(new)] = (losses - losses.amin(1, keepdim=True)).nan_to_num(0.0).clamp(max=1)
        reply = self._taken(step, clients, message, told.where(told > 0, ladder.rungs(told)[0]), climbing)
        return {**reply, REGRET: regrets} if step == "train" else reply

    def summand(self, message: Message, reply: Message) -> Message:
        """The algorithm's own, and the regrets as they are."""
        own = {name: one for name, one in reply.items() if name != REGRET}
        return {**self.algorithm.summand(message, own), REGRET: reply[REGRET]}

    def begin(self, setting: Setting) -> SteppedState[S]:
        """The algorithm's own beginning."""
        return SteppedState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: SteppedState[S]) -> list[Tasks]:
        """The algorithm's own tasks, with the factor."""
        begun: Any = inner(state)
        told = {FACTOR: state.setting.initial.new_tensor(state.factor)}
        tasks = self.algorithm.ask(replace(begun, setting=state.setting))
        return [replace(some, shared={**some.shared, **told}) for some in tasks]

    def tell(self, state: SteppedState[S], replies: Replies) -> SteppedState[S]:
        """The algorithm's own aggregation, and the choice with the first replies."""
        factor = state.factor
        if not factor and len(replies):
            factor = FACTORS[int(replies.mean(REGRET).argmin())]
        told = self.algorithm.tell(inner(state), replies)
        return replace(state, inner=told, round=told.round, factor=factor)

    def describe(self, state: SteppedState[S]) -> dict[str, Any]:
        """The algorithm's own, and the factor once it is chosen."""
        chosen = {FACTOR.replace(".", "_"): round(state.factor, 4)} if state.factor else {}
        return {**super().describe(state), **chosen}


# -- what fits -----------------------------------------------------------------------------------------------------


def stepped(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm with step sizes chosen on validation rows, inside of all that is around it; unchanged if so."""
    if algorithm.channel.validated:
        return algorithm
    if isinstance(algorithm, Wrapper):
        return replace(algorithm, algorithm=stepped(algorithm.algorithm))
    if isinstance(algorithm, Local):
        return AloneStepped(algorithm)
    return OwnStepped(algorithm) if algorithm.personalised else CommonStepped(algorithm)


def refusal(algorithm: Algorithm[Any]) -> str:
    """Why one step size, or one for each client, is not for this algorithm (unwrapped); empty if it is."""
    shapes = algorithm.reply_shapes(small_setting())
    if overrides(algorithm, "found"):
        return "its solutions are the server's own, and belong to no client"
    if overrides(algorithm, "anatomy"):
        return "its clients train a network for all preferences, of which a few trainings of a plain one say nothing"
    if algorithm.finds_steps:
        return "its server says what step sizes are"
    if not algorithm.personalised and (set(shapes) != {"train"} or "model" not in shapes["train"]):
        return "its clients do more than to train one model"
    return ""


def said(algorithm: Algorithm[Any]) -> str:
    """A sentence of what the choice of step sizes costs; empty where they are fixed."""
    while isinstance(algorithm, Wrapper):
        if isinstance(algorithm, Stepped):
            return algorithm.said
        algorithm = algorithm.algorithm
    return ""
