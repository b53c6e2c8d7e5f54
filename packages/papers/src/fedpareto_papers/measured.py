"""Numbers of several seeds beside a published mean and deviation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Entry:
    """Of a published table, over its runs."""

    mean: float
    deviation: float


class Measured:
    """What rows of tables have in common: `values`, of each metric one for each seed."""

    values: Mapping[str, list[float]]

    def mean(self, metric: str) -> float:
        """Over the seeds."""
        return float(np.mean(self.values[metric]))

    def deviation(self, metric: str) -> float:
        """Over the seeds (population)."""
        return float(np.std(self.values[metric]))

    def metrics_as_json(self, published: Mapping[str, Entry]) -> dict[str, Any]:
        """With means and deviations, and what was published where something was."""
        return {
            metric: {
                "ours": self.mean(metric),
                "deviation": self.deviation(metric),
                "seeds": values,
                "published": asdict(published[metric]) if metric in published else None,
            }
            for metric, values in self.values.items()
        }
