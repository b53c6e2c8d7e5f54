"""Figures of the papers as files; `drawing` makes the pictures, since matplotlib is slow to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.config.files import write_atomically
from fedpareto_papers.figures.data import WIDTH, Bar, Curve, Panel, Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WIDTH", "Bar", "Curve", "Panel", "Series", "save", "save_series"]


def save_series(
    folder: Path, name: str, panels: Mapping[str, Sequence[Series]], x_label: str, y_label: str, **style: Any
) -> list[Path]:
    """Draw a panel of series for each title, as .png and .pdf; see drawing.series_panels."""
    from fedpareto_papers.figures.drawing import series_panels

    return save(folder, name, series_panels(panels, x_label, y_label, **style))


def save(folder: Path, name: str, figure: Figure) -> list[Path]:
    """Write a figure as .png and .pdf."""
    from fedpareto.report.style import render

    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files
