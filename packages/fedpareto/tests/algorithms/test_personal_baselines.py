"""Ditto, APFL and FedRep against closed forms, plain loops over clients, and their limits; what holds for all five
personal baselines, with FedAMP and MOCHA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from personal_models import (
    CLIENTS,
    DIFFERENT,
    FULL_BATCH,
    LR,
    NETWORK,
    SEED,
    STEPS,
    descend,
    distance,
    kept,
    optima,
    rows,
    sizes,
)

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.common_descent.fedmgda_plus import FedMGDAPlus
from fedpareto.algorithms.personal.apfl import APFL
from fedpareto.algorithms.personal.ditto import Ditto
from fedpareto.algorithms.personal.fedrep import FedRep
from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.contract.federation import Federation
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm, protected
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.spec.spec import check_losses
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rng import Addresses
from fedpareto.testing.conformance import largest_difference, trial

NAMES = ["ditto", "apfl", "fedrep", "fedamp", "mocha"]


# -- Ditto ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [DIFFERENT, NETWORK], ids=["convex", "network"])
def test_ditto_without_strength_is_local_training_beside_fedavg(problem):
    done = trial(Ditto(strength=0.0), problem, participation=0.6)
    assert largest_difference(done.models, trial(Local(), problem, participation=0.6).models) == 0
    fedavg = trial(FedAvg(), problem, participation=0.6)
    assert torch.equal(done.states[-1].model, fedavg.states[-1].model)


def test_dittos_global_model_is_fedavgs_whatever_the_strength():
    done, fedavg = trial(Ditto(strength=3.0), DIFFERENT), trial(FedAvg(), DIFFERENT)
    assert torch.equal(done.states[-1].model, fedavg.states[-1].model)


def test_one_stack_of_ditto_equals_a_plain_loop_over_clients():
    strength, rounds = 0.7, 4
    shares = sizes() / sizes().sum()
    shared, own = np.zeros(8), np.zeros((CLIENTS, 8))
    for _ in range(rounds):
        for i, optimum in enumerate(optima()):
            own[i] = descend(own[i], optimum, strength, shared)
        shared = sum(share * descend(shared, optimum) for share, optimum in zip(shares, optima(), strict=True))
    done = trial(Ditto(strength=strength), DIFFERENT, learner=FULL_BATCH, rounds=rounds)
    assert distance(rows(done.models), own) <= 1e-12
    assert distance(done.states[-1].model.numpy(), shared) <= 1e-12


@pytest.mark.parametrize("strength", [0.3, 4.0])
def test_ditto_ends_between_a_clients_optimum_and_the_global_model(strength):
    """∇f(v) + λ(v − θ) = 0 where v = (optimum + λθ) / (1 + λ)."""
    done = trial(Ditto(strength=strength), DIFFERENT, learner=Supervised(lr=LR, batch_size=1000, epochs=20), rounds=10)
    shared = sizes() / sizes().sum() @ optima()
    assert distance(rows(done.models), (optima() + strength * shared) / (1 + strength)) <= 1e-6


def test_a_large_strength_keeps_a_clients_own_model_near_the_global_one():
    gaps = []
    for strength in (0.0, 1.0, 9.0):
        done = trial(Ditto(strength=strength), NETWORK, rounds=10, learner=Supervised(lr=LR, batch_size=8))
        gaps.append(np.linalg.norm(rows(done.models) - done.states[-1].model.numpy()))
    assert gaps[2] < 0.3 * gaps[0]
    assert gaps[2] < gaps[1] < gaps[0]


# -- APFL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [DIFFERENT, NETWORK], ids=["convex", "network"])
@pytest.mark.parametrize(("mixing", "limit"), [(0.0, FedAvg()), (1.0, Local())], ids=["fedavg", "local"])
def test_a_fixed_mixture_of_one_model_only_is_that_model(problem, mixing, limit):
    done = trial(APFL(mixing=mixing, mixing_lr=0.0), problem)
    assert largest_difference(done.models, trial(limit, problem).models) <= 1e-12
    assert distance(done.states[-1].model.numpy(), trial(FedAvg(), problem).states[-1].model.numpy()) <= 1e-12


def test_one_stack_of_apfl_equals_a_plain_loop_over_clients():
    """Every step moves θ_i down ∇f(θ_i) and v_i down α ∇f(v̄_i); α moves once, before the others."""
    rate, rounds = 0.2, 4
    shares = sizes() / sizes().sum()
    shared, own, alphas = np.zeros(8), np.zeros((CLIENTS, 8)), np.full(CLIENTS, 0.5)
    for _ in range(rounds):
        replies = np.zeros((CLIENTS, 8))
        for i, optimum in enumerate(optima()):
            theta, v = shared, own[i]
            slope = (v - theta) @ (alphas[i] * v + (1 - alphas[i]) * theta - optimum)
            alphas[i] = min(max(alphas[i] - rate * slope, 0.0), 1.0)
            for _ in range(STEPS):
                mixed = alphas[i] * v + (1 - alphas[i]) * theta
                theta, v = theta - LR * (theta - optimum), v - LR * alphas[i] * (mixed - optimum)
            replies[i], own[i] = theta, v
        shared = shares @ replies
    done = trial(APFL(mixing_lr=rate), DIFFERENT, learner=FULL_BATCH, rounds=rounds)
    assert distance(kept(done, "mixing")[:, 0], alphas) <= 1e-12
    assert np.ptp(alphas) > 0.01, "the clients' shares differ"
    assert distance(rows(done.models), alphas[:, None] * own + (1 - alphas[:, None]) * shared) <= 1e-12


@pytest.mark.parametrize("scalarisation", ["linear", "tchebycheff", "smooth-tchebycheff"])
def test_the_share_moves_down_the_slope_of_the_loss(scalarisation):
    """Against a finite difference of the client's own objective, which the learner's scalarisation makes."""
    learner = Supervised(lr=LR, batch_size=1000, scalarisation=scalarisation)
    before, after = (trial(APFL(mixing_lr=0.01), NETWORK, learner=learner, rounds=r) for r in (2, 3))
    shares = [torch.as_tensor(kept(done, "mixing")) for done in (before, after)]
    own, shared = torch.as_tensor(kept(before, "own")), before.states[-1].model
    stack = whole_stack(before)
    losses = [stack.loss((shares[0] + h) * own + (1 - shares[0] - h) * shared) for h in (1e-5, -1e-5)]
    slope = (losses[0] - losses[1]) / 2e-5
    moved = (shares[0] - shares[1])[:, 0] / 0.01
    assert float(slope.abs().max()) > 1e-4
    assert torch.allclose(moved, slope, rtol=1e-3, atol=1e-7)


def whole_stack(done):
    """All clients of a finished trial."""
    engine = done.engine
    addresses = Addresses.at(SEED, np.arange(CLIENTS), round=0)
    return Clients(
        problem=engine.problem,
        learner=engine.learner,
        splits=engine._splits,
        addresses=addresses,
        positions=np.arange(CLIENTS),
        preferences=engine._preferences,
    )


@pytest.mark.parametrize("rate", [0.0, 0.05, 1e6])
def test_shares_stay_between_0_and_1_and_only_a_step_size_moves_them(rate):
    shares = kept(trial(APFL(mixing_lr=rate), DIFFERENT), "mixing")
    assert shares.min() >= 0
    assert shares.max() <= 1
    assert bool((shares == 0.5).all()) == (rate == 0)


# -- FedRep --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [DIFFERENT, NETWORK], ids=["convex", "network"])
def test_fedrep_that_shares_all_layers_is_fedavg(problem):
    done = trial(FedRep(head_layers=0), problem)
    assert largest_difference(done.models, trial(FedAvg(), problem).models) == 0


@pytest.mark.parametrize("layers", [3, 9])
def test_fedrep_that_shares_no_layer_is_local_training(layers):
    learner = Supervised(lr=LR, batch_size=1000)
    done = trial(FedRep(head_layers=layers, head_epochs=1), NETWORK, learner=learner)
    assert largest_difference(done.models, trial(Local(), NETWORK, learner=learner).models) <= 1e-12
    assert done.states[-1].model.numel() == 0


def test_where_layers_do_not_meet_the_body_is_fedavgs_and_the_head_local():
    """The convex loss is a sum over parameters: no layer feels what another does."""
    done = trial(FedRep(head_layers=1, head_epochs=STEPS), DIFFERENT, learner=FULL_BATCH)
    fedavg, local = (rows(trial(one, DIFFERENT, learner=FULL_BATCH).models) for one in (FedAvg(), Local()))
    assert distance(rows(done.models), np.concatenate([fedavg[:, :4], local[:, 4:]], axis=1)) <= 1e-12


def test_the_head_comes_first_and_each_part_stands_still_while_the_other_learns():
    """One client, one round, by plain autograd over whole models."""
    learner = Supervised(lr=LR, batch_size=1000)
    done = trial(FedRep(head_layers=2, head_epochs=3), NETWORK, learner=learner, rounds=1)
    body = NETWORK.layout.cut(2)[0].size
    stack, model = whole_stack(done), done.states[0].setting.initial.expand(CLIENTS, -1).clone()
    for moving in [slice(body, None)] * 3 + [slice(body)]:
        theta = model.clone().requires_grad_()
        losses = NETWORK.losses(NETWORK.layout.unflatten(theta), stack.all_rows("train"))
        (gradient,) = torch.autograd.grad((losses * stack.preferences).sum(), theta)
        model[:, moving] -= LR * gradient[:, moving]
    replies = done.outcomes[0].replies["model"]
    assert torch.allclose(replies, model[:, :body], atol=1e-12)
    assert distance(kept(done, "head"), model[:, body:].numpy()) <= 1e-12


def test_only_bodies_are_sent():
    done = trial(FedRep(head_epochs=1), NETWORK, rounds=2)
    body, head = NETWORK.layout.cut(1)
    assert done.outcomes[-1].replies["model"].shape == (CLIENTS, body.size)
    for client, model in done.models.items():
        assert torch.equal(model[: body.size], done.states[-1].model)
        assert torch.equal(model[body.size :], done.engine.private[0, 0, client]["head"])
    assert head.size > 0


def test_a_layout_that_is_cut_at_its_end_keeps_everything_in_front():
    layout = Layout.of({"0.weight": (3, 2), "0.bias": (2,)})
    assert layout.cut(0) == (layout, Layout.of({}))


# -- all of them ---------------------------------------------------------------------------------------------------


REGULARISED = {
    "ditto": ({}, {"strength": 0.0}),
    "apfl": ({"mixing": 0.9}, {"mixing": 0.0}),
    "apfl's share": ({"mixing_lr": 1.0}, {"mixing_lr": 0.0}),
    "fedrep": ({"head_epochs": 1}, {"head_epochs": 0}),
    "fedamp": ({"sigma": 10.0}, {"sigma": 10.0, "strength": 0.0}),
    "fedamp's others": ({"sigma": 10.0}, {"sigma": 1e-9}),
    "mocha": ({}, {"strength": 0.0}),
    "mocha's learned relation": ({"relation": "learned"}, {}),
}


@pytest.mark.parametrize("case", REGULARISED)
@pytest.mark.parametrize("problem", [DIFFERENT, NETWORK], ids=["convex", "network"])
def test_every_regulariser_changes_the_result(case, problem):
    """In a published comparison several of these were cut off from the gradient."""
    name = case.split("'")[0]
    alive, dead = (trial(make_algorithm(name, one), problem, rounds=5).models for one in REGULARISED[case])
    assert largest_difference(alive, dead) > 1e-5


@pytest.mark.parametrize("base", [Ditto, APFL, FedRep], ids=lambda base: base.name)
def test_the_server_step_of_fedmgda_plus_goes_before_what_averages(base):
    @dataclass(frozen=True)
    class Joined(FedMGDAPlus, base):
        """Personal models beside a common direction of descent."""

    joined, plain = trial(Joined(weighting="equal"), NETWORK), trial(base(weighting="equal"), NETWORK)
    assert largest_difference(joined.models, plain.models) > 1e-4
    if base is not FedRep:
        assert torch.equal(joined.states[-1].model, trial(FedMGDAPlus(), NETWORK).states[-1].model)


@pytest.mark.parametrize("name", NAMES)
def test_absent_clients_keep_what_is_theirs(name):
    done = trial(make_algorithm(name), DIFFERENT, participation=0.4, rounds=1)
    present = set(done.outcomes[0].replies.clients.tolist())
    assert {client for _, _, client in done.engine.private} == present
    assert 0 < len(present) < CLIENTS


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ditto", {"strength": -1.0}, "strength is -1; it is at least 0"),
        ("ditto", {"strength": float("inf")}, "strength is inf"),
        ("apfl", {"mixing": 1.5}, "mixing is 1.5; it is at least 0 and at most 1"),
        ("apfl", {"mixing_lr": -0.1}, "mixing_lr is -0.1; it is at least 0"),
        ("fedrep", {"head_layers": -1}, "head_layers is -1; it is at least 0"),
        ("fedrep", {"head_epochs": -1}, "head_epochs is -1; it is at least 0"),
        ("fedamp", {"strength": float("nan")}, "strength is nan"),
        ("fedamp", {"sigma": 0.0}, "sigma is 0; it is above 0"),
        ("fedamp", {"cloud_step": 0.0}, "cloud_step is 0; it is above 0"),
        ("mocha", {"strength": -1.0}, "strength is -1; it is at least 0"),
        ("mocha", {"ridge": 0.0}, "ridge is 0; it is above 0"),
    ],
)
def test_wrong_parameters_are_refused_by_their_names(name, parameters, message):
    with pytest.raises(UserError, match=message):
        make_algorithm(name, parameters)


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedrep"])
def test_what_is_averaged_can_be_noised_in_the_mean(name):
    """The private parts stay with the clients, so only the shared model needs clip and noise."""
    private = protected(make_algorithm(name, {"weighting": "equal"}), Privacy(kind="central", noise=0.5, clip=0.1))
    done = trial(private, DIFFERENT, rounds=2)
    assert not any(outcome.failures for outcome in done.outcomes)
    with pytest.raises(UserError, match="noise on a mean protects none"):
        protected(make_algorithm("fedamp"), Privacy(kind="central"))


@pytest.mark.parametrize("name", NAMES)
def test_privately_fine_tuned_clients_use_what_is_their_own(name):
    """Without noise and with a clip that nobody reaches, the last round ends as it does without privacy."""
    parameters = {"weighting": "equal"} if name in ("ditto", "apfl", "fedrep") else {}
    plain = make_algorithm(f"{name}+ft", parameters)
    private = protected(plain, Privacy(kind="local", noise=0.0, clip=1e9))
    models = trial(private, NETWORK, rounds=3).models
    assert largest_difference(models, trial(plain, NETWORK, rounds=3).models) <= 1e-12


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedrep"])
def test_a_problem_without_rows_is_refused_in_words(name):
    problem, algorithm = DeepSeaTreasure(), make_algorithm(name)
    setting = Federation.create(problem, 2, SEED, "dirichlet").setting(problem, 1)
    state = {key: tensor[None] for key, tensor in algorithm.private_state(setting).items()}
    addresses = Addresses.at(SEED, np.zeros(1), round=1)
    clients = Clients(
        problem=problem,
        learner=problem.learner(),
        splits={},
        addresses=addresses,
        positions=np.arange(1),
        preferences=torch.full((1, 2), 0.5),
        state=state,
    )
    with pytest.raises(UserError, match=f"{name} needs a problem with losses on rows; DQN on 'deep-sea-treasure' has"):
        check_losses(algorithm, problem, problem.learner())  # Before anything is trained.
    with pytest.raises(UserError, match="losses on rows"):
        algorithm.train(clients, {"model": algorithm.begin(setting).model[None]})
