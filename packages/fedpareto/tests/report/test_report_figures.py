from __future__ import annotations

import dataclasses
import io
import re
import zlib

import matplotlib as mpl
import numpy as np
import pytest
from fontTools.subset import Options
from fontTools.ttLib import TTFont
from matplotlib.colors import to_hex

from fedpareto.config.errors import UserError
from fedpareto.record.reading import load
from fedpareto.report.figures import (
    cluster_evolution,
    fronts,
    hypervolume_curves,
    render,
    similarity_matrices,
)
from fedpareto_papers.figures import Series
from fedpareto_papers.figures.drawing import series_panels


def texts(figure) -> set[str]:
    return {t.get_text() for t in figure.findobj(mpl.text.Text) if t.get_text()}


def legend(figure) -> list[str]:
    return [t.get_text() for t in figure.legends[0].get_texts()]


def is_png(figure) -> bool:
    return render(figure, "png").startswith(b"\x89PNG")


def attained(line, x: float) -> float:
    """Height of a staircase at x, by its drawing style."""
    xs, ys = line.get_data()
    side = {"steps-pre": "left", "steps-post": "right"}[line.get_drawstyle()]
    i = np.searchsorted(xs, x, side=side)
    return float(ys[i] if side == "left" else ys[i - 1])


def test_fronts_show_every_solution_and_the_nondominated_staircase(write_run):
    records = [load(write_run("a", "fedpref", known=True)), load(write_run("b", "fedavg", known=True))]
    figure = fronts(records)
    (axes,) = figure.axes
    assert [len(points.get_offsets()) for points in axes.collections] == [30, 30]
    known, *stairs = axes.lines
    assert known.get_linestyle() == "--"
    for line, record in zip(stairs, records, strict=True):
        np.testing.assert_array_equal(np.column_stack(line.get_data()), record.front())
    assert axes.get_xlabel() == "accuracy (higher is better)"
    assert axes.get_ylabel() == "equal opportunity gap (lower is better)"
    assert legend(figure) == ["fedpref", "fedavg", "known front"]


def test_a_front_in_the_same_place_as_a_later_one_is_seen_under_it(write_run):
    same = [load(write_run(name, "fedpref")) for name in "ab"]
    elsewhere = dataclasses.replace(
        same[0],
        solutions=tuple(
            dataclasses.replace(s, objectives={"test": s.objectives["test"] + 0.01}) for s in same[0].solutions
        ),
    )
    for sizes in ("get_markersize", "get_linewidth"):
        under, over, other = (getattr(line, sizes)() for line in fronts([*same, elsewhere]).axes[0].lines)
        assert under > over == other


@pytest.mark.parametrize("maximise", [(True, False), (False, True), (False, False), (True, True)])
def test_the_staircase_bounds_what_the_front_attains_in_every_direction(write_run, maximise):
    record = load(write_run("a", "fedpref"))
    signs = np.where(np.array(maximise) == np.array([True, False]), 1.0, -1.0)
    turned = dataclasses.replace(
        record,
        objectives=tuple(
            dataclasses.replace(o, maximise=up) for o, up in zip(record.objectives, maximise, strict=True)
        ),
        solutions=tuple(
            dataclasses.replace(s, objectives={"test": s.objectives["test"] * signs}) for s in record.solutions
        ),
    )
    best = turned.front()
    (line,) = fronts([turned]).axes[0].lines
    for left, right in zip(best[:-1, 0], best[1:, 0], strict=True):
        x = (left + right) / 2
        reach = best[best[:, 0] >= x, 1] if maximise[0] else best[best[:, 0] <= x, 1]
        assert attained(line, x) == (reach.max() if maximise[1] else reach.min())


@pytest.mark.parametrize("m", [3, 4, 6])
def test_more_objectives_make_one_plane_per_pair(write_run, m):
    records = [load(write_run("a", "fedpref", m=m, known=True)), load(write_run("b", m=m))]
    figure = fronts(records)
    assert len(figure.axes) == m * (m - 1) // 2
    names = [f"{o.name}\n({o.better} is better)" for o in records[0].objectives]
    labels = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
    assert labels - {""} == set(names)
    solid = figure.axes[0].collections[1]
    assert len(solid.get_offsets()) == len(records[0].front())
    if m == 4:
        assert is_png(figure)


def test_solutions_that_are_not_finite_are_counted_in_the_legend(write_run):
    record = load(write_run("a", seeds=(0,)))
    points = record.points()[0].copy()
    points[0, 1] = np.nan
    solution = dataclasses.replace(record.solutions[0], objectives={"test": points})
    figure = fronts([dataclasses.replace(record, solutions=(solution,))])
    assert legend(figure) == ["fedavg\n(1 not finite)"]
    nothing = dataclasses.replace(solution, objectives={"test": points * np.nan})
    assert is_png(fronts([dataclasses.replace(record, solutions=(nothing,))]))


