"""Every registered algorithm, plain and fine-tuned, and some made safe, keeps every rule of the contract."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from fedpareto.contract.registry import algorithms, make_algorithm
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.testing.conformance import ALGORITHM_CHECKS, EXACT, SINGLE, largest_difference, small_problem, trial
from little_work import LITTLE_WORK

FINE_TUNED = [
    pytest.param(f"{name}+ft", marks=[pytest.mark.takes_long] * (name not in ("fedavg", "fedpref")))
    for name in algorithms()
]
NAMES = [*algorithms(), *FINE_TUNED, "fedavg+safe", pytest.param("fedpref+safe", marks=pytest.mark.takes_long)]


@functools.cache
def subject(name):
    """The algorithm and a small problem, one of each for all checks: they share its trials."""
    algorithm = make_algorithm(name, LITTLE_WORK.get(name.removesuffix("+ft"), {}))
    return algorithm, small_problem(algorithm)


@pytest.mark.parametrize("check", ALGORITHM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_algorithm_keeps_the_contract(name, check):
    check(*subject(name))


@pytest.mark.parametrize("name", ["fedpref", "fedavg", "local"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", EXACT), ("float32", SINGLE)])
def test_stack_equals_loop_for_a_network_with_unequal_clients(name, precision, tolerance):
    problem = Synthetic(partition="dirichlet", alpha=0.7, hidden=(16, 8))
    learner = replace(problem.learner(), epochs=1)
    whole, loop = (
        trial(
            make_algorithm(name, {}),
            problem,
            precision=precision,
            participation=0.7,
            chunk=chunk,
            learner=learner,
            rounds=2,
        ).models
        for chunk in (7, 1)
    )
    assert largest_difference(whole, loop) <= tolerance


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_stack_equals_loop_with_momentum_and_adam(optimiser):
    problem = Convex(unequal=True)
    learner = replace(problem.learner(), optimiser=optimiser, momentum=0.9, weight_decay=0.01, epochs=2)
    whole, loop = (
        trial(make_algorithm("fedavg", {}), problem, learner=learner, chunk=chunk).models for chunk in (7, 1)
    )
    assert largest_difference(whole, loop) <= EXACT
