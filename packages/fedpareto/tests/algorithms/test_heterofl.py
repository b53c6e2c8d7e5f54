"""HeteroFL against really narrower networks, FedAvg, and means by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from small_problems import Labels, setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.heterofl import HeteroFL
from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.algorithms.wrappers.private import protected
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Replies
from fedpareto.contract.privacy import Privacy
from fedpareto.networks.mlp import MLP
from fedpareto.tensors.widths import slice_of
from fedpareto.testing.conformance import ALGORITHM_CHECKS, People, largest_difference, trial

EXACT = 1e-12
WIDE = Labels(inputs=5, hidden=(8, 6), rows=40)
HALF = slice_of(WIDE.layout, 0.5)


@dataclass(frozen=True)
class Narrow(Labels):
    """Networks of half the width that begin as the wide ones' slices."""

    def initial(self, seed):
        return WIDE.initial(seed)[HALF]


NARROW = Narrow(inputs=5, hidden=(4, 3), rows=40)
OPTIMISERS = {
    "sgd": {"momentum": 0.9, "weight_decay": 0.01, "clip_gradient": 0.1},
    "adam": {"lr": 0.01, "weight_decay": 0.01},
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
}


@cache
def mixed():
    """Two rounds of seven clients of the widths 1, ½ and ¼ in turn."""
    return trial(HeteroFL(), WIDE, rounds=2)


# -- a client of half the width ------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_client_of_half_the_width_trains_as_a_really_narrower_network(optimiser):
    """From the same start, on the same rows and minibatches, beside clients of other widths."""
    learner = replace(WIDE.learner(), optimiser=optimiser, epochs=3, **OPTIMISERS[optimiser])
    sliced = trial(HeteroFL(), WIDE, rounds=1, learner=learner).outcomes[0].replies
    really = trial(FedAvg(), NARROW, rounds=1, learner=learner).outcomes[0].replies
    clients = [1, 4]
    assert float((sliced["model"][clients][:, HALF] - really["model"][clients]).abs().max()) <= EXACT
    assert float((really["model"][clients] - NARROW.initial(3)).abs().max()) > 1e-3


def test_a_federation_of_half_the_width_is_fedavg_of_narrower_networks():
    sliced, really = trial(HeteroFL(widths=(0.5,)), WIDE), trial(FedAvg(), NARROW)
    assert largest_difference({i: model[HALF] for i, model in sliced.models.items()}, really.models) <= EXACT


def test_what_a_client_does_not_have_comes_back_as_it_was_sent():
    done = mixed()
    for client, width in ((1, 0.5), (2, 0.25)):
        lacks = ~slice_of(WIDE.layout, width)
        assert torch.equal(done.outcomes[1].replies["model"][client, lacks], done.states[1].model[lacks])


# -- the server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["size", "equal"])
def test_with_all_widths_1_it_is_fedavg_to_the_bit(weighting):
    plain = trial(FedAvg(weighting=weighting), WIDE, participation=0.6)
    for widths in ((1.0,), (1.0, 1.0)):
        whole = trial(HeteroFL(weighting=weighting, widths=widths), WIDE, participation=0.6)
        assert largest_difference(whole.models, plain.models) == 0


def test_every_entry_is_the_mean_over_those_who_have_it_by_hand():
    layout = MLP(1, (2,), 1).layout  # Weights of the units, their biases, weights out of them, the last bias.
    algorithm = HeteroFL(widths=(1.0, 0.5))
    state = algorithm.begin(setting_of([3, 8], layout))
    models = {3: torch.arange(1.0, 8.0).double(), 8: torch.tensor([5.0, 0, 5, 0, 5, 0, 5]).double()}
    sizes = {3: torch.tensor(1.0).double(), 8: torch.tensor(3.0).double()}
    told = {i: {"model": model, "size": sizes[i]} for i, model in models.items()}
    mean = algorithm.tell(state, Replies.of(told)).model
    assert torch.allclose(mean, torch.tensor([4.0, 2.0, 4.5, 4.0, 5.0, 6.0, 5.5]).double(), atol=EXACT)
    equal = HeteroFL(widths=(1.0, 0.5), weighting="equal")
    mean = equal.tell(state, Replies.of({i: {"model": model} for i, model in models.items()})).model
    assert torch.allclose(mean, torch.tensor([3.0, 2.0, 4.0, 4.0, 5.0, 6.0, 6.0]).double(), atol=EXACT)


