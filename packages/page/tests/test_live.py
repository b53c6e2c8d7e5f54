"""What open tabs show while runs grow, servers end and come back, and runs are killed and resumed."""

from __future__ import annotations

import signal
import socket
from itertools import pairwise

from browsing import settled
from made_runs import MadeRun
from processes import Commands
from waiting import until

TABS = 9
"""More than a browser opens connections to one server."""
ROUNDS = """
async () => {
  const { shelf } = await import("/static/runs.js");
  const [run] = shelf.runs.values();
  let lines;
  for (const split of run.entry.splits) lines = await run.lines(split);
  return [...lines.columns].map(([name, column]) => [name, Array.from(column.subarray(0, lines.total), String)]);
}
"""
"""By name, the columns of numbers that a tab has of its first run; not a number is a word."""

ASKED = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/lines')).length"
"""How often a tab has asked for lines."""

COUNT_STREAMS = """
globalThis.streams = 0;
globalThis.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    streams++;
  }
};
"""


COUNT_COLLECTIONS = """
globalThis.collections = [];
const measured = performance.measureUserAgentSpecificMemory;
performance.measureUserAgentSpecificMemory = function () {
  collections.push(globalThis.performance.now());
  return measured.call(performance);
};
"""
"""Asked how much a page holds, a browser collects first: when that was, in milliseconds."""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


def columns(tab):
    return dict(map(tuple, tab.evaluate(ROUNDS)))


def drawn(tab):
    paths = settled(tab).locator("path.curve")
    return paths.evaluate_all("(all) => all.map((one) => one.getAttribute('d'))")


def wait_for_lines(tab, count):
    tab.locator(f'[data-lines="{count}"]').first.wait_for(state="attached")


def test_nine_tabs_get_every_round_and_come_back_with_the_server(page_server, opened, tmp_path):
    run = MadeRun(tmp_path / "runs" / "one", seeds=(0, 1), clients=4, rounds=60)
    run.go_on(3)
    port = free_port()
    server = page_server([tmp_path / "runs"], "--port", port)
    lost = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
    first = opened(server, "/rounds", may=lost)
    tabs = [first, *(opened(f"{server.base}/rounds", beside=first, may=lost) for _ in range(TABS - 1))]
    for tab in tabs:
        wait_for_lines(tab, 6)
        tab.evaluate("globalThis.isTheSame = true")
    for _ in range(10):
        run.go_on()
    for tab in tabs:
        wait_for_lines(tab, 26)
    server.end(signal.SIGKILL)
    first.get_by_text("lost, trying again").first.wait_for()
    run.go_on(4)
    again = page_server([tmp_path / "runs"], "--port", port)
    assert again.token == server.token
    run.go_on(4)
    for tab in tabs:
        wait_for_lines(tab, 42)
        assert tab.evaluate("globalThis.isTheSame"), "nobody has loaded it again"
        found = columns(tab)
        assert sorted(zip(found["seed"], map(int, found["round"]), strict=True)) == [
            (seed, r) for seed in "01" for r in range(21)
        ]
    held = "navigator.locks.query().then(({ held }) => held.map((one) => one.clientId))"
    before = first.evaluate(held)
    tabs[4].evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: first.evaluate(held) not in ([], before), lambda: f"{before} had the stream, and has it still")
    run.go_on()
    for tab in tabs:
        wait_for_lines(tab, 44)
    tabs.pop(4).close()
    run.go_on()
    for tab in tabs:
        wait_for_lines(tab, 46)


def test_a_page_with_news_gives_back_what_it_needs_no_more(page_server, opened, tmp_path):
    run = MadeRun(tmp_path / "runs" / "one", clients=4, rounds=60)
    run.go_on(3)
    tab = opened(page_server([tmp_path / "runs"]), "/rounds", before=lambda tab: tab.add_init_script(COUNT_COLLECTIONS))
    wait_for_lines(tab, 3)
    assert tab.evaluate("[crossOriginIsolated, collections]") == [True, []], "as long as nothing happens"
    run.go_on()
    wait_for_lines(tab, 4)
    until(lambda: tab.evaluate("collections.length") > 0)
    for line in range(5, 8):
        run.go_on()
        wait_for_lines(tab, line)
    times = tab.evaluate("collections")
    assert all(later - one > 10000 for one, later in pairwise(times)), "not with every round, however long these took"


def test_what_changes_before_a_stream_is_open_is_on_the_screen(page_server, opened, tmp_path):
    MadeRun(tmp_path / "runs" / "one", clients=4).go_on()
    server = page_server([tmp_path / "runs"])

    def tab_with_an_old_answer(name, is_told, beside=None):
        def late(route):
            old = route.fetch()
            MadeRun(tmp_path / "runs" / name, clients=4).go_on()
            is_told()
            route.fulfill(response=old)

        return opened(server, before=lambda tab: tab.route("**/api/runs", late, times=1), beside=beside)

    def wait_for_runs(tab, count):
        tab.get_by_text(f"Runs ({count} of {count} shown)").wait_for()

    first = tab_with_an_old_answer("two", lambda: until(lambda: len(server.ids()) == 2))
    wait_for_runs(first, 2)
    # All tabs share its stream: what that said at its beginning is older than what the second tab has missed.
    known = "import('/static/runs.js').then(({ shelf }) => shelf.runs.size)"  # A tab behind another draws no frame.
    second = tab_with_an_old_answer("three", lambda: until(lambda: first.evaluate(known) == 3), beside=first)
    wait_for_runs(second, 3)


