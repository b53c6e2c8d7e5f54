"""An algorithm asks for work and is told the answers; it never learns who did the work, or where."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.clients import Clients
from fedpareto.core.conditioned import Conditioned
from fedpareto.core.groups import Comparison
from fedpareto.core.layout import Layout
from fedpareto.core.messages import Message, Reply, Shapes, Task
from fedpareto.core.problem import Judge, Objective

ABOVE_ZERO: float = torch.finfo(torch.float32).tiny
"""The least value of what must be positive, for `Algorithm.reply_limits`."""


@dataclass(frozen=True)
class Setting:
    """What everybody in a federation knows. Private preferences and data are not: the server half cannot reach them."""

    seed: int
    clients: tuple[int, ...]
    """The clients' ids, ascending."""
    rounds: int
    layout: Layout
    objectives: tuple[Objective, ...]
    initial: Tensor
    """The model from which everybody starts, `[d]`."""
    participation: float = 1.0
    """Share of the clients that take part in a round."""
    regulars: tuple[int, ...] = ()
    """Clients that are among those in every round."""
    preference: tuple[float, ...] | None = None
    """The one that all clients share, where the federation was set up so; None: each has its own, and keeps it."""
    comparison: Comparison | None = None
    """Of groups of people, where the problem is one of group fairness."""
    judge: Judge | None = None
    """How the server measures models by itself, where the problem lets it."""


@dataclass(frozen=True)
class State:
    """The server's memory between exchanges. Subclasses add tensors and plain values; all of it can be checkpointed."""

    setting: Setting
    round: int = 0
    """Rounds that are over."""


@dataclass(frozen=True)
class Found:
    """A set of k solutions that a server found, for which no client stands; empty as long as it has none."""

    weights: Tensor
    """The importance of each objective with which a solution was trained, `[k, m]`."""
    values: Tensor
    """What it is worth, `[k, 3, m]`: on what training sees, choices are made, solutions are compared."""
    models: Tensor
    """`[k, d]`."""


@dataclass(frozen=True)
class Taxonomy:
    """Where an algorithm stands in chapter 2 of the thesis (figures 2.3 and 2.4, tables 2.1 and 2.2)."""

    level: str
    """At which level of the federated system several objectives enter: top, federation or client level."""
    family: str
    """The label in figure 2.4."""
    method: str
    """How several objectives are handled, locally and globally."""
    objectives: str
    """Which objectives it can take."""


S = TypeVar("S", bound=State)


class Algorithm(ABC, Generic[S]):
    """Both halves of a federated algorithm: a frozen dataclass whose fields are its hyper-parameters.

    The server half (`begin`, `ask`, `tell`, `solutions`) sees messages only. The client half (`train` and any
    further step that a task may name, `personal`) is written over a stack of n clients and may use their private
    preferences, data and state.
    """

    name: ClassVar[str]
    taxonomy: ClassVar[Taxonomy]
    personalised: ClassVar[bool] = False
    """Whether every client gets a model of its own without fine-tuning."""
    averages: ClassVar[bool] = False
    """Whether the server only needs the clients' mean model, all clients alike: then noise on that mean is enough."""
    needs_groups: ClassVar[bool] = False
    """Whether it only works on a problem that compares groups of people."""
    reveals: ClassVar[tuple[str, ...]] = ()
    """Tensors of its replies, such as a scalarised loss, that tell something of a client's preference by themselves."""
    needs_losses: ClassVar[bool] = False
    """Whether it only works where a model has losses on a client's rows, not where clients learn by playing."""

    ends_as_planned: ClassVar[bool] = False
    """Whether its last round is unlike the others, so that it cannot end before it."""

    @property
    def lanes(self) -> int:
        """The most tasks that a client has in one exchange."""
        return 1

    # -- the server half ------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, setting: Setting) -> S:
        """The state before the first round."""

    @abstractmethod
    def ask(self, state: S) -> list[Task]:
        """The work of the next exchange. Pure: asking twice gives the same tasks."""

    @abstractmethod
    def tell(self, state: S, replies: Sequence[Reply]) -> S:
        """The state after the valid replies, which may be fewer than were asked for."""

    @abstractmethod
    def solutions(self, state: S) -> dict[int, Message]:
        """What each client would be sent now to use the result: this, not the tasks, is what gets evaluated."""

    @abstractmethod
    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """By step, exactly what a reply carries; an engine refuses anything else."""

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """By name, the least and the largest value that an honest reply can hold; an engine refuses others."""
        return {"size": (1.0, math.inf)}

    def found(self, state: S) -> Found | None:
        """The solutions that a run is for, where these are a set of their own; None: they are one for each client."""
        return None

    def describe(self, state: S) -> dict[str, Any]:
        """Plain values worth recording every round, such as clusters."""
        return {}

    # -- the client half ------------------------------------------------------------------------------------------

    @abstractmethod
    def train(self, clients: Clients, message: Message) -> Message:
        """The client step of most algorithms: `message` and the result hold tensors `[n, ...]`."""

    def private_state(self, setting: Setting) -> Message:
        """What a new client keeps for itself, without a client dimension."""
        return {}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The models `[n, d]` that the clients use, from what they were sent and what they keep.

        On a problem with groups a client may also use k of them, `[n, k, d]`: then their mean vote counts.
        """
        return message["model"]

    # -- models for other preferences than a client's own ----------------------------------------------------------

    def anatomy(self, layout: Layout, objectives: int) -> Conditioned | None:
        """How a client's keepsake becomes a model for any preference; None: it has a model for its own only."""
        return None

    def keepsake(self, clients: Clients, message: Message) -> Message:
        """What clients need to make models later, `[n, ...]` each: "body" and "hypernetwork" of their `anatomy`."""
        return {}


def unwrapped(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm itself, without what is wrapped around it (fine-tuning, privacy)."""
    while isinstance(inner := getattr(algorithm, "algorithm", None), Algorithm):
        algorithm = inner
    return algorithm


def small_setting() -> Setting:
    """A setting of one client with a small model, to look at the names in an algorithm's replies."""
    layout = Layout.of({"weight": (8, 8)})
    return Setting(0, (0,), 1, layout, (Objective("one"), Objective("two")), torch.zeros(layout.size))


def participant_count(participation: float, clients: int) -> int:
    """How many clients a share of them is, rounded up; 0.1 of 30 is 3, whatever their product is in a computer."""
    return max(1, math.ceil(participation * clients - 1e-9))


def participants(state: State) -> list[int]:
    """The clients of the next round, drawn from (seed, round)."""
    setting = state.setting
    count = participant_count(setting.participation, len(setting.clients))
    if count >= len(setting.clients):
        return list(setting.clients)
    stream = rng.generator(rng.Address(setting.seed, round=state.round + 1), "participants")
    drawn = [int(client) for client in stream.choice(setting.clients, size=count, replace=False)]
    regulars = setting.regulars[:count]
    others = [client for client in drawn if client not in regulars]
    return sorted([*regulars, *others[: count - len(regulars)]])
