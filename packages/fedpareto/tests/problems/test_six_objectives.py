"""Six objectives through every algorithm, metric, table and figure, without special cases."""

from __future__ import annotations

import json

import numpy as np
import pytest
from six_goals import SIX

import fedpareto
from fedpareto.contract.registry import FINE_TUNED, algorithms, make_algorithm, parted
from fedpareto.problems.fairness.benchmarks import Adult, OwnTable
from fedpareto.record.reading import load
from fedpareto.report.comparison import comparison
from fedpareto_page.comparison import write_comparison
from little_work import LITTLE_WORK

pytestmark = pytest.mark.takes_long
VARIANTS = [*algorithms(), *(name + FINE_TUNED for name in ("fedavg", "fedpref", "praffl")), "praffl+safe"]
ON_THE_PAGE = ("fedcmoo", "fedavg+ft", "mofld")
CLIENTS, ROUNDS, ROWS = 4, 2, 600
AT_ONCE = {"threads": 1, "chunk": CLIENTS}
"""Seventy short runs need not measure how to stack four clients."""
FRONTS = ("client-mofld", "dmoead", "mofld")
"""What has a front of its own instead of a solution for each client."""
PLAIN_STEPS = ("scaffold",)
"""What takes a client's mean gradient from its steps, which Adam's do not tell."""


def short_run(problem, name, out):
    """The folder of a short run."""
    algorithm = make_algorithm(name, LITTLE_WORK.get(parted(name)[0]))
    learner = {"steps": 3} | ({"optimiser": "sgd"} if name in PLAIN_STEPS else {})
    run = {"clients": CLIENTS, "rounds": ROUNDS, "learner": learner, "engine": AT_ONCE}
    fedpareto.run(problem, algorithm, out=out, **run)
    return out


@pytest.fixture(scope="module")
def small_adult(tmp_path_factory):
    """A table of made-up people with Adult's two sensitive attributes; every group of every client has both labels."""
    random = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("table") / "people.csv"
    lines = ["gender,race,age,hours,income"]
    for _ in range(ROWS):
        gender, race = random.integers(2), random.integers(2)
        age, hours = random.integers(18, 70), random.normal(40, 8)
        income = (age - 44) / 26 + (hours - 40) / 8 + 0.5 * gender + 0.3 * race + random.normal() > 0.4
        lines.append(f"{'fm'[gender]},{'bw'[race]},{age},{hours:.1f},{'high' if income else 'low'}")
    file.write_text("\n".join(lines), encoding="utf-8")
    columns = {"label": "income", "positive": "high", "sensitive": ("gender", "race")}
    return OwnTable(file=str(file), goals=SIX, hidden=(8,), server_share=0.1, **columns)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, small_adult):
    """The folder of a short run of every algorithm, and of some that are fine-tuned."""
    return {name: short_run(small_adult, name, tmp_path_factory.mktemp("six") / name) for name in VARIANTS}


def values_for_everyone(folder, name):
    """Six values for every client and a number from every metric."""
    record = load(folder)
    assert [objective.name for objective in record.objectives] == list(SIX)
    (solution,) = record.solutions
    count = len(solution.clients) if name in FRONTS else CLIENTS
    assert count
    assert record.pooled().shape == (count, 6)
    assert ((record.pooled() >= 0) & (record.pooled() <= 1)).all()
    indicators = json.loads((folder / "solutions.json").read_text())[0]["indicators"]
    assert 0 < indicators["hypervolume"] < 1
    assert all(np.isfinite(value) for value in indicators.values())
    assert solution.seed == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_every_algorithm_gives_six_values_to_every_client_and_every_metric_a_number(name, runs):
    values_for_everyone(runs[name], name)


@pytest.mark.needs_data("adult")
@pytest.mark.parametrize("name", ["fedpref", "fedcmoo"])
def test_so_it_is_on_adult(name, tmp_path):
    values_for_everyone(short_run(Adult(goals=SIX, hidden=(8,)), name, tmp_path / "run"), name)


def test_one_table_shows_all_of_them_and_one_page_any_of_them(runs, tmp_path):
    table = comparison([load(folder) for folder in runs.values()])
    assert all(name in table.to_markdown() for name in VARIANTS)
    page = write_comparison([runs[name] for name in ON_THE_PAGE], tmp_path, figures=True)
    text = page.read_text()
    assert all(name in text for name in (*ON_THE_PAGE, *SIX))
    for picture in ("fronts", "hypervolume"):
        assert list(tmp_path.glob(f"*{picture}*.png")), sorted(path.name for path in tmp_path.iterdir())


def test_the_page_of_a_single_run_has_all_its_pictures(runs, tmp_path):
    assert write_comparison([runs["fedpref"]], tmp_path, figures=True).exists()
    drawn = sorted(path.stem for path in tmp_path.glob("*.png"))
    assert len(drawn) >= 4, drawn
    assert all(path.stat().st_size > 5_000 for path in tmp_path.glob("*.png"))
