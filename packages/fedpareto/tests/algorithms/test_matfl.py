"""MaT-FL against hand-computed cases and its two limits."""

from __future__ import annotations

import pytest
import torch
from small_problems import replies_with, setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.personal.matfl import MaTFL, soft_weights, voting_weights
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

TWO_LAYERS = Layout.of({"body.weight": (2,), "head.weight": (2,)})
DIFFERENT = Convex(heterogeneity=0.5, dimension=10)


def test_layer_wise_voting_by_hand():
    """Four clients, k = 2. In the first layer 0 pairs with 1 and 2 with 3; in the second 0 with 2 and 1 with 3."""
    updates = {
        3: [1.0, 0.0, 0.0, 1.0],
        5: [3.0, 0.3, 0.2, -2.0],
        6: [-1.0, 0.1, 0.1, 3.0],
        9: [-3.0, 0.0, 0.0, -4.0],
    }
    algorithm = MaTFL(voters=2)
    state = algorithm.begin(setting_of(updates, TWO_LAYERS))
    state = algorithm.tell(state, replies_with(state, updates))
    expected = [
        [2.0, 0.15, 0.05, 2.0],
        [2.0, 0.15, 0.1, -3.0],
        [-2.0, 0.05, 0.05, 2.0],
        [-2.0, 0.05, 0.1, -3.0],
    ]
    assert torch.allclose(state.models, torch.tensor(expected, dtype=torch.float64))
    assert state.round == 1


def test_votes_need_not_be_mutual():
    """The second is the nearest of both others; its own nearest is the first (cosine 0.74 against 0.67)."""
    updates = torch.tensor([[1.0, 0.0], [1.0, 0.9], [0.0, 1.0]])
    assert voting_weights(updates, 2).tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]


def test_a_client_votes_for_itself_first_and_a_zero_update_for_whoever_comes_first():
    same = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    assert torch.equal(voting_weights(same, 1), torch.eye(3))
    weights = voting_weights(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), 2)
    assert weights[1].tolist() == [0.5, 0.5, 0]


def test_more_voters_than_clients_are_everybody():
    assert torch.allclose(voting_weights(torch.randn(3, 4), 10), torch.full((3, 3), 1 / 3))


def test_one_voter_is_local_training():
    assert largest_difference(trial(MaTFL(voters=1), DIFFERENT).models, trial(Local(), DIFFERENT).models) == 0


def test_everybody_as_voter_is_equal_weight_fedavg():
    matfl, fedavg = trial(MaTFL(voters=99), DIFFERENT), trial(FedAvg(weighting="equal"), DIFFERENT)
    assert largest_difference(matfl.models, fedavg.models) <= 1e-12


def test_soft_grouping_by_hand():
    """Three models with the mean (0, 0): cosines 1, −1, 0, …; negative ones are cut off, rows sum to one."""
    models = torch.tensor([[3.0, 0.0], [-2.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    c12, c13 = -2 / 5**0.5, -1 / 2**0.5
    c23 = (2 - 1) / (5**0.5 * 2**0.5)
    assert torch.allclose(
        soft_weights(models, 0.0),
        torch.tensor([[1, 0, 0], [0, 1 / (1 + c23), c23 / (1 + c23)], [0, c23 / (1 + c23), 1 / (1 + c23)]]).double(),
    )
    shifted = torch.tensor([2, 1 + c12, 1 + c13], dtype=torch.float64)
    assert torch.allclose(soft_weights(models, 1.0)[0], shifted / shifted.sum())


def test_soft_grouping_with_a_large_threshold_tends_to_fedavg():
    soft = trial(MaTFL(grouping="soft", soft_threshold=1e9), DIFFERENT)
    assert largest_difference(soft.models, trial(FedAvg(weighting="equal"), DIFFERENT).models) <= 1e-6
    plain = trial(MaTFL(grouping="soft"), DIFFERENT)
    assert largest_difference(soft.models, plain.models) > 1e-3, "the threshold has no effect"


def test_absent_clients_keep_their_models_and_have_no_vote():
    algorithm = MaTFL(voters=3)
    state = algorithm.begin(setting_of((1, 2, 3), TWO_LAYERS))
    after = algorithm.tell(state, replies_with(state, {1: [1.0, 0, 0, 0], 3: [3.0, 0, 0, 0]}))
    assert after.models[:, 0].tolist() == [2, 0, 2]


@pytest.mark.parametrize("grouping", ["voting", "soft"])
def test_two_groups_of_opposed_preferences_help_only_their_own(grouping):
    """With as many voters as a group has members every client ends nearer to its own optimum than FedAvg's model."""
    problem = Convex(heterogeneity=0.1)
    federation = Federation.create(problem, 6, 0, "groups:3,3@1,0;0,1")
    matfl = trial(MaTFL(voters=3, grouping=grouping), problem, federation=federation, rounds=20)
    fedavg = trial(FedAvg(), problem, federation=federation, rounds=20)
    optimum = torch.as_tensor(federation.preferences) @ problem.centres() + problem.shifts(6, 0)
    for client in range(6):
        own, shared = (float((done.models[client] - optimum[client]).norm()) for done in (matfl, fedavg))
        assert own < 0.6 * shared
    mine, other = matfl.models[0], matfl.models[5]
    assert (mine - problem.centres()[0]).norm() < (mine - problem.centres()[1]).norm()
    assert (other - problem.centres()[1]).norm() < (other - problem.centres()[0]).norm()


@pytest.mark.parametrize("bad", [{"voters": 0}, {"soft_threshold": -1.0}])
def test_senseless_hyper_parameters_are_refused(bad):
    with pytest.raises(UserError):
        MaTFL(**bad)
