"""The conformance suite finds each kind of mistake that it is there to find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.common_descent.fedmgda import FedMGDA
from fedpareto.algorithms.wrappers.private import protected
from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import Privacy
from fedpareto.problems.convex import Convex
from fedpareto.testing import check_algorithm, check_problem


@dataclass(frozen=True)
class BadName(FedAvg):
    """Upper case."""

    name: ClassVar[str] = "Bad_Name"


@dataclass(frozen=True)
class LooksAtItsNeighbours(FedAvg):
    """Its client step mixes the clients of a stack, so that chunks change the numbers."""

    def train(self, clients, message):
        reply = super().train(clients, message)
        return reply | {"model": reply["model"] + reply["model"].mean(dim=0) * 1e-3}


@dataclass(frozen=True)
class UndeclaredReply(FedAvg):
    """Sends more than it declares."""

    def train(self, clients, message):
        return super().train(clients, message) | {"gift": clients.sizes}


@dataclass(frozen=True)
class UsesGlobalRandomness(FedAvg):
    """Draws outside the seed."""

    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=told.model + 1e-3 * torch.randn_like(told.model))


@dataclass(frozen=True)
class NeedsEveryone(FedAvg):
    """Cannot do without a reply."""

    def tell(self, state, replies):
        assert len(replies) == len(state.setting.clients), "somebody is missing"
        return super().tell(state, replies)


@dataclass(frozen=True)
class AsksInPlace(FedAvg):
    """Changes its state when it asks."""

    def ask(self, state):
        state.model.mul_(1.001)
        return super().ask(state)


@dataclass(frozen=True)
class TellsInPlace(FedAvg):
    """Changes the old state."""

    def tell(self, state, replies):
        told = super().tell(state, replies)
        state.model.copy_(told.model)
        return told


@dataclass(frozen=True)
class Ascends(FedAvg):
    """Goes up."""

    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=2 * state.model - told.model)


@dataclass(frozen=True)
class AsksEverybody(FedAvg):
    """Ignores participation."""

    def ask(self, state):
        return super().ask(replace(state, setting=replace(state.setting, participation=1.0)))


@dataclass(frozen=True)
class DividesByAll(FedAvg):
    """Divides by the number of all clients."""

    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=told.model * len(replies) / len(state.setting.clients))


@dataclass(frozen=True)
class TellsThePreference(FedAvg):
    """Sends the preference."""

    def train(self, clients, message):
        return super().train(clients, message) | {"taste": clients.preferences}

    def reply_shapes(self, setting):
        return {"train": {**super().reply_shapes(setting)["train"], "taste": (len(setting.objectives),)}}


@dataclass(frozen=True)
class ClaimsASum(FedAvg):
    """Takes a median, which no sum can give."""

    name: ClassVar[str] = "claims-a-sum"
    needs: ClassVar[str] = "weighted sum"

    def tell(self, state, replies):
        return replace(state, model=replies["model"].median(dim=0).values, round=state.round + 1)


@dataclass(frozen=True)
class ClaimsAMean(FedAvg):
    """Takes the median, and says that noise on a mean is enough."""

    averages: ClassVar[bool] = True

    tell = ClaimsASum.tell


@dataclass(frozen=True)
class LooksAtOneRow(FedAvg):
    """A sum by itself: what it gives is right, but it takes all rows for it."""

    needs: ClassVar[str] = "weighted sum"

    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=told.model + 0 * replies["model"][0])


@dataclass(frozen=True)
class ClaimsNorms(FedMGDA):
    """Compares updates with each other."""

    needs: ClassVar[str] = "norms"


@dataclass(frozen=True)
class Undocumented(FedAvg):
    size: int = 3


class Undecorated(FedAvg):
    """Its parameter is none."""

    beta: float = 0.5


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (BadName(), "is no lower-case name"),
        (ClaimsASum(), "also reads: all rows"),
        (ClaimsAMean(), "a_mean_says_it_all: fedavg declares that the mean of replies is all it needs"),
        (LooksAtOneRow(), "also reads: all rows"),
        (ClaimsNorms(), "also reads: Gram matrix"),
        (LooksAtItsNeighbours(), "differ from one stack"),
        (UndeclaredReply(), "replies_are_accepted|valid reply"),
        (UsesGlobalRandomness(), "differ from one stack|different bits"),
        (NeedsEveryone(), "somebody is missing"),
        (Undocumented(), "says_what_it_is: fedavg has no docstring"),
        (Undecorated(), "beta is no hyper-parameter"),
        (AsksInPlace(), "`ask` changes the state in place"),
        (TellsInPlace(), "`tell` changes the state in place"),
        (Ascends(), "raises the clients' loss"),
        (AsksEverybody(), "asks 7 clients at participation 0.6"),
        (DividesByAll(), "divided by the number of all clients"),
        (TellsThePreference(), "gives the preference away"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_faulty_algorithm_does_not_pass(algorithm, complaint):
    with pytest.raises((AssertionError, ValueError), match=complaint):
        check_algorithm(algorithm)


@dataclass(frozen=True)
class Median(FedAvg):
    """Does not say what it needs."""

    tell = ClaimsASum.tell


class TakesMedians:
    """Stands in front of an algorithm."""

    tell = ClaimsASum.tell


class MedianInFront(TakesMedians, FedAvg):
    """Inherits a `tell` from a class in front."""


def test_a_tell_of_its_own_needs_all_rows_and_is_no_mean_unless_the_class_says_less():
    assert (FedAvg.needs, FedAvg.sums, FedAvg.averages) == ("weighted sum", True, True)
    for median in (Median, MedianInFront):
        assert (median.needs, median.sums, median.averages) == ("all rows", False, False)
        with pytest.raises(UserError, match="noise on a mean protects none; kind=local does"):
            protected(median("equal"), Privacy("central"))
    assert ClaimsASum.needs == "weighted sum"
    assert TellsThePreference.needs == "weighted sum"  # FedAvg's own `tell`.


@dataclass(frozen=True)
class MeanOverPadding(Convex):
    """Forgets the mask."""

    def losses(self, parameters, batch):
        return super().losses(parameters, replace(batch, mask=torch.ones_like(batch.mask)))


@dataclass(frozen=True)
class MeanOverTheMinibatch(Convex):
    """All clients have the same number of rows; only the last minibatch would tell."""

    unequal: bool = False

    def losses(self, parameters, batch):
        return super().losses(parameters, replace(batch, mask=torch.ones_like(batch.mask)))


def test_padding_that_counts_is_found_also_where_clients_are_of_one_size():
    with pytest.raises(AssertionError, match="padding_does_not_count: rows with a mask of 0 change the losses"):
        check_problem(MeanOverTheMinibatch())


@dataclass(frozen=True)
class BeginsAnywhere(Convex):
    """The initial model is drawn when the problem is made, from no seed."""

    @cached_property
    def drawn(self):
        return torch.randn(self.dimension)

    def initial(self, seed):
        return self.drawn


def test_an_initial_model_that_no_seed_fixes_is_found():
    with pytest.raises(AssertionError, match="data_follow_the_seed: the initial model is another one each time"):
        check_problem(BeginsAnywhere())


def test_a_class_is_no_algorithm():
    with pytest.raises(TypeError, match=r"such as FedAvg\(\)"):
        check_algorithm(FedAvg)


def test_a_faulty_problem_does_not_pass():
    with pytest.raises(AssertionError, match="other losses in a stack than alone"):
        check_problem(MeanOverPadding())
