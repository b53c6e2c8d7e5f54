from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """A test that runs a server or a node in this process leaves the log as it was."""
    ours = logging.getLogger("fedpareto")
    level, handlers, propagate = ours.level, list(ours.handlers), ours.propagate
    yield
    ours.setLevel(level)
    ours.propagate = propagate
    for handler in set(ours.handlers) - set(handlers):
        ours.removeHandler(handler)
