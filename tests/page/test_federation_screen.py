"""Federation: three real nodes, one of them killed; what stands on the screen is what the server and its run say."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from fedpareto.experiments.draft import Draft
from fedpareto.experiments.store import RunFolder
from fedpareto.report.reading import load
from processes import FLOWER, Commands
from waiting import PATIENCE, until

NODES, KILLED = 3, 2
LONG = PATIENCE * 1000
"""For playwright."""
SETTINGS = ["timeout=20", "retries=0", "quorum=1", "forgiveness=1", "steps=5", "hello_timeout=600"]


@pytest.fixture
def deployment(tmp_path):
    """Of parties with made-up people: who is hired depends on score and gender."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What the libraries under Flower warn of on import is not ours to mend.
        from fedpareto.deploy.create import create
        from fedpareto.engines.flower.launch import free_ports
    from fedpareto.problems.fairness.schema import TableSchema
    from fedpareto.problems.fairness.sources import Source

    random = np.random.default_rng(0)
    for number in range(NODES):
        rows = ["hired,gender,score"]
        for _ in range(200):
            score, gender = random.normal(), random.choice(["f", "m"])
            hired = "yes" if score + (gender == "m") + random.normal() > 0.5 else "no"
            rows.append(f"{hired},{gender},{score:.6f}")
        (tmp_path / f"{number}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    schema = TableSchema.of(Source(str(tmp_path / "0.csv")).of_party(), "hired", ["gender"])
    draft = Draft({"rounds": 10_000})
    return create(tmp_path / "all" / "federation", schema, draft, SETTINGS, NODES, "127.0.0.1", free_ports(1)[0])


@pytest.fixture
def parties(deployment, tmp_path):
    """The server and the nodes, real processes; none outlives the test."""
    commands, started = Commands(FLOWER), {}

    def start(name, *words):
        started[name] = commands.start([str(word) for word in words], tmp_path / f"{name}.out")

    start("server", "server", "up", deployment.folder)
    for number in range(NODES):
        own = ("--data", tmp_path / f"{number}.csv", "--preference", f"0.{number + 3},0.{7 - number}")
        start(number, "node", "up", deployment.node(number), *own)
    yield started
    for party in started.values():
        if party.poll() is None:
            party.process.kill()
            party.wait()


def row(page, number, state):
    return page.locator(f"tr[data-node='{number}'][data-state='{state}']")


@pytest.mark.takes_long
@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower: pip install 'fedpareto[flower]'")
def test_a_killed_node_is_away_its_missed_rounds_are_in_the_grid_and_bytes_are_those_of_the_record(
    deployment, parties, page_server, opened
):
    server = page_server([deployment.folder.parent])
    page = opened(server.at("/federation"))
    for number in range(NODES):
        row(page, number, "connected").wait_for(timeout=LONG)
    grid = page.locator("figure[data-states]")
    page.locator("figure[data-states*='111']").wait_for(timeout=LONG)
    parties[KILLED].process.kill()
    until(lambda: "2" in {of_round[KILLED] for of_round in grid.get_attribute("data-states").split()})
    row(page, KILLED, "away").wait_for(timeout=LONG)
    page.get_by_role("button", name="stop after this round").click()
    assert parties["server"].wait() == 143
    page.locator("#screen[data-status='stopped']").wait_for(state="attached")
    page.get_by_role("button", name="resume").wait_for()
    record = load(deployment.run)
    rounds = [line for line in record.of_seed(0) if line.row["columns"].get("traffic")]
    traffic = np.array([line.columns.traffic(line.row) for line in rounds])
    page.locator(f"figure[data-rounds='{len(rounds)}']").wait_for()
    cells = page.locator("tr[data-node]").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((c) => c.dataset.value))"
    )
    for number, of_node in enumerate(cells):
        replies, missed, refused, up, down = map(float, of_node[4:])
        assert (down, up) == tuple(traffic[:, number].sum(axis=0))
        assert replies == (traffic[:, number, 1] > 0).sum()
        assert (missed, refused) == (len(rounds) - replies, 0)
    states = grid.get_attribute("data-states").split()
    expected = np.where(traffic[:, :, 1] > 0, "1", np.where(traffic[:, :, 0] > 0, "2", "0"))
    assert states == ["".join(of_round) for of_round in expected]
    events = [json.loads(line) for line in (deployment.run / "events.jsonl").read_text().splitlines()]
    assert {event["client"] for event in events} == {KILLED}
    page.get_by_text(f"client {KILLED}: ").first.wait_for()  # A warning of the server.
    for number in range(KILLED):
        parties[number].process.kill()
    page.get_by_role("button", name="resume").click()
    page.locator("#screen[data-status='waiting for nodes']").wait_for(state="attached", timeout=LONG)
    page.get_by_role("button", name="stop after this round").click()  # There is none, so at once.
    page.locator("#screen[data-status='stopped']").wait_for(state="attached", timeout=LONG)
    until(lambda: not RunFolder(deployment.run).busy())
    assert not (deployment.run / "stop").exists()
    assert load(deployment.run).status.round == record.status.round
    context = page.context.browser.new_context(bypass_csp=True, viewport={"width": 320, "height": 800})
    narrow = context.new_page()
    narrow.goto(server.at("/federation"))
    narrow.locator("figure[data-states]").wait_for()
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 320
    assert Axe().run(narrow).response["violations"] == []
    context.close()
