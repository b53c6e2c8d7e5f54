"""FedFew and IFCA, which serve many clients by a few models, against their papers' equations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from small_problems import Labels, setting_of

from fedpareto.algorithms._shared import few_models
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedfew import FedFew
from fedpareto.algorithms.clustered.ifca import IFCA
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.set_scalarise import set_weights, smooth_tchebycheff_set
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

FULL_BATCH = Supervised(lr=0.1, batch_size=1000)
LAYOUT = Layout.of({"weight": (2,)})


@dataclass(frozen=True)
class TwoGroups(Convex):
    """Clients with even and with odd ids want models that lie far apart."""

    name: ClassVar[str] = "two-groups"

    def shifts(self, clients, seed):
        sides = torch.where(torch.arange(clients) % 2 == 0, 3.0, -3.0)
        return super().shifts(clients, seed) + sides[:, None]


def random_losses(clients=6, models=3, seed=0):
    return torch.rand(clients, models, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- the scalarisation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_weights_are_the_derivatives_of_equation_9(mu, weighted):
    """Equation 9 as it is printed, by autograd; losses are small enough for its exponentials."""
    sizes = torch.tensor([5.0, 1.0, 3.0, 3.0, 2.0, 4.0], dtype=torch.float64)
    weights = sizes / sizes.sum() if weighted else torch.ones(6, dtype=torch.float64)
    losses = random_losses() * 0.5
    scaled = (weights[:, None] * losses).requires_grad_()
    printed = mu * torch.log((1 / torch.exp(-scaled / mu).sum(dim=1)).sum())
    (expected,) = torch.autograd.grad(printed, scaled)
    outer, inner = set_weights(losses, weights, mu)
    assert (outer[:, None] * inner - expected).abs().max() <= 1e-6
    assert float(smooth_tchebycheff_set(losses, weights, mu)) == pytest.approx(float(printed.detach()), abs=1e-9)


def test_the_smooth_form_stays_within_its_bounds_and_tends_to_the_worst_of_the_best():
    """The smooth minimum falls short by at most μ log K, the smooth maximum goes over by at most μ log M."""
    losses, ones = random_losses(), torch.ones(6, dtype=torch.float64)
    sharp = float(losses.min(dim=1).values.max())
    for mu in (0.5, 0.05, 1e-6):
        smooth = float(smooth_tchebycheff_set(losses, ones, mu))
        assert sharp - mu * math.log(3) - 1e-12 <= smooth <= sharp + mu * math.log(6) + 1e-12


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
@pytest.mark.parametrize("mu", [1e-3, 1e-12, 1e-300, 1e-320])
def test_no_smoothing_is_too_small(mu, scale):
    outer, inner = set_weights(scale * random_losses(), torch.ones(6, dtype=torch.float64), mu)
    assert float(outer.sum()) == pytest.approx(1)
    assert inner.sum(dim=1).numpy() == pytest.approx(np.ones(6))


# -- FedFew --------------------------------------------------------------------------------------------------------


def test_a_step_of_fedfew_by_hand():
    """θ_k + η Σ_i α_i w_ik (θ_ik − θ_k), with losses multiplied by n_i / Σ n."""
    stream, mu = np.random.default_rng(0), 0.1
    trained, losses, sizes = stream.standard_normal((4, 3, 2)), stream.random((4, 3)), np.array([1.0, 2.0, 3.0, 4.0])
    algorithm = FedFew(mu=mu, server_lr=0.5)
    state = algorithm.begin(setting_of(range(4), LAYOUT))
    exponents = np.exp(-(sizes / sizes.sum())[:, None] * losses / mu)
    outer = 1 / exponents.sum(axis=1)
    outer /= outer.sum()
    inner = exponents / exponents.sum(axis=1, keepdims=True)
    start = state.models.numpy()
    expected = start + 0.5 * np.einsum("i,ik,ikd->kd", outer, inner, trained - start)
    tensors = {"models": torch.tensor(trained), "losses": torch.tensor(losses), "size": torch.tensor(sizes)}
    replies = Replies(np.arange(4), tensors)
    told = algorithm.tell(state, replies)
    assert told.models.numpy() == pytest.approx(expected, abs=1e-12)
    assert told.weights.numpy() == pytest.approx(outer)
    assert told.shares.numpy() == pytest.approx(inner)
    assert told.objective == pytest.approx(mu * np.log((1 / exponents.sum(axis=1)).sum()))
    without_one = algorithm.tell(state, replies.only(np.arange(1, 4)))
    assert (without_one.weights[0], without_one.shares[0].tolist()) == (0.0, [0.0] * without_one.shares.shape[1])
    assert algorithm.describe(state)["objective"] is None


def test_a_vanishing_mu_gives_ifcas_assignment():
    """w_ik is 1 for the model that IFCA's client chooses from the same models."""
    problem = Convex(heterogeneity=1.0)
    choices = trial(IFCA(), problem, rounds=1).states[1].choices
    replies = trial(FedFew(), problem, rounds=1).outcomes[0].replies
    losses = replies["losses"]
    _, inner = set_weights(losses, torch.ones(len(losses), dtype=torch.float64), 1e-9)
    assert len(set(choices.tolist())) > 1, "a problem on which clients choose differently"
    assert torch.equal(inner, torch.nn.functional.one_hot(choices, 3).double())


