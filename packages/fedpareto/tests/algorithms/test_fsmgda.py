"""FSMGDA against closed forms on the convex problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_problems import Twins

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.common_descent.fsmgda import FSMGDA
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.min_norm import min_norm_weights
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import largest_difference, trial

FULL_BATCH = Supervised(lr=0.2, batch_size=1000)


def goals_of(problem, federation):
    """The minima c_j + mean δ_i of the clients' mean objectives, `[m, d]`: the corners of the Pareto set."""
    return problem.centres() + problem.shifts(len(federation.ids), federation.seed).mean(dim=0)


def distance_to_pareto_set(problem, federation, model):
    """To the convex hull of the goals."""
    away = (goals_of(problem, federation) - model).numpy()
    return float(np.linalg.norm(min_norm_weights(away @ away.T) @ away))


@pytest.mark.parametrize("goals", [2, 3, 6])
def test_it_reaches_a_pareto_stationary_point(goals):
    problem = Convex(goals=goals, heterogeneity=0.3)
    federation = Federation.create(problem, 7, 0, "dirichlet")
    done = trial(FSMGDA(), problem, federation=federation, learner=FULL_BATCH, rounds=60)
    at = [distance_to_pareto_set(problem, federation, state.model) for state in done.states]
    assert at[0] > 0.3
    assert at[-1] < 1e-5
    assert at == sorted(at, reverse=True), "it strays on the way"


