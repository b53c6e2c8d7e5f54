"""A state with numbers that no client can train from is left behind: what is not sound in it begins anew.

Only a federation across machines needs this. On one machine a run that diverged is a result, and is kept as it is.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedpareto.core.algorithm import Setting, State
from fedpareto.engines.checks import LARGEST

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
