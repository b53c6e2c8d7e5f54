"""The figure that says whether federation pays, client by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedpareto.config.errors import UserError
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.report.gains import LOCAL, gain
from fedpareto.report.likeness import comparable
from fedpareto.report.style import colour, marker, render, run_label, styled, width_with_legend

__all__ = ["gains", "render"]

APART = 0.24
"""By how much of the distance between two clients the runs lie apart."""


@styled
def gains(records: Sequence[Record]) -> Figure:
    """Every client's gain over training alone: mean over the seeds, and from the worst seed to the best.

    With two objectives clients stand where their preference is, else side by side.
    """
    runs = comparable(records)
    alone = next((run for run in runs if run.algorithm == LOCAL), None)
    found = {} if alone is None else {i: gain(run, alone) for i, run in enumerate(runs)}
    drawn = {i: one.by_client for i, one in found.items() if one is not None}
    if alone is None or not drawn:
        raise UserError(f"gains need a run of '{LOCAL}' and another with the same seeds, clients and preferences")
    handles = [_handle(i, runs[i]) for i in drawn]
    width = width_with_legend(5.4, [str(handle.get_label()) for handle in handles])
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    figure.legend(handles=handles, loc="outside right upper")
    axes = figure.add_subplot()
    places, name = _places(alone)
    gaps = np.diff(np.unique(places))
    step = APART * (float(gaps.min()) if len(gaps) else 1.0)
    for number, (i, values) in enumerate(drawn.items()):
        _draw(axes, places + (number - (len(drawn) - 1) / 2) * step, values, i)
    axes.axhline(0, color="black", lw=1.2)
    axes.text(1, 0, "alone", transform=axes.get_yaxis_transform(), ha="right", va="bottom")
    axes.set_xlabel(name)
    axes.set_ylabel("gain over training alone\n(utility under a client's own preference)")
    return figure


def _places(run: Record) -> tuple[Array, str]:
    """`[n]`: where each client stands, and what that means."""
    wants = run.preferences(run.started[0])
    if wants is None or wants.shape[1] != 2:
        return np.arange(run.clients, dtype=float), "client"
    first, second = (objective.name for objective in run.objectives)
    return wants[:, 0], f"how much a client cares for {first}; the rest is for {second}"


def _draw(axes: Axes, places: Array, values: Array, i: int) -> None:
    mean = values.mean(axis=0)
    ends = np.abs(np.stack([values.min(axis=0), values.max(axis=0)]) - mean)
    axes.errorbar(places, mean, yerr=ends, fmt=marker(i), color=colour(i), ms=5.5, mec="white", mew=0.4, elinewidth=1)


def _handle(i: int, run: Record) -> Line2D:
    return Line2D(
        [], [], color=colour(i), marker=marker(i), ls="none", ms=5.5, mec="white", mew=0.4, label=run_label(run)
    )
