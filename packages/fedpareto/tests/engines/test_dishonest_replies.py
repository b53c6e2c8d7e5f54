"""Replies of the right shape with numbers that no honest client has: refused by name, and the round goes on."""

from __future__ import annotations

import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedfew import FedFew
from fedpareto.algorithms.clustered.ifca import IFCA
from fedpareto.algorithms.fairness.agnosticfair import AgnosticFair
from fedpareto.algorithms.fairness.fairfed import FairFed
from fedpareto.algorithms.fairness.fedfb import FedFB
from fedpareto.algorithms.fairness.q_fedavg import QFedAvg
from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.config.errors import QuorumLost
from fedpareto.contract.registry import problem_class
from fedpareto.testing.conformance import trial

LIAR = 1


def lying(cls, name, lie):
    """The algorithm, but one of its clients puts `lie` under `name` in every reply that has it."""

    def dishonest(step):
        def work(self, clients, message):
            reply = getattr(cls, step)(self, clients, message)
            of_liar = clients.addresses.client == LIAR
            if name in reply:
                reply = reply | {name: reply[name].clone()}
                reply[name][of_liar] = lie
            return reply

        return work

    steps = [step for step in ("train", "measure", "solve") if hasattr(cls, step)]
    return type("Lying", (cls,), {step: dishonest(step) for step in steps})


def test_a_reply_without_a_row_for_each_client_is_every_clients_failure_and_says_so():
    class Forgetful(FedAvg):
        def train(self, clients, message):
            return super().train(clients, message) | {"model": torch.zeros(5)}

    with pytest.raises(QuorumLost, match=r"'model' has the shape \[5\], not a row for each client \(1\)"):
        trial(Forgetful(), problem_class("synthetic")(hidden=(4,)), rounds=1)


@pytest.mark.parametrize(
    ("cls", "parameters", "name", "lie", "words"),
    [
        (FedAvg, {}, "size", -19.0, "'size' holds -19; honest values are at least 1"),
        (FedAvg, {}, "size", 0.0, "'size' holds 0; honest values are at least 1"),
        (FedFew, {"models": 2}, "size", -19.0, "'size' holds -19; honest values are at least 1"),
        (IFCA, {"models": 2, "weighting": "size"}, "size", -19.0, "'size' holds -19; honest values are at least 1"),
        (IFCA, {"models": 2}, "choice", 2.0, "'choice' holds 2; honest values are from 0 to 1"),
        (QFedAvg, {}, "loss_before", -0.5, "'loss_before' holds -0.5; honest values are at least 0"),
        (QFedAvg, {}, "lipschitz", 0.0, "'lipschitz' holds 0; honest values are above 0"),
        (MOFLD, {"samples": 2, "training_rounds": 1}, "size", -19.0, "'size' holds -19; honest values are at least 1"),
        (FairFed, {}, "rows", -3.0, "'rows' holds -3; honest values are at least 0"),
        (FedFB, {}, "mass", -3.0, "'mass' holds -3; honest values are at least 0"),
        (FedFB, {}, "losses", -3.0, "'losses' holds -3; honest values are at least 0"),
        (AgnosticFair, {}, "loss", -3.0, "'loss' holds -3; honest values are at least 0"),
    ],
)
def test_a_dishonest_number_is_refused_by_name_and_the_round_goes_on(cls, parameters, name, lie, words):
    problem = problem_class("synthetic")(hidden=(4,))
    honest = trial(cls(**parameters), problem, rounds=1)
    done = trial(lying(cls, name, lie)(**parameters), problem, rounds=1)
    assert not [failure for outcome in honest.outcomes for failure in outcome.failures]
    refused = [failure for outcome in done.outcomes for failure in outcome.failures]
    assert refused
    assert {(failure.client, failure.reason) for failure in refused} == {(LIAR, f"refused: {words}")}
    assert all(model.isfinite().all() for model in done.models.values())


def test_fine_tuning_around_an_algorithm_refuses_the_same():
    problem = problem_class("synthetic")(hidden=(4,))
    done = trial(FineTuned(lying(FedAvg, "size", -1.0)()), problem, rounds=2)
    assert {failure.client for outcome in done.outcomes for failure in outcome.failures} == {LIAR}
