"""A served model is the trained one, for one preference and for many, from a run and from a file."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedpareto
from fedpareto.config.errors import BadPreference, UserError
from fedpareto.contract.model_parts import lattice
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective
from fedpareto.problems.synthetic import Synthetic
from fedpareto.record.servable import Card
from fedpareto.tensors.layout import Layout
from fedpareto_serve import files, onnx_network
from fedpareto_serve.models import OneOfMany, decided
from fedpareto_serve.predictions import predict

PREFERENCES = np.random.default_rng(0).dirichlet([1, 1], 50)
ROWS = torch.as_tensor(np.random.default_rng(1).standard_normal((50, 2)), dtype=torch.float32) * 3
BAD = [
    ([0.5, 0.3, 0.2], "3 weights instead of 2"),
    ([1.0], "1 weight instead of 2"),
    ([], "0 weights instead of 2"),
    ([-0.2, 1.2], "cannot be negative"),
    ([0.7, 0.4], "sum to 1.1, not 1"),
    ([0.7, 0.3001], "not 1"),
    ([float("nan"), 1.0], "not a finite number"),
    ([float("inf"), 0.0], "not a finite number"),
    ([10**400, 0], "not a list of numbers"),
    (["much", "little"], "not a list of numbers"),
    (None, "list of numbers"),
    ([[0.5, 0.5]] * 3, "there are 3 preferences for 50 rows"),
    ([[0.5, 0.5]] * 49 + [[0.5, 0.6]], "row 50: weights sum to 1.1"),
    ([[0.5, 0.5]] * 49 + [[1.0]], "row 50: 1 weight instead of 2"),
]


def saved_model(folder, seed, client):
    return load_file(folder / "models.safetensors")[f"seed{seed}/client{client}"]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("client", [0, 2])
def test_at_a_clients_own_preference_it_is_the_model_that_praffl_made(praffl_run, seed, client):
    run = fedpareto.load(praffl_run)
    own = run.solutions[seed].preferences[client]
    model = run.conditioned(client, seed=seed)
    flat = saved_model(praffl_run, seed, client)
    torch.testing.assert_close(model.at(own), flat, rtol=1e-5, atol=1e-6)
    problem = Synthetic(hidden=(8, 6, 4))
    expected = problem.model(problem.layout.unflatten(flat[None]), ROWS[None])[0, :, 0]
    torch.testing.assert_close(model.logits(ROWS, own), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(ROWS, own), torch.sigmoid(expected), rtol=1e-5, atol=1e-5)


def test_many_preferences_in_one_call_equal_one_call_for_each(praffl_run):
    model = fedpareto.load(praffl_run).conditioned(1)
    together = model(ROWS, PREFERENCES)
    one_by_one = torch.cat([model(ROWS[i : i + 1], PREFERENCES[i]) for i in range(len(ROWS))])
    torch.testing.assert_close(together, one_by_one, rtol=1e-5, atol=1e-6)
    assert together.std() > 0


def test_another_preference_is_another_model(praffl_run):
    model = fedpareto.load(praffl_run).conditioned(0)
    assert (model(ROWS, [0.95, 0.05]) - model(ROWS, [0.05, 0.95])).abs().max() > 1e-4


def test_the_front_is_what_the_models_are_worth_on_the_clients_own_test_rows(praffl_run):
    model = fedpareto.load(praffl_run).conditioned(2)
    problem = Synthetic(partition="fedfb", hidden=(8, 6, 4))
    test = problem.data(3, 0)["test"].of_client(2)
    assert len(model.points) == len(lattice(2)) == 101
    for point in model.points[::25]:
        accuracy = ((model(test["features"], point.preference) > 0.5) == (test["label"] > 0.5)).float().mean()
        assert accuracy.item() == pytest.approx(point.values[0], abs=1e-5)
    assert any(point.on_front for point in model.points)


@pytest.mark.parametrize("kind", ["praffl_run", "fedpref_run"])
def test_a_file_gives_the_same_bits_as_the_run(kind, request, tmp_path):
    model = fedpareto.load(request.getfixturevalue(kind)).conditioned(1)
    files.save(model, tmp_path / "model.safetensors")
    again = fedpareto.load(tmp_path / "model.safetensors").conditioned()
    assert again.card == model.card
    assert again.points == model.points
    for preference in (PREFERENCES, PREFERENCES[0]):
        assert torch.equal(again(ROWS, preference), model(ROWS, preference))
    files.save(again, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["praffl_run", "fedpref_run"])
def test_onnx_gives_the_same_answers(kind, request, tmp_path):
    import onnxruntime

    model = fedpareto.load(request.getfixturevalue(kind)).conditioned(1)
    onnx_network.save(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for rows, count in ((1, 1), (7, 1), (7, 7), (1000, 1), (1000, 1000)):
        stream = np.random.default_rng(rows)
        x = (stream.standard_normal((rows, 2)) * 3).astype(np.float32)
        preferences = stream.dirichlet([1, 1], count)
        preferences[0] = [0, 1]
        (found,) = session.run(None, {"x": x, "preference": preferences.astype(np.float32)})
        expected = model(x, preferences if count > 1 else preferences[0]).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert onnx_network.largest_difference(model, tmp_path / "model.onnx") <= 1e-5


@pytest.mark.parametrize(("preference", "words"), BAD, ids=[words for _, words in BAD])
@pytest.mark.parametrize("kind", ["praffl_run", "fedpref_run"])
def test_a_bad_preference_is_refused(kind, preference, words, request):
    model = fedpareto.load(request.getfixturevalue(kind)).conditioned(1)
    with pytest.raises(BadPreference, match=words):
        model(ROWS, preference)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(3, 5), r"shape \[3, 5\]; it should be \[rows, 2\]"),
        (torch.zeros(2), r"shape \[2\]"),
        ([[1.0, float("nan")]], "not finite, first in row 1"),
        ([["a", "b"]], "not a table of numbers"),
    ],
)
def test_bad_rows_are_refused(praffl_run, x, words):
    with pytest.raises(UserError, match=words):
        fedpareto.load(praffl_run).conditioned(1)(x, [0.5, 0.5])


# -- the nearest of many -------------------------------------------------------------------------------------------


def test_the_nearest_preference_is_chosen_and_named(fedpref_run):
    model = fedpareto.load(fedpref_run).conditioned()
    assert [point.preference[0] for point in model.points] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    for weight, client in ((0.1, 0), (0.3, 1), (0.45, 2), (0.7, 3), (0.9, 4)):
        preference = [weight, 1 - weight]
        assert torch.equal(model.at(preference), saved_model(fedpref_run, 0, client))
        assert f"client {client}'s model, which has the nearest preference" in model.describe(preference)
    chosen = model.choice(torch.as_tensor(PREFERENCES))
    distances = np.abs(PREFERENCES[:, None, 0] - np.array([0, 0.25, 0.5, 0.75, 1]))
    assert chosen.tolist() == distances.argmin(1).tolist()
    one_by_one = torch.cat([model(ROWS[i : i + 1], PREFERENCES[i]) for i in range(len(ROWS))])
    torch.testing.assert_close(model(ROWS, PREFERENCES), one_by_one)


def one_of_many(values, preferences, client=None):
    layout = Layout.of({"0.weight": (2, 1), "0.bias": (1,)})
    objectives = Objective("accuracy", maximise=True), Objective("cost")
    card = Card("fedavg", "table", 0, client, objectives, Synthetic().input_schema(1, 0), layout)
    models = torch.arange(len(values) * 3.0).view(-1, 3)
    return OneOfMany(card, list(range(len(values))), models, np.array(values, dtype=float), preferences)


def test_where_preferences_are_secret_the_point_that_serves_best_is_chosen():
    # Costs are large numbers; that must not drown accuracy.
    model = one_of_many([[0.9, 900], [0.8, 200], [0.5, 100], [0.4, 950]], None)
    assert [model.points[i].client for i in model.choice(torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.05, 0.95]]))] == [
        0,
        1,
        2,
    ]
    assert "serves it best: accuracy 0.9, cost 900" in model.describe([1, 0])
    assert [point.on_front for point in model.points] == [True, True, True, False]


def test_the_choice_follows_the_rows_for_selection_where_test_rows_disagree(tmp_path):
    """Test values would choose client 0 for accuracy; on the rows for selection client 1 is the accurate one."""
    tested, chosen_by = np.array([[0.9, 900.0], [0.5, 100.0]]), np.array([[0.5, 100.0], [0.9, 900.0]])
    shown = one_of_many(tested, None)
    model = OneOfMany(shown.card, [0, 1], shown.models, tested, None, chosen_by)
    files.save(model, tmp_path / "model.safetensors")
    for one in (model, files.load(tmp_path / "model.safetensors")):
        assert one.choice(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == [1, 0]
        assert [point.values for point in one.points] == [tuple(row) for row in tested.tolist()]


def test_a_decision_is_the_labels_own_value():
    card = one_of_many([[0.9, 1.0]], None).card
    for classes, expected in ((("1", "2"), (1, 2)), (("no", "yes"), ("no", "yes"))):
        assert decided(dataclasses.replace(card, outputs=(Output("risk", classes),))) == expected
    assert decided(dataclasses.replace(card, outputs=())) == (0, 1)


def test_of_equals_the_clients_own_model_is_chosen():
    same = np.full((3, 2), 0.5)
    values = [[0.9, 1.0]] * 3
    assert "client 2's" in one_of_many(values, same, client=2).describe([0.2, 0.8])
    assert "client 0's" in one_of_many(values, same).describe([0.2, 0.8])


def test_numbers_beyond_the_models_reach_are_refused():
    model = one_of_many([[0.9, 1.0]], None)
    model.models = torch.tensor([[10.0, -10.0, 0.0]])
    with pytest.raises(UserError, match="row 2: its numbers are so large that the model has no answer"):
        predict(model, [{"x1": 1, "x2": 2}, {"x1": 3e38, "x2": 3e38}], [0.5, 0.5])


# -- what cannot be served -----------------------------------------------------------------------------------------


def test_a_client_must_be_named_where_each_has_a_model(praffl_run):
    run = fedpareto.load(praffl_run)
    with pytest.raises(UserError, match="choose a client: 0, 1, 2"):
        run.conditioned()
    with pytest.raises(UserError, match=r"there is no client 9 in .*; there are 0, 1, 2"):
        run.conditioned(9)
    with pytest.raises(UserError, match="has no seed 5; it has 0, 1"):
        run.conditioned(0, seed=5)


def test_a_run_of_an_earlier_version_is_told_apart(praffl_run, tmp_path):
    old = shutil.copytree(praffl_run, tmp_path / "old")
    (old / "inputs.json").unlink()
    (old / "conditioned.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no inputs.json: it was made by an earlier version"):
        fedpareto.load(old).conditioned(0)


def test_a_problem_without_a_table_cannot_be_served(tmp_path):
    fedpareto.run("convex", "fedavg", clients=2, rounds=1, engine={"threads": 1, "chunk": 2}, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"cannot be served: .* problem 'convex' predicts nothing"):
        fedpareto.load(tmp_path / "run").conditioned()


def test_a_run_that_is_not_finished_is_refused(praffl_run, tmp_path):
    run = shutil.copytree(praffl_run, tmp_path / "run")
    (run / "status.json").write_text(json.dumps({"status": "stopped"}))
    with pytest.raises(UserError, match="not finished but stopped"):
        fedpareto.load(run)


@pytest.mark.parametrize("name", ["inputs.json", "conditioned.safetensors", "solutions.json", "run.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"inputs": {"0": [{"column": 3}]}}'])
def test_damaged_files_are_named(praffl_run, tmp_path, name, content):
    run = shutil.copytree(praffl_run, tmp_path / "run")
    (run / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        fedpareto.load(run).conditioned(0)


def test_a_file_with_one_altered_byte_is_refused(praffl_run, tmp_path):
    path = tmp_path / "model.safetensors"
    files.save(fedpareto.load(praffl_run).conditioned(0), path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="altered"):
        fedpareto.load(path)


def test_a_file_that_holds_something_else_is_refused(praffl_run):
    with pytest.raises(UserError, match="holds no model to serve"):
        fedpareto.load(praffl_run / "models.safetensors")


def test_a_file_answers_for_its_own_client_only(praffl_run, tmp_path):
    files.save(fedpareto.load(praffl_run).conditioned(2), tmp_path / "model.safetensors")
    source = fedpareto.load(tmp_path / "model.safetensors")
    assert source.clients == [2]
    with pytest.raises(UserError, match="holds the model of client 2, not of client 1"):
        source.conditioned(1)
