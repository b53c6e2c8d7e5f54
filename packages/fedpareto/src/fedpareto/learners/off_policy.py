"""Off-policy learning from a replay buffer, for n clients at once: what DQN and DDPG have in common.

Each client acts in its own environment, stores transitions in its own ring buffer and learns from random samples of
it; all of them do so in lockstep, as one batched tensor program. The order of operations is that of stable-baselines3:
`train_freq` steps, then `gradient_steps` updates.

What the server gets and sends is the policy's networks (see Policy.layout): the Q-network, or actor and critic. Nothing
else ever leaves a client: it keeps the optimiser's moments, the replay buffer, the episode in progress and the number
of steps done so far, on which exploration depends, from round to round. Target networks are not averaged: they begin a
round as copies of what the server sent, or continue as they were.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import AtLeast, Count, Positive, Share, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Learner, Pull
from fedpareto.contract.messages import Message
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.contract.stack import Named, Stack
from fedpareto.tensors.replay import Replayed

PLACE = "environment."
"""Prefix of the names of an environment's state in a client's learner state."""


@dataclass(frozen=True)
class OffPolicy(Learner):
    """Hyper-parameters by the names of stable-baselines3, where it has them."""

    steps: Count = 1_000
    """Environment steps in one round, rounded up to a multiple of `train_freq`."""
    lr: Positive = 1e-3
    """Step size of Adam."""
    batch_size: Count = 64
    """Transitions in one update."""
    buffer_size: Count = 50_000
    """Transitions in a client's replay buffer."""
    learning_starts: Whole = 1_000
    """Steps with random actions before the first update."""
    gamma: Share = 0.99
    """Discount of later rewards."""
    train_freq: Count = 4
    """Environment steps between updates."""
    gradient_steps: Annotated[int, AtLeast(-1)] = 1
    """Updates after every `train_freq` steps; −1: as many as steps."""
    optimiser_state: Literal["kept", "fresh"] = "kept"
    """Treatment of Adam's moments: kept from round to round (they never leave the client), or reset in each."""
    target: Literal["received", "kept"] = "received"
    """Start of the target network in every round: a copy of what the server sent, or as it was.
    Received ones make federated training far more stable: a target that belongs to another model misleads it.
    """

    agent: ClassVar[type[Agent]]

    @property
    def turns(self) -> int:
        return -(-self.steps // self.train_freq)

    @property
    def updates(self) -> int:
        return self.train_freq if self.gradient_steps < 0 else self.gradient_steps

    def train(self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        agent = self.agent(self, clients, model, weights, pull)
        try:
            for _ in range(self.turns):
                agent.turn()
            clients.memory = agent.memory()
        finally:
            agent.close()
        return agent.model

    def memory(self, problem: Named) -> Message:
        played = reinforcement(problem)
        environment, size = played.environment, played.layout.size
        place = {PLACE + name: tensor for name, tensor in environment.blank().items()}
        return place | {
            "steps": torch.zeros((), dtype=torch.int64),
            "target": torch.zeros(size),
            "first": torch.zeros(size),
            "second": torch.zeros(size),
            "moves": torch.zeros(()),
            "buffer": torch.zeros(self.buffer_size, Rows.of(played).width),
        }

    def bytes_per_client(self, clients: Stack) -> int:
        """Three times a client's learner state (kept, in use, new), and what an update keeps."""
        problem = reinforcement(clients.problem)
        item = clients.preferences.element_size()
        with torch.device("meta"):  # Only their sizes: a buffer may be larger than this machine.
            remembered = sum(tensor.numel() * tensor.element_size() for tensor in self.memory(problem).values())
        widths = sum(sum(network.hidden) + network.outputs for network in problem.policy.networks.values())
        drawn = self.turns * self.updates * self.batch_size * 4
        return 3 * remembered + item * (6 * problem.layout.size + 8 * self.batch_size * widths) + drawn

    def probe(self) -> Self:
        """Learner of two turns with updates, of clients with a small buffer."""
        return replace(self, steps=2 * self.train_freq, learning_starts=0, buffer_size=min(self.buffer_size, 1_000))

    def effort(self, counts: np.ndarray) -> np.ndarray:
        return np.full(len(counts), float(self.turns))

    def countable(self, rows: int) -> tuple[Self, tuple[int, ...]]:
        """Probe, which updates from the first turn on."""
        return self.probe(), (0,)


def reinforcement(problem: Named) -> ReinforcementProblem:
    if not isinstance(problem, ReinforcementProblem):
        raise UserError(f"the problem '{problem.name}' has no environment to play in; it needs a learner of its own")
    return problem


@dataclass(frozen=True)
class Rows:
    """The layout of a transition in a row of numbers."""

    observation: int
    objectives: int
    action: int

    @classmethod
    def of(cls, problem: ReinforcementProblem) -> Rows:
        environment = problem.environment
        return cls(environment.observation_size, environment.objectives, environment.actions.size)

    @property
    def width(self) -> int:
        return 2 * self.observation + self.objectives + self.action + 1

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Observation, next observation, reward, action and whether the episode terminated, of rows `[..., width]`."""
        sizes = [self.observation, self.observation, self.objectives, self.action, 1]
        seen, after, reward, action, ended = torch.split_with_sizes(rows, sizes, dim=-1)
        return seen, after, reward, action, ended


class Agent:
    """n clients in one round: tensors that every step changes in place, so that CUDA graphs can replay it."""

    def __init__(self, learner: OffPolicy, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None) -> None:
        self.learner, self.clients, self.weights, self.pull = learner, clients, weights, pull
        self.problem = reinforcement(clients.problem)
        self.environment, self.policy = self.problem.environment, self.problem.policy
        self.rows = Rows.of(self.problem)
        self.model = model.clone()
        self.device, self.n = model.device, len(clients)
        memory = clients.memory or _stacked(learner.memory(self.problem), self.n, self.device)
        self._remember(memory, model)
        self.leaves = {name: view.detach() for name, view in self.problem.layout.unflatten(self.model).items()}
        for leaf in self.leaves.values():
            leaf.requires_grad_()
        self.followed = self.problem.layout.unflatten(self.target)
        self.gradient = torch.empty_like(self.model)
        self._draw()
        recorded = self.device if clients.recordings.are_made(self.device) else None
        # A step whose environment is in another process is recorded in two parts, before and after it.
        whole, part = (recorded, None) if self.session.capturable else (None, recorded)
        self._play = Replayed(self.play, whole)
        self._choose = Replayed(self.choose, part)
        self._store = Replayed(self.store, part)
        self._learn = Replayed(lambda: self.update(None), recorded)

    def close(self) -> None:
        for recorded in (self._play, self._choose, self._store, self._learn):
            recorded.release()
        self.session.close()

    # -- learner state ---------------------------------------------------------------------------------------------

    def _remember(self, memory: Message, model: Tensor) -> None:
        """Continues from the clients' learner state; a new client starts afresh."""
        self.count = memory["steps"].clone()
        self.counts = self.count.cpu().numpy().copy()
        """Steps on the host, for control flow."""
        new = self.count == 0
        if self.learner.target == "received":
            self.target = model.clone()
        else:
            self.target = torch.where(new[:, None], model, memory["target"].to(model.dtype))
        keeps = self.learner.optimiser_state == "kept"
        self.first, self.second, self.moves = (
            memory[name].to(model.dtype if name != "moves" else torch.float32).clone().mul_(keeps)
            for name in ("first", "second", "moves")
        )
        self.buffer = memory["buffer"].to(model.dtype).clone()
        begun = self.environment.begin(self.clients.addresses, self.device)
        place = {
            name: torch.where(new.view(-1, *[1] * (fresh.dim() - 1)), fresh, memory[PLACE + name])
            for name, fresh in begun.items()
        }
        self.session = self.environment.open(place, self.clients.addresses)
        self._bases = torch.arange(self.n, device=self.device) * self.learner.buffer_size
        actions = self.environment.actions
        shape = (self.n,) if actions.discrete else (self.n, actions.size)
        self.action = torch.zeros(shape, dtype=torch.int64 if actions.discrete else torch.float32, device=self.device)
        self.seen = torch.empty_like(self.session.observation)
        self.came = self.seen.new_empty(self.n, self.rows.observation + self.rows.objectives + 1)

    def memory(self) -> Message:
        place = {PLACE + name: tensor for name, tensor in self.session.state().items()}
        return place | {
            "steps": self.count,
            "target": self.target,
            "first": self.first,
            "second": self.second,
            "moves": self.moves,
            "buffer": self.buffer,
        }

    # -- a turn ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Takes `train_freq` steps, then learns."""
        learner = self.learner
        self.before_playing()
        for _ in range(learner.train_freq):
            self._play()
        before, self.counts = self.counts, self.counts + learner.train_freq
        self.after_playing(before)
        learning = self.counts > learner.learning_starts
        for _ in range(learner.updates if learning.any() else 0):
            if learning.all():
                self._learn()
            else:
                self.update(np.flatnonzero(learning))

    def play(self) -> None:
        self.seen.copy_(self.session.observation)
        self._choose()
        after, reward, terminated, _ = self.session.step(self.environment.scaled(self.action))
        # A truncated episode has not terminated, so its last step is not terminal.
        torch.cat([after, reward, terminated.unsqueeze(1)], dim=1, out=self.came)
        self._store()

    def choose(self) -> None:
        self.action.copy_(self.explore(self.seen))

    def store(self) -> None:
        came, ended = self.came[:, :-1], self.came[:, -1:]
        row = torch.cat([self.seen, came, self.action.view(self.n, -1), ended], dim=1).to(self.buffer.dtype)
        place = self._bases + self.count % self.learner.buffer_size
        self.buffer.flatten(0, 1).index_copy_(0, place, row)
        self.count += 1
        self.step_number += 1

    def sample(self, who: np.ndarray | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Sampled transitions, `[n, b, ...]`: observation, next observation, scalarised reward, action, termination.

        Each client counts its own updates, so that it samples the same beside others that do not learn yet.
        """
        uniform = self.samples.flatten(0, 1).index_select(0, self.sample_number)
        if who is None:
            self.sample_number += 1
        else:
            self.sample_number[who] += 1
        held = self.count.clamp(max=self.learner.buffer_size)
        index = self._bases.unsqueeze(1) + (uniform * held.unsqueeze(1)).long()
        rows = self.buffer.flatten(0, 1).index_select(0, index.flatten()).view(*index.shape, -1)
        seen, after, reward, action, ended = self.rows.split(rows)
        scalar = (reward * self.weights.unsqueeze(1)).sum(-1)
        return seen, after, scalar, action, ended.squeeze(-1)

    # -- random numbers ------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """All random numbers of this round, drawn ahead from each client's own streams."""
        learner = self.learner
        steps, updates = learner.turns * learner.train_freq, learner.turns * learner.updates
        self.samples = self.uniform("samples", (updates, learner.batch_size))
        self.step_number = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.sample_number = torch.arange(self.n, device=self.device) * updates
        self.draw(steps)

    def uniform(self, purpose: str, shape: tuple[int, ...]) -> Tensor:
        """Numbers from 0 to 1, `[n, *shape]`, single precision, from the stream of each client for a purpose."""
        return self.clients.addresses.uniform(purpose, math.prod(shape)).view(self.n, *shape)

    def normal(self, purpose: str, shape: tuple[int, ...]) -> Tensor:
        """Normally distributed numbers, `[n, *shape]`."""
        return self.clients.addresses.normal(purpose, math.prod(shape)).float().view(self.n, *shape)

    # -- what an algorithm adds ------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, steps: int) -> None:
        """The random numbers behind the actions."""

    @abstractmethod
    def explore(self, seen: Tensor) -> Tensor:
        """The next actions, `[n]` or `[n, a]` between −1 and 1."""

    @abstractmethod
    def update(self, who: np.ndarray | None) -> None:
        """One gradient step of the clients `who` (None: all)."""

    def before_playing(self) -> None:
        """Prepares for the steps of a turn."""

    def after_playing(self, before: np.ndarray) -> None:
        """Does what is due after the steps of a turn; `before` is the clients' number of steps before it."""


def _stacked(blank: Message, n: int, device: torch.device) -> Message:
    return {name: tensor.to(device).expand(n, *tensor.shape) for name, tensor in blank.items()}
