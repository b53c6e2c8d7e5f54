"""Clients as objectives: one goal each, learnt by every problem, in a stack as alone, from run to report."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedpareto
from fedpareto.contract.clients import Clients
from fedpareto.contract.registry import make_algorithm, problems
from fedpareto.problems.images_text.images import CIFAR10, FashionMNIST
from fedpareto.problems.images_text.problem import ClassificationProblem
from fedpareto.problems.images_text.texts import AdultPhD, AGNews, Shakespeare
from fedpareto.tensors import rng
from fedpareto.testing.conformance import PROBLEM_CHECKS, largest_difference, trial

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

CLASSES = {name: cls for name, cls in problems().items() if issubclass(cls, ClassificationProblem)}
SMALL = {
    **{name: cls(rows=120, model="mlp", partition="iid") for name, cls in CLASSES.items() if "mlp" in cls.models},
    "ag-news": AGNews(rows=60, vocabulary=200, embedding=4, length=20),
    "shakespeare": Shakespeare(rows=30, units=4, layers=1),
}
QUICK = {"threads": 1, "chunk": 64}


@pytest.fixture(autouse=True)
def everything(published):
    """All sets are here."""
    for name in ("cifar10", "cifar100", "qmnist", "pneumonia-mnist", "ag-news", "shakespeare", "mnist", "adult"):
        published(name)
    published("fashion-mnist")


def test_all_problems_are_here():
    assert sorted(CLASSES) == sorted(SMALL)
    assert sorted(CLASSES) == [
        "adult-phd",
        "ag-news",
        "cifar10",
        "cifar100",
        "fashion-mnist",
        "mnist",
        "mnist-writers",
        "pneumonia-mnist",
        "shakespeare",
    ]


@pytest.mark.parametrize("check", PROBLEM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SMALL)
def test_problem_keeps_the_contract(name, check):
    check(SMALL[name], 3)


LEARNS = {
    "cifar10": (CIFAR10(rows=300, partition="pathological", model="logistic"), {"lr": 0.01, "batch_size": 10}, 6),
    "cifar100": (CLASSES["cifar100"](rows=600, partition="pathological", model="logistic"), {"lr": 0.01}, 6),
    "fashion-mnist": (FashionMNIST(rows=200, model="cnn-small"), {"lr": 0.1, "batch_size": 10}, 3),
    "mnist": (CLASSES["mnist"](rows=400, model="logistic", partition="iid"), {"lr": 0.01, "batch_size": 10}, 4),
    "mnist-writers": (CLASSES["mnist-writers"](model="logistic"), {"lr": 0.01, "batch_size": 10}, 8),
    "pneumonia-mnist": (
        CLASSES["pneumonia-mnist"](rows=400, model="logistic", partition="iid"),
        {"lr": 0.01, "batch_size": 10},
        6,
    ),
    "ag-news": (AGNews(rows=200, vocabulary=500, length=20, partition="iid"), {"lr": 0.3, "batch_size": 10}, 4),
    "shakespeare": (Shakespeare(rows=80, units=8, layers=1), {"lr": 1.0}, 6),
    "adult-phd": (AdultPhD(rows=2000), {"lr": 0.05}, 3),
}
"""A small form of each problem, a learner, and rounds in which it learns something."""


@pytest.mark.parametrize("name", LEARNS)
def test_training_raises_the_accuracy_above_that_of_one_answer(name):
    problem, learner, rounds = LEARNS[name]
    clients = 2
    result = fedpareto.run(problem, "local", clients=clients, rounds=rounds, learner=learner, engine=QUICK)
    end = float(result.solutions[0].values["train"].mean())
    stack = stacked(problem, range(clients), clients)
    start = float(stack.evaluate(problem.initial(0).double().expand(clients, -1))[:, 0].mean())
    labels = [stack.splits["train"].of_client(client)["label"] for client in range(clients)]
    commonest = np.mean([float(np.bincount(label).max() / len(label)) for label in labels])
    assert end > start
    assert end > commonest + 0.02


def stacked(problem, positions, clients=3):
    splits = {name: rows.to(torch.device("cpu"), torch.float64) for name, rows in problem.data(clients, 0).items()}
    preferences = torch.ones(len(positions), 1, dtype=torch.float64)
    places = np.array(positions)
    return Clients(
        problem=problem,
        learner=problem.learner(),
        splits=splits,
        addresses=rng.Addresses.at(0, places, round=0),
        positions=places,
        preferences=preferences,
    )


@pytest.mark.parametrize("problem", [FashionMNIST(rows=60, model="cnn-small"), *[SMALL[n] for n in ("shakespeare",)]])
def test_the_accuracy_is_the_share_of_rows_told_right(problem, monkeypatch):
    monkeypatch.setattr("fedpareto.contract.problem.ROWS_AT_ONCE", 7)
    clients = stacked(problem, [2, 0])
    models = torch.stack([problem.initial(seed).double() for seed in (0, 1)])
    scores = clients.evaluate(models)
    assert scores.shape == (2, 2, 1)
    for row, client in enumerate((2, 0)):
        for part, name in enumerate(("train", "test")):
            table = clients.splits[name].of_client(client)
            views = problem.layout.unflatten(models[row : row + 1])
            said = problem.network(views, table["input"].unsqueeze(0)).argmax(-1)[0]
            assert float(scores[row, part, 0]) == pytest.approx(float((said == table["label"]).double().mean()))


def test_the_loss_is_the_mean_cross_entropy():
    problem = FashionMNIST(rows=60, model="cnn-small")
    clients = stacked(problem, [0, 1, 2])
    models = torch.stack([problem.initial(seed).double() for seed in range(3)])
    losses = problem.losses(problem.layout.unflatten(models), clients.all_rows("train"))
    assert losses.shape == (3, 1)
    for client in range(3):
        table = clients.splits["train"].of_client(client)
        views = problem.layout.unflatten(models[client : client + 1])
        logits = problem.network(views, table["input"].unsqueeze(0))[0]
        right = logits.log_softmax(-1).gather(1, table["label"].unsqueeze(1))
        assert float(losses[client]) == pytest.approx(float(-right.mean()))


@pytest.mark.parametrize(
    "problem",
    [
        FashionMNIST(rows=70, model="cnn-small"),
        replace(SMALL["ag-news"], rows=70),
        replace(SMALL["shakespeare"], rows=70),
    ],
    ids=["images", "words", "characters"],
)
def test_a_stack_trains_as_one_client_after_the_other(problem):
    models = [trial(make_algorithm("fedavg"), problem, chunk=chunk, rounds=2).models for chunk in (7, 1)]
    assert largest_difference(*models) < 1e-9


def test_labels_are_told_to_whoever_flips_them():
    for name, problem in SMALL.items():
        column, count = problem.classes()
        labels = problem.data(2, 0)["train"].columns[column]
        assert labels.dtype == torch.int64
        assert 0 <= int(labels.min()) <= int(labels.max()) < count, name


def test_one_objective_goes_all_the_way_to_the_report(tmp_path, monkeypatch, capsys):
    """Preferences, front and hypervolume of the one value that each client has; then what is shown of a run."""
    for preferences in ("dirichlet", "equidistant", "gaussian", "sweep"):
        result = fedpareto.run(
            FashionMNIST(rows=100, model="logistic"),
            "fedmgda-plus",
            clients=3,
            rounds=2,
            seeds=2,
            preferences=preferences,
            engine=QUICK,
            out=tmp_path / preferences,
        )
        solutions = result.solutions[0]
        assert solutions.preferences.tolist() == [[1.0]] * 3
        assert solutions.front().ravel().tolist() == [solutions.points.max()]
        assert solutions.hypervolume() == pytest.approx(solutions.points.max())
        assert all(np.isfinite(value) for value in solutions.indicators().values())
    monkeypatch.setattr(sys, "argv", ["fedpareto", "show", str(tmp_path / "sweep")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "accuracy" in capsys.readouterr().out
