"""Raw rows become the same inputs as in training, without the data; what does not fit is said."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.contract.registry import problem_class
from fedpareto.inputs.images_texts import inputs_from_json
from fedpareto.inputs.table import MISSING, NUMBER, VALUE, Input, InputSchema
from fedpareto.problems.fairness.schema import TableSchema

SCHEMA = InputSchema(
    (
        Input("age", NUMBER, mean=40.0, scale=0.1),
        Input("age", MISSING),
        Input("hours", NUMBER),
        Input("sex", VALUE, value="Female"),
        Input("sex", VALUE, value="Male"),
        Input("code", VALUE, value="1"),
        Input("code", VALUE, value="2", scale=0.0),
        Input("code", MISSING),
    )
)
ROW = {"age": 50, "hours": "3", "sex": "Male", "code": 1}


@pytest.mark.parametrize("name", ["adult", "law-school", "credit-default", "compas", "bank"])
def test_a_published_table_is_encoded_as_in_training(name, published):
    published(name)
    problem = problem_class(name)()
    schema = problem.input_schema(7, 3)
    again = InputSchema.from_json(json.loads(json.dumps(schema.to_json())), "here")
    assert again == schema
    table = problem.data(7, 3)["test"]
    text = problem._table.frame.to_csv(index=False)
    rows = list(csv.DictReader(io.StringIO(text)))
    _, part = problem._partitioned(7, 3)
    expected = problem._encoding(part == 0)(np.arange(len(part)))["features"].numpy()
    assert np.array_equal(schema.encode(rows).features, expected)
    assert expected.shape[1] == table.columns["features"].shape[1]


def test_a_federations_schema_is_encoded_alike(published):
    frame = published("compas").table().frame
    schema = TableSchema.of(frame, "two_year_recid", ["race"])
    rows = list(csv.DictReader(io.StringIO(frame.to_csv(index=False))))
    np.testing.assert_allclose(schema.inputs().encode(rows).features, schema.encode(frame), atol=1e-6)


@pytest.mark.parametrize("name", ["synthetic", "adult", "bank", "table", "convex"])
def test_a_schema_has_as_many_inputs_as_the_model_reads(name, published, tmp_path):
    if name in ("adult", "bank"):
        published(name)
    (tmp_path / "people.csv").write_text("age,sex,hired\n" + "30,m,1\n40,f,0\n50,m,0\n20,f,1\n" * 10)
    own = {"file": str(tmp_path / "people.csv"), "label": "hired", "sensitive": ("sex",)}
    variants = {"synthetic": [{}, {"sees_group": True}], "table": [own, own | {"drop": ("age",)}]}
    for parameters in variants.get(name, [{}]):
        problem = problem_class(name)(**parameters)
        schema = problem.input_schema(2, 0)
        if name == "convex":
            assert schema is None
        else:
            assert len(schema.inputs) == problem.model.inputs


def test_by_hand():
    encoded = SCHEMA.encode([ROW, {"age": None, "hours": True, "sex": "?", "code": ""}])
    assert encoded.features.tolist() == [[1, 0, 3, 0, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0, 0, 1]]
    assert encoded.unseen == {"sex": 1}, "no training row lacked its sex"


@pytest.mark.parametrize("code", ["1", "1.0", 1, 1.0, True and "1"])
def test_a_code_is_the_same_however_it_is_written(code):
    assert SCHEMA.encode([ROW | {"code": code}]).features[0, 5] == 1


def test_values_that_no_training_row_had_are_counted():
    rows = [ROW | {"sex": "other"}, ROW | {"code": 2}, ROW | {"code": "x" * 1000}, ROW | {"hours": None}]
    encoded = SCHEMA.encode(rows)
    assert encoded.unseen == {"hours": 1, "sex": 1, "code": 2}
    assert not encoded.features[0, 3:5].any()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW, ROW | {"age": "old"}], "row 2: 'age' is 'old', not a number"),
        ([ROW | {"age": [1]}], r"row 1: 'age' is '\[1\]', not a number"),
        ([ROW | {"hours": "1e300"}], "row 1: 'hours' is too large a number"),
        ([{k: v for k, v in ROW.items() if k != "age"} | {"aeg": 3}], "row 1 has no column 'age'; is 'aeg' meant?"),
        ([{}], "row 1 has no column 'age'; needed are age, hours, sex, code"),
    ],
)
def test_what_does_not_fit_is_said(rows, words):
    with pytest.raises(UserError, match=words):
        SCHEMA.encode(rows)


@pytest.mark.parametrize("plain", [None, 3, [], {}, {"kind": "table"}, {"kind": "other"}])
def test_what_is_no_schema_is_refused(plain):
    with pytest.raises(DamagedFile, match=r"inputs\.json"):
        inputs_from_json(plain, "inputs.json")


@pytest.mark.parametrize("entries", [None, 3, [], [{}], [{"column": "a", "kind": "b"}], [{"column": "a"}], ["a"]])
def test_a_damaged_schema_is_refused(entries):
    with pytest.raises(DamagedFile, match=r"inputs\.json"):
        inputs_from_json({"kind": "table", "inputs": entries, "marks": {"missing": [], "decimal": "."}}, "inputs.json")
