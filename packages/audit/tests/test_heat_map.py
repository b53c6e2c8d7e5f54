"""The heat map: every cell with its number, what cannot be hatched, what failed crossed out."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from fedpareto_audit.figures import HATCH, heat_map, render


def drawn(values: np.ndarray, refused: np.ndarray, maximise: bool = True, measure: str = "accuracy"):
    panels, rows, columns = values.shape
    return heat_map(
        values,
        refused,
        rows=[f"row {i}" for i in range(rows)],
        columns=[f"column {i}" for i in range(columns)],
        panels=[f"panel {i}" for i in range(panels)],
        measure=measure,
        maximise=maximise,
    )


def test_every_cell_shows_its_number_its_failure_or_its_hatching():
    values = np.linspace(0.1, 0.9, 4 * 2 * 3).reshape(4, 2, 3)
    refused = np.zeros(values.shape, dtype=bool)
    values[1, 0, 2] = np.nan
    values[2, 1, 1], refused[2, 1, 1] = np.nan, True
    figure = drawn(values, refused)
    for panel, axes in enumerate(figure.axes[:4]):
        texts = [text.get_text() for text in axes.texts]
        known = values[panel][~refused[panel]]
        assert texts == ["×" if np.isnan(value) else f"{100 * value:#.3g}" for value in known]
        hatched = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch() == HATCH]
        assert len(hatched) == refused[panel].sum()
        assert axes.get_title() == f"panel {panel}"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["do not fit together", "× failed"]
    assert figure.axes[-1].get_ylabel() == "accuracy, in %\n(higher is better)"
    assert render(figure, "png").startswith(b"\x89PNG")


def test_values_beyond_shares_keep_their_unit_and_the_best_is_light_either_way():
    values = np.array([[[2.0, 50.0]]])
    figure = drawn(values, np.zeros(values.shape, dtype=bool), maximise=False)
    assert [text.get_text() for text in figure.axes[0].texts] == ["2.00", "50.0"]
    best, worst = (sum(patch.get_facecolor()[:3]) for patch in figure.axes[0].patches)
    assert best > worst
    assert figure.axes[-1].get_ylabel() == "accuracy (lower is\nbetter)"
    assert not figure.legends


def test_a_matrix_of_failures_is_still_a_picture():
    values = np.full((1, 1, 2), np.nan)
    figure = drawn(values, np.zeros(values.shape, dtype=bool))
    assert [text.get_text() for text in figure.axes[0].texts] == ["×", "×"]
    assert render(figure, "pdf").startswith(b"%PDF")


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 3), (3, 5, 3), (6, 8, 8)])
def test_the_name_of_the_scale_lies_within_the_picture(shape):
    values = np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape)
    measure = "equal opportunity gap, mean of honest clients"
    figure = drawn(values, np.zeros(shape, dtype=bool), measure=measure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    label = figure.axes[-1].yaxis.label
    box = label.get_window_extent(canvas.get_renderer())
    assert label.get_text().replace("\n", " ") == f"{measure}, in % (higher is better)"
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height
