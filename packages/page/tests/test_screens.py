"""What stands on the screens is what the report computes of the same folders."""

from __future__ import annotations

import gzip
import json
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import fedpareto
from browsing import on_paper, patient, settled
from fedpareto.moo.dominance import is_nondominated
from fedpareto.problems.convex import Convex
from fedpareto.record.reading import load
from fedpareto.report.comparison import comparison
from fedpareto.report.likeness import comparable
from fedpareto_page.saved import STATIC
from waiting import until

NAMES = ("cfl", "fedavg", "fedpref", "local")
EQUALS = {"one": [0, 1, 2], "other": [3, 4, 5]}
SCREENS = ("/", "/fronts", "/rounds", "/clients", "/film", "/attacks", "/federation", "/dial", "/studies", "/new")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four finished runs of the same clients, two that differ by their seeds, and one with three goals."""
    folder, quick = tmp_path_factory.mktemp("runs"), {"engine": {"threads": 1, "chunk": 64}}
    for name in NAMES:
        options = {"clients": 6, "rounds": 5, "seeds": 3, "preferences": "equidistant", **quick}
        fedpareto.run("synthetic", name, **options, out=folder / name)
    for name, seeds in EQUALS.items():
        fedpareto.run("synthetic", "fedavg", clients=4, rounds=2, seeds=seeds, **quick, out=folder / name)
    fedpareto.run(Convex(goals=3), "fedpref", clients=6, rounds=2, seeds=2, **quick, out=folder / "three")
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


@pytest.fixture(scope="module")
def ids(server):
    return server.ids()


def seen(page, selector="#screen"):
    """Once a screen has drawn itself, with this on it."""
    page.locator(selector).first.wait_for(state="attached")
    return settled(page)


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


def test_beside_the_front_stand_the_constant_and_plain_models(server, opened, ids, root):
    page = opened(server, f"/fronts?{of(ids)}")
    told = seen(page, "figure[data-front]").locator("#screen figcaption").first.inner_text()
    record = load(root / "fedavg")
    for name, by_seed in record.references.items():
        x, y = np.mean([points.mean(axis=0) for points in by_seed.values()], axis=0)
        found = re.search(rf"{name} \(([\d.]+), ([\d.]+)\)", told)
        assert [float(one) for one in found.groups()] == pytest.approx([x, y], abs=5e-4)
    assert page.locator(".top .cross text").all_text_contents() == ["constant", "plain alone", "plain pooled"]
    page = opened(server, f"/fronts?{of(ids)}&split=train")
    assert "held against" not in seen(page, "figure[data-front]").locator("#screen figcaption").first.inner_text()


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


def test_no_best_is_marked_among_equals(server, opened, ids):
    """Two runs of the same, but for their seeds."""
    page = opened(server, f"/?runs={','.join(ids[name] for name in EQUALS)}")
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
    # From close by the box is larger than the field, and ends where that does.
    picture = shown.get_by_role("application")
    for _ in range(5):
        picture.press("+")
    settled(page)
    box, field = (shown.locator(name).bounding_box() for name in ("rect.brush", "rect.field"))
    assert box["width"] > field["width"]
    assert (
        shown.locator("g", has=page.locator("rect.brush")).last.evaluate("g => getComputedStyle(g).clipPath") != "none"
    )


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
    settled(page)
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
    settled(page)
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
    page.locator("h1").get_by_text("Rounds", exact=True).wait_for()
    seen(page, "[data-lines]")
    assert urlsplit(page.url).path == "/rounds"


@pytest.mark.takes_long
@pytest.mark.parametrize("is_empty", [False, True])
def test_everybody_can_read_every_screen_in_every_window(server, page_server, browser, ids, tmp_path, is_empty):
    """Accessible on both papers, no wider than the window, and of our own files at most 150 kB for any screen."""
    place, query = (page_server([tmp_path]), "") if is_empty else (server, of(ids))
    context = patient(browser, bypass_csp=True, reduced_motion="reduce")
    page, axe, packed = context.new_page(), Axe(), {}
    page.goto(place.url)
    for screen in (*SCREENS, *([] if is_empty else [f"/run/{ids['fedpref']}"])):
        page.goto(f"{place.base}{screen}?{query}")
        sizes = {path: len(path.read_bytes()) for path in loaded(seen(page))}
        assert sum(sizes.values()) <= 150_000, screen
        packed |= {path: len(gzip.compress(path.read_bytes())) for path in sizes}
        for width in (320, 768, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert settled(page).evaluate("document.documentElement.scrollWidth") <= width, (screen, width)
        for paper in ("light", "dark"):
            assert axe.run(on_paper(page, paper)).response["violations"] == [], (screen, paper)
    assert sum(packed.values()) <= 150_000, "all of it, as it travels"
    context.close()


def loaded(page):
    """Which of our scripts and styles a page has asked for."""
    asked = page.evaluate("performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    found = {STATIC / path.removeprefix("/static/") for path in asked if path.startswith("/static/")}
    assert STATIC / "main.js" in found
    return found


def test_marks_can_be_told_from_both_papers(server, browser):
    context = patient(browser)
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
