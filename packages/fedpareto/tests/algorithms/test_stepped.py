"""Step sizes that are chosen on validation rows, against plain loops over runs with fixed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from personal_models import CLIENTS, SEED
from test_safe import WITHOUT, Validated

from fedpareto.algorithms.wrappers.ladder import FACTORS, PILOT
from fedpareto.algorithms.wrappers.safe import CHOSEN, OWN
from fedpareto.algorithms.wrappers.stepped import FACTOR, REGRET, stepped
from fedpareto.contract.algorithm import small_setting
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.testing import check_algorithm
from fedpareto.testing.conformance import trial

PROBLEM = Validated(heterogeneity=1.0)
LONG = replace(PROBLEM.learner(), lr=1.5)
"""Steps that are too long for some clients and not for others."""


def of(name):
    return stepped(make_algorithm(name))


def run(algorithm, rounds=3, learner=LONG, **more):
    return trial(algorithm, PROBLEM, rounds=rounds, learner=learner, **more)


def models(done):
    return np.stack([done.models[client].numpy() for client in range(CLIENTS)])


def alone(factor, rounds):
    """Every client's model after so many rounds of `local` with one fixed step size."""
    return models(run(make_algorithm("local"), rounds, replace(LONG, lr=LONG.lr * factor)))


def losses(found):
    """Each client's validation loss under its preference, by a loop; 0 without such rows."""
    rows = PROBLEM.data(CLIENTS, SEED)["validation"]
    preferences = Federation.create(PROBLEM, CLIENTS, SEED, "dirichlet").preferences
    return np.array(
        [
            0.0
            if i == WITHOUT
            else preferences[i]
            @ (0.5 * ((found[i] - rows.of_client(i)["centres"].double().numpy().mean(0)) ** 2).sum(1))
            for i in range(CLIENTS)
        ]
    )


def piloted():
    """The validation losses after the pilot, `[n, rungs]`."""
    return np.stack([losses(alone(factor, PILOT)) for factor in FACTORS], axis=1)


@pytest.mark.parametrize("name", ["fedpref", "ditto"])
def test_each_client_of_personal_models_takes_the_step_that_a_plain_loop_finds(name):
    wanted = np.array(FACTORS)[piloted().argmin(1)]
    assert wanted[WITHOUT] == FACTORS[0], "nothing to choose on: the smallest"
    assert len(set(wanted)) > 1, "a case in which all choose alike would show little"
    private = run(of(name)).engine.private
    assert np.allclose([float(private[0, 0, i][FACTOR]) for i in range(CLIENTS)], wanted)


def test_with_the_factor_1_everywhere_it_is_the_algorithm_itself(monkeypatch):
    monkeypatch.setattr("fedpareto.algorithms.wrappers.ladder.FACTORS", (1.0, 1.0, 1.0))
    for name in ("fedpref", "fedavg", "scaffold", "q-fedavg"):
        monkeypatch.setattr("fedpareto.algorithms.wrappers.stepped.FACTORS", (1.0, 1.0, 1.0))
        assert np.allclose(models(run(of(name))), models(run(make_algorithm(name))), atol=1e-9)


def test_local_keeps_the_best_model_of_all_rounds_and_steps():
    rounds = 4
    tried = [(alone(factor, r), losses(alone(factor, r))) for r in range(1, rounds + 1) for factor in FACTORS]
    found = models(run(of("local"), rounds))
    best = np.stack([loss for _, loss in tried]).argmin(0)
    for i in set(range(CLIENTS)) - {WITHOUT}:
        assert np.abs(found[i] - tried[best[i]][0][i]).max() <= 1e-12
    assert np.abs(found[WITHOUT] - alone(FACTORS[0], rounds)[WITHOUT]).max() <= 1e-12, "the last of the smallest"


@pytest.mark.parametrize("lr", [2.5, 1e200])
def test_a_step_that_is_far_too_long_is_regretted_no_more_than_once_and_not_at_all_if_all_are(lr):
    found = run(of("fedavg"), 1, replace(LONG, lr=lr)).outcomes[0].replies[REGRET].numpy()
    there = np.arange(CLIENTS) != WITHOUT
    if lr > 1e100:
        assert not found.any(), "a client that learns nothing with any of them has no say"
    else:
        assert (found[there].max(1) == 1).all()
        assert (found[there].min(1) == 0).all()


def test_one_model_has_the_step_with_the_least_mean_regret():
    regrets = (piloted() - piloted().min(1, keepdims=True)).clip(max=1)
    done = run(of("fedavg"))
    assert np.allclose(done.outcomes[0].replies[REGRET].numpy(), regrets)
    (tasks,) = done.engine.algorithm.ask(done.states[0])
    stack = of("fedavg").train(done.engine._probe(CLIENTS), tasks.stacked())
    assert np.allclose(stack[REGRET].numpy(), regrets), "of a whole stack, which is not tried again one by one"
    assert done.states[-1].factor == FACTORS[regrets.mean(0).argmin()]
    assert not done.outcomes[1].replies[REGRET].any(), "it is chosen once"
    cautious = run(make_algorithm("fedavg"), 1, replace(LONG, lr=LONG.lr * FACTORS[0]))
    assert torch.allclose(done.states[1].inner.model, cautious.states[1].model), "until then, the smallest step"


def test_a_lost_first_round_leaves_the_choice_to_the_next():
    algorithm = of("fedavg")
    done = run(algorithm)
    nobody = done.outcomes[0].replies.only(np.array([2]))
    state = algorithm.tell(done.states[0], nobody)
    assert state.factor in FACTORS
    assert algorithm.tell(done.states[0], done.outcomes[0].replies.only(np.array([WITHOUT]))).factor == FACTORS[0]


def test_fine_tuning_keeps_what_is_best_on_validation_rows():
    done = run(of("fedavg+ft"))
    sent = run(of("fedavg"), 2).states[-1].inner.model.numpy()
    found, before = losses(models(done)), losses(np.stack([sent] * CLIENTS))
    assert (found <= before + 1e-12).all(), "not to have trained is a candidate too"
    assert (found < before - 1e-6).any()


@pytest.mark.parametrize("name", ["fedavg+safe", "fedpref+safe"])
def test_safe_compares_with_what_local_has_now(name):
    own = models(run(of("local")))
    private = run(of(name)).engine.private
    best = losses(own)
    kept = losses(np.stack([private[0, 0, i][OWN].numpy() for i in range(CLIENTS)]))
    assert all(float(private[0, 0, i][CHOSEN]) for i in range(CLIENTS))
    assert (kept <= best + 1e-9).all()


@pytest.mark.parametrize("name", ["fedavg", "fedpref", "local", "ditto", "scaffold", "fedavg+ft", "fedpref+safe"])
def test_what_is_around_them_keeps_the_contract(name):
    check_algorithm(of(name), PROBLEM)


def test_a_step_size_of_ones_own_is_no_part_of_a_model_that_was_sent():
    """Otherwise the server of a federation would not know which models it has sent, and keep none."""
    setting = small_setting()
    for name, is_private in (("fedpref", False), ("ditto", True), ("local", True)):
        algorithm = stepped(make_algorithm(name))
        assert bool(algorithm.personal_state(setting)) == is_private
        assert algorithm.private_state(setting)
