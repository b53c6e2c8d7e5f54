"""FedAMP and MOCHA, which draw clients towards each other, against closed forms and plain loops over clients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from personal_models import (
    CLIENTS,
    DIFFERENT,
    FULL_BATCH,
    NETWORK,
    SEED,
    descend,
    distance,
    optima,
    rows,
)

from fedpareto.algorithms.personal.fedamp import FedAMP, squared_distances
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.personal.mocha import MOCHA, learned_relation, mean_relation
from fedpareto.contract.federation import Federation
from fedpareto.testing.conformance import largest_difference, trial

# -- FedAMP --------------------------------------------------------------------------------------------------------


def random_models(clients=5, size=12, seed=0):
    return torch.randn(clients, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attention_by_hand():
    """ξ_ij = α exp(−‖θ_i − θ_j‖² / σ) / σ off the diagonal, the rest on it."""
    models, sigma, step = random_models().numpy(), 30.0, 2.0
    expected = np.zeros((5, 5))
    for i in range(5):
        for j in set(range(5)) - {i}:
            expected[i, j] = step * np.exp(-((models[i] - models[j]) ** 2).sum() / sigma) / sigma
        expected[i, i] = 1 - expected[i].sum()
    assert expected.min() > 0
    found = FedAMP(sigma=sigma, cloud_step=step).attention(torch.as_tensor(models)).numpy()
    assert distance(found, expected) <= 1e-12


@pytest.mark.parametrize("sigma", [1e-320, 1e-9, 0.1, 1.0, 100.0, 1e300])
@pytest.mark.parametrize("distances", ["absolute", "relative"])
def test_attention_is_always_a_mixture(sigma, distances):
    for step, scale in product((1e-6, 1.0, 1e9), (0.0, 1e-3, 1.0, 1e6)):
        weights = FedAMP(sigma=sigma, cloud_step=step, distances=distances).attention(scale * random_models())
        assert torch.allclose(weights.sum(dim=1), torch.ones(5).double(), atol=1e-12)
        assert float(weights.min()) >= 0
        assert float(weights.diagonal().min()) >= 1 / 5 - 1e-12


def test_distances_within_groups_that_are_far_apart_are_exact():
    """In single precision the products of two distant groups would drown what is between neighbours."""
    stream = torch.Generator().manual_seed(0)
    near = 1e-4 * torch.randn(2, 100_000, generator=stream)
    models = torch.cat([near + 1, near - 1])
    expected = (models[0].double() - models[1].double()).square().sum()
    assert float(squared_distances(models)[0, 1]) == pytest.approx(float(expected), rel=1e-3)


def test_a_narrow_attention_sees_nobody_and_a_wide_one_everybody():
    models = random_models()
    assert torch.allclose(FedAMP(sigma=1e-3).attention(models), torch.eye(5).double())
    wide = FedAMP(sigma=1e9, cloud_step=1e12)
    assert torch.allclose(wide.attention(models), torch.full((5, 5), 0.2).double())
    assert torch.allclose(wide.pulls(models)[1], models.mean(dim=0).expand(5, -1))
    assert torch.equal(wide.attention(models[:1]), torch.ones(1, 1).double())


def test_attention_to_relative_distances_does_not_know_the_scale_of_models():
    algorithm = FedAMP(distances="relative")
    assert torch.allclose(algorithm.attention(random_models()), algorithm.attention(1e4 * random_models()))
    assert not torch.allclose(FedAMP().attention(random_models()), FedAMP().attention(1e-2 * random_models()))


def test_distances_survive_what_all_models_have_in_common():
    models = random_models().float()
    exact = torch.cdist(models.double(), models.double()).square()
    assert torch.allclose(squared_distances(models + 1000), exact, rtol=1e-3, atol=1e-2)


def test_one_stack_of_fedamp_equals_a_plain_loop_over_clients():
    sigma, step, strength, rounds = 4.0, 0.5, 0.4, 4
    own = np.zeros((CLIENTS, 8))
    for _ in range(rounds):
        before = own.copy()
        for i, optimum in enumerate(optima()):
            cloud, rest = np.zeros(8), 1.0
            for j in set(range(CLIENTS)) - {i}:
                weight = step * np.exp(-((before[i] - before[j]) ** 2).sum() / sigma) / sigma
                cloud, rest = cloud + weight * before[j], rest - weight
            assert rest > 1 / CLIENTS
            own[i] = descend(before[i], optimum, strength / step, cloud + rest * before[i])
    algorithm = FedAMP(sigma=sigma, cloud_step=step, strength=strength)
    done = trial(algorithm, DIFFERENT, learner=FULL_BATCH, rounds=rounds)
    assert distance(rows(done.models), own) <= 1e-12


# -- MOCHA --------------------------------------------------------------------------------------------------------


def regulariser(relation, models):
    return torch.trace(models.T @ relation @ models)


@pytest.mark.parametrize("relation", ["mean", "learned"])
def test_the_pull_is_the_gradient_of_the_regulariser(relation):
    """λ tr(W Ω Wᵀ) by autograd, with Ω fixed; a client's own model moves, the others stand still."""
    models = random_models()
    algorithm = MOCHA(strength=0.3, relation=relation)
    matrix = mean_relation(models) if relation == "mean" else learned_relation(models, algorithm.ridge)
    strengths, towards = algorithm.pulls(models)
    for i in range(5):
        elsewhere = models.clone()
        elsewhere[i] += 0.7
        leaf = elsewhere.requires_grad_()
        (gradient,) = torch.autograd.grad(0.3 * regulariser(matrix, leaf), leaf)
        assert torch.allclose(strengths[i] * (leaf[i].detach() - towards[i]), gradient[i], atol=1e-10)


