"""A state with numbers that no client can train from is left behind: what is not sound in it begins anew.

Only a federation across machines needs this. On one machine a run that diverged is a result, and is kept as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.contract.algorithm import Setting, State
from fedpareto.contract.messages import LARGEST, Failure
from fedpareto.record.store import RunFolder

S = TypeVar("S", bound=State)


def healed(state: S, fresh: S) -> tuple[S, tuple[str, ...]]:
    """The state with unsound rows of its tensors as in `fresh`, the algorithm's own beginning; the names of the parts
    that were changed.

    A model without a counterpart there, such as one of a set that has grown, becomes the initial one. What is neither
    is left alone: a value that is not known yet may be NaN.
    """
    changed: list[str] = []
    found = _healed(state, fresh, state.setting, "state", changed)
    assert isinstance(found, type(state)), "the same dataclass"
    return found, tuple(changed)


def _healed(value: Any, fresh: Any, setting: Setting, name: str, changed: list[str]) -> Any:
    if isinstance(value, Tensor):
        return _healed_tensor(value, fresh, setting.initial, name, changed)
    if isinstance(value, tuple):
        others = fresh if isinstance(fresh, tuple) and len(fresh) == len(value) else [None] * len(value)
        items = [_healed(one, other, setting, name, changed) for one, other in zip(value, others, strict=True)]
        return tuple(items)
    if isinstance(value, float) and isinstance(fresh, float) and not abs(value) <= LARGEST:
        changed.append(name)
        return fresh
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Setting):
        parts = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        new = {key: _healed(one, getattr(fresh, key, None), setting, key, changed) for key, one in parts.items()}
        return dataclasses.replace(value, **{key: one for key, one in new.items() if one is not parts[key]})
    return value


def _healed_tensor(tensor: Tensor, fresh: Any, initial: Tensor, name: str, changed: list[str]) -> Tensor:
    if not tensor.numel() or not tensor.is_floating_point():
        return tensor
    unsound = ~(tensor.abs() <= LARGEST)
    if not bool(unsound.any()):
        return tensor
    if isinstance(fresh, Tensor) and fresh.shape == tensor.shape:
        instead = fresh
    elif tensor.shape[-1:] == initial.shape:
        instead = initial.to(tensor).expand_as(tensor)
    else:
        return tensor
    changed.append(name)
    rows = unsound.any(dim=-1, keepdim=True) if tensor.dim() else unsound
    return torch.where(rows, instead, tensor)


def lost_in_words(lost: QuorumLost, asked: int, seed: str, folder: RunFolder | None) -> str:
    """Why a run ends of which too few of the clients who were `asked` replied, and how it may go on."""
    mistake = _common_mistake(lost.failures, asked)
    if mistake:
        return mistake
    way_on = ""
    if len(lost.failures) == asked:
        way_on = "; without any reply no quorum can be met"
        if any("not finite" in failure.reason for failure in lost.failures):
            way_on += ": a smaller lr may help if training diverges"
    elif folder:
        way_on = f"; go on with: {folder.way_on('quorum=…')}"
    return f"{seed}{lost}{way_on}"


def _common_mistake(failures: Sequence[Failure], asked: int) -> str:
    """The user error that all selected clients raised, if it is the same for all; or nothing."""
    reasons, raised = {failure.reason for failure in failures}, f"raised {UserError.__name__}: "
    if len(failures) == asked and len(reasons) == 1 and (reason := reasons.pop()).startswith(raised):
        return reason.removeprefix(raised)
    return ""
