"""Was a row among those that a model was trained on? The likelihood ratio of RMIA, for few reference models.

Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", 2024: how much likelier the row is under
the target than under reference models that never saw it. Their comparison with rows of the population orders rows just
as this ratio does; it only chooses a threshold, and here all thresholds are measured.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.groups import GroupedProblem
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors.rows import Batch
from fedpareto_audit.world import Found, Table, World, mean_of, model_in, supervised, worn

OFFSETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""a of the paper's section 3.2, which turns the likelihood without a row into that of a random model: the attacker
tries these on its own references."""
ROWS_AT_ONCE = 256
"""Rows whose losses are computed side by side."""
HEADS = 4
"""Shadows whose own layers are tried behind a body whose client keeps the rest."""
REFERENCES = 8
"""Shadows that a row's loss after one update is compared with."""
FALSE_ALARMS = 0.01
"""The share of rows wrongly called members at which the share of members found is told."""


def scores(target: Tensor, references: Tensor, outside: Tensor, offset: float) -> Tensor:
    """The logarithm of the likelihood ratio of k rows, `[k]`, from losses: higher means rather a member.

    `target` are the rows' losses under the model, `[k]`, `references` those under r others, `[r, k]`, of which only
    those count that were trained without the row, `outside` `[r, k]`.
    """
    counted = outside.to(references.dtype)
    without = (references.neg().exp() * counted).sum(0) / counted.sum(0).clamp_min(1)
    likely = ((1 + offset) * without + (1 - offset)) / 2
    return -target - likely.clamp_min(torch.finfo(likely.dtype).tiny).log()


def chosen_offset(losses: Tensor, inside: Tensor) -> float:
    """The offset that finds members best where each reference `[r, k]` plays the target for the others."""
    if len(losses) < 2:
        return 1.0
    found = {offset: _found_by(losses, inside, offset) for offset in OFFSETS}
    return max(found, key=lambda offset: found[offset])


def _found_by(losses: Tensor, inside: Tensor, offset: float) -> float:
    areas = []
    for target in range(len(losses)):
        others = torch.arange(len(losses)) != target
        ranked = scores(losses[target], losses[others], ~inside[others], offset)
        known = (~inside[others]).any(0)
        members, strangers = ranked[inside[target] & known], ranked[~inside[target] & known]
        if len(members) and len(strangers):
            areas.append(area_under_curve(members, strangers))
    return sum(areas) / len(areas) if areas else 0.5


def area_under_curve(members: Tensor, strangers: Tensor) -> float:
    """Return how likely a member has a higher score than a stranger; a tie is half."""
    ordered = strangers.sort().values
    below = torch.searchsorted(ordered, members, right=False)
    not_above = torch.searchsorted(ordered, members, right=True)
    return float((below + not_above).double().mean() / (2 * len(strangers)))


def found_at(members: Tensor, strangers: Tensor, false_alarms: float = FALSE_ALARMS) -> float:
    """The share of members above the threshold that at most this share of strangers exceeds."""
    allowed = math.floor(false_alarms * len(strangers) + 1e-9)
    threshold = strangers.sort(descending=True).values[allowed]
    return float((members > threshold).double().mean())


# -- on a world ------------------------------------------------------------------------------------------------------


def infer_members(world: World, summed: bool) -> Found:
    """Infer from a client's single update, or their sum, and from the models that clients have at the end."""
    update = _against_sum(world) if summed else _against_updates(world)
    return {**_told("update", *update), **_told("final model", *_against_final(world))}


def _told(what: str, members: Tensor, strangers: Tensor) -> Found:
    return {
        f"membership from {what}, AUC": (area_under_curve(members, strangers), 0.5),
        f"membership from {what}, TPR": (found_at(members, strangers), FALSE_ALARMS),
    }


