"""Sentences about a run that its progress, its report and its page share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedpareto.moo.intervals import interval
from fedpareto.moo.tested import CHANCE, FEWEST_ROWS, Tested
from fedpareto.record.entries import OWN_TEST
from fedpareto.record.units import ENERGY, TIME


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def stop_in_words(ends: Sequence[int], kept: Sequence[int]) -> str:
    """Say of each seed after which round it ended and which round was the best on validation rows."""
    s = "s" if len(ends) > 1 else ""
    after, best = (", ".join(map(str, rounds)) for rounds in (ends, kept))
    return f"ended after round{s} {after}; best on validation rows, and kept: round{s} {best}"


def simulated_in_words(clock: float, joules: float, late: Sequence[tuple[float, int]]) -> str:
    """Simulated seconds and joules, and of rounds the mean age of their replies and how many these were."""
    replies = sum(count for _, count in late)
    age = sum(rounds * count for rounds, count in late) / replies if replies else None
    old = "" if age is None else f", replies {age:.1f} rounds old on average"
    return f"simulated {TIME.text(clock)}, {ENERGY.text(joules)}{old}"


def collapse_in_words(collapsed: Sequence[int], seeds: int) -> list[str]:
    """Say if every model of some seeds scores the same as a constant answer."""
    if not collapsed:
        return []
    which = "" if seeds == 1 else f" of seed{'s' if len(collapsed) > 1 else ''} {', '.join(map(str, collapsed))}"
    return [f"collapsed: every model{which} scores what the same answer for everybody does"]


def beside_in_words(differences: Mapping[str, np.ndarray]) -> str:
    """Compare the models with each reference, by the interval over the seeds; empty without any."""
    where = "in the same episodes" if CHANCE in differences else "on the same rows"
    told = "; ".join(f"against {name} {_verdict(one)}" for name, one in differences.items())
    return f"{where}: {told}" if told else ""


def no_plain_in_words(problem: str, references: Iterable[str]) -> list[str]:
    """Say if no plain model stands among the references, and why."""
    if any(name == CHANCE or name.startswith("plain") for name in references):
        return []
    return [
        f"no plain model to compare with: '{problem}' has none or is too large for one, its rows are elsewhere, or "
        "objectives are withheld"
    ]


def _verdict(differences: np.ndarray) -> str:
    mean, around = _signed(float(np.mean(differences))), interval(differences)
    if around is None:
        return f"{mean}, not sure ({'one seed' if len(differences) == 1 else 'too few seeds that differ'})"
    sure = ("better" if around.mean > 0 else "worse") if around.excludes_zero else "not sure"
    return f"{mean}, {sure} (95 % interval {_signed(around.low)} to {_signed(around.high)})"


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def few_rows_in_words(tested: Sequence[Tested]) -> list[str]:
    """Say if results are mostly luck, or a client's own are."""
    tested = [one for one in tested if one.rows]
    if not tested:
        return []
    rows, smallest = min(one.rows for one in tested), min(one.smallest for one in tested)
    if rows < FEWEST_ROWS:
        return [f"only {rows} test rows are behind a point: differences are mostly luck below {FEWEST_ROWS}"]
    if smallest < FEWEST_ROWS:
        return [f"a client has only {smallest} test rows of its own: its values on them ({OWN_TEST}) are mostly luck"]
    return []
