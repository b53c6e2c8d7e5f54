"""A schema stands for a table, and a party's table is checked and encoded by it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.fairness.sources import Source
from fedpareto.testing.conformance import PROBLEM_CHECKS


@pytest.fixture
def table(tables):
    return Source(str(tables / "a.csv")).of_party().copy()


@pytest.fixture
def silo(schema, tables, tmp_path):
    (tmp_path / "schema.json").write_text(schema.to_json(), encoding="utf-8")
    return Silo(schema=str(tmp_path / "schema.json"), file=str(tables / "a.csv"), sensitive=("gender",))


def test_a_schema_survives_its_file(schema, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(schema.to_json(), encoding="utf-8")
    assert TableSchema.read(path) == schema
    assert TableSchema.read(path).fingerprint == schema.fingerprint


def test_another_mean_is_another_fingerprint(schema):
    first, *others = schema.columns
    changed = dataclasses.replace(schema, columns=(dataclasses.replace(first, mean=first.mean + 1e-9), *others))
    assert changed.fingerprint != schema.fingerprint


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "label": "x"}', "\0"])
def test_a_damaged_file_is_refused(text, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DamagedFile):
        TableSchema.read(path)


def test_a_fitting_table_has_no_problems(schema, table):
    assert schema.problems(table) == []


def broken(table, kind):
    if kind == "missing column":
        return table.drop(columns="age")
    if kind == "extra column":
        return table.assign(salary=1)
    if kind == "text among numbers":
        return table.assign(age=table["age"].astype(object).where(table.index != 7, "old"))
    if kind == "label":
        return table.assign(hired=table["hired"].astype(object).where(table.index != 3, "perhaps"))
    if kind == "one label":
        return table.assign(hired="yes")
    if kind == "group":
        return table.assign(gender=table["gender"].astype(object).where(table.index != 5, "x"))
    if kind == "other texts":
        return table.assign(town="Atlantis")
    return table.head(10)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("missing column", "the column 'age' is missing"),
        ("extra column", "the column 'salary' is not in the federation's schema; leave it out with --ignore 'salary'"),
        ("text among numbers", "the column 'age' has 1 value that is not a number (first in line 9)"),
        ("label", "the label 'hired' has values other than 'no' and 'yes' (first in line 5)"),
        ("one label", "the label 'hired' has one value only; there is nothing to learn"),
        ("group", "the sensitive column 'gender' has values of no group (f, m) (first in line 7)"),
        ("other texts", "100% of the values of 'town' are not in the federation's schema (first in line 2)"),
        ("too few rows", "it has 10 rows; at least 30 are needed"),
    ],
)
def test_each_problem_of_a_table_is_a_line_without_its_values(schema, table, kind, line):
    found = schema.problems(broken(table, kind))
    assert line in found
    assert not any(value in " ".join(found) for value in ("old", "perhaps", "Atlantis"))


def test_all_problems_are_told_at_once(schema, table):
    assert len(schema.problems(broken(broken(table, "missing column"), "extra column"))) == 2


def test_an_unknown_text_counts_as_none_of_those_known(schema, table):
    changed = table.assign(town=table["town"].astype(object).where(table.index != 0, "Atlantis"))
    assert schema.problems(changed) == []
    first = schema.encode(changed)[0]
    assert first[-3:].tolist() == [0, 0, 0]
    assert schema.encode(table)[0][-3:].sum() == 1


def test_encoding_uses_the_samples_statistics_and_not_the_partys_own(schema, table, tables):
    sample = Source(str(tables / "sample.csv")).of_party()
    expected = (table["age"] - sample["age"].mean()) / sample["age"].std(ddof=0)
    column = [column.name for column in schema.columns].index("age")
    place = sum(one.width for one in schema.columns[:column])
    assert np.allclose(schema.encode(table)[:, place], expected, atol=1e-6)


def test_missing_values_are_said_to_be_missing_where_the_sample_had_some(tables):
    sample = Source(str(tables / "sample.csv")).of_party().assign(age=lambda frame: frame["age"].where(frame.index > 2))
    schema = TableSchema.of(sample, "hired", ["gender"])
    encoded = schema.encode(sample)
    assert encoded.shape[1] == schema.width
    assert encoded[:3, 3].tolist() == [1, 1, 1]
    assert encoded[3:, 3].sum() == 0


def test_whole_numbers_and_their_texts_are_the_same_label(tables):
    sample = (
        Source(str(tables / "sample.csv")).of_party().assign(hired=lambda frame: (frame["hired"] == "yes").astype(int))
    )
    schema = TableSchema.of(sample, "hired", ["gender"])
    assert schema.labels == ("0", "1")
    as_float = sample.assign(hired=sample["hired"].astype(float))
    assert schema.problems(as_float) == []
    assert schema.labelled(as_float, "x").label.tolist() == sample["hired"].tolist()


def test_a_rule_makes_two_groups_for_every_party(tables, table):
    sample = Source(str(tables / "sample.csv")).of_party()
    schema = TableSchema.of(sample, "hired", ["age"], privileged={"age": "age>=40"})
    groups = schema.groups(schema.labelled(table, "x"), "age")
    assert groups.codes.tolist() == (table["age"] >= 40).astype(int).tolist()


def test_csv_and_parquet_are_read_alike(silo, table, tmp_path):
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "a.parquet")
    other = dataclasses.replace(silo, file=str(tmp_path / "a.parquet"))
    for part, expected in silo.data(1, 0).items():
        assert (other.data(1, 0)[part].columns["features"] == expected.columns["features"]).all()


@pytest.mark.parametrize("check", PROBLEM_CHECKS, ids=lambda check: check.__name__)
def test_a_silo_keeps_the_contract_of_problems(silo, check):
    check(silo, 3)


def test_a_server_needs_no_rows(silo):
    at_server = dataclasses.replace(silo, file="")
    assert at_server.layout == silo.layout
    assert at_server.objectives == silo.objectives
    assert (at_server.initial(0) == silo.initial(0)).all()
    with pytest.raises(UserError, match="are at the nodes"):
        at_server.data(1, 0)


def test_a_party_without_one_group_is_told_in_its_own_words(silo, table, tmp_path):
    table[table["gender"] == "f"].to_csv(tmp_path / "women.csv", index=False)
    with pytest.raises(UserError, match=r"women.csv has no row of m in .* unmeasured=worst"):
        dataclasses.replace(silo, file=str(tmp_path / "women.csv")).data(1, 0)


def test_columns_of_dates_and_names_are_refused_with_the_way_out(tables):
    sample = Source(str(tables / "sample.csv")).of_party()
    named = sample.assign(name=[f"person {i}" for i in range(len(sample))])
    with pytest.raises(UserError, match="--drop name"):
        TableSchema.of(named, "hired", ["gender"])
    schema = TableSchema.of(named, "hired", ["gender"], ignored=["name"])
    assert schema.problems(named) == []
    assert schema.problems(sample) == []
