"""Environments in worker processes against plain loops over gymnasium's own, step by step and bit for bit."""

from __future__ import annotations

import gc
import io
import itertools
import os
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpareto.core import rng
from fedpareto.core.clients import Clients
from fedpareto.core.registry import problem_class
from fedpareto.errors import UnknownName, UserError
from fedpareto.problems.morl import gym_pool, gym_worker
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_pool import WorkerDied, close_pool, pool
from fedpareto.problems.morl.gym_worker import HEADER, Command, episode_seed
from fedpareto.problems.morl.other import OtherEnvironment
from processes import Python, run
from waiting import until

CPU = torch.device("cpu")
NAMED = {
    "mo-lunar-lander": "mo-lunar-lander-v3",
    "mo-lunar-lander-continuous": "mo-lunar-lander-continuous-v3",
    "mo-halfcheetah": "mo-halfcheetah-v4",
    "mo-gymnasium": "mo-mountaincar-v0",
}
CASES = {
    # Episodes are cut off after so many steps; the landers crash before that now and then.
    "mo-lunar-lander-v3": 100,
    "mo-lunar-lander-continuous-v3": 100,
    "mo-halfcheetah-v4": 60,
    "mo-mountaincar-v0": 60,
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(gym_pool, "cores", lambda: 2)


@pytest.fixture
def own_processes():
    """A pool of this test's own: nothing of earlier ones is left, and nothing is left to later ones."""
    close_pool()
    yield
    close_pool()


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


def plain_loop(environment, origin, actions):
    """Observation, reward, terminated, truncated and the next observation of each step of one client."""
    inner = plain(environment.id, environment.horizon)
    episode = 0
    inner.reset(seed=episode_seed(origin, episode))
    for action in actions:
        seen, reward, terminated, truncated, _ = inner.step(action)
        following = seen
        if terminated or truncated:
            episode += 1
            following, _ = inner.reset(seed=episode_seed(origin, episode))
        yield [np.asarray(part, dtype=np.float32) for part in (seen, reward, terminated, truncated, following)]


def came(session, transition):
    """The same five of all clients."""
    return [part.float().numpy() for part in (*transition, session.observation)]


# -- playing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", CASES)
def test_workers_play_exactly_as_a_plain_loop_over_gymnasium_does(id):
    environment = GymEnvironment.of(id, CASES[id])
    state = environment.begin(addresses(3), CPU)
    actions = random_actions(environment, 250, 3)
    session = environment.open(state, addresses(3))
    loops = [plain_loop(environment, int(state["origin"][i]), actions[:, i].numpy()) for i in range(3)]
    ends = np.zeros(2)
    for action in actions:
        ours = came(session, session.step(action))
        theirs = [np.stack(parts) for parts in zip(*(next(loop) for loop in loops), strict=True)]
        for mine, plain_one in zip(ours, theirs, strict=True):
            assert np.array_equal(mine, plain_one)
        ends += [ours[2].sum(), (ours[3] * (1 - ours[2])).sum()]
    session.close()
    assert ends[1] > 0
    assert ends[0] > 0 or "lander" not in id


@pytest.mark.parametrize("id", CASES)
def test_a_state_goes_on_bit_for_bit_in_other_processes(id, own_processes):
    environment = GymEnvironment.of(id, CASES[id])
    actions = random_actions(environment, 180, 3)
    session = begun(environment, 3)
    for action in actions[:130]:
        session.step(action)
    state, seen = session.state(), session.observation
    assert state["episode"].max() > 0
    assert state["elapsed"].max() > 0
    expected = [came(session, session.step(action)) for action in actions[130:]]
    close_pool()

    # Copies that have been elsewhere before, in processes that know nothing of the first.
    other = environment.open(environment.begin(addresses(3, round=5), CPU), addresses(3))
    for action in actions[:20]:
        other.step(action)
    other.close()
    resumed = environment.open(state, addresses(3))
    assert torch.equal(resumed.observation, seen)
    for action, wanted in zip(actions[130:], expected, strict=True):
        for mine, first in zip(came(resumed, resumed.step(action)), wanted, strict=True):
            assert np.array_equal(mine, first)


def test_a_copy_that_stands_at_a_state_goes_on_from_there():
    environment = GymEnvironment.of("mo-lunar-lander-v3")
    actions = random_actions(environment, 90, 4)
    straight, broken = begun(environment, 4), begun(environment, 4)
    for number, action in enumerate(actions):
        first, second = came(straight, straight.step(action)), came(broken, broken.step(action))
        assert all(np.array_equal(mine, other) for mine, other in zip(first, second, strict=True))
        if number % 20 == 7:
            state = broken.state()
            broken.close()
            broken = environment.open(state, addresses(4))
    kept, again = straight.state(), broken.state()
    assert all(torch.equal(kept[name], again[name]) for name in kept)


def test_clients_play_alone_as_they_do_in_a_stack():
    environment = GymEnvironment.of("mo-lunar-lander-continuous-v3", 30)
    actions = random_actions(environment, 50, 5)
    together = begun(environment, 5)
    alone = [environment.open(environment.begin(each, CPU), each) for each in (addresses(5)[[row]] for row in range(5))]
    for action in actions:
        stacked = came(together, together.step(action))
        for i, session in enumerate(alone):
            single = came(session, session.step(action[i : i + 1]))
            assert all(np.array_equal(mine[0], theirs[i]) for mine, theirs in zip(single, stacked, strict=True))


def test_two_sessions_at_once_do_not_disturb_each_other():
    lander, car = GymEnvironment.of("mo-lunar-lander-v3", 30), GymEnvironment.of("mo-mountaincar-v0", 30)
    flights, drives = random_actions(lander, 40, 3), random_actions(car, 40, 5)
    alone = begun(lander, 3)
    expected = [came(alone, alone.step(action)) for action in flights]
    flying, driving = begun(lander, 3), begun(car, 5)
    for flight, drive, wanted in zip(flights, drives, expected, strict=True):
        driving.step(drive)
        assert all(map(np.array_equal, came(flying, flying.step(flight)), wanted))


def test_a_state_is_what_was_done_and_nothing_else():
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    blank = environment.blank()
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in blank.items()} == {
        "origin": ((), torch.int64),
        "episode": ((), torch.int64),
        "elapsed": ((), torch.int64),
        "actions": ((10,), torch.int64),
    }
    session = begun(environment, 2)
    actions = random_actions(environment, 23, 2)
    for action in actions:
        session.step(action)
    state = session.state()
    assert state["episode"].tolist() == [2, 2]
    assert state["elapsed"].tolist() == [3, 3]
    assert torch.equal(state["actions"][:, :3], actions[20:].T)
    assert not state["actions"][:, 3:].any()
    assert GymEnvironment.of("mo-halfcheetah-v4", 10).blank()["actions"].shape == (10, 6)