def test_an_unfinished_run_says_so_in_the_legend(write_run):
    figure = fronts([load(write_run("a", reached=7, status="running"))])
    assert legend(figure) == ["fedavg\n(after round 7 of 12)"]


def test_hypervolume_is_the_mean_with_a_band_of_one_deviation(write_run):
    records = [load(write_run("a", "fedpref")), load(write_run("b", "fedavg"))]
    figure = hypervolume_curves(records)
    (axes,) = figure.axes
    sent, trained = axes.lines[:2]
    np.testing.assert_allclose(sent.get_ydata(), records[0].hypervolume.mean(axis=0))
    # What clients have after the local steps of round r + 1 stands at r + 1.
    np.testing.assert_array_equal(trained.get_xdata()[:3], [1, 2, 3])
    np.testing.assert_allclose(trained.get_ydata()[:-1], records[0].trained_hypervolume.mean(axis=0)[:-1])
    assert (sent.get_linestyle(), trained.get_linestyle()) == ("-", ":")
    band = axes.collections[0].get_paths()[0].vertices
    top = (records[0].hypervolume.mean(axis=0) + records[0].hypervolume.std(axis=0)).max()
    assert band[:, 1].max() == pytest.approx(top)
    assert legend(figure) == ["fedpref", "fedavg", "sent by the server", "after local training"]


def test_a_run_keeps_its_colour_across_figures(write_run):
    records = [load(write_run("a", "fedpref")), load(write_run("b", "fedavg"))]
    of_fronts = [line.get_color() for line in fronts(records).axes[0].lines]
    of_curves = [line.get_color() for line in hypervolume_curves(records).axes[0].lines[::2]]
    assert of_fronts == of_curves
    assert len(set(of_fronts)) == 2


def test_a_constant_hypervolume_a_single_seed_and_a_single_round_can_be_drawn(write_run):
    constant = load(write_run("a", constant=True))
    assert is_png(hypervolume_curves([constant]))
    one = hypervolume_curves([load(write_run("b", seeds=(5,)))])
    assert not one.axes[0].collections
    start = hypervolume_curves([load(write_run("c", reached=0, status="running"))])
    assert start.axes[0].lines[0].get_marker() == "o"


def test_a_hypervolume_that_is_not_finite_is_a_gap(write_run):
    record = load(write_run("a", rounds=4))
    lines = [dataclasses.replace(x, hypervolume=np.inf) if x.round == 2 else x for x in record.lines]
    assert is_png(hypervolume_curves([dataclasses.replace(record, lines=tuple(lines))]))


def test_fifteen_runs_of_one_name_differ_in_colour_or_marker(write_run):
    record = load(write_run("a", rounds=1))
    lines = fronts([record] * 15).axes[0].lines
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 15


def test_clusters_have_a_row_per_change_and_a_box_per_client(write_run):
    record = load(write_run("a", "fedpref", sizes=(2, 3, 4, 1), rounds=12, clustered=True))
    figure = cluster_evolution(record, 1)
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["round 0", "round 4", "round 8", "round 12"]
    bars, boxes = axes.collections[::2], axes.collections[1::2]
    assert [len(bar.get_paths()) for bar in bars] == [1, 2, 4, 4]
    assert [len(box.get_paths()) for box in boxes] == [10] * 4
    # Clients of equal preference share a colour, others do not.
    colours = [to_hex(c) for c in boxes[-1].get_facecolors()]
    assert sorted(colours.count(c) for c in set(colours)) == [1, 2, 3, 4]
    assert {str(client) for client in range(10)} <= texts(figure)
    assert is_png(figure)


def test_boxes_stay_in_their_column_while_clusters_split(write_run):
    record = load(write_run("a", "fedpref", sizes=(2, 3, 4, 1), rounds=12, clustered=True))
    rows = cluster_evolution(record).axes[0].collections[1::2]
    lefts = [[path.vertices[:, 0].min() for path in row.get_paths()] for row in rows]
    assert all(left == lefts[0] for left in lefts)


def test_different_preferences_have_a_scale_instead_of_groups(write_run):
    figure = cluster_evolution(load(write_run("a", "fedpref", clustered=True)))
    assert not figure.legends
    assert "preference for accuracy" in texts(figure)


def test_clients_that_change_places_and_many_changes_can_be_drawn(write_run):
    record = load(write_run("a", "ifca", clients=6, rounds=40, clustered=True, seeds=(0,)))
    flips = [((0, 1, 2), (3, 4, 5)), ((0, 3, 4), (1, 2, 5))]
    lines = tuple(dataclasses.replace(line, few_clusters=flips[line.round % 2]) for line in record.lines)
    record = dataclasses.replace(record, lines=lines)
    figure = cluster_evolution(record)
    rows = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert len(rows) == 24
    assert (rows[0], rows[-1]) == ("round 0", "round 40")
    assert "(24 of 41 changes)" in figure.axes[0].get_title(loc="left")
    assert is_png(figure)
    order = [t.get_text() for t in similarity_matrices(record).axes[-2].get_xticklabels()]
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset("012"), frozenset("345")}


