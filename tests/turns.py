"""Which worker runs which tests, and when.

Tests with real processes wait for them most of the time; all others keep a core busy. Both kinds run at the same time:
every other worker takes tests that wait, and the rest take tests that compute, until there are no more of theirs.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from fedpareto.engines.memory import physical_memory

FLOWER = (
    "test_flower_adult.py",
    "test_flower_hostile.py",
    "test_flower_praffl.py",
    "test_flower_tap.py",
    "test_processes.py",
)
"""Files whose tests share a real federation of Flower."""
WAITING = (
    *FLOWER,
    "test_federation.py",
    "ray",
    "test_late_processes.py",
    "tutorial-nodes",
    "test_session_processes.py",
    "page",
    "cluster.md",
    "test_flower_engine.py",
    "test_on_ray.py",
    "test_operations.py",
    "test_gate.py",
    "test_parallel.py",
)
"""Folders, files and documents whose tests wait, the longest first."""
COMPUTING = (
    "test_documents.py",
    "test_conformance.py",
    "flower",
    "test_every_network.py",
    "test_kill.py",
    "test_crash.py",
    "test_six_objectives.py",
    "test_readers.py",
    "learners",
    "algorithms",
    "experiments",
    "papers",
)
"""Those that compute for longest: no worker is to be left alone with one in the end."""
LINE = (*WAITING, *COMPUTING)
ENOUGH = 2 * 2**30
"""Bytes for a worker and the processes of its tests."""


def words(nodeid: str) -> set[str]:
    """The folders and the file of a test, and the document that it is about."""
    file, _, test = nodeid.partition("::")
    return {*file.split("/"), *(re.split(r"[\[\]/]", test) if file.endswith("test_documents.py") else ())}


def place_in_line(item: pytest.Item) -> tuple[bool, int]:
    """Tests that share the real federation come first of all, one after the other."""
    names = words(item.nodeid)
    first = next((place for place, name in enumerate(LINE) if name in names), len(LINE))
    return "real" not in getattr(item, "fixturenames", ()), first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place_in_line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, because some of them wait; with two more, Ray and browsers were too late at times.

    Fewer where there is too little memory for so many.
    """
    cores = os.cpu_count() or 1
    return max(cores, min(cores + 1, physical_memory() // ENOUGH))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file goes to one worker as a whole, so its fixtures are made once; files on Ray, and FLOWER, share theirs.

    Tests of the documents have none, and take minutes together: each goes to whoever is free.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFixtures(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith("test_documents.py"):
                return nodeid
            if file.endswith(FLOWER):
                return FLOWER[0]
            return "ray" if "/ray/" in file else file

        def _assign_work_unit(self, node: Any) -> None:
            waits = self.nodes.index(node) % 2 == 0
            own = (scope for scope in self.workqueue if waits != words(scope).isdisjoint(WAITING))
            self.workqueue.move_to_end(next(own, next(iter(self.workqueue))), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return ByFixtures(config, log)
