"""Environments that are tensor programs against mo-gymnasium's, step by step; and the fronts that are known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.moo.indicators import hypervolume
from fedpareto.problems.morl import minecart
from fedpareto.problems.morl.deep_sea_treasure import TREASURES, DeepSeaTreasure, Sea
from fedpareto.problems.morl.minecart import MINES, Minecart, MinecartDeterministic, Rules, driven, seen
from fedpareto.tensors import rng

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")

CPU = torch.device("cpu")
ENVIRONMENTS = {"convex": Sea(TREASURES["convex"]), "concave": Sea(TREASURES["concave"]), "minecart": Minecart()}
MINE, LEFT, RIGHT, ACCELERATE, BRAKE, NOTHING = range(6)


@pytest.fixture
def originals(monkeypatch):
    """`originals("convex", 4)` are four copies of mo-gymnasium's environment."""
    import mo_gymnasium
    from mo_gymnasium.envs.deep_sea_treasure.deep_sea_treasure import CONCAVE_MAP
    from mo_gymnasium.envs.minecart import minecart as original

    # Its lengths are np.dot's, which rounds as the machine's BLAS does, on some with fused products. Now and then
    # that turns a cart at a wall that is not turned elsewhere. Python's own floats round everywhere alike.
    monkeypatch.setattr(original, "mag", lambda vector: math.sqrt(vector[0] * vector[0] + vector[1] * vector[1]))
    makers = {
        "convex": lambda: mo_gymnasium.make("deep-sea-treasure-v0"),
        "concave": lambda: mo_gymnasium.make("deep-sea-treasure-v0", dst_map=CONCAVE_MAP),
        "minecart": lambda: mo_gymnasium.make("minecart-deterministic-v0"),
    }
    return lambda name, n: [makers[name]() for _ in range(n)]


def addresses(n):
    return rng.Addresses.at(0, np.arange(n), round=0)


def opened(environment, n):
    return environment.open(environment.begin(addresses(n), CPU), addresses(n))


def assert_equal_steps(session, originals, choose, steps):
    """Plays both by `choose(step, observations)`; returns the rewards `[steps, n, m]` and the ends `[steps, n, 2]`."""
    observations = np.stack([original.reset()[0] for original in originals])
    assert np.array_equal(session.observation, observations)
    rewards, ends = [], []
    for step in range(steps):
        actions = choose(step, observations)
        ours = session.step(torch.as_tensor(actions))
        theirs = [original.step(action)[:4] for original, action in zip(originals, actions, strict=True)]
        for mine, name in zip(ours, ("observation", "reward", "terminated", "truncated"), strict=True):
            column = np.stack([row[ours._fields.index(name)] for row in theirs])
            assert np.array_equal(mine, column), f"{name} in step {step}"
            assert mine.dtype == (torch.float32 if column.dtype.kind in "if" else torch.bool)
        rewards.append(ours.reward.numpy())
        ends.append(torch.stack([ours.terminated, ours.truncated], dim=1).numpy())
        observations = np.stack(
            [
                original.reset()[0] if row[2] or row[3] else row[0]
                for original, row in zip(originals, theirs, strict=True)
            ]
        )
        assert np.array_equal(session.observation, observations), f"the observation from which step {step + 1} begins"
    return np.array(rewards), np.array(ends)


# -- against mo-gymnasium ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("map", ["convex", "concave"])
def test_deep_sea_treasure_equals_mo_gymnasium(map, originals):
    stream = np.random.default_rng(1)

    def choose(step, observations):
        actions = stream.integers(0, 4, len(observations))
        # The last two stay away from the treasures above, so that they find deep ones or no end.
        actions[-2] = stream.choice([1, 3], p=[0.2, 0.8])
        actions[-1] = stream.choice([0, 2, 3])
        return actions

    n, steps = 8, 1_300
    rewards, ends = assert_equal_steps(opened(ENVIRONMENTS[map], n), originals(map, n), choose, steps)
    found = set(rewards[..., 0].ravel().tolist()) - {0.0}
    assert len(found) >= 6
    assert ends[..., 0].sum() > 100
    assert ends[..., 1].sum() > 10


