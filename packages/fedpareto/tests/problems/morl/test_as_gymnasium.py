"""Our environments by gymnasium's interface: accepted by its own checks, and equal to ours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.problems.morl.as_gymnasium import as_gymnasium
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.tensors import rng
from fedpareto_space.problems.link_scheduling import LinkScheduling

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*precision lowered by casting",
    "ignore:.*m.*imum value is -?infinity",
    "ignore:.*different from the unwrapped version",
)

PROBLEMS = {"deep-sea-treasure": DeepSeaTreasure(), "link-scheduling": LinkScheduling(shell="6/3/1")}


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_passes_the_checks_of_gymnasium(name):
    """With the sum as its reward: these checks want a number."""
    from gymnasium.utils.env_checker import check_env
    from gymnasium.wrappers import TransformReward

    environment = as_gymnasium(PROBLEMS[name])
    check_env(TransformReward(environment, lambda reward: float(reward.sum())), skip_render_check=True)
    assert environment.reward_space.shape == (len(PROBLEMS[name].objectives),)


def test_an_episode_is_that_of_the_client():
    problem, client = PROBLEMS["link-scheduling"], 4
    one, everyone = as_gymnasium(problem, client), rng.Addresses.at(0, np.arange(6), round=0)
    session = problem.environment.open(problem.environment.begin(everyone, torch.device("cpu")), everyone)
    seen, _ = one.reset(seed=0)
    assert np.array_equal(seen, session.observation[client])
    for step, action in enumerate(np.random.default_rng(0).integers(0, 4, 48)):
        seen, reward, terminated, truncated, _ = one.step(action)
        ours = session.step(torch.full((6,), int(action)))
        assert np.array_equal(seen, ours.observation[client])
        assert np.array_equal(reward, ours.reward[client])
        assert (terminated, truncated) == (step == 47, False)
