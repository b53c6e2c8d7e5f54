"""Plain models against scikit-learn, which everybody would fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedpareto
from fedpareto.contract import solutions
from fedpareto.contract.environment import Actions, TensorEnvironment
from fedpareto.contract.federation import Federation
from fedpareto.contract.plain import logistic_regression, plain_points
from fedpareto.problems.convex import Convex
from fedpareto.problems.images_text.images import ImageProblem
from fedpareto.problems.images_text.texts import Shakespeare
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.problems.multitask.digits import DigitPairs
from fedpareto.problems.synthetic import Synthetic
from fedpareto.record.reading import load
from fedpareto.report.comparison import comparison
from fedpareto.tensors.rows import Rows

ENGINE = {"threads": 1, "chunk": 3}


def sklearns(features: np.ndarray, labels: np.ndarray):
    model = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8, max_iter=10_000))
    return model.fit(features, labels)


@pytest.mark.parametrize("classes", [2, 3])
def test_several_fits_at_once_are_scikit_learn_s_one_by_one(classes):
    stream, counts = np.random.default_rng(3), (40, 25, 60)
    x, y, mask = torch.zeros(3, 60, 4), torch.zeros(3, 60, dtype=torch.long), torch.zeros(3, 60)
    for i, count in enumerate(counts):
        x[i, :count] = torch.from_numpy(stream.normal(size=(count, 4)))
        y[i, :count] = torch.from_numpy(stream.integers(0, classes, count)) * (x[i, :count, 0] < 0.8)
        mask[i, :count] = 1
    target = y[..., None] if classes == 2 else torch.nn.functional.one_hot(y, classes)
    found = logistic_regression(x.double(), target.double(), mask.double(), tolerance=1e-8).numpy()
    for i, count in enumerate(counts):
        expected = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x[i, :count].numpy(), y[i, :count].numpy())
        assert np.abs(found[i, :-1].T - expected.coef_).max() < 1e-3
        # Of three classes only differences of intercepts matter.
        shift = found[i, -1].mean() - expected.intercept_.mean() if classes > 2 else 0
        assert np.abs(found[i, -1] - shift - expected.intercept_).max() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_few_rows_with_many_inputs_end_in_a_fit_in_either_precision(dtype):
    """Classes are separable, and all intercepts may move by the same without a change."""
    stream = np.random.default_rng(0)
    x, y = stream.normal(size=(4, 60, 100)), stream.integers(0, 10, (4, 60))
    target = torch.nn.functional.one_hot(torch.from_numpy(y), 10).to(dtype)
    found = logistic_regression(torch.from_numpy(x).to(dtype), target, torch.ones(4, 60, dtype=dtype))
    for i, own in enumerate(found.double().numpy()):
        expected = LogisticRegression(tol=1e-8, max_iter=10_000).fit(x[i], y[i])
        said = expected.classes_[(x[i] @ own[:-1] + own[-1])[:, expected.classes_].argmax(axis=1)]
        assert (said == expected.predict(x[i])).all()
        assert np.abs(own[:-1].T[expected.classes_] - expected.coef_).max() < 0.01


def test_a_client_with_a_single_class_or_a_constant_column_has_a_model_too():
    x = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]]).double()
    found = logistic_regression(x, torch.ones(1, 3, 1).double(), torch.ones(1, 3).double())
    assert found.isfinite().all()
    assert found[0, -1] > 0


def test_alone_and_pooled_on_a_table_as_scikit_learn_has_them():
    problem = Synthetic(rows=600)
    splits = problem.data(4, 1)
    found = plain_points(problem, splits)
    train, test = splits["train"], splits["test"].of_client(0)
    whole = [train.of_client(i) for i in range(4)]
    models = [sklearns(one["features"].numpy(), one["label"].numpy()) for one in whole]
    every = {name: torch.cat([one[name] for one in whole]).numpy() for name in ("features", "label")}
    models.append(sklearns(every["features"], every["label"]))
    for points, model in zip([*found["alone"], found["pooled"][0]], models, strict=True):
        said = model.predict(test["features"].numpy())
        group = test["sensitive"].numpy()
        gap = abs(said[group == 1].mean() - said[group == 0].mean())
        assert points[0] == pytest.approx(accuracy_score(test["label"].numpy(), said), abs=1e-3)
        assert points[1] == pytest.approx(1 - gap, abs=2e-3)


def test_each_task_of_overlaid_digits_has_a_model():
    problem = DigitPairs(samples=200, test_samples=100)
    splits = problem.data(2, 0)
    own, test = splits["train"].of_client(1), splits["test"].of_client(0)
    for task, value in enumerate(plain_points(problem, splits)["alone"][1]):
        model = sklearns(own["image"].flatten(1).numpy(), own["labels"][:, task].numpy())
        right = accuracy_score(test["labels"][:, task].numpy(), model.predict(test["image"].flatten(1).numpy()))
        assert value == pytest.approx(right, abs=0.011)  # One of a hundred rows may lie on the border.


def test_of_texts_the_plain_model_is_the_most_frequent_token_of_the_training_rows():
    tables = [{"input": torch.zeros(len(one), 80, dtype=torch.uint8), "label": torch.tensor(one)} for one in LABELS]
    splits = {"train": Rows.of(tables[:2]), "test": Rows.of(tables[2:])}
    found = plain_points(Shakespeare(), splits)
    assert found["alone"].tolist() == [[1 / 4], [1.0]]  # 7 of the first client, 9 of the second.
    assert found["pooled"].tolist() == [[3 / 4], [1.0]]  # 9 of both.


LABELS = [[7, 7, 9], [9, 9, 9, 3], [7, 9, 9, 9], [9, 9]]


def test_where_there_is_none_that_is_said(tmp_path):
    assert ImageProblem.is_text is False
    assert solutions.tested_on(Convex(), Convex().data(3, 0), None) is None
    fedpareto.run("convex", "fedavg", clients=3, rounds=1, engine=ENGINE, out=tmp_path / "a")
    (note,) = [note for note in comparison([load(tmp_path / "a")]).notes if "No plain model" in note]
    assert "'convex' has none" in note


def test_a_result_says_that_there_is_none():
    result = fedpareto.run("convex", "fedavg", clients=3, rounds=1, engine=ENGINE)
    assert any("no plain model to compare with: 'convex' has none" in line for line in result.summary())
    tables = fedpareto.run(Synthetic(rows=300), "fedavg", clients=3, rounds=1, engine=ENGINE)
    assert not any("no plain model" in line for line in tables.summary())


def test_a_report_of_rows_that_nobody_trains_on_has_the_constant_alone():
    found = solutions.tested_on(Synthetic(rows=300), {"test": Synthetic(rows=300).data(3, 0)["test"]}, None)
    assert list(found.references(Synthetic().objectives)) == ["constant"]


@dataclass(frozen=True)
class Switch(TensorEnvironment):
    """The first action pays in the first objective, the second in the other, whatever was before."""

    observation_size: int = 1
    actions: Actions = Actions(count=2)
    objectives: int = 2
    horizon: int = 40

    def start(self, n, device):
        return {"nothing": torch.zeros(n, 1, device=device)}

    def observe(self, state):
        return state["nothing"]

    def advance(self, state, action):
        return (
            state,
            torch.stack([action == 0, action == 1], dim=-1).float(),
            torch.zeros_like(action, dtype=torch.bool),
        )


class Switching(DeepSeaTreasure):
    environment = Switch()


def test_of_reinforcement_learning_the_random_policy_stands_there():
    clients = Federation.create(DeepSeaTreasure(), 3, 5).addresses
    found = Switching(episodes=100).by_chance(clients)
    assert found.shape == (3, 2)
    assert np.allclose(found.sum(1), 40)
    assert np.abs(found - 20).max() < 5 * np.sqrt(40 / 4 / 100)  # Five standard deviations of a mean.
    assert len({row[0] for row in found.tolist()}) == 3
    assert np.array_equal(Switching(episodes=100).by_chance(clients[1:]), found[1:])


def test_runs_of_policies_are_held_against_chance(tmp_path):
    chosen = {"clients": 3, "rounds": 1, "engine": ENGINE, "learner": {"steps": 20}, "out": tmp_path / "a"}
    result = fedpareto.run(DeepSeaTreasure(hidden=(4,)), "fedavg", **chosen)
    assert list(result.beside) == ["random policy"]
    assert any(line.startswith("in the same episodes: against random policy") for line in result.summary())
    assert not any("test rows" in line or "no plain" in line for line in result.summary())
    table = comparison([load(tmp_path / "a")])
    assert [row.label for row in table.rows] == ["fedavg", "random policy"]
    assert any(note.startswith("Random policy: actions at random") for note in table.notes)


def test_a_reference_has_as_many_digits_as_it_needs(tmp_path):
    """A run of constant models has a gap of exactly 0 beside a plain model's; both were written without decimals."""
    fedpareto.run(
        Synthetic(rows=300), "fedavg", clients=3, rounds=4, preferences="0,1", engine=ENGINE, out=tmp_path / "a"
    )
    table = comparison([load(tmp_path / "a")])
    for name in ("plain alone", "plain pooled"):
        cell = table.cell(name, "mean_1")
        assert abs(float(cell.text) - cell.mean) < 0.001


