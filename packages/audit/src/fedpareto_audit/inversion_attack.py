"""Rows from a gradient: in closed form where the first layer is linear, by optimisation elsewhere.

A linear layer's weight gradient is Σ_i x_i δ_i and its bias gradient Σ_i δ_i (Phong et al., "Privacy-preserving deep
learning via additively homomorphic encryption", 2018): a unit that only one row excites has that row in their ratio.
Elsewhere Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", 2020: rows
whose gradient points the same way, and images that are smooth.

The least that a client can send is the worst case, whatever the learner is: few rows, one plain step of size 1 from the
first model. It goes through the algorithm's own client step, so clipping and noise are those of the spec. Whatever else
is in a row, such as its label, is given to the attacker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.config.parameters import field_names
from fedpareto.contract.messages import Parcels
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.engines.local import LocalEngine
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch, Rows
from fedpareto_audit.world import Found, Table, World, mean_of_rows, model_in, supervised

QUIET = 1e-6
"""A unit whose bias gradient is below this share of the largest tells nothing."""
ALIKE = 0.05
"""Two units agree on a row if their rows are this close, relative to their length."""
TOLERANCE = 0.1
"""A feature is recovered if it is this close, in its own standard deviations or as one of two values."""
EXACT = 60.0
"""Decibels from which an image is the image: an error of a thousandth of the range."""

GradientOf = Callable[[Tensor, Tensor], Tensor]
"""The gradients `[n, c]` of rows `[n, b, ...]` under logits of a preference, `[n, m]`; can be differentiated again."""


def rows_of_linear(weight: Tensor, bias: Tensor, count: int) -> Tensor:
    """`count` rows `[count, in]` behind the gradients of a linear layer, `[in, out]` and `[out]`.

    Units that agree on a row are taken together; the rows on which most units agree come first, then those of single
    units, the loudest first. With one row all units have it.
    """
    if count == 1:
        return _least_squares(weight, bias).unsqueeze(0)
    loud = torch.nonzero(bias.abs() > QUIET * bias.abs().max()).flatten()
    loud = loud[bias[loud].abs().argsort(descending=True)]
    if not len(loud):
        return weight.new_zeros(count, len(weight))
    weight, bias = weight[:, loud], bias[loud]
    rows = (weight / bias).mT
    length = rows.norm(dim=1)
    agree = torch.cdist(rows, rows) <= ALIKE * torch.minimum(length[:, None], length)
    left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    found: list[Tensor] = []
    while len(found) < count and left.any():
        votes = (agree & left).sum(1) * left
        group = agree[int(votes.argmax())] & left
        found.append(_least_squares(weight[:, group], bias[group]))
        left &= ~group
    missing = count - len(found)
    return torch.stack([*found, *([_least_squares(weight, bias)] * missing)])


def _least_squares(weight: Tensor, bias: Tensor) -> Tensor:
    """x for which x·bias is nearest to `weight`."""
    return weight @ bias / bias.square().sum().clamp_min(torch.finfo(bias.dtype).tiny)


@dataclass(frozen=True)
class Search:
    """The length and smoothness of a search for rows whose gradient fits."""

    steps: int = 200
    lr: float = 0.1
    """The first step of Adam on signs, as a share of a feature's range; it falls to 0."""
    variation: float = 0.01
    """Weight of the total variation of images."""


