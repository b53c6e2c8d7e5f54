"""Ctrl-C and SIGTERM, in real processes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from fedpareto.record.checkpoint import Checkpoint
from folders import FIXED_CHOICES, assert_same_results, rows, status
from processes import Commands

ARGUMENTS = ("fedpref", "--problem", "convex", "--clients", "6", "--rounds", "40", "--seeds", "2", *FIXED_CHOICES)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM", marks=pytest.mark.takes_long),
    ],
)
def test_a_signal_stops_after_the_round_and_the_run_resumes_to_the_same_bits(
    number: signal.Signals, code: int, server: Commands, tmp_path: Path
) -> None:
    undisturbed, folder, log = tmp_path / "undisturbed", tmp_path / "with space", tmp_path / "log"
    assert server.run(["run", *ARGUMENTS, "--out", undisturbed], log) == 0
    process = server.start(["run", *ARGUMENTS, "--out", folder], log)
    process.wait_for_text("round 4 of 40")
    process.signal(number)
    assert process.wait() == code
    stopped = status(folder)
    assert stopped["status"] == "stopped"
    assert 4 <= stopped["round"] < 40
    assert (
        f"stopped after round {stopped['round']} of 40; continue with: fedpareto resume '{folder}'" in log.read_text()
    )
    assert "Traceback" not in log.read_text()
    assert len(rows(folder)) == 2 * stopped["round"], "only whole rounds are in the record"
    assert server.run(["resume", folder], log) == 0
    assert f"going on after round {stopped['round']}" in log.read_text(), "no round is done twice"
    assert_same_results(undisturbed, folder)


@pytest.mark.takes_long
def test_a_second_ctrl_c_ends_the_run_in_the_middle_of_a_round(server: Commands, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    endless = ("--set", "steps=3000000", "--set", "batch_size=1")
    process = server.start(["run", *ARGUMENTS, *endless, "--out", folder], log)
    process.wait_for_text("kept in")
    process.signal(signal.SIGINT)
    process.wait_for_text("stopping after this round")
    assert process.poll() is None
    process.signal(signal.SIGINT)
    assert process.wait() == 130
    assert status(folder) | {"seconds": 0} == {
        "status": "stopped",
        "round": 0,
        "seconds": 0,
        "message": "interrupted in round 1 of 40 rounds",
    }
    assert f"interrupted; continue with: fedpareto resume {folder}" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert Checkpoint.load(folder / "checkpoint.safetensors").values["metrics"] == 0


def test_two_processes_cannot_work_on_the_same_folder(server: Commands, tmp_path: Path) -> None:
    folder, log, other_log = tmp_path / "run", tmp_path / "log", tmp_path / "other"
    long = ("--rounds", "4000")
    process = server.start(["run", *ARGUMENTS, *long, "--out", folder], log)
    process.wait_for_text("kept in")
    for arguments in (["resume", folder], ["run", *ARGUMENTS, "--out", folder]):
        assert server.run(arguments, other_log) == 2
        assert other_log.read_text() == f"Error: another process is working on {folder}\n"
    assert server.run(["show", folder], other_log) == 0
    assert "no process is working" not in other_log.read_text()
    process.signal(signal.SIGKILL)
    process.wait()
    assert status(folder)["status"] == "running", "a killed process cannot tell"
    assert server.run(["show", folder], other_log) == 0
    assert f"no process is working on this run; continue it with: fedpareto resume {folder}" in other_log.read_text()


def test_progress_in_a_log_file_is_a_line_for_every_tenth(server: Commands, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    assert server.run(["run", "fedavg", *ARGUMENTS[1:], "--set", "dropout=0.2", "--out", folder], log) == 0
    first, *lines, value, utility, _, where = log.read_text().splitlines()
    assert first == f"fedavg on convex, 6 clients, 40 rounds, 2 seeds; kept in {folder}"
    assert [line.partition(",")[0] for line in lines] == [
        f"fedavg on convex: round {done} of 40" for done in range(4, 41, 4)
    ]
    shape = (
        r"fedavg on convex: round \d+ of 40, hypervolume \d\.\d{4} after round 3, \d+ without reply, \d+:\d\d:\d\d left"
    )
    assert re.fullmatch(shape, lines[0])
    assert re.fullmatch(r"hypervolume \d\.\d{4} ± \d\.\d{4} over 2 seeds \(95 % interval .* to .*\)", value)
    assert utility.startswith("utility under clients' own preferences ")
    assert where == f"run: {folder}   see it: fedpareto show {folder}"
