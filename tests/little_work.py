"""Algorithms with less to do, for tests of rules that hold for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

LITTLE_WORK = {
    "praffl": {"body_epochs": 1, "head_epochs": 2, "sampled": 4},
    "fedrep": {"head_epochs": 1},
    "mofld": {"training_rounds": 1, "samples": 3},
    "client-mofld": {"training_rounds": 1, "samples": 2},
}
"""Parameters of algorithms that would take long otherwise, or whose rounds come in blocks; the rules are the same."""

FEW = ("fedavg", "fedavg+ft", "fedpref", "ditto", "fedmgda-plus", "fedcmoo")
"""Their messages differ: means, clusters, private models, weights of clients, gradients of several objectives."""


def few_of(names: Iterable[str]) -> list[Any]:
    """A few of these algorithms for `make test`, and all of them in CI."""
    return [pytest.param(name, marks=[pytest.mark.takes_long] * (name not in FEW)) for name in names]
