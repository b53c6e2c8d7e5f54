"""What stands on the screens is what the report computes of the same folders."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import fedpareto
from fedpareto.moo.dominance import is_nondominated
from fedpareto.problems.convex import Convex
from fedpareto.report.comparison import comparison
from fedpareto.report.reading import load
from fedpareto.report.record import comparable
from waiting import until

NAMES = ("cfl", "fedavg", "fedpref", "local")
SCREENS = ("/", "/fronts", "/rounds", "/clients", "/film", "/attacks", "/federation", "/dial", "/studies", "/new")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four finished runs of the same clients, and one with three goals."""
    folder = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        fedpareto.run("synthetic", name, clients=6, rounds=5, seeds=3, preferences="equidistant", out=folder / name)
    fedpareto.run(Convex(goals=3), "fedpref", clients=6, rounds=2, seeds=2, out=folder / "three")
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


@pytest.fixture(scope="module")
def ids(server):
    return server.ids()


def seen(page, selector="[data-updates]"):
    """Once a screen has drawn itself."""
    page.locator(selector).first.wait_for(state="attached")
    return page


def of(ids):
    return "runs=" + ",".join(ids[name] for name in NAMES)


def test_the_front_on_the_screen_is_the_front_of_the_report(server, opened, ids, root):
    page = opened(server, f"/fronts?{of(ids)}")
    drawn = set(seen(page, "figure[data-front]").locator("figure").first.get_attribute("data-front").split())
    for name in NAMES:
        record = load(root / name)
        points = record.pooled()
        keys = [(seed, client) for seed in record.started for client in record.solution(seed).clients]
        on = is_nondominated(points, record.maximise, keep_duplicates=True)
        expected = {f"{ids[name]}:{seed}:{client}" for (seed, client), best in zip(keys, on, strict=True) if best}
        assert {key for key in drawn if key.startswith(ids[name])} == expected
        assert np.array_equal(np.unique(points[on], axis=0), np.unique(record.front(), axis=0))


def test_the_table_on_the_shelf_is_the_table_of_the_report(server, opened, ids, root):
    page = opened(server, f"/?{of(ids)}")
    rows = seen(page, "section[data-version] table").locator("section[data-version] table").first.locator("tbody tr")
    table = comparison(comparable([load(root / name) for name in NAMES])).to_plain()
    column = [one["key"] for one in table["columns"]].index("hypervolume")
    for row in range(len(table["rows"])):
        cells = rows.nth(row).locator("th, td")
        expected = table["rows"][row]
        assert cells.first.inner_text().startswith(expected["label"])
        shown = float(cells.nth(column + 1).get_attribute("data-value"))
        assert shown == pytest.approx(expected["values"]["hypervolume"]["mean"], abs=1e-6)
        assert ("best" in (cells.nth(column + 1).get_attribute("class") or "")) == expected["values"]["hypervolume"][
            "best"
        ]


def test_no_best_is_marked_among_equals(page_server, opened, tmp_path):
    """Two runs of the same, but for their seeds."""
    for name, seeds in (("a", [0, 1, 2]), ("b", [3, 4, 5])):
        fedpareto.run("synthetic", "fedavg", clients=4, rounds=2, seeds=seeds, out=tmp_path / name)
    page = opened(page_server([tmp_path]), "/")
    table = seen(page, "section[data-version] table").locator("section[data-version] table").first
    assert table.locator("tbody tr").count() >= 2
    marked = table.locator("td.best").evaluate_all("cells => cells.map((cell) => cell.cellIndex)")
    heads = table.locator("thead th").all_inner_texts()
    assert {heads[place].strip(" ↑↓") for place in marked} <= {"seconds per seed", "missing replies"}


def test_brushing_counts_what_lies_in_the_box(server, opened, ids, root):
    page = opened(server, f"/fronts?{of(ids)}&range=0:0.5~0.9,1:0.3~0.8")
    shown = seen(page, "figure[data-chosen]").locator("figure").first
    points = np.concatenate([load(root / name).pooled() for name in NAMES])
    inside = ((points >= [0.5, 0.3]) & (points <= [0.9, 0.8])).all(axis=1).sum()
    assert int(shown.get_attribute("data-chosen")) == inside
    assert int(shown.get_attribute("data-points")) == len(points)


def test_a_round_of_the_past_shows_that_round(server, opened, ids, root):
    page = opened(server, f"/fronts?runs={ids['fedpref']}&round=2&seed=1")
    figure = seen(page, "figure[data-front]").locator("figure").first
    figure.get_by_role("button", name="as table").click()
    cells = figure.locator("table tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((c) => c.dataset.value))"
    )
    line = next(one for one in load(root / "fedpref").of_seed(1) if one.round == 2)
    assert {row[3] for row in cells} == {"2"}
    shown = np.array([[float(row[4]), float(row[5])] for row in cells])
    assert np.allclose(shown, line.sent["test"], atol=1e-9)