def _against_updates(world: World) -> tuple[Tensor, Tensor]:
    """Compare each client's reply with shadows that began where it began."""
    name, _ = model_in(world.tasks, world.replies[0])
    sent, models = world.replies[0][name], world.shadow_models()
    offset, pairs = None, []
    for victim in world.victims.tolist():
        mine = world.shadows_of(victim)
        shadows = models[torch.as_tensor(mine)]
        references = shadows[:REFERENCES]
        if offset is None:
            offset = _offset(world, references, world.shadow_inside[world.numbers(mine[:REFERENCES])])
        targets = torch.stack([worn(sent[victim], whole) for whole in _heads(sent, shadows)])
        pairs.append(_scored(world, victim, targets, references, offset))
    return _joined(pairs)


def _against_sum(world: World) -> tuple[Tensor, Tensor]:
    """Compare the mean of all replies with those of the references."""
    name, _ = model_in(world.tasks, world.replies[0])
    means = [mean_of(world, run, replies[name]) for run, replies in enumerate(world.replies)]
    whole = _heads(world.replies[0][name], world.shadow_models())
    targets = torch.stack([worn(means[0], one) for one in whole])
    references = torch.stack([worn(mean, whole[0]) for mean in means[1:]])
    offset = _offset(world, references, np.stack(world.inside))
    return _joined([_scored(world, victim, targets, references, offset) for victim in world.victims.tolist()])


def _against_final(world: World) -> tuple[Tensor, Tensor]:
    """Compare the clients' final models with those of the references."""
    real = world.final_models(0)
    if real.dim() != 2:
        raise UserError("clients use several models each; an audit looks at one")
    others = torch.stack([world.final_models(run + 1) for run in range(world.effort.references)])
    offset = _offset(world, others[:, 0], np.stack(world.inside))
    clients = world.replies[0].clients
    return _joined(
        [
            _scored(world, victim, real[clients[victim], None], others[:, clients[victim]], offset)
            for victim in world.victims.tolist()
        ]
    )


def _heads(sent: Tensor, shadows: Tensor) -> Tensor:
    """Whole models of shadows that stand in for what clients keep; one is enough where they keep nothing."""
    return shadows[: HEADS if sent.shape[1] < shadows.shape[1] else 1]


def _scored(world: World, victim: int, targets: Tensor, references: Tensor, offset: float) -> tuple[Tensor, Tensor]:
    """The scores of a victim's rows and of strangers; a row's likelihood is the mean over `targets`."""
    found = []
    for table in (world.rows_of(victim), world.strangers_for(victim)):
        losses = row_losses(supervised(world), targets, table)
        target = -(losses.neg().exp().mean(0).clamp_min(torch.finfo(losses.dtype).tiny)).log()
        others = row_losses(supervised(world), references, table)
        found.append(scores(target, others, torch.ones_like(others, dtype=torch.bool), offset))
    return found[0], found[1]


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    members, strangers = zip(*pairs, strict=True)
    return torch.cat(members), torch.cat(strangers)


def _offset(world: World, references: Tensor, inside: np.ndarray) -> float:
    """Choose the offset on the attacker's own rows."""
    own = world.own.shadow
    some = slice(2 * world.effort.rows)  # They are in random order.
    losses = row_losses(supervised(world), references, {name: column[some] for name, column in own.items()})
    return chosen_offset(losses, torch.as_tensor(inside[:, some], device=losses.device))


def row_losses(problem: SupervisedProblem, models: Tensor, table: Table) -> Tensor:
    """The loss of each row by itself, `[k, rows]`, under each of k models `[k, d]`.

    Over all objectives; where these compare groups, which a single row has not, that of the first.
    """
    count = len(next(iter(table.values())))
    found = []
    with torch.no_grad():
        for model in models:
            parts = []
            for begin in range(0, count, ROWS_AT_ONCE):
                columns = {name: column[begin : begin + ROWS_AT_ONCE].unsqueeze(1) for name, column in table.items()}
                columns = {name: column.to(model.device) for name, column in columns.items()}
                rows = len(next(iter(columns.values())))
                batch = Batch(columns, model.new_ones(rows, 1))
                losses = problem.losses(problem.layout.unflatten(model.expand(rows, -1)), batch)
                parts.append(losses[:, 0] if isinstance(problem, GroupedProblem) else losses.sum(1))
            found.append(torch.cat(parts))
    return torch.stack(found)
