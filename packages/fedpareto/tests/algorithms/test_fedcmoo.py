"""FedCMOO and FedCMOO-Pref: weights, compression, bytes, and where they lead on the convex problem."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from small_problems import Labels, Twins
from test_fsmgda import FULL_BATCH, distance_to_pareto_set, goals_of

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.common_descent.fedcmoo import FedCMOO, FedCMOOPref
from fedpareto.algorithms.common_descent.fsmgda import FSMGDA
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.compression import near_square, restore
from fedpareto.moo.epo import adjustments
from fedpareto.moo.min_norm import projected_gradient
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import largest_difference, trial

EXACT = 10_000  # A rank that is cut down to the full one.


def bytes_of(replies):
    """Of the first client."""
    return sum(tensor[0].numel() * tensor.element_size() for tensor in replies.tensors.values())


# -- the round ---------------------------------------------------------------------------------------------------------


def test_a_round_has_two_exchanges_with_the_same_clients():
    done = trial(FedCMOO(), Convex(), participation=0.6, rounds=3)
    assert [outcome.replies.step for outcome in done.outcomes] == ["gradients", "train"] * 3
    assert [state.round for state in done.states] == [0, 0, 1, 1, 2, 2, 3]
    for first, second in zip(done.outcomes[::2], done.outcomes[1::2], strict=True):
        assert first.replies.clients.tolist() == second.replies.clients.tolist()


def test_a_round_by_hand():
    """Full batches, exact gradients: λ from K = (c_j + δ̄)·(c_k + δ̄), then w ← w + η lr Σ λ_j (c_j + δ̄)."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 4, 0, "dirichlet")
    algorithm = FedCMOO(rank=EXACT, server_lr=1.5)
    done = trial(algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=1, chunk=4)
    goals = goals_of(problem, federation)
    weights = projected_gradient((goals @ goals.T).numpy(), [0.5, 0.5], steps=1000, step_size=0.001)
    assert done.states[-1].weights == pytest.approx(tuple(weights), abs=1e-9)
    assert torch.allclose(done.models[0], 1.5 * 0.2 * torch.as_tensor(weights) @ goals, atol=1e-9)


def test_the_weights_start_from_those_of_the_last_round():
    problem = Convex(heterogeneity=0.3)
    done = trial(FedCMOO(rank=EXACT), problem, rounds=4)
    weights = [state.weights[0] for state in done.states[1::2]]
    slow = trial(FedCMOO(rank=EXACT, weight_steps=1, weight_lr=1e-9), problem, rounds=4)
    assert all(state.weights == pytest.approx((0.5, 0.5), abs=1e-6) for state in slow.states)
    assert len({round(weight, 6) for weight in weights}) == 4, "they move on from round to round"


def test_training_draws_the_same_batches_as_without_the_first_exchange():
    """With even weights, kept so, FedCMOO is FedAvg under even preferences, bit for bit in its batches."""
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 5, 0, "0.5,0.5")
    fedcmoo = trial(FedCMOO(weight_steps=1, weight_lr=1e-15), problem, federation=federation, chunk=5)
    fedavg = trial(FedAvg(weighting="equal"), problem, federation=federation, chunk=5)
    assert largest_difference(fedcmoo.models, fedavg.models) <= 1e-12


# -- identical objectives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goals", [2, 3])
@pytest.mark.parametrize(
    "algorithm",
    [FedCMOO(), FedCMOO(weight_lr=1.0), FedCMOOPref(), FedCMOOPref(preference=(0.9, 0.1), floor=0.0)],
    ids=["plain", "other weights", "pref", "pref, far from even"],
)
def test_with_identical_objectives_the_weights_do_not_matter(goals, algorithm):
    problem = Twins(goals=goals, heterogeneity=0.3)
    if isinstance(algorithm, FedCMOOPref) and algorithm.preference:
        algorithm = FedCMOOPref(preference=(0.9, 0.1, 0.0)[:goals], floor=0.0)
    done = trial(algorithm, problem)
    assert largest_difference(done.models, trial(FedAvg(weighting="equal"), problem).models) <= 1e-12


# -- compression -------------------------------------------------------------------------------------------------------


class Uncompressed(FedCMOO):
    """Sends the gradients as they are."""

    def gradients(self, clients, message):
        return {"jacobian": clients.gradients(message["model"])[1]}

    def reply_shapes(self, setting):
        return {"gradients": {"jacobian": (len(setting.objectives), setting.layout.size)}}


def mean_jacobian(replies, d, m):
    """`[m, d]`, from the clients' factors."""
    return restore(replies.sum_of_products("left", "right")[None] / len(replies), d, m)[0]


