"""The federation that plain loops see: its gradients, its faults, and that a difference is found."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from plain_federation import CLIENTS, FAULTS, PARTICIPATION, ROUNDS, SEED, Plain, agrees
from plain_problem import LARGEST, SMALLEST, Answers

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import algorithms
from fedpareto.tensors.rows import Batch

PROBLEM = Answers(goals=3)


@pytest.fixture(scope="module")
def plain():
    federation = Federation.create(PROBLEM, CLIENTS, SEED, "dirichlet")
    return Plain(PROBLEM, PROBLEM.learner(), federation, federation.setting(PROBLEM, ROUNDS, PARTICIPATION), FAULTS)


def test_the_gradients_written_out_are_those_of_autograd(plain):
    theta = torch.as_tensor(plain.initial)[None].requires_grad_()
    for i in plain.clients:
        columns = {name: torch.as_tensor(column)[None] for name, column in plain.rows(i).items()}
        batch = Batch(columns, torch.ones(1, int(plain.sizes[i]), dtype=torch.float64))
        losses = PROBLEM.losses(PROBLEM.layout.unflatten(theta), batch)[0]
        assert np.abs(losses.detach().numpy() - plain.losses(i, plain.initial)).max() <= 1e-12
        for loss, gradient in zip(losses, plain.gradients(i, plain.initial), strict=True):
            (found,) = torch.autograd.grad(loss, theta, retain_graph=True)
            assert np.abs(found[0].numpy() - gradient).max() <= 1e-12


def test_everything_happens_in_the_few_rounds(plain):
    """Clients are left out, drop out, straggle, and come back after each of these; some reply always comes."""
    everyone = set(plain.clients)
    asked, trained, heard = ([set(one(t)) for t in plain.rounds] for one in (plain.asked, plain.trained, plain.heard))
    assert all(len(one) == 5 for one in asked)
    assert sum(len(a - b) for a, b in zip(asked, trained, strict=True)) >= 2
    assert sum(len(a - b) for a, b in zip(trained, heard, strict=True)) >= 3
    assert all(len(one) >= 2 for one in heard)
    assert {len(one) for one in heard} != {len(asked[0])}
    for silent in ([everyone - one for one in asked], [a - b for a, b in zip(trained, heard, strict=True)]):
        assert any(silent[t] & heard[u] for t in range(ROUNDS) for u in range(t + 1, ROUNDS))
    assert SMALLEST <= min(plain.sizes) < max(plain.sizes) / 3 <= LARGEST / 3
    assert len(set(plain.sizes)) >= 5


def fedavg(plain):
    """FedAvg (McMahan et al. 2017, algorithm 1): w ← Σ n_k w_k / Σ n_k over those who replied."""
    model = plain.initial
    for t in plain.rounds:
        heard = plain.heard(t)
        model = np.average([plain.descend(i, model, t) for i in heard], axis=0, weights=plain.sizes[heard])
        yield model


def test_fedavg_is_its_papers_loop():
    agrees(FedAvg(), fedavg)


@dataclass(frozen=True)
class OfAll(FedAvg):
    """Divides by all clients instead of those who replied."""

    def tell(self, state, replies):
        told = super().tell(state, replies)
        return replace(told, model=state.model + (told.model - state.model) * len(replies) / len(state.setting.clients))


def test_a_wrong_denominator_is_found():
    with pytest.raises(AssertionError, match="models after round 1: they differ"):
        agrees(OfAll(), fedavg)


NO_LOOP: dict[str, str] = {}
"""Algorithms that nobody can write as a loop over minibatches, each with the reason."""


def test_every_algorithm_has_a_plain_loop():
    """One that is new needs a loop from its paper, in a file of this folder that compares it by its name."""
    files = Path(__file__).parent.glob("test_plain_*.py")
    words = {
        node.value for file in files for node in ast.walk(ast.parse(file.read_text())) if type(node) is ast.Constant
    }
    missing = [name for name in algorithms() if name not in words and name not in NO_LOOP]
    assert not missing, f"no plain loop in tests/algorithms/plain: {', '.join(missing)}"
    assert not [name for name in NO_LOOP if name in words or name not in algorithms()]
