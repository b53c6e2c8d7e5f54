"""Adult's PhD and non-PhD users evaluated together: a model's accuracy on the test rows of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.problem import SupervisedProblem
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Batch, Rows
from fedpareto_papers.client_runs import MODELS, Array, Found
from fedpareto_papers.fedmgda.published import PHD


def measures(found: Found, spec: Spec) -> dict[str, list[float]]:
    """The accuracy on the PhD user's test rows, on the other's, and on all; one number for each seed.

    Of `local` it is that of the PhD user's own model, also on the other's rows: training on the PhD user alone.
    """
    accuracies = found.sent.last()
    if spec.algorithm.name == "local":
        accuracies = np.stack([_everywhere(found.folder, spec, seed) for seed in spec.seeds])
    sizes = np.stack([_test_rows(spec, seed).counts for seed in spec.seeds])
    others = np.arange(accuracies.shape[1]) != PHD
    return {
        "pooled": _weighted(accuracies, sizes),
        "phd": accuracies[:, PHD].tolist(),
        "non-phd": _weighted(accuracies[:, others], sizes[:, others]),
    }


def _weighted(accuracies: Array, sizes: Array) -> list[float]:
    means: list[float] = ((accuracies * sizes).sum(axis=1) / sizes.sum(axis=1)).tolist()
    return means


def _test_rows(spec: Spec, seed: int) -> Rows:
    return spec.problem.data(spec.clients, seed)["test"]


def _everywhere(folder: Path, spec: Spec, seed: int) -> Array:
    """The accuracy of the PhD user's model on each user's test rows, `[n]`."""
    problem = spec.problem
    assert isinstance(problem, SupervisedProblem), "users with rows"
    model = Checkpoint.load(folder / MODELS).tensors[f"seed{seed}/client{PHD}"]
    rows = _test_rows(spec, seed).to(model.device, model.dtype)
    return np.array([_accuracy(problem, model, rows, user) for user in range(spec.clients)])


def _accuracy(problem: SupervisedProblem, model: Tensor, rows: Rows, user: int) -> float:
    columns = {name: column.unsqueeze(0) for name, column in rows.of_client(user).items()}
    batch = Batch(columns, model.new_ones(1, int(rows.counts[user])))
    with torch.no_grad():
        return float(problem.evaluate(problem.layout.unflatten(model.unsqueeze(0)), batch)[0, 0])