def test_a_state_that_was_handed_out_does_not_change_any_more():
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    session = begun(environment, 2)
    before = session.state()
    transition = session.step(torch.tensor([0, 2]))
    kept = [part.clone() for part in transition]
    session.step(torch.tensor([2, 0]))
    assert before["elapsed"].tolist() == [0, 0]
    assert all(torch.equal(part, first) for part, first in zip(transition, kept, strict=True))


def test_actions_in_double_precision_are_done_in_single():
    environment = GymEnvironment.of("mo-lunar-lander-continuous-v3", 20)
    action = random_actions(environment, 1, 2)[0]
    single, double = begun(environment, 2), begun(environment, 2)
    assert all(map(torch.equal, single.step(action), double.step(action.double())))


def test_those_who_rest_are_not_played_and_the_others_are_as_before():
    environment = GymEnvironment.of("mo-mountaincar-v0", 30)
    actions = random_actions(environment, 60, 4)
    straight, session = begun(environment, 4), begun(environment, 4)
    resting = torch.tensor([True, False, False, True])
    for number, action in enumerate(actions):
        if number == 20:
            session.rest(resting)
        wanted, mine = came(straight, straight.step(action)), came(session, session.step(action))
        rows = slice(None) if number < 20 else slice(1, 3)
        assert all(np.array_equal(a[rows], b[rows]) for a, b in zip(mine, wanted, strict=True))
    assert session.state()["elapsed"].tolist() == [20, 0, 0, 20]


# -- chance ----------------------------------------------------------------------------------------------------------


def test_everybody_begins_with_episodes_of_their_own():
    environment = GymEnvironment.of("mo-mountaincar-v0")
    everywhere = itertools.product((0, 1), repeat=4)
    where = rng.Addresses.of([rng.Address(seed, client, round, lane) for seed, client, round, lane in everywhere])
    origins = environment.begin(where, CPU)["origin"]
    assert len(set(origins.tolist())) == len(where)
    assert environment.begin(where[3:5], CPU)["origin"].tolist() == origins[3:5].tolist()
    assert environment.open(environment.begin(where, CPU), where).observation[:, 0].unique().numel() > len(where) / 2


