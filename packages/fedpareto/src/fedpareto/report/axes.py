"""Axes of a run's course: its rounds, its simulated clock, or what it cost so far.

The row of round r holds the solutions after r rounds, and what the round after it cost. So the clock, the joules and
the ε of a row are its own, while replies, bytes and seconds are the sums of all rows before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.record.entries import Line
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.record.units import BYTES, COUNT, ENERGY, TIME, Quantity

Over = Literal["round", "clock", "joules", "bytes", "updates", "seconds", "epsilon"]
OVER: tuple[Over, ...] = get_args(Over)
SIMULATED = ("clock", "joules")
"""Axes that only runs with devices have."""
OWN = (*SIMULATED, "epsilon")
"""Axes whose values stand in each row."""
MOST_POINTS = 1000
"""Largest number of points of a curve; a picture shows no more."""
NEARLY = 0.95
"""The share of the final result at which a run is nearly there."""


@dataclass(frozen=True)
class Meaning:
    """The words for an axis."""

    title: str
    words: str
    """The axis in a heading."""
    nearly: str
    """Title of a table's column: the place where a run is nearly there."""
    quantity: Quantity = COUNT


MEANINGS: dict[Over, Meaning] = {
    "round": Meaning("round", "rounds", "rounds to 95 %"),
    "clock": Meaning("clock time", "clock time", "time to 95 %", TIME),
    "joules": Meaning("energy of all clients", "energy", "energy to 95 %", ENERGY),
    "bytes": Meaning("bytes sent, both ways", "bytes", "bytes to 95 %", BYTES),
    "updates": Meaning("replies so far", "replies", "replies to 95 %"),
    "seconds": Meaning("time on this machine", "seconds", "seconds to 95 %", TIME),
    "epsilon": Meaning("ε so far", "ε", "ε to 95 %"),
}


@dataclass(frozen=True)
class Axis:
    """An axis for all compared runs, in one unit."""

    over: Over
    label: str
    size: float
    """Size of the unit, in what is counted."""

    @property
    def is_stepped(self) -> bool:
        """True if a curve is a staircase: a solution stands until the next one."""
        return self.over != "round"

    @property
    def drawstyle(self) -> Literal["default", "steps-post"]:
        return "steps-post" if self.is_stepped else "default"

    @property
    def step(self) -> Literal["post"] | None:
        return "post" if self.is_stepped else None

    def placed(self, run: Record, rounds: np.ndarray, values: Array) -> tuple[Array, Array]:
        """Values `[started, r]` after these rounds, on places `[g]` that all seeds share: `[g]` and `[started, g]`."""
        where = positions(run, self.over, rounds) / self.size
        known = np.isfinite(where).all(axis=0)
        return shared(where[:, known], values[:, known])


def axis_of(runs: Sequence[Record], over: str | None = None) -> Axis:
    """The axis of this name; without one the simulated clock, if all runs have one, else rounds."""
    chosen = chosen_of(runs, over)
    ends = [positions(run, chosen, run.common_rounds[-1:]).max(initial=0.0) for run in runs]
    unit, size = MEANINGS[chosen].quantity.unit(float(max(ends)))
    return Axis(chosen, MEANINGS[chosen].title + (f" ({unit})" if unit else ""), size)


def chosen_of(runs: Sequence[Record], over: str | None = None) -> Over:
    """Return the axis that runs are drawn over; `UserError` if one of them cannot be."""
    if over is None:
        return "clock" if all(has(run, "clock") for run in runs) else "round"
    if over not in OVER:
        raise UnknownName("axis", over, OVER)
    without = next((run for run in runs if not has(run, over)), None)
    if without is not None:
        why = "it was run without devices" if over in SIMULATED else "nothing of it was recorded"
        why = "it was run without privacy, or without noise" if over == "epsilon" else why
        raise UserError(
            f"{without.folder} cannot be drawn over {over}: {why}; these can be over {', '.join(common(runs))}"
        )
    return over


def common(runs: Sequence[Record]) -> list[Over]:
    return [one for one in OVER if all(has(run, one) for run in runs)]


def has(run: Record, over: Over) -> bool:
    """Return True if a run can be drawn over this: it is known, and moves on."""
    if over == "round":
        return True
    ends = positions(run, over, run.common_rounds)
    return bool(np.isfinite(ends).all() and (ends[:, -1] > 0).all())


def positions(run: Record, over: Over, rounds: np.ndarray) -> Array:
    """`[started, r]`: where each seed was after these rounds; NaN where that is not known."""
    if over == "round":
        return np.tile(np.asarray(rounds, dtype=np.float64), (len(run.started), 1))
    found = []
    for seed in run.started:
        lines = run.of_seed(seed)
        known = dict(zip((line.round for line in lines), _places(lines, over).tolist(), strict=True))
        found.append([known.get(int(r), np.nan) for r in rounds])
    return np.array(found, dtype=np.float64).reshape(len(run.started), len(rounds))


def _places(lines: Sequence[Line], over: Over) -> Array:
    if over in OWN:
        return np.array([getattr(line, over) for line in lines], dtype=np.float64)
    name = {"bytes": "bytes_both_ways", "updates": "replies"}.get(over, over)
    costs = [float(getattr(line, name)) for line in lines]
    return np.cumsum([0.0, *costs[:-1]])


def shared(places: Array, values: Array) -> tuple[Array, Array]:
    """Values `[s, r]` at the seeds' own places `[s, r]`, which ascend, on places that all share: `[g]`, `[s, g]`.

    A value stands until the next one, and after the last for ever. So nothing is lost on all places at which any seed
    has a new one, from where all have one.
    """
    if not places.size or (places == places[0]).all():
        return places[0] if len(places) else np.zeros(0), values
    grid = np.unique(places)
    grid = grid[grid >= places[:, 0].max()]
    if len(grid) > MOST_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int)]
    at = [np.searchsorted(own, grid, side="right") - 1 for own in places]
    return grid, np.stack([of_seed[i] for of_seed, i in zip(values, at, strict=True)])


def nearly_there(run: Record, over: Over) -> Array:
    """`[started]`: from where on each seed was always within 5 % of its final hypervolume, or with a single objective,
    of the clients' final mean; NaN where that is not known.
    """
    rounds = run.common_rounds
    values = run.mean_over_rounds(0) if run.single else run.hypervolume
    final = values[:, -1:]
    # On both sides: of an untrained model, which may be fair to all, the hypervolume can be the larger one.
    far = ~(np.abs(values - final) <= (1 - NEARLY) * np.abs(final))
    first = np.where(far.any(axis=1), values.shape[1] - np.argmax(far[:, ::-1], axis=1), 0)
    first = np.minimum(first, values.shape[1] - 1)
    found = np.take_along_axis(positions(run, over, rounds), first[:, None], axis=1)[:, 0]
    return np.where(np.isfinite(final[:, 0]), found, np.nan)
