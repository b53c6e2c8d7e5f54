"""FCFL, FedMC+, adaptive FedAdam and FedMDFG, for whom clients are objectives, against their limits and plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from personal_models import CLIENTS, DIFFERENT, FULL_BATCH, LR, SEED, descend, distance, optima
from scipy.optimize import minimize
from small_problems import setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.common_descent.fedmc_plus import FedMCPlus
from fedpareto.algorithms.common_descent.fedmdfg import FedMDFG, fair_weights, inequality
from fedpareto.algorithms.fairness.adafedadam import AdaFedAdam
from fedpareto.algorithms.fairness.fcfl import FCFL
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.moo.conflict_averse import conflict_averse_weights
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

EQUAL = FedAvg(weighting="equal")
MODELS = np.array([[1.0, 2.0, 0.0], [-1.0, 0.5, 0.3], [0.5, 3.0, -0.2], [0.1, -1.5, 1.0]])
LOSSES = np.array([0.5, 2.0, 1.0, 1.9])


def told(algorithm, round_=0, models=MODELS):
    """The model after four replies, from a model of zeros; updates are the replies themselves."""
    state = algorithm.begin(setting_of(range(len(models)), Layout.of({"all": (3,)})))
    tensors = {"model": torch.tensor(models), "loss_before": torch.tensor(LOSSES[: len(models)])}
    replies = Replies(np.arange(len(models)), tensors, rounds=np.ones(len(models)))
    return algorithm.tell(replace(state, round=round_), replies)


# -- FCFL ----------------------------------------------------------------------------------------------------------


def test_the_first_stage_is_fedavg_if_all_losses_count_alike_and_the_worst_client_if_only_that_does():
    done = trial(FCFL(first_stage=1.0, delta=1e9), DIFFERENT, participation=0.6)
    assert largest_difference(done.models, trial(EQUAL, DIFFERENT, participation=0.6).models) <= 1e-6
    assert told(FCFL(delta=1e-3)).model.tolist() == MODELS[1].tolist()
    weights = np.exp(LOSSES / 0.05)
    by_decay = told(FCFL(delta=0.1, delta_decay=0.5), round_=1).model.numpy()
    assert by_decay == pytest.approx(weights @ MODELS / weights.sum())


def test_the_second_stage_is_the_best_for_the_mean_of_all_mixtures_that_harm_nobody():
    found = told(FCFL(first_stage=0.0)).model.numpy()
    assert (MODELS @ found).min() >= -1e-9
    mixtures = np.random.default_rng(0).dirichlet(np.full(4, 0.5), 20_000) @ MODELS
    harmless = mixtures[(MODELS @ mixtures.T).min(0) >= 0]
    assert len(harmless) > 100
    gains = harmless @ MODELS.mean(0)
    assert gains.max() <= MODELS.mean(0) @ found + 1e-9
    assert gains.max() >= 0.95 * MODELS.mean(0) @ found


def test_the_stages_follow_one_another():
    assert torch.equal(told(FCFL(), round_=4).model, told(FCFL(first_stage=1.0), round_=4).model)
    assert torch.equal(told(FCFL(), round_=5).model, told(FCFL(first_stage=0.0), round_=5).model)


# -- FedMC+ --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "c"), [(3, 0.5), (6, 0.9), (5, 0.2), (2, 0.6), (4, 0.02)])
def test_its_direction_is_the_one_near_the_mean_that_is_best_for_the_worst(n, c):
    stream = np.random.default_rng(n)
    g, s = stream.standard_normal((n, 3)) * stream.uniform(0.1, 3, (n, 1)), stream.dirichlet(np.ones(n))
    mean = s @ g
    radius = c * np.linalg.norm(mean)
    found = mean + conflict_averse_weights(g @ g.T, s, c) @ g
    limits = [
        {"type": "ineq", "fun": lambda x: g @ x[:-1] - x[-1]},
        {"type": "ineq", "fun": lambda x: radius**2 - ((x[:-1] - mean) ** 2).sum()},
    ]
    start = np.append(mean, (g @ mean).min())
    best = minimize(lambda x: -x[-1], start, constraints=limits, options={"maxiter": 500, "ftol": 1e-13})
    assert np.linalg.norm(found - mean) == pytest.approx(radius)
    assert (g @ found).min() == pytest.approx(-best.fun, abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_where_all_agree_there_is_only_their_own_direction(n):
    """d = (1 + c) g_0, whatever is rounded."""
    stream = np.random.default_rng(n)
    for c in stream.uniform(0.05, 0.95, 20):
        g = np.tile(stream.standard_normal(5), (n, 1))
        assert conflict_averse_weights(g @ g.T, stream.dirichlet(np.ones(n)), c) @ g == pytest.approx(
            c * g[0], rel=1e-6
        )


def test_a_long_update_against_all_others_is_all_that_is_added_where_it_is_the_worst_off():
    """d = g_0 + c ‖g_0‖ g_4 / ‖g_4‖: nobody else has less of it."""
    g, shares = np.array([[1.0, 0.1], [1.0, -0.1], [0.9, 0.0], [-20.0, 1.0]]), np.array([0.33, 0.33, 0.33, 0.01])
    radius = 0.5 * np.linalg.norm(shares @ g)
    found = conflict_averse_weights(g @ g.T, shares, 0.5)
    assert found == pytest.approx([0, 0, 0, radius / np.linalg.norm(g[3])], abs=1e-9)
    assert (g @ ((shares + found) @ g)).argmin() == 3


def test_without_room_it_is_fedavg_and_an_update_of_nobody_moves_nothing():
    done = trial(FedMCPlus(c=0.0), DIFFERENT, participation=0.6)
    assert largest_difference(done.models, trial(EQUAL, DIFFERENT, participation=0.6).models) <= 1e-12
    assert told(FedMCPlus(), models=np.zeros((3, 3))).model.tolist() == [0, 0, 0]


def test_the_mean_descends_though_one_is_sacrificed():
    """Nine go east, one goes west: every direction near the mean is against the one."""
    east, west = [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]
    algorithm = FedMCPlus(c=0.9)
    state = algorithm.begin(setting_of(range(10), Layout.of({"all": (3,)})))
    replies = Replies(np.arange(10), {"model": torch.tensor([east] * 9 + [west]).double()}, rounds=np.ones(10))
    assert algorithm.tell(state, replies).model.numpy() == pytest.approx([0.8 * (1 - 0.9), 0, 0], abs=1e-9)


def test_a_window_averages_what_was_added_and_c_falls():
    algorithm = FedMCPlus(c=0.8, c_decay=0.5, window=2)
    mean, corrections = MODELS.mean(0), []
    for round_ in range(2):
        single = told(FedMCPlus(c=0.8 * 0.5**round_)).model.numpy()
        corrections.append(single - mean)
    done = trial(algorithm, DIFFERENT, rounds=3)
    assert done.states[-1].corrections.shape[0] == 2
    first = told(algorithm)
    assert first.model.numpy() == pytest.approx(mean + corrections[0])
    replies = Replies(np.arange(4), {"model": torch.tensor(MODELS) + first.model}, rounds=np.ones(4))
    second = algorithm.tell(first, replies).model - first.model
    assert second.numpy() == pytest.approx(mean + (corrections[0] + corrections[1]) / 2)


# -- adaptive FedAdam ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_adaptive_fedadam_equals_a_plain_loop(alpha):
    preferences = Federation.create(DIFFERENT, CLIENTS, SEED, "dirichlet").preferences
    centres = DIFFERENT.centres().numpy() + DIFFERENT.shifts(CLIENTS, SEED).numpy()[:, None]
    theta, first, second, kept, begun = np.zeros(8), 0.0, 0.0, np.ones(2), None
    for _ in range(4):
        losses = (preferences * 0.5 * ((theta - centres) ** 2).sum(-1)).sum(1)
        begun = losses if begun is None else begun
        weights = (losses / begun) ** alpha / ((losses / begun) ** alpha).sum()
        updates = np.array([theta - descend(theta, optimum) for optimum in optima()])
        reach = np.linalg.norm(updates, axis=1) / np.linalg.norm(theta - optima(), axis=1)
        certainty = weights @ (np.log(reach / LR) + 1)
        gradient = weights / reach @ updates
        betas = np.array([0.9, 0.99]) ** certainty
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        kept = kept * betas
        hat, hat2 = first / (1 - kept[0]), second / (1 - kept[1])
        theta = theta - certainty * 0.05 * hat / (np.sqrt(hat2) + 1e-3)
    algorithm = AdaFedAdam("equal", alpha=alpha, server_lr=0.05, beta2=0.99, tau=1e-3)
    done = trial(algorithm, DIFFERENT, learner=FULL_BATCH, rounds=4)
    assert distance(done.states[-1].model.numpy(), theta) <= 1e-9
    assert done.states[-1].certainty == pytest.approx(certainty)


def test_one_local_step_is_certain_and_its_first_step_is_adams():
    """C = 1 and U is the gradient: every parameter moves by η against the sign of the mean gradient."""
    done = trial(AdaFedAdam("equal"), DIFFERENT, learner=replace(FULL_BATCH, epochs=1), rounds=1)
    assert done.states[-1].certainty == pytest.approx(1)
    assert done.states[-1].model.numpy() == pytest.approx(0.03 * np.sign(optima().mean(0)), abs=1e-6)


@pytest.mark.parametrize("scalarisation", ["tchebycheff", "smooth-tchebycheff"])
def test_one_local_step_is_certain_however_a_client_scalarises_its_losses(scalarisation):
    learner = replace(FULL_BATCH, epochs=1, scalarisation=scalarisation)
    done = trial(AdaFedAdam("equal"), DIFFERENT, learner=learner, rounds=2)
    assert [state.certainty for state in done.states[1:]] == pytest.approx([1, 1])


def test_who_has_no_gradient_or_did_not_move_is_certain_and_adds_nothing():
    """The first step: −C η g / (|g| + τ), with g and C of those who moved along a gradient, by hand."""
    algorithm = AdaFedAdam("equal", server_lr=0.05, tau=0.5)
    state = algorithm.begin(setting_of(range(4), Layout.of({"all": (3,)})))
    slope, models = np.array([0.0, 2.0, 1.0, 0.5]), MODELS.copy()
    models[2] = 0
    tensors = {"model": models, "loss_before": LOSSES, "slope": slope, "lr": np.full(4, 0.3)}
    replies = Replies(np.arange(4), {name: torch.tensor(one) for name, one in tensors.items()}, rounds=np.ones(4))
    reach = np.array([1.0, *(np.linalg.norm(models[1:], axis=1) / slope[1:])])
    certainty = (2 + sum(np.log(reach[i] / 0.3) + 1 for i in (1, 3))) / 4
    gradient = -sum(models[i] / reach[i] for i in (1, 3)) / 4
    found = algorithm.tell(state, replies)
    assert found.certainty == pytest.approx(certainty)
    assert found.model.numpy() == pytest.approx(-certainty * 0.05 * gradient / (abs(gradient) + 0.5))


# -- FedMDFG -------------------------------------------------------------------------------------------------------


def test_its_direction_descends_for_all_and_turns_losses_towards_equal_ones():
    stream = np.random.default_rng(1)
    for n in (2, 5, 9):
        g, losses = stream.standard_normal((n, 12)), stream.uniform(0.1, 3, n)
        for fair in (False, True):
            d = fair_weights(g @ g.T, losses, fair) @ g
            assert (g @ d).min() > 0
            assert np.linalg.norm(d) == pytest.approx(np.linalg.norm(g.mean(0)))
        assert inequality(losses - 1e-6 * g @ d) < inequality(losses)
    assert inequality(np.full(5, 0.3)) == pytest.approx(0, abs=1e-5)
    assert inequality(np.array([1.0, 0.0])) == pytest.approx(45)


def test_the_longest_step_that_is_good_for_all_is_taken():
    """Along a line with optima at 1, 2 and 4: a step to x is good for all up to x = 2 (from 0 the nearest mirrors)."""
    algorithm = FedMDFG(angle=90.0, halvings=3)
    state = algorithm.begin(setting_of(range(3), Layout.of({"all": (1,)})))
    optima_ = torch.tensor([1.0, 2.0, 4.0]).double()
    tensors = {"model": torch.full((3, 1), 1.0).double(), "loss_before": 0.5 * optima_**2}
    state = algorithm.tell(state, Replies(np.arange(3), tensors, rounds=np.ones(3)))
    assert (state.searching, state.round, state.direction.tolist()) == (True, 0, [pytest.approx(1.0)])

    def after(places):
        return 0.5 * (torch.tensor(places).double() - optima_[:, None]) ** 2

    def stepped(clients=range(3)):
        found = after(algorithm.steps)[list(clients)]
        return algorithm.tell(
            state, Replies(np.array(clients), {"losses": found}, "search", rounds=np.ones(len(clients)))
        )

    assert stepped().step == 1, "2 is where the first client is as well off as before, which is not enough"
    assert stepped((1, 2)).step == 1, "not longer than server_lr without all clients"
    assert stepped().model.tolist() == [pytest.approx(1.0)]


def test_every_round_of_fedmdfg_is_better_for_every_client():
    done = trial(FedMDFG(angle=90.0), DIFFERENT, learner=FULL_BATCH, rounds=4)
    before = None
    for state in done.states[::2]:
        losses = ((state.model.numpy() - optima()) ** 2).sum(1)
        assert before is None or (losses <= before + 1e-12).all()
        before = losses


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        *((FCFL, {name: 2.0}) for name in ("first_stage", "delta_decay")),
        *((FedMCPlus, {name: value}) for name, value in (("c", 1.0), ("c_decay", 0.0), ("window", 0))),
        *((AdaFedAdam, {name: -1.0}) for name in ("alpha", "beta", "tau")),
        (FCFL, {"delta": 0.0}),
        *((FedMDFG, {name: value}) for name, value in (("angle", 91.0), ("server_lr", 0.0), ("halvings", -1))),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(make, wrong):
    with pytest.raises(UserError, match=next(iter(wrong))) as refused:
        make(**wrong)
    assert "\n" not in str(refused.value)
