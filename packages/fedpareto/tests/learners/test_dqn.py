"""DQN over a stack against a plain one, stable-baselines3, single clients and its own definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from plain_dqn import PlainDQN, flat, network_of

from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.clients import Clients
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.dqn import DQN, DQNAgent
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto.tensors import rng

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")

PROBLEM = DeepSeaTreasure(hidden=(32, 24))
LEARNER = replace(
    PROBLEM.learner(),
    steps=160,
    batch_size=16,
    buffer_size=100,
    learning_starts=40,
    train_freq=8,
    gradient_steps=4,
    target_update_interval=60,
    exploration_steps=120,
)


def clients_of(numbers, problem=PROBLEM, learner=LEARNER, round=1, seed=3):
    preferences = torch.tensor([[0.2 + 0.15 * i, 0.8 - 0.15 * i] for i in range(5)])[list(numbers)]
    return Clients(
        problem=problem,
        learner=learner,
        splits={},
        addresses=rng.Addresses.at(seed, np.array(list(numbers)), round),
        positions=np.array(list(numbers)),
        preferences=preferences,
    )


def trained(clients, model=None, **changes):
    learner = replace(clients.learner, **changes)
    start = PROBLEM.initial(0) if model is None else model
    return learner.train(clients, start.expand(len(clients), -1), clients.preferences)


@pytest.mark.parametrize("tables", ["auto", "never"])
@pytest.mark.parametrize("gradient_steps", [4, -1])
def test_one_client_equals_a_plain_dqn_update_by_update(tables, gradient_steps, monkeypatch):
    import mo_gymnasium

    learner = replace(LEARNER, tables=tables, gradient_steps=gradient_steps)
    clients, start = clients_of([2], learner=learner), PROBLEM.initial(5)
    trace = []
    update = DQNAgent.update
    monkeypatch.setattr(DQNAgent, "update", lambda self, who: (update(self, who), trace.append(self.model[0].clone())))
    learner.train(clients, start[None], clients.preferences)
    plain = PlainDQN(learner, PROBLEM, clients.addresses[:1], clients.preferences[0], start)
    expected = plain.play(mo_gymnasium.make("deep-sea-treasure-v0"))
    assert len(trace) == len(expected) == 15 * (8 if gradient_steps == -1 else 4)
    for ours, theirs in zip(trace, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (expected[-1] - start).norm() > 0.1


def test_one_update_is_that_of_stable_baselines3():
    import gymnasium
    import mo_gymnasium
    from stable_baselines3 import DQN as Theirs
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    learner = replace(LEARNER, learning_starts=0, steps=160)
    clients, start = clients_of([1], learner=learner), PROBLEM.initial(7)
    weights = clients.preferences[0].numpy()

    class Scalar(gymnasium.RewardWrapper):
        def reward(self, reward):
            return float(reward @ weights)

    theirs = Theirs(
        "MlpPolicy",
        Scalar(mo_gymnasium.make("deep-sea-treasure-v0")),
        learning_rate=learner.lr,
        gamma=learner.gamma,
        batch_size=learner.batch_size,
        policy_kwargs={"net_arch": list(PROBLEM.hidden)},
        device="cpu",
    )
    module = network_of(PROBLEM, start)
    for network in (theirs.q_net.q_net, theirs.q_net_target.q_net):
        network.load_state_dict(module.state_dict())
    theirs._logger = _Silent()
    agent = DQNAgent(learner, clients, start[None], clients.preferences, None)
    agent.table = None
    for _ in range(20):
        agent.play()
    for _ in range(25):
        number = agent.sample_number.clone()
        seen, after, reward, action, ended = agent.sample(None)
        agent.sample_number.copy_(number)
        batch = ReplayBufferSamples(seen[0], action[0], after[0], ended[0][:, None], reward[0][:, None], None)
        theirs.replay_buffer.sample = lambda *_, batch=batch, **__: batch
        theirs.train(1, learner.batch_size)
        agent.update(None)
        torch.testing.assert_close(agent.model[0], flat(theirs.q_net.q_net), rtol=1e-5, atol=1e-5)


class _Silent:
    def record(self, *_, **__):
        pass


def test_a_stack_equals_its_clients_one_by_one():
    together = trained(clients_of(range(5)))
    for number in range(5):
        alone = trained(clients_of([number]))
        torch.testing.assert_close(alone[0], together[number], rtol=1e-5, atol=1e-5)
    assert (together[0] - together[4]).norm() > 0.1


def test_tables_change_rounding_only():
    torch.testing.assert_close(
        trained(clients_of(range(3)), tables="never"), trained(clients_of(range(3))), rtol=1e-4, atol=1e-4
    )


def test_a_client_that_missed_a_round_goes_on_from_its_own_count():
    """In a stack of clients with different histories each does what it would do alone."""
    first, second = clients_of([0, 1]), clients_of([0, 1, 2], round=2)
    models = trained(first)
    blank = LEARNER.memory(PROBLEM)
    second.memory = {name: torch.cat([tensor, blank[name][None]]) for name, tensor in first.memory.items()}
    start = torch.cat([models, PROBLEM.initial(0)[None]])
    mixed = LEARNER.train(second, start, second.preferences)
    for number in range(3):
        alone = clients_of([number], round=2)
        if number < 2:
            alone.memory = {name: tensor[number : number + 1] for name, tensor in first.memory.items()}
        expected = LEARNER.train(alone, start[number : number + 1], alone.preferences)
        torch.testing.assert_close(mixed[number], expected[0], rtol=1e-5, atol=1e-5)
    assert second.memory["steps"].tolist() == [320, 320, 160]


def test_nothing_is_learnt_before_learning_starts():
    clients = clients_of(range(2))
    before = PROBLEM.initial(0)
    assert torch.equal(trained(clients, learning_starts=160)[1], before)
    assert clients.memory["steps"].tolist() == [160, 160]
    assert not torch.equal(trained(clients, learning_starts=159)[1], before)


def test_a_pull_holds_the_model_where_it_was():
    start = PROBLEM.initial(0)
    free = trained(clients_of([0]))
    clients = clients_of([0])
    held = LEARNER.train(clients, start[None], clients.preferences, lambda theta: 100 * (theta - start))
    assert (held - start).norm() < 0.5 * (free - start).norm()


def test_exploration_falls_as_said():
    clients = clients_of(
        [0], learner=replace(LEARNER, exploration_steps=100, learning_starts=10, exploration_final=0.1)
    )
    agent = DQNAgent(clients.learner, clients, PROBLEM.initial(0)[None], clients.preferences, None)
    shares = {}
    for count in (0, 9, 10, 50, 100, 1000):
        agent.count.fill_(count)
        shares[count] = float(agent._share())
    assert shares == pytest.approx({0: 1, 9: 1, 10: 0.91, 50: 0.55, 100: 0.1, 1000: 0.1})


@pytest.mark.parametrize("train_freq", [1, 16])
def test_restarted_exploration_is_that_of_stable_baselines3(train_freq, tmp_path, monkeypatch):
    """Also where a round, being of whole turns, has more steps than were asked for."""
    from stable_baselines3 import DQN as Agent
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        def _on_step(self):
            shares.append(self.model.exploration_rate)  # Of the step that was just taken.
            return True

    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))
    shares, steps, fraction = [], 50, 0.8
    theirs = Agent("MlpPolicy", "CartPole-v1", train_freq=train_freq, exploration_fraction=fraction)
    for _ in range(4):
        theirs.learn(steps, reset_num_timesteps=False, callback=Watch())
    learner = replace(
        LEARNER,
        steps=steps,
        train_freq=train_freq,
        exploration_schedule="restarts",
        exploration_steps=round(fraction * steps),
        exploration_final=0.05,
        learning_starts=0,
    )
    clients = clients_of([0], learner=learner)
    agent = DQNAgent(learner, clients, PROBLEM.initial(0)[None], clients.preferences, None)
    ours = []
    for count in range(len(shares)):
        agent.count.fill_(count)
        ours.append(float(agent._share()))
    assert ours[1:] == pytest.approx(shares[1:], abs=1e-6)  # They take the very first step without exploration.
    played = len(shares) // 4
    assert played == {1: 50, 16: 64}[train_freq]
    assert ours[played + 2] > ours[played - 1], "it rises again as the second round begins"


def test_targets_are_kept_or_received_and_moments_kept_or_fresh():
    first = clients_of([0])
    models = trained(first, target="kept")
    results = {}
    for target in ("kept", "received"):
        for state in ("kept", "fresh"):
            again = clients_of([0], round=2)
            again.memory = first.memory
            results[target, state] = replace(LEARNER, target=target, optimiser_state=state).train(
                again, models, again.preferences
            )
    pairs = [(a, b) for a in results for b in results if a < b]
    assert all(not torch.allclose(results[a], results[b]) for a, b in pairs)


@pytest.mark.takes_long
def test_it_learns_the_best_treasure_for_a_preference():
    """With a preference for time the nearest treasure is best, with one for treasure a far one."""
    problem = DeepSeaTreasure(hidden=(64, 64))
    spec = _spec(problem, "local", rounds=8, clients=2, preferences=[[0.05, 0.95], [0.6, 0.4]])
    points = runner.start(spec).solutions[0].points
    np.testing.assert_allclose(points[0], [0.7, -1], atol=1e-5)
    assert points[1][0] >= 8


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "cfl", "mat-fl", "fedpref", "local", "fedpref+ft"])
def test_every_algorithm_of_the_study_runs_on_it(name):
    spec = _spec(PROBLEM, name, rounds=2, clients=4, preferences="equidistant", learner=LEARNER)
    result = runner.start(spec)
    assert len(result.solutions[0].points) == 4
    assert {"discounted", "return"} == set(result.solutions[0].values)
    assert not any(row["failures"] for row in result.history)


@pytest.mark.takes_long
def test_a_resumed_run_continues_bit_for_bit(tmp_path):
    spec = _spec(PROBLEM, "fedpref", rounds=4, clients=3, learner=LEARNER)
    whole = runner.start(spec)
    rounds = iter(range(1, 10))
    with pytest.raises(Stopped):
        runner.start(spec, tmp_path / "run", stop=lambda: next(rounds) == 2)
    resumed = runner.resume(tmp_path / "run")
    assert resumed is not None
    for client, model in whole.models[0].items():
        assert torch.equal(model, resumed.models[0][client])


def test_what_a_client_remembers_is_kept_for_each_lane_until_the_lane_is_over():
    from fedpareto.contract.messages import Tasks

    spec = _spec(PROBLEM, "local", rounds=1, clients=2, learner=LEARNER)
    federation = spec.federation(0)
    engine = LocalEngine(
        Local(), PROBLEM, LEARNER, [federation], [federation.setting(PROBLEM, 1)], LocalOptions(threads=1, chunk=4)
    )
    model = {"model": PROBLEM.initial(0)}
    engine.run([Tasks(np.arange(2), model, round=1, lane=lane) for lane in (0, 1)])
    assert set(engine.private) == {(0, lane, client) for lane in (0, 1) for client in (0, 1)}
    engine.run([Tasks(np.arange(2), model, round=2, lane=1)])
    assert set(engine.private) == {(0, 1, 0), (0, 1, 1)}
    assert all(int(kept["learner.steps"]) == 320 for kept in engine.private.values())


def test_a_problem_without_an_environment_is_refused():
    with pytest.raises(UserError, match="'convex' has no environment to play in"):
        LEARNER.memory(Convex())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.0}, "lr is 0; it is above 0"),
        ({"gamma": 1.5}, "gamma is 1.5; it is at least 0 and at most 1"),
        ({"steps": 0}, "steps is 0; it is at least 1"),
        ({"gradient_steps": -2}, "gradient_steps is -2; it is at least -1"),
        ({"learning_starts": -1}, "learning_starts is -1; it is at least 0"),
        ({"target_update_interval": 0}, "target_update_interval is 0; it is at least 1"),
        ({"tau": 0.0}, "tau is 0; it is above 0 and at most 1"),
        ({"exploration_final": 2.0}, "exploration_final is 2; it is at least 0 and at most 1"),
        ({"exploration_steps": -1}, "exploration_steps is -1; it is at least 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0; it is above 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(change, message):
    with pytest.raises(UserError, match=message):
        DQN(**change)


def _spec(problem, algorithm, rounds, clients, preferences="dirichlet", learner=None):
    draft = Draft({}).with_values(
        {"problem": problem.name, "algorithm": algorithm, "rounds": rounds, "clients": clients}
    )
    spec = draft.with_settings(["threads=1", f"chunk={clients}"]).finish()
    return replace(
        spec,
        problem=problem,
        algorithm=make_algorithm(algorithm),
        learner=learner or problem.learner(),
        preferences=preferences,
    )
