from __future__ import annotations

from collections.abc import Iterator

import pytest

from processes import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Starts `fedpareto …` processes quickly."""
    started = ForkServer()
    yield started
    started.close()
