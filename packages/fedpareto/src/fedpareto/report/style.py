"""The common style of all figures: colours for colour-blind readers, fonts, sizes and saving."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from fedpareto.record.entries import Objective
from fedpareto.record.run_record import Record

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito 2008, without black (the known front) and without yellow (invisible on white)."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

STYLE: dict[Any, Any] = {  # Any, because newer matplotlib lists the keys and older does not
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the same figure everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # journals refuse Type 3 fonts
    "svg.hashsalt": "fedpareto",  # or ids would be drawn anew every time
    "text.parse_math": False,  # names are the user's; a dollar sign in one is no formula
}

LONGEST_LABEL = 36

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """`draw` under `STYLE` alone, whatever the user's own matplotlib settings are."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _style():
            return draw(*args, **kwargs)

    return drawn


def render(figure: Figure, format: str, as_text: bool = False) -> bytes:
    """The figure as `png`, `pdf` or `svg`; the same figure always gives the same bytes.

    Letters of an `svg` are shapes, or with `as_text` text in whatever font is there.
    """
    dates = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    buffer = io.BytesIO()
    with _style(), mpl.rc_context({"svg.fonttype": "none"} if as_text else {}):
        if (layout := figure.get_layout_engine()) is not None:
            # Once for all formats; matplotlib would do it twice for each.
            layout.execute(figure)
            figure.set_layout_engine("none")
        with _only_glyphs() if format == "pdf" else contextlib.nullcontext():
            figure.savefig(buffer, format=format, metadata=dates.get(format))
    return buffer.getvalue()


def colour(position: int) -> str:
    return PALETTE[position % len(PALETTE)]


def marker(position: int) -> str:
    """Return a run's marker, which shifts when the colours start over, so that 49 runs differ."""
    return MARKERS[(position + position // len(PALETTE)) % len(MARKERS)]


def short(label: str) -> str:
    """A label that fits into a legend; both ends stay, since names differ at either."""
    half = LONGEST_LABEL // 2
    text = label if len(label) <= LONGEST_LABEL else f"{label[: half - 1]}…{label[-half:]}"
    # matplotlib leaves names with a leading underscore out of legends.
    return f" {text}" if text.startswith("_") else text


def run_label(run: Record) -> str:
    """A run's label with what a figure of its solutions cannot show: clients without one, and that it is not
    finished.
    """
    lost = sum(len(points) for points in run.points()) - len(run.pooled())
    # A diverged client cannot be drawn, but it must not vanish silently either.
    label = short(run.label) + (f"\n({lost} not finite)" if lost else "")
    if not run.finished:
        label += f"\n(after round {min(s.round for s in run.solutions)} of {run.rounds})"
    return label


def width_with_legend(plot: float, labels: Iterable[str]) -> float:
    """Inches of a figure whose legend stands beside the plot, so that long names do not squeeze it."""
    return plot + 0.6 + 0.068 * max(len(line) for label in labels for line in label.split("\n"))


def beside_legend(plot: float, height: float, handles: Sequence[Artist]) -> Figure:
    """An empty figure whose plot keeps its width, with the legend to the right of it."""
    width = width_with_legend(plot, [str(handle.get_label()) for handle in handles])
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.legend(handles=list(handles), loc="outside right upper")
    return figure


def axis_label(objective: Objective, separator: str = " ") -> str:
    return f"{short(objective.name)}{separator}({objective.better} is better)"


@contextlib.contextmanager
def _only_glyphs() -> Iterator[None]:
    """Leaves tables for typesetting out of the fonts in a PDF, where every glyph has its place (ISO 32000, 9.9): the
    library for fonts would take a quarter of the time of a page to read them.
    """
    from fontTools.subset import Options

    usual = Options._drop_tables_default
    Options._drop_tables_default = [*usual, "GDEF", "GPOS", "GSUB", "MATH"]
    try:
        yield
    finally:
        Options._drop_tables_default = usual


@contextlib.contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        with mpl.rc_context(STYLE):
            yield
