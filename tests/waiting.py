"""Waiting in tests: for a condition, never for a time. A machine may be as busy as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds after which what has not happened counts as hanging; no test takes this for a measure of speed."""
PAUSE = 0.02


def until(condition: Callable[[], object], hint: Callable[[], str] = str) -> None:
    """Waits until the condition holds; if it never does, the hint says what was seen instead."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain: {hint()}"
        time.sleep(PAUSE)
