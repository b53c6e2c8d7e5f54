"""One Ray and one crew of workers for the tests of a file: starting them takes seconds, and idle ones take time too."""

from __future__ import annotations

import pytest

from on_ray import Crews


@pytest.fixture(scope="module")
def crews():
    """`crews(2)` are two workers, the same for every test that wants two."""
    with Crews() as found:
        yield found
