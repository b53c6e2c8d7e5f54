"""An algorithm issues tasks and receives the replies; it never learns who did the work, or where."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import Bounded
from fedpareto.contract.channel import OPEN, Channel
from fedpareto.contract.clients import Clients
from fedpareto.contract.conditioned import Conditioned
from fedpareto.contract.groups import Comparison
from fedpareto.contract.messages import Ids, Message, Parcels, Replies, Shapes, Tasks, places
from fedpareto.contract.privacy import Part
from fedpareto.contract.problem import Judge, Objective
from fedpareto.contract.taxonomy import BOXES, COMPARISON, OUTSIDE, Box
from fedpareto.moo.graphs import Graph
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout

ABOVE_ZERO: float = torch.finfo(torch.float32).tiny
"""The smallest allowed value of what must be positive, for `Algorithm.reply_limits`."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Public part of a federation. Private preferences and data are not in it: the server half cannot reach them."""

    seed: int
    clients: Ids
    """The clients' ids, ascending."""
    rounds: int
    layout: Layout
    objectives: tuple[Objective, ...]
    initial: Tensor
    """The model from which every client starts, `[d]`."""
    participation: float = 1.0
    """Share of the clients that take part in a round."""
    regulars: tuple[int, ...] = ()
    """Clients that take part in every round."""
    preference: tuple[float, ...] | None = None
    """The preference that all clients share, if the federation was set up so; None: each has its own, kept private."""
    comparison: Comparison | None = None
    """Demographic groups, where the problem is one of group fairness."""
    judge: Judge | None = None
    """The server's own measurement of models, where the problem lets it."""
    repeats: int = 1
    """Number of runs, one for each seed, that train on the same clients' rows: each of them costs privacy."""
    evaluate_every: int = 1
    """Rounds between two reports of the clients' objectives, which cost privacy too."""
    widths: np.ndarray | None = None
    """The share of the widest network that each client's device can train, `[n]`, in the order of `clients`; None:
    nothing is known about devices.
    """
    waits: bool = True
    """True if a round waits for all who were asked; otherwise its replies are whoever came, one client perhaps, and the
    others are still at work (see clock.policy).
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", np.asarray(self.clients, dtype=np.int64))

    def rows(self, clients: np.ndarray) -> np.ndarray:
        """Places of these clients among all of them."""
        return places(self.clients, clients)


@dataclass(frozen=True)
class State:
    """The server's memory between exchanges. Subclasses add tensors and plain values; all of it can be checkpointed."""

    setting: Setting
    round: int = 0
    """Rounds that are over."""


@dataclass(frozen=True)
class Found:
    """A set of k solutions that a server found, none of which belongs to a client; empty at first."""

    weights: Tensor
    """The importance of each objective with which a solution was trained, `[k, m]`."""
    values: Tensor
    """Objective values, `[k, 3, m]`: on the splits for training, for selection and for comparison."""
    models: Tensor
    """Models of the front, `[k, d]`."""


@dataclass(frozen=True)
class Taxonomy:
    """Place of an algorithm in chapter 2 of the thesis (figures 2.3 and 2.4, tables 2.1 and 2.2)."""

    level: str
    """Level of the federated system at which several objectives enter: top, federation or client; or `outside`."""
    family: str
    """The label of section 2.2, as `BOXES` have it; `single-objective comparison` for a method outside of them."""
    method: str
    """Handling of several objectives, locally and globally."""
    objectives: str
    """Objectives that it can handle."""

    @property
    def box(self) -> Box | None:
        """The box with these labels; None: outside, or a label that section 2.2 does not have."""
        return next((box for box in BOXES if (box.level, box.family) == (self.level, self.family)), None)

    @property
    def place(self) -> str:
        """Level and family in a few words."""
        return f"{self.level}, {self.family}" if self.level == OUTSIDE else f"{self.level} level, {self.family}"

    @property
    def is_known(self) -> bool:
        """True if the thesis has these labels, or they say that it has none."""
        return self.box is not None or (self.level, self.family) == (OUTSIDE, COMPARISON)


Needs: TypeAlias = Literal["all rows", "weighted sum", "norms", "Gram matrix"]
"""The part of the tensors that clients reply with which a server reads, as far as these grow with the model
(`model_sized`): every row; sums over clients; these and the lengths of updates; or these and the inner products of
updates. Each has its methods of `Replies`. A few numbers of each client it may read in any case.
"""

S = TypeVar("S", bound=State)


