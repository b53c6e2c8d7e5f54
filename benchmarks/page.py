"""What the page costs, in its server and in the browser, beside its budgets.

    python benchmarks/page.py [--runs 20] [--rounds 1000] [--points 50000] [--seconds 15] [--json FILE]
    python benchmarks/page.py --parts beside dial
    python benchmarks/page.py --parts hour --minutes 60

The reference load is 20 finished runs of 1,000 rounds and 10 clients, in the format that a run writes; for the plane of
fronts it is as many runs whose clients make 50,000 points. `fedpareto page` runs in a process of its own, the browser
is a Chromium without a window (FEDPARETO_BROWSER, or the one that is found). CPU times are those of the browser's
renderer and of its main thread, which hardly depend on what else the machine does; wall-clock times do. Live: lines are
appended to one of the runs, ten a second, and a line counts as seen in the frame after the page has counted it.
Beside: a real `fedpareto run` of 120 rounds on the same machine, watched on the same screen. Dial: 40 keys on a model
of PraFFL with 500 rows, each once the one before is on the screen. Hour, only if it is asked for: a run that goes on at
ten lines a second, watched on the screen of rounds: see page_hour.py. Linux only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "packages" / "page" / "tests")]

from page_hour import hour  # noqa: E402
from page_served import A_SECOND, Figure, Server, appended, at_work, resident, serving  # noqa: E402

from browsing import program  # noqa: E402
from made_runs import ALGORITHMS, MadeRun, many_runs  # noqa: E402

STATIC = ROOT / "packages" / "page" / "src" / "fedpareto_page" / "static"
TRIES = 3
"""The best of so many counts."""
STEPS = 25
"""Of a brush that is dragged over the plane."""
PATIENCE = 120.0
A_KEY = 0.25
"""Seconds between two keys at the dial."""
TURNED = """() => {
  globalThis.turned = [];
  const screen = document.querySelector("#screen");
  let last = screen.dataset.preference;
  const look = () => {
    if (screen.dataset.preference === last) return;
    last = screen.dataset.preference;
    requestAnimationFrame(() => turned.push(performance.timeOrigin + performance.now()));
  };
  new MutationObserver(look).observe(screen, { attributes: true, attributeFilter: ["data-preference"] });
}"""
"""Notes when another preference is on the screen: a test that asks the page for it would be a part of its work."""
PARTS = ("size", "plane", "live", "beside", "dial")
LONG_PARTS = ("hour",)
SEEN = """(selector) => {
  globalThis.seen = [];
  globalThis.long = [];
  new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask" });
  let last = 0;
  const look = () => {
    const lines = Number(document.querySelector(selector)?.dataset.lines ?? 0);
    if (lines > last) {
      last = lines;
      requestAnimationFrame(() => seen.push([lines, performance.timeOrigin + performance.now()]));
    }
  };
  const options = { subtree: true, attributes: true, attributeFilter: ["data-lines"] };
  new MutationObserver(look).observe(document.body, options);
}"""
"""Notes when the page has so many lines on the screen, in milliseconds since 1970, and tasks of more than 50 ms."""


def wait(page: Any, what: str, argument: Any = None) -> None:
    """Until an expression in the page is true; it is asked by the debugger, which the page's policy allows."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(what, argument):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


class Costs:
    """What a page's renderer and its main thread have used."""

    def __init__(self, page: Any) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable")
        self.begun = self._now()

    def _now(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self.session.send("Performance.getMetrics")["metrics"]}

    def since(self, name: str) -> float:
        """Milliseconds of ProcessTime or ThreadTime since this began."""
        return 1000 * (self._now()[name] - self.begun[name])


