"""The film: what is seen of a round is what the run's own lines say of it, and every key does what it says."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import fedpareto
from browsing import settled

ROUNDS = 20


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A run whose clusters are cut, and one that has none."""
    folder = tmp_path_factory.mktemp("runs")
    common = {"clients": 6, "preferences": "equidistant", "seeds": 2}
    fedpareto.run("synthetic", "fedpref", rounds=ROUNDS, out=folder / "fedpref", **common)
    fedpareto.run("synthetic", "fedavg", rounds=2, out=folder / "fedavg", **common)
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


@pytest.fixture(scope="module")
def lines(root):
    """By round, the lines of seed 1 as they stand in the file."""
    rows = [json.loads(line) for line in (root / "fedpref" / "metrics.jsonl").read_text().splitlines()]
    return {row["round"]: row for row in rows if row["seed"] == 1}


def grouped(clusters):
    """As the page writes it: 0.1.2|3.4"""
    return "|".join(".".join(str(client) for client in sorted(group)) for group in sorted(clusters, key=min))


def at_round(page, round):
    """Once that round is drawn."""
    screen = page.locator(f"#screen[data-round='{round}']")
    screen.wait_for(state="attached")
    settled(page)
    return screen


def text_of(figure):
    return figure.locator("figcaption").inner_text()


def test_every_round_shows_its_own_clusters_in_one_order(server, opened, lines):
    page = opened(server.at("/film?seed=1"))
    at_round(page, ROUNDS)
    page.keyboard.press("Home")
    orders = set()
    for round in range(ROUNDS + 1):
        screen = at_round(page, round)
        assert screen.get_attribute("data-clusters") == grouped(lines[round]["clusters"])
        orders.add((screen.get_attribute("data-order"), page.locator("[data-cells]").get_attribute("data-order")))
        assert text_of(page.locator("figure").nth(2)).count(f"round {round},") == 1
        page.keyboard.press("ArrowRight")
    assert orders == {(",".join(map(str, range(6))),) * 2}, "equidistant preferences rise with the client's number"


def test_the_words_say_after_which_rounds_clusters_were_cut(server, opened, lines):
    page = opened(server.at("/film?seed=1"))
    at_round(page, ROUNDS)
    cut = [r for r in range(1, ROUNDS + 1) if len(lines[r]["clusters"]) > len(lines[r - 1]["clusters"])]
    assert cut, "this run has clusters that are cut"
    river = page.locator("figure").first
    assert river.get_attribute("data-cuts") == ",".join(map(str, cut))
    said = re.search(r"cut after rounds? ([\d, and]+)\.", text_of(river)).group(1)
    assert [int(number) for number in re.findall(r"\d+", said)] == cut
    page.keyboard.press("Home")
    at_round(page, 0)
    page.get_by_text(f"No cluster was cut in 0 rounds. They change later, {'first ' * (len(cut) > 1)}after").wait_for()
    page.get_by_text("not known yet after round 0").wait_for()
    assert river.locator(".thread").count() == 6
    assert river.locator(".cut").count() == len(cut)


def test_keys_step_play_and_stop(server, opened):
    page = opened(server.at("/film?seed=1&speed=20"))
    at_round(page, ROUNDS)
    for key, round in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", ROUNDS)):
        page.keyboard.press(key)
        at_round(page, round)
    play = page.locator(".scrubber button")
    assert play.inner_text() == "play"
    page.keyboard.press("Space")
    assert play.inner_text() == "pause"
    at_round(page, ROUNDS)
    page.locator(".scrubber button", has_text="play").wait_for()
    page.keyboard.press("Space")
    page.keyboard.press("Space")
    assert play.inner_text() == "play"
    settled(page)
    assert 0 <= int(page.locator("#screen").get_attribute("data-round")) < ROUNDS


def test_cells_are_named_by_keys_and_stand_in_a_table(server, opened, lines):
    page = opened(server.at("/film?seed=1&round=5"))
    at_round(page, 5)
    heat = page.locator("figure").nth(1)
    heat.locator("svg").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    said = re.fullmatch(r"clients (\d) and (\d): (−?[\d.]+)", page.locator("#said").inner_text())
    assert (said[1], said[2]) == ("1", "2")
    similarity = np.array(lines[5]["similarity"])
    assert float(said[3].replace("−", "-")) == pytest.approx(similarity[1, 2], abs=0.01)
    assert page.locator("#screen").get_attribute("data-round") == "5", "arrows on the cells do not step"
    heat.get_by_role("button", name="as table").click()
    cells = heat.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => Number(cell.dataset.value)))"
    )
    shown = np.array(cells)
    assert shown[:, 0].tolist() == list(range(6))
    assert np.abs(shown[:, 1:] - similarity).max() <= 0.5 / 127 + 1e-9
    page.keyboard.press("Escape")
    heat.locator("svg").focus()
    page.keyboard.press("Enter")
    page.locator("#drawer h2").wait_for()
    settled(page)
    assert page.locator(".thread.pale").count() == 5


def luminance(colour):
    """Of "rgb(r, g, b)", as WCAG 2 defines it."""
    parts = np.array([int(one) for one in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_threads_stand_out_on_both_papers(server, opened):
    page = opened(server.at("/film?seed=1"))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        at_round(page, ROUNDS)
        paper = luminance(page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor"))
        strokes = "paths => paths.map((path) => getComputedStyle(path).stroke)"
        colours = page.locator(".thread .own").evaluate_all(strokes)
        assert len(set(colours)) == 6, "one for each preference"
        for ink in map(luminance, colours):
            assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 2.99


def test_nothing_moves_by_itself_where_motion_is_not_wanted(server, opened):
    page = opened(server.at("/film?seed=1&round=3"))
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    at_round(page, 3)
    assert page.locator(".scrubber button").inner_text() == "play"
    durations = "() => [...document.querySelectorAll('*')].map((one) => getComputedStyle(one).transitionDuration)"
    assert set(page.evaluate(durations)) == {"0s"}
    assert page.evaluate("() => document.getAnimations().length") == 0
    assert page.locator("#screen").get_attribute("data-round") == "3"


def test_a_run_without_clusters_says_so_and_what_has_them(server, opened):
    page = opened(server.at("/film"))
    at_round(page, ROUNDS)
    page.get_by_role("button", name="fedavg").click()
    told = page.locator(".callout")
    told.wait_for()
    assert "nothing to film" in told.inner_text()
    told.get_by_role("button", name="fedpref").click()
    assert at_round(page, ROUNDS).get_attribute("data-clusters")
