"""These tests need the extra `flower`: without it they are left out, but in CI they fail."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

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


@pytest.fixture(scope="package")
def real(tmp_path_factory):
    """Real processes that are started once for many tests; see real_federation.Running.

    They poll each other even if nobody asks for anything: the tests that use them come last in this folder, and with
    the last of them they end.
    """
    from real_federation import running

    with pytest.MonkeyPatch.context() as patch:
        # The node processes find this folder's modules.
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with running(tmp_path_factory.mktemp("real") / "flower") as federation:
            yield federation
