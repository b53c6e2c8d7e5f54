"""The parts that a client keeps to make models for any preference, and the objectives of these models."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedpareto.contract.calibration import inverse_temperature
from fedpareto.contract.clients import Clients
from fedpareto.contract.conditioned import Conditioned, tolerances
from fedpareto.contract.groups import GroupedProblem
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.moo.preferences import equidistant
from fedpareto.tensors.layout import Layout

MOST_POINTS = 101
"""Preferences at which a client's models are measured at the end of a run: with two objectives, steps of 0.01."""
CALIBRATED_AT = 11
"""Preferences, evenly spread, under which a client's probabilities are calibrated."""
MODELS_AT_ONCE = 8
"""Models of each client that are measured together; more would only need more memory."""


def lattice(objectives: int) -> Tensor:
    """Preferences `[k, m]`, evenly spread over the simplex: the finest lattice of at most MOST_POINTS."""
    divisions = 1
    while math.comb(divisions + objectives, objectives - 1) <= MOST_POINTS and objectives > 1:
        divisions += 1
    points = math.comb(divisions + objectives - 1, objectives - 1)
    return torch.as_tensor(equidistant(points, objectives))


def trade_off(clients: Clients, anatomy: Conditioned, parts: Message, preferences: Tensor) -> Tensor:
    """The objectives `[n, k, m]` of the models for k preferences `[k, m]`, on the clients' held-out rows."""
    problem = clients.problem
    assert isinstance(problem, SupervisedProblem), "an anatomy is made for a model with losses on rows"
    rows = clients.all_rows("test" if "test" in clients.splits else list(clients.splits)[-1])
    body = anatomy.body.unflatten(parts["body"])
    hypernetwork = anatomy.hypernetwork.layout.unflatten(parts["hypernetwork"])
    measured = []
    for some in torch.split(preferences.to(clients.preferences), MODELS_AT_ONCE):
        heads = anatomy.heads(hypernetwork, tolerances(some, anatomy.margin).expand(len(clients), -1, -1))
        measured.append(problem.evaluate_each(body, heads, rows))
    return torch.cat(measured, dim=1)


def calibrated(clients: Clients, anatomy: Conditioned, parts: Message) -> Message:
    """The parts with each client's log-odds divided by a temperature, which changes probabilities but no decision.

    It is chosen on the client's validation rows, one for all preferences. The log-odds are linear in the last layer of
    the head, and that is linear in the last layer of the hypernetwork: so the latter is divided.
    """
    problem = clients.problem
    if not isinstance(problem, GroupedProblem) or problem.rebuilt_by_name or "validation" not in clients.splits:
        return parts  # Other networks are not known to end so.
    rows = clients.all_rows("validation")
    preferences = torch.as_tensor(equidistant(CALIBRATED_AT, anatomy.objectives)).to(clients.preferences)
    wanted = tolerances(preferences, anatomy.margin).expand(len(clients), -1, -1)
    heads = anatomy.heads(anatomy.hypernetwork.layout.unflatten(parts["hypernetwork"]), wanted)
    logits = problem.logits_each(anatomy.body.unflatten(parts["body"]), heads, rows)
    factor = inverse_temperature(logits, problem.labels(rows).unsqueeze(1), rows.mask.unsqueeze(1))
    scaled = parts["hypernetwork"] * torch.where(_makes_last_layer(anatomy).to(factor.device), factor[:, None], 1.0)
    return {**parts, "hypernetwork": scaled}


def _makes_last_layer(anatomy: Conditioned) -> Tensor:
    """Mask of the hypernetwork's parameters that give the last layer of the head; booleans `[h]`."""
    layout, last = anatomy.hypernetwork.layout, list(anatomy.head.layers.values())[-1]
    which = torch.zeros(layout.size, dtype=torch.bool)
    tensors = layout.unflatten(which)
    for name in (f"{len(anatomy.hidden)}.weight", f"{len(anatomy.hidden)}.bias"):
        tensors[name][..., last] = True
    return which


def densely(anatomy: Conditioned, parts: Message) -> Message:
    """The parts of one client's models as they are kept: of networks with all connections, see `Conditioned.dense`."""
    body, hypernetwork = anatomy.body.to_dense(parts["body"]), anatomy.to_dense(parts["hypernetwork"])
    return {**parts, "body": body, "hypernetwork": hypernetwork}


def layout_to_json(layout: Layout) -> list[Any]:
    """List pairs of name and shape: the order of a layout matters, and the keys of a JSON object may lose it."""
    return [[name, list(shape)] for name, shape in zip(layout.names, layout.shapes, strict=True)]


def anatomy_to_json(anatomy: Conditioned) -> dict[str, Any]:
    return {
        "body": layout_to_json(anatomy.body),
        "head": layout_to_json(anatomy.head),
        "objectives": anatomy.objectives,
        "hidden": list(anatomy.hidden),
        "margin": anatomy.margin,
    }


def anatomy_from_json(plain: dict[str, Any]) -> Conditioned:
    """The inverse of `anatomy_to_json`."""
    return Conditioned(
        body=Layout.from_json(plain["body"]),
        head=Layout.from_json(plain["head"]),
        objectives=int(plain["objectives"]),
        hidden=tuple(int(width) for width in plain["hidden"]),
        margin=float(plain["margin"]),
    )
