"""`fedpareto algorithms --taxonomy`: figure 2.4 of the thesis with our occupants, as text and as plain values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from fedpareto.contract.taxonomy import LEVELS, Box

WIDTH = 80
"""Characters in a line, where there is no terminal to ask or that is wider: longer lists are hard to read."""
EMPTY = "(empty)"
LEADS = {"server": "server leads", "client": "clients lead", "distributed": "nobody leads"}


def lines(boxes: Mapping[Box, Sequence[str]], outside: Sequence[str], width: int) -> Iterator[str]:
    """Levels, branches and boxes as a tree, each box with its occupants under it."""
    filled = sum(bool(names) for names in boxes.values())
    yield f"Multi-objective methods in federated learning: {filled} of {len(boxes)} boxes are occupied"
    for level, of_level in groupby(boxes, key=lambda box: box.level):
        yield from ("", LEVELS[level])
        branches = [(branch, list(some)) for branch, some in groupby(of_level, key=lambda box: box.branch)]
        for place, (branch, some) in enumerate(branches, start=1):
            is_last = place == len(branches)
            yield f"{'└' if is_last else '├'}─ {branch}"
            yield from _branch({box: boxes[box] for box in some}, "   " if is_last else "│  ", width)
    yield from ("", "outside of the taxonomy, to compare with")
    yield from _wrapped(outside, "   ", width)
    yield from ("", "* a box in which the thesis knows no work")


def _branch(boxes: Mapping[Box, Sequence[str]], margin: str, width: int) -> Iterator[str]:
    for place, (box, names) in enumerate(boxes.items(), start=1):
        is_last = place == len(boxes)
        star = " *" if box.was_empty else ""
        yield f"{margin}{'└' if is_last else '├'}─ {box.number:>2} {box.family}{star} [{_outcome(box)}]"
        yield from _wrapped(names or [EMPTY], f"{margin}{' ' if is_last else '│'}     ", width)


def _outcome(box: Box) -> str:
    solutions = {"one": "one solution", "front": "a front", "client-specific": "one for each client"}[box.solutions]
    return f"{solutions}; {LEADS[box.leads]}"


def _wrapped(names: Sequence[str], margin: str, width: int) -> list[str]:
    return textwrap.wrap(
        ", ".join(names),
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )


def plain(boxes: Mapping[Box, Sequence[str]], outside: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""
    found = [
        {
            "number": box.number,
            "level": box.level,
            "branch": box.branch,
            "family": box.family,
            "solutions": box.solutions,
            "leads": box.leads,
            "section": box.section,
            "unexplored": box.was_empty,
            "ways": list(box.ways),
            "algorithms": [name for name in names if name not in box.ways],
        }
        for box, names in boxes.items()
    ]
    return {"boxes": found, "outside": list(outside)}
