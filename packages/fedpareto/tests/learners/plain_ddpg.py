"""DDPG for a single client, written as one would without any thought of stacks, and an environment to try it in."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedpareto.contract.environment import Actions, TensorEnvironment
from fedpareto.contract.problem import Objective
from fedpareto.problems.morl.problem import MORLProblem


@dataclass(frozen=True)
class Sled(TensorEnvironment):
    """A sled on ice is pushed to and fro, and steered, between two posts: be near the first, and push little.

    It is over when the sled is far off; and after 20 steps.
    """

    observation_size: int = 3
    actions: Actions = Actions(low=(-2.0, -1.0), high=(2.0, 3.0))
    objectives: int = 2
    horizon: int = 20

    def start(self, n, device):
        return {"sled": torch.tensor([0.5, 0.0, 0.0], device=device).repeat(n, 1)}

    def observe(self, state):
        return state["sled"].clone()

    def advance(self, state, action):
        place, speed, heading = state["sled"].unbind(1)
        push, steer = action.unbind(1)
        heading = 0.8 * heading + 0.1 * steer
        speed = 0.9 * speed + 0.2 * push * torch.cos(heading)
        place = place + 0.3 * speed
        reward = torch.stack([-(place + 0.4).square(), -0.1 * push.square() - 0.1 * (steer - 1).square()], dim=1)
        return {"sled": torch.stack([place, speed, heading], dim=1)}, reward, place.abs() > 1.5


@dataclass(frozen=True)
class Sledding(MORLProblem):
    """For learners of actions that are vectors."""

    name: ClassVar[str] = "sledding"
    hidden: tuple[int, ...] = (24, 16)

    @cached_property
    def environment(self):
        return Sled()

    @property
    def objectives(self):
        return Objective("near", maximise=True, reference=-100.0), Objective("ease", maximise=True, reference=-100.0)


class PlainDDPG:
    def __init__(self, learner, problem, address, weights, model):
        self.learner, self.weights, self.environment = learner, weights, problem.environment
        self.actor, self.critic = networks_of(problem, model)
        self.slow_actor, self.slow_critic = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.of_actor = torch.optim.Adam(self.actor.parameters(), lr=learner.lr)
        self.of_critic = torch.optim.Adam(self.critic.parameters(), lr=learner.lr)
        self.session = self.environment.open(self.environment.begin(address, torch.device("cpu")), address)
        self.memory, self.done = [], 0
        self.begin(address)

    def begin(self, address):
        """A round's chance."""
        learner = self.learner
        size = len(self.environment.actions.low)
        turns = -(-learner.steps // learner.train_freq)
        steps, updates = turns * learner.train_freq, turns * self.updates
        self.at_random = iter(2 * address.uniform("exploration", steps * size).view(steps, size).numpy() - 1)
        noise = address.normal("noise", steps * size).float().view(steps, size).numpy()
        self.noise = iter(np.float32(learner.noise_std) * noise)
        self.sampled = iter(address.uniform("samples", updates * learner.batch_size).view(updates, -1).numpy())

    @property
    def updates(self):
        return self.learner.train_freq if self.learner.gradient_steps == -1 else self.learner.gradient_steps

    def play(self):
        """A round; gives the model after every update."""
        trace, end = [], self.done + self.learner.steps
        while self.done < end:
            for _ in range(self.learner.train_freq):
                self.step()
            if self.done > self.learner.learning_starts:
                for _ in range(self.updates):
                    self.update()
                    trace.append(torch.cat([flat(self.actor), flat(self.critic)]))
        return trace

    def step(self):
        seen = self.session.observation[0].clone()
        with torch.no_grad():
            action = self.actor(seen)
        at_random, noise = next(self.at_random), next(self.noise)
        if self.done < self.learner.learning_starts:
            action = torch.as_tensor(at_random)
        action = torch.clip(action + torch.as_tensor(noise), -1, 1)
        low, high = (torch.tensor(side) for side in (self.environment.actions.low, self.environment.actions.high))
        after, reward, terminated, _ = self.session.step((low + 0.5 * (action + 1) * (high - low))[None])
        row = (seen, after[0], float(reward[0] @ self.weights), action, float(terminated))
        place = self.done % self.learner.buffer_size
        self.memory[place : place + 1] = [row]
        self.done += 1

    def update(self):
        rows = [self.memory[int(share * np.float32(len(self.memory)))] for share in next(self.sampled)]
        seen, after, action = (torch.stack([row[i] for row in rows]) for i in (0, 1, 3))
        reward, ended = (torch.tensor([row[i] for row in rows]) for i in (2, 4))
        with torch.no_grad():
            later = self.slow_critic(torch.cat([after, self.slow_actor(after)], dim=1)).squeeze(1)
            goal = reward + self.learner.gamma * (1 - ended) * later
        loss = nn.functional.mse_loss(self.critic(torch.cat([seen, action], dim=1)).squeeze(1), goal)
        self.of_critic.zero_grad()
        loss.backward()
        self.of_critic.step()
        loss = -self.critic(torch.cat([seen, self.actor(seen)], dim=1)).mean()
        self.of_actor.zero_grad()
        loss.backward()
        self.of_actor.step()
        with torch.no_grad():
            for fast, slow in ((self.actor, self.slow_actor), (self.critic, self.slow_critic)):
                for new, old in zip(fast.parameters(), slow.parameters(), strict=True):
                    old.copy_((1 - self.learner.tau) * old + self.learner.tau * new)


def networks_of(problem, model):
    """Ordinary torch modules with the parameters of a flat model: the actor and the critic."""
    views = problem.layout.unflatten(model)
    modules = []
    for prefix, last in (("actor.", nn.Tanh()), ("critic.", nn.Identity())):
        layers = []
        for i in range(len(problem.hidden) + 1):
            weight, bias = views[f"{prefix}{i}.weight"], views[f"{prefix}{i}.bias"]
            layer = nn.Linear(*weight.shape)
            with torch.no_grad():
                layer.weight.copy_(weight.T)
                layer.bias.copy_(bias)
            layers += [layer, nn.ReLU()]
        modules.append(nn.Sequential(*layers[:-1], last))
    return modules


def flat(network):
    """The parameters of such a module as they lie in a flat model."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return torch.cat([part for layer in layers for part in (layer.weight.detach().T.reshape(-1), layer.bias.detach())])
