from __future__ import annotations

import pytest

from processes import Commands


@pytest.fixture(scope="session")
def server() -> Commands:
    """Starts `fedpareto …` processes quickly."""
    return Commands()
