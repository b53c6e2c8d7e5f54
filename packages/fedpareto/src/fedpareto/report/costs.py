"""Costs of a run in simulated time and energy, the age of its replies, and the share that slow clients had."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.record.units import ENERGY, TIME
from fedpareto.report.axes import MEANINGS, chosen_of, nearly_there
from fedpareto.report.machines import of_clients
from fedpareto.report.table import Column

NEARLY = "nearly"
FAIR = {
    "utility_by_speed": "utility by speed (ρ)",
    "utility_by_updates": "utility by updates (ρ)",
}
"""Titles of Spearman's ρ: near 0 where a policy is fair to slow clients, and to those seldom heard."""
OF_TIME = ("clock", "joules", NEARLY, "staleness", *FAIR)
"""Columns that only some runs have."""
Metric = tuple[Column, Callable[[Record], Array]]


def metrics_of_time(runs: Sequence[Record], over: str | None) -> list[Metric]:
    """Each column with the function that gives a run's values `[started]`.

    The way to 95 % is measured over the simulated clock; over anything else only on request.
    """
    # Neither direction is better: under two policies as many rounds are not as many updates.
    found: list[Metric] = [
        (Column("clock", "clock time", 0, TIME), lambda run: _at_the_end(run, "clock")),
        (Column("joules", "energy", 0, ENERGY), lambda run: _at_the_end(run, "joules")),
    ]
    chosen = chosen_of(runs, over)
    if over is not None or chosen != "round":
        meaning = MEANINGS[chosen]
        column = Column(NEARLY, meaning.nearly, -1, meaning.quantity)
        found.append((column, lambda run: nearly_there(run, chosen)))
    found.append((Column("staleness", "staleness (rounds)"), staleness))
    return [*found, *((Column(key, title), _correlation(key)) for key, title in FAIR.items())]


def _correlation(key: str) -> Callable[[Record], Array]:
    def measure(run: Record) -> Array:
        found = [of_clients(run, seed) for seed in run.started]
        return np.array([np.nan if one is None else one.correlation(key) for one in found])

    return measure


def _at_the_end(run: Record, name: str) -> Array:
    return np.array([getattr(run.of_seed(seed)[-1], name) for seed in run.started], dtype=np.float64)


def staleness(run: Record) -> Array:
    """Mean age of the replies in rounds, `[started]`; NaN where that is always the same."""
    found = []
    for seed in run.started:
        lines = [line for line in run.of_seed(seed) if np.isfinite(line.staleness)]
        replies = sum(line.replies for line in lines)
        found.append(sum(line.staleness * line.replies for line in lines) / replies if replies else np.nan)
    return np.array(found, dtype=np.float64)