def test_one_model_with_equal_losses_and_sizes_is_fedavg():
    """Clients that want the same; only their minibatches differ."""
    problem = Convex(heterogeneity=0.0, unequal=False)
    federation = Federation.create(problem, 7, 0, "uniform")
    plain = trial(FedAvg(), problem, federation=federation).models
    assert largest_difference(plain, trial(FedFew(models=1), problem, federation=federation).models) <= 1e-12


def test_one_model_with_unequal_losses_is_not_fedavg():
    problem = Convex(heterogeneity=1.0)
    assert largest_difference(trial(FedAvg(), problem).models, trial(FedFew(models=1), problem).models) > 1e-3


def test_identical_models_stay_identical_unless_minibatches_tell_them_apart():
    problem = Convex(heterogeneity=1.0)

    def spread(learner):
        models = trial(FedFew(initial="identical"), problem, learner=learner).states[-1].models
        return float((models - models[0]).abs().max())

    assert spread(FULL_BATCH) <= 1e-12
    assert spread(Supervised(lr=0.1, batch_size=8)) > 1e-6


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "after"},
        {"loss": "during"},
        {"weighting": "equal"},
        {"initial": "identical"},
        {"mu": 1.0},
        {"server_lr": 3.0},
    ],
)
def test_every_choice_changes_the_result(changed):
    problem = Convex(heterogeneity=1.0)
    assert largest_difference(trial(FedFew(), problem).models, trial(FedFew(**changed), problem).models) > 1e-6


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_losses_sent_are_of_the_models_before_or_after_training(when):
    problem = Convex(heterogeneity=1.0)
    federation = Federation.create(problem, 7, 3, "dirichlet")
    done = trial(FedFew(loss=when), problem, federation=federation, rounds=1)
    centres = problem.centres() + problem.shifts(7, 3)[:, None]
    replies = done.outcomes[0].replies
    for client in range(7):
        models = done.states[0].models if when == "before" else replies["models"][client]
        distances = 0.5 * (models[:, None] - centres[client]).square().sum(-1)
        expected = distances @ torch.as_tensor(federation.preferences[client])
        assert replies["losses"][client].numpy() == pytest.approx(expected.numpy(), abs=1e-9)


# -- two obvious groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ifca", "fedfew"])
def test_two_groups_get_a_model_each(name):
    """With two models, both groups end near their own optimum, which one model for all cannot."""
    parameters = {"mu": 0.1, "weighting": "equal", "server_lr": 2.0} if name == "fedfew" else {}
    algorithm = make_algorithm(name, {"models": 2, **parameters})
    problem = TwoGroups()
    done = trial(algorithm, problem, rounds=60, learner=FULL_BATCH, seed=1)
    for client, model in done.models.items():
        assert torch.sign(model.mean()) == (1 if client % 2 == 0 else -1)
        assert abs(abs(float(model.mean())) - 3) < 0.5