def opened(browser: Any, server: Server) -> Any:
    """A page of the server that has nothing on it yet: what comes next is in the same process."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(server.url)
    page.goto(server.url.partition("?")[0] + "static/style.css")
    return page


def address(page: Any, server: Server, screen: str) -> str:
    runs = page.evaluate("fetch('/api/runs').then((answer) => answer.json())")["runs"]
    return f"{server.url.partition('?')[0]}{screen}?runs={','.join(one['id'] for one in runs)}"


def drawn(browser: Any, server: Server, screen: str, ready: str, count: int) -> tuple[Any, float, float]:
    """A page with all of it on the screen; CPU of its renderer until then, and until its first paint, milliseconds."""
    page = opened(browser, server)
    where = address(page, server, screen)
    costs = Costs(page)
    page.goto(where)
    wait(page, ready, count)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    return page, costs.since("ProcessTime"), paint


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(TRIES))


POINTS = (
    "(count) => [...document.querySelectorAll('[data-points]')].some((one) => Number(one.dataset.points) === count)"
)
LINES = "(count) => Number(document.querySelector('[data-lines]')?.dataset.lines) >= count"


def size() -> Iterator[Figure]:
    """All scripts and styles, of which no screen needs all: as they are, and as they travel."""
    files = [path.read_bytes() for path in STATIC.rglob("*") if path.suffix in (".js", ".css")]
    yield Figure("all scripts and styles", sum(map(len, files)) / 1000, "kB")
    yield Figure("the same as they travel", sum(len(gzip.compress(one)) for one in files) / 1000, "kB", 150)


def plane(browser: Any, runs: int, points: int) -> Iterator[Figure]:
    """Fronts of so many points: to draw, and to brush."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(runs):
            name = ALGORITHMS[i % len(ALGORITHMS)]
            MadeRun(Path(folder) / f"{name}-{i:02}", name, rounds=2, clients=points // runs, similar=False).finish()
        with serving(Path(folder)) as server:
            costs, paints = [], []
            for _ in range(TRIES):
                page, cost, paint = drawn(browser, server, "fronts", POINTS, points // runs * runs)
                costs.append(cost)
                paints.append(paint)
                if len(costs) < TRIES:
                    page.context.close()
            yield Figure(
                f"{points:,} points: renderer's CPU until drawn", min(costs), "ms", 800 if points <= 50_000 else 1000
            )
            yield Figure(f"{points:,} points: first contentful paint", min(paints), "ms", 600)
            yield Figure(f"{points:,} points: main thread a step of a brush", best(lambda: brushed(page)), "ms", 25)
            yield Figure(f"{points:,} points: renderer's memory", renderer(browser), "MB", 250)


def brushed(page: Any) -> float:
    box = page.locator("[data-points]").first.bounding_box()
    costs = Costs(page)
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    for step in range(1, STEPS + 1):
        share = 0.3 + 0.4 * step / STEPS
        page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
        page.evaluate("new Promise(requestAnimationFrame)")
    page.mouse.up()
    found = costs.since("ThreadTime") / STEPS
    page.keyboard.press("Escape")
    return found


def renderer(browser: Any) -> float:
    """Megabytes of the largest renderer."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return max(resident(one["id"]) for one in processes if one["type"] == "renderer")


def live(browser: Any, runs: int, rounds: int, seconds: float) -> Iterator[Figure]:
    """The reference load on the screen of rounds, while one of the runs goes on."""
    with tempfile.TemporaryDirectory() as folder:
        many_runs(Path(folder), runs - 1, rounds)
        going = MadeRun(Path(folder) / "going", rounds=10 * rounds, similar=False)
        going.go_on(rounds)
        with ExitStack() as goes_on, serving(Path(folder)) as server:
            goes_on.enter_context(at_work(going))
            yield Figure("fedpareto page: until its address is printed", server.waited, "s", 1.5)
            yield Figure("fedpareto page: CPU until then", server.cpu, "s")
            total = (runs - 1) * (rounds + 1) + rounds
            page, cost, _ = drawn(browser, server, "rounds", LINES, total)
            yield Figure(f"{total:,} lines: renderer's CPU until drawn", cost, "ms")
            yield Figure("server: CPU until all is read and drawn", server.cpu, "s")
            yield Figure("server: memory", server.megabytes, "MB", 150)
            page.evaluate(SEEN, "[data-lines]")
            costs, before = Costs(page), server.cpu
            written = appended(going, int(A_SECOND * seconds))
            wait(page, LINES, total + len(written))
            time.sleep(0.5)
            seen = np.array(page.evaluate("seen"))
            late = [seen[seen[:, 0] >= total + i + 1, 1].min() - 1000 * at for i, at in enumerate(written)]
            yield Figure("a line on the disk until it is painted, p50", float(np.percentile(late, 50)), "ms")
            yield Figure("a line on the disk until it is painted, p95", float(np.percentile(late, 95)), "ms", 500)
            yield Figure("main thread for each line", costs.since("ThreadTime") / len(written), "ms", 6)
            yield Figure("longest task while live", max(page.evaluate("long"), default=0.0), "ms", 200)
            yield Figure("server: CPU for each line", 1000 * (server.cpu - before) / len(written), "ms")
            yield Figure("renderer's memory", renderer(browser), "MB", 250)
            going.status("stopped")
            goes_on.close()
            page.context.close()
            time.sleep(3)
            before, begun = server.cpu, time.monotonic()
            time.sleep(10)
            yield Figure("server: CPU while idle", 100 * (server.cpu - before) / (time.monotonic() - begun), "%", 1)


def beside(browser: Any, rounds: int = 120) -> Iterator[Figure]:
    """The screen of rounds while a real run goes on."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        words = ["run", "fedpref", "--problem", "synthetic", "--rounds", str(rounds), "--out", "going"]
        command = [sys.executable, "-m", "fedpareto", *words]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as run:
            path = Path(folder) / "going" / "metrics.jsonl"
            while not path.exists() and run.poll() is None:
                time.sleep(0.05)
            page = opened(browser, server)
            wait(page, "fetch('/api/runs').then((answer) => answer.json()).then((all) => all.runs.length > 0)")
            page.goto(address(page, server, "rounds"))
            wait(page, LINES, 1)
            page.evaluate(SEEN, "[data-lines]")
            costs, first = Costs(page), len(path.read_bytes().splitlines())
            written: list[float] = []
            while run.poll() is None:
                lines = len(path.read_bytes().splitlines()) - first
                written.extend([time.time()] * (lines - len(written)))
                time.sleep(0.005)
        wait(page, LINES, first + len(written))
        time.sleep(0.5)
        seen = np.array(page.evaluate("seen"))
        late = np.array([seen[seen[:, 0] >= first + i + 1, 1].min() - 1000 * at for i, at in enumerate(written)])
        what = f"beside a real run, {len(written)} rounds"
        yield Figure(f"{what}: painted within 500 ms", 100 * float((late <= 500).mean()), "%")
        yield Figure(f"{what}: until painted, p95", float(np.percentile(late, 95)), "ms", 500)
        yield Figure(f"{what}: main thread a round", costs.since("ThreadTime") / len(written), "ms", 6)
        page.context.close()


def dial(browser: Any, presses: int = 40) -> Iterator[Figure]:
    """A model that is turned by its arrow keys."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "praffl", "--problem", "synthetic", "--rounds", "3", "--out", "turned"]
        subprocess.run([sys.executable, "-m", "fedpareto", *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        with serving(Path(folder)) as server:
            for _ in range(TRIES):
                page = opened(browser, server)
                page.goto(f"{address(page, server, 'dial')}&w=0.1,0.9&a=0.1,0.9")
                wait(page, "document.querySelector('#screen[data-preference]') !== null")
                page.locator("#dial").focus()
                page.evaluate(TURNED)
                costs, pressed = Costs(page), []
                for _ in range(presses):
                    pressed.append(1000 * time.time())
                    page.keyboard.press("ArrowRight")
                    time.sleep(A_KEY)
                found = costs.since("ThreadTime") / presses
                shown = page.evaluate("turned")
                assert len(shown) == presses, f"{len(shown)} shown: each key is shown before the next one is pressed"
                waits = np.array(shown) - pressed
                yield Figure(f"dial, {presses} keys: until shown, p95", float(np.percentile(waits, 95)), "ms", 150)
                yield Figure(f"dial, {presses} keys: main thread a key", found, "ms", 20)
                page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--parts", nargs="*", choices=PARTS + LONG_PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = program()
    if found is None:
        raise SystemExit("no Chromium here; FEDPARETO_BROWSER names one")
    from playwright.sync_api import sync_playwright

    figures = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        parts = {
            "size": size(),
            "plane": plane(browser, chosen.runs, chosen.points),
            "live": live(browser, chosen.runs, chosen.rounds, chosen.seconds),
            "beside": beside(browser),
            "dial": dial(browser),
            "hour": hour(chosen.minutes),
        }
        for name in chosen.parts:
            for one in parts[name]:
                print(one, flush=True)
                figures.append(one)
        browser.close()
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
