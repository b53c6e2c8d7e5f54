"""These tests need the extra `flower`: without it they are left out, but in CI they fail."""

from __future__ import annotations

import contextlib
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from processes import forked_children

if TYPE_CHECKING:
    from real_federation import Running

if find_spec("flwr") is None and os.environ.get("CI", "").lower() not in ("1", "true"):
    collect_ignore_glob = ["test_*.py"]
else:
    with warnings.catch_warnings():
        # What the libraries under Flower warn of on import is not ours to mend.
        warnings.simplefilter("ignore")
        import flwr.serverapp  # noqa: F401


@pytest.fixture(autouse=True)
def identity():
    """Flower keeps the run under way in a global, without which no message can be made."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Shared:
    """The federation that runs at the moment, and how to end it."""

    federation: Running | None = None
    end = contextlib.ExitStack()


@pytest.fixture(scope="session")
def last_resort():
    """If the tests are broken off, the federation ends with them."""
    yield
    Shared.end.close()


@pytest.fixture
def real(tmp_path_factory, last_resort):
    """Real processes that are started once for many tests; see real_federation.Running."""
    if Shared.federation is None:
        from real_federation import running

        patch = Shared.end.enter_context(pytest.MonkeyPatch.context())
        # The node processes find this folder's modules.
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forked_children(patch.setattr)
        Shared.federation = Shared.end.enter_context(running(tmp_path_factory.mktemp("real") / "flower"))
        Shared.end.callback(setattr, Shared, "federation", None)
    return Shared.federation


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem):
    """Ends the real processes after the last test that needs them: they poll each other, and take half a core.

    A fixture of the scope "package" would last until the end of all tests: this folder is no package.
    """
    if "real" not in getattr(nextitem, "fixturenames", ()):
        Shared.end.close()