def test_a_run_that_does_not_tell_preferences_shows_clusters_without(write_run):
    record = load(write_run("a", "fedpref", clustered=True, reached=6, status="running"))
    assert "not known" in legend(cluster_evolution(record))[0]


def test_similarity_at_an_early_a_middle_and_the_last_round_on_one_scale(write_run):
    record = load(write_run("a", "fedpref", sizes=(3, 2), rounds=12, clustered=True))
    figure = similarity_matrices(record, 2)
    *panels, bar = figure.axes
    assert [axes.get_title() for axes in panels] == [f"after round {r} of 12" for r in (2, 6, 12)]
    assert {axes.images[0].get_clim() for axes in panels} == {(-1.0, 1.0)}
    assert bar.get_ylabel() == "similarity"
    order = [int(t.get_text()) for t in panels[-1].get_xticklabels()]
    expected = record.similarity(2)[12][np.ix_(order, order)]
    np.testing.assert_array_equal(panels[-1].images[0].get_array(), expected)
    assert [patch.get_width() for patch in panels[-1].patches] == [3, 2]
    assert is_png(figure)


def test_one_client_can_be_drawn(write_run):
    record = load(write_run("a", "fedpref", clients=1, seeds=(0,), rounds=2, clustered=True))
    for figure in (
        fronts([record]),
        hypervolume_curves([record]),
        cluster_evolution(record),
        similarity_matrices(record),
    ):
        assert is_png(figure)


def test_a_run_without_clusters_says_so(write_run):
    record = load(write_run("a"))
    with pytest.raises(UserError, match="'fedavg' recorded no clusters for seed 0"):
        cluster_evolution(record)
    with pytest.raises(UserError, match="no similarity"):
        similarity_matrices(record, 1)


def test_names_are_no_formulas_and_stay_in_the_legend(write_run):
    figure = fronts([load(write_run("a", "_$x_{$")), load(write_run("b", "$\\bad$" + "y" * 80))])
    first, second = legend(figure)
    assert first.strip() == "_$x_{$"
    assert len(second) <= 36
    assert is_png(figure)


def test_figures_ignore_and_keep_the_users_settings(write_run):
    record = load(write_run("a"))
    expected = render(fronts([record]), "png")
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30}):
        assert render(fronts([record]), "png") == expected
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_same_run_gives_the_same_bytes(write_run, ending):
    record = load(write_run("a", rounds=2))
    assert render(fronts([record]), ending) == render(fronts([record]), ending)


def test_fonts_in_a_pdf_have_their_glyphs_and_nothing_for_typesetting(write_run):
    """Reading what is for typesetting would take longer than drawing."""
    streams = re.findall(
        rb"stream\n(.*?)\nendstream", render(fronts([load(write_run("a", rounds=2))]), "pdf"), re.DOTALL
    )
    contents = [zlib.decompress(stream) for stream in streams]
    fonts = [TTFont(io.BytesIO(content)) for content in contents if content.startswith(b"\0\1\0\0")]
    assert fonts
    for font in fonts:
        assert {"glyf", "loca", "hmtx"} <= set(font.keys())
        assert not {"GDEF", "GPOS", "GSUB"} & set(font.keys())
    assert "GSUB" not in Options._drop_tables_default, "elsewhere fonts stay whole"


@pytest.mark.parametrize("panels", [1, 2, 4])
@pytest.mark.parametrize("names", [2, 5, 9])
def test_a_legend_above_panels_stays_within_the_picture(panels, names):
    lines = [Series(f"alone, twice the images and steps {i}", np.array([[0, i], [1, i]]), "line") for i in range(names)]
    figure = series_panels({f"panel {i}": lines for i in range(panels)}, "weight", "value")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert box.y1 <= whole.y1


def test_what_runs_are_held_against_has_a_black_mark_at_its_mean_over_seeds(write_run):
    tested = [
        {
            "rows": 300,
            "smallest": 118,
            "constants": [[[0.3, 0.5]], [[place, 0.4]]],
            "plain": {"alone": [[0.6, 0.2], [0.8, 0.4]], "pooled": [[0.9, place]]},
        }
        for place in (0.6, 0.7, 0.8)
    ]
    record = load(write_run("a", "fedpref", extra={"tested": tested}))
    figure = fronts([record])
    assert legend(figure) == ["fedpref", "constant", "plain alone", "plain pooled"]
    marks = [line for line in figure.axes[0].get_lines() if line.get_color() == "black"]
    found = np.array([(*line.get_xdata(), *line.get_ydata()) for line in marks])
    assert found == pytest.approx(np.array([[0.7, 0.4], [0.7, 0.3], [0.9, 0.7]]))
    other = [one | {"rows": 299} for one in tested]
    apart = fronts([record, load(write_run("b", "local", extra={"tested": other}))])
    assert legend(apart) == ["fedpref", "local"]
    assert len(legend(fronts([load(write_run("c", m=3, extra={}))]))) == 2