def gram_errors(goals, ranks, clients=3):
    """The relative error of the Gram matrix, and the bytes of one client's gradients, by rank."""
    problem = Labels(goals=goals)
    federation = Federation.create(problem, clients, 0)
    setting = federation.setting(problem, 1)

    def first_exchange(algorithm):
        options, choices = LocalOptions(precision="float64"), Choices(threads=1, chunk=clients)
        engine = LocalEngine(algorithm, problem, problem.learner(), [federation], [setting], options, choices=choices)
        return engine.run(algorithm.ask(algorithm.begin(engine.settings[0]))).replies

    mean = first_exchange(Uncompressed())["jacobian"].mean(dim=0)
    exact, errors, sizes = mean @ mean.T, [], []
    for rank in ranks:
        replies = first_exchange(FedCMOO(rank=rank))
        jacobian = mean_jacobian(replies, setting.layout.size, goals)
        errors.append(float((jacobian @ jacobian.T - exact).norm() / exact.norm()))
        sizes.append(bytes_of(replies))
    return errors, sizes


@pytest.mark.parametrize("goals", [2, 6])
def test_the_gram_estimate_converges_to_the_exact_one_as_the_rank_grows(goals):
    full = min(near_square(Labels(goals=goals).layout.size, goals))
    errors, sizes = gram_errors(goals, [1, 2, 4, 8, 16, 32, 64, full])
    assert sizes == sorted(sizes)
    assert all(after < before for before, after in pairwise(errors)), "more bytes, larger error"
    assert errors[0] > 0.5
    assert errors[-2] < 0.25
    assert errors[-1] < 1e-12


def test_the_exact_gram_is_that_of_the_mean_gradient():
    """Against gradients taken one client at a time by autograd, on the whole batch."""
    problem = Labels(goals=3, inputs=10, hidden=(8,), rows=20)
    federation = Federation.create(problem, 2, 0)
    algorithm = FedCMOO(rank=EXACT)
    engine = trial(
        algorithm, problem, federation=federation, rounds=1, chunk=2, learner=Supervised(batch_size=99)
    ).engine
    state = algorithm.begin(engine.settings[0])
    replies = engine.run(algorithm.ask(state)).replies
    found = mean_jacobian(replies, problem.layout.size, 3)
    mean = torch.zeros_like(found)
    for client in range(2):
        rows = federation.splits["train"].of_client(client)
        model = state.model.clone().requires_grad_()
        logits = problem.model(problem.layout.unflatten(model[None]), rows["features"].double()[None])[0]
        for j in range(3):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], rows["labels"][:, j].double())
            mean[j] += torch.autograd.grad(loss, model, retain_graph=True)[0] / 2
    assert torch.allclose(found, mean, atol=1e-12)


@pytest.mark.parametrize("goals", range(2, 7))
def test_bytes_up_are_twice_the_model_whatever_the_number_of_objectives(goals):
    """MLP 64-32: about 2d numbers a round and client against M·d of FSMGDA: equal at 2, a third at 6 objectives."""
    problem = Labels(goals=goals)
    federation = Federation.create(problem, 2, 0)
    sent = {}
    for algorithm in (FedCMOO(), FedCMOOPref(), FSMGDA()):
        done = trial(algorithm, problem, federation=federation, rounds=1, chunk=2, precision="float32")
        sent[algorithm.name] = sum(bytes_of(outcome.replies) for outcome in done.outcomes)
    d = problem.layout.size
    assert sent["fsmgda"] == 4 * goals * d
    assert sent["fedcmoo"] / (4 * 2 * d) == pytest.approx(1, abs=0.04)
    assert sent["fedcmoo"] / sent["fsmgda"] == pytest.approx(2 / goals, rel=0.04)
    assert sent["fedcmoo-pref"] - sent["fedcmoo"] == 4 * goals, "its losses are all it adds"


def test_a_run_records_these_bytes():
    problem = Labels(goals=4, inputs=20)
    up = {
        name: fedpareto.run(problem, name, clients=3, rounds=1, engine={"chunk": 3, "threads": 1}).history[0][
            "bytes_up"
        ]
        for name in ("fedcmoo", "fsmgda")
    }
    assert up["fsmgda"] == 3 * 4 * 4 * problem.layout.size
    assert up["fedcmoo"] / up["fsmgda"] == pytest.approx(0.5, rel=0.04)


# -- where it leads ----------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
@pytest.mark.parametrize("goals", [2, 3])
@pytest.mark.parametrize("rank", [0, EXACT], ids=["compressed", "exact"])
def test_it_reaches_a_pareto_stationary_point(goals, rank):
    problem = Convex(goals=goals, heterogeneity=0.3)
    federation = Federation.create(problem, 7, 0, "dirichlet")
    done = trial(FedCMOO(rank=rank), problem, federation=federation, learner=FULL_BATCH, rounds=60)
    at = [distance_to_pareto_set(problem, federation, state.model) for state in done.states]
    assert at[0] > 0.3
    assert at[-1] < 1e-5


