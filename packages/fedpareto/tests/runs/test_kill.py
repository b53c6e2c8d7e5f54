"""kill -9 at a random moment, again and again: nothing is lost, nothing is read half-written, no bit changes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from folders import FIXED_CHOICES, assert_same_results, assert_whole, status
from processes import Commands, Python, run

KILLS = 4
"""For each algorithm."""
COMMON = ("--problem", "convex", "--clients", "6", "--rounds", "40", "--seeds", "2", *FIXED_CHOICES)
LATE = ("--set", "policy=buffered", "--set", "policy.buffer=2", "--set", "devices=lognormal")
FEW = ("--set", "secure_sum.threshold=0.5")  # So that the loss of two clients of six ends no run.
ALGORITHMS = {
    "fedpref": ("fedpref", *COMMON),
    "private state": ("local", *COMMON, "--participation", "0.5"),
    "work under way": ("ditto", *COMMON, *LATE, "--participation", "0.5"),
    "fine-tuned with faults": ("fedavg+ft", *COMMON, "--set", "dropout=0.3", "--set", "corrupt=0.1"),
    "secure sum": ("fedavg", *COMMON, "--set", "secure_sum=masked", *FEW, "--set", "dropout=0.02"),
    "lost by a codec": ("fedavg", *COMMON, "--set", "dimension=20", "--set", "codec=int4-delta"),
}


@pytest.mark.parametrize(
    "arguments",
    [
        ALGORITHMS["fedpref"],
        pytest.param(ALGORITHMS["work under way"], marks=pytest.mark.takes_long),
        pytest.param(ALGORITHMS["private state"], marks=pytest.mark.takes_long),
        pytest.param(ALGORITHMS["fine-tuned with faults"], marks=pytest.mark.takes_long),
        pytest.param(ALGORITHMS["secure sum"], marks=pytest.mark.takes_long),
    ],
    ids=["fedpref", "work under way", "private state", "fine-tuned with faults", "secure sum"],
)
def test_kills_at_any_moment_change_no_bit(arguments: tuple[str, ...], server: Commands, tmp_path: Path) -> None:
    undisturbed, log = tmp_path / "undisturbed", tmp_path / "log"
    assert server.run(["run", *arguments, "--out", undisturbed], log) == 0
    longest_wait = status(undisturbed)["seconds"] / (KILLS / 2)  # So that the last kill comes before the last round.
    draw = random.Random(str(arguments))
    folder, kills, in_training = tmp_path / "killed", 0, 0
    while kills < KILLS:
        begun = (folder / "spec.yaml").exists()
        process = server.start(["resume", folder] if begun else ["run", *arguments, "--out", folder], log)
        # The first kill may hit the time before the first round, the others hit the rounds.
        if kills:
            process.wait_for_text("kept in")
        time.sleep(draw.uniform(0, longest_wait))
        process.signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:  # It was finished: once more from the beginning.
            assert_same_results(undisturbed, folder)
            shutil.rmtree(folder)
            continue
        kills += 1
        in_training += "kept in" in log.read_text()
        if folder.exists():
            assert_whole(folder)
    if not (folder / "spec.yaml").exists():
        assert server.run(["run", *arguments, "--out", folder], log) == 0
    else:
        assert server.run(["resume", folder], log) == 0, log.read_text()
    assert_same_results(undisturbed, folder)
    print(f"{in_training} of {kills} kills landed during training")
    assert in_training >= KILLS - 1


@pytest.mark.takes_long
def test_the_installed_command_survives_a_kill(server: Commands, tmp_path: Path) -> None:
    arguments = ["local", *COMMON, "--rounds", "150"]
    undisturbed, folder, log = tmp_path / "undisturbed", tmp_path / "killed", tmp_path / "log"
    assert server.run(["run", *arguments, "--out", undisturbed], log) == 0
    command = str(Path(sys.executable).with_name("fedpareto"))
    killed = Python([command, "run", *arguments, "--out", folder], stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    assert "kept in" in killed.stderr.readline()
    killed.stderr.readline()  # A tenth of the rounds is over.
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert_whole(folder)
    last = run([command, "resume", folder])
    assert last.returncode == 0, last.stderr
    assert_same_results(undisturbed, folder)