def test_every_episode_has_a_seed_of_its_own():
    seeds = {episode_seed(origin, episode) for origin in (0, 1, 2**63 - 1) for episode in range(100)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**32 for seed in seeds)


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
        ({"horizon": -1}, "horizon is -1; it is at least 1, or 0"),
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


FORGET = (
    "import sys; parts = ('fedpareto', 'gymnasium', 'mo_gymnasium', 'mujoco', 'Box2D'); "
    "[sys.modules.pop(name) for name in list(sys.modules) if name.partition('.')[0] in parts]"
)
"""In a process with everything at hand: these are to be imported anew, while torch, which takes seconds, is there."""


def test_problems_are_listed_without_the_extra(tmp_path, monkeypatch):
    hide(tmp_path, monkeypatch, "gymnasium", "mo_gymnasium", "mujoco", "Box2D")
    script = f"{FORGET}; import fedpareto.cli; sys.argv = ['fedpareto', 'problems']; fedpareto.cli.main()"
    done = run([sys.executable, "-c", script], check=True)
    assert all(name in done.stdout for name in NAMED)


# -- processes -------------------------------------------------------------------------------------------------------

CHATTY = """
import atexit

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Chatty(gymnasium.Env):
    observation_space = Box(-1, 1, (), np.float64)
    action_space = Discrete(3, start=5)
    reward_space = Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        print("a new episode", seed)
        return np.float64(0.5), {}

    def step(self, action):
        print("something was done:", action)
        if action == 7:
            raise RuntimeError("seven is not a nice number")
        return np.float64(0.25), np.array([action, 0.5]), False, False, {}


gymnasium.register("chatty-v0", Chatty, max_episode_steps=4)
atexit.register(print, "goodbye")
"""