def test_ifca_describes_the_groups_as_clusters():
    done = trial(IFCA(models=2), TwoGroups(), rounds=3, learner=FULL_BATCH, seed=1)
    clusters = done.engine.algorithm.describe(done.states[-1])["clusters"]
    assert sorted(clusters) == [[0, 2, 4, 6], [1, 3, 5]]
    assert done.engine.algorithm.describe(done.states[0])["clusters"] == []


# -- IFCA ----------------------------------------------------------------------------------------------------------


def ifca_replies(choices, sizes=None):
    models = torch.tensor([[client, 1.0] for client in range(len(choices))]).double()
    size = {} if sizes is None else {"size": torch.tensor(sizes).double()}
    return Replies(np.arange(len(choices)), {"model": models, "choice": torch.tensor(choices).double(), **size})


def test_a_step_of_ifca_by_hand_leaves_an_empty_cluster_as_it_is():
    algorithm = IFCA()
    state = algorithm.begin(setting_of(range(4), LAYOUT))
    told = algorithm.tell(state, ifca_replies([0, 2, 0, 2]))
    assert told.models[0].tolist() == [1.0, 1.0]
    assert torch.equal(told.models[1], state.models[1])
    assert told.models[2].tolist() == [2.0, 1.0]


def test_ifca_by_size():
    algorithm = IFCA(weighting="size")
    told = algorithm.tell(algorithm.begin(setting_of(range(2), LAYOUT)), ifca_replies([1, 1], sizes=[1, 3]))
    assert told.models[1].tolist() == [0.75, 1.0]


def test_a_choice_that_does_not_exist_moves_no_model():
    algorithm = IFCA()
    state = algorithm.begin(setting_of(range(2), LAYOUT))
    assert torch.equal(algorithm.tell(state, ifca_replies([7, -1])).models, state.models)


def test_one_cluster_is_fedavg():
    problem = Convex()
    plain = trial(FedAvg(weighting="equal"), problem).models
    assert largest_difference(plain, trial(IFCA(models=1), problem).models) <= 1e-12


def test_absent_clients_keep_their_last_choice():
    done = trial(IFCA(), Convex(heterogeneity=1.0), participation=0.4, rounds=2)
    first, second = (state.choices for state in done.states[1:])
    replied = set(done.outcomes[1].replies.clients.tolist())
    assert all(second[client] == first[client] for client in range(7) if client not in replied)
    assert any(choice >= 0 for choice in first)


# -- how models begin ----------------------------------------------------------------------------------------------


def test_distinct_beginnings_are_shuffles_of_each_tensor():
    problem = Labels(rows=20)
    setting = Federation.create(problem, 3, 0, "dirichlet").setting(problem, 5)
    models = few_models.distinct_start(setting, 3)
    assert torch.equal(models[0], setting.initial)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(models[one], models[other])
    for place in setting.layout.slices.values():
        assert torch.equal(models[:, place].sort(dim=1).values, setting.initial[place].sort().values.expand(3, -1))


def test_a_beginning_without_randomness_gets_some():
    models = few_models.distinct_start(setting_of(range(2), Layout.of({"weight": (1000,)})), 3)
    assert models[0].abs().max() == 0
    assert models[1:].std(dim=1).numpy() == pytest.approx([few_models.SPREAD] * 2, rel=0.1)
    assert not torch.equal(models[1], models[2])


# -- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("fedfew", {"models": 0}, "models is 0; it is at least 1"),
        ("fedfew", {"mu": 0.0}, "mu is 0; it is above 0"),
        ("fedfew", {"server_lr": 0.0}, "server_lr is 0; it is above 0"),
        ("ifca", {"models": 0}, "models is 0; it is at least 1"),
    ],
)
def test_wrong_parameters_are_refused_by_their_names(name, parameters, message):
    with pytest.raises(UserError, match=message):
        make_algorithm(name, parameters)
