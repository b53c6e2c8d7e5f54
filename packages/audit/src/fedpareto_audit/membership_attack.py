"""Was a row among those that a model was trained on? The likelihood ratio of RMIA, for few reference models.

Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", 2024: how much likelier the row is under
the target than under reference models that never saw it. Their comparison with rows of the population orders rows just
as this ratio does; it only chooses a threshold, and here all thresholds are measured.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

OFFSETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""a of the paper's section 3.2, which turns the likelihood without a row into that of a random model: the attacker
tries these on its own references."""
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
