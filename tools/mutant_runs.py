"""Runs tests in forks: once in the code as it is, for the map of what each executes, and then in changed code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest

PARTS = {"test_conformance.py": 8}
"""Files that take minutes: so many processes share their tests."""
WALL = 300
"""Seconds by the clock, beyond its CPU time, after which something waits for ever."""
OF_A_FILE = 900.0
"""CPU seconds in which every test of a file is run once."""
MEMORY = 24 * 2**30


Places = Mapping[Path, frozenset[int] | None]
"""Lines of files; None: any line, as what is meant runs on import."""


@dataclass
class Map:
    """The CPU seconds of every test that passes, and the lines of each source file that it executes."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    """Modules of other packages that the tests import."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tests and files that say nothing here, each with the reason."""
    sources: list[str] = field(default_factory=list)
    """The files whose lines are looked at."""

    def tests(self, places: Places) -> list[str]:
        """Those that execute one of these lines."""
        found = [
            test
            for test, files in self.lines.items()
            if any(
                (lines := files.get(str(path))) and (within is None or not within.isdisjoint(lines))
                for path, within in places.items()
            )
        ]
        return sorted(found, key=lambda test: self.seconds[test])


# -- in the fork ---------------------------------------------------------------------------------------------------


class Recorder:
    """A plugin of pytest: what each test executes, and what it takes."""

    def __init__(self, sources: Iterable[Path]) -> None:
        self.sources = {str(path) for path in sources}
        self.seen: dict[str, set[int]] = defaultdict(set)
        self.map = Map()
        self.began = 0.0

    def trace(self, frame: Any, event: str, argument: object) -> Any:
        """A tracer of lines for calls in the watched files, None for all others."""
        name = frame.f_code.co_filename
        if name not in self.sources:
            return None
        seen = self.seen[name]
        seen.add(frame.f_lineno)

        def line(frame: Any, event: str, argument: object) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line

    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self.seen.clear()
        self.began = _spent()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of it is over."""
        if report.outcome != "passed":
            self.map.seconds[report.nodeid] = math.inf
            self.map.left_out[report.nodeid] = _why(report)
        elif report.when == "teardown":
            sys.settrace(None)
            self.map.seconds.setdefault(report.nodeid, _spent() - self.began)
            self.map.lines[report.nodeid] = {name: sorted(lines) for name, lines in self.seen.items()}

    def pytest_collectreport(self, report: Any) -> None:
        """A file was read."""
        if report.outcome != "passed":
            self.map.left_out[report.nodeid] = _why(report)


def _why(report: Any) -> str:
    """The last line of what it says."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return f"{report.outcome}: {text.strip().splitlines()[-1] if text.strip() else ''}"


