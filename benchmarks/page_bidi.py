"""A real Firefox without a window, and one page in it: what is asked of it, and what no page may do.

Firefox speaks WebDriver BiDi by itself, through a WebSocket: no driver is needed but the package websockets. Its
profile is new and lets it ask nobody for updates, lists or experiments, so that what is asked for is the page's.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from websockets.sync.client import connect

from browsing import FRAMES, WATCH

PROGRAMS = ("firefox-esr", "firefox")
PATIENCE = 120.0
"""Seconds after which what has not come is missing."""
MOUSE = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
QUIET = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.search.update": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.ipc.processPrelaunch.enabled": False,
    "extensions.blocklist.enabled": False,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.enabled": False,
    "toolkit.telemetry.server": "",
}
"""Settings of a profile that calls nobody; a process that is begun for the next page would be counted as this one's."""
PAPERS = {"dark": 0, "light": 1}
LEAVE = """async () => {
  const isBusy = async () => document.querySelector("#screen") && !(await navigator.locks.query()).held.length;
  while (await isBusy()) await new Promise((done) => setTimeout(done, 20));
  return globalThis.violations ?? [];
}"""
"""Once a page has its stream, what broke its policy: to Firefox a script that is left while it comes is an error."""


def program() -> str | None:
    """The Firefox of this machine."""
    return os.environ.get("FIREFOX") or next(filter(None, map(shutil.which, PROGRAMS)), None)


class Firefox:
    """`with Firefox() as page`: a page of 1440 by 900 pixels; fails at its end if anything went wrong in it."""

    def __init__(self, paper: str = "light") -> None:
        self.paper = paper
        self.origin: tuple[str, str] | None = None
        self.wrong: list[str] = []
        self._asked = 0
        self._before: dict[str, np.ndarray] = {}

    def __enter__(self) -> Firefox:
        found = program()
        if found is None:
            raise SystemExit("no Firefox here; FIREFOX names one")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        profile = Path(self._folder.name)
        settings = QUIET | {"layout.css.prefers-color-scheme.content-override": PAPERS[self.paper]}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        self._process = subprocess.Popen(
            [found, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        listens, end = profile / "WebDriverBiDiServer.json", time.monotonic() + PATIENCE
        while not (listens.exists() and listens.read_text(encoding="utf-8").endswith("}")):
            if time.monotonic() > end or self._process.poll() is not None:
                raise TimeoutError("Firefox says nothing")
            time.sleep(0.1)
        port = json.loads(listens.read_text(encoding="utf-8"))["ws_port"]
        self._socket = connect(f"ws://127.0.0.1:{port}/session", max_size=None, ping_interval=None, proxy=None)
        self.version = self.send("session.new", capabilities={})["capabilities"]["browserVersion"]
        self.send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.send("script.addPreloadScript", functionDeclaration=f"() => {{ {WATCH} }}")
        self.context = self.send("browsingContext.getTree")["contexts"][0]["context"]
        self.sized(1440, 900)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wrong += self.evaluate(LEAVE)
            self._socket.close()
        finally:
            self._process.terminate()
            self._process.wait()
            self._folder.cleanup()
        assert kind is not None or not self.wrong, self.wrong

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """What Firefox answers to a command; what it tells meanwhile is looked at."""
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": params}))
        while True:
            given = json.loads(self._socket.recv(PATIENCE))
            if given["type"] == "event":
                self._told(given["method"], given["params"])
            elif given["id"] == self._asked:
                if given["type"] == "error":
                    raise RuntimeError(f"{method}: {given['message']}")
                result: dict[str, Any] = given["result"]
                return result

    def _told(self, event: str, about: dict[str, Any]) -> None:
        if event == "log.entryAdded" and about["level"] == "error":
            self.wrong.append(about["text"])
        elif event == "network.beforeRequestSent":
            there = urlsplit(about["request"]["url"])
            if there.scheme not in ("data", "blob", "about") and (there.scheme, there.netloc) != self.origin:
                self.wrong.append(f"asked for {about['request']['url']}")

    # -- the page ------------------------------------------------------------------------------------------------------

    def goto(self, url: str) -> None:
        """To an address; what is of another origin than the last one is foreign."""
        if self.origin:
            self.wrong += self.evaluate(LEAVE)
        self.origin = urlsplit(url)[:2]
        self.send("browsingContext.navigate", context=self.context, url=url, wait="complete")

    def evaluate(self, what: str, argument: Any = None) -> Any:
        """What an expression, or a function of the argument, gives in the page, once that is known."""
        asked = f"""async (argument) => {{
          const asked = ({what});
          const found = await (typeof asked === "function" ? asked(JSON.parse(argument)) : asked);
          return JSON.stringify(found) ?? "null";
        }}"""
        how = {"arguments": [{"type": "string", "value": json.dumps(argument)}], "awaitPromise": True}
        target = {"context": self.context}
        found = self.send("script.callFunction", functionDeclaration=asked, target=target, **how)
        if found["type"] == "exception":
            raise RuntimeError(f"{what}: {found['exceptionDetails']['text']}")
        return json.loads(found["result"]["value"])

    def wait(self, what: str, argument: Any = None) -> None:
        """Until that is true: the page looks by itself, which takes it less than being asked."""
        look = f"""async (argument) => {{
          for (;;) {{
            const asked = ({what});
            if (typeof asked === "function" ? asked(argument) : asked) return;
            await new Promise((done) => setTimeout(done, 20));
          }}
        }}"""
        self.evaluate(look, argument)

    def settled(self) -> None:
        """Until it shows what its address says, and has drawn it."""
        self.wait("document.querySelector('#screen[data-settled]') !== null")
        self.evaluate(FRAMES)

    def sized(self, width: int, height: int) -> None:
        """A window of so many pixels."""
        self.send("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})

    def press(self, *keys: str) -> None:
        """Keys, one after the other: letters, or what BiDi calls others."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._perform({"type": "key", "id": "keys", "actions": actions})

    def drag(self, places: Sequence[tuple[float, float]]) -> None:
        """The pointer from the first place to the last, at most one step a frame."""
        moves = [{"type": "pointerMove", "x": round(x), "y": round(y)} for x, y in places]
        self._perform(MOUSE | {"actions": [moves[0], {"type": "pointerDown", "button": 0}]})
        for move in moves[1:]:
            self._perform(MOUSE | {"actions": [move]})
            self.evaluate("new Promise(requestAnimationFrame)")
        self._perform(MOUSE | {"actions": [{"type": "pointerUp", "button": 0}]})

    def _perform(self, source: dict[str, Any]) -> None:
        self.send("input.performActions", context=self.context, actions=[source])

    def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        found = self.send("browsingContext.captureScreenshot", context=self.context)["data"]
        path.write_bytes(base64.b64decode(found))

    # -- what it takes -------------------------------------------------------------------------------------------------

    def cpu(self) -> np.ndarray:
        """Milliseconds since it was last asked: of all processes that show pages, and of their main threads."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
                if f"-parentPid {self._process.pid} " in words and words.endswith(" tab"):
                    fields = (path / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
                    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    main = int((path / "schedstat").read_text(encoding="utf-8").split()[0])
                    found[path.name] = np.array([1000 * ticks, main / 1e6])
        used = [now - self._before.get(one, 0) for one, now in found.items()]
        self._before = found
        return np.sum(used, axis=0)
