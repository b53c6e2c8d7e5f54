"""Which worker runs which tests, and when."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fedpareto.engines.memory import physical_memory

SLOW = (
    "flower",
    "ray",
    "test_federation.py",
    "test_documents.py",
    "page",
    "test_session_processes.py",
    "test_conformance.py",
    "campaigns",
    "test_kill.py",
    "test_flower_engine.py",
    "serve",
    "deploy",
    "learners",
)
"""Folders and files that take minutes, or wait for processes most of the time. They begin first: no worker is left
alone with one in the end, and while they wait the others learn.
"""
A_WORKER = 1_200_000_000
"""Bytes that a worker takes, and what it starts."""


def place_in_line(item: pytest.Item) -> tuple[int, bool]:
    """Slow files first; in a folder, tests that share real processes come last, one after the other."""
    places = [place for place, name in enumerate(SLOW) if name in item.path.parts]
    return min(places, default=len(SLOW)), "real" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place_in_line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three more than there are cores, if there is room: real federations and pages wait half of their time."""
    return max(1, min((os.cpu_count() or 1) + 3, physical_memory() // A_WORKER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file goes to one worker as a whole, so its fixtures are made once; tests on Flower, and on Ray, share theirs.

    Tests of the documents have none, and take minutes together: each goes to whoever is free.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFixtures(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith("test_documents.py"):
                return nodeid
            return next((folder for folder in ("flower/tests/engine", "ray/tests") if f"/{folder}/" in file), file)

    config.option.loadscopereorder = False
    return ByFixtures(config, log)
