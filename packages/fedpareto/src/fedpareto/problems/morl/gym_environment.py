"""mo-gymnasium's environments, run by worker processes.

Only the actions of an episode are kept: it begins with its own seed, so that repeating the actions leads to the same
state.
"""

from __future__ import annotations

import platform
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract import consent
from fedpareto.contract.environment import Actions, Environment, Session, Transition
from fedpareto.contract.messages import Message
from fedpareto.problems.morl import gym_worker
from fedpareto.problems.morl.gym_pool import Pool, pool
from fedpareto.problems.morl.gym_worker import Command
from fedpareto.tensors import rng

OF_THE_EXTRA = ("mo_gymnasium", "gymnasium", "pygame", "mujoco", "Box2D")
"""Python packages that come with the extra `morl`."""


@dataclass(frozen=True)
class GymEnvironment(Environment):
    """An environment by its id, such as mo-lunar-lander-v3, or my_package:my-environment-v0 for your own.

    A client's state: `origin`, drawn when it began and the root of all its episodes' seeds; the number of its
    `episode`; the steps that have `elapsed` in it; and its `actions` so far, `[horizon]` or `[horizon, a]`, zeros after
    them.
    """

    id: str
    observation_size: int
    actions: Actions
    objectives: int
    horizon: int
    lowest: tuple[float, ...] = field(default=(), compare=False)
    """The smallest reward of a step in each objective, as far as the environment declares it."""

    @classmethod
    def of(cls, id: str, horizon: int = 0) -> Self:
        """As mo-gymnasium describes it; a horizon other than 0 replaces the environment's own."""
        facts = _facts(id, horizon)
        if not facts["horizon"]:
            raise UserError(f"{id} sets no limit to an episode; say after how many steps it ends, as in horizon: 200")
        bounds: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in facts["actions"].items()
        }
        actions = Actions(**bounds)
        size, objectives, steps = facts["observation_size"], facts["objectives"], facts["horizon"]
        return cls(id, size, actions, objectives, steps, tuple(facts["lowest"]))

    def check(self) -> None:
        found = self.of(self.id, self.horizon)
        if found != self:
            raise UserError(
                f"the installed mo-gymnasium has another {self.id} ({found}) than this version of fedpareto"
            )

    def blank(self) -> Message:
        number = torch.zeros((), dtype=torch.int64)
        kind = torch.int64 if self.actions.discrete else torch.float32
        shape = () if self.actions.discrete else (self.actions.size,)
        actions = torch.zeros(self.horizon, *shape, dtype=kind)
        return {"origin": number, "episode": number, "elapsed": number, "actions": actions}

    def begin(self, addresses: rng.Addresses, device: torch.device) -> Message:
        """Begin episodes; all later ones follow from these addresses too."""
        n = len(addresses)
        high, low = addresses.to(device).words("origin", 2).unbind(1)
        state = {name: tensor.to(device).expand(n, *tensor.shape) for name, tensor in self.blank().items()}
        return state | {"origin": (high >> 1) * 2**32 + low}

    def open(self, state: Message, addresses: rng.Addresses) -> Session:
        self.check()
        return GymSession(self, state, pool())


