"""The suite holds anywhere: it uses no network, and what needs a published data set, or a lot of time, says so.

The published data sets are not in the repository: FEDPARETO_DATA says where they lie. A test that reads one is marked
`needs_data("adult")`, or asks the fixture `published` for it. One that starts machines of Ray, waits for processes that
were killed, or learns until something converges is marked `takes_long`, and is run in CI.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

from fedpareto.problems.data import DataSet, data_folder, data_set
from minutes import (  # noqa: F401
    begin,
    in_ci,
    pytest_addoption,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)
from offline import NOWHERE
from processes import QUIET, Commands, Nursery
from turns import (  # noqa: F401
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from workers import pytest_xdist_setupnodes  # noqa: F401

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

# One thread each: there are more workers than cores, and tests start processes besides.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"), NOWHERE)
os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
os.environ |= QUIET
if find_spec("fedpareto_ray"):
    from fedpareto_ray.cluster import ALONE

    os.environ |= ALONE  # Ray is on this machine only, too.
gc.disable()  # While modules are imported and tests collected, nothing is garbage.


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_data(*names): reads these published data sets; skipped without them")
    config.addinivalue_line(
        "markers", "takes_long: starts machines, waits for the dead, learns for long; run with CI=true"
    )


# How long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("anywhere", deadline=None, max_examples=100 if in_ci() else 40)
hypothesis.settings.load_profile("anywhere")


def pytest_collection_finish() -> None:
    """The modules and the tests stay: the collector of garbage need not look at millions of objects again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Where tests run, their processes come from a fork of this one, which has imported everything by now."""
    if getattr(session, "items", None):
        Nursery.open()


# -- published data sets -------------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("takes_long") and not in_ci():
        pytest.skip("takes long; CI=true runs it")
    for mark in item.iter_markers("needs_data"):
        for name in mark.args:
            at_hand(name)


def at_hand(name: str) -> DataSet:
    """The published data set of that name; without its files the test is skipped by name, but in CI it fails."""
    dataset = data_set(name)
    if not all(dataset.paths()):
        message = f"the data set {name} is not in {data_folder()}; set FEDPARETO_DATA to where it lies"
        if in_ci():
            pytest.fail(message)
        pytest.skip(message)
    return dataset


@pytest.fixture(scope="session")
def published() -> Callable[[str], DataSet]:
    """`published("adult")` is that data set, or the end of the test."""
    return at_hand


# -- commands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def fedpareto(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    """`fedpareto ARGUMENTS` in an empty folder, through the entry point of the installed command."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def server() -> Commands:
    """Starts `fedpareto …` processes quickly."""
    return Commands()
