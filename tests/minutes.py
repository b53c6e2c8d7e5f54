"""`pytest --minutes`: what each test file takes, in minutes by the clock and of the processor.

On a busy machine compare the latter. It counts a test's own process, and the processes that it waited for.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest


class Meter:
    """What this process had spent when the last part of a test was over."""

    spent = 0.0


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def in_ci() -> bool:
    """Whether nothing may be left out."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", action="store_true", help="say how many minutes each test file takes")


def begin() -> None:
    """What was spent before the first test is no test's."""
    Meter.spent = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Every part of a test reports what was spent since the part before it."""
    report = yield
    before, Meter.spent = Meter.spent, processor_seconds()
    report.processor = Meter.spent - before
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--minutes"):
        return
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                for column, seconds in enumerate((report.duration, report.processor)):
                    files[report.nodeid.partition("::")[0]][column] += seconds / 60
    terminalreporter.section("minutes by file: by the clock, of the processor")
    for name, (clock, processor) in sorted(files.items(), key=lambda entry: -entry[1][0]):
        terminalreporter.line(f"{clock:6.2f} {processor:6.2f}  {name}")
    clock, processor = (sum(columns[number] for columns in files.values()) for number in (0, 1))
    terminalreporter.line(f"{clock:6.2f} {processor:6.2f}  together")
