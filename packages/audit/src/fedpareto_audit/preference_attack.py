"""Inference of a client's preference from updates or reported objectives: a regression on shadow trainings.

The attacker has trained shadow clients of its own under preferences that it chose, and sees what a victim sent. Kernel
ridge regression leads from one to the other; which kernel and how much ridge is decided on the shadows alone, each
predicted from all the others, in closed form. Guessing their mean is among the choices, so noise leads there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpareto.tensors import rng
from fedpareto_audit.world import Found, World, mean_of, parts_in, supervised, updates_in

RIDGES = tuple(10.0**power for power in range(-5, 4))
"""Ridges as multiples of the mean of a kernel's diagonal."""
WIDTHS = (0.5, 1.0, 2.0)
"""Widths of the Gaussian kernel, as multiples of the median distance between two shadows."""
SUMS = 256
"""Sums of shadows that an attacker makes who sees only sums."""


@dataclass(frozen=True)
class Inferred:
    """The estimates of an attacker."""

    estimates: Tensor
    """`[v, m]`, on the simplex."""
    expected: float
    """Mean error on the attacker's own shadows."""
    how: str
    """Description of the regression that was chosen."""
    left_out: Tensor
    """Estimates of the attacker's own shadows, each from all the others, `[s, m]`."""


@dataclass(frozen=True)
class _Kernel:
    """Inner products of the shadows `[s, s]`, and of what is seen with them `[v, s]`."""

    how: str
    known: Tensor
    seen: Tensor


def infer(shadows: Tensor, preferences: Tensor, seen: Tensor) -> Inferred:
    """The preferences behind `seen` `[v, f]`, from shadows `[s, f]` and theirs, `[s, m]`."""
    shadows, preferences, seen = shadows.double(), preferences.double(), seen.double()
    mean = preferences.mean(0)
    others = (preferences.sum(0) - preferences) / max(len(preferences) - 1, 1)
    best = Inferred(mean.expand(len(seen), -1), error(others, preferences), "guess", others)
    for kernel in _kernels(shadows, seen):
        values, vectors = torch.linalg.eigh(kernel.known)
        values, targets = values.clamp_min(0), vectors.mT @ (preferences - mean)
        scale = float(values.mean())
        for ridge in RIDGES if scale > 0 else ():
            kept = values / (values + ridge * scale)
            fitted = mean + vectors @ (kept[:, None] * targets)
            # Each shadow as it would be estimated without it; its share in the mean is part of its leverage.
            leverage = ((vectors.square() @ kept)[:, None] + 1 / len(shadows)).clamp_max(1 - 1e-12)
            left_out = on_simplex(preferences - (preferences - fitted) / (1 - leverage))
            expected = error(left_out, preferences)
            if expected < best.expected:
                weights = vectors @ (targets / (values + ridge * scale)[:, None])
                found = on_simplex(mean + kernel.seen @ weights)
                best = Inferred(found, expected, f"{kernel.how}, ridge {ridge:g}", left_out)
    return best


def infer_by_parts(shadows: Tensor, preferences: Tensor, seen: Tensor, parts: Sequence[slice]) -> Inferred:
    """Infer from features in parts, such as layers: an estimate from each, and one from all estimates.

    How much each part is worth, the second regression learns from estimates of shadows that had no part in them.
    """
    each = [infer(shadows[:, part], preferences, seen[:, part]) for part in (slice(None), *parts)]
    known, theirs = (
        torch.cat([getattr(one, name)[:, :-1] for one in each], dim=1) for name in ("left_out", "estimates")
    )
    return infer(known, preferences, theirs)


def infer_from_sum(
    shadows: Tensor,
    preferences: Tensor,
    seen: Tensor,
    parts: Sequence[slice],
    clients: int,
    stream: np.random.Generator,
) -> Inferred:
    """Infer from the mean `[f]` over some clients: one estimate for all, `[1, m]`.

    It averages its own shadows by as many, and estimates the mean preference: of a single client it knows no more.
    """
    enough = len(shadows) >= clients
    chosen = np.stack([stream.choice(len(shadows), clients, replace=not enough) for _ in range(SUMS)])
    index = torch.as_tensor(chosen, device=shadows.device)
    return infer_by_parts(shadows[index].mean(1), preferences[index].mean(1), seen.unsqueeze(0), parts)


def error(estimates: Tensor, preferences: Tensor) -> float:
    """The mean distance of an estimated weight from the true one."""
    return float((estimates - preferences).abs().mean())


def on_simplex(rows: Tensor) -> Tensor:
    """The nearest preferences `[n, m]`: negative weights are none, and the sum is 1."""
    ordered = rows.sort(dim=1, descending=True).values
    rank = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    excess = (ordered.cumsum(1) - 1) / rank
    last = (ordered > excess).sum(1, keepdim=True) - 1
    return (rows - excess.gather(1, last)).clamp_min(0)


def _kernels(shadows: Tensor, seen: Tensor) -> Iterator[_Kernel]:
    """Yield kernels of updates as they are, of their directions, and with every entry by its own deviation."""
    centre = shadows.mean(0)
    shadows, seen = shadows - centre, seen - centre
    deviation = shadows.std(0)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    for name, scale in (("plain", torch.ones_like(deviation)), ("standardised", deviation)):
        known, other = shadows / scale, seen / scale
        gram, cross = known @ known.mT, other @ known.mT
        yield _Kernel(f"linear on {name}", gram, cross)
        own, theirs = gram.diagonal(), other.square().sum(1)
        apart = (own[:, None] + own - 2 * gram).clamp_min(0)
        across = (theirs[:, None] + own - 2 * cross).clamp_min(0)
        typical = float(apart.median())
        for width in WIDTHS if typical > 0 else ():
            known_near, seen_near = (torch.exp(-square / (2 * width**2 * typical)) for square in (apart, across))
            yield _Kernel(f"Gaussian on {name}", known_near, seen_near)


# -- on a world ------------------------------------------------------------------------------------------------------


def infer_preferences(world: World, summed: bool) -> Found:
    true = world.preferences()
    m = true.shape[1]
    guess = error(torch.full_like(true, 1 / m), true)
    shadows = updates_in([world.shadow.tasks], world.shadow.replies)
    real = updates_in(world.tasks, world.replies[0])
    parts = parts_in(world.replies[0], supervised(world).layout)
    if summed:
        stream = rng.generator(rng.Address(world.seed), "audit sums")
        mine = world.shadows_of(0)
        known = shadows[torch.as_tensor(mine)], world.shadow_preferences(mine)
        mean = mean_of(world, 0, real)
        estimates = infer_from_sum(*known, mean, parts, len(real), stream).estimates.expand_as(true)
    else:
        estimates = _each(world, shadows, real, parts)
    # Objectives are reported beside the replies, so a sum of replies does not hide them.
    said = _each(world, world.shadow.reported.flatten(1), world.reported.flatten(1), ())
    return {
        "preference from updates, error": (error(estimates, true), guess),
        "preference from objectives, error": (error(said, true), guess),
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
        found[together] = infer_by_parts(*known, seen[torch.as_tensor(victims)][together], parts).estimates
    return found
