"""A crash, or a full disk, at each moment at which a run writes something: the folder resumes to the same bits."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedpareto.campaigns import grid, sweep
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import tallied
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from folders import assert_same_results, assert_whole, rows, status


class Crash(BaseException):
    """The machine is gone."""


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def spec() -> Spec:
    engine = {"threads": 1, "chunk": 8}
    faults = {"dropout": 0.2}
    # So many numbers that replies are coded: what they lose is state of the clients.
    problem = {"name": "convex", "dimension": 20}
    values = {"algorithm": "fedpref", "clients": 4, "rounds": 2, "seeds": 2, "codec": "int4-delta"}
    return Draft(values | {"problem": problem, "engine": engine, "faults": faults}).finish()


@pytest.fixture
def undisturbed(spec: Spec, tmp_path: Path) -> Path:
    start(spec, tmp_path / "undisturbed")
    return tmp_path / "undisturbed"


class Writes:
    """Counts the moments at which something is written; from the one chosen on, all of them fail."""

    def __init__(self, failing: int, trouble: Callable[[], BaseException]) -> None:
        self.count, self.failing, self.trouble = 0, failing, trouble

    def step(self) -> None:
        self.count += 1
        if self.count >= self.failing:
            raise self.trouble()

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        real_open, real_replace, real_sync = Path.open, os.replace, os.fsync

        def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode in ("a", "wb"):
                try:
                    self.step()
                except BaseException:
                    if mode == "a":  # The line was half written.
                        with real_open(path, "ab") as file:
                            file.write(b'{"seed":0,"rou')
                    raise
            return real_open(path, mode, *arguments, **options)

        def replaced(source: Path, target: Path) -> None:
            self.step()
            real_replace(source, target)
            if self.trouble is Crash:
                self.step()

        def synced(file: int) -> None:
            self.step()
            real_sync(file)

        patch.setattr(Path, "open", opened)
        patch.setattr(os, "replace", replaced)
        patch.setattr(os, "fsync", synced)


def disturbed_runs(
    spec: Spec, tmp_path: Path, trouble: Callable[[], BaseException], start: Callable[[Spec, Path], Any] = start
) -> Iterator[tuple[Path, Any]]:
    """Runs that fail at their first, second, … moment of writing, until one goes through."""
    for failing in itertools.count(1):
        folder, found = tmp_path / f"at-{failing}", None
        with pytest.MonkeyPatch.context() as patch:
            Writes(failing, trouble).patched(patch)
            if trouble is Crash:  # A machine that is gone cleans nothing up.
                patch.setattr(RunFolder, "discard", lambda self: None)
            try:
                start(spec, folder)
            except BaseException as problem:
                found = problem
        if found is None:
            return
        yield folder, found


def finish(spec: Spec, folder: Path) -> None:
    if (folder / "spec.yaml").exists():
        resume(folder)
    else:
        start(spec, folder)


@pytest.mark.takes_long
def test_a_crash_at_any_write_changes_no_bit(spec: Spec, undisturbed: Path, tmp_path: Path) -> None:
    moments = 0
    for folder, problem in disturbed_runs(spec, tmp_path, Crash):
        assert isinstance(problem, Crash)
        assert_whole(folder)
        finish(spec, folder)
        assert_same_results(undisturbed, folder)
        moments += 1
    assert moments >= 30


MISSION = {
    "problem": {"name": "convex", "dimension": 20},
    "algorithm": "fedavg",
    "rounds": 3,
    "hours": 8,
    "policy": {"kind": "buffered", "buffer": 2},
    "codec": "int8-delta",
    "devices": {"kind": "equal", "speed": 8e4, "compute_watts": 15, "radio_watts": 10},
    "engine": {"name": "mission", "shell": "4/2/1", "altitude": 900, "inclination": 99, "stations": ["svalbard"]}
    | {"loss": 0.05, "threads": 1, "chunk": 8},
}


@pytest.mark.takes_long
def test_a_mission_that_crashes_at_any_write_goes_on_with_what_is_in_the_air(tmp_path: Path) -> None:
    spec = Draft(MISSION).finish()
    start(spec, tmp_path / "undisturbed")
    assert rows(tmp_path / "undisturbed", "mission.jsonl")
    moments = 0
    for folder, problem in disturbed_runs(spec, tmp_path, Crash):
        assert isinstance(problem, Crash)
        finish(spec, folder)
        assert_same_results(tmp_path / "undisturbed", folder)
        assert rows(folder, "mission.jsonl") == rows(tmp_path / "undisturbed", "mission.jsonl")
        assert (folder / "mission.json").read_bytes() == (tmp_path / "undisturbed" / "mission.json").read_bytes()
        moments += 1
    assert moments > 30


@pytest.mark.takes_long
def test_a_sweep_that_crashes_at_any_write_has_all_runs_in_the_end(spec: Spec, tmp_path: Path) -> None:
    values = {"algorithm": "fedavg", "clients": 3, "rounds": 1, "engine": {"threads": 1, "chunk": 8}}
    plan = grid.plan([values | {"problem": "convex", "sweep": {"lr": [0.1, 0.2]}}])

    def swept(_: Spec, out: Path) -> None:
        tally = tallied("runs", len(plan), quiet=True)
        campaign = sweep.run(plan, out, 1, tally, lambda: False)
        assert not campaign.failed

    swept(spec, tmp_path / "undisturbed")
    moments = 0
    for folder, problem in disturbed_runs(spec, tmp_path, Crash, swept):
        assert isinstance(problem, Crash)
        for half_written in folder.rglob(".*.part"):
            half_written.unlink()  # This process lived on and noted the crash; a killed one would not.
        swept(spec, folder)
        for run in plan:
            assert_same_results(tmp_path / "undisturbed" / run.name, folder / run.name)
        assert (folder / "sweep.json").read_bytes() == (tmp_path / "undisturbed" / "sweep.json").read_bytes()
        moments += 1
    assert moments > 30


@pytest.mark.takes_long
def test_a_full_disk_at_any_write_is_one_clear_error_and_changes_no_bit(
    spec: Spec, undisturbed: Path, tmp_path: Path
) -> None:
    moments = 0
    for folder, problem in disturbed_runs(spec, tmp_path, disk_full):
        assert isinstance(problem, UserError), repr(problem)
        assert "No space left" in str(problem)
        finish(spec, folder)
        assert_same_results(undisturbed, folder)
        moments += 1
    assert moments > 20


@pytest.mark.takes_long
def test_a_resumed_run_that_crashes_at_any_write_can_be_resumed_again(
    spec: Spec, undisturbed: Path, tmp_path: Path
) -> None:
    for failing in itertools.count(1):
        folder = tmp_path / f"at-{failing}"
        with pytest.raises(Stopped, match="stopped after round 1"):
            start(spec, folder, stop=lambda: True)
        with pytest.MonkeyPatch.context() as patch:
            Writes(failing, Crash).patched(patch)
            try:
                resume(folder)
            except Crash:
                pass
            else:
                break
        resume(folder)
        assert_same_results(undisturbed, folder)
    assert failing > 15


def test_what_a_killed_process_left_half_written_is_removed(spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="stopped after round 1"):
        start(spec, tmp_path / "run", stop=lambda: True)
    (tmp_path / "run" / ".checkpoint.safetensors.part").write_bytes(b"half")
    resume(tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.part")) + list((tmp_path / "run").glob(".*.part"))
    assert status(tmp_path / "run")["status"] == "finished"
