"""FedMGDA+ and its relatives against closed forms; clients' updates told by hand, or runs on the convex problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_problems import setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.fedavg_n import FedAvgN
from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.algorithms.common_descent.fedmgda import FedMGDA
from fedpareto.algorithms.common_descent.fedmgda_plus import FedMGDAPlus
from fedpareto.algorithms.common_descent.mgda_prox import MGDAProx
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import participants
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm, protected
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.fairness import share_improved
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

FULL_BATCH = Supervised(lr=0.1, batch_size=1000)


def told(algorithm, updates, sizes=None):
    """The state after one round in which clients moved from a model of zeros by `updates` `[n, d]`."""
    rows = torch.as_tensor(np.asarray(updates))
    state = algorithm.begin(setting_of(range(len(rows)), Layout.of({"weight": (rows.shape[1],)})))
    messages = [{"model": state.model.to(row) + row} for row in rows]
    for message, size in zip(messages, sizes or [1.0] * len(rows), strict=True):
        if algorithm.weighting == "size":
            message["size"] = torch.tensor(size, dtype=torch.float64)
    replies = Replies.of(dict(enumerate(messages)))
    return algorithm.tell(state, replies)


def random_updates(seed, clients=6, d=9):
    return np.random.default_rng(seed).standard_normal((clients, d)) + 0.5


# -- one step by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_epsilon_zero_is_normalised_fedavg_exactly(weighting):
    updates, sizes = random_updates(0), [5, 1, 7, 3, 2, 11]
    plus = told(FedMGDAPlus(epsilon=0.0, weighting=weighting, server_lr=0.7), updates, sizes)
    plain = told(FedAvgN(weighting=weighting, server_lr=0.7), updates, sizes)
    assert torch.equal(plus.model, plain.model)
    assert torch.equal(plus.weights, plain.weights)
    shares = np.array(sizes) / sum(sizes) if weighting == "size" else np.full(6, 1 / 6)
    by_hand = 0.7 * shares @ (updates / np.linalg.norm(updates, axis=1, keepdims=True))
    assert plain.model.numpy() == pytest.approx(by_hand, abs=1e-12)


def test_two_clients_count_alike_whatever_their_lengths():
    for seed in range(10):
        first, second = random_updates(seed, 2)
        state = told(FedMGDAPlus(epsilon=1.0), [1e3 * first, 1e-3 * second])
        assert state.weights == pytest.approx((0.5, 0.5), abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_the_step_descends_for_everyone(seed):
    """d·ḡ_i ≥ ‖d‖² − 1e-8."""
    updates = random_updates(seed, 12, 5)
    directions = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    step = told(FedMGDAPlus(epsilon=1.0), updates).model.numpy()
    assert (directions @ step).min() >= step @ step - 1e-8


def test_a_factor_on_one_clients_update_changes_fedmgda_plus_nowhere_and_fedavg_much():
    updates = random_updates(1)
    inflated = updates.copy()
    inflated[2] *= 1e4
    for algorithm in (FedMGDAPlus(), MGDAProx(), FedAvgN()):
        before, after = (told(algorithm, rows).model for rows in (updates, inflated))
        assert torch.allclose(before, after, atol=1e-7)
    averaged = [told(FedAvg(weighting="equal"), rows).model for rows in (updates, inflated)]
    assert (averaged[0] - averaged[1]).norm() > 1e3


def test_fedmgda_takes_the_updates_as_they_are():
    """Orthogonal updates of lengths 1 and 2: λ ∝ 1/‖g‖²."""
    state = told(FedMGDA(server_lr=2.0), [[1.0, 0.0], [0.0, 2.0]])
    assert state.weights == pytest.approx((0.8, 0.2), abs=1e-9)
    assert state.model.tolist() == pytest.approx([1.6, 0.8], abs=1e-8)


@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_fedmgda_with_epsilon_zero_is_fedavg(weighting):
    updates, sizes = random_updates(5), [1, 2, 3, 4, 5, 6]
    bound = told(FedMGDA(epsilon=0.0, weighting=weighting), updates, sizes)
    assert torch.allclose(bound.model, told(FedAvg(weighting=weighting), updates, sizes).model, atol=1e-12)
    free = told(FedMGDA(weighting=weighting), updates, sizes)
    assert (bound.model - free.model).norm() > 1e-2


def test_weights_stay_within_epsilon_of_the_shares():
    sizes = [10, 1, 1, 1, 1, 6]
    state = told(FedMGDAPlus(epsilon=0.05, weighting="size"), random_updates(2), sizes)
    away = state.weights.numpy() - np.array(sizes) / 20
    assert np.abs(away).max() == pytest.approx(0.05, abs=1e-7)


@pytest.mark.parametrize("algorithm", [FedMGDA(), FedMGDAPlus(epsilon=1.0), FedMGDAPlus(), MGDAProx(), FedAvgN()])
def test_clients_at_rest_are_no_accident(algorithm):
    nobody_moved = told(algorithm, np.zeros((3, 4)))
    assert not nobody_moved.model.any()
    assert nobody_moved.weights.numpy() == pytest.approx([1 / 3] * 3)
    one_at_rest = told(algorithm, [[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0]])
    assert one_at_rest.model.isfinite().all()
    if algorithm.name == "fedmgda" or getattr(algorithm, "epsilon", 0) == 1:
        assert one_at_rest.model.norm() <= 1e-7, "the point is Pareto stationary"


@pytest.mark.parametrize("length", [1e-30, 1e-12, 1e12])
def test_single_precision_at_any_scale(length):
    updates = torch.as_tensor(random_updates(3)).float()
    like_before = told(FedMGDAPlus(epsilon=0.2), updates)
    scaled = told(FedMGDAPlus(epsilon=0.2), updates * length)
    assert torch.allclose(scaled.model, like_before.model, atol=1e-5)


def test_the_step_size_falls_as_in_the_published_code():
    """η_t = η β^⌊t/100⌋ with β = decay^(100/T)."""
    algorithm = FedMGDAPlus(server_lr=1.5, decay=0.1)
    setting = replace(setting_of(range(2), Layout.of({"weight": (2,)})), rounds=400)
    beta = 0.1 ** (100 / 400)
    for t, expected in ((0, 1.5), (99, 1.5), (100, 1.5 * beta), (250, 1.5 * beta**2), (399, 1.5 * beta**3)):
        assert algorithm.step_size(replace(algorithm.begin(setting), round=t)) == pytest.approx(expected)


def test_absent_clients_have_no_weight():
    algorithm = FedMGDAPlus()
    state = algorithm.begin(setting_of([3, 5, 9], Layout.of({"weight": (2,)})))
    replies = Replies(np.array([3, 9]), {"model": torch.tensor([[1.0, 3.0], [1.0, 9.0]]).double()})
    weights = algorithm.describe(algorithm.tell(state, replies))["weights"]
    assert weights[1] == 0
    assert sum(weights) == pytest.approx(1)


# -- on the convex problem -----------------------------------------------------------------------------------------


def losses(problem, federation, model):
    """Each client's own objective, Σ_j w_ij ½‖θ − c_j − δ_i‖²."""
    centres = problem.centres() + problem.shifts(len(federation.ids), federation.seed)[:, None]
    return (torch.as_tensor(federation.preferences) * 0.5 * (model - centres).square().sum(-1)).sum(-1).numpy()


