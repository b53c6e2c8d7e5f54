"""Runs that are started, stopped and resumed from the page: real processes, which outlive it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import httpx
import pytest

import fedpareto
from browsing import on_paper, settled
from fedpareto.spec.draft import load
from fedpareto_page.jobs import Jobs, is_busy
from processes import run
from waiting import until

QUICK = {"engine.threads": "1", "engine.chunk": "4"}
"""Nothing measured: quicker, and the same for every run that is compared."""
LONG = "300"
"""Rounds that take seconds: a run is halted within its first ones."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fedpareto.run("convex", "local", clients=4, rounds=2, seeds=1, out=folder / "<img src=x onerror=alert(1)>")
    fedpareto.run("convex", "local", clients=4, rounds=2, seeds=1, out=folder / "federation" / "run")
    spec = folder / "federation" / "run" / "spec.yaml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("preferences: dirichlet", "preferences: private"), "utf-8")
    os.replace(folder / "federation" / "run" / "status.json", folder / "federation" / "kept")
    (folder / "<b>sweep").mkdir()
    (folder / "<b>sweep" / "sweep.json").write_text('{"runs": [{"status": "waiting"}]}', encoding="utf-8")
    (folder / "mission").mkdir()
    (folder / "mission" / "mission.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


def status(folder):
    return json.loads((folder / "status.json").read_text(encoding="utf-8"))


def results(folder):
    """All that a run has computed, to the bit, without the times that it took."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    untimed = [{key: value for key, value in line.items() if key not in ("seconds", "at")} for line in lines]
    return untimed, *((folder / name).read_bytes() for name in ("models.safetensors", "solutions.json", "columns.bin"))


def until_told(page, selector, text):
    until(lambda: text in (page.locator(selector).first.text_content() or ""))


class Halted:
    """Halts the process of a run within its first rounds, as soon as the folder names it; `go` lets it go on."""

    def __init__(self, folder):
        self.folder, self.pid = folder, None
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        def named():
            try:
                self.pid = status(self.folder)["process"]["pid"]
            except (OSError, ValueError, KeyError):
                return False
            return True

        until(named)
        os.kill(self.pid, signal.SIGSTOP)

    def go(self):
        self.thread.join()
        os.kill(self.pid, signal.SIGCONT)


# -- line 12 ---------------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_a_run_is_started_from_the_form_stopped_and_resumed_to_the_result_of_an_undisturbed_one(
    server, opened, root, tmp_path
):
    page = opened(server.at("/new"))
    page.locator("[data-checked]").wait_for(state="attached")
    page.get_by_label("Find algorithm").fill("fedavg")
    names = page.locator('[data-key="algorithm"] input[type=radio]')
    until(lambda: names.first.input_value() == "fedavg")  # Who is named so comes first.
    page.get_by_label("Find algorithm").fill("mean of the clients' models after")
    page.get_by_role("radio", name="fedavg ", exact=False).first.check()
    page.get_by_label("Find problem").fill("convex")
    page.get_by_role("radio", name="convex", exact=False).check()
    page.locator("#f-rounds").fill("0")
    until_told(page, '[data-key="rounds"] .wrong', "rounds is 0; it is at least 1 and at most 1,000,000,000")
    assert page.locator("#start").is_disabled()
    for name, value in (("clients", "4"), ("rounds", LONG), ("seeds", "2")):
        page.locator(f"#f-{name}").fill(value)
    page.get_by_text("Where clients run").press("Enter")  # Parts of the form open by keyboard.
    for name, value in QUICK.items():
        page.locator(f'[id="f-{name}"]').fill(value)
    page.locator("#folder").fill("from the form")
    until_told(page, ".told .command code", "from the form")
    until(lambda: json.loads(page.locator("[data-checked]").get_attribute("data-checked")).get("engine.chunk") == "4")
    shown = page.locator(".told .command code").text_content()
    yaml = page.locator("#yaml").text_content()

    folder = root / "from the form"
    halted = Halted(folder)
    page.locator("#start").click()
    page.wait_for_url("**/run/*")
    page.get_by_role("button", name="stop after this round").click()
    until((folder / "stop").exists)
    halted.go()
    page.locator('[data-status="stopped"]').wait_for(state="attached")
    found = status(folder)
    assert found["status"] == "stopped"
    assert f"stopped after round {found['round']} of {LONG}" in (folder / "output.log").read_text(encoding="utf-8")
    until(lambda: not is_busy(folder))
    assert not (folder / "asked.yaml").exists()

    # The spec is that of the command that was shown, and of the YAML beside it.
    *words, out, there = shlex.split(shown)
    assert (words[0], out, Path(there)) == ("fedpareto", "--out", folder)
    typed = tmp_path / "typed"
    (tmp_path / "asked.yaml").write_text(yaml, encoding="utf-8")
    run([sys.executable, "-m", "fedpareto", *words[1:], "--out", typed], check=True)
    assert (typed / "spec.yaml").read_bytes() == (folder / "spec.yaml").read_bytes()
    assert load(tmp_path / "asked.yaml").to_yaml() == (folder / "spec.yaml").read_text(encoding="utf-8")

    page.get_by_role("button", name="resume").click()
    page.locator('[data-status="finished"]').wait_for(state="attached")
    assert results(folder) == results(typed)
    until_told(page, "#screen", "As commands")

    # The same again, with changes: the form is filled.
    page.get_by_role("link", name="repeat it with changes").click()
    page.locator("[data-checked]").wait_for(state="attached")
    assert page.locator("#f-rounds").input_value() == LONG
    assert page.locator("#f-engine\\.chunk").input_value() == "4"
    until_told(page, "#yaml", f"rounds: {LONG}")
    page.wait_for_url("**/new?values=*")
    again = opened(page.url, beside=page)  # A link shows it again.
    again.locator("[data-checked]").wait_for(state="attached")
    assert again.locator("#yaml").text_content() == page.locator("#yaml").text_content()


# -- processes of their own --------------------------------------------------------------------------------------------


def asked(server, path, body=None):
    """An answer of the server, as its own page asks."""
    headers = {"x-fedpareto": "page"}
    with httpx.Client(base_url=server.base, cookies=server.cookies, headers=headers, timeout=None) as client:
        return client.get(path) if body is None else client.post(path, json=body)


def begun(server, id):
    """How a run began, once that is known."""
    found = {}
    until(lambda: found.update(asked(server, f"/api/jobs/{id}").json()) or found["state"] != "beginning")
    return found


@pytest.mark.takes_long
def test_a_run_goes_on_when_the_page_is_killed_and_is_stopped_by_the_next_one(page_server, tmp_path):
    first = page_server([tmp_path])
    values = {"algorithm": "fedavg", "problem": "convex", "clients": "4", "rounds": "100000", **QUICK}
    id = asked(first, "/api/start", {"values": values}).json()["id"]
    assert begun(first, id) == {"state": "running", "message": None}
    first.end(signal.SIGKILL)
    folder = tmp_path / "fedavg-convex"
    round_then = status(folder)["round"]
    until(lambda: status(folder)["round"] > round_then)
    second = page_server([tmp_path])
    assert [one["status"]["name"] for one in asked(second, "/api/runs").json()["runs"]] == ["running"]
    assert asked(second, f"/api/runs/{id}/resume", {}).status_code == 422, "a process works on it already"
    answer = asked(second, f"/api/runs/{id}/stop", {"now": True})
    assert answer.json()["command"] == shlex.join(["fedpareto", "stop", str(folder), "--now"])
    until(lambda: not is_busy(folder))
    assert status(folder)["status"] == "stopped"
    assert "no process is working on" in asked(second, f"/api/runs/{id}/stop", {}).json()["detail"]


@pytest.mark.takes_long
def test_a_run_that_cannot_begin_says_why_and_leaves_nothing(tmp_path):
    root = tmp_path / "runs"
    jobs = Jobs(root)
    folder = jobs.start("problem: {name: table, file: gone.csv, label: income, sensitive: [gender]}\n", "people", {})
    (id,) = jobs.started
    until(lambda: jobs.state(id)["state"] == "over")
    until(lambda: not folder.exists())
    assert list(root.iterdir()) == []
    assert "gone.csv" in jobs.state(id)["message"], "the command line's own words are kept"


@pytest.mark.takes_long
def test_what_may_not_be_done_is_refused_with_the_right_command(server, root, page_server, tmp_path):
    ids = {one["name"]: one["id"] for one in asked(server, "/api/runs").json()["runs"]}
    deployed = ids["federation/run"]
    (root / "federation" / "run" / "status.json").write_text('{"status": "stopped", "round": 1}', encoding="utf-8")
    assert asked(server, f"/api/runs/{deployed}/resume", {}).status_code == 200
    said = begun(server, deployed)["message"]
    assert f"the run of a deployment; go on with: fedpareto server resume {root / 'federation'}" in said
    wrong = asked(server, "/api/start", {"values": {"rounds": "0"}})
    assert (wrong.status_code, "it is at least 1" in wrong.json()["detail"]) == (422, True)
    assert asked(server, "/api/start", {"values": {}, "name": "../out"}).status_code == 422
    assert asked(server, "/api/runs/00000000/stop", {}).status_code == 404
    assert asked(server, "/api/jobs/00000000").status_code == 404

    watching = page_server([root], "--read-only", "--port", "0")
    for path, body in (
        ("/api/start", {"values": {}}),
        (f"/api/runs/{deployed}/stop", {}),
        (f"/api/runs/{deployed}/resume", {}),
    ):
        answer = asked(watching, path, body)
        assert (answer.status_code, answer.json()["detail"]) == (
            403,
            "this page only watches: it was started with --read-only",
        )
    one_run = page_server([root / "federation" / "run"])
    said = asked(one_run, "/api/start", {"values": {}}).json()["detail"]
    assert said.endswith(f"fedpareto page {root / 'federation'}")


# -- what is on the screens ------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_names_and_messages_with_markup_are_texts_and_screens_have_no_faults(server, opened, root, axe):
    hostile = "<img src=x onerror=alert(1)>"
    ids = {one["name"]: one["id"] for one in asked(server, "/api/runs").json()["runs"]}
    page = opened(server, "/studies", viewport={"width": 320, "height": 700})
    for path in (
        f"/run/{ids[hostile]}",
        f"/run/{ids[hostile]}?against={ids['federation/run']}",
        "/studies",
        "/new",
        f"/new?like={ids[hostile]}",
    ):
        page.goto(server.base + path)
        page.locator("[data-checked], [data-events], #screen .command").first.wait_for(state="attached")
        settled(page)
        assert page.locator("img").count() == 0
        if path.startswith("/run/"):
            assert hostile in page.locator("#screen h2").first.text_content()
        if path == "/studies":
            assert "<b>sweep" in page.locator("#screen").text_content()
            assert f"fedpareto space look {root / 'mission'}" in page.locator(".command code").all_text_contents()
        assert page.evaluate("document.documentElement.scrollWidth") == 320, f"{path} is wider than its window"
        for scheme in ("light", "dark"):
            axe(on_paper(page, scheme))


@pytest.fixture
def axe():
    """Fails on any violation of the accessibility rules."""
    from axe_playwright_python.sync_playwright import Axe

    def check(page):
        found = Axe().run(page).response["violations"]
        assert not found, [(one["id"], one["nodes"][0]["html"]) for one in found]

    return check
