"""+safe: what a client keeps is the best for itself of what it has alone, of what it was sent, and of mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from personal_models import CLIENTS, SEED, kept

from fedpareto.algorithms.wrappers.private import protected
from fedpareto.algorithms.wrappers.safe import CHOSEN, OWN, SHARES
from fedpareto.contract.federation import Federation
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm
from fedpareto.problems.convex import Convex
from fedpareto.tensors.rows import Rows
from fedpareto.testing.conformance import trial

ROUNDS = 4
WITHOUT = 2
"""The client that has no validation rows."""


@dataclass(frozen=True)
class Validated(Convex):
    """Clients whose validation row lies between their own centres and those of all, each at another place."""

    name: ClassVar[str] = "validated"

    def data(self, clients, seed):
        """With a validation row for each client but one."""
        splits = super().data(clients, seed)
        own = self.centres() + self.shifts(clients, seed)[:, None]
        between = torch.lerp(own, self.centres().expand_as(own), torch.linspace(0, 1, clients).double()[:, None, None])
        counts = np.where(np.arange(clients) == WITHOUT, 0, 1)
        return {**splits, "validation": Rows.end_to_end({"centres": between[counts > 0]}, counts)}


PROBLEM = Validated(heterogeneity=1.0)


def plain_choice(own, sent, tuned, centres, preference):
    """One client's choice, by a loop over what it could have."""
    found = [own, sent, tuned]
    found += [(1 - share) * own + share * other for other in (sent, tuned) for share in SHARES]
    cost = [preference @ (0.5 * ((one - centres.mean(0)) ** 2).sum(1)) for one in found]
    return found[int(np.argmin(cost))], int(np.argmin(cost))


def models(name, rounds=ROUNDS):
    done = trial(make_algorithm(name), PROBLEM, rounds=rounds).models
    return np.stack([done[client].numpy() for client in range(CLIENTS)])


@pytest.mark.parametrize("name", ["fedavg", "fedpref"])
def test_every_client_has_the_best_of_all_by_a_plain_loop(name):
    safe, own = models(f"{name}+safe"), models("local")
    sent, tuned = models(name, ROUNDS - 1), models(f"{name}+ft")
    splits = PROBLEM.data(CLIENTS, SEED)
    preferences = Federation.create(PROBLEM, CLIENTS, SEED, "dirichlet").preferences
    chosen = []
    for i in range(CLIENTS):
        rows = splits["train" if i == WITHOUT else "validation"].of_client(i)["centres"].double().numpy()
        wanted, which = plain_choice(own[i], sent[i], tuned[i], rows, preferences[i])
        assert np.abs(safe[i] - wanted).max() <= 1e-12
        chosen.append(which)
    assert len(set(chosen)) > 2, "a case in which all choose alike would show little"


def test_nothing_of_the_choice_is_sent_and_no_round_is_added():
    done = trial(make_algorithm("fedavg+safe"), PROBLEM, rounds=ROUNDS)
    assert len(done.outcomes) == ROUNDS
    assert [sorted(outcome.replies.tensors) for outcome in done.outcomes] == [["model", "size"]] * (ROUNDS - 1) + [[]]
    fedavg = trial(make_algorithm("fedavg"), PROBLEM, rounds=ROUNDS - 1)
    assert torch.equal(done.states[-1].inner.model, fedavg.states[-1].model), "the federation does not notice"


def test_who_misses_the_last_round_has_what_it_was_sent():
    algorithm = make_algorithm("fedavg+safe")
    done = trial(algorithm, PROBLEM, rounds=ROUNDS)
    private = done.engine.private
    private[0, 0, 1] = {OWN: private[0, 0, 1][OWN].clone(), CHOSEN: torch.zeros(1).double()}
    found = done.engine.models(0, algorithm.solutions(done.states[-1]))
    assert torch.equal(found[1], done.states[-1].inner.model)
    assert all(torch.equal(found[client], private[0, 0, client][OWN]) for client in range(CLIENTS) if client != 1)


def test_noise_for_privacy_is_not_in_the_local_model_and_the_choice_costs_none():
    hidden = protected(make_algorithm("fedavg+safe", {"weighting": "equal"}), Privacy("central", clip=0.1, noise=50.0))
    done = trial(hidden, PROBLEM, rounds=ROUNDS)
    before, after = (hidden.describe(state)["epsilon"] for state in done.states[-2:])
    assert before == after > 0
    alone = models("local")
    is_alone = [np.array_equal(mine, own) for mine, own in zip(kept(done, OWN), alone, strict=True)]
    assert sum(is_alone) > CLIENTS // 2, "a model full of noise is no temptation"


@dataclass(frozen=True)
class Coarse(Validated):
    """Objectives that are reported in halves: many models are worth the same."""

    name: ClassVar[str] = "coarse"

    def evaluate(self, parameters, batch):
        return (2 * super().evaluate(parameters, batch)).round() / 2


def test_of_models_that_are_worth_the_same_the_one_with_the_least_loss_is_kept():
    def found(name, rounds=ROUNDS):
        done = trial(make_algorithm(name), problem, rounds=rounds).models
        return np.stack([done[client].numpy() for client in range(CLIENTS)])

    problem, ties = Coarse(heterogeneity=1.0), 0
    safe, own, sent, tuned = found("fedavg+safe"), found("local"), found("fedavg", ROUNDS - 1), found("fedavg+ft")
    preferences = Federation.create(problem, CLIENTS, SEED, "dirichlet").preferences
    splits = problem.data(CLIENTS, SEED)
    for i in range(CLIENTS):
        rows = splits["train" if i == WITHOUT else "validation"].of_client(i)["centres"].double().numpy()
        models = [own[i], sent[i], tuned[i]]
        models += [(1 - share) * own[i] + share * other[i] for other in (sent, tuned) for share in SHARES]
        losses = [0.5 * ((model - rows.mean(0)) ** 2).sum(1) for model in models]
        worth = np.array([-preferences[i] @ (np.round(2 * loss) / 2) for loss in losses])
        tied = np.flatnonzero(worth >= worth.max() - 1e-6)
        wanted = min(tied, key=lambda k: preferences[i] @ losses[k])
        assert np.abs(safe[i] - models[wanted]).max() <= 1e-12
        ties += wanted != tied[0]
    assert ties, "a case in which the first of them is always the best would show little"
