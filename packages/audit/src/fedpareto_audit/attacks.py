"""The attacks of an audit on one world: what is measured, and what guessing would have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.groups import GroupedProblem
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch
from fedpareto_audit import membership_attack as membership
from fedpareto_audit import preference_attack as preference
from fedpareto_audit.world import Table, World, model_in, parts_in, updates_in, worn

ROWS_AT_ONCE = 256
"""Rows whose losses are computed side by side."""
HEADS = 4
"""Shadows whose own layers are tried behind a body whose client keeps the rest."""
REFERENCES = 8
"""Shadows that a row's loss after one update is compared with."""

Found = dict[str, tuple[float, float]]
"""Value of each measure, and that of guessing."""


def supervised(world: World) -> SupervisedProblem:
    assert isinstance(world.spec.problem, SupervisedProblem), "checked before anything is trained"
    return world.spec.problem


# -- preferences ---------------------------------------------------------------------------------------------------


def infer_preferences(world: World, summed: bool) -> Found:
    true = world.preferences()
    m = true.shape[1]
    guess = preference.error(torch.full_like(true, 1 / m), true)
    shadows = updates_in([world.shadow.tasks], world.shadow.replies)
    real = updates_in(world.tasks, world.replies[0])
    parts = parts_in(world.replies[0], supervised(world).layout)
    if summed:
        stream = rng.generator(rng.Address(world.seed), "audit sums")
        mine = world.shadows_of(0)
        known = shadows[torch.as_tensor(mine)], world.shadow_preferences(mine)
        mean = mean_of(world, 0, real)
        estimates = preference.infer_from_sum(*known, mean, parts, len(real), stream).estimates.expand_as(true)
    else:
        estimates = _each(world, shadows, real, parts)
    # Objectives are reported beside the replies, so a sum of replies does not hide them.
    said = _each(world, world.shadow.reported.flatten(1), world.reported.flatten(1), ())
    return {
        "preference from updates, error": (preference.error(estimates, true), guess),
        "preference from objectives, error": (preference.error(said, true), guess),
    }


def _each(world: World, shadows: Tensor, seen: Tensor, parts: Sequence[slice]) -> Tensor:
    """Estimate each victim's preference from its own shadows; of those who share them at once."""
    victims = world.victims
    own = np.stack([world.shadows_of(victim)[:1] for victim in victims.tolist()]).flatten()
    found = shadows.new_empty(len(victims), len(world.spec.problem.objectives), dtype=torch.float64)
    for first in np.unique(own):
        together = torch.as_tensor(np.flatnonzero(own == first))
        mine = world.shadows_of(int(victims[together[0]]))
        known = shadows[torch.as_tensor(mine)], world.shadow_preferences(mine)
        found[together] = preference.infer_by_parts(*known, seen[torch.as_tensor(victims)][together], parts).estimates
    return found


def mean_of(world: World, run: int, rows: Tensor) -> Tensor:
    """Mean of what all clients of a federation sent, as the server weights them."""
    replies = world.replies[run]
    return mean_of_rows(rows, replies.tensors.get("size"))


def mean_of_rows(rows: Tensor, sizes: Tensor | None = None) -> Tensor:
    """Mean of rows weighted by sizes `[n]`, or all alike."""
    weights = rows.new_ones(len(rows)) if sizes is None else sizes.to(rows)
    return weights / weights.sum() @ rows


# -- membership ----------------------------------------------------------------------------------------------------


def infer_members(world: World, summed: bool) -> Found:
    """Infer from a client's single update, or their sum, and from the models that clients have at the end."""
    update = _against_sum(world) if summed else _against_updates(world)
    return {**_told("update", *update), **_told("final model", *_against_final(world))}


def _told(what: str, members: Tensor, strangers: Tensor) -> Found:
    return {
        f"membership from {what}, AUC": (membership.area_under_curve(members, strangers), 0.5),
        f"membership from {what}, TPR": (membership.found_at(members, strangers), membership.FALSE_ALARMS),
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
    scores = []
    for table in (world.rows_of(victim), world.strangers_for(victim)):
        losses = row_losses(supervised(world), targets, table)
        target = -(losses.neg().exp().mean(0).clamp_min(torch.finfo(losses.dtype).tiny)).log()
        others = row_losses(supervised(world), references, table)
        scores.append(membership.scores(target, others, torch.ones_like(others, dtype=torch.bool), offset))
    return scores[0], scores[1]


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    members, strangers = zip(*pairs, strict=True)
    return torch.cat(members), torch.cat(strangers)


def _offset(world: World, references: Tensor, inside: np.ndarray) -> float:
    """Choose the offset on the attacker's own rows."""
    own = world.own.shadow
    some = slice(2 * world.effort.rows)  # They are in random order.
    losses = row_losses(supervised(world), references, {name: column[some] for name, column in own.items()})
    return membership.chosen_offset(losses, torch.as_tensor(inside[:, some], device=losses.device))


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
