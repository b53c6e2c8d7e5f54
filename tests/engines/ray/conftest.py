"""One Ray and one crew of workers for all tests: starting them takes seconds."""

from __future__ import annotations

import pytest
from on_ray import Crews


@pytest.fixture(scope="session")
def crews():
    """`crews(2)` are two workers, the same for every test that wants two."""
    with Crews() as found:
        yield found
