"""Who was busy when: every bar in its row, in the colour of its kind."""

from __future__ import annotations

from matplotlib.colors import to_rgba

from fedpareto.report.style import PALETTE
from fedpareto_space.report.gantt import MOST_LABELS, OTHERS, Span, gantt


def test_every_bar_is_in_its_row_from_start_to_end_in_the_colour_of_its_kind():
    spans = [Span("b", 1.0, 2.5, "redu"), Span("a", 0.0, 1.0, "kiruna"), Span("b", 4.0, 5.0, "redu")]
    (axes,) = gantt(spans, ["a", "b", "idle"], ["redu", "kiruna"], "hours").axes
    found = {}
    for bars in axes.collections:
        colour = tuple(bars.get_facecolor()[0])
        for path in bars.get_paths():
            (left, low), (right, high) = path.get_extents().get_points()
            found[left, right] = (round((low + high) / 2), colour)
    redu, kiruna = to_rgba(PALETTE[0]), to_rgba(PALETTE[1])
    assert found == {(0.0, 1.0): (0, kiruna), (1.0, 2.5): (1, redu), (4.0, 5.0): (1, redu)}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "idle"]


def test_many_rows_and_kinds_stay_readable():
    names = [f"sat-{number}" for number in range(3 * MOST_LABELS)]
    figure = gantt([Span(name, 0.0, 1.0, name) for name in names], names, names, "hours")
    assert len(figure.axes[0].get_yticklabels()) == MOST_LABELS
    assert figure.get_figheight() < 30
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*names[: len(PALETTE)], "others"]
    assert legend.get_patches()[-1].get_facecolor() == to_rgba(OTHERS)
