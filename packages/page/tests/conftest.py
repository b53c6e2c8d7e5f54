"""Fixtures of the page's tests: one browser for all of them, servers for a file, pages that fail what goes wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import HOW, LONG, PageServer, Watched, program
from minutes import in_ci
from run_folders import write_run, write_run_at  # noqa: F401


class Launched:
    """The browser that runs at the moment, and how to end it."""

    browser: Any = None
    end = contextlib.ExitStack()


@pytest.fixture(scope="session")
def last_resort() -> Iterator[None]:
    """If the tests are broken off, the browser ends with them."""
    yield
    Launched.end.close()


@pytest.fixture(scope="module")
def browser(last_resort: None) -> Any:
    """Chromium, without a window, launched once for this folder's tests."""
    found = program()
    if found is None:
        if in_ci():
            pytest.fail(HOW)
        pytest.skip(HOW)
    if Launched.browser is None:
        from playwright.sync_api import sync_playwright

        playwright = Launched.end.enter_context(sync_playwright())
        is_root = sys.platform != "win32" and os.geteuid() == 0
        Launched.browser = playwright.chromium.launch(
            executable_path=found,
            args=["--no-sandbox"] if is_root else [],
            env={**os.environ, "DISPLAY": ""},
            timeout=LONG,
        )
        Launched.end.callback(setattr, Launched, "browser", None)
        Launched.end.callback(Launched.browser.close)
    return Launched.browser


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the browser with this folder's tests: its loop is in the way of others.

    A fixture of the scope "package" would last until the end of all tests: this folder is no package.
    """
    if nextitem is None or nextitem.path.parent != item.path.parent:
        Launched.end.close()


@pytest.fixture(scope="module")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., PageServer]]:
    """`page_server([folder], "--read-only")`: the real command, until the file's tests are over."""
    started: list[PageServer] = []

    def start(roots: list[Path | str], *options: str) -> PageServer:
        log = tmp_path_factory.mktemp("page") / "printed"
        started.append(PageServer(roots, options, log).start())
        return started[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield start
        for one in started:
            one.end()


@pytest.fixture
def opened(browser: Any) -> Iterator[Watched]:
    """`opened(server, "/fronts")`: a page with no error, no breach of its policy and no foreign request."""
    watched = Watched(browser)
    yield watched
    watched.close()
