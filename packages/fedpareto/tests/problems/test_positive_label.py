"""Which value of a label counts as 1: it is chosen by a rule that can be told, and told wherever a run is."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas
import pytest

import fedpareto
from fedpareto.contract.outputs import Output
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.fairness.tables import choose
from fedpareto.problems.synthetic import Synthetic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from typer.testing import CliRunner

    from fedpareto.cli import app


def people(label, rows=300):
    stream = np.random.default_rng(1)
    return pandas.DataFrame(
        {
            "age": stream.integers(20, 70, rows),
            "gender": stream.choice(["f", "m"], rows),
            "label": np.asarray(label)[stream.integers(0, len(label), rows)],
        }
    )


@pytest.mark.parametrize(
    ("values", "positive", "is_plain"),
    [
        ([0, 1], 1, True),
        ([-1.0, 1.0], 1.0, True),
        ([False, True], True, True),
        (["No", "Yes"], "Yes", True),
        (["+", "-"], "+", True),
        (["high", "low"], "high", True),
        (["bad", "good"], "good", True),
        (["hired", "not hired"], "hired", True),
        (["<=50K", ">50K"], ">50K", True),
        ([1, 2], 2, False),
        (["A", "B"], "B", False),
        (["cat", "dog"], "dog", False),
    ],
)
def test_a_value_that_says_so_is_positive_and_else_the_last_one_which_is_told(values, positive, is_plain):
    choice = choose(values)
    assert (choice.value, choice.is_plain) == (positive, is_plain)
    assert choice.is_plain or "last in ascending order" in choice.why


def test_the_classes_are_the_columns_own_values():
    table = tables.labelled(people([1.0, 2.0]), "label", "", "x.csv")
    assert table.output == Output("label", ("1", "2"))
    assert (table.label == (table.frame["label"] == 2)).all()
    assert tables.labelled(people([1, 2]), "label", "1", "x.csv").output.classes == ("2", "1")
    assert tables.labelled(people(["a", "b", "c"]), "label", "b", "x.csv").output.classes == ("not b", "b")


def test_every_fairness_problem_says_what_it_predicts(tmp_path):
    frame = people(["good", "bad"])
    frame.to_csv(tmp_path / "people.csv", index=False)
    table = OwnTable(file=str(tmp_path / "people.csv"), label="label", sensitive=("gender",))
    (tmp_path / "schema.json").write_text(TableSchema.of(frame, "label", ["gender"]).to_json())
    silo = Silo(schema=str(tmp_path / "schema.json"), sensitive=("gender",))
    assert table.outputs() == silo.outputs() == (Output("label", ("bad", "good")),)
    assert Synthetic().outputs() == (Output("y", ("0", "1")),)


def test_a_run_records_and_shows_which_value_is_positive(tmp_path):
    people([1, 2]).to_csv(tmp_path / "credit.csv", index=False)
    problem = OwnTable(file=str(tmp_path / "credit.csv"), label="label", sensitive=("gender",))
    fedpareto.run(problem, "fedavg", clients=2, rounds=1, out=tmp_path / "run")
    (output,) = json.loads((tmp_path / "run/run.json").read_text())["outputs"]
    assert (output["name"], output["classes"]) == ("label", ["1", "2"])
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run")], env={"COLUMNS": "200"}).output
    assert "label: 2 counts as positive (1), 1 as negative (0)" in shown
