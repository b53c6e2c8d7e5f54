"""Clients: what stands in the table is what numpy computes from the same files, and nothing private leaves."""

from __future__ import annotations

import json
import re
import shutil
import struct

import numpy as np
import pytest

import fedpareto
from browsing import settled
from fedpareto.problems.convex import Convex

NAMES = ("fedavg", "fedpref", "local")
SEEDS = (0, 1)
CLIENTS = 5


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Three runs of the same clients; one with three goals; one that says its preferences are private, but has them."""
    folder = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        fedpareto.run(
            "synthetic", name, clients=CLIENTS, rounds=4, seeds=len(SEEDS), preferences="equidistant", out=folder / name
        )
    fedpareto.run(Convex(goals=3), "fedpref", clients=6, rounds=2, seeds=2, out=folder / "three")
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


@pytest.fixture(scope="module")
def ids(server):
    return server.ids()


@pytest.fixture(scope="module")
def solutions(root):
    """By name and seed, each client's preference and its two objectives on held-out rows, both to be maximised."""
    found = {}
    for name in NAMES:
        for one in json.loads((root / name / "solutions.json").read_text()):
            assert one["clients"] == list(range(CLIENTS))
            found[name, one["seed"]] = np.array(one["preferences"]), np.array(one["objectives"]["test"])
    return found


def own(weights, values):
    return (weights * values).sum(axis=1)


def expected(solutions, name, seed, among=NAMES):
    """Regret and gain of each client, computed anew."""
    weights, values = solutions[name, seed]
    offered = np.concatenate([solutions[other, seed][1] for other in among])
    best = (weights @ offered.T).max(axis=1)
    return best - own(weights, values), own(weights, values) - own(weights, solutions["local", seed][1])


def drawn(page):
    """By client, what its row holds."""
    settled(page).locator("#screen[data-run] tr[data-client]").first.wait_for()
    rows = page.locator("tr[data-client]").evaluate_all("rows => rows.map((row) => ({...row.dataset}))")
    return {int(row["client"]): row for row in rows}, [int(row["client"]) for row in rows]


def column(rows, name):
    return np.array([float(rows[client][name]) for client in sorted(rows)])


def address(ids, focus, names=NAMES, **others):
    query = "&".join(f"{key}={value}" for key, value in others.items())
    return f"/clients?runs={','.join(ids[name] for name in names)}&focus={ids[focus]}&{query}"


def test_regret_and_gain_are_those_of_numpy(server, opened, ids, solutions):
    for seed in SEEDS:
        rows, order = drawn(opened(server.at(address(ids, "fedpref", seed=seed))))
        regret, gain = expected(solutions, "fedpref", seed)
        assert np.abs(column(rows, "regret") - regret).max() < 1e-9
        assert np.abs(column(rows, "gain") - gain).max() < 1e-9
        assert np.abs(column(rows, "utility") - own(*solutions["fedpref", seed])).max() < 1e-9
        assert (np.diff(regret[order]) <= 0).all(), "worst served first"


def test_of_all_seeds_the_means_are_shown_and_said(server, opened, ids, solutions):
    page = opened(server.at(address(ids, "fedpref")))
    rows, _ = drawn(page)
    regrets, gains = (
        np.array(list(of)) for of in zip(*(expected(solutions, "fedpref", s) for s in SEEDS), strict=True)
    )
    assert np.abs(column(rows, "regret") - regrets.mean(axis=0)).max() < 1e-9
    assert np.abs(column(rows, "gain") - gains.mean(axis=0)).max() < 1e-9
    said = page.locator(".callout p").first.inner_text().replace("−", "-")
    numbers = re.search(
        r"(\d+) of (\d+) clients? .* worst ([-+.\d]+) \(client (\d+)\), mean ([-+.\d]+) ± (\d+\.\d+)", said
    )
    mean = gains.mean(axis=0)
    assert f"better off than alone on average over {len(SEEDS)} seeds" in said
    assert [int(numbers[1]), int(numbers[2]), int(numbers[4])] == [(mean > 0).sum(), CLIENTS, mean.argmin()]
    assert float(numbers[3]) == pytest.approx(mean.min(), abs=0.006)
    assert float(numbers[5]) == pytest.approx(mean.mean(), abs=0.006)
    assert float(numbers[6]) == pytest.approx(gains.mean(axis=1).std(), abs=0.006)
    for name in NAMES:
        values = f"tr[data-of='{ids[name]}'] td"
        shown = page.locator(values).evaluate_all("cells => cells.map((cell) => Number(cell.dataset.value))")
        had = np.array([own(*solutions[name, seed]) for seed in SEEDS])
        lost, won = (np.array(of) for of in zip(*(expected(solutions, name, s) for s in SEEDS), strict=True))
        sums = [had.mean(), had.min(axis=1).mean(), lost.mean(), lost.max(axis=1).mean()]
        assert shown[:4] == pytest.approx(sums, abs=1e-9)
        assert name == "local" or shown[4] == (won.mean(axis=0) > 0).sum()
    alone = re.search(r"Better off alone: clients? ([\d, and]+)\.", said)
    assert [int(one) for one in re.findall(r"\d+", alone[1])] == np.flatnonzero(mean < 0).tolist()
    weights = solutions["fedpref", 0][0]
    got = np.mean([solutions["fedpref", seed][1] for seed in SEEDS], axis=0)
    pairs = re.findall(r"in (\d+) of (\d+) pairs", page.locator("figcaption").first.inner_text())
    for goal in (0, 1):
        more = weights[:, None, goal] > weights[None, :, goal]
        held = more & (got[:, None, goal] > got[None, :, goal])
        assert pairs[goal] == (str(held.sum()), str(more.sum()))


