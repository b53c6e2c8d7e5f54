"""Two finished runs to serve: one whose models follow a preference, one with a model for each client."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedpareto
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.problems.synthetic import Synthetic

ENGINE = {"threads": 1, "chunk": 64}


@pytest.fixture(scope="session")
def praffl_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "praffl"
    fedpareto.run(
        Synthetic(partition="fedfb", hidden=(8, 6, 4)),
        PraFFL(body_epochs=1, head_epochs=1, sampled=4, hypernetwork=(8, 8)),
        clients=3,
        rounds=2,
        seeds=2,
        learner={"epochs": 1},
        engine=ENGINE,
        out=folder,
    )
    return folder


@pytest.fixture(scope="session")
def fedpref_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "fedpref"
    problem = Synthetic(hidden=(8, 4))
    fedpareto.run(
        problem,
        "fedpref",
        clients=5,
        rounds=2,
        preferences="equidistant",
        learner={"epochs": 1},
        engine=ENGINE,
        out=folder,
    )
    return folder
