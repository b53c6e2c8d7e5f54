"""What the tests of gymnasium's environments share: clients, actions, and an environment without workers."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from fedpareto.tensors import rng

CPU = torch.device("cpu")
NAMED = {
    "mo-lunar-lander": "mo-lunar-lander-v3",
    "mo-lunar-lander-continuous": "mo-lunar-lander-continuous-v3",
    "mo-halfcheetah": "mo-halfcheetah-v4",
    "mo-gymnasium": "mo-mountaincar-v0",
}
FORGET = (
    "import sys; parts = ('fedpareto', 'gymnasium', 'mo_gymnasium', 'mujoco', 'Box2D'); "
    "[sys.modules.pop(name) for name in list(sys.modules) if name.partition('.')[0] in parts]"
)
"""In a process with everything at hand: these are to be imported anew, while torch, which takes seconds, is there."""


def addresses(n, round=0):
    return rng.Addresses.at(7, np.arange(n), round)


def begun(environment, n):
    return environment.open(environment.begin(addresses(n), CPU), addresses(n))


def random_actions(environment, steps, n, seed=0):
    """What a policy could do, `[steps, n]` or `[steps, n, a]`, within the bounds."""
    stream = np.random.default_rng(seed)
    if environment.actions.discrete:
        return torch.as_tensor(stream.integers(environment.actions.count, size=(steps, n)))
    vectors = stream.uniform(-1, 1, size=(steps, n, environment.actions.size)).astype(np.float32)
    return environment.scaled(torch.as_tensor(vectors))


def plain(id, horizon):
    import gymnasium
    import mo_gymnasium  # noqa: F401
    import mujoco

    mujoco.set_mju_user_warning(lambda text: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Version 4 is old, and says so.
        return gymnasium.make(id, max_episode_steps=horizon, disable_env_checker=True)
