"""Algorithms under attacks behind defences: a matrix as its file tells it, ready to be shown while it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.config.errors import reading
from fedpareto_page.entries import finite
from fedpareto_page.other_runs import Other

AXES = {"algorithm": "algorithms", "attack": "attacks", "defence": "defences"}
CALM = "none"
"""The attack that is none."""
Cell = tuple[int, int, int]
"""Its places on the axes: algorithm, attack, defence."""


def matrix(other: Other) -> dict[str, Any]:
    """Every cell with its value, or why it has none."""
    with reading(str(other.file)):
        content = other.content.value
        labels = {axis: [str(label) for label in content["labels"][axis]] for axis in AXES}
        known: dict[Cell, Any] = {tuple(cell["at"]): cell for cell in content["cells"] if cell["at"] is not None}
        found = {at: _by_seed(cell, content) for at, cell in known.items()}
        calm = labels["attack"].index(CALM) if CALM in labels["attack"] else None
        rows, columns, panels = (range(len(labels[axis])) for axis in AXES)
        places: list[Cell] = [(row, column, panel) for panel in panels for row in rows for column in columns]
        measures = {"mean": "mean of honest clients", "worst": "worst honest client"}
        return {
            "id": other.id,
            "name": other.name,
            **{many: labels[axis] for axis, many in AXES.items()},
            "measures": measures | ({} if calm is None else {"loss": "loss against no attack"}),
            "objective": {"name": str(content["measure"]["name"]), "maximise": bool(content["measure"]["maximise"])},
            "judged": [list(map(int, clients)) for clients in content["judged"]],
            "seeds": _seeds(content["base"].get("seeds"), len(content["judged"])),
            "busy": other.busy,
            "cells": [_told(at, known.get(at), found, calm, content, other.busy) for at in places],
        }


def _seeds(value: object, count: int) -> list[int]:
    """As the spec has them: how many, or which."""
    is_list = isinstance(value, list) and len(value) == count
    return [int(seed) for seed in value] if isinstance(value, list) and is_list else list(range(count))


def _by_seed(cell: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """By measure `[seeds]`, over the clients that attack in no cell; nothing of a cell without a value."""
    if cell.get("value") is None:
        return {}
    pairs = zip(cell["clients"], content["judged"], strict=True)
    judged = [np.array([of_seed[client] for client in clients], dtype=np.float64) for of_seed, clients in pairs]
    least = np.min if content["measure"]["maximise"] else np.max
    return {
        "mean": np.array([values.mean() for values in judged]),
        "worst": np.array([least(values) for values in judged]),
    }


def _told(
    at: Cell,
    cell: Mapping[str, Any] | None,
    found: Mapping[Cell, Mapping[str, np.ndarray]],
    calm: int | None,
    content: Mapping[str, Any],
    is_busy: bool,
) -> dict[str, Any]:
    state, reason = _state(cell, is_busy)
    values = dict(found.get(at, {}))
    before = {} if calm is None else found.get((at[0], calm, at[2]), {})
    if values and before:
        lost = before["mean"] - values["mean"]
        values["loss"] = lost if content["measure"]["maximise"] else -lost
    return {
        **dict(zip(AXES, at, strict=True)),
        "value": {name: finite(of_seeds.mean()) for name, of_seeds in values.items()} or None,
        "deviation": {name: finite(of_seeds.std()) for name, of_seeds in values.items()} or None,
        "state": state,
        "reason": reason,
        "clients": _clients(cell["clients"]) if cell is not None and "clients" in cell else None,
        "run": None,
    }


def _state(cell: Mapping[str, Any] | None, is_busy: bool) -> tuple[str, str | None]:
    if cell is None:
        return "waiting", "waits for its turn" if is_busy else "not run yet: the same command goes on with it"
    if "refused" in cell:
        return "unfit", str(cell["refused"])
    if cell.get("value") is None:
        return "failed", str(cell.get("failed", "it has no value"))
    return "done", None


def _clients(by_seed: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    return [[None if value is None else finite(value) for value in values] for values in by_seed]
