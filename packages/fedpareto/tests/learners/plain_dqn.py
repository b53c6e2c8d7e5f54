"""DQN for a single client, written as one would without any thought of stacks: the truth for the batched learner."""

import copy

import numpy as np
import torch
from torch import nn


class PlainDQN:
    def __init__(self, learner, problem, address, weights, model):
        self.learner, self.weights = learner, torch.as_tensor(weights, dtype=torch.float32)
        self.network = network_of(problem, model)
        self.target = copy.deepcopy(self.network)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=learner.lr)
        turns = -(-learner.steps // learner.train_freq)
        updates = learner.train_freq if learner.gradient_steps < 0 else learner.gradient_steps
        self.sampled = (
            address.uniform("samples", turns * updates * learner.batch_size).view(-1, learner.batch_size).numpy()
        )
        self.chance = address.uniform("exploration", turns * learner.train_freq * 2).view(-1, 2).numpy()
        self.actions = problem.environment.actions.count
        self.memory, self.done, self.updated = [], 0, 0

    def play(self, env):
        """A round in a mo-gymnasium environment; gives the model after every update."""
        learner, trace = self.learner, []
        seen, _ = env.reset(seed=0)
        while self.done < learner.steps:
            for _ in range(learner.train_freq):
                seen = self.step(env, seen)
                if self.done % learner.target_update_interval == 0:
                    self.target.load_state_dict(self.network.state_dict())
            updates = learner.train_freq if learner.gradient_steps < 0 else learner.gradient_steps
            for _ in range(updates if self.done > learner.learning_starts else 0):
                self.update()
                trace.append(flat(self.network))
        return trace

    def share(self):
        learner = self.learner
        if self.done < learner.learning_starts:
            return 1.0
        fallen = min(self.done / max(learner.exploration_steps, 1), 1)
        return learner.exploration_initial + (learner.exploration_final - learner.exploration_initial) * fallen

    def step(self, env, seen):
        when, what = self.chance[self.done]
        if when < self.share():
            action = int(what * self.actions)
        else:
            with torch.no_grad():
                action = int(self.network(torch.as_tensor(seen, dtype=torch.float32)).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        self.memory.append((seen, after, reward, action, float(terminated)))
        self.memory = self.memory[-self.learner.buffer_size :]
        self.done += 1
        if terminated or truncated:
            after, _ = env.reset()
        return after

    def update(self):
        held = len(self.memory)
        # The ring overwrites its oldest place, so a place's age differs from its number once it is full.
        first = max(self.done - self.learner.buffer_size, 0)
        places = (self.sampled[self.updated] * np.float32(held)).astype(int)
        self.updated += 1
        size = self.learner.buffer_size
        rows = [self.memory[(place - first) % size if first else place] for place in places]
        seen, after, reward, action, ended = (np.array(column) for column in zip(*rows, strict=True))
        scalar = torch.as_tensor(reward, dtype=torch.float32) @ self.weights
        with torch.no_grad():
            later = self.target(torch.as_tensor(after, dtype=torch.float32)).max(dim=1).values
            goal = scalar + self.learner.gamma * (1 - torch.as_tensor(ended, dtype=torch.float32)) * later
        values = self.network(torch.as_tensor(seen, dtype=torch.float32))
        chosen = values.gather(1, torch.as_tensor(action)[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, goal)
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.learner.max_grad_norm)
        self.adam.step()


def network_of(problem, model):
    """An ordinary torch module with the parameters of a flat model."""
    views = problem.layout.unflatten(model)
    layers = []
    for i in range(len(views) // 2):
        weight, bias = views[f"{i}.weight"], views[f"{i}.bias"]
        layer = nn.Linear(*weight.shape)
        with torch.no_grad():
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def flat(network):
    """The parameters of such a module as a flat model."""
    parts = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            parts += [layer.weight.detach().T.reshape(-1), layer.bias.detach()]
    return torch.cat(parts)
