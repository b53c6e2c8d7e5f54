"""Environments in worker processes against plain loops over gymnasium's own, step by step and bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gym_playing import CPU, addresses, begun, plain, random_actions

from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_pool import close_pool
from fedpareto.problems.morl.gym_worker import episode_seed
from fedpareto.tensors import rng

CASES = {
    # Episodes are cut off after so many steps; the landers crash before that now and then.
    "mo-lunar-lander-v3": 100,
    "mo-lunar-lander-continuous-v3": 100,
    "mo-halfcheetah-v4": 60,
    "mo-mountaincar-v0": 60,
}


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


@pytest.mark.takes_long
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
