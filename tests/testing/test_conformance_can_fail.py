"""The conformance suite finds each kind of mistake that it is there to find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from fedpareto.algorithms.fedavg import FedAvg
from fedpareto.problems.convex import Convex
from fedpareto.testing import check_algorithm, check_problem


@dataclass(frozen=True)
class BadName(FedAvg):
    name: ClassVar[str] = "Bad_Name"


@dataclass(frozen=True)
class LooksAtItsNeighbours(FedAvg):
    """Its client step mixes the clients of a stack, so that chunks change the numbers."""

    def train(self, clients, message):
        reply = super().train(clients, message)
        return reply | {"model": reply["model"] + reply["model"].mean(dim=0) * 1e-3}


@dataclass(frozen=True)
class UndeclaredReply(FedAvg):
    def train(self, clients, message):
        return super().train(clients, message) | {"gift": clients.sizes}


@dataclass(frozen=True)
class UsesGlobalRandomness(FedAvg):
    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=told.model + 1e-3 * torch.randn_like(told.model))


@dataclass(frozen=True)
class NeedsEveryone(FedAvg):
    def tell(self, state, replies):
        assert len(replies) == len(state.setting.clients), "somebody is missing"
        return super().tell(state, replies)


@dataclass(frozen=True)
class AsksInPlace(FedAvg):
    def ask(self, state):
        state.model.mul_(1.001)
        return super().ask(state)


@dataclass(frozen=True)
class TellsInPlace(FedAvg):
    def tell(self, state, replies):
        told = super().tell(state, replies)
        state.model.copy_(told.model)
        return told


@dataclass(frozen=True)
class Ascends(FedAvg):
    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=2 * state.model - told.model)


@dataclass(frozen=True)
class AsksEverybody(FedAvg):
    def ask(self, state):
        return super().ask(replace(state, setting=replace(state.setting, participation=1.0)))


@dataclass(frozen=True)
class DividesByAll(FedAvg):
    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=told.model * len(replies) / len(state.setting.clients))


@dataclass(frozen=True)
class TellsThePreference(FedAvg):
    def train(self, clients, message):
        return super().train(clients, message) | {"taste": clients.preferences}

    def reply_shapes(self, setting):
        return {"train": {**super().reply_shapes(setting)["train"], "taste": (len(setting.objectives),)}}


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (BadName(), "is no lower-case name"),
        (LooksAtItsNeighbours(), "differ from one stack"),
        (UndeclaredReply(), "valid reply"),
        (UsesGlobalRandomness(), "differ from one stack|different bits"),
        (NeedsEveryone(), "somebody is missing"),
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
class MeanOverPadding(Convex):
    """Forgets the mask."""

    def losses(self, parameters, batch):
        return super().losses(parameters, replace(batch, mask=torch.ones_like(batch.mask)))


def test_a_faulty_problem_does_not_pass():
    with pytest.raises(AssertionError, match="other losses in a stack than alone"):
        check_problem(MeanOverPadding())
