"""Problems whose clients play gymnasium's environments: what is known of them, and what stands in the way."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gym_playing import FORGET, NAMED, begun, plain

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract import consent
from fedpareto.contract.clients import Clients
from fedpareto.contract.registry import problem_class
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_pool import close_pool
from fedpareto.problems.morl.gym_problems import OtherEnvironment
from fedpareto.problems.morl.gym_worker import episode_seed
from fedpareto.tensors import rng
from processes import run

# -- problems --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_what_is_known_without_the_library_is_what_it_says(name):
    problem = problem_class(name)()
    found = GymEnvironment.of(NAMED[name])
    assert problem.environment == found
    assert problem.environment.lowest in ((), found.lowest)
    assert len(problem.objectives) == problem.environment.objectives
    assert all(objective.maximise for objective in problem.objectives)
    problem.data(2, 0)


def test_a_library_that_has_another_environment_is_noticed():
    other = replace(problem_class("mo-lunar-lander")().environment, observation_size=9)
    with pytest.raises(UserError, match=r"installed mo-gymnasium has another mo-lunar-lander-v3 .*observation_size=8"):
        other.check()


def test_no_episode_of_the_cheetah_earns_less_effort_than_its_reference_point():
    environment = GymEnvironment.of("mo-halfcheetah-v4", 20)
    session = begun(environment, 1)
    effort = [float(session.step(torch.ones(1, 6)).reward[0, 1]) for _ in range(20)]
    assert effort == pytest.approx([-0.6] * 20)
    assert problem_class("mo-halfcheetah")().objectives[1].reference < 1000 * min(effort)


def test_any_environment_has_a_reference_point_below_what_is_possible():
    problem = OtherEnvironment()
    assert problem.layout.size == (2 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 3
    assert [objective.name for objective in problem.objectives] == ["objective 1", "objective 2", "objective 3"]
    assert problem.reference == [-201, -201, -201]
    assert OtherEnvironment(id="fishwood-v0", horizon=50).reference == [-1, -1]
    assert OtherEnvironment(id="mo-hopper-2d-v4", reference_point=(-5.0, -7.0)).reference == [-5, -7]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"id": "mo-hopper-2d-v4"}, r"mo-hopper-2d-v4 does not declare .* 1; .* reference_point: \[-100, -100\]"),
        ({"reference_point": (-1.0,)}, "reference_point has 1 numbers, but mo-mountaincar-v0 has 3 objectives"),
        ({"reference_point": (float("nan"),)}, "reference_point is .* finite"),
        ({"horizon": -1}, "horizon is -1; it is at least 0"),
        ({"id": "fishwood-v0"}, "fishwood-v0 sets no limit to an episode; .* horizon: 200"),
        ({"method": "ddpg"}, "method is ddpg, but mo-mountaincar-v0 has a few actions"),
    ],
)
def test_a_mistake_is_one_clear_line(parameters, message):
    def use():
        problem = OtherEnvironment(**parameters)
        return problem.objectives, problem.layout

    with pytest.raises(UserError, match=message) as caught:
        use()
    assert "\n" not in str(caught.value)


def test_a_policy_earns_what_it_earns_in_a_plain_loop():
    problem = OtherEnvironment(
        id="mo-lunar-lander-v3", horizon=120, episodes=3, hidden=(8,), reference_point=(-1.0,) * 4
    )
    where = rng.Addresses.at(3, np.arange(2), round=2)
    clients = Clients(
        problem=problem,
        learner=problem.learner(),
        splits={},
        addresses=where,
        positions=np.arange(2),
        preferences=torch.full((2, 4), 0.25),
    )
    models = torch.stack([problem.initial(0), problem.initial(1)])
    score = problem.score(clients, models)
    # The streams of evaluation are `score`'s own business; that these are theirs is seen from what it opens.
    opened = []
    original = GymEnvironment.begin

    def noting(self, addresses, device):
        opened.append(original(self, addresses, device)["origin"].tolist())
        return original(self, addresses, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GymEnvironment, "begin", noting)
        assert torch.equal(problem.score(clients, models), score)
    origins = opened[0]
    assert len(set(origins)) == 6
    inner = plain("mo-lunar-lander-v3", 120)
    expected = np.zeros((2, 2, 4))
    for client in range(2):
        parameters = problem.layout.unflatten(models[client : client + 1])
        for episode in range(3):
            seen, _ = inner.reset(seed=episode_seed(origins[3 * client + episode], 0))
            over, fading = False, 1.0
            while not over:
                action = problem.policy.act(parameters, torch.as_tensor(seen).view(1, 1, -1)).item()
                seen, reward, terminated, truncated, _ = inner.step(action)
                expected[client] += np.stack([fading * reward, reward]) / 3
                fading *= problem.discount
                over = terminated or truncated
    assert np.allclose(score.numpy(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.takes_long
@pytest.mark.parametrize("name", NAMED)
def test_two_short_rounds_of_learning_are_the_same_in_one_stack_and_alone_in_other_processes(name, own_processes):
    problem = replace(problem_class(name)(), hidden=(8,))
    learner = replace(problem.learner(), steps=30, learning_starts=10, buffer_size=50, batch_size=4)
    m = problem.environment.objectives

    def rounds(who):
        model, memory = problem.initial(0).double().expand(len(who), -1), {}
        for number in range(2):
            where = rng.Addresses.at(3, np.array(who), number)
            weights = torch.full((len(who), m), 1 / m, dtype=torch.float64)
            clients = Clients(
                problem=problem,
                learner=learner,
                splits={},
                addresses=where,
                positions=np.arange(len(who)),
                preferences=weights,
                memory=memory,
            )
            model = clients.learn(model)
            memory = clients.memory
            if len(who) == 1:
                close_pool()
        return model

    together = rounds([0, 1, 2])
    assert (together[0] != together[1]).any()
    assert torch.allclose(rounds([2])[0], together[2], rtol=0, atol=1e-9)


# -- what stands in the way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("CartPole-v1", "CartPole-v1 has a single reward, not one for each of several objectives"),
        ("minecart-rgb-v0", "minecart-rgb-v0 shows an array with several dimensions; only vectors"),
        ("breakable-bottles-v0", "breakable-bottles-v0 shows a Dict; only vectors"),
        ("water-reservoir-v0", "water-reservoir-v0 has actions that are neither a few .* nor vectors between bounds"),
        ("nobody_has_this:some-v0", "nobody_has_this:some-v0 needs the Python package nobody_has_this, which"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(id, message):
    consent.name("nobody_has_this")
    with pytest.raises(UserError, match=message) as caught:
        GymEnvironment.of(id)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("id", ["mo-lunar-lander-v2", "mo-lunar-lander", "mo-lunar-landr-v3"])
def test_an_unknown_id_is_answered_with_the_closest(id):
    with pytest.raises(UnknownName, match="did you mean 'mo-lunar-lander-v3'"):
        GymEnvironment.of(id)


def hide(folder, monkeypatch, *packages):
    """Makes packages look as if they were not installed, to this process's children."""
    for package in packages:
        (folder / f"{package}.py").write_text(
            f"raise ModuleNotFoundError('No module named {package}', name='{package}')\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("hidden", "name", "message"),
    [
        (
            "mo_gymnasium",
            "mo-lunar-lander",
            r"needs mo-gymnasium, which is not installed: pip install 'fedpareto\[morl\]'",
        ),
        (
            "mujoco",
            "mo-halfcheetah",
            r"mo-halfcheetah-v4 needs mujoco, which is not installed: pip install 'fedpareto\[",
        ),
    ],
)
def test_a_missing_library_is_named_before_anybody_plays(hidden, name, message, tmp_path, monkeypatch, own_processes):
    hide(tmp_path, monkeypatch, hidden)
    problem = problem_class(name)()
    assert problem.layout.size > 0
    for use in (lambda: problem.data(2, 0), lambda: begun(problem.environment, 2)):
        with pytest.raises(UserError, match=message):
            use()


@pytest.mark.parametrize(("machine", "how"), [("x86_64", r"pip install 'fedpareto\[morl\]'"), ("aarch64", "swig")])
def test_a_missing_box2d_comes_with_what_this_machine_needs(machine, how, tmp_path, monkeypatch, own_processes):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(sys, "version_info", (3, 13))
    hide(tmp_path, monkeypatch, "Box2D")
    with pytest.raises(UserError, match=f"mo-lunar-lander-continuous-v3 needs Box2D, which is not installed.*{how}"):
        problem_class("mo-lunar-lander-continuous")().data(2, 0)


def test_problems_are_listed_without_the_extra(tmp_path, monkeypatch):
    hide(tmp_path, monkeypatch, "gymnasium", "mo_gymnasium", "mujoco", "Box2D")
    script = f"{FORGET}; import fedpareto.cli; sys.argv = ['fedpareto', 'problems']; fedpareto.cli.main()"
    done = run([sys.executable, "-c", script], check=True)
    assert all(name in done.stdout for name in NAMED)
