"""Made-up cells of the thesis's tables."""

from __future__ import annotations

import numpy as np

from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.reproduction import Pooled, cell_of

NOTHING = np.array([[0.9, 1.0]])
"""A point that counts as not converged."""


def cell(table: str, problem: str, algorithm: str, points: np.ndarray) -> Pooled:
    """The cell of a table with these points as its only repetition."""
    return cell_of(problem, algorithm, [points], published.TABLES[table].cells[problem][algorithm])


def cells(table: str, **values: dict[str, float | None]) -> list[Pooled]:
    """A whole table as published, but for some values by problem (with _ for -) and algorithm; None is no value."""
    found = []
    for problem, row in published.TABLES[table].cells.items():
        changed = values.get(problem.replace("-", "_"), {})
        for algorithm, value in (row | changed).items():
            points = NOTHING if value is None else np.array([[value / 0.99, 0.99]])
            found.append(cell(table, problem, algorithm, points))
    return found


def staircase(size: int) -> np.ndarray:
    """A front with so many points."""
    return np.column_stack([np.linspace(0.6, 0.8, size), np.linspace(0.9, 0.7, size)])
