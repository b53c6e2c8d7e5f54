"""An hour of a live run in a browser that nobody talks to: a debugger that listens all the time keeps all it hears.

Memory is resident, read from outside: RssAnon is the page's own, what of it no collection has found yet included;
RssShmem are pictures of the screen, shared with the process that shows them; RssFile is the browser's own program, read
from its file as parts of it are used for the first time, and shared by all its processes. Tasks of more than 50 ms are
counted by an observer in the page, put there before its memory is first looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from page_served import A_SECOND, Figure, Server, appended, at_work, serving

from browsing import program
from made_runs import MadeRun

KINDS = {"RssAnon": "its own", "RssShmem": "pictures of the screen", "RssFile": "the browser's program"}
SETTLED = 30.0
"""Seconds after which a page that was opened does nothing."""
A_WHILE = 3.0
"""Seconds after which memory that was given back is the system's again."""
OBSERVE = """
globalThis.long = [];
new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""


def hour(minutes: float) -> Iterator[Figure]:
    """Memory of server and renderer, and long tasks, while a run of so many minutes is watched."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        run = MadeRun(Path(folder) / "going", rounds=max(1000, int(1.1 * 60 * A_SECOND * minutes)))
        run.go_on(200)
        with at_work(run), serving(Path(folder)) as server, Alone(server, profile) as browser:
            time.sleep(SETTLED)
            browser.evaluate(OBSERVE)
            found: list[list[float]] = []
            for minute in range(round(minutes) + 1):
                if minute:
                    appended(run, 60 * A_SECOND)
                found.append([server.megabytes, *browser.megabytes()])
                told = " + ".join(f"{value:.1f}" for value in found[-1][1:])
                print(f"{minute:>5} min: server {found[-1][0]:.1f} MB, renderer {told} MB", flush=True)
            tasks = browser.evaluate("long")
            last = browser.megabytes()
            browser.collect()
            waste = sum(last) - sum(browser.megabytes())
    yield from _grown(np.array(found))
    yield Figure("renderer: in the end, not needed but not collected yet", waste, "MB")
    yield Figure("tasks of more than 50 ms", len(tasks), "")
    yield Figure("the longest of them", max(tasks, default=0.0), "ms", 200)


def _grown(found: np.ndarray) -> Iterator[Figure]:
    """Of megabytes by minute, as medians of five minutes: they go up and down as the browser collects."""
    first, early, end = (np.median(found[part], axis=0) for part in (slice(1), slice(1, 6), slice(-5, None)))
    yield Figure("renderer's memory before the first of these lines", first[1:].sum(), "MB", 250)
    for name, part in (("renderer", slice(1, None)), ("server", slice(1))):
        late, all_of_it = (end[part].sum() - since[part].sum() for since in (early, first))
        yield Figure(f"{name}: grew after the first five minutes by", late, "MB", 20)
        yield Figure(f"{name}: grew from before the first line by", all_of_it, "MB", 20)
    for kind, grown in zip(KINDS.values(), end[1:] - first[1:], strict=True):
        yield Figure(f"renderer: of that, {kind}", grown, "MB")


class Alone:
    """A browser on the screen of rounds, which can be asked something through a pipe, and is asked next to nothing."""

    def __init__(self, server: Server, profile: str) -> None:
        base, _, token = server.url.partition("?")
        found = program()
        assert found is not None
        how = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,900", "--remote-debugging-pipe"]
        self._command = [found, *how, f"--user-data-dir={profile}", f"{base}rounds?{token}"]
        self._profile, self._asked = profile, 0

    def __enter__(self) -> Alone:
        (theirs, ours), (answers, told) = os.pipe(), os.pipe()

        def as_the_browser_expects() -> None:
            for fd, place in [(os.dup(theirs), 3), (os.dup(told), 4)]:
                os.dup2(fd, place)

        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=as_the_browser_expects,  # noqa: PLW1509 (it only copies descriptors, which no thread can hold up)
        )
        os.close(theirs)
        os.close(told)
        self._pipe = os.fdopen(ours, "wb", buffering=0), os.fdopen(answers, "rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        for end in self._pipe:
            end.close()

    def evaluate(self, expression: str) -> Any:
        """What an expression in the page gives."""
        return self._in_page("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def collect(self) -> None:
        """Has the page give back what it does not need."""
        self._in_page("HeapProfiler.collectGarbage")
        time.sleep(A_WHILE)

    def _in_page(self, method: str, **params: Any) -> dict[str, Any]:
        """What the page's debugger answers; nobody is attached to it before or after."""
        (page,) = [one for one in self._send("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        session = self._send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        given = self._send(method, session, **params)
        self._send("Target.detachFromTarget", sessionId=session)
        return given

    def _send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._pipe[0].write(json.dumps(message).encode() + b"\0")
        while True:
            given = json.loads(self._message())
            if given.get("id") == self._asked:
                result: dict[str, Any] = given["result"]
                return result

    def _message(self) -> bytes:
        found = bytearray()
        while (byte := self._pipe[1].read(1)) != b"\0":
            assert byte, "the browser has ended"
            found += byte
        return bytes(found)

    def megabytes(self) -> list[float]:
        """Of the renderer that shows the page, by kind: a whole Chromium has others, which have no pictures."""
        found = [[0.0] * len(KINDS)]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes().decode(errors="replace")
                if "--type=renderer" in words and self._profile in words:
                    status = (path.parent / "status").read_text(encoding="utf-8")
                    found.append([int(status.split(f"{kind}:")[1].split()[0]) / 1024 for kind in KINDS])
        return max(found, key=lambda one: one[list(KINDS).index("RssShmem")])