def chauffeur(stream, n):
    """Drives to a mine, mines for a while and brings the ore home, mostly; and begins anew with another mine."""
    places = np.array(MINES)
    goal, enough = np.arange(n) % len(places), stream.uniform(0.05, 0.99, n)

    def choose(step, observations):
        position, speed, sine, cosine, load = np.split(observations, [2, 3, 4, 5], axis=1)
        is_new = ~observations[:, [0, 1, 2, 5, 6]].any(axis=1)
        goal[is_new] = stream.integers(0, len(places), is_new.sum())
        enough[is_new] = stream.uniform(0.05, 0.99, is_new.sum())
        is_full = load.sum(axis=1) > enough
        there = places[goal] - position
        is_there = (np.linalg.norm(there, axis=1) < 0.12) & ~is_full
        ahead, aside = np.where(is_full[:, None], -position, there).T
        ahead, aside = ahead * cosine[:, 0] + aside * sine[:, 0], aside * cosine[:, 0] - ahead * sine[:, 0]
        action = np.where(speed[:, 0] < 0.06, ACCELERATE, NOTHING)
        action = np.where(ahead < 2 * abs(aside), np.where(aside > 0, RIGHT, LEFT), action)
        action = np.where(is_there, np.where(speed[:, 0] > 0, BRAKE, MINE), action)
        return np.where(stream.random(n) < 0.1, stream.integers(0, 6, n), action)

    return choose


@pytest.mark.takes_long
def test_minecart_equals_mo_gymnasium(originals):
    """Four chauffeurs, two at random, one who races along the walls and one who never leaves the base."""
    stream = np.random.default_rng(2)
    by_plan = chauffeur(stream, 8)

    def choose(step, observations):
        actions = by_plan(step, observations)
        actions[4] = stream.integers(0, 6)
        actions[5] = stream.choice(6, p=[0.05, 0.1, 0.15, 0.3, 0.05, 0.35])
        actions[6] = ACCELERATE if step % 11 else stream.integers(0, 6)
        actions[7] = stream.choice([MINE, LEFT, RIGHT, NOTHING])
        return actions

    rewards, ends = assert_equal_steps(opened(ENVIRONMENTS["minecart"], 8), originals("minecart", 8), choose, 1_300)
    sold = rewards[..., :2][rewards[..., :2].sum(axis=-1) > 0]
    assert len(sold) > 60
    loads = MinecartDeterministic().known_front()[1:, :2]
    np.testing.assert_allclose(np.unique(sold.round(3), axis=0), np.unique(loads, axis=0), rtol=1e-6)
    assert ends[..., 0].sum() > 100
    assert np.argwhere(ends[:, 7].any(axis=1)).tolist() == [[999]]
    assert ends[999, 7, 1]


def test_carts_that_walls_turn_on_and_on_equal_mo_gymnasium(originals):
    """Nobody turns at will any more, so that directions leave the circle of 0 to 360 degrees."""
    stream = np.random.default_rng(3)
    session = opened(ENVIRONMENTS["minecart"], 4)
    beginnings = np.array([[RIGHT, NOTHING], [LEFT, NOTHING], [RIGHT, RIGHT], [LEFT, LEFT]])
    directions = []

    def choose(step, observations):
        directions.append(session.state()["cart"][:, 3] - minecart.FARTHEST)
        return beginnings[:, step] if step < 2 else stream.choice([ACCELERATE, NOTHING], 4)

    _, ends = assert_equal_steps(session, originals("minecart", 4), choose, 200)
    assert ends[..., 0].any()
    assert torch.stack(directions).min() < -4.5
    assert torch.stack(directions).max() > 9


# -- as stacks -----------------------------------------------------------------------------------------------------


def actions_of(environment, shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).integers(0, environment.actions.count, shape))


def played(session, actions):
    """All that n copies do, `[steps, n, ...]` each."""
    rows = [(*session.step(action), session.observation.clone()) for action in actions]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_n_copies_equal_n_single_copies(name):
    environment = ENVIRONMENTS[name]
    actions = actions_of(environment, (150, 4))
    together = played(opened(environment, 4), actions)
    for copy in range(4):
        alone = played(opened(environment, 1), actions[:, copy : copy + 1])
        assert_same(alone, [column[:, copy : copy + 1] for column in together])


