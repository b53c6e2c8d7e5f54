"""The attack of an audit on rows: reconstruct them from one gradient of a client, the least that it can send.

That is the worst case, whatever the learner is: few rows, one plain step of size 1 from the first model. It goes
through the algorithm's own client step, so clipping and noise are those of the spec. Whatever else is in a row, such
as its label, is given to the attacker.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from fedpareto_audit import inversion_attack as inversion
from fedpareto_audit.attacks import Found, mean_of_rows, supervised
from fedpareto_audit.world import Table, World, model_in

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
    found = torch.stack([inversion.rows_of_linear(*one, count) for one in zip(*layer, strict=True)])
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
    read, kept = inversion.rows_of_linear(layer[0][0], layer[1][0], 1).flatten().double(), stored.flatten().double()
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

    found, _ = inversion.matched(
        gradient_of,
        target,
        start,
        len(problem.objectives),
        low * like,
        high * like,
        inversion.Search(steps=world.effort.steps),
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
        pair = inversion.paired(found, real), middle
        if is_image(true):
            likeness.append(torch.stack([inversion.peak_signal_to_noise(one, real, high - low) for one in pair]))
        else:
            deviation = column.std(0).clamp_min(1)
            likeness.append(torch.stack([inversion.features_recovered(one, real, deviation) for one in pair]))
    values = torch.cat(likeness, dim=1)
    ours, guess = values.mean(1).tolist()
    if is_image(true):
        return {f"images from {of}, PSNR": (ours, guess)}
    whole = (values >= 1).double().mean(1).tolist()
    return {f"features from {of}": (ours, guess), f"whole rows from {of}": (whole[0], whole[1])}


def is_image(rows: Tensor) -> bool:
    """Return True if rows `[n, b, ...]` have a height and a width."""
    return rows.dim() >= 4
