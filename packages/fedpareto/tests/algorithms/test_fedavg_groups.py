"""FedAvg within given groups: between FedAvg and training alone, and each group as if the others were not there."""

from __future__ import annotations

import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedavg_groups import FedAvgGroups
from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import CLIENTS, trial

PROBLEM = Convex()


def models(algorithm, **options):
    found = trial(algorithm, PROBLEM, **options).models
    return torch.stack([found[client] for client in range(CLIENTS)])


@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize("groups", [(1,), (4,) * CLIENTS])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_one_group_is_fedavg_bit_for_bit(weighting, groups, participation):
    ours = models(FedAvgGroups(groups=groups, weighting=weighting), participation=participation)
    assert torch.equal(ours, models(FedAvg(weighting=weighting), participation=participation))


@pytest.mark.parametrize("groups", [(CLIENTS,), tuple(range(CLIENTS)), (1_000,)])
def test_a_group_for_each_client_is_local_training_bit_for_bit(groups):
    assert torch.equal(models(FedAvgGroups(groups=groups)), models(Local()))


def test_groups_do_not_hear_of_each_other():
    """Whoever is in the other group, and whatever they learn."""
    ours = models(FedAvgGroups(groups=(0, 1, 0, 1, 1, 0, 1)))
    with_others = models(FedAvgGroups(groups=(0, 2, 0, 3, 3, 0, 2)))
    assert torch.equal(ours[[0, 2, 5]], with_others[[0, 2, 5]])
    assert not torch.equal(ours[1], with_others[1])
    assert torch.equal(ours[0], ours[5])


def test_a_group_without_a_reply_stays_where_it_is():
    algorithm = FedAvgGroups(groups=(2,))
    done = trial(algorithm, PROBLEM, rounds=1)
    before, replies = done.states[0], done.outcomes[0].replies
    first_three = Replies(replies.clients[:3], {name: rows[:3] for name, rows in replies.tensors.items()})
    after = algorithm.tell(before, first_three)
    assert torch.equal(after.models[1], before.models[1])
    assert not torch.equal(after.models[0], before.models[0])


def test_a_number_of_groups_are_neighbours_as_even_as_can_be():
    """As the planes of a shell are: its satellites are numbered plane by plane."""
    setting = Federation.create(PROBLEM, 40, 0, "dirichlet").setting(PROBLEM, 1, 1.0)
    for count, sizes in ((5, [8] * 5), (3, [14, 13, 13])):
        algorithm = FedAvgGroups(groups=(count,))
        groups = algorithm.describe(algorithm.begin(setting))["clusters"]
        assert [len(group) for group in groups] == sizes
        assert [client for group in groups for client in group] == list(range(40))


def test_groups_that_do_not_fit_are_refused_with_what_would_be_right():
    with pytest.raises(UserError, match=r"groups is \[0\]; it is how many there are, such as 5"):
        FedAvgGroups(groups=(0,))
    with pytest.raises(UserError, match="groups has 3 numbers for 7 clients; give one for each"):
        models(FedAvgGroups(groups=(0, 1, 1)))
