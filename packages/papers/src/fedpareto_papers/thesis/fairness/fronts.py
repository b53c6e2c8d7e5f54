"""The fronts behind a table's cells, drawn like the thesis's figures 5.2 and 5.3 (A.14 to A.19 in the appendix)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedpareto.config.files import write_atomically
from fedpareto_papers.thesis.fairness.published import TITLES, published_range, split_name

if TYPE_CHECKING:
    from fedpareto_papers.figures.front_panels import Curve
    from fedpareto_papers.thesis.fairness.tables import Cell

COLUMNS = ("problem", "algorithm", "accuracy", "fairness")
"""Of the CSV file; fairness is 1 − |gap|."""


def write(table: str, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Writes TABLE-fronts.png, .pdf and .csv into a folder that is there; their paths in this order."""
    paths = []
    for ending, content in (pictures(table, cells) | {"csv": as_csv(cells).encode()}).items():
        paths.append(folder / f"{table}-fronts.{ending}")
        write_atomically(paths[-1], content)
    return paths


def pictures(table: str, cells: Sequence[Cell]) -> dict[str, bytes]:
    """As png and pdf: a panel for each problem, with the front of each algorithm and the range of the published one."""
    from fedpareto_papers.figures.front_panels import front_panels, render  # matplotlib is slow to load

    panels: dict[str, list[Curve]] = {}
    for cell in cells:
        panels.setdefault(title(cell.problem), []).append(_curve(table, cell))
    ranges = [published_range(table, cell.problem, cell.algorithm) for cell in cells]
    reasons = dict.fromkeys(found.doubtful for found in ranges if found.doubtful)
    figure = front_panels(
        panels,
        "accuracy (higher is better)",
        "fairness, 1 − |gap| (higher is better)",
        frame_label="" if reasons else "published front's range",
        note=f"Published ranges are not drawn: {'; '.join(reasons)}." if reasons else "",
    )
    return {ending: render(figure, ending) for ending in ("png", "pdf")}


def as_csv(cells: Sequence[Cell]) -> str:
    """The points of all fronts, from the least to the most accurate of each."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for cell in cells:
        rows.writerows((cell.problem, cell.algorithm, *point) for point in sorted(cell.front))
    return text.getvalue()


def title(problem: str) -> str:
    """law-school-race-deo is Law School, race, DEO."""
    data, gap = split_name(problem)
    name, _, attribute = data.rpartition("-")
    return f"{name.replace('-', ' ').title()}, {attribute}, {gap.upper()}"


def _curve(table: str, cell: Cell) -> Curve:
    from fedpareto_papers.figures.front_panels import Curve

    found = published_range(table, cell.problem, cell.algorithm)
    frame = None if found.doubtful else (found.accuracy, found.fairness)
    return Curve(TITLES[cell.algorithm], cell.front, frame)
