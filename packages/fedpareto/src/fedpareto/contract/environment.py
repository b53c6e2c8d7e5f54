"""Environments over a stack of clients: every client has its own copy, and all copies step at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedpareto.contract.messages import Message
from fedpareto.tensors import rng


@dataclass(frozen=True)
class Actions:
    """The actions of an environment: one of `count` discrete actions, or a vector between `low` and `high`."""

    count: int = 0
    """Number of discrete actions; 0: actions are vectors."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def discrete(self) -> bool:
        return self.count > 0

    @property
    def size(self) -> int:
        """Length of an action."""
        return 1 if self.discrete else len(self.low)


class Transition(NamedTuple):
    """The result of one step of n environments."""

    observation: Tensor
    """Observation after the step and before any new episode, `[n, o]`, single precision as everything here."""
    reward: Tensor
    """Reward of every objective, `[n, m]`."""
    terminated: Tensor
    """True where the episode terminated, `[n]`: there is no reward after it."""
    truncated: Tensor
    """True where it was truncated at the time limit, `[n]`."""


class Session(ABC):
    """n episodes in progress. An episode that ends is followed by a new one at once."""

    observation: Tensor
    """The current observation, `[n, o]`: of the new episode where one has just begun."""
    capturable: bool = False
    """True if `step` is a plain tensor program that changes tensors in place, which a CUDA graph can replay."""

    @abstractmethod
    def step(self, action: Tensor) -> Transition:
        """Takes `action`, whole numbers `[n]` or vectors `[n, a]`, in every environment."""

    @abstractmethod
    def state(self) -> Message:
        """The whole state, `[n, ...]` each; `Environment.open` resumes from it bit for bit."""

    def rest(self, over: Tensor) -> None:  # noqa: B027 (a tensor program gains nothing by it)
        """Marks environments whose further steps are not needed, `[n]`; they may be skipped."""

    def close(self) -> None:  # noqa: B027 (most have nothing to give back)
        """Releases the session's resources."""


class Environment(ABC):
    """A multi-objective Markov decision process. All tensors have the client dimension first."""

    observation_size: int
    """Length o of an observation."""
    actions: Actions
    objectives: int
    """Length m of a reward."""
    horizon: int
    """Steps after which an episode is truncated."""
    deterministic: bool = False
    """True if a deterministic policy always has the same return."""

    @abstractmethod
    def blank(self) -> Message:
        """The shape of one client's state, filled with zeros and without a client dimension."""

    @abstractmethod
    def begin(self, addresses: rng.Addresses, device: torch.device) -> Message:
        """The state of clients before their first episode, `[n, ...]`."""

    @abstractmethod
    def open(self, state: Message, addresses: rng.Addresses) -> Session:
        """Resumes from `state`."""

    def scaled(self, action: Tensor) -> Tensor:
        """A policy's action as the environment wants it: vectors from between −1 and 1 to between the bounds."""
        if self.actions.discrete:
            return action
        # Plain numbers where they are all there is: a tensor made here could not be recorded in a CUDA graph.
        spans = {(low, high) for low, high in zip(self.actions.low, self.actions.high, strict=True)}
        if len(spans) == 1:
            ((low, high),) = spans
            return low + (action + 1) / 2 * (high - low)
        columns = zip(action.unbind(-1), self.actions.low, self.actions.high, strict=True)
        return torch.stack([low + (column + 1) / 2 * (high - low) for column, low, high in columns], dim=-1)

    def every_observation(self) -> Tensor | None:
        """All non-terminal observations, `[s, o]`, where there are few: a learner may then use tables."""
        return None

    def number(self, observation: Tensor) -> Tensor:
        """The row of `every_observation` for each of `[..., o]`; any row where an episode is over."""
        raise NotImplementedError(f"{type(self).__name__} has no list of its observations")


class TensorEnvironment(Environment):
    """An environment whose dynamics are a pure tensor program; all episodes of a client begin alike."""

    deterministic = True

    @abstractmethod
    def start(self, n: int, device: torch.device) -> Message:
        """The state at the beginning of n episodes."""

    def restart(self, state: Message) -> Message:
        """The state at the beginning of the next episode of each client; unless they differ, that of n episodes."""
        first = next(iter(state.values()))
        return self.start(len(first), first.device)

    @abstractmethod
    def observe(self, state: Message) -> Tensor:
        """The observation in `state`, `[n, o]`."""

    @abstractmethod
    def advance(self, state: Message, action: Tensor) -> tuple[Message, Tensor, Tensor]:
        """The state after `action`, the rewards `[n, m]`, and whether the episode is over, `[n]`."""

    def blank(self) -> Message:
        fresh = self.begin(rng.Addresses.of([rng.Address(0)]), torch.device("cpu"))
        return {name: torch.zeros_like(tensor[0]) for name, tensor in fresh.items()}

    def begin(self, addresses: rng.Addresses, device: torch.device) -> Message:
        """Begin episodes; `elapsed` counts the steps of each."""
        elapsed = torch.zeros(len(addresses), dtype=torch.int64, device=device)
        return self.start(len(addresses), device) | {"elapsed": elapsed}

    def open(self, state: Message, addresses: rng.Addresses) -> Session:
        return _TensorSession(self, state)


class _TensorSession(Session):
    """n episodes of a TensorEnvironment: tensors that every step changes in place."""

    capturable = True

    def __init__(self, environment: TensorEnvironment, state: Message) -> None:
        self.environment = environment
        self._elapsed = state["elapsed"].clone()
        self._state = {name: tensor.clone() for name, tensor in state.items() if name != "elapsed"}
        self.observation = environment.observe(self._state).clone()
        self._fresh = environment.restart(self._state)
        self._first = environment.observe(self._fresh)

    def step(self, action: Tensor) -> Transition:
        after, reward, terminated = self.environment.advance(self._state, action)
        seen = self.environment.observe(after)
        self._elapsed += 1
        over = terminated | (self._elapsed >= self.environment.horizon)
        for name, kept in self._state.items():
            torch.where(_like(over, kept), self._fresh[name], after[name], out=kept)
        torch.where(over.unsqueeze(1), self._first, seen, out=self.observation)
        self._elapsed.mul_(~over)
        return Transition(seen, reward, terminated, over & ~terminated)

    def state(self) -> Message:
        return self._state | {"elapsed": self._elapsed}


def _like(flags: Tensor, tensor: Tensor) -> Tensor:
    """Flags `[n]` that broadcast over `tensor` `[n, ...]`."""
    return flags.view(-1, *[1] * (tensor.dim() - 1))