class GymSession(Session):
    """n episodes, divided among workers. Their state in this process is on the host."""

    def __init__(self, environment: GymEnvironment, state: Message, players: Pool) -> None:
        self._device = state["origin"].device
        self._origin, self._episode, self._elapsed, self._actions = (
            state[name].detach().to("cpu", copy=True).contiguous().numpy()
            for name in ("origin", "episode", "elapsed", "actions")
        )
        n, o, m = len(self._origin), environment.observation_size, environment.objectives
        self._sizes = [o, m, 2, o]
        self._rows, self._at_work = np.arange(n), np.ones(n, dtype=bool)
        self._packed = torch.zeros(n, sum(self._sizes), pin_memory=self._device.type == "cuda")
        self._came = self._packed.numpy()
        self._ended = self._came[:, o + m : o + m + 2]
        self._pool = players
        self.observation = torch.from_numpy(self._open(environment)).to(self._device)

    def _open(self, environment: GymEnvironment) -> np.ndarray:
        """Has every worker bring its share of the copies to their states; returns the observations, `[n, o]`."""
        n = len(self._origin)
        seen = np.empty((n, environment.observation_size), dtype=np.float32)
        key = memoryview(gym_worker.key(environment.id, environment.horizon) + b"\n")
        place = np.stack([self._origin, self._episode, self._elapsed], axis=1)
        with self._pool.exchange():
            team = self._pool.team(n)
            bounds = np.linspace(0, n, len(team) + 1).astype(int)
            self._number = next(self._pool.numbers)
            self._shares = [(worker, slice(a, b)) for worker, a, b in zip(team, bounds[:-1], bounds[1:], strict=True)]
            for worker, share in self._shares:
                so_far = [self._actions[i, : self._elapsed[i]] for i in range(share.start, share.stop)]
                content = key, place[share].data, np.concatenate(so_far).data
                worker.ask(Command.OPEN, self._number, len(so_far), *content)
            for worker, share in self._shares:
                worker.answer(seen[share].data)
        # A session that is never closed still releases its copies.
        self._give_back = weakref.finalize(self, self._pool.over.append, (self._number, team))
        self._give_back.atexit = False
        return seen

    def step(self, action: Tensor) -> Transition:
        done = np.ascontiguousarray(action.numpy(force=True), dtype=self._actions.dtype)
        with self._pool.exchange():
            for worker, share in self._shares:
                worker.ask(Command.STEP, self._number, 0, done[share].data)
            self._actions[self._rows, self._elapsed] = done
            self._elapsed += self._at_work
            for worker, share in self._shares:
                worker.answer(self._came[share].data)
        over = self._ended.any(axis=1) & self._at_work
        if over.any():
            self._episode[over] += 1
            self._elapsed[over] = 0
            self._actions[over] = 0
        came = self._packed.to(self._device, non_blocking=True, copy=True)
        seen, reward, ended, self.observation = torch.split_with_sizes(came, self._sizes, dim=1)
        return Transition(seen, reward, *(ended != 0).unbind(1))

    def rest(self, over: Tensor) -> None:
        resting = over.numpy(force=True)
        self._at_work &= ~resting
        with self._pool.exchange():
            for worker, share in self._shares:
                worker.ask(Command.REST, self._number, 0, resting[share].copy().data)

    def state(self) -> Message:
        arrays = {"origin": self._origin, "episode": self._episode, "elapsed": self._elapsed, "actions": self._actions}
        return {name: torch.from_numpy(array).to(self._device, copy=True) for name, array in arrays.items()}

    def close(self) -> None:
        """Release the copies for later sessions."""
        self._give_back()


# -- missing requirements --------------------------------------------------------------------------------------------


def _facts(id: str, horizon: int) -> dict[str, Any]:
    """`gym_worker.described`; what prevents running it is a UserError."""
    module = id.rpartition(":")[0]
    if module:
        consent.need_module(module, id)
    facts = pool().described(gym_worker.key(id, horizon))
    if "unknown" in facts:
        raise UnknownName("environment", id, facts["unknown"])
    if "missing" in facts:
        raise UserError(f"{id} needs {_needed(facts['missing'])}")
    if "unfit" in facts:
        raise UserError(f"{id} {facts['unfit']}")
    return facts


def _needed(package: str) -> str:
    if package == "Box2D" and (platform.machine() == "aarch64" or sys.version_info >= (3, 14)):  # As in pyproject.toml.
        how = "with a C++ compiler, pip install setuptools swig, then pip install --no-build-isolation box2d-py==2.3.8"
        return f"Box2D, which is not installed and has no wheel for this machine: {how}"
    name = "mo-gymnasium" if package == "mo_gymnasium" else package
    if package in OF_THE_EXTRA:
        return f"{name}, which is not installed: pip install 'fedpareto[morl]'"
    return f"the Python package {name}, which is not installed; install it, or put its folder into PYTHONPATH"