def matched(
    gradient_of: GradientOf,
    target: Tensor,
    start: Tensor,
    objectives: int,
    lowest: Tensor,
    highest: Tensor,
    how: Search,
) -> tuple[Tensor, Tensor]:
    """Rows `[n, b, ...]` whose gradients point along `target` `[n, c]`, and how far they are from it, 1 − cos `[n]`.

    The preference under which they were made is searched with them. The best rows of the whole search are returned.
    """
    width = highest - lowest
    place = ((start - lowest) / width).detach().clone().requires_grad_()
    wants = target.new_zeros(len(target), objectives).requires_grad_()
    optimiser = torch.optim.Adam([{"params": [place], "lr": how.lr}, {"params": [wants], "lr": how.lr}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, how.steps)
    best, rows = torch.full((len(target),), math.inf, device=target.device), start.clone()
    for _ in range(how.steps):
        optimiser.zero_grad()
        apart = 1 - torch.cosine_similarity(gradient_of(lowest + width * place, wants), target, dim=1)
        better = apart.detach() < best
        best = torch.where(better, apart.detach(), best)
        rows[better] = (lowest + width * place.detach())[better]
        (apart.sum() + how.variation * _variation(place)).backward()  # type: ignore[no-untyped-call]
        assert place.grad is not None, "gradients depend on rows"
        place.grad.sign_()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            place.clamp_(0, 1)
    return rows, best


def _variation(rows: Tensor) -> Tensor:
    """The total variation of images `[n, b, ..., height, width]`, summed over n; none of tables."""
    if rows.dim() < 4:
        return rows.new_zeros(())
    across, down = (rows.diff(dim=dimension).abs().flatten(1).mean(1).sum() for dimension in (-1, -2))
    return across + down


# -- how much was recovered ----------------------------------------------------------------------------------------


def paired(found: Tensor, true: Tensor) -> Tensor:
    """Order what was found `[k, ...]` like the true rows `[b, ...]`, k ≥ b, each pair as near as possible."""
    from scipy.optimize import linear_sum_assignment

    distances = torch.cdist(true.flatten(1).double(), found.flatten(1).double()).square()
    _, columns = linear_sum_assignment(distances.cpu().numpy())
    return found[torch.as_tensor(np.asarray(columns), device=found.device)]


def features_recovered(found: Tensor, true: Tensor, deviation: Tensor) -> Tensor:
    """Share `[b]` of each row's features that are within the tolerance."""
    near = (found - true).abs() <= TOLERANCE * deviation
    return near.flatten(1).double().mean(1)


def peak_signal_to_noise(found: Tensor, true: Tensor, width: float) -> Tensor:
    """Decibels `[b]` of each image: 10 log₁₀ of the squared range over the mean squared error, at most EXACT."""
    squared = (found - true).double().square().flatten(1).mean(1) / width**2
    return -10 * torch.log10(squared.clamp_min(10 ** (-EXACT / 10)))


# -- on a world ------------------------------------------------------------------------------------------------------


INPUTS = ("features", "input", "image")
"""Names of the column that a network reads."""
ONE_STEP: Mapping[str, Any] = {
    "steps": 1,
    "epochs": 1,
    "optimiser": "sgd",
    "lr": 1.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "lr_schedule": "constant",
    "lr_warm_up": 0,
}
MOST_SEARCHED = 4
"""Victims whose rows are searched by optimisation."""


@dataclass(frozen=True)
class Gradient:
    """A step of some clients as the server sees it."""

    sent: Tensor
    """Minus the gradients of the model's first c parameters, `[n, c]`."""
    models: Tensor
    """Models with which the clients began, with what they keep, `[n, d]`."""
    true: Table
    """The rows behind them, `[n, b, ...]`."""


def reconstruct(world: World, summed: bool) -> Found:
    """Measure by batch size the share of features and rows that are recovered, or of images their likeness."""
    problem, name = supervised(world), inputs_of(world)
    found: Found = {}
    for rows in world.effort.batches:
        seen = _summed(_gradient(world, rows)) if summed else _gradient(world, rows)
        is_linear = _first_layer(problem, seen, name) is not None
        if not is_linear:
            seen = _only(seen, MOST_SEARCHED)
        estimates = _in_closed_form(world, seen, name) if is_linear else _searched(world, seen, name)
        found |= _measured(world, estimates, seen.true[name].float(), rows, name)
    return found


def inputs_of(world: World) -> str:
    """The column that a network reads; UserError if it holds no numbers."""
    columns = world.own.population
    name = next((name for name in INPUTS if name in columns), None)
    if name is None or "codes" in columns or columns[name].dtype not in (torch.float32, torch.float64, torch.uint8):
        raise UserError(f"rows of '{world.spec.problem.name}' are neither tables of numbers nor images")
    return name


# -- what the server gets ------------------------------------------------------------------------------------------


def _gradient(world: World, rows: int) -> Gradient:
    """Return one step of each victim on so many of its rows."""
    spec = world.spec
    learner: Any = spec.learner
    known = field_names(learner)
    if not {"optimiser", "steps", "batch_size"} <= set(known):
        raise UserError(f"{type(learner).__name__} does not learn by gradients on rows")
    stepping = replace(learner, batch_size=rows, **{key: value for key, value in ONE_STEP.items() if key in known})
    few = _few_rows(world, rows)
    splits = {**world.real.splits, "train": few}
    setting = replace(world.engine.settings[0], participation=1.0)
    engine = LocalEngine(
        spec.algorithm, spec.problem, stepping, [replace(world.real, splits=splits)], [setting], options=spec.engine
    )
    tasks = spec.algorithm.ask(spec.algorithm.begin(engine.settings[0]))
    if tasks[0].step != "train":
        raise UserError(f"{spec.algorithm.name} begins a round with another step than 'train'")
    # Whole models, `[n, d]`: new clients keep nothing that the server does not know.
    models = torch.cat([engine.models(0, Parcels(some.clients, some.shared, some.own)).rows for some in tasks])
    replies = engine.run(tasks).replies
    if not len(replies):
        raise UserError("no gradient is a finite number")
    name, begun = model_in(tasks, replies)
    true = {key: column.view(len(few.counts), rows, *column.shape[1:]) for key, column in few.columns.items()}
    at = torch.as_tensor(world.engine.settings[0].rows(replies.clients))
    models = models[at]
    return _only(
        Gradient(replies[name] - begun[name], models, {k: v[at] for k, v in true.items()}), world.effort.victims
    )


def _few_rows(world: World, rows: int) -> Rows:
    """Choose so many different rows of each client, who may have fewer: then some are there twice."""
    train = world.real.splits["train"]
    tables = []
    for client, count in enumerate(train.counts.tolist()):
        stream = rng.generator(rng.Address(world.seed, client), "audit batch")
        chosen = torch.as_tensor(np.resize(stream.permutation(count), rows))
        tables.append({name: column[chosen] for name, column in train.of_client(client).items()})
    return Rows.of(tables)


def _only(seen: Gradient, victims: int) -> Gradient:
    return Gradient(
        seen.sent[:victims], seen.models[:victims], {name: column[:victims] for name, column in seen.true.items()}
    )


def _summed(seen: Gradient) -> Gradient:
    rows = {name: column.flatten(0, 1).unsqueeze(0) for name, column in seen.true.items()}
    return Gradient(mean_of_rows(seen.sent)[None], seen.models[:1], rows)


# -- what the attacker makes of it ---------------------------------------------------------------------------------


def _first_layer(problem: SupervisedProblem, seen: Gradient, name: str) -> tuple[Tensor, Tensor] | None:
    """Return the gradients of a linear layer on the inputs, `[n, in, out]` and `[n, out]`; None if the first is no
    such.
    """
    layout = problem.layout
    inputs = seen.true[name][0, 0].numel()
    shapes, n = layout.shapes, len(seen.sent)
    if len(shapes) < 2 or len(shapes[0]) != 2 or shapes[0][0] != inputs or shapes[1] != shapes[0][1:]:
        return None
    weight, bias = (layout.slices[one] for one in layout.names[:2])
    if bias.stop > seen.sent.shape[1]:
        return None
    return seen.sent[:, weight].view(n, *shapes[0]), seen.sent[:, bias]


def _in_closed_form(world: World, seen: Gradient, name: str) -> Tensor:
    """Rows `[n, b, ...]` as the network reads them, and from there as they are stored."""
    layer = _first_layer(supervised(world), seen, name)
    assert layer is not None, "asked before"
    count, shape = seen.true[name].shape[1], seen.true[name].shape[2:]
    found = torch.stack([rows_of_linear(*one, count) for one in zip(*layer, strict=True)])
    slope, intercept = _scale(world, seen, name)
    low, high = _range(world, name)
    return ((found - intercept) / slope).view(len(found), count, *shape).clamp(low, high)


def _scale(world: World, seen: Gradient, name: str) -> tuple[float, float]:
    """Estimate how a network scales its inputs: slope and intercept, from a gradient of the attacker's own row."""
    problem = supervised(world)
    own = {key: column[:1].unsqueeze(0).to(seen.sent.device) for key, column in world.own.population.items()}
    stored = own[name].to(seen.sent.dtype)
    made = _gradients(problem, seen.models[:1], own, name, stored, None)[:, : seen.sent.shape[1]]
    layer = _first_layer(problem, Gradient(made, seen.models[:1], own), name)
    assert layer is not None, "asked before"
    read, kept = rows_of_linear(layer[0][0], layer[1][0], 1).flatten().double(), stored.flatten().double()
    apart = kept - kept.mean()
    slope = float((apart * read).sum() / apart.square().sum().clamp_min(1e-12))
    if abs(slope) < 1e-9:
        return 1.0, 0.0
    return slope, float(read.mean() - slope * kept.mean())


def _searched(world: World, seen: Gradient, name: str) -> Tensor:
    problem = supervised(world)
    low, high = _range(world, name)
    target = -seen.sent
    true = seen.true[name]
    stream = rng.torch_generator(rng.Address(world.seed), "audit start")
    noise = torch.randn(tuple(true.shape), generator=stream).to(target)
    middle = world.own.population[name].to(target).mean(0)
    start = (middle + 0.1 * (high - low) * noise).clamp(low, high)
    like = target.new_ones(())

    def gradient_of(rows: Tensor, wants: Tensor) -> Tensor:
        return _gradients(problem, seen.models, seen.true, name, rows, wants.softmax(1))[:, : target.shape[1]]

    found, _ = matched(
        gradient_of,
        target,
        start,
        len(problem.objectives),
        low * like,
        high * like,
        Search(steps=world.effort.steps),
    )
    return found


def _gradients(
    problem: SupervisedProblem, models: Tensor, table: Table, name: str, rows: Tensor, weights: Tensor | None
) -> Tensor:
    """Gradients `[n, d]` of the weighted losses of `rows` `[n, b, ...]`, the rest of which is in `table`."""
    flat = models.detach().requires_grad_()
    columns = {**table, name: rows * 1.0}  # A problem may scale it in place.
    batch = Batch(columns, models.new_ones(rows.shape[:2]))
    losses = problem.losses(problem.layout.unflatten(flat), batch)
    scalar = losses.sum() if weights is None else (losses * weights).sum()
    (gradient,) = torch.autograd.grad(scalar, flat, create_graph=weights is not None)
    return gradient


# -- how much that is ----------------------------------------------------------------------------------------------


def _range(world: World, name: str) -> tuple[float, float]:
    column = world.own.population[name].float()
    return float(column.min()), float(column.max())


def _measured(world: World, estimates: Tensor, true: Tensor, rows: int, name: str) -> Found:
    """Compare estimates `[n, b, ...]` and the attacker's mean row with the truth."""
    of = f"{rows} row{'s' * (rows > 1)}"
    column = world.own.population[name].float()
    middle = column.mean(0).expand_as(true[0]) if is_image(true) else column.median(0).values.expand_as(true[0])
    low, high = _range(world, name)
    likeness: list[Tensor] = []
    for found, real in zip(estimates.to(true), true, strict=True):
        pair = paired(found, real), middle
        if is_image(true):
            likeness.append(torch.stack([peak_signal_to_noise(one, real, high - low) for one in pair]))
        else:
            deviation = column.std(0).clamp_min(1)
            likeness.append(torch.stack([features_recovered(one, real, deviation) for one in pair]))
    values = torch.cat(likeness, dim=1)
    ours, guess = values.mean(1).tolist()
    if is_image(true):
        return {f"images from {of}, PSNR": (ours, guess)}
    whole = (values >= 1).double().mean(1).tolist()
    return {f"features from {of}": (ours, guess), f"whole rows from {of}": (whole[0], whole[1])}


def is_image(rows: Tensor) -> bool:
    """Return True if rows `[n, b, ...]` have a height and a width."""
    return rows.dim() >= 4