def test_a_result_its_folder_and_a_table_have_the_same_references(tmp_path):
    chosen = {"clients": 3, "rounds": 1, "seeds": 2, "engine": {"threads": 1, "chunk": 6}, "out": tmp_path / "a"}
    result = fedpareto.run(Synthetic(rows=300), "fedavg", **chosen)
    record = load(tmp_path / "a")
    assert list(record.references) == ["constant", "plain alone", "plain pooled"]
    for seed, of_seed in zip(record.started, result.references, strict=True):
        for name, points in of_seed.items():
            assert np.array_equal(points, record.references[name][seed])
    # By hand: own utility less that of the pooled model, mean over clients.
    for place, (mine, of_seed) in enumerate(zip(result.solutions, result.references, strict=True)):
        theirs = (mine.preferences * of_seed["plain pooled"]).sum(axis=1).mean()
        expected = (mine.preferences * mine.points).sum(axis=1).mean() - theirs
        assert result.beside["plain pooled"][place] == pytest.approx(expected)
        assert record.beside["plain pooled"][place] == pytest.approx(expected)
    table = comparison([record])
    assert [row.label for row in table.rows] == ["fedavg", "constant", "plain alone", "plain pooled"]
    assert any("against plain pooled" in note for note in table.notes)
    assert any("against plain alone" in line for line in result.summary())


def test_plain_models_are_withheld_where_objectives_are(tmp_path):
    chosen = {"clients": 3, "rounds": 1, "engine": {"threads": 1, "chunk": 3}}
    result = fedpareto.run(Synthetic(rows=300), "fedavg", privacy={"objectives": "rounded"}, **chosen)
    assert list(result.references[0]) == ["constant"]
