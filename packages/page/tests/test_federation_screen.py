"""Federation: three real nodes, one of them killed; what stands on the screen is what the server and its run say."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import warnings
from importlib.util import find_spec

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from browsing import patient, settled
from fedpareto.record.reading import load
from fedpareto.record.store import RunFolder
from fedpareto.spec.draft import Draft
from fedpareto_page.frames import frame
from private_bytes import found, saved_answers
from processes import FLOWER, Commands
from waiting import until

NODES, KILLED = 3, 2
WISHES = [(0.31415927, 0.68584073), (0.42718282, 0.57281718), (0.53819660, 0.46180340)]
"""What each node wants, and nobody else may know: numbers that stand nowhere by chance."""
SECRETS = [weight for wish in WISHES for weight in wish]
SETTINGS = ["timeout=20", "retries=0", "quorum=1", "forgiveness=1", "steps=5", "hello_timeout=600"]


@pytest.fixture
def deployment(tmp_path):
    """Of parties with made-up people: who is hired depends on score and gender."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What the libraries under Flower warn of on import is not ours to mend.
        from fedpareto_flower.deploy.create import create
        from fedpareto_flower.engine.launch import free_ports
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
        wish = ",".join(map(repr, WISHES[number]))
        own = ("--data", tmp_path / f"{number}.csv", "--preference", wish)
        start(number, "node", "up", deployment.node(number), *own)
    yield started
    for party in started.values():
        if party.poll() is None:
            party.process.kill()
            party.wait()


def row(page, number, state):
    return page.locator(f"tr[data-node='{number}'][data-state='{state}']")


class Streamed:
    """All that the server's stream says from now on."""

    def __init__(self, server):
        self.content = bytearray()
        threading.Thread(target=self.listen, args=(server,), daemon=True).start()
        until(lambda: b"event: hello" in self.content)

    def listen(self, server):
        asked = httpx.stream("GET", f"{server.base}/api/stream", cookies=server.cookies, timeout=None, trust_env=False)
        with contextlib.suppress(httpx.HTTPError), asked as answer:
            for piece in answer.iter_bytes():
                self.content += piece


def check_that_nobody_tells_what_nodes_want(server, streamed, deployment):
    """No answer to anything that the page can ask about this run, and no file of the server that answers come from."""
    with httpx.Client(base_url=server.base, cookies=server.cookies, timeout=None, trust_env=False) as client:

        def answer(path):
            given = client.get(path)
            assert given.status_code == 200, path
            return given.content

        shelf = json.loads(answer("/api/runs"))
        (run,), (federation,) = shelf["runs"], shelf["others"]
        save = f"/api/save?runs={run['id']}&view=/clients"
        saved = saved_answers(answer(save))
        asked = {path: answer(path) for path in (*saved, save, f"/api/federation/{federation['id']}")}
    assert {path.partition("?")[0].rpartition("/")[2] for path in saved} >= {
        *("lines", "values", "solutions", "film", "grid", "clients", "events", "compare"),
    }
    assert b"event: changed" in streamed.content
    files = {str(path): path.read_bytes() for path in deployment.run.rglob("*") if path.is_file()}
    for where, content in {**saved, **asked, **files, "the stream": bytes(streamed.content)}.items():
        assert found(SECRETS, content) == set(), where


def test_what_is_looked_for_would_be_found():
    wish = np.array(WISHES[0])
    for columns in ({"a": wish}, {"a": wish.astype(np.float32)}):
        assert found(SECRETS, frame({}, columns)) == set(WISHES[0])
        inlined = json.dumps({"/a": {"frame": base64.b64encode(frame({}, columns)).decode()}})
        (told,) = saved_answers(f'<script type="application/json" id="saved">{inlined}</script>'.encode()).values()
        assert found(SECRETS, told) == set(WISHES[0])
    for text in ("[0.31415927]", '{"w":0.314159}', "31.41593 %", "wants 0.31416,", "0.3141592741012573"):
        assert found(SECRETS, text.encode()) == {WISHES[0][0]}, text
    assert found(SECRETS, wish.astype(">f8").tobytes()) == set(WISHES[0])
    assert found(SECRETS, b"0.3142 and 0.31415") == set()


@pytest.mark.takes_long
@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower: pip install 'fedpareto[flower]'")
def test_a_killed_node_is_away_its_missed_rounds_are_in_the_grid_and_bytes_are_those_of_the_record(
    deployment, parties, page_server, opened
):
    server = page_server([deployment.folder.parent])
    streamed = Streamed(server)
    page = opened(server.at("/federation"))
    for number in range(NODES):
        row(page, number, "connected").wait_for()
    grid = page.locator("figure[data-states]")
    page.locator("figure[data-states*='111']").wait_for()
    parties[KILLED].process.kill()
    until(lambda: "2" in {of_round[KILLED] for of_round in grid.get_attribute("data-states").split()})
    row(page, KILLED, "away").wait_for()
    page.get_by_role("button", name="stop after this round").click()
    assert parties["server"].wait() == 143
    page.locator("#screen[data-status='stopped']").wait_for(state="attached")
    page.get_by_role("button", name="resume").wait_for()
    record = load(deployment.run)
    rounds = [line for line in record.of_seed(0) if line.row["columns"].get("traffic")]
    traffic = np.array([line.columns.traffic(line.row) for line in rounds])
    page.locator(f"figure[data-rounds='{len(rounds)}']").wait_for()
    settled(page)
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
    page.locator("#screen[data-status='waiting for nodes']").wait_for(state="attached")
    page.get_by_role("button", name="stop after this round").click()  # There is none, so at once.
    page.locator("#screen[data-status='stopped']").wait_for(state="attached")
    until(lambda: not RunFolder(deployment.run).busy())
    assert not (deployment.run / "stop").exists()
    assert load(deployment.run).status.round == record.status.round
    check_that_nobody_tells_what_nodes_want(server, streamed, deployment)
    context = patient(page.context.browser, bypass_csp=True, viewport={"width": 320, "height": 800})
    narrow = context.new_page()
    narrow.goto(server.at("/federation"))
    narrow.locator("figure[data-states]").wait_for()
    settled(narrow)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 320
    assert Axe().run(narrow).response["violations"] == []
    context.close()