def shares_improved(algorithm, participation=1.0, clients=20):
    """Round by round."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, clients, 0, "dirichlet")
    done = trial(
        algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=60, participation=participation,
        chunk=clients,
    )  # fmt: skip
    return np.array(
        [
            share_improved(
                *(losses(problem, federation, state.model)[participants(before)] for state in (before, after))
            )
            for before, after in pairwise(done.states)
        ]
    )


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("name", ["fedmgda-plus", "mgda-prox"])
def test_nobody_loses_with_full_batches_and_a_falling_step(name, participation):
    decaying = {"epsilon": 1.0, "server_lr": 0.1, "decay": 1 / 40, "decay_every": 1}
    ours = shares_improved(make_algorithm(name, decaying), participation)
    assert ours.mean() >= 0.99
    assert shares_improved(FedAvg(), participation).mean() < 0.85


def test_fedmgda_comes_to_rest_at_a_pareto_stationary_point():
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 7, 0, "dirichlet")
    done = trial(FedMGDA(server_lr=5.0), problem, federation=federation, learner=FULL_BATCH, rounds=40)
    steps = [float((after.model - before.model).norm()) for before, after in pairwise(done.states)]
    assert steps[0] > 0.05
    assert steps[-1] < 1e-6


# -- after other algorithms ----------------------------------------------------------------------------------------


def test_mgda_prox_without_its_term_is_fedmgda_plus_and_with_it_is_not():
    problem = Convex()
    plus = trial(FedMGDAPlus(), problem).models
    assert largest_difference(plus, trial(MGDAProx(mu=0.0), problem).models) == 0
    assert largest_difference(plus, trial(MGDAProx(mu=5.0), problem).models) > 1e-6


def test_it_goes_before_any_algorithm_that_averages():
    """With fixed weights and without normalisation it gives that algorithm's own models."""

    @dataclass(frozen=True)
    class Plain(FedAvgN, FedProx):
        normalises = False

    problem = Convex()
    own = trial(FedProx(mu=2.0), problem).models
    assert largest_difference(own, trial(Plain(mu=2.0, weighting="size"), problem).models) <= 1e-12


# -- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("fedmgda-plus", {"epsilon": 1.2}, "epsilon is 1.2; it is at least 0 and at most 1"),
        ("fedmgda-plus", {"server_lr": 0.0}, "server_lr is 0; it is above 0"),
        ("fedavg-n", {"decay": 0.0}, "decay is 0; it is above 0 and at most 1"),
        ("fedmgda", {"decay_every": 0}, "decay_every is 0; it is at least 1"),
        ("fedmgda", {"epsilon": -1.0}, "epsilon is -1; it is at least 0 and at most 1"),
        ("mgda-prox", {"mu": -1.0}, "mu is -1; it is at least 0"),
        ("mgda-prox", {"epsilon": -0.1}, "epsilon is -0.1; it is at least 0 and at most 1"),
    ],
)
def test_wrong_parameters_are_refused_by_name(name, parameters, message):
    with pytest.raises(UserError, match=message):
        make_algorithm(name, parameters)


@pytest.mark.parametrize("name", ["fedmgda", "fedmgda-plus", "fedavg-n", "mgda-prox"])
def test_noise_fits_single_updates_but_no_mean(name):
    protected(make_algorithm(name), Privacy(kind="local"))
    with pytest.raises(UserError, match="kind=local does"):
        protected(make_algorithm(name), Privacy(kind="central"))
