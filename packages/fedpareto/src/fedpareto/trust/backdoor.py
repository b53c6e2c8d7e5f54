"""Backdoors: a trigger in an input for which attackers teach the model a class of their choice.

Bagdasaryan et al., "How to backdoor federated learning", 2020. The model is to be right on rows without the trigger, so
accuracy shows nothing; how often the trigger works is measured on rows of its own, `SPLIT`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.tensors.rows import Rows

SPLIT = "backdoor"
"""The part of the data on which a trigger is measured: held-out rows of other classes, with trigger and target."""
INPUTS = ("features", "input", "image")
"""Names of the columns that models read, of which a problem has one."""
PATCH = 3
"""Pixels on a side of the usual trigger in an image, in the last corner."""
NUMBER, PIXEL = 3.0, 255.0
"""Values of a trigger's entries, unless an attack says otherwise: three deviations of standardised numbers; white."""


@dataclass(frozen=True)
class Trigger:
    """Entries of an input, the value to which they are set, and the answer that is then wanted."""

    label: str
    """The column of classes."""
    target: int
    places: Sequence[int] = ()
    """Entries of an input, counted through; empty: the first number of a row, or a patch of an image."""
    value: float | None = None
    """Value of the entries; None: `NUMBER`, or in an image `PIXEL`."""

    def planted(self, table: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        """A client's table with the trigger and the target in some rows."""
        name = _inputs(table)
        inputs, labels = table[name].clone(), table[self.label].clone()
        inputs[rows] = self.set_in(inputs[rows])
        labels[rows] = self.target
        return {**table, name: inputs, self.label: labels}

    def probe(self, rows: Rows) -> Rows:
        """The rows of other classes, with the trigger and the target: on these accuracy is how often it works."""
        name = _inputs(rows.columns)
        others = rows.columns[self.label] != self.target
        before = np.concatenate([[0], np.cumsum(others.cpu().numpy())])
        columns = {other: column[others] for other, column in rows.columns.items()}
        columns[name] = self.set_in(columns[name])
        columns[self.label] = torch.full_like(columns[self.label], self.target)
        starts = before[rows.starts]
        return Rows(columns, starts, before[rows.starts + rows.counts] - starts)

    def set_in(self, inputs: Tensor) -> Tensor:
        """Inputs `[rows, ...]` with the trigger."""
        entries = inputs.flatten(1).clone()
        places = self.places or _usual(inputs.shape[1:])
        if max(places) >= entries.shape[1]:
            raise UserError(
                f"attack: columns names {max(places)}, but an input has {entries.shape[1]} numbers, from 0 on"
            )
        usual = PIXEL if inputs.dim() > 2 else NUMBER
        entries[:, list(places)] = usual if self.value is None else self.value
        return entries.view_as(inputs)


def _usual(shape: torch.Size) -> list[int]:
    """The first number of a row, or the pixels in the last corner of an image `[..., height, width]`."""
    if len(shape) < 2:
        return [0]
    corner = torch.zeros(shape, dtype=torch.bool)
    corner[..., -PATCH:, -PATCH:] = True
    return torch.nonzero(corner.flatten()).flatten().tolist()


def _inputs(columns: Mapping[str, Tensor]) -> str:
    """The name of the column that models read."""
    for name in INPUTS:
        column = columns.get(name)
        if column is not None and column.dim() > 1 and (column.is_floating_point() or column.dtype == torch.uint8):
            return name
    raise UserError("attack: backdoor needs rows of numbers or images to put its trigger into; these have none")