def test_rounds_show_every_line_and_end_where_the_run_does(server, opened, ids, root):
    page = opened(server, f"/rounds?runs={ids['fedavg']}&seed=0&charts=hypervolume")
    figure = seen(page, "[data-lines]").locator("figure").first
    figure.get_by_role("button", name="as table").click()
    rows = figure.locator("table tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((c) => c.dataset.value))"
    )
    record = load(root / "fedavg")
    assert [int(row[0]) for row in rows] == record.common_rounds.tolist()
    assert np.allclose([float(row[1]) for row in rows], record.hypervolume[0], atol=1e-6)


def test_three_goals_are_matrix_and_parallel_axes(server, opened, ids, root):
    page = opened(server, f"/fronts?runs={ids['three']}")
    seen(page, "figure[data-front]")
    assert page.locator(".matrix .scatter").count() == 3
    assert page.locator(".axis-bar").count() == 3
    record = load(root / "three")
    on = is_nondominated(record.pooled(), record.maximise, keep_duplicates=True)
    assert len(page.locator("figure").first.get_attribute("data-front").split()) == on.sum()
    page.locator(".axis-bar").first.focus()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    page.wait_for_url(re.compile("range=0:"))
    assert int(page.locator("figure").first.get_attribute("data-chosen")) < len(on)


def test_an_address_shows_the_same_again(server, opened, ids):
    page = opened(server, f"/fronts?{of(ids)}")
    chart = seen(page, "figure[data-front]").locator(".scatter svg")
    chart.focus()
    for key in ("ArrowRight", "Enter", "+", "PageDown", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("slider", name="Round").fill("3")
    page.get_by_label("seeds").select_option("1")
    # Four runs of six clients under one seed, after that round.
    page.locator("#screen[data-round='3'] figure[data-points='24']").wait_for()
    page.wait_for_url(re.compile("seed=1"))
    marked = (
        "[...document.querySelectorAll('[data-view], figure, #screen')].map((node) => ({...node.dataset, updates: 0}))"
    )
    before, address = page.evaluate(marked), urlsplit(page.url)
    assert "token" not in page.url
    assert "sel=" in page.url
    assert "view=" in page.url
    again = opened(server, f"{address.path}?{address.query}")
    seen(again, "figure[data-front]")
    until(lambda: json.dumps(again.evaluate(marked)) == json.dumps(before))


def test_back_and_forward(server, opened, ids):
    page = opened(server, f"/fronts?{of(ids)}")
    seen(page, "figure[data-front]")
    page.get_by_role("link", name="Rounds").click()
    seen(page, "[data-lines]")
    page.go_back()
    seen(page, "figure[data-front]")
    assert urlsplit(page.url).path == "/fronts"
    page.go_forward()
    seen(page, "[data-lines]")
    assert urlsplit(page.url).path == "/rounds"
    assert page.locator("h1").inner_text() == "Rounds"


@pytest.mark.parametrize("paper", ["light", "dark"])
def test_everybody_can_read_every_screen(server, page_server, browser, ids, tmp_path, paper):
    empty = page_server([tmp_path])
    axe = Axe()
    for place, query in ((server, of(ids)), (empty, "")):
        context = browser.new_context(color_scheme=paper, bypass_csp=True, reduced_motion="reduce")
        page = context.new_page()
        page.goto(place.url)
        for screen in (*SCREENS, *([f"/run/{ids['fedpref']}"] if query else [])):
            page.goto(f"{place.base}{screen}?{query}")
            seen(page)
            page.wait_for_timeout(300)
            assert axe.run(page).response["violations"] == [], screen
        context.close()


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_no_screen_is_wider_than_the_window(server, browser, ids, width):
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(server.url)
    for screen in (*SCREENS, f"/run/{ids['fedpref']}"):
        page.goto(f"{server.base}{screen}?{of(ids)}")
        seen(page)
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, screen
    context.close()


def test_what_a_screen_loads_is_small(server, opened, ids):
    """Of our own scripts and styles, at most 150 kB for any screen, and packed as they travel for all together."""
    packed = {}
    for screen in (*SCREENS, f"/run/{ids['fedpref']}"):
        page = opened(server, f"{screen}?{of(ids)}")  # In a browser of its own, which has loaded nothing before.
        seen(page)
        loaded = page.evaluate(
            "performance.getEntriesByType('resource').filter((one) => one.name.includes('/static/'))"
            ".map((one) => [one.name, one.decodedBodySize, one.encodedBodySize])"
        )
        assert all(size for _, size, _ in loaded)
        assert sum(size for _, size, _ in loaded) <= 150_000, screen
        packed |= {name: size for name, _, size in loaded}
    assert sum(packed.values()) <= 150_000


def test_marks_can_be_told_from_both_papers(server, browser):
    context = browser.new_context()
    page = context.new_page()
    for paper in ("light", "dark"):
        page.emulate_media(color_scheme=paper)
        page.goto(server.url)
        names = ["--paper", "--grey", *(f"--c{i}" for i in range(8))]
        colours = page.evaluate(
            "names => names.map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())",
            names,
        )
        paper_light = luminance(colours[0])
        for name, colour in zip(names[1:], colours[1:], strict=True):
            one, other = sorted((luminance(colour), paper_light))
            assert (other + 0.05) / (one + 0.05) >= 3, (paper, name, colour)
    context.close()


def luminance(colour):
    """Of WCAG 2.2, from #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
