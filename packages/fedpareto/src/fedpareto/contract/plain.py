"""The plain model to hold a result against: logistic regression as everybody fits it, alone and on the rows of all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors.rows import Batch, Rows, Splits

NEWTON_STEPS, INNER_STEPS, HALVINGS = 50, 200, 20
TOLERANCE = 1e-4
"""Tolerance on each entry of the gradient of the mean loss, as in scikit-learn."""
ENOUGH = 1e-4
"""Share of a slope that has to come true for a step to be taken."""
DAMPING = 1e-6
"""Damping of steps, for each row; where they end does not depend on it."""
DOUBLE = 10**6
"""Numbers of a table up to which a fit is in double precision."""
AT_ONCE = 2**24
"""Numbers of a table of inputs or of answers that is in memory at a time."""
MOST_WORK = 2 * 10**7
"""Rows times inputs times classes that a fit reads: of larger tables every client gives every k-th row only."""
FEWEST_ROWS = 20
"""Fewest rows of a client: where the work leaves fewer, there is no plain model."""
MOST_KNOWN = 64
_KNOWN: dict[tuple[str, str, str], dict[str, np.ndarray]] = {}
"""Points measured in this process: a sweep or a demo runs many algorithms on the same rows."""


def plain_points(problem: SupervisedProblem, splits: Splits) -> dict[str, np.ndarray]:
    """The objectives on test rows of a plain model of each client alone, `[n, m]`, and of the one of all rows.

    "alone" and "pooled"; that is `[1, m]`, if all are tested on the same rows. Empty where a problem has none.
    """
    key = repr(problem), splits["train"].digest(), splits["test"].digest()
    if key not in _KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _measured(problem, splits["train"], splits["test"])
    return _KNOWN[key]


def _measured(problem: SupervisedProblem, train: Rows, test: Rows) -> dict[str, np.ndarray]:
    inputs = problem.plain_inputs(train.take(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1)))
    classes = problem.classes()
    if inputs is None or classes is None or not train.counts.all():
        return {}
    width = (inputs.shape[-1] + 1) * classes[1]
    whole = [*zip(train.starts.tolist(), train.counts.tolist(), strict=True)]
    most = MOST_WORK // width
    found = {}
    if train.are_shared:
        whole = whole[:1]
    elif most >= FEWEST_ROWS * len(whole):
        found["alone"] = _points(problem, train, test, [[one] for one in whole], most // len(whole), width)
    if most >= FEWEST_ROWS * len(whole):
        found["pooled"] = _points(problem, train, test, [whole], most, width)
    return {"alone": found["pooled"], **found} if train.are_shared and found else found


def _points(
    problem: SupervisedProblem, train: Rows, test: Rows, own: list[list[tuple[int, int]]], most: int, width: int
) -> np.ndarray:
    """Points of one model for each entry of `own`, places and lengths in the training rows; `[n, m]`."""
    models, clients = len(own), len(test.counts)
    alike = 1 if test.are_shared else clients
    longest = max(min(sum(count for _, count in one), most) for one in own)
    each = max(longest, int(test.counts.max())) * width
    found = []
    # A model of all is fitted once, and may be tested at every client.
    for chunk in _pieces(np.arange(models), each):
        fit = _Fit(problem, train.take(*_index([_thinned(own[i], most) for i in chunk])))
        where = np.arange(alike) if models == 1 or alike == 1 else chunk
        for part in _pieces(where, each) if models == 1 else [where]:
            places = [(int(test.starts[i]), int(test.counts[i])) for i in part]
            batch = test.take(*_index([np.arange(start, start + count) for start, count in places]))
            found.append(fit.values(batch.shared_by(len(chunk)) if len(part) == 1 else batch))
    return np.concatenate(found)


def _pieces(places: np.ndarray, each: int) -> list[np.ndarray]:
    """Divide into as many at a time as fit into memory."""
    return np.array_split(places, min(-(-len(places) * each // AT_ONCE), len(places)))


def _thinned(pieces: list[tuple[int, int]], most: int) -> np.ndarray:
    """The places of rows, or of every k-th so that at most `most` are left."""
    places = np.concatenate([np.arange(start, start + count) for start, count in pieces])
    return places[:: -(-len(places) // most)]


def _index(places: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Rows of several models side by side, padded by the first, `[n, b]`, and which are real."""
    longest = max(len(one) for one in places)
    index, mask = np.zeros((len(places), longest), dtype=np.int64), np.zeros((len(places), longest), dtype=np.float32)
    for row, one in enumerate(places):
        index[row, : len(one)], mask[row, : len(one)] = one, 1
    return torch.from_numpy(index), torch.from_numpy(mask)