def test_the_mean_relation_measures_distances_to_the_mean():
    models = random_models()
    expected = (models - models.mean(dim=0)).square().sum()
    assert float(regulariser(mean_relation(models), models)) == pytest.approx(float(expected))


def test_a_learned_relation_ties_clients_that_are_alike():
    """Two pairs of models at right angles; equal models give the mean relation."""
    first, second = torch.eye(12, dtype=torch.float64)[:2]
    relation = learned_relation(torch.stack([first, first, second, second]), 0.01)
    assert relation[0, 1] < -0.1
    assert abs(float(relation[0, 2])) <= 1e-9
    assert float(relation.trace()) == pytest.approx(3)
    same = first.expand(4, -1)
    assert torch.allclose(learned_relation(same, 1e-12), mean_relation(same), atol=1e-5)


def test_the_learned_relation_is_the_best_of_its_kind():
    """No other Ω with as large a tr Ω⁻¹ makes the regulariser smaller, but for the ridge."""
    models, stream = random_models(), torch.Generator().manual_seed(1)
    best = learned_relation(models, 1e-12)
    room = torch.trace(torch.linalg.inv(best))
    for _ in range(20):
        change = 0.1 * torch.randn(5, 5, generator=stream, dtype=torch.float64)
        inverse = (torch.eye(5) + change) @ torch.linalg.inv(best) @ (torch.eye(5) + change).T
        other = torch.linalg.inv(inverse * (room / torch.trace(inverse)))
        assert regulariser(other, models) >= regulariser(best, models) - 1e-9


@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_mocha_solves_the_coupled_problem(strength):
    """Σ_i ½‖θ_i − optimum_i‖² + λ tr(W Ω Wᵀ) is least where (I + 2λΩ) W = optima."""
    done = trial(MOCHA(strength=strength), DIFFERENT, learner=FULL_BATCH, rounds=60)
    relation = mean_relation(torch.zeros(CLIENTS, 1)).numpy()
    expected = np.linalg.solve(np.eye(CLIENTS) + 2 * strength * relation, optima())
    assert distance(rows(done.models), expected) <= 1e-5


def test_a_federation_of_one_is_drawn_nowhere():
    federation = Federation.create(DIFFERENT, 1, SEED, "dirichlet")
    local = trial(Local(), DIFFERENT, federation=federation).models
    for relation in ("mean", "learned"):
        done = trial(MOCHA(relation=relation), DIFFERENT, federation=federation)
        assert largest_difference(done.models, local) <= 1e-12


@pytest.mark.parametrize("algorithm", [FedAMP(strength=0.0), MOCHA(strength=0.0)], ids=["fedamp", "mocha"])
def test_without_strength_everyone_learns_alone(algorithm):
    for problem in (DIFFERENT, NETWORK):
        done = trial(algorithm, problem, participation=0.6)
        assert largest_difference(done.models, trial(Local(), problem, participation=0.6).models) == 0