def test_regret_is_against_the_runs_that_are_shown(server, opened, ids, solutions):
    page = opened(server.at(address(ids, "fedavg", names=("fedavg", "fedpref"), seed=0)))
    rows, _ = drawn(page)
    regret, _ = expected(solutions, "fedavg", 0, among=("fedavg", "fedpref"))
    assert np.abs(column(rows, "regret") - regret).max() < 1e-9
    assert {row["gain"] for row in rows.values()} <= {"", "NaN"}
    page.get_by_role("button", name="add local").click()
    page.locator("[data-pays=true]").wait_for()
    settled(page)
    assert "better off than alone" in page.locator(".callout p").first.inner_text()


def test_who_is_selected_here_is_selected_everywhere(server, opened, ids):
    page = opened(server.at(address(ids, "fedpref", seed=1)))
    _, order = drawn(page)
    page.locator("tr[data-client]").nth(2).get_by_role("checkbox").focus()
    page.keyboard.press("Space")
    page.locator("tr.chosen").wait_for()
    settled(page)
    assert page.locator("tr.chosen").get_attribute("data-client") == str(order[2])
    assert page.locator("tr:has(:focus)").get_attribute("data-client") == str(order[2]), "the focus stays"
    assert page.locator("figure").first.locator(".thread.pale").count() == CLIENTS - 1
    page.get_by_role("link", name="Fronts").click()
    page.locator("figure[data-front]").wait_for()
    settled(page)
    assert page.locator("#drawer h2").inner_text() == "1 client selected"
    page.go_back()
    page.locator("tr.chosen").wait_for()
    settled(page)
    thread = page.locator("figure").first.locator("svg").first
    thread.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#said").inner_text().startswith("client 0, wanted 0.00 : 1.00")
    page.keyboard.press("Enter")
    page.locator("tr.chosen").nth(1).wait_for()


def test_three_goals_are_a_triangle_of_wanted_and_got(server, opened, ids, root):
    page = opened(server.at(f"/clients?runs={ids['three']}&seed=0"))
    rows, _ = drawn(page)
    one = next(one for one in json.loads((root / "three" / "solutions.json").read_text()) if one["seed"] == 0)
    flags = [each["maximise"] for each in json.loads((root / "three" / "run.json").read_text())["objectives"]]
    split = page.locator("figcaption").first.inner_text().split("split ")[1].split(",")[0]
    weights, values = np.array(one["preferences"]), np.array(one["objectives"][split]) * np.where(flags, 1, -1)
    regret = (weights @ values.T).max(axis=1) - own(weights, values)
    assert np.abs(column(rows, "regret") - regret).max() < 1e-9
    assert page.locator("figure").first.locator(".thread .dots").count() == 6
    assert "From the ring" in page.locator("figcaption").first.inner_text()
    command = page.locator(".callout code").inner_text()
    assert command.startswith("fedpareto run local --spec ")
    assert command.endswith("spec.yaml")


def test_what_stays_with_the_nodes_is_in_no_answer(page_server, opened, root, tmp_path):
    """A run that says so, though its files hold preferences: the worst that a folder can be."""
    run = fedpareto.run("synthetic", "fedpref", clients=4, rounds=2, seeds=1, out=tmp_path / "private")
    spec = run.folder / "spec.yaml"
    text = re.sub(r"^preferences:.*$", "preferences: private", spec.read_text(), flags=re.MULTILINE)
    assert "preferences: private" in text
    spec.write_text(text)
    content = (run.folder / "solutions.json").read_bytes()
    weights = json.loads(content)[0]["preferences"]
    assert all(repr(float(weight)).encode() in content for weight in np.ravel(weights)), "so they would be found"
    shutil.copytree(root / "fedavg", tmp_path / "fedavg")
    server, asked = page_server([tmp_path]), set()
    page = opened(server.at("/"))
    entries = page.evaluate("fetch('/api/runs').then((answer) => answer.json())")["runs"]
    private = next(one["id"] for one in entries if one["name"] == "private")
    page.on("request", lambda request: asked.add(request.url))
    for screen in ("/", "/fronts", "/rounds", "/film", "/clients"):
        page.goto(f"{server.base}{screen}?runs={private}")
        settled(page)
        if screen in ("/film", "/clients"):
            assert "Preferences stay with the nodes" in page.locator("#screen").inner_text()
    heads = {head.strip(" ↑↓") for head in page.locator("thead th").all_inner_texts()}
    assert {"client", "accuracy sent"} <= heads
    assert not heads & {"wanted", "regret", "utility", "utility trained", "gain over local"}
    below = f"{server.base}/api/runs/{private}"
    others = [f"{below}/{path}" for path in ("values?eval=trained&split=test&since=0&epoch=0", "grid?seed=0")]
    paths = [url for url in asked if "/api/" in url and "/api/stream" not in url]
    assert {"lines", "values", "film", "clients", private} <= {url.split("?")[0].split("/")[-1] for url in paths}
    for url in [*paths, *others]:
        answer = page.request.get(url)
        assert answer.ok, url
        for weight in np.ravel(weights):
            told = [repr(float(weight)).encode(), struct.pack("<d", weight), struct.pack("<f", weight)]
            assert not any(one in answer.body() for one in told), url
