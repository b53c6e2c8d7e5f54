"""The page in Firefox: its fronts and rounds as its tests see them in Chromium, and what that takes.

    python benchmarks/page_firefox.py [--parts own fronts many plane beside close] [--pictures FOLDER]

Any Firefox does that speaks WebDriver BiDi: FIREFOX, or the one that is found. Own: how soon the address is there, and
every screen, for which nobody is asked but the page's own server. Fronts: four finished runs, whose front and
hypervolumes are those of `Record.front` and of `fedpareto compare`. Many: 20 runs of 1,000 rounds. Plane: 50,000 points
that are brushed. Beside: a real `fedpareto run` of 120 rounds. Close: another one, while somebody looks closely at a
round of the past. Errors in the console, breaches of the page's policy and requests to elsewhere end it, and so does
what differs. CPU times are those of Firefox's processes that show pages, which leave it to another one to paint;
budgets are those for Chromium. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fedpareto
from fedpareto.config.files import read_json
from fedpareto.moo.dominance import is_nondominated
from fedpareto.record.reading import load

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "packages" / "page" / "tests")]

from page import LINES, POINTS, SEEN, STEPS, TRIES, address  # noqa: E402
from page_bidi import Firefox  # noqa: E402
from page_served import Figure, Server, serving  # noqa: E402

from browsing import FRAMES  # noqa: E402
from made_runs import ALGORITHMS, MadeRun, many_runs  # noqa: E402

SCREENS = ("", "fronts", "rounds", "clients", "film", "attacks", "federation", "dial", "studies", "new")
NAMES = ("cfl", "fedavg", "fedpref", "local")
RUNS, CLIENTS, PLANE = 20, 10, 50_000
UPDATES = 100
IDS = "fetch('/api/runs').then((answer) => answer.json()).then(({ runs }) => runs.map((one) => [one.name, one.id]))"
BOX = """(selector) => {
  const { x, y, width, height } = document.querySelector(selector).getBoundingClientRect();
  return [x, y, width, height];
}"""
KNOWN = """() => {
  globalThis.updates = 0;
  const all = { subtree: true, characterData: true, childList: true };
  new MutationObserver(() => updates++).observe(document.querySelector("output"), all);
}"""
"""Counts how often the page tells how far a run is."""
SIZES = """performance.getEntriesByType("resource").filter((one) => one.name.includes("/static/"))
  .reduce((sum, one) => sum + one.decodedBodySize, 0)"""
TABLE = """[...document.querySelector("section[data-version] table").tBodies[0].rows].map(({ cells }) =>
  [cells[0].innerText, ...[...cells].slice(1).map((cell) => Number(cell.dataset.value))])"""
LOOKED_AT = """() => {
  const brush = document.querySelector(".scatter .brush");
  return {
    zoom: document.querySelector(".scatter").dataset.view,
    brush: ["x", "y", "width", "height"].map((name) => brush.getAttribute(name)),
    inside: document.querySelector("figure[data-chosen]").dataset.chosen,
    focus: document.activeElement === globalThis.focused && focused.isConnected,
    scroll: scrollY,
    round: document.querySelector("input[type=range]").value,
    address: location.search,
  };
}"""


def own(page: Firefox) -> Iterator[Figure]:
    """Every screen of two small runs."""
    with tempfile.TemporaryDirectory() as folder:
        many_runs(Path(folder), 2, rounds=20)
        with serving(Path(folder)) as server:
            yield Figure("fedpareto page: until its address is printed", server.waited, "s", 3)
            page.goto(server.url)
            sizes, wide = [], []
            for screen in SCREENS:
                page.goto(address(page, server, screen))
                page.settled()
                sizes.append(page.evaluate(SIZES) / 1000)
                wide.append(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
            assert max(wide) <= 0, f"{wide}: pixels that screens are wider than the window"
    yield Figure("our files, of the screen that has most", max(sizes), "kB", 200)
    yield Figure(f"{len(SCREENS)} screens: errors, breaches, foreign requests", len(page.wrong), "", 0)


def fronts(page: Firefox, pictures: Path | None) -> Iterator[Figure]:
    """What is on the screen of four finished runs is what the report says of them."""
    with tempfile.TemporaryDirectory() as folder:
        root, quick = Path(folder) / "runs", {"engine": {"threads": 1, "chunk": 64}}
        for name in NAMES:
            options = {"clients": 6, "rounds": 5, "seeds": 3, "preferences": "equidistant", **quick}
            fedpareto.run("synthetic", name, **options, out=root / name)
        command = ["compare", *(str(root / name) for name in NAMES), "--out", str(Path(folder) / "side"), "--quiet"]
        subprocess.run([sys.executable, "-m", "fedpareto", *command], stdout=subprocess.DEVNULL, check=True)
        table = read_json(Path(folder) / "side" / "table.json")
        with serving(root) as server:
            page.goto(server.url)
            ids = dict(page.evaluate(IDS))
            page.goto(address(page, server, "fronts"))
            page.settled()
            seen = set(page.evaluate("document.querySelector('figure[data-front]').dataset.front").split())
            expected = set().union(*(on_the_front(root / name, ids[name]) for name in NAMES))
            assert seen == expected, seen ^ expected
            yield Figure("four runs: models on their fronts, all as in the report", len(seen), "")
            page.goto(address(page, server, ""))
            page.wait("document.querySelector('section[data-version] table') !== null")
            shown = page.evaluate(TABLE)
            place = [one["key"] for one in table["columns"]].index("hypervolume") + 1
            found = {label.split("\n")[0]: values[place - 1] for label, *values in shown}
            told = {row["label"]: row["values"]["hypervolume"]["mean"] for row in table["rows"]}
            gaps = [abs(found[label] - value) for label, value in told.items()]
            yield Figure(f"{len(gaps)} rows of hypervolumes: largest gap to table.json", max(gaps), "", 1e-6)
            assert max(gaps) <= 1e-6, (found, told)
            for screen in ("fronts", "rounds") if pictures else ():
                page.goto(address(page, server, screen))
                page.settled()
                page.picture(pictures / f"{screen}-{page.paper}.png")


def on_the_front(folder: Path, run: str) -> set[str]:
    """RUN:SEED:CLIENT of a run's front, as `Record.front` has it."""
    record = load(folder)
    points = record.pooled()
    keys = [f"{run}:{seed}:{client}" for seed in record.started for client in record.solution(seed).clients]
    on = is_nondominated(points, record.maximise, keep_duplicates=True)
    assert np.array_equal(np.unique(points[on], axis=0), np.unique(record.front(), axis=0))
    return {key for key, best in zip(keys, on, strict=True) if best}


