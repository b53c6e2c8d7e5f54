"""What a cell of a matrix is worth to its clients, from a finished run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.solutions import held_out
from fedpareto.runs.result import Result


def final(result: Result, run: int) -> Mapping[str, np.ndarray]:
    """Every client's final objectives by split, `[n, m]`."""
    measured = result.columns.evaluated(result.of_round(result.kept[run], result.spec.seeds[run]), "sent")
    assert measured is not None, "solutions are measured in the round whose models are kept"
    return measured


def first_objective(result: Result, run: int) -> np.ndarray:
    """Every client's final value on held-out rows, `[n]`."""
    measured = final(result, run)
    return measured[held_out(list(measured))][:, 0]


def own_utility(result: Result, run: int) -> np.ndarray:
    """What every client has at the end on held-out rows, `[n]`; NaN of those whose model is no solution."""
    solutions = result.solutions[run]
    known = solutions.own_utilities()
    if known is None:
        raise UserError("clients keep their preferences private, so what they have under these is not known")
    found = np.full(result.spec.clients, np.nan)
    found[list(solutions.clients)] = known
    return found


def finite(values: np.ndarray) -> list[float | None]:
    """As a file keeps them; None where one is not finite."""
    return [round(value, 6) if math.isfinite(value) else None for value in values.tolist()]