def test_a_step_by_hand():
    """From the origin the two updates are lr (c_j + δ̄); the step is their shortest combination, times η."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 4, 0, "dirichlet")
    done = trial(FSMGDA(server_lr=1.5), problem, federation=federation, learner=FULL_BATCH, rounds=1, chunk=4)
    a, b = 0.2 * goals_of(problem, federation)
    first = float(((b - a) @ b / ((a - b) @ (a - b))).clamp(0, 1))
    assert torch.allclose(done.models[0], 1.5 * (first * a + (1 - first) * b), atol=1e-9)
    assert done.states[-1].weights == pytest.approx((first, 1 - first), abs=1e-8)


def test_no_objective_gets_worse_on_the_way():
    problem = Convex(goals=3, heterogeneity=0.3)
    federation = Federation.create(problem, 5, 0, "dirichlet")
    done = trial(FSMGDA(), problem, federation=federation, learner=FULL_BATCH, rounds=20, chunk=5)
    goals = goals_of(problem, federation)
    values = torch.stack([(state.model - goals).square().sum(dim=1) for state in done.states])
    assert (values.diff(dim=0) <= 1e-9).all()


def test_preferences_play_no_part_without_fine_tuning():
    problem = Convex(heterogeneity=0.3)
    for name, alike in (("fsmgda", True), ("fsmgda+ft", False)):
        models = [
            trial(make_algorithm(name, {}), problem, federation=Federation.create(problem, 5, 0, preferences)).models
            for preferences in ("0.5,0.5", "dirichlet")
        ]
        assert (largest_difference(*models) == 0) == alike


def test_fine_tuning_is_local_training_from_the_last_global_model():
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 5, 0, "dirichlet")
    before = trial(FSMGDA(), problem, federation=federation, rounds=4, chunk=5)
    tuned = trial(make_algorithm("fsmgda+ft", {}), problem, federation=federation, rounds=5, chunk=5)
    assert torch.equal(tuned.states[-2].inner.model, before.states[-1].model)
    optimum = torch.as_tensor(federation.preferences) @ problem.centres() + problem.shifts(5, 0)
    for client in range(5):
        start, end = before.models[client], tuned.models[client]
        assert (end - optimum[client]).norm() < (start - optimum[client]).norm()


def test_identical_objectives_are_fedavg():
    problem = Twins(goals=3, heterogeneity=0.3)
    fsmgda, fedavg = trial(FSMGDA(), problem), trial(FedAvg(weighting="equal"), problem)
    assert largest_difference(fsmgda.models, fedavg.models) <= 1e-12


@pytest.mark.parametrize("updates", [torch.zeros(2, 8), torch.ones(2, 8) * 1e-30, torch.eye(2, 8) * 1e20])
def test_updates_of_any_size_are_borne(updates):
    problem = Convex()
    state = FSMGDA().begin(Federation.create(problem, 2, 0).setting(problem, 3))
    after = FSMGDA().tell(state, Replies.of({0: {"updates": updates}}))
    assert after.model.isfinite().all()
    assert sum(after.weights) == pytest.approx(1)


def test_the_trained_model_is_the_clients_own_mixture_of_its_updates():
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 3, 0, "0.3,0.7")
    done = trial(FSMGDA(), problem, federation=federation, learner=FULL_BATCH, rounds=1, chunk=3)
    solutions = FSMGDA().solutions(done.states[0])
    outcome = done.engine.run(FSMGDA().ask(done.states[0]), solutions)
    goal = torch.tensor([0.3, 0.7]).double() @ problem.centres() + problem.shifts(3, 0)
    test = done.engine.split_names.index("test")
    for client in range(3):
        moved = 0.2 * goal[client]
        expected = 0.5 * (moved - problem.centres() - problem.shifts(3, 0)[client]).square().sum(dim=1)
        assert torch.allclose(outcome.evaluations.trained[client][test], expected, atol=1e-9)


def test_a_step_size_that_is_not_positive_is_refused():
    with pytest.raises(UserError):
        FSMGDA(server_lr=0.0)


SUBSETS = ("distance 1", "distance 2+distance 1", "distance 2")


def test_a_step_of_clients_with_subsets_by_hand():
    """Δ_s is the mean over those who have s; whom nobody of the round has, has no weight."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 4, 0, "dirichlet")
    algorithm = FSMGDA(subsets=SUBSETS)
    done = trial(algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=1, chunk=4)
    shifts = problem.shifts(4, 0)
    a, b = (0.2 * (problem.centres()[s] + shifts[who].mean(dim=0)) for s, who in enumerate(([0, 1, 3], [1, 2])))
    first = float(((b - a) @ b / ((a - b) @ (a - b))).clamp(0, 1))
    assert torch.allclose(done.models[0], first * a + (1 - first) * b, atol=1e-9)
    replies = done.outcomes[0].replies
    assert replies["updates"][0, 1].abs().max() == replies["updates"][2, 0].abs().max() == 0, "nobody trains in vain"
    two = algorithm.tell(done.states[0], replies.only(np.array([0, 3])))
    assert two.weights == (1.0, 0.0)
    assert torch.allclose(two.model, 0.2 * (problem.centres()[0] + shifts[[0, 3]].mean(dim=0)), atol=1e-9)


def test_subsets_of_everything_change_nothing_and_stacks_of_subsets_equal_loops():
    problem = Convex(heterogeneity=0.3)
    plain, all_of_them = (
        trial(FSMGDA(subsets=one), problem) for one in ((), ("distance 1+distance 2, distance 2+distance 1",))
    )
    assert largest_difference(plain.models, all_of_them.models) <= 1e-15
    whole, loop = (trial(FSMGDA(subsets=SUBSETS), problem, participation=0.5, chunk=chunk) for chunk in (7, 1))
    assert largest_difference(whole.models, loop.models) <= 1e-12


@pytest.mark.parametrize(
    ("subsets", "said"),
    [
        (("distance 1",), "subsets: nobody has the objective 'distance 2'; add it to one of the sets"),
        (("distance 1", "distance 3"), "unknown objective 'distance 3'; did you mean 'distance"),
        (("distance 1",) * 7 + ("distance 2",), "or take 8 clients"),
    ],
)
def test_an_objective_that_nobody_has_or_knows_is_one_line(subsets, said):
    with pytest.raises(UserError) as refused:
        trial(FSMGDA(subsets=subsets), Convex())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
