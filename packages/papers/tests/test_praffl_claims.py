"""PraFFL's claims: each holds on runs made for it, fails on their opposite, and says when seeds do not suffice."""

from __future__ import annotations

import numpy as np

from fedpareto_papers.praffl import published
from fedpareto_papers.praffl import reproduction as praffl
from fedpareto_papers.praffl.reproduction import Solved, Variant

NOISE = (0.0, 0.001, -0.001)


def found(data, label, errors, noise=NOISE):
    """A run whose seeds have one solution without a gap after each round, with these errors, a little apart."""
    algorithm = label if label in published.ALGORITHMS else published.PRAFFL
    points = [[np.array([[error * (1 + shift), 0.0, 0.0]]) for error in errors] for shift in noise]
    return Solved(Variant(data, label, algorithm), points)


def verdict(name, *runs):
    return {claim.name: claim.verdict for claim in praffl.verdicts(name, runs)}


def test_the_best_hypervolume_that_grows():
    good = found("adult", "praffl", [0.5, 0.4, 0.2])
    assert verdict("praffl-table-1", good, found("adult", "fedfb", [0.5, 0.3, 0.3])) == {
        "praffl-largest": "holds",
        "praffl-grows": "holds",
    }
    worse = found("bank", "praffl", [0.5, 0.2, 0.4])
    assert verdict("praffl-fig-6", worse, found("bank", "fairfed", [0.5, 0.3, 0.3])) == {
        "praffl-largest": "does not hold",
        "praffl-grows": "does not hold",
    }
    alone = verdict("praffl-fig-7", found("adult", "praffl", [0.5, 0.4]))
    assert set(alone.values()) == {"cannot be judged"}


def test_seeds_that_disagree_judge_nothing():
    wild = found("adult", "praffl", [0.5, 0.4, 0.29], noise=(0.1, -0.12, 0.0))
    assert verdict("praffl-table-1", wild, found("adult", "fedfb", [0.5, 0.3, 0.3]))["praffl-largest"] == (
        "cannot be judged"
    )


def test_heterogeneity_and_epochs():
    levels = [found(f"synthetic-{level}", "praffl", [0.5, error]) for level, error in (("low", 0.1), ("high", 0.3))]
    assert verdict("praffl-fig-8", *levels, found("synthetic-medium", "praffl", [0.5, 0.4])) == {
        "praffl-heterogeneity": "holds in part"
    }
    epochs = [found("compas", f"tau_p-{tau}", [0.5, 0.01 * tau]) for tau in published.HEAD_EPOCHS_TRIED]
    assert verdict("praffl-fig-9", *epochs) == {"praffl-epochs": "holds"}
    assert verdict("praffl-fig-10", *epochs) == {}
