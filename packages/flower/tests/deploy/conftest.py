"""These tests need the extra `flower`: without it they are left out, but in CI they fail."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("flwr") is None and os.environ.get("CI", "").lower() not in ("1", "true"):
    collect_ignore_glob = ["test_*.py"]
else:
    with warnings.catch_warnings():
        # What the libraries under Flower warn of on import is not ours to mend.
        warnings.simplefilter("ignore")
        import flwr.serverapp  # noqa: F401

COLUMNS = "hired,gender,age,score,town"


def rows(count, seed):
    """Made-up people: who is hired depends on score and gender."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        score, gender = random.normal(), random.choice(["f", "m"])
        hired = "yes" if score + (gender == "m") + random.normal() > 0.5 else "no"
        yield f"{hired},{gender},{random.integers(18, 65)},{score:.9f},{random.choice(['north', 'south', 'east'])}"


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A sample, and the tables of three parties."""
    folder = tmp_path_factory.mktemp("tables")
    for seed, (name, count) in enumerate({"sample": 200, "a": 240, "b": 240, "c": 240}.items()):
        (folder / f"{name}.csv").write_text("\n".join([COLUMNS, *rows(count, seed)]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def schema(tables):
    from fedpareto.problems.fairness.schema import TableSchema
    from fedpareto.problems.fairness.sources import Source

    return TableSchema.of(Source(str(tables / "sample.csv")).of_party(), "hired", ["gender"])


@pytest.fixture
def deployment(tmp_path, schema):
    """A deployment of three nodes that nobody has started."""
    from fedpareto.spec.draft import Draft
    from fedpareto_flower.deploy.create import create

    return create(tmp_path / "federation", schema, Draft({"rounds": 3}), [], 3, "127.0.0.1", 18443)
