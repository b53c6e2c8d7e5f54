"""Two worker processes for every test; those of its own for one that asks."""

from __future__ import annotations

import pytest

from fedpareto.problems.morl import gym_pool
from fedpareto.problems.morl.gym_pool import close_pool


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(gym_pool, "cores", lambda: 2)


@pytest.fixture
def own_processes():
    """A pool of this test's own: nothing of earlier ones is left, and nothing is left to later ones."""
    close_pool()
    yield
    close_pool()
