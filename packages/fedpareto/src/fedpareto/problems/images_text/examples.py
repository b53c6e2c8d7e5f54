"""Inputs and labels of a published set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Examples:
    """Inputs and labels: rows in the order of the files, training files first."""

    inputs: np.ndarray
    """`[rows, ...]`: pixels, words or characters as small whole numbers."""
    labels: np.ndarray
    """`[rows]`, 0, 1, …"""
    tested: np.ndarray
    """`[rows]`, whether a row is in the published test split."""
    origins: np.ndarray | None = None
    """`[rows]`, the natural client (0, 1, …) of a row, such as its writer, where known."""

    def census(self) -> dict[str, int]:
        counts = {"training rows": int((~self.tested).sum()), "test rows": int(self.tested.sum())}
        counts["classes"] = len(np.unique(self.labels))
        return counts if self.origins is None else {**counts, "origins": len(np.unique(self.origins))}
