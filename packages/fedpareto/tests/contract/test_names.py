"""Clients by name."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import yaml

import fedpareto
from fedpareto.config.errors import BadPreference, UserError
from fedpareto.contract.names import by_client, client_of
from fedpareto.problems.fairness.data_report import data_report
from fedpareto.spec.draft import Draft

NAMES = ["north", "south, east", "west"]


@pytest.mark.parametrize(
    ("text", "client"),
    [("north", 0), ("branch:north", 0), ("east", 1), ("south, east", 1), ("2", 2), ("c2", 2), ("client 0", 0)],
)
def test_a_client_is_found_by_name_value_or_number(text, client):
    assert client_of(text, NAMES, range(3)) == client


def test_what_is_no_client_is_told():
    with pytest.raises(UserError, match="unknown client 'nort'; did you mean 'north'"):
        client_of("nort", NAMES, range(3))
    with pytest.raises(UserError, match="there is no client 7; clients here have numbers, from 0 to 2"):
        client_of("7", (), range(3))
    with pytest.raises(UserError, match="for client number n write cn, for a name COLUMN:NAME"):
        client_of("1", ["2", "3", "1"], range(3))
    assert client_of("c1", ["2", "3", "1"], range(3)) == 1
    assert client_of("ward:1", ["2", "3", "1"], range(3)) == 2


def test_everyone_has_one_preference():
    assert by_client({"west": 1, "*": 2}, NAMES, 3) == [2, 2, 1]
    with pytest.raises(BadPreference, match=r"south, east and 1 more has none; give all others one by \*="):
        by_client({"north": 1}, NAMES, 3)
    with pytest.raises(BadPreference, match="client 0 is given two"):
        by_client({"north": 1, "c0": 1, "*": 2}, NAMES, 3)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    stream = np.random.default_rng(0)
    branch = np.repeat(["north", "south", "west"], [300, 200, 100])
    columns = {"x": stream.normal(size=600), "sex": stream.choice(["f", "m"], 600), "branch": branch}
    path = tmp_path_factory.mktemp("names") / "people.csv"
    pandas.DataFrame(columns | {"hired": stream.integers(0, 2, 600)}).to_csv(path, index=False)
    return {"name": "table", "file": str(path), "label": "hired", "sensitive": "sex", "partition": "column:branch"}


@pytest.mark.parametrize(
    "given",
    [
        "west=0.9,0.1;branch:north=0.2,0.8;*=0.5,0.5",
        {"west": [0.9, 0.1], "north": [0.2, 0.8], "*": [0.5, 0.5]},
    ],
)
def test_branches_have_the_preferences_that_they_are_given(table, given):
    spec = Draft({"problem": table, "preferences": given}).finish()
    assert spec.preferences_of(0).tolist() == [[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]
    assert Draft(yaml.safe_load(spec.to_yaml())).finish() == spec


def test_bad_ones_are_one_line(table):
    for given, words in {
        "west=0.9,0.2;*=0.5,0.5": "client 2: weights sum to 1.1",
        "west=0.9,0.1;0.5,0.5": "'0.5,0.5' is not one client's, as in north=0.9,0.1;south=0.2,0.8",
        "west:0.9,0.1": "For one client's own write west=0.9,0.1",
        "west=much;*=0.5,0.5": "'much' is not a number",
    }.items():
        with pytest.raises(UserError) as refused:
            Draft({"problem": table, "preferences": given}).finish()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_the_report_lists_clients_in_order_and_a_model_is_found_by_name(table, tmp_path):
    problem = Draft({"problem": table}).finish().problem
    assert "          0 north (60), 1 south (40), 2 west (20)" in data_report(problem).lines()
    run = tmp_path / "run"
    fedpareto.run(problem, "local", rounds=1, preferences="west=0.9,0.1;*=0.5,0.5", out=run)
    model = fedpareto.load(run)
    assert model.conditioned("west").card.client == 2
    with pytest.raises(UserError, match="unknown client 'wet'; did you mean 'west'"):
        model.conditioned("wet")


def test_dir_lists_what_is_public():
    assert {"run", "table", "load", "UserError"} <= set(dir(fedpareto))
    assert not {"Any", "annotations", "import_module"} & set(dir(fedpareto))