def test_a_file_that_gets_shorter_is_shown_as_a_fresh_page_shows_it(page_server, opened, tmp_path):
    run = MadeRun(tmp_path / "runs" / "one", clients=4, rounds=20)
    run.go_on(9)
    server = page_server([tmp_path / "runs"])
    tab = opened(server, "/rounds")
    wait_for_lines(tab, 9)
    run.go_on(2)
    wait_for_lines(tab, 11)
    run.cut(4)
    wait_for_lines(tab, 4)
    asked = tab.evaluate(ASKED)
    for lines in (5, 6):
        run.go_on()
        wait_for_lines(tab, lines)
    assert tab.evaluate(ASKED) == asked, "the numbers of new lines came unasked"
    run.finish()
    wait_for_lines(tab, 21)
    fresh = opened(server, "/rounds")
    wait_for_lines(fresh, 21)
    assert columns(tab) == columns(fresh)
    assert drawn(tab) == drawn(fresh)


def test_streams_that_take_over_from_each_other_tell_every_round(page_server, opened, tmp_path):
    """A browser keeps the room that a stream went through: after a while another one takes over."""
    run = MadeRun(tmp_path / "runs" / "one", clients=4, rounds=2000)
    run.go_on(9)
    server = page_server([tmp_path / "runs"])
    tab = opened(server, "/rounds", before=lambda tab: tab.add_init_script(COUNT_STREAMS))
    wait_for_lines(tab, 9)
    for _ in range(10):
        run.go_on(90)
        wait_for_lines(tab, run.done)
    assert tab.evaluate("streams") > 1
    fresh = opened(server, "/rounds")
    wait_for_lines(fresh, run.done)
    assert columns(tab) == columns(fresh)
    slider = tab.get_by_label("Round", exact=True)
    slider.focus()
    assert slider.input_value() == str(run.done - 1), "it reaches as far as the run for whoever is at it"


def test_a_run_that_is_killed_and_resumed_is_shown_as_a_fresh_page_shows_it(page_server, opened, tmp_path):
    folder = tmp_path / "runs" / "real"
    (tmp_path / "runs").mkdir()
    few = ("--clients", "4", "--rounds", "40", "--seeds", "1", "--set", "threads=1", "--set", "chunk=64", "--quiet")
    command = Commands().start(["run", "fedpref", "--problem", "convex", *few, "--out", folder], tmp_path / "printed")
    server = page_server([tmp_path / "runs"])
    tab = opened(server, "/fronts")

    def lines():
        path = folder / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    until(lambda: lines() > 10, (tmp_path / "printed").read_text)
    tab.locator("[data-points]").first.wait_for(state="attached")
    command.signal(signal.SIGKILL)
    command.wait()
    assert Commands().run(["resume", folder, "--quiet"], tmp_path / "resumed") == 0
    tab.get_by_role("navigation").get_by_text("Rounds", exact=True).click()
    wait_for_lines(tab, 41)
    tab.get_by_role("navigation").get_by_text("Fronts", exact=True).click()
    fresh = opened(server, "/fronts")
    fresh.locator("[data-front]").first.wait_for(state="attached")
    front = fresh.locator("[data-front]").first.get_attribute("data-front")
    tab.locator(f'[data-front="{front}"]').first.wait_for(state="attached")
    assert front
    assert columns(tab) == columns(fresh)


def test_the_token_is_in_no_address_and_no_title(page_server, opened, tmp_path):
    server = page_server([tmp_path])
    page = opened(server.url)
    for screen in ("Fronts", "Rounds", "New"):
        page.get_by_role("navigation").get_by_text(screen, exact=True).click()
        page.locator("h1").get_by_text(screen, exact=True).wait_for()
        assert server.token not in page.url + page.title() + page.content()
    history = page.evaluate("performance.getEntries().map((one) => one.name).join(' ')")
    assert server.token not in history.replace(server.url, "")
    assert page.evaluate("document.cookie") == ""


EVIL = '<img src=x onerror="document.title=1">'
SCREENS = ("/", "/fronts", "/rounds", "/clients", "/film", "/attacks", "/federation", "/dial", "/studies", "/new")


def test_words_of_run_folders_are_texts_on_every_screen(page_server, opened, write_run_at, tmp_path):
    event = {"seed": 0, "round": 0, "client": 1, "reason": EVIL}
    objectives = [{"name": f"{EVIL}{j}", "maximise": True, "reference": 0.0} for j in range(2)]
    write_run_at(
        tmp_path / "runs" / EVIL,
        EVIL,
        problem=EVIL,
        rounds=2,
        clustered=True,
        events=[event],
        extra={"objectives": objectives, "versions": {EVIL: EVIL}, "names": [EVIL] * 10},
    )
    broken = tmp_path / "runs" / f"{EVIL}2"
    broken.mkdir()
    (broken / "run.json").write_text(EVIL, encoding="utf-8")
    server = page_server([tmp_path / "runs"])
    page = opened(server, "/")
    id = page.evaluate("fetch('/api/runs').then((answer) => answer.json())")["runs"][0]["id"]
    for screen in (*SCREENS, f"/run/{id}"):
        page.goto(f"{server.base}{screen}?runs={id}")
        page.locator("#shelf li").first.wait_for(state="attached")
        settled(page)
        assert page.locator("img").count() == 0, screen
        assert EVIL in page.locator("body").inner_text(), screen
        assert page.title() != "1"