class Algorithm(Bounded, ABC, Generic[S]):
    """Both halves of a federated algorithm: a frozen dataclass whose fields are its hyper-parameters.

    The server half (`begin`, `ask`, `tell`, `solutions`) sees messages only. The client half (`train` and any
    further step that a task may name, `personal`) is written over a stack of n clients and may use their private
    preferences, data and state.
    """

    name: ClassVar[str]
    taxonomy: ClassVar[Taxonomy]
    personalised: ClassVar[bool] = False
    """True if every client gets a personal model without fine-tuning."""
    averages: ClassVar[bool] = False
    """True if the server only needs the unweighted mean of what clients send: then noise on that mean is enough."""
    needs: ClassVar[Needs] = "all rows"
    """The part of replies that `tell` reads, by these methods. Less than all rows can be added up on the way: in
    shards, in secret, at a relay.
    """
    sums: ClassVar[bool] = False
    """True if `tell` makes the same of the replies' mean, weighted by "size" where clients send it, as of the replies
    (or of the mean of `summand`): then they can be added up in secret (see algorithms.wrappers.secured).
    """
    of_server: ClassVar[tuple[str, ...]] = ()
    """The parameters that only the server half reads, and that change no shape: runs that differ in nothing else can be
    trained side by side.
    """
    requires: ClassVar[tuple[str, ...]] = ()
    """Requirements on a problem for it to work: `groups` of people (group fairness), `losses` of a model on a client's
    rows (reinforcement learning has none), or the last `hidden layer` of a network (see SupervisedProblem.readout).
    """
    reveals: ClassVar[tuple[str, ...]] = ()
    """Tensors of its replies, such as a scalarised loss, that by themselves reveal something about a client's
    preference.
    """
    clusters_all: ClassVar[bool] = False
    """True if its clients are in clusters that are examined only when all of their members have replied."""
    finds_steps: ClassVar[bool] = False
    """True if its server says by how much step sizes are multiplied."""
    exchanges: ClassVar[int] = 1
    """The most exchanges that a round takes: `tell` ends a round by `round=state.round + 1`."""
    ends_as_planned: ClassVar[bool] = False
    """True if its last round differs from the others, so that a run cannot stop before it."""
    policy: ClassVar[Literal["sync", "buffered", "asynchronous"]] = "sync"
    """Policy by which its rounds wait, if a run does not say (see clock.policy)."""
    waits: ClassVar[str] = ""
    """Why a round has to wait for all who were asked; empty: a late reply has a meaning, see `refreshed`."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A `tell` of its own, or of a class in front, has none of what is said of the inherited one: it needs all rows
        and is no mean or sum, unless the class says so.
        """
        super().__init_subclass__(**options)
        safe: dict[str, Any] = {"needs": "all rows", "sums": False, "averages": False}
        for name, value in safe.items():
            if cls.__mro__.index(_owner(cls, "tell")) < cls.__mro__.index(_owner(cls, name)):
                setattr(cls, name, value)

    @property
    def method(self) -> Algorithm[Any]:
        """The algorithm itself, without what stands around it (fine-tuning, the steps of a channel)."""
        return self

    @property
    def channel(self) -> Channel:
        """The steps around it that change what clients send."""
        return OPEN

    @property
    def cost(self) -> str:
        """A line about unusual costs of a round, printed before a run begins; usually empty."""
        return ""

    @property
    def lanes(self) -> int:
        """The most tasks that a client has in one exchange."""
        return 1

    # -- the server half ------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, setting: Setting) -> S:
        """The state before the first round."""

    @abstractmethod
    def ask(self, state: S) -> list[Tasks]:
        """The tasks of the next exchange: a few stacks. Pure: asking twice gives the same tasks."""

    @abstractmethod
    def tell(self, state: S, replies: Replies) -> S:
        """The state after the valid replies, which may be fewer than the tasks."""

    @abstractmethod
    def solutions(self, state: S) -> Parcels:
        """The messages that each client would be sent now to use the result: this, not the tasks, is what gets
        evaluated.
        """

    @abstractmethod
    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """Exact contents of a reply, by step; an engine refuses anything else."""

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Kind of each tensor of a reply, by name, for privacy to hide a client in it; without an entry it cannot."""
        return {**dict.fromkeys(("model", "models", "body", "updates"), "update"), "size": "count"}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """The smallest and largest value that an honest reply can hold, by name; an engine refuses others."""
        return {"size": (1.0, math.inf)}

    @property
    def reply_types(self) -> Mapping[str, torch.dtype]:
        """Types of tensors in replies that are not numbers of the engine's precision, by name."""
        return {}

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Late replies `[k, ...]` as if they began from the state that they meet: x ← now + s·(x − begun).

        `begun` is where their tensors began, `now` where they would begin in this round (both only of tensors for which
        that can be said: the others are taken as they are), `weights` the s(τ) of each, `[k]`.
        """
        return {**reply, **{name: _moved(now[name], weights, reply[name] - begun[name]) for name in begun}}

    def found(self, state: S) -> Found | None:
        """The solutions of a run where they are a set of their own; None: one solution for each client."""
        return None

    def describe(self, state: S) -> dict[str, Any]:
        """Plain values to record every round, such as clusters."""
        return {}

    def shares(self, setting: Setting) -> np.ndarray | None:
        """Share of a whole training's operations and of a whole model's bytes that each client has, `[n, 2]`, in the
        order of `setting.clients`; None: everybody has all of it.
        """
        return None

    def neighbours(self, clients: int) -> Graph | None:
        """The graph of clients that exchange models where there is no server; None: there is one."""
        return None

    # -- the client half ------------------------------------------------------------------------------------------

    @abstractmethod
    def train(self, clients: Clients, message: Message) -> Message:
        """The client step of most algorithms: `message` and the result hold tensors `[n, ...]`."""

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        """The step that a task names: `train`, or another method of this form."""
        reply: Message = getattr(self, step)(clients, message)
        return reply

    def private_state(self, setting: Setting) -> Message:
        """Tensors that a new client keeps for itself, without a client dimension."""
        return {}

    def personal_state(self, setting: Setting) -> Message:
        """The part of that on which a client's model depends."""
        return self.private_state(setting)

    def summand(self, message: Message, reply: Message) -> Message:
        """A reply to a message as it is added up in secret: with what the server would do to each one by itself."""
        return reply

    def ring_noise(self, clients: Clients, whole: Tensor, unit: float, counts: Tensor) -> Tensor | None:
        """Whole numbers to add to what clients send to a secure sum, `whole` `[n, D]`, before it is masked; or none.

        1 stands for `unit` of a reply; each client is one of `counts` `[n]` whose numbers will be added up.
        """
        return None

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The models `[n, d]` that the clients use, from what they were sent and what they keep.

        On a group fairness problem a client may also use k of them, `[n, k, d]`, as an ensemble: their probabilities
        are averaged.
        """
        return message["model"]

    # -- models for other preferences than a client's own ----------------------------------------------------------

    def anatomy(self, layout: Layout, objectives: int) -> Conditioned | None:
        """Way from a client's `model_parts` to a model for any preference; None: it has a model for its own only."""
        return None

    def model_parts(self, clients: Clients, message: Message) -> Message:
        """Tensors that clients need to make models later, `[n, ...]` each: "body" and "hypernetwork" of their
        `anatomy`.
        """
        return {}


