"""What `soak.py` measures: memory, descriptors and threads of every process, and whether they grow."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

WARM_UP = 240.0
"""Seconds of a process's life that do not count, or a third of it: it still loads and meets things for the first
time.
"""
FEWEST = 12
"""Samples of a life that are a line to speak of."""
COVERAGE = 0.95
UNITS = {"memory": ("MB", 2**20), "descriptors": ("", 1), "threads": ("", 1)}
"""What is measured, and how it is shown."""


def sample(process: int) -> dict[str, int] | None:
    """What a process has now; None if it is gone. Memory is what it does not share with files."""
    folder = Path(f"/proc/{process}")
    try:
        lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        born = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        return {
            "process": process,
            "born": born,
            "memory": int(lines["RssAnon"].split()[0]) * 1024,
            "descriptors": sum(1 for _ in (folder / "fd").iterdir()),
            "threads": int(lines["Threads"]),
        }
    except (OSError, KeyError, ValueError):
        return None


@dataclass(frozen=True)
class Slope:
    """By how much something grows in an hour."""

    value: float
    width: float
    """Half of the confidence interval."""
    lives: int
    hours: float
    """That were looked at."""
    largest: float
    """Of the values themselves."""

    @property
    def grows(self) -> bool:
        """Whether it does for sure."""
        return self.value > self.width


def slope(lives: Iterable[Sequence[tuple[float, float]]]) -> Slope | None:
    """Of (seconds, value), by least squares over all lives with one slope and a level for each.

    Neighbouring samples resemble each other, so they count for fewer than there are: n (1 - r) / (1 + r), where r is
    the correlation of a residual with the next one.
    """
    whole = [np.asarray(life, dtype=float) for life in lives]
    largest = max((float(life[:, 1].max()) for life in whole if len(life)), default=0.0)
    settled = [life[life[:, 0] - life[0, 0] >= min(WARM_UP, np.ptp(life[:, 0]) / 3)] for life in whole if len(life)]
    used = [life for life in settled if len(life) >= FEWEST]
    if not used:
        return None
    x, y = (np.concatenate([life[:, one] - life[:, one].mean() for life in used]) for one in (0, 1))
    x = x / 3600
    value = float((x * y).sum() / (x * x).sum())
    residuals = np.split(y - value * x, np.cumsum([len(life) for life in used])[:-1])
    square = sum(float((one * one).sum()) for one in residuals)
    following = sum(float((one[1:] * one[:-1]).sum()) for one in residuals)
    r = min(max(following / square, 0.0), 0.999) if square else 0.0
    shrunk = (1 - r) / (1 + r)
    error = math.sqrt(square / (len(y) - len(used) - 1) / float((x * x).sum()) / shrunk)
    freedom = max(len(y) * shrunk - len(used) - 1, 1.0)
    hours = sum(float(np.ptp(life[:, 0])) for life in used) / 3600
    return Slope(value, float(stats.t.ppf((1 + COVERAGE) / 2, freedom)) * error, len(used), hours, largest)


def slopes(samples: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Slope]]:
    """By role and by what is measured."""
    lives: dict[str, dict[tuple[int, int], list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for one in samples:
        lives[one["role"]][one["process"], one["born"]].append(one)
    found: dict[str, dict[str, Slope]] = {}
    for role, of_role in sorted(lives.items()):
        for what, (_, unit) in UNITS.items():
            one = slope([(sample["at"], sample[what] / unit) for sample in life] for life in of_role.values())
            if one is not None:
                found.setdefault(role, {})[what] = one
    return found


def table(found: Mapping[str, Mapping[str, Slope]]) -> str:
    """For people."""
    lines = [
        f"| process | lives | hours | memory at most, MB | MB an hour ({COVERAGE:.0%}) | descriptors at most "
        "| an hour | threads at most | an hour |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for role, of_role in found.items():
        memory = of_role["memory"]
        cells = [role, f"{memory.lives}", f"{memory.hours:.2f}"]
        for what in UNITS:
            one = of_role[what]
            cells += [f"{one.largest:.0f}", f"{one.value:+.2f} ± {one.width:.2f}{' (grows)' if one.grows else ''}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines, which may still be written."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def draw(samples: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Memory and descriptors over time, faults as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, sharex=True, figsize=(11, 8), layout="constrained")
    roles = sorted({one["role"] for one in samples})
    colours = {role: pyplot.get_cmap("tab20")(number % 20) for number, role in enumerate(roles)}
    for axis, what in zip(axes, ("memory", "descriptors"), strict=True):
        lives: dict[tuple[str, int, int], list[Mapping[str, Any]]] = defaultdict(list)
        for one in samples:
            lives[one["role"], one["process"], one["born"]].append(one)
        shown: set[str] = set()
        for (role, *_), life in lives.items():
            x, y = [one["at"] / 60 for one in life], [one[what] / UNITS[what][1] for one in life]
            axis.plot(x, y, color=colours[role], lw=1, label=None if role in shown else role)
            shown.add(role)
        for fault in faults:
            axis.axvline(fault["at"] / 60, color="0.85", lw=0.7, zorder=0)
        axis.set_ylabel("memory of its own, MB" if what == "memory" else "open descriptors")
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=7, ncols=2, loc="lower right")
    axes[1].set_xlabel("minutes; grey lines: faults")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
