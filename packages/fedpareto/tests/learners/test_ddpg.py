"""DDPG over a stack against a plain one, stable-baselines3, single clients and its own definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from plain_ddpg import PlainDDPG, Sledding, flat, networks_of

from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.learners.ddpg import DDPG, DDPGAgent
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.tensors import rng

PROBLEM = Sledding()
LEARNER = DDPG(steps=90, lr=0.003, batch_size=16, buffer_size=60, learning_starts=24, train_freq=3, gradient_steps=2)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def clients_of(numbers, learner=LEARNER, round=1, memory=None):
    preferences = torch.tensor([[0.2 + 0.15 * i, 0.8 - 0.15 * i] for i in range(5)])[list(numbers)]
    addresses = rng.Addresses.at(3, np.array(list(numbers)), round)
    return Clients(
        problem=PROBLEM,
        learner=learner,
        splits={},
        addresses=addresses,
        positions=np.array(list(numbers)),
        preferences=preferences,
        memory=memory or {},
    )


def trained(clients, models=None):
    start = PROBLEM.initial(0).expand(len(clients), -1) if models is None else models
    return clients.learn(start)


def agent_of(clients, model=None):
    start = PROBLEM.initial(0) if model is None else model
    return DDPGAgent(clients.learner, clients, start.expand(len(clients), -1), clients.preferences, None)


def traced(monkeypatch):
    """Every model of client 0 after an update."""
    trace, update = [], DDPGAgent.update
    monkeypatch.setattr(DDPGAgent, "update", lambda self, who: (update(self, who), trace.append(self.model[0].clone())))
    return trace


# -- against others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("train_freq", "gradient_steps"), [(3, 2), (3, -1), (1, 1)])
def test_one_client_equals_a_plain_ddpg_update_by_update(train_freq, gradient_steps, monkeypatch):
    learner = replace(LEARNER, train_freq=train_freq, gradient_steps=gradient_steps)
    clients, start, trace = clients_of([2], learner), PROBLEM.initial(5), traced(monkeypatch)
    trained(clients, start[None])
    plain = PlainDDPG(learner, PROBLEM, clients.addresses[:1], clients.preferences[0], start)
    expected = plain.play()
    assert len(trace) == len(expected) == {(3, 2): 44, (3, -1): 66, (1, 1): 66}[train_freq, gradient_steps]
    for ours, theirs in zip(trace, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)
    slow = torch.cat([flat(plain.slow_actor), flat(plain.slow_critic)])
    torch.testing.assert_close(clients.memory["target"][0], slow, **CLOSE)
    assert (expected[-1] - start).abs().max() > 0.05


def test_a_plain_ddpg_that_goes_on_equals_two_rounds(monkeypatch):
    """Networks, targets, moments, what is remembered, the episode and the count of steps go on; only chance is new."""
    learner, trace = replace(LEARNER, target="kept"), traced(monkeypatch)
    first, second = clients_of([1], learner), clients_of([1], learner, round=2)
    models = trained(first)
    second.memory = first.memory
    trained(second, models)
    plain = PlainDDPG(learner, PROBLEM, first.addresses[:1], first.preferences[0], PROBLEM.initial(0))
    expected = plain.play()
    plain.begin(second.addresses[:1])
    expected += plain.play()
    for ours, theirs in zip(trace, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_one_update_is_that_of_stable_baselines3():
    import gymnasium
    from stable_baselines3 import DDPG as Theirs
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    class Shape(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
        action_space = gymnasium.spaces.Box(np.float32([-2, -1]), np.float32([2, 3]))

    learner = replace(LEARNER, learning_starts=0)
    start = PROBLEM.initial(7)
    options = {"learning_rate": learner.lr, "gamma": learner.gamma, "tau": learner.tau, "device": "cpu"}
    theirs = Theirs("MlpPolicy", Shape(), policy_kwargs={"net_arch": list(PROBLEM.hidden)}, **options)
    actor, critic = networks_of(PROBLEM, start)
    for network in (theirs.actor.mu, theirs.actor_target.mu):
        network.load_state_dict(actor.state_dict())
    for network in (theirs.critic.q_networks[0], theirs.critic_target.q_networks[0]):
        network.load_state_dict(critic.state_dict())
    theirs._logger = _Silent()
    agent = agent_of(clients_of([1], learner), start)
    for _ in range(50):
        agent.play()
    for _ in range(25):
        number = agent.sample_number.clone()
        seen, after, reward, action, ended = agent.sample(None)
        agent.sample_number.copy_(number)
        batch = ReplayBufferSamples(seen[0], action[0], after[0], ended[0][:, None], reward[0][:, None], None)
        theirs.replay_buffer.sample = lambda *_, batch=batch, **__: batch
        theirs.train(1, learner.batch_size)
        agent.update(None)
        for ours, both in ((agent.model, (theirs.actor, theirs.critic)), (agent.target, _targets(theirs))):
            expected = torch.cat([flat(both[0].mu), flat(both[1].q_networks[0])])
            torch.testing.assert_close(ours[0], expected, **CLOSE)


def _targets(theirs):
    return theirs.actor_target, theirs.critic_target


class _Silent:
    def record(self, *_, **__):
        pass


# -- as stacks -----------------------------------------------------------------------------------------------------


def test_a_stack_equals_its_clients_one_by_one():
    together = trained(clients_of(range(5)))
    for number in range(5):
        torch.testing.assert_close(trained(clients_of([number]))[0], together[number], **CLOSE)
    assert (together[0] - together[4]).abs().max() > 0.05


def test_clients_with_different_histories_do_what_each_would_do_alone():
    """The third has just begun: it explores at random and does not learn, while the others do both otherwise."""
    first = clients_of([0, 1])
    models = trained(first)
    blank = LEARNER.memory(PROBLEM)
    remembered = {name: torch.cat([tensor, blank[name][None]]) for name, tensor in first.memory.items()}
    start = torch.cat([models, PROBLEM.initial(0)[None]])
    mixed = clients_of(range(3), round=2, memory=remembered)
    together = trained(mixed, start)
    for number in range(3):
        own = {name: tensor[number : number + 1] for name, tensor in remembered.items()}
        alone = clients_of([number], round=2, memory=own)
        torch.testing.assert_close(trained(alone, start[number : number + 1])[0], together[number], **CLOSE)
        for name, tensor in alone.memory.items():
            torch.testing.assert_close(tensor[0], mixed.memory[name][number], **CLOSE)
    assert mixed.memory["steps"].tolist() == [180, 180, 90]
    assert mixed.memory["moves"].tolist() == [44 + 60, 44 + 60, 44]


def test_two_short_rounds_equal_a_long_one(monkeypatch):
    """Given the same chance: of what would be drawn, the second round gets what comes after the first."""
    # All learn from the beginning, so that a round uses up what is drawn for it.
    short = replace(LEARNER, steps=45, learning_starts=0, target="kept")
    rounds_done = 0

    def in_turn(drawn):
        def draw(self, purpose, shape):
            both = drawn(self, purpose, (2 * shape[0], *shape[1:]))
            return both[:, rounds_done * shape[0] :][:, : shape[0]].contiguous()

        return draw

    for kind in ("uniform", "normal"):
        monkeypatch.setattr(DDPGAgent, kind, in_turn(getattr(DDPGAgent, kind)))
    whole = clients_of(range(3), replace(short, steps=90))
    expected = trained(whole)
    first, second = clients_of(range(3), short), clients_of(range(3), short)
    models = trained(first)
    second.memory, rounds_done = first.memory, 1
    assert torch.equal(trained(second, models), expected)
    for name, tensor in whole.memory.items():
        assert torch.equal(tensor, second.memory[name]), name


# -- by its own definition -----------------------------------------------------------------------------------------


def test_nothing_is_learnt_before_learning_starts():
    start = PROBLEM.initial(0)
    clients = clients_of(range(2), replace(LEARNER, learning_starts=90))
    assert torch.equal(trained(clients)[1], start)
    assert clients.memory["steps"].tolist() == [90, 90]
    assert not clients.memory["moves"].any()
    assert not torch.equal(trained(clients_of(range(2), replace(LEARNER, learning_starts=89)))[1], start)


def test_actions_are_random_at_first_and_the_actors_with_noise_then():
    learner = replace(LEARNER, learning_starts=40, noise_std=0.05, buffer_size=90)
    agent = agent_of(clients_of([0], learner))
    for _ in range(90):
        agent.play()
    seen, _, _, action, _ = agent.rows.split(agent.buffer[0])
    best = agent.policy.act(agent.fixed, seen[None])[0]
    assert ((action[40:] - best[40:]).abs() < 0.25).all()
    assert 0.03 < (action[40:] - best[40:]).std() < 0.07
    assert action[:40].std() > 0.4
    assert action.abs().max() <= 1


def test_an_end_has_no_future_but_a_cut_off_has():
    agent = agent_of(clients_of([0], replace(LEARNER, buffer_size=400)))
    session, ends = agent.session, []
    step = session.step

    def watched(action):
        transition = step(action)
        ends.append((bool(transition.terminated), bool(transition.truncated)))
        return transition

    session.step = watched
    for _ in range(90):
        agent.play()
    remembered = agent.rows.split(agent.buffer[0, :90])[4].squeeze(1)
    assert remembered.tolist() == [float(terminated) for terminated, _ in ends]
    assert any(terminated for terminated, _ in ends)
    assert any(truncated for _, truncated in ends)


def test_targets_follow_slowly():
    clients = clients_of([0], replace(LEARNER, learning_starts=0))
    agent = agent_of(clients)
    agent.play()
    before = agent.target.clone()
    agent.update(None)
    torch.testing.assert_close(agent.target, 0.995 * before + 0.005 * agent.model)
    assert (agent.model - before).abs().max() > 1e-3


def test_a_pull_holds_both_networks_where_they_were():
    start = PROBLEM.initial(0)
    free, clients = trained(clients_of([0])), clients_of([0])
    held = LEARNER.train(clients, start[None], clients.preferences, lambda theta: 100 * (theta - start))
    for prefix, network in PROBLEM.policy.networks.items():
        size = network.layout.size
        part = slice(0, size) if prefix == "actor." else slice(-size, None)
        assert (held - start)[:, part].norm() < 0.5 * (free - start)[:, part].norm()


@pytest.mark.takes_long
def test_targets_are_kept_or_received_and_moments_kept_or_fresh():
    first = clients_of([0])
    models = trained(first)
    results = []
    for target in ("kept", "received"):
        for state in ("kept", "fresh"):
            learner = replace(LEARNER, target=target, optimiser_state=state)
            results.append(trained(clients_of([0], learner, round=2, memory=first.memory), models))
    assert all(not torch.allclose(a, b) for i, a in enumerate(results) for b in results[:i])


@pytest.mark.takes_long
def test_it_learns_to_steer_for_either_objective():
    """Who wants ease pushes little; who wants to be near the post gets nearer."""
    learner = DDPG(steps=1_500, lr=0.003, batch_size=64, buffer_size=2_000, learning_starts=200, train_freq=4)
    clients = clients_of([0, 1], replace(learner, gradient_steps=2))
    clients.preferences = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    start = PROBLEM.initial(0).expand(2, -1)
    before, after = (PROBLEM.score(clients, model)[:, 1] for model in (start, trained(clients, start)))
    near, easy = after
    assert near[0] > max(before[0, 0], easy[0]) + 1
    assert easy[1] > -0.5 > near[1]


# -- as it is used -------------------------------------------------------------------------------------------------


def test_problems_name_the_learner_that_fits_their_actions():
    assert isinstance(PROBLEM.learner(), DDPG)
    assert isinstance(DeepSeaTreasure().learner(), DQN)
    assert replace(PROBLEM, discount=0.9).learner().gamma == 0.9


def test_its_defaults_are_those_of_table_a7():
    """With what stable-baselines3 had at that time where the table is silent."""
    learner = DDPG()
    assert (learner.lr, learner.buffer_size, learner.gamma, learner.noise_std) == (1e-3, 200_000, 0.98, 0.1)
    assert (learner.train_freq, learner.gradient_steps, learner.batch_size, learner.tau) == (1, 1, 100, 0.005)
    assert learner.learning_starts == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": 0.0}, "tau is 0; it is above 0 and at most 1"),
        ({"noise_std": -0.1}, "noise_std is -0.1; it is at least 0"),
        ({"batch_size": 0}, "batch_size is 0; it is at least 1"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(change, message):
    with pytest.raises(UserError, match=message):
        DDPG(**change)