def _owner(cls: type, name: str) -> type:
    """The class from which another one has an attribute."""
    return next(one for one in cls.__mro__ if name in vars(one))


def _moved(rows: Tensor, weights: Tensor, updates: Tensor) -> Tensor:
    """Each row `[k, ...]` plus its update times its weight `[k]`."""
    if len(weights) == 1:  # A number is less work than a tensor of one, which counts where every reply is a round.
        return torch.add(rows, updates, alpha=weights.item())
    return torch.addcmul(rows, weights.to(rows).view(-1, *[1] * (rows.dim() - 1)), updates)


def overrides(algorithm: Algorithm[Any], member: str) -> bool:
    """True if the method has this member of its own."""
    return getattr(type(algorithm.method), member) is not getattr(Algorithm, member)


def model_sized(algorithm: Algorithm[Any], setting: Setting, step: str) -> frozenset[str]:
    """The tensors in replies to a step that grow with the model; the others are a few numbers of each client."""
    layout = setting.layout
    doubled = replace(layout, shapes=tuple((2 * shape[0], *shape[1:]) if shape else () for shape in layout.shapes))
    larger = replace(setting, layout=doubled, initial=setting.initial.new_empty(doubled.size))
    after = algorithm.reply_shapes(larger)[step]
    return frozenset(name for name, shape in algorithm.reply_shapes(setting)[step].items() if shape != after[name])


def small_setting() -> Setting:
    """A setting of one client with a small model, to inspect the names in an algorithm's replies."""
    layout = Layout.of({"weight": (8, 8)})
    return Setting(0, np.zeros(1), 1, layout, (Objective("one"), Objective("two")), torch.zeros(layout.size))


def participant_count(participation: float, clients: int) -> int:
    """Number of clients that a share of them is, rounded up; 0.1 of 30 is 3, whatever the floating-point product is."""
    return max(1, math.ceil(participation * clients - 1e-9))


def participants(state: State) -> Ids:
    """The clients of the next round, drawn from (seed, round); costs what the participants cost, not all clients."""
    setting = state.setting
    count = participant_count(setting.participation, len(setting.clients))
    if count >= len(setting.clients):
        return setting.clients
    stream = rng.generator(rng.Address(setting.seed, round=state.round + 1), "participants")
    drawn = setting.clients[stream.choice(len(setting.clients), size=count, replace=False)]
    regulars = np.array(setting.regulars[:count], dtype=np.int64)
    others = drawn[~np.isin(drawn, regulars)][: count - len(regulars)]
    return np.sort(np.concatenate([regulars, others]))


def by_client(setting: Setting, replies: Replies, values: Tensor, absent: float = 0.0) -> Tensor:
    """The rows of `values`, which belong to replies, in the order of `setting.clients`; `absent` without a reply."""
    if len(replies) == len(setting.clients):
        return values
    whole = values.new_full((len(setting.clients), *values.shape[1:]), absent)
    whole[torch.as_tensor(setting.rows(replies.clients), device=values.device)] = values
    return whole


def to_participants(state: State, step: str = "train", /, **shared: Tensor) -> list[Tasks]:
    """Give every participant of the next round the same work."""
    return [Tasks(participants(state), shared, round=state.round + 1, step=step)]


def to_everyone(state: State, /, **shared: Tensor) -> Parcels:
    """Give every client the same tensors."""
    return Parcels(state.setting.clients, shared)
