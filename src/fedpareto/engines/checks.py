"""Checks of a reply before it reaches the algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedpareto.core.algorithm import ABOVE_ZERO, Algorithm, Setting, unwrapped
from fedpareto.core.messages import Failure, Message, Reply
from fedpareto.errors import QuorumLost, UserError


def sound(replies: Message, algorithm: Algorithm[Any], clients: int) -> list[bool]:
    """Which of a stack of replies `{name: [n, ...]}` surely pass: one check for all, as it makes a GPU wait."""
    limits, passed = unwrapped(algorithm).reply_limits, []
    for name, tensor in replies.items():
        if tensor.shape[:1] != (clients,):
            raise ValueError(f"'{name}' has the shape {list(tensor.shape)}, not a row for each client ({clients})")
        rows = tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1)
        passed.append(rows.sum(1).isfinite())
        if name in limits:
            least, most = limits[name]
            passed.append(((rows >= least) & (rows <= most)).all(1))
    return torch.stack(passed).all(0).tolist() if passed else [True] * clients


def refusal(
    message: Message,
    algorithm: Algorithm[Any],
    setting: Setting,
    step: str,
    dtype: torch.dtype,
    is_sound: bool = False,
) -> str | None:
    """Why a reply is refused, or None: names, shapes, type and values must be what the algorithm declared.

    The values are checked one by one unless they are known to be valid.
    """
    shapes, limits = algorithm.reply_shapes(setting)[step], unwrapped(algorithm).reply_limits
    if message.keys() != shapes.keys():
        return f"the reply holds {sorted(message)}, not {sorted(shapes)}"
    for name, shape in shapes.items():
        tensor = message[name]
        if tuple(tensor.shape) != tuple(shape):
            return f"'{name}' has the shape {list(tensor.shape)}, not {list(shape)}"
        if tensor.dtype != dtype:
            return f"'{name}' is of type {tensor.dtype}, not {dtype}"
        if is_sound:
            continue
        if not _finite(tensor):
            bad = int((~tensor.isfinite()).sum())
            return f"'{name}' holds {bad} values that are not finite"
        if name in limits and (strange := _outside(tensor, *limits[name])) is not None:
            return f"'{name}' holds {strange:g}; honest values are {_range(*limits[name])}"
    return None


def _finite(tensor: Tensor) -> bool:
    # A sum reads the tensor once and makes no copy; only if it is not finite is a second check needed.
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def _outside(tensor: Tensor, least: float, most: float) -> float | None:
    """A value that is not between the two, or None."""
    found = tensor[(tensor < least) | (tensor > most)]
    return float(found[0]) if len(found) else None


def _range(least: float, most: float) -> str:
    if math.isinf(most):
        return "above 0" if least == ABOVE_ZERO else f"at least {least:g}"
    return f"from {least:g} to {most:g}"


def required_replies(quorum: float, asked: int) -> int:
    """How many of the selected clients must reply: a quorum below 1 is a share, from 1 on a number of clients."""
    if quorum < 0:
        raise UserError(f"quorum is {quorum}; it is a share below 1 or a number of clients")
    wanted = math.ceil(quorum * asked) if quorum < 1 else min(round(quorum), asked)
    return max(1, wanted)


def enforce_quorum(quorum: float, replies: Sequence[Reply], failures: Sequence[Failure], run: int = 0) -> None:
    """Raises QuorumLost when too few clients gave a valid reply, however many tasks each of them had."""
    answered = len({reply.client for reply in replies})
    asked = len({reply.client for reply in replies} | {failure.client for failure in failures})
    if not asked or answered >= required_replies(quorum, asked):
        return
    firsts = list({failure.client: str(failure) for failure in reversed(failures)}.values())[::-1]
    first = "; ".join(firsts[:3])
    more = f"; and {len(firsts) - 3} more" if len(firsts) > 3 else ""
    raise QuorumLost(
        f"round {failures[0].round}: only {answered} of {asked} clients gave a valid reply, "
        f"the quorum is {required_replies(quorum, asked)} ({first}{more})",
        failures,
        run,
    )