@pytest.mark.parametrize("name", ENVIRONMENTS)
@settings(deadline=None, max_examples=8, derandomize=True)
@given(
    ages=st.lists(st.integers(0, 130), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    seed=st.integers(0, 99),
)
def test_a_stack_of_copies_at_different_points_goes_on_as_each_would_alone(name, ages, order, seed):
    environment, n = ENVIRONMENTS[name], len(ages)
    actions = actions_of(environment, (max(ages) + 25, n), seed)
    singles = [opened(environment, 1) for _ in ages]
    for copy, (single, age) in enumerate(zip(singles, ages, strict=True)):
        for action in actions[:age, copy : copy + 1]:
            single.step(action)
    places = list(range(n))
    order.shuffle(places)
    states = [singles[copy].state() for copy in places]
    mixed = {key: torch.cat([state[key] for state in states]) for key in environment.blank()}
    together = environment.open(mixed, addresses(n))
    result = played(together, actions[-25:, places])
    for row, copy in enumerate(places):
        alone = played(singles[copy], actions[-25:, copy : copy + 1])
        assert_same(alone, [column[:, row : row + 1] for column in result])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_session_goes_on_from_its_state(name):
    environment = ENVIRONMENTS[name]
    first = opened(environment, 5)
    actions = actions_of(environment, (130, 5), seed=4)
    played(first, actions[:67])
    kept = {key: tensor.clone() for key, tensor in first.state().items()}
    second = environment.open(first.state(), addresses(5))
    assert torch.equal(first.observation, second.observation)
    assert_same(played(first, actions[67:]), played(second, actions[67:]))
    assert {key: (tensor.shape[1:], tensor.dtype) for key, tensor in kept.items()} == {
        key: (tensor.shape, tensor.dtype) for key, tensor in environment.blank().items()
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_step_looks_at_no_value(name):
    """Tensors without values show it: what asks for one on the host could not be in a CUDA graph."""
    environment, meta = ENVIRONMENTS[name], torch.device("meta")
    session = environment.open(environment.begin(addresses(3), meta), addresses(3))
    result = session.step(torch.zeros(3, dtype=torch.int64, device=meta))
    assert [(tuple(column.shape), column.dtype) for column in result] == [
        ((3, environment.observation_size), torch.float32),
        ((3, environment.objectives), torch.float32),
        ((3,), torch.bool),
        ((3,), torch.bool),
    ]


def test_minecart_by_torch_equals_minecart_by_numpy():
    rules = Rules.of_numpy()
    as_tensors = Rules(*map(torch.as_tensor, rules))
    stream = np.random.default_rng(5)
    choose = chauffeur(stream, 20)
    start = ENVIRONMENTS["minecart"].start(20, CPU)["cart"].numpy()
    carts, ends = start, 0
    for step in range(300):
        actions = choose(step, seen(np, rules, carts))
        by_numpy = driven(np, rules, carts, actions)
        by_torch = driven(torch, as_tensors, torch.as_tensor(carts), torch.as_tensor(actions))
        for ours, theirs in zip(by_numpy, by_torch, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)  # sines differ in their last bit
        np.testing.assert_allclose(
            seen(np, rules, carts), seen(torch, as_tensors, torch.as_tensor(carts)), rtol=1e-12, atol=1e-12
        )
        carts, _, over = by_numpy
        carts, ends = np.where(over[:, None], start, carts), ends + over.sum()
    assert ends > 20


# -- what is known of them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("map", ["convex", "concave"])
def test_the_front_of_deep_sea_treasure_is_that_of_mo_gymnasium(map, originals):
    known = np.array(originals(map, 1)[0].unwrapped.pareto_front(gamma=1.0))
    np.testing.assert_allclose(DeepSeaTreasure(map=map).known_front(), known, rtol=1e-6)


def test_the_front_of_minecart_is_that_of_mo_gymnasium(originals):
    known = np.array(originals("minecart", 1)[0].unwrapped.pareto_front(gamma=1.0)).round(9)
    np.testing.assert_allclose(MinecartDeterministic().known_front(), known[np.lexsort(known.T[::-1])], atol=1e-9)


@pytest.mark.parametrize(
    ("problem", "reference", "volume"),
    [
        (DeepSeaTreasure(), (0, -50), 994.3),
        (DeepSeaTreasure(), (-1, -101), 2303.0),
        (MinecartDeterministic(), (-1, -1, -50), 233.55),
        (MinecartDeterministic(), (-1, -1, -200), 944.93),
    ],
)
def test_known_fronts_have_the_hypervolumes_of_the_thesis(problem, reference, volume):
    assert hypervolume(problem.known_front(), reference, maximise=True) == pytest.approx(volume, abs=0.05)


@pytest.mark.parametrize(
    ("problem", "reference"), [(DeepSeaTreasure(), [-1, -101]), (MinecartDeterministic(), [-1, -1, -50])]
)
def test_the_reference_points_are_those_of_the_tables(problem, reference):
    assert problem.reference == reference
    assert all(problem.maximise)


def test_minecart_is_learnt_as_in_table_a6():
    learner = MinecartDeterministic().learner()
    assert (learner.gamma, learner.lr, learner.learning_starts, learner.train_freq) == (0.99, 2e-4, 50_000, 32)
    assert MinecartDeterministic(discount=0.9).learner().gamma == 0.9