def drawn(page: Firefox, server: Server, screen: str, ready: str, count: int) -> tuple[float, float]:
    """CPU of the page's process and seconds until a screen with so much on it is drawn."""
    page.goto(server.url)
    where = address(page, server, screen)
    page.goto(server.url.partition("?")[0] + "static/style.css")
    page.cpu()
    begun = time.perf_counter()
    page.goto(where)
    page.wait(ready, count)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - begun
    return float(page.cpu()[0]), seconds


def many(page: Firefox) -> Iterator[Figure]:
    """The reference load on the screen of rounds."""
    with tempfile.TemporaryDirectory() as folder:
        many_runs(Path(folder), RUNS, 1000, CLIENTS)
        with serving(Path(folder)) as server:
            total = RUNS * 1001
            yield from least(f"{total:,} lines, never read", [drawn(page, server, "rounds", LINES, total)])
            yield from least(f"{total:,} lines", [drawn(page, server, "rounds", LINES, total) for _ in range(TRIES)])


def plane(page: Firefox) -> Iterator[Figure]:
    """Fronts of 50,000 points: to draw, and to brush."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(RUNS):
            name = ALGORITHMS[i % len(ALGORITHMS)]
            MadeRun(Path(folder) / f"{name}-{i:02}", name, rounds=2, clients=PLANE // RUNS, similar=False).finish()
        points = np.concatenate([load(path).pooled() for path in sorted(Path(folder).iterdir())])
        with serving(Path(folder)) as server:
            found = [drawn(page, server, "fronts", POINTS, PLANE) for _ in range(TRIES)]
            yield from least(f"{PLANE:,} points", found, 800)
            x, y, width, height = page.evaluate(BOX, ".scatter")
            shares = [0.3 + 0.4 * step / STEPS for step in range(STEPS + 1)]
            page.cpu()
            page.drag([(x + share * width, y + share * height) for share in shares])
            yield Figure(f"{PLANE:,} points: main thread a step of a brush", page.cpu()[1] / STEPS, "ms", 25)
            page.wait("location.search.includes('range=')")
            page.settled()
            range_ = page.evaluate("new URLSearchParams(location.search).get('range')")
            ends = np.array([[float(end) for end in part.split(":")[1].split("~")] for part in range_.split(",")])
            expected = int(((points >= ends[:, 0]) & (points <= ends[:, 1])).all(axis=1).sum())
            shown, words = page.evaluate("""(({ dataset, innerText }) => [Number(dataset.chosen), innerText])(
              document.querySelector("figure[data-chosen]"))""")
            assert f"{expected:,} models in the box" in words.replace("\u2009", ","), words
            yield Figure(f"{shown:,} models in the box: more than numpy counts", shown - expected, "", 0)
            assert shown == expected, expected


def least(what: str, found: list[tuple[float, float]], budget: float | None = None) -> Iterator[Figure]:
    """The least of several tries: milliseconds of CPU, and seconds."""
    yield Figure(f"{what}: the page's CPU until drawn", min(cpu for cpu, _ in found), "ms", budget)
    yield Figure(f"{what}: seconds until drawn", min(seconds for _, seconds in found), "s")


@contextmanager
def goes_on(page: Firefox, screen: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A real run, and the page on a screen of it, once it has begun; the run, and the file of its lines."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        words = ["run", "fedpref", "--problem", "synthetic", *options, "--out", "going", "--quiet"]
        command = [sys.executable, "-m", "fedpareto", *words]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as run:
            path = Path(folder) / "going" / "metrics.jsonl"
            page.goto(server.url)
            while not path.exists() or page.evaluate(f"{IDS}.then((all) => all.length === 0)"):
                assert run.poll() is None
                time.sleep(0.05)
            page.goto(address(page, server, screen))
            try:
                yield run, path
            finally:
                run.kill()
        page.goto(server.url.partition("?")[0] + "static/style.css")


def beside(page: Firefox, rounds: int = 120) -> Iterator[Figure]:
    """How soon rounds of a real run are painted."""
    with goes_on(page, "rounds", "--rounds", str(rounds)) as (run, path):
        page.wait(LINES, 1)
        page.evaluate(SEEN, "[data-lines]")
        page.cpu()
        first = len(path.read_bytes().splitlines())
        written: list[float] = []
        while run.poll() is None:
            lines = len(path.read_bytes().splitlines()) - first
            written.extend([time.time()] * (lines - len(written)))
            time.sleep(0.005)
        page.wait(LINES, first + len(written))
        time.sleep(0.5)
        taken, seen = page.cpu()[1], np.array(page.evaluate("seen"))
    late = np.array([seen[seen[:, 0] >= first + i + 1, 1].min() - 1000 * at for i, at in enumerate(written)])
    what = f"beside a real run, {len(written)} rounds"
    yield Figure(f"{what}: painted within 500 ms", 100 * float((late <= 500).mean()), "%")
    yield Figure(f"{what}: until painted, p50", float(np.percentile(late, 50)), "ms")
    yield Figure(f"{what}: until painted, p95", float(np.percentile(late, 95)), "ms", 500)
    yield Figure(f"{what}: main thread a round", taken / len(written), "ms", 6)


def close(page: Firefox) -> Iterator[Figure]:
    """Somebody has zoomed and brushed a round of the past, and stays there while the run goes on."""
    with goes_on(page, "fronts", "--rounds", "2000", "--clients", "30"):
        yield undisturbed(page)


def undisturbed(page: Firefox) -> Figure:
    page.sized(1200, 700)
    page.wait("document.querySelector('[data-points]') !== null")
    page.wait("Number(document.querySelector('output').textContent.match(/\\d+/)) >= 5")
    x, y, width, height = page.evaluate(BOX, "input[type=range]")
    page.drag([(x + 0.6 * width, y + height / 2)])  # a Firefox without a window tells nobody of focus by keys
    page.wait("location.search.includes('round=')")
    page.evaluate("scrollTo(0, 120)")
    x, y, width, height = page.evaluate(BOX, ".scatter")
    page.drag([(x + share * width, y + share * height) for share in (0.2, 0.4, 0.6, 0.8)])
    page.evaluate("(globalThis.focused = document.querySelector('.scatter svg')).focus({ preventScroll: true })")
    page.press("+", "+")
    page.wait("location.search.includes('view=')")
    page.settled()
    before = page.evaluate(LOOKED_AT)
    assert before["focus"], before
    assert before["scroll"] > 0, before
    assert int(before["round"]) > 0, before
    page.evaluate(KNOWN)
    page.wait("(count) => updates >= count", UPDATES)
    page.evaluate(FRAMES)
    after = page.evaluate(LOOKED_AT)
    assert after == before, (before, after)
    return Figure("zoom, brush, focus, scroll, round: updates they outlast", page.evaluate("updates"), "")


def main() -> None:
    parts: dict[str, Any] = {
        "own": own,
        "fronts": fronts,
        "many": many,
        "plane": plane,
        "beside": beside,
        "close": close,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=parts, default=list(parts))
    parser.add_argument("--pictures", type=Path, help="a folder for what fronts and rounds look like")
    chosen = parser.parse_args()
    for name in chosen.parts:
        with Firefox() as page:
            print(f"Firefox {page.version}", flush=True) if name == chosen.parts[0] else None
            for one in parts[name](page, chosen.pictures) if name == "fronts" else parts[name](page):
                print(one, flush=True)
    if chosen.pictures:
        with Firefox("dark") as page:
            list(fronts(page, chosen.pictures))


if __name__ == "__main__":
    main()