@pytest.mark.parametrize("preference", [(), (0.2, 0.8), (0.9, 0.1)])
def test_pref_reaches_the_front_at_the_preference_ray(preference):
    """r_1 f_1 = r_2 f_2 on the front f = ((1 − w)², w²) is at w = √r_1 / (√r_1 + √r_2)."""
    problem = Convex(heterogeneity=0.0)
    federation = Federation.create(problem, 3, 0, "dirichlet")
    algorithm = FedCMOOPref(preference=preference, rank=EXACT, tolerance=1e-5, floor=0.0)
    learner = Supervised(lr=0.1, batch_size=1000)
    done = trial(algorithm, problem, federation=federation, learner=learner, rounds=100, chunk=3)
    model, r = done.models[0], np.array(preference or (1.0, 1.0))
    assert distance_to_pareto_set(problem, federation, model) < 1e-3
    w = np.sqrt(r[0]) / np.sqrt(r).sum()
    assert torch.allclose(problem.centres() @ model, torch.tensor([w, 1 - w]).double(), atol=0.01)
    losses = 0.5 * (model - problem.centres()).square().sum(dim=1)
    assert adjustments(losses.numpy(), r)[0] < 2e-3


@pytest.mark.takes_long
def test_the_larger_a_preference_the_smaller_that_loss():
    """With all the defaults, the dial turns the right way and every point is on the front."""
    problem = Convex(heterogeneity=0.0)
    federation = Federation.create(problem, 3, 0, "dirichlet")
    losses = []
    for first in (0.0, 0.2, 0.5, 0.8, 1.0):
        algorithm = FedCMOOPref(preference=(first, 1 - first))
        done = trial(algorithm, problem, federation=federation, learner=FULL_BATCH, rounds=50, chunk=3)
        assert distance_to_pareto_set(problem, federation, done.models[0]) < 1e-3
        losses.append(float((done.models[0] - problem.centres()[0]).square().sum()))
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 1.2
    assert losses[-1] < 0.1


def test_the_floor_keeps_every_objective_alive():
    done = trial(FedCMOOPref(preference=(1.0, 0.0, 0.0)), Convex(goals=3), rounds=2)
    for state in done.states[1:]:
        assert state.weights == pytest.approx((0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3))


@pytest.mark.parametrize("name", ["fedcmoo", "fedcmoo-pref"])
def test_fine_tuning_follows_the_clients_own_preferences(name):
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, 5, 0, "dirichlet")
    before = trial(make_algorithm(name, {}), problem, federation=federation, rounds=4, chunk=5)
    tuned = trial(make_algorithm(f"{name}+ft", {}), problem, federation=federation, rounds=5, chunk=5)
    assert torch.equal(tuned.states[-2].inner.model, before.states[-1].model)
    assert tuned.outcomes[-1].replies.step == "train", "nobody asks for gradients any more"
    optimum = torch.as_tensor(federation.preferences) @ problem.centres() + problem.shifts(5, 0)
    for client in range(5):
        start, end = before.models[client], tuned.models[client]
        assert (end - optimum[client]).norm() < (start - optimum[client]).norm()


@pytest.mark.parametrize("name", ["fedcmoo", "fedcmoo-pref", "fsmgda"])
def test_private_preferences_do_not_reach_the_server(name):
    """Whatever the clients prefer, every message is the same."""
    problem = Convex(heterogeneity=0.3)
    runs = [
        trial(make_algorithm(name, {}), problem, federation=Federation.create(problem, 4, 0, preferences), chunk=4)
        for preferences in ("equidistant", "dirichlet")
    ]
    for one, other in zip(runs[0].outcomes, runs[1].outcomes, strict=True):
        assert all(torch.equal(tensor, other.replies[key]) for key, tensor in one.replies.tensors.items())


def test_a_preference_that_does_not_fit_is_refused():
    problem = Convex(goals=3)
    setting = Federation.create(problem, 2, 0).setting(problem, 1)
    with pytest.raises(UserError, match="2 entries, the problem has 3"):
        FedCMOOPref(preference=(0.5, 0.5)).begin(setting)
    for bad in ({"preference": (-0.1, 1.1)}, {"preference": (0.0, 0.0)}, {"floor": 1.5}, {"rank": -1}):
        with pytest.raises(UserError):
            FedCMOOPref(**bad)


def test_the_preference_can_be_set_from_the_command_line():
    assert make_algorithm("fedcmoo-pref", {"preference": [0.3, 0.7]}).preference == (0.3, 0.7)


def test_a_learner_without_gradients_says_so():
    from fedpareto.contract.learner import Learner

    class Other(Learner):
        def train(self, clients, model, weights, pull=None):
            return model

        def bytes_per_client(self, clients):
            return 1

        def probe(self):
            return self

    with pytest.raises(UserError, match="fedcmoo needs a problem with losses on rows; Other on 'convex' has none"):
        fedpareto.run(Convex(), "fedcmoo", clients=2, rounds=1, learner=Other(), engine={"chunk": 2, "threads": 1})
