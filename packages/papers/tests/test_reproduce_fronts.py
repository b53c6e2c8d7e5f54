from __future__ import annotations

import csv
import io
import subprocess
import sys

import numpy as np
import pytest

from fedpareto_papers.figures import Curve
from fedpareto_papers.figures import drawing as panels
from fedpareto_papers.thesis.fairness import reproduction as fairness
from reproduced import NOTHING, cell, cells, staircase


@pytest.mark.takes_long
@pytest.mark.parametrize(("table", "rows"), [("thesis-5.2", 5), ("thesis-A.20", 10)])
def test_a_table_becomes_two_pictures_and_a_list_of_points(table, rows, tmp_path):
    paths = fairness.save_fronts(table, cells(table), tmp_path)
    assert [path.name for path in paths] == [f"{table}-fronts.{ending}" for ending in ("png", "pdf", "csv")]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert len(paths[2].read_text().splitlines()) == 1 + 5 * rows
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_list_holds_every_point_of_every_front_from_the_least_accurate():
    points = np.array([[0.8, 0.7], [0.6, 0.9], [0.5, 0.5]])
    some = [cell("thesis-5.2", "adult-gender-deo", "cfl", points), cell("thesis-5.2", "adult-race-deo", "cfl", NOTHING)]
    rows = list(csv.DictReader(io.StringIO(fairness.as_csv(some))))
    assert [(row["problem"], row["algorithm"]) for row in rows] == [("adult-gender-deo", "cfl")] * 2
    assert [(float(row["accuracy"]), float(row["fairness"])) for row in rows] == [(0.6, 0.9), (0.8, 0.7)]


def drawn(monkeypatch, table, some):
    """What the picture is made from: panels and words."""
    seen = {}

    def remember(panels, x_label, y_label, **words):
        seen.update(panels=panels, **words)
        return original(panels, x_label, y_label, **words)

    original = panels.front_panels
    monkeypatch.setattr(panels, "front_panels", remember)
    fairness.picture(table, some)
    return seen


def test_published_ranges_frame_the_fronts(monkeypatch):
    seen = drawn(monkeypatch, "thesis-5.2", [cell("thesis-5.2", "adult-gender-deo", "fedprox", staircase(3))])
    (curve,) = seen["panels"]["Adult, gender, DEO"]
    assert curve.frame == ((0.800, 0.801), (0.837, 0.876))
    assert len(curve.points) == 3
    assert seen["frame_label"]
    assert not seen["note"]


def test_doubtful_ranges_are_not_drawn_and_the_picture_says_why(monkeypatch):
    seen = drawn(monkeypatch, "thesis-5.5", [cell("thesis-5.5", "law-school-race-ddp", "local", staircase(3))])
    (curve,) = seen["panels"]["Law School, race, DDP"]
    assert curve.frame is None
    assert not seen["frame_label"]
    assert "A.16 repeats A.14" in seen["note"]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in [axes.title, *axes.texts]]


def test_a_panel_names_those_without_a_front():
    figure = panels.front_panels({"one": [Curve("CFL", []), Curve("FedPref", [[0.5, 0.5]])]}, "x", "y")
    assert "no front: CFL" in texts(figure)


def test_algorithms_keep_their_colour_where_one_is_missing():
    first = [Curve("CFL", [[0.5, 0.5]]), Curve("FedPref", [[0.4, 0.6]])]
    figure = panels.front_panels({"one": first, "two": first[1:]}, "x", "y")
    one, two = (axes.lines[-1] for axes in figure.axes[:2])
    assert (one.get_color(), one.get_marker()) == (two.get_color(), two.get_marker())


@pytest.mark.parametrize(("count", "places"), [(1, 2), (3, 4), (5, 6), (10, 12)])
def test_there_is_one_place_more_than_panels_and_one_legend(count, places):
    figure = panels.front_panels({str(i): [Curve("CFL", [[0.5, 0.5]])] for i in range(count)}, "x", "y")
    assert len(figure.axes) == places
    assert [axes.get_legend() is not None for axes in figure.axes].count(True) == 1


def test_a_published_front_of_one_point_is_an_open_marker():
    figure = panels.front_panels({"one": [Curve("CFL", [[0.5, 0.5]], ((0.6, 0.6), (0.7, 0.7)))]}, "x", "y")
    point = figure.axes[0].lines[0]
    assert (list(point.get_xdata()), point.get_markerfacecolor()) == ([0.6], "none")
    assert not figure.axes[0].patches


def test_the_module_does_not_load_matplotlib():
    code = "import sys, fedpareto_papers.thesis.fairness.reproduction; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