class Order:
    """A plugin of pytest: these tests only, in this order, and no search for smaller examples."""

    def __init__(self, tests: Sequence[str] = (), part: int = 0, of: int = 1) -> None:
        self.turn = {test: turn for turn, test in enumerate(tests)}
        self.part, self.of = part, of
        """The part of the tests, of so many, that neighbours in a file make."""

    def pytest_collection(self) -> None:
        """The conftest has been read, and no test file yet."""
        settings, phase = hypothesis.settings, hypothesis.Phase
        phases = (phase.explicit, phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, derandomize=True, database=None, deadline=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """The quickest first."""
        if self.turn:
            items[:] = [item for item in items if item.nodeid in self.turn]
            items.sort(key=lambda item: self.turn[item.nodeid])
        first, end = (len(items) * place // self.of for place in (self.part, self.part + 1))
        items[:] = items[first:end]


def _spent() -> float:
    return sum(os.times()[:4])


def run_tests(root: Path, files: Sequence[str], plugins: Sequence[object], first_failure_ends: bool) -> int:
    """The exit code of pytest, which prints nothing."""
    os.chdir(root)
    base = tempfile.mkdtemp()
    words = [*files, "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--basetemp", f"{base}/tests"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", *(["-x"] if first_failure_ends else [])]
    try:
        return int(pytest.main(words, plugins=list(plugins)))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def compile_instead(changed: Mapping[Path, Callable[[], Any]]) -> None:
    """From now on the modules in these files are made of something else."""
    whole = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if (make := changed.get(Path(self.path))) is None:
            return whole(self, fullname)
        return compile(make(), str(self.path), "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


# -- forks ---------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """What a fork does, what is done with its exit code, and the CPU seconds that it may take."""

    work: Callable[[], int]
    done: Callable[[int], Iterable[Job]]
    """Gets minus the signal's number where one ended it; gives what is to be done next."""
    seconds: float


def forks(jobs: Iterable[Job], many: int, seconds: float = math.inf) -> None:
    """Does all of them, so many at a time; after so many seconds by the clock it ends what is not done."""
    waiting, running, end = list(jobs)[::-1], dict[int, Job](), time.monotonic() + seconds
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < many:
                job = waiting.pop()
                pid = os.fork()
                if not pid:
                    _child(job)
                running[pid] = job
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(0.02)
            elif pid in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)  # What the tests left behind.
                waiting += running.pop(pid).done(os.waitstatus_to_exitcode(status))
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    if waiting or running:
        print(f"time is up: {len(waiting)} were not begun, {len(running)} under way", flush=True)


def _child(job: Job) -> None:
    code = 3
    try:
        os.setpgid(0, 0)
        limit = math.ceil(job.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(limit + WALL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        code = job.work()
    finally:
        os._exit(code)


# -- the map -------------------------------------------------------------------------------------------------------


def measured(root: Path, tests: Sequence[str], sources: Sequence[Path], jobs: int, seconds: float = math.inf) -> Map:
    """Runs every test file once in the code as it is, within so many seconds by the clock."""
    folder = Path(tempfile.mkdtemp())
    files = sorted(_in_parts({found for name in tests for found in _test_files(root / name)}))
    whole = Map(sources=[str(path) for path in sources])

    def job(number: int, path: Path, part: int, of: int) -> Job:
        file = str(path.relative_to(root))
        name = file if of == 1 else f"{file}, part {part + 1} of {of}"

        def work() -> int:
            recorder = Recorder(sources)
            code = run_tests(root, [file], [recorder, Order((), part, of)], first_failure_ends=False)
            modules = [name for name, module in list(sys.modules.items()) if _is_of_others(module, root)]
            (folder / str(number)).write_text(json.dumps(vars(recorder.map) | {"modules": modules}))
            return code

        def done(code: int) -> Iterable[Job]:
            del whole.left_out[name]
            if not (folder / str(number)).exists():
                whole.left_out[name] = f"nothing is known of its tests, exit code {code}"
                return ()
            part = Map(**json.loads((folder / str(number)).read_text()))
            passed = [test for test in part.lines if part.seconds[test] < math.inf]
            whole.seconds.update({test: part.seconds[test] for test in passed})
            whole.lines.update({test: part.lines[test] for test in passed})
            whole.left_out.update(part.left_out)
            whole.modules = sorted({*whole.modules, *part.modules})
            return ()

        whole.left_out[name] = "it was not done in time"
        return Job(work, done, OF_A_FILE)

    forks([job(number, *one) for number, (*_, one) in enumerate(files)], jobs, seconds)
    shutil.rmtree(folder, ignore_errors=True)
    return whole


def _in_parts(files: Iterable[Path]) -> Iterator[tuple[bool, int, tuple[Path, int, int]]]:
    """Each file, or its parts: first those that take long, then the large ones, so that nobody waits for one."""
    for path in files:
        of = PARTS.get(path.name, 1)
        yield from ((of == 1, -path.stat().st_size, (path, part, of)) for part in range(of))


def _test_files(path: Path) -> Iterator[Path]:
    yield from path.rglob("test_*.py") if path.is_dir() else [path]


def _is_of_others(module: Any, root: Path) -> bool:
    name = getattr(module, "__file__", None) or ""
    return "site-packages" in name and not module.__name__.startswith(("_pytest", "pytest", "xdist", "fedpareto"))