class _Fit:
    """Logistic regressions of n batches of rows, one for each column of classes."""

    def __init__(self, problem: SupervisedProblem, batch: Batch) -> None:
        self.problem = problem
        self.weights = []
        inputs, labels = self._inputs(batch), self._labels(batch)
        rows = batch.mask.to(inputs.dtype).unsqueeze(-1)
        total = rows.sum(1, keepdim=True)
        self.mean = (inputs * rows).sum(1, keepdim=True) / total
        self.scale = (((inputs - self.mean) ** 2 * rows).sum(1, keepdim=True) / total).sqrt()
        self.scale[self.scale < 1e-6 * (1 + self.mean.abs())] = 1.0
        for labels_of_one in labels.unbind(-1):
            target = _indicators(labels_of_one, self._classes).to(inputs.dtype)
            if inputs.shape[-1]:
                self.weights.append(logistic_regression(self._standardised(inputs), target, rows.squeeze(-1)))
            else:  # Without inputs the most frequent class is the answer; a fit could only come close to it.
                counts = (target * rows).sum(1, keepdim=True)
                self.weights.append(2 * counts - total if counts.shape[-1] == 1 else counts)

    @property
    def _classes(self) -> int:
        found = self.problem.classes()
        assert found is not None, "a plain model has classes to choose from"
        return found[1]

    def values(self, batch: Batch) -> np.ndarray:
        """The objectives of the models on these rows, `[n, m]`."""
        inputs = self._standardised(self._inputs(batch))
        scores = [with_intercept(inputs) @ one.to(inputs.dtype) for one in self.weights]
        found = self.problem.said(torch.stack(scores, dim=2).to(batch.mask.dtype), batch)
        return found.double().numpy()

    def _inputs(self, batch: Batch) -> Tensor:
        found = self.problem.plain_inputs(batch)
        assert found is not None, "a problem has a plain model for all of its rows or for none"
        return found.double() if found.numel() <= DOUBLE else found.float()

    def _standardised(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean.to(inputs.dtype)) / self.scale.to(inputs.dtype)

    def _labels(self, batch: Batch) -> Tensor:
        found = self.problem.classes()
        assert found is not None, "a plain model has classes to choose from"
        column = batch.columns[found[0]].long()
        return column.view(*batch.mask.shape, -1)


def _indicators(labels: Tensor, classes: int) -> Tensor:
    """1 where a row is of a class, `[n, b, k]`; of two classes the second only."""
    if classes == 2:
        return labels.double().unsqueeze(-1)
    return torch.nn.functional.one_hot(labels, classes).double()


def with_intercept(inputs: Tensor) -> Tensor:
    """A last input that is 1, `[n, b, f + 1]`."""
    return torch.cat([inputs, inputs.new_ones(*inputs.shape[:-1], 1)], dim=-1)


def logistic_regression(inputs: Tensor, target: Tensor, mask: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """Fit n models at once, `[n, f + 1, k]` with the intercepts last: the smallest summed cross entropy + ‖w‖² / 2.

    That is scikit-learn's default, C = 1 without a penalty on intercepts. `inputs` `[n, b, f]`, `target` `[n, b, k]`
    with k = 1 for two classes, `mask` `[n, b]`. By Newton's method whose steps are found by conjugate gradients.
    """
    real, x = mask.unsqueeze(-1), with_intercept(inputs) * mask.unsqueeze(-1)
    weights = x.new_zeros(len(x), x.shape[-1], target.shape[-1])
    ridge = torch.ones_like(weights)
    ridge[:, -1] = 0
    loss, chances = _loss(x, weights, target, real, ridge)
    for _ in range(NEWTON_STEPS):
        slope = x.mT @ ((chances - target) * real) + ridge * weights
        if (slope.abs().amax((1, 2)) <= tolerance * mask.sum(1)).all():
            break
        step = _newton(x, chances, real, ridge, slope)
        falls, length = (slope * step).sum((1, 2), keepdim=True), torch.ones(len(x), 1, 1, dtype=x.dtype)
        for _ in range(HALVINGS):
            after, there = _loss(x, weights - length * step, target, real, ridge)
            short = after > loss - ENOUGH * length * falls + torch.finfo(x.dtype).eps * 8 * loss.abs()
            if not short.any():
                break
            length = torch.where(short, length / 2, length)
        falling = after <= loss  # Not where rounding has the last word.
        if not falling.any():
            break
        weights = torch.where(falling, weights - length * step, weights)
        loss, chances = torch.where(falling, after, loss), torch.where(falling, there, chances)
    return weights


def _loss(x: Tensor, weights: Tensor, target: Tensor, real: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """The penalised loss of each fit, `[n, 1, 1]`, and what it says, `[n, b, k]`."""
    z = x @ weights
    if z.shape[-1] == 1:
        each, chances = torch.nn.functional.softplus(z) - target * z, z.sigmoid()
    else:
        each = z.logsumexp(-1, keepdim=True) - (target * z).sum(-1, keepdim=True)
        chances = z.softmax(-1)
    penalty = (ridge * weights**2).sum((1, 2), keepdim=True) / 2
    return (each * real).sum((1, 2), keepdim=True) + penalty, chances


def _newton(x: Tensor, chances: Tensor, real: Tensor, ridge: Tensor, slope: Tensor) -> Tensor:
    """The d for which the second derivative times d is the slope, by conjugate gradients, of each fit by itself."""

    def bent(direction: Tensor) -> Tensor:
        moved = x @ direction
        if chances.shape[-1] == 1:
            curved = chances * (1 - chances) * moved
        else:
            curved = chances * (moved - (chances * moved).sum(-1, keepdim=True))
        return x.mT @ (curved * real) + ridge * direction + damping * direction

    # Intercepts may all move by the same without a change: the damping of a step keeps it from doing so in rounding.
    damping = DAMPING * real.sum(1, keepdim=True)
    found, rest, along = torch.zeros_like(slope), slope.clone(), slope.clone()
    left = first = (rest**2).sum((1, 2), keepdim=True)
    # As exact as the slope is small: then the steps converge faster than linearly.
    mean = first.sqrt() / real.sum(1, keepdim=True)
    wanted = first * mean.clamp_max(0.25)
    tiny = torch.finfo(x.dtype).tiny
    for _ in range(INNER_STEPS):
        going = left > wanted
        if not going.any():
            break
        turned = bent(along)
        curvature = (along * turned).sum((1, 2), keepdim=True)
        going &= curvature > tiny
        share = torch.where(going, left / curvature.clamp_min(tiny), 0.0)
        found, rest = found + share * along, rest - share * turned
        now = torch.where(going, (rest**2).sum((1, 2), keepdim=True), left)
        along = rest + torch.where(going, now / left.clamp_min(tiny), 0.0) * along
        left = now
    return found
