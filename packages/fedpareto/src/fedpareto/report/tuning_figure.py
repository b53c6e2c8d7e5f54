"""The picture of a tuning: every candidate, the front, and the one that was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpareto.report.style import colour, render, short, styled

FRONT, CHOSEN, OTHERS = colour(0), colour(1), "#B0B0B0"


def drawn(record: Mapping[str, Any], format: str = "png") -> bytes:
    return render(figure(record), format)


@styled
def figure(record: Mapping[str, Any]) -> Figure:
    """Plot the first objective over each of the others; a single one over the trials, in their order."""
    names = list(record["objectives"])
    panels = max(len(names) - 1, 1)
    found = Figure(figsize=(4.2 * panels, 3.4), layout="constrained")
    known = [one for one in record["trials"] if one["state"] == "complete" and one["feasible"]]
    for number, axes in enumerate(np.atleast_1d(found.subplots(1, panels))):
        across = names[number + 1] if len(names) > 1 else None
        _panel(axes, known, record, across)
    return found


def _panel(axes: Axes, known: Sequence[Mapping[str, Any]], record: Mapping[str, Any], across: str | None) -> None:
    first = next(iter(record["objectives"]))

    def places(some: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
        return [one["number"] if across is None else one["values"][across] for one in some], [
            one["values"][first] for one in some
        ]

    on_front = [one for one in known if one["number"] in record["front"]]
    this = [one for one in known if one["number"] == record["chosen"]]
    axes.plot(*places(known), "o", color=OTHERS, ms=3.5, mew=0, label="candidates")
    axes.plot(*places(on_front), "o", color=FRONT, ms=5, mec="white", mew=0.4, label="front")
    axes.plot(*places(this), "*", color=CHOSEN, ms=12, mec="white", mew=0.5, label="this one")
    axes.set_xlabel("trial" if across is None else _label(across, record))
    axes.set_ylabel(_label(first, record))
    axes.legend(loc="best")


def _label(name: str, record: Mapping[str, Any]) -> str:
    better = "higher" if record["objectives"][name] else "lower"
    return f"{short(name)} ({better} is better)"
