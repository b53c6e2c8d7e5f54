"""Link scheduling: an episode by hand, all policies of a small instance, and orbits that make clients differ."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import fedpareto
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import is_nondominated
from fedpareto.tensors import rng
from fedpareto_space.orbits.sights import over_stations
from fedpareto_space.orbits.stations import stations
from fedpareto_space.problems.link_scheduling import START, LinkScheduling
from fedpareto_space.problems.links import Downlinks, Link, Passes

CPU = torch.device("cpu")
NOTHING, OWN, COMMERCIAL, RELAY = range(4)
LINKS = (Link(rate=4.0, watts=2.0, price=0.0), Link(rate=16.0, watts=2.0, price=8.0), Link(2.0, 4.0, 0.0))
"""Own and slow, commercial and fast, a relay that takes much power: binary fractions, so that all sums are exact."""
LIGHT = [[0.5, 0.5, 0.0, 0.5]]
SIGHT = [[[0.0, 0.0, 0.5], [0.0, 0.25, 0.5], [0.25, 0.0, 0.5], [0.0, 0.25, 0.5]]]
SMALL = Downlinks(
    Passes(np.array(LIGHT), np.array(SIGHT), hours=0.5), LINKS, gathered=2.0, solar=1.0, battery=2.0, warm_up=0.125
)
"""Half-hour steps of one satellite: a GB in each but the third, which is dark."""


def addresses(n, round=0):
    return rng.Addresses.at(0, np.arange(n), round=round)


def played(environment, plans):
    """The returns `[n, 3]` of plans `[n, steps]`, all on the first satellite."""
    state = environment.start(len(plans), CPU)
    total = torch.zeros(len(plans), 3)
    for action in torch.as_tensor(plans).T:
        state, reward, _ = environment.advance(state, action)
        total += reward
    return total.numpy()


# -- by hand -------------------------------------------------------------------------------------------------------


def test_an_episode_by_hand():
    state = SMALL.start(1, CPU)
    expected = [
        # Relay: 1 GB came in; 0.5 h of 4 W would be 2 Wh, but of the 2 Wh 0.125 were for warming up: 1.875 / 4 h.
        (RELAY, 1 - 2 * 0.46875, 0.0, (0.0, 0.03125, 2.0)),
        # Commercial: 1.0625 GB, all of which takes 1.0625 / 16 h; the sun gave 0.5 Wh.
        (COMMERCIAL, 0.0, 0.5 - 0.125 - 0.1328125, (0.53125, 0.0, 0.2578125)),
        # Own: nothing to send, in the dark; warming up takes its share.
        (OWN, 0.0, 0.2421875 - 0.125, (0.0, 0.0, 0.125)),
        # Nothing: the last GB waits, the sun charges.
        (NOTHING, 1.0, 0.1171875 + 0.5, (0.0, 0.5, 0.0)),
    ]
    for number, (action, queue, energy, spent) in enumerate(expected):
        state, reward, over = SMALL.advance(state, torch.tensor([action]))
        assert state["queue"].item() == queue
        assert state["energy"].item() == energy
        assert (-reward[0]).tolist() == list(spent)
        assert over.item() == (number == 3)


def test_what_is_seen_by_hand():
    state = {name: tensor.clone() for name, tensor in SMALL.start(1, CPU).items()}
    state |= {"step": torch.tensor([1]), "queue": torch.tensor([3.0]), "energy": torch.tensor([0.5])}
    queue, battery, time, light = 1.5, 0.25, 0.75, 1.0
    assert SMALL.observe(state)[0].tolist() == [queue, battery, time, light, 0.0, 0.5, 1.0, 0.25, 0.0, 0.0]
    state["step"] += 2
    after_the_end = 1 / 4
    assert SMALL.observe(state)[0].tolist()[-3:] == [after_the_end, 0.0, 0.0]


def test_without_power_nothing_is_sent():
    dark = Downlinks(
        Passes(np.zeros((1, 2)), np.full((1, 2, 3), 0.5), hours=0.5), LINKS, battery=0.1, warm_up=0.125, solar=1.0
    )
    state, reward, _ = dark.advance(dark.start(1, CPU) | {"queue": torch.tensor([1.0])}, torch.tensor([COMMERCIAL]))
    assert (state["queue"].item(), reward[0].tolist()) == (1.0, [0.0, -0.5, 0.0])


# -- all policies of the small instance ----------------------------------------------------------------------------

PLANS = np.array(list(product(range(4), repeat=4)))


@pytest.fixture(scope="module")
def returns():
    return played(SMALL, PLANS)


def best(returns, *weights):
    """The plan with the largest weighted return."""
    return PLANS[(returns @ np.array(weights)).argmax()].tolist()


def test_no_return_is_worse_than_the_reference_point(returns):
    assert (returns >= np.array(SMALL.worst())).all()
    assert (returns <= 0).all()


def test_to_send_to_nobody_in_sight_is_dominated_by_waiting(returns):
    by_plan = {tuple(plan): value for plan, value in zip(PLANS.tolist(), returns, strict=True)}
    blind = [(step, link) for step in range(4) for link in range(3) if SIGHT[0][step][link] == 0]
    assert len(blind) == 5
    for step, link in blind:
        for plan in PLANS[PLANS[:, step] == link + 1].tolist():
            instead = tuple(NOTHING if at == step else action for at, action in enumerate(plan))
            assert (by_plan[instead] >= by_plan[tuple(plan)]).all()
            # An empty battery does not even warm up.
            assert by_plan[instead][2] > by_plan[tuple(plan)][2] or played(SMALL, [plan])[0, 2] <= -2


def test_each_extreme_has_a_best_policy_of_its_own(returns):
    """Only energy counts; only latency; latency before energy; money before latency."""
    assert best(returns, 0, 0, 1) == [NOTHING] * 4
    only_fast = best(returns, 0.001, 1, 0.001)
    saves_energy = best(returns, 0.01, 0.7, 0.29)
    saves_money = best(returns, 0.89, 0.1, 0.01)
    assert COMMERCIAL in saves_energy
    assert RELAY not in saves_energy
    assert RELAY in saves_money
    assert COMMERCIAL not in saves_money
    assert RELAY in only_fast
    assert COMMERCIAL in only_fast
    assert len({tuple(plan) for plan in ([0] * 4, only_fast, saves_energy, saves_money)}) == 4


def test_nobody_wins_in_all_three(returns):
    front = np.unique(returns[is_nondominated(-returns)], axis=0)
    assert len(front) >= 10
    assert not (front == returns.max(axis=0)).all(axis=1).any()


# -- orbits --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    return LinkScheduling(shell="12/3/1", hidden=(16,))


def test_clients_are_satellites_and_stay_so(problem):
    environment = problem.environment
    for round in (0, 5):
        for lane in (0, -3):
            begun = environment.begin(addresses(14, round).with_lane(lane), CPU)
            assert begun["satellite"].tolist() == [*range(12), 0, 1]
    session = environment.open(environment.begin(addresses(3), CPU), addresses(3))
    first = session.observation.clone()
    for _ in range(environment.horizon):
        end = session.step(torch.zeros(3, dtype=torch.int64))
    assert end.terminated.all()
    assert torch.equal(session.observation, first)
    assert session.state()["satellite"].tolist() == [0, 1, 2]


def test_satellites_of_one_plane_see_the_same_later_and_planes_see_other_light(problem):
    passes = problem.environment.passes
    light = passes.light.sum(axis=1).reshape(3, 4)
    assert np.ptp(light, axis=1).max() < 0.7
    assert np.ptp(light.mean(axis=1)) > 1.0
    assert not np.array_equal(passes.sight[0], passes.sight[1])


def test_passes_are_as_long_as_the_windows(problem):
    windows = over_stations(problem._satellites.orbits(START), stations(["svalbard"]), START, 8 * 3600.0)
    total = np.bincount(windows.rows, windows.ends - windows.starts, 12) / 3600
    assert problem.environment.passes.sight[:, :, 0].sum(axis=1) == pytest.approx(total)
    assert (problem.environment.passes.sight[:, :, 2] == problem.minutes / 60).all()


def test_waiting_counts_steps_until_somebody_is_in_sight():
    passes = Passes(np.zeros((1, 4)), np.array(SIGHT), hours=0.5)
    assert passes.wait[0].tolist() == [[2, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_n_copies_equal_single_ones_and_go_on_from_their_state(problem):
    environment = problem.environment
    actions = torch.as_tensor(np.random.default_rng(0).integers(0, 4, (70, 5)))
    everyone = addresses(5)
    together = environment.open(environment.begin(everyone, CPU), everyone)
    results = [together.step(action) for action in actions]
    for copy in range(5):
        own = everyone[copy : copy + 1]
        alone = environment.open(environment.begin(own, CPU), own)
        for number, action in enumerate(actions):
            if number == 33:
                alone = environment.open({name: one.clone() for name, one in alone.state().items()}, own)
            for one, all_of_them in zip(alone.step(action[copy : copy + 1]), results[number], strict=True):
                assert torch.equal(one[0], all_of_them[copy])


def test_a_step_looks_at_no_value(problem):
    """What asks for one on the host could not be in a CUDA graph."""
    environment, meta = problem.environment, torch.device("meta")
    session = environment.open(environment.begin(addresses(3), meta), addresses(3))
    found = session.step(torch.zeros(3, dtype=torch.int64, device=meta))
    assert [tuple(one.shape) for one in found] == [(3, environment.observation_size), (3, 3), (3,), (3,)]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rates", (1.0, 2.0), r"rates is \[1.0, 2.0\]; it is a number for each of own, commercial, relay"),
        ("prices", (0.0, -1.0, 0.0), "prices has -1; each is at least 0"),
        ("minutes", 0.0, "minutes is 0; it is above 0"),
        ("choices", 0, "choices is 0; it is at least 1 and at most 1,000"),
        ("shell", "40/7/1", "40 satellites do not fit into 7 planes"),
        ("commercial", (), "at least one station each"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field, value, message):
    with pytest.raises(UserError, match=message):
        LinkScheduling(**{field: value})


# -- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_clients_that_learn_together_serve_their_preferences_better_than_chance_does():
    """Of six satellites with six preferences, each by its own utility w · return."""
    problem = LinkScheduling(shell="6/3/1", hidden=(32, 32))
    result = fedpareto.run(problem, FedPref(threshold=5.0), rounds=8, preferences="equidistant", evaluate_every=8)
    learnt = result.solutions[0]
    environment, copies = problem.environment, 50
    many = rng.Addresses.at(0, np.arange(6), round=0).repeated(copies)
    session = environment.open(environment.begin(many, CPU), many)
    chance = torch.zeros(6 * copies, 3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(environment.horizon):
        chance += session.step(torch.randint(0, 4, (6 * copies,), generator=draw)).reward
    at_random = chance.view(6, copies, 3).mean(1).numpy()
    utilities = [(learnt.preferences * values).sum(axis=1).mean() for values in (learnt.values["return"], at_random)]
    assert utilities[0] > 0.5 * utilities[1]
