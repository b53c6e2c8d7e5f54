"""Attacks: every cell of a matrix is on the screen, also one that is run meanwhile; and whom a defence left out."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import fedpareto
from browsing import patient, settled
from fedpareto.record.columns import in_folder
from processes import Commands

SPEC = {
    "problem": "convex",
    "clients": 6,
    "rounds": 120,
    "seeds": 2,
    "matrix": {
        "algorithm": ["fedavg", "dsfl"],
        "attack": ["none", {"kind": "sign-flip", "share": 0.3}, {"kind": "gaussian", "share": 0.3}],
        "defence": ["none", "median"],
    },
}
WATCHED = """
globalThis.waited = new Set();
new MutationObserver(() => waited.add(document.getElementById("screen").dataset.waiting))
  .observe(document.getElementById("screen"), { attributes: true });
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """An attacked run behind a defence, whose clients fail now and then."""
    folder = tmp_path_factory.mktemp("runs")
    fedpareto.run(
        "convex", "fedavg", clients=8, rounds=6, seeds=2, attack={"kind": "sign-flip", "share": 0.25},
        defence={"rule": "multi-krum", "attackers": 0.25}, faults={"dropout": 0.2}, out=folder / "attacked",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


def shown(page):
    """By place "algorithm.attack.defence", what stands in each cell of all tables."""
    cells = page.locator("td[data-at]").evaluate_all("cells => cells.map((cell) => ({...cell.dataset}))")
    return {one["at"]: one for one in cells}


@pytest.mark.takes_long
def test_a_matrix_appears_cell_by_cell_and_every_cell_has_a_value_or_a_reason(server, opened, root, tmp_path):
    page = opened(server.at("/attacks"))
    page.get_by_text("No matrix here yet").wait_for()
    (tmp_path / "matrix.yaml").write_text(json.dumps(SPEC))
    process = Commands().start(
        ["matrix", tmp_path / "matrix.yaml", "--out", root / "m", "--jobs", "1"], tmp_path / "log"
    )
    page.locator("td[data-state='waiting']").first.wait_for()
    page.evaluate(WATCHED)
    assert process.wait() == 0
    page.locator("#screen[data-waiting='0']").wait_for(state="attached")
    settled(page)
    assert len(page.evaluate("[...waited]")) > 2, "cells came one after the other"
    record, found = json.loads((root / "m" / "matrix.json").read_text()), shown(page)
    assert len(found) == len(record["cells"]) == 12
    for cell in record["cells"]:
        one = found[".".join(map(str, cell["at"]))]
        if "refused" in cell:
            assert (one["state"], one["reason"]) == ("unfit", cell["refused"])
        else:
            assert float(one["value"]) == pytest.approx(cell["value"], abs=1e-12)
    page.get_by_role("combobox", name="show").select_option("worst")
    page.locator("#screen[data-measure='worst']").wait_for(state="attached")
    settled(page)
    first = next(cell for cell in record["cells"] if cell["at"] == [0, 1, 0])
    assert float(shown(page)["0.1.0"]["value"]) == pytest.approx(first["worst"], abs=1e-12)
    page.locator("td[data-at='0.1.0'] button").press("Enter")
    clients = page.locator("section table tbody tr")
    clients.first.wait_for()
    settled(page)
    values = clients.evaluate_all("rows => rows.map((row) => [row.cells[1], row.cells[2]].map((c) => c.dataset.value))")
    np.testing.assert_allclose(np.array(values, dtype=float).T, first["clients"], atol=1e-12)
    page.wait_for_url(re.compile("cell=0.1.0"))
    page.reload()
    page.locator("td[data-at='0.1.0'] button[aria-pressed='true']").wait_for()
    context = patient(page.context.browser, bypass_csp=True, viewport={"width": 320, "height": 800})
    narrow = context.new_page()
    narrow.goto(server.at("/attacks?cell=1.0.1"))
    narrow.get_by_text("does not fit: ").wait_for()
    settled(narrow)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 320
    assert Axe().run(narrow).response["violations"] == []
    context.close()


def test_the_grid_is_what_the_lines_say_of_each_client(server, opened, root):
    page = opened(server.at("/attacks?seed=1"))
    figure = page.locator("figure[data-states][data-seed='1']")
    figure.wait_for()
    settled(page)
    rows = [json.loads(line) for line in (root / "attacked" / "metrics.jsonl").read_text().splitlines()]
    columns = in_folder(root / "attacked", 8, json.loads((root / "attacked" / "run.json").read_text())["splits"], 2)
    expected = []
    for row in (one for one in rows if one["seed"] == 1 and one["round"] < 6):
        down, up = columns.traffic(row).T
        states = np.where(up > 0, 1, np.where(down > 0, 2, 0))
        states[row["left_out"]] = 4
        expected.append("".join(map(str, states)))
    assert figure.get_attribute("data-states").split() == expected
    assert {"1", "2", "4"} <= set("".join(expected)), "all of it happened"
    attackers = json.loads((root / "attacked" / "run.json").read_text())["attackers"][1]
    assert figure.locator(".strip").count() == len(attackers)
    figure.locator("svg[tabindex]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.get_by_text("client 1", exact=False).first.wait_for()
    words = {"1": "replied", "2": "no reply", "4": "left out"}
    assert f"round 1: {words[expected[0][1]]}" in page.locator("#said").inner_text()
    with page.expect_download() as file:
        figure.get_by_role("button", name="SVG").click()
    picture = ElementTree.parse(file.value.path())
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")) >= 6 * 8
    page.goto(f"{server.base}/federation?seed=1")
    assert page.locator("figure[data-states][data-seed='1']").get_attribute("data-states").split() == expected
