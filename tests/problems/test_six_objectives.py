"""Six objectives on Adult through every algorithm, metric, table and figure, without special cases."""

from __future__ import annotations

import json

import numpy as np
import pytest
from six_goals import SIX

import fedpareto
from fedpareto.core.registry import FINE_TUNED, algorithms, make_algorithm
from fedpareto.problems.fairness.benchmarks import Adult
from fedpareto.report.page import write_comparison
from fedpareto.report.record import load
from fedpareto.report.tables import comparison

VARIANTS = [name + ending for name in algorithms() for ending in ("", FINE_TUNED)]
LITTLE_WORK = {"fedrep": {"head_epochs": 1}}
CLIENTS, ROUNDS = 4, 2
AT_ONCE = {"threads": 1, "chunk": CLIENTS}
"""Seventy short runs need not measure how to stack four clients."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, published):
    """The folder of a short run of every algorithm, plain and fine-tuned."""
    published("adult")
    problem = Adult(goals=SIX, hidden=(8,))
    folders = {}
    for name in VARIANTS:
        folders[name] = tmp_path_factory.mktemp("six") / name
        algorithm = make_algorithm(name, LITTLE_WORK.get(name.removesuffix(FINE_TUNED)))
        run = {"clients": CLIENTS, "rounds": ROUNDS, "learner": {"steps": 3}, "engine": AT_ONCE}
        fedpareto.run(problem, algorithm, out=folders[name], **run)
    return folders


@pytest.mark.parametrize("name", VARIANTS)
def test_every_algorithm_gives_six_values_to_every_client_and_every_metric_a_number(name, runs):
    record = load(runs[name])
    assert [objective.name for objective in record.objectives] == list(SIX)
    (solution,) = record.solutions
    # MOFL/D's solutions are a front of its own, not one for each client.
    count = len(solution.clients) if name == "mofld" else CLIENTS
    assert count
    assert record.pooled().shape == (count, 6)
    assert ((record.pooled() >= 0) & (record.pooled() <= 1)).all()
    indicators = json.loads((runs[name] / "solutions.json").read_text())[0]["indicators"]
    assert 0 < indicators["hypervolume"] < 1
    assert all(np.isfinite(value) for value in indicators.values())
    assert solution.seed == 0


def test_one_table_and_one_page_show_all_of_them(runs, tmp_path):
    table = comparison([load(folder) for folder in runs.values()])
    assert all(name in table.to_markdown() for name in VARIANTS)
    page = write_comparison(list(runs.values()), tmp_path)
    text = page.read_text()
    assert all(name in text for name in (*VARIANTS, *SIX))
    for picture in ("fronts", "hypervolume"):
        assert list(tmp_path.glob(f"*{picture}*.png")), sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fedpref", "cfl", "fedcmoo"])
def test_every_single_page_is_drawn(name, runs, tmp_path):
    assert write_comparison([runs[name]], tmp_path).exists()
    drawn = sorted(path.stem for path in tmp_path.glob("*.png"))
    assert len(drawn) >= (4 if name != "fedcmoo" else 2), drawn
    assert all(path.stat().st_size > 5_000 for path in tmp_path.glob("*.png"))
