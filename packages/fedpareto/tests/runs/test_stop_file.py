"""A request to stop in a run's folder: obeyed as Ctrl-C is, by this run alone, once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fedpareto.campaigns import grid, sweep
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import FILE, RunStopped, StopFile, Stopped
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import tallied
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from folders import FIXED_CHOICES, assert_same_results, rows, status
from processes import Commands

ARGUMENTS = ("fedpref", "--problem", "convex", "--clients", "6", "--rounds", "40", "--seeds", "2", *FIXED_CHOICES)


def spec_of(rounds: int = 4) -> Spec:
    values = {"algorithm": "fedavg", "problem": "convex", "clients": 4, "rounds": rounds}
    return Draft(values | {"engine": {"threads": 1, "chunk": 4}}).finish()


def asking(folder: Path, after: int = 1) -> Callable[[], bool]:
    """For `stop`, which is called after each round: makes the request when so many are over, and itself says no."""
    left = [after]

    def stop() -> bool:
        left[0] -= 1
        if left[0] == 0:
            StopFile(folder).write()
        return False

    return stop


@pytest.mark.takes_long
def test_a_process_stops_after_the_round_it_is_in_and_the_run_resumes_to_the_same_bits(
    server: Commands, tmp_path: Path
) -> None:
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "with space"
    log, said = tmp_path / "log", tmp_path / "said"
    assert server.run(["run", *ARGUMENTS, "--out", undisturbed], log) == 0
    process = server.start(["run", *ARGUMENTS, "--out", folder], log)
    process.wait_for_text("round 4 of 40")
    assert status(folder)["process"]["pid"] == process.pid
    assert server.run(["stop", folder], said) == 0
    assert said.read_text().startswith(f"asked: {folder} stops after the current round (running, ")
    assert said.read_text().endswith(f"; continue it with: fedpareto resume '{folder}'\n")
    assert process.wait() == 130
    stopped = status(folder)
    assert (stopped["status"], "process" in stopped) == ("stopped", False)
    assert f"stopped after round {stopped['round']} of 40; continue with: fedpareto resume" in log.read_text()
    assert len(rows(folder)) == 2 * stopped["round"], "only whole rounds are in the record"
    assert not (folder / FILE).exists()
    assert server.run(["stop", folder], said) == 0
    assert said.read_text().startswith(f"no process is working on {folder} (stopped, {stopped['round']} rounds")
    assert server.run(["resume", folder], log) == 0
    assert_same_results(undisturbed, folder)
    assert server.run(["stop", folder, "--now"], said) == 0
    assert said.read_text() == f"{folder} is finished already; see it with: fedpareto show '{folder}'\n"


@pytest.mark.takes_long
def test_now_ends_a_round_in_its_middle(server: Commands, tmp_path: Path) -> None:
    folder, log, said = tmp_path / "run", tmp_path / "log", tmp_path / "said"
    endless = ("--set", "steps=3000000", "--set", "batch_size=1")
    process = server.start(["run", *ARGUMENTS, *endless, "--out", folder], log)
    process.wait_for_text("kept in")
    assert server.run(["stop", folder, "--now"], said) == 0
    assert process.wait() == 130
    assert status(folder)["message"] == "interrupted in round 1 of 40 rounds"
    assert f"interrupted in round 1 of 40 rounds; continue with: fedpareto resume {folder}" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not (folder / FILE).exists()


def test_a_killed_process_leaves_its_number_and_nobody_is_busy(server: Commands, tmp_path: Path) -> None:
    folder, log, said = tmp_path / "run", tmp_path / "log", tmp_path / "said"
    process = server.start(["run", *ARGUMENTS, "--rounds", "4000", "--out", folder], log)
    process.wait_for_text("kept in")
    assert RunFolder(folder).busy()
    process.signal(signal.SIGKILL)
    process.wait()
    assert status(folder)["process"]["pid"] == process.pid, "a killed process cannot take it back"
    assert not RunFolder(folder).busy()
    assert server.run(["stop", folder], said) == 0
    assert said.read_text().startswith(f"no process is working on {folder} (running, ")
    assert not (folder / FILE).exists()


def test_a_request_is_for_the_run_that_is_under_way(tmp_path: Path) -> None:
    """One that was left behind stops neither a new run nor a resumed one."""
    folder = tmp_path / "run"
    folder.mkdir()
    StopFile(folder).write()
    with pytest.raises(RunStopped, match="stopped after round 3 of 4"):
        start(spec_of(), folder, stop=asking(folder, after=2))
    StopFile(folder).write(now=True)
    assert resume(folder) is not None
    assert not (folder / FILE).exists()
    start(spec_of(), tmp_path / "undisturbed")
    assert_same_results(tmp_path / "undisturbed", folder)


def test_a_request_in_the_last_round_changes_nothing(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "run", stop=asking(tmp_path / "run", after=4))
    assert status(tmp_path / "run")["status"] == "finished"
    assert not (tmp_path / "run" / FILE).exists()


def test_one_run_of_a_sweep_is_stopped_and_the_others_go_on(server: Commands, tmp_path: Path) -> None:
    plan = grid.plan([{"problem": "convex", "clients": 4, "rounds": 3, "sweep": {"algorithm": ["fedavg", "local"]}}])
    first, second = (tmp_path / one.name for one in plan)
    campaign = sweep.run(plan, tmp_path, 1, tallied("runs", 2, quiet=True), asking(first, after=2))
    assert [run.status for run in campaign.runs] == ["stopped", "finished"]
    assert campaign.stopped[0].reason == "stopped after round 2 of 3"
    assert status(second)["status"] == "finished"
    again = sweep.run(plan, tmp_path, 1, tallied("runs", 2, quiet=True), lambda: False)
    assert [run.status for run in again.runs] == ["finished", "finished"]


def test_a_request_in_the_folder_of_a_sweep_stops_all_of_it(tmp_path: Path) -> None:
    plan = grid.plan([{"problem": "convex", "clients": 4, "rounds": 3, "sweep": {"algorithm": ["fedavg", "local"]}}])
    with pytest.raises(Stopped, match="stopped after 0 of 2 runs"):
        sweep.run(plan, tmp_path, 1, tallied("runs", 2, quiet=True), asking(tmp_path, after=2))
    assert status(tmp_path / plan[0].name)["status"] == "stopped"
    assert not (tmp_path / plan[1].name).exists()
    assert not (tmp_path / FILE).exists()


def test_what_is_no_run_is_told(server: Commands, tmp_path: Path) -> None:
    said = tmp_path / "said"
    for folder, words in (("nowhere", "there is no such folder"), (".", "it has no spec.yaml")):
        assert server.run(["stop", tmp_path / folder], said) == 2
        assert words in said.read_text()
    (tmp_path / "matrix.json").write_text("{}")
    assert server.run(["stop", tmp_path], said) == 0
    assert "no process is working on" in said.read_text()
    assert server.run(["stop", tmp_path, "--now"], said) == 2
    assert "--now is for single runs" in said.read_text()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        StopFile(tmp_path / "nowhere").write()