def test_entries_that_nobody_had_stay_as_they_are():
    done = trial(HeteroFL(widths=(0.5, 0.25)), WIDE, rounds=1)
    moved = done.states[1].model - done.states[0].model
    assert moved[~HALF].count_nonzero() == 0
    assert moved[HALF].count_nonzero() > 0.9 * int(HALF.sum())
    narrowest = slice_of(WIDE.layout, 0.25)
    told = HeteroFL(widths=(0.5, 0.25)).tell(done.states[0], done.outcomes[0].replies.only(np.array([1])))
    assert torch.equal(told.model[~narrowest], done.states[0].model[~narrowest])


def test_a_client_uses_its_slice_of_the_global_model():
    done = mixed()
    for client, model in done.models.items():
        has = slice_of(WIDE.layout, HeteroFL().widths[client % 3])
        assert torch.equal(model, done.states[-1].model.where(has, 0))
    sent = done.engine.run([], HeteroFL().solutions(done.states[-1])).evaluations.sent
    narrow = trial(FedAvg(), NARROW, rounds=1)
    parcels = FedAvg().solutions(replace(narrow.states[-1], model=done.states[-1].model[HALF]))
    assert torch.allclose(sent[1], narrow.engine.run([], parcels).evaluations.sent[1], atol=EXACT)


# -- who has which width -------------------------------------------------------------------------------------------


def test_a_client_has_the_largest_width_that_its_device_can_train():
    algorithm = HeteroFL(widths=(0.25, 1.0, 0.3))
    setting = replace(setting_of(range(5), WIDE.layout), widths=np.array([1.0, 0.99, 0.1 + 0.2, 0.29, 0.25]))
    level = algorithm.solutions(algorithm.begin(setting)).own["level"].long().tolist()
    assert [algorithm.widths[each] for each in level] == [1.0, 0.3, 0.3, 0.25, 0.25]
    in_turn = algorithm.solutions(algorithm.begin(setting_of(range(5), WIDE.layout))).own["level"]
    assert in_turn.tolist() == [0, 1, 2, 0, 1]


def test_shares_are_those_of_each_clients_slice():
    layout = MLP(2, (4,), 1).layout
    shares = HeteroFL(widths=(0.5, 1.0)).shares(setting_of([1, 2, 7], layout))
    assert np.allclose(shares, [[6 / 12, 9 / 17], [1, 1], [6 / 12, 9 / 17]])
    assert np.array_equal(FineTuned(HeteroFL(widths=(0.5, 1.0))).shares(setting_of([1, 2, 7], layout)), shares)
    assert FedAvg().shares(setting_of([1], layout)) is None


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((), "widths is empty; it is shares of the layers' widths"),
        ((0.5, 0.0), "widths has 0; each is above 0 and at most 1"),
        ((1.5,), "widths is 1.5; it is above 0 and at most 1"),
        ((-1.0,), "widths is -1; it is above 0 and at most 1"),
        ((float("nan"),), "widths is nan; it is above 0 and at most 1"),
    ],
)
def test_widths_are_shares(widths, message):
    with pytest.raises(UserError, match=message):
        HeteroFL(widths=widths)


def test_a_device_that_is_too_weak_is_named():
    setting = replace(setting_of([2, 5], WIDE.layout), widths=np.array([1.0, 0.1]))
    with pytest.raises(UserError, match=r"^the device of client 5 can train 0\.1 of .* smallest of widths is 0\.25$"):
        HeteroFL().begin(setting)


def test_a_model_that_cannot_be_narrowed_is_refused_only_if_somebody_would_have_to():
    setting = setting_of([2, 5], replace(WIDE.layout, hidden=None))
    with pytest.raises(UserError, match=r"cannot be narrowed to 0\.5"):
        HeteroFL().begin(setting)
    strong = HeteroFL().begin(replace(setting, widths=np.ones(2)))
    assert torch.equal(strong.model, setting.initial)


# -- with all the rest ---------------------------------------------------------------------------------------------

PEOPLE = People(hidden=(4,), partition="dirichlet")
SUBJECTS = {"plain": HeteroFL(), "fine-tuned": FineTuned(HeteroFL())}


@pytest.mark.parametrize("check", ALGORITHM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("which", SUBJECTS)
def test_it_keeps_the_contract_with_slices_of_a_network(which, check):
    """The suite's own problem for all algorithms has no hidden units."""
    check(SUBJECTS[which], PEOPLE)


@pytest.mark.parametrize("wrapped", ["fine-tuned", "private"])
def test_a_tuned_or_noised_model_is_still_a_slice(wrapped):
    tuned = FineTuned(HeteroFL(weighting="equal"))
    algorithm = tuned if wrapped == "fine-tuned" else protected(tuned.algorithm, Privacy("local"))
    done = trial(algorithm, WIDE, rounds=2)
    for client, model in done.models.items():
        assert model[~slice_of(WIDE.layout, HeteroFL().widths[client % 3])].count_nonzero() == 0
