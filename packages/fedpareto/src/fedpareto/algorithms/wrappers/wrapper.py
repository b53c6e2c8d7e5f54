"""An algorithm around another one: fine-tuning, the steps of a channel. All that it does not change is handed on.

A subclass says what is different: `client_step` for what happens at the client, `ask` and `tell` at the server.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fedpareto.contract.algorithm import Algorithm, Found, S, Setting, State
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks

W = TypeVar("W", bound=State)
OWN = (
    *("name", "taxonomy", "personalised", "method", "channel"),
    *("averages", "needs", "sums", "of_server", "requires", "reveals", "clusters_all", "finds_steps"),
    *("exchanges", "ends_as_planned", "policy", "waits", "cost", "lanes", "reply_parts", "reply_limits", "reply_types"),
    *("found", "describe", "refreshed", "shares", "neighbours"),
    *("private_state", "summand", "ring_noise", "personal", "anatomy", "model_parts"),
)
"""The members of an algorithm that a wrapper hands on, beside those that every algorithm has to define."""


def own(name: str) -> Any:
    """A member that is the algorithm's own."""
    return property(lambda wrapper: getattr(wrapper.algorithm, name), doc="The algorithm's own.")


@dataclass(frozen=True)
class Wrapper(Algorithm[W], Generic[W]):
    """Another algorithm, with its state."""

    algorithm: Algorithm[Any]

    def begin(self, setting: Setting) -> W:
        begun: W = self.algorithm.begin(setting)
        return begun

    def ask(self, state: W) -> list[Tasks]:
        return self.algorithm.ask(state)

    def tell(self, state: W, replies: Replies) -> W:
        told: W = self.algorithm.tell(state, replies)
        return told

    def solutions(self, state: W) -> Parcels:
        return self.algorithm.solutions(state)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        return self.algorithm.reply_shapes(setting)

    def train(self, clients: Clients, message: Message) -> Message:
        return self.client_step("train", clients, message)

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        return self.algorithm.client_step(step, clients, message)


for _name in OWN:
    setattr(Wrapper, _name, own(_name))


@dataclass(frozen=True)
class Outer(State, Generic[S]):
    """The state of a wrapper that remembers something of its own."""

    inner: S | None = None
    """The algorithm's own state."""


O = TypeVar("O", bound="Outer[Any]")  # noqa: E741


@dataclass(frozen=True)
class Stateful(Wrapper[O], Generic[O]):
    """Another algorithm, whose state is part of one's own."""

    @abstractmethod
    def begin(self, setting: Setting) -> O: ...

    def ask(self, state: O) -> list[Tasks]:
        return self.algorithm.ask(inner(state))

    @abstractmethod
    def tell(self, state: O, replies: Replies) -> O: ...

    def solutions(self, state: O) -> Parcels:
        return self.algorithm.solutions(inner(state))

    def found(self, state: O) -> Found | None:
        return self.algorithm.found(inner(state))

    def describe(self, state: O) -> dict[str, Any]:
        return self.algorithm.describe(inner(state))


def inner(state: Outer[S]) -> S:
    """The algorithm's own state."""
    assert state.inner is not None, "a state made by begin has the algorithm's own state"
    return state.inner
