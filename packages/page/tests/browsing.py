"""A real browser and a real `fedpareto page` for tests, and what no test of the page may see."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from processes import PAGE, Command, Commands
from waiting import PATIENCE, until

PROGRAMS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
HOW = (
    "no browser for the page's tests: apt-get install chromium (or chromium-headless-shell) fonts-dejavu-core, "
    "or FEDPARETO_BROWSER=path of a Chromium"
)
LONG = 1000 * PATIENCE
"""Milliseconds after which what has not appeared on a page counts as missing."""
WATCH = """
globalThis.violations = [];
addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
"""Run in every page before its own scripts."""


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Pictures learn how wide they are with the first, and are drawn with the second."""


def patient(browser: Any, **options: Any) -> Any:
    """A browser of its own, in which nothing is missing only because the machine is busy."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    context.set_default_timeout(LONG)
    return context


def settled(page: Any) -> Any:
    """The page, once what it shows is what its address says, and all that was asked for by keys or pointer."""
    page.locator("#screen[data-settled]").wait_for(state="attached")
    page.evaluate(FRAMES)
    return page


def on_paper(page: Any, scheme: str) -> Any:
    """The page on "light" or "dark" paper: pictures are drawn anew when that changes."""
    is_other = page.evaluate("(scheme) => !matchMedia(`(prefers-color-scheme: ${scheme})`).matches", scheme)
    if is_other:
        page.evaluate("document.getElementById('screen').dataset.before = ''")
        page.emulate_media(color_scheme=scheme)
        page.locator("#screen:not([data-before])").wait_for(state="attached")
    return settled(page)


def apart(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives, in a thread of its own: the browser's loop may be at work in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def program() -> str | None:
    """The browser of this machine."""
    return os.environ.get("FEDPARETO_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)


@dataclass
class PageServer:
    """A `fedpareto page` process."""

    roots: Sequence[Path | str]
    options: Sequence[str]
    log: Path
    """What it prints."""
    process: Command = field(init=False)
    url: str = ""
    """With the token."""

    def start(self) -> PageServer:
        """Starts it, and waits for its address."""
        port = () if "--port" in self.options else ("--port", "0")
        arguments = ["page", *map(str, self.roots), "--no-browser", *port, *self.options]
        self.process = Commands(PAGE).start(arguments, self.log)
        assert self.process.wait_for_text("token="), self.log.read_text(encoding="utf-8")
        until(lambda: self.log.read_text(encoding="utf-8").endswith("\n"))
        (self.url,) = [word for word in self.log.read_text(encoding="utf-8").split() if "token=" in word]
        return self

    @property
    def base(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def at(self, path: str) -> str:
        """The address of a screen, such as /fronts?runs=…, with the token."""
        return f"{self.base}{path}{'&' if '?' in path else '?'}token={self.token}"

    @property
    def cookies(self) -> dict[str, str]:
        """With which requests are answered."""
        return {f"fedpareto-{urlsplit(self.url).port}": self.token}

    def ids(self) -> dict[str, str]:
        """By the name of its folder, each run's id."""
        found = httpx.get(f"{self.base}/api/runs", cookies=self.cookies, timeout=None, trust_env=False).json()
        return {entry["name"]: entry["id"] for entry in found["runs"]}

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ends it; its exit code."""
        if self.process.poll() is None:
            self.process.signal(number)
        return self.process.wait()


@dataclass
class Watched:
    """Pages that are open in a test, and what went wrong in them."""

    browser: Any
    wrong: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def __call__(
        self,
        where: PageServer | str,
        path: str = "/",
        *,
        beside: Any = None,
        before: Callable[[Any], object] = id,
        may: Sequence[str] = (),
        **options: Any,
    ) -> Any:
        """A page at a server's path, or at an address: in a browser of its own, or in that of another page.

        `before` is called with the page when nothing is on it yet. What the browser's console says in errors fails the
        test, unless it has one of the words in `may`.
        """
        if beside is None:
            context = patient(self.browser, **options)
            context.add_init_script(WATCH)
            self.contexts.append(context)
        else:
            context = beside.context
        page = context.new_page()
        url = where if isinstance(where, str) else where.at(path)
        own = urlsplit(url)

        def asked(request: Any) -> None:
            there = urlsplit(request.url)
            is_own = (there.scheme, there.netloc) == (own.scheme, own.netloc)
            if own.scheme == "file":
                is_own = there.path == own.path
            if not is_own and there.scheme not in ("data", "blob"):
                self.wrong.append(f"asked for {request.url}")

        def told(message: Any) -> None:
            if message.type == "error" and not any(word in message.text for word in may):
                self.wrong.append(f"{message.text} ({message.location.get('url', '')})")

        page.on("request", asked)
        page.on("console", told)
        page.on("pageerror", lambda problem: self.wrong.append(str(problem)))
        before(page)
        page.goto(url)
        return page

    def close(self) -> None:
        """Closes all pages; fails if anything went wrong."""
        for context in self.contexts:
            for page in context.pages:
                if not page.is_closed():
                    self.wrong += page.evaluate("globalThis.violations ?? []")
            context.close()
        assert self.wrong == []
