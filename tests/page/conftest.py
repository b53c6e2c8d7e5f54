"""Fixtures of the page's tests: one browser for all of them, servers for a file, pages that fail what goes wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import HOW, LONG, PageServer, Watched, program

from minutes import in_ci
from run_folders import write_run, write_run_at  # noqa: F401


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, without a window; it ends with this folder's tests, for its loop is in the way of others."""
    found = program()
    if found is None:
        if in_ci():
            pytest.fail(HOW)
        pytest.skip(HOW)
    from playwright.sync_api import sync_playwright

    is_root = sys.platform != "win32" and os.geteuid() == 0
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found,
            args=["--no-sandbox"] if is_root else [],
            env={**os.environ, "DISPLAY": ""},
            timeout=LONG,
        )
        yield launched
        launched.close()


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