@pytest.fixture
def chatty(tmp_path, monkeypatch, own_processes):
    (tmp_path / "talks.py").write_text(CHATTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return GymEnvironment.of("talks:chatty-v0")


def test_an_environment_of_ones_own_is_played_and_may_print(chatty):
    assert (chatty.observation_size, chatty.actions.count, chatty.objectives, chatty.horizon) == (1, 3, 2, 4)
    session = begun(chatty, 3)
    assert session.observation.tolist() == [[0.5]] * 3
    transition = session.step(torch.tensor([0, 1, 0]))
    assert transition.reward.tolist() == [[5, 0.5], [6, 0.5], [5, 0.5]]
    assert transition.observation.tolist() == [[0.25]] * 3


def test_nothing_is_left_in_the_users_folder(tmp_path, monkeypatch, own_processes):
    monkeypatch.chdir(tmp_path)
    session = begun(GymEnvironment.of("mo-halfcheetah-v4", 10), 2)
    session.step(torch.zeros(2, 6))
    close_pool()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_environment_is_told_whatever_was_printed(chatty):
    session = begun(chatty, 3)
    with pytest.raises(WorkerDied, match="ended with code 1: RuntimeError: seven is not a nice number"):
        session.step(torch.tensor([0, 0, 2]))
    with pytest.raises(WorkerDied, match="were ended"):
        session.step(torch.tensor([0, 0, 0]))
    session.close()
    assert begun(chatty, 3).step(torch.tensor([1, 1, 1])).reward[0, 0] == 6


def test_a_killed_worker_is_told_and_the_next_session_has_others(own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    session = begun(environment, 4)
    first = pool().workers
    first[1].process.kill()
    with pytest.raises(WorkerDied, match="ended with code -9"):
        session.step(torch.zeros(4, dtype=torch.int64))
    assert all(worker.process.poll() is not None for worker in first)
    again = begun(environment, 4)
    again.step(torch.zeros(4, dtype=torch.int64))
    assert len(pool().workers) == 2


def test_who_is_interrupted_between_a_question_and_its_answer_asks_others_next(monkeypatch, own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    actions = random_actions(environment, 1, 4)[0]
    expected = begun(environment, 4).step(actions)
    session = begun(environment, 4)
    # Who started the tests in the background may have had the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gym_pool.Worker, "answer", lambda self, into: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                session.step(actions)
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(map(torch.equal, begun(environment, 4).step(actions), expected))


def test_sessions_share_processes_and_give_their_copies_back(own_processes):
    environment = GymEnvironment.of("mo-mountaincar-v0", 10)
    sizes = (1, 6, 3, 2, 6)
    for n in sizes:
        session = begun(environment, n)
        session.step(torch.zeros(n, dtype=torch.int64))
        session.close()
        session.close()
    workers = pool().workers
    assert len(workers) == 2
    assert len(pool().over) == 1
    forgotten = begun(environment, 3)
    del forgotten, session
    gc.collect()
    assert len(pool().over) == 1
    close_pool()
    assert all(worker.process.poll() == 0 for worker in workers)


def requests(*parts):
    """A stream of requests as a worker reads it."""
    stream = b""
    for command, session, count, content in parts:
        stream += HEADER.pack(command, session, count, len(content)) + content
    return io.BytesIO(stream)


def test_a_worker_makes_no_more_copies_than_it_needs_and_replays_no_more_than_it_must(monkeypatch):
    resets, made = [], []

    def counted(key):
        inner = plain("mo-mountaincar-v0", 10)
        reset = inner.reset
        monkeypatch.setattr(inner, "reset", lambda **how: resets.append(how) or reset(**how))
        made.append(inner)
        return inner

    monkeypatch.setattr(gym_worker, "make", counted)
    key = gym_worker.key("mo-mountaincar-v0", 10) + b"\n"

    def opened(session, places, *actions):
        return Command.OPEN, session, len(places), key + np.array([*np.ravel(places), *actions], np.int64).tobytes()

    def step(session, *actions):
        return Command.STEP, session, 0, np.array(actions, np.int64).tobytes()

    worker = gym_worker.Worker(io.BytesIO())
    worker.serve(requests(opened(0, [(1, 0, 0), (2, 0, 0)]), step(0, 2, 1), step(0, 0, 1), (Command.CLOSE, 0, 0, b"")))
    assert (len(made), len(resets)) == (2, 2)
    # The second client stands there already; the other did something else the last time.
    worker.serve(requests(opened(1, [(2, 0, 2), (1, 0, 2)], 1, 1, 2, 1), (Command.CLOSE, 1, 0, b"")))
    assert (len(made), len(resets)) == (2, 3)
    worker.serve(requests(opened(2, [(1, 0, 2)], 2, 1), opened(3, [(3, 0, 0), (4, 0, 0)])))
    assert (len(made), len(resets)) == (3, 5)


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "import time, numpy, torch\n"
        "from fedpareto.core import rng\n"
        "from fedpareto.problems.morl import gym_pool\n"
        "from fedpareto.problems.morl.gym_environment import GymEnvironment\n"
        "gym_pool.cores = lambda: 2\n"
        "environment, who = GymEnvironment.of('mo-mountaincar-v0'), rng.Addresses.at(0, numpy.arange(4), 0)\n"
        "session = environment.open(environment.begin(who, torch.device('cpu')), who)\n"
        "print(*(worker.process.pid for worker in gym_pool.pool().workers), flush=True)\n"
        "time.sleep(3600)\n"
    )
    with Python([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        workers = [int(number) for number in process.stdout.readline().split()]
        assert len(workers) == 2
        assert all(Path(f"/proc/{worker}").exists() for worker in workers)
        process.kill()
    until(lambda: not any(is_running(worker) for worker in workers))


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_stays_small():
    script = (
        "import sys\n"
        "from fedpareto.problems.morl import gym_worker\n"
        "assert 'gymnasium' not in sys.modules\n"
        "gym_worker.described(gym_worker.key('mo-mountaincar-v0', 0))\n"
        "assert 'gymnasium' in sys.modules\n"
        "print(sorted({'torch', 'pandas', 'matplotlib', 'fedpareto.core'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_this_process_never_loads_the_library():
    script = (
        f"{FORGET}\n"
        "from fedpareto.core.registry import problems\n"
        "for name in ('mo-lunar-lander', 'mo-gymnasium'):\n"
        "    problems()[name]().data(2, 0)\n"
        "print('gymnasium' in sys.modules)\n"
    )
    done = run([sys.executable, "-c", script], check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_one_of_several_processes_side_by_side_has_one_worker(monkeypatch):
    monkeypatch.undo()
    assert gym_pool.cores() == len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        assert executor.submit(gym_pool.cores).result() == 1
