"""Every mistake is one clear line on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpareto.config.interrupts import Stopped
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft

QUICK = ("--problem", "convex", "--clients", "4", "--rounds", "3", "--set", "threads=1", "--set", "chunk=4")


def check(answer: Any, words: str) -> None:
    assert answer.code == 2, answer
    assert answer.err.startswith("Error: "), answer.err
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err.endswith("\n")
    assert "Traceback" not in answer.err
    assert words in answer.err, answer.err
    assert answer.out == ""


LONG = "n" * 300
"""A name that is too long for a file."""
MISTAKES: list[tuple[list[str], str]] = [
    # Names.
    (["run", "fedprf"], "unknown algorithm 'fedprf'; did you mean 'fedpref'?"),
    (["run", "fedprf+ft"], "unknown algorithm 'fedprf+ft'; did you mean 'fedpref+ft'?"),
    (["run", "zzzzzz"], "unknown algorithm 'zzzzzz'; known: "),
    (["run", "fedpref", "--problem", "synthetik"], "unknown problem 'synthetik'; did you mean 'synthetic'?"),
    (["run", "--problem", "table", "--quiet"], "the problem 'table' needs file"),
    (["run", "--engine", "lokal"], "unknown engine 'lokal'; did you mean 'local'?"),
    (["runn", "fedpref"], "unknown command 'runn'; did you mean 'run'?"),
    (["run", "--cliens", "3"], "--clients"),
    (["run", "fedpref", "fedavg"], "unexpected extra argument"),
    (["algorithms", "fedprf"], "unknown algorithm 'fedprf'; did you mean 'fedpref'?"),
    (["problems", "convx"], "unknown problem 'convx'; did you mean 'convex'?"),
    # Names that no file system takes, and files that it does not give.
    *(([*words, LONG], "File name too long") for words in (["run", *QUICK, "--out"], ["run", "--spec"], ["sweep"])),
    *(([word, LONG], LONG) for word in ("show", "resume", "compare", "serve", "audit", "matrix", "tune", "stop")),
    *((["space", "look", LONG], LONG), (["server", "status", LONG], LONG), (["node", "status", LONG], LONG)),
    (["server", "init", "--out", LONG], ""),
    (["predict", LONG, "--input", "a.csv", "--preference", "0.5,0.5"], LONG),
    *(([word, "/proc/self/mem"], "/proc/self/mem") for word in ("show", "resume", "serve", "compare", "tune", "sweep")),
    (["predict", "/proc/self/mem", "--input", "/proc/self/mem", "--preference", "0.5,0.5"], "/proc/self/mem"),
    (["run", "--set", "seeds=" + "9" * 4000], "a whole number with so many digits is too large"),
    (["run", "--set", "clients=" + "9" * 4000], "a whole number with so many digits is too large"),
    (["run", "--set", "lr=0x" + "f" * 9000], "a whole number with so many digits is too large"),
    (["run", "--set", "lr=" + "-" * 100_000 + "1"], "it should be a number"),
    (["run", "--problem", "table", "--set", "file='a\\0b'"], r"the text 'a\0b' holds a null character"),
    # --set.
    (["run", "--set", "lrr=1"], "--set lrr=1: unknown parameter 'lrr'; did you mean 'lr'?"),
    (["run", "--set", "learner.lrr=1"], "unknown parameter of learner 'lrr'; did you mean 'lr'?"),
    (["run", "--set", "lerner.lr=1"], "unknown section in --set lerner.lr=1: 'lerner'; did you mean 'learner'?"),
    (["run", "--set", "lr"], "--set lr: write key=value"),
    (["run", "--set", "=1"], "--set =1: write key=value"),
    (["run", "--set", "lr=fast"], "--set lr=fast: learner: lr is 'fast'; it should be a number"),
    (["run", "--set", "lr=-1"], "--set lr=-1: lr is -1; it is above 0"),
    (["run", "--set", "patience=0"], "--set patience=0: patience is 0; it is at least 1"),
    (["run", "--problem", "adult", "--set", "goals=acuracy"], "--set goals=acuracy: unknown goal 'acuracy'; did you"),
    (["run", "--set", "threshold_in=meters"], "unknown value of algorithm fedpref: threshold_in 'meters'"),
    (["run", "--set", "attack=bais"], "--set attack=bais: unknown value of attack: kind 'bais'; did you mean 'bias'?"),
    (["run", "--set", "share=0.3"], "--set share=0.3: unknown parameter 'share'; did you mean 'attack.share'?"),
    (
        ["run", "--set", "defence.rule=confidence"],
        "confidence does not fit fedpref: who is blocked does not reply, and",
    ),
    (["run", "--engine", "flower-sim", "--set", "attack=bias"], "bias is simulated by the engine local only, not by"),
    (["run", "--set", "dropout=2"], "dropout is 2; it is at least 0 and at most 1"),
    (["run", "--set", "memory=4 bananas"], "memory is '4 bananas'; write a number with a unit, such as 4GB"),
    (["run", "--set", "threads=-1"], "threads is -1; it is at least 0 and at most 1,024"),
    (["run", "--set", "chunk=-1"], "chunk is -1; it is at least 0"),
    (["run", "--set", "learningrate=1"], "unknown parameter 'learningrate'; did you mean 'lr'?"),
    (
        ["run", "fedavg", "--set", "attack=bias", "--set", "attack.clients=42"],
        "--set attack.clients=42: attack: clients",
    ),
    (["run", "fedavg", "--set", "defence=krum", "--set", "defence.attackers=5"], "--set defence.attackers=5: defence"),
    (
        ["run", "fedavg", "--set", "defence=median", "--set", "defence.norm=3"],
        "--set defence.norm=3: defence: norm is for the rule clip, not for median",
    ),
    (
        ["run", "fedavg", "--set", "defence=clip", "--set", "defence.attackers=3"],
        "attackers is for the rule trimmed-mean or krum or multi-krum, not for clip",
    ),
    # Pairs that cannot work: before anything is read, measured or written.
    (
        ["run", "afl", "--problem", "deep-sea-treasure"],
        "afl needs a problem with losses on rows; DQN on 'deep-",
    ),
    (["run", "fedfew+ft", "--problem", "minecart-deterministic"], "fedfew needs a problem with losses on rows"),
    (["run", "fedavg+safe", "--problem", "deep-sea-treasure"], "fedavg+safe needs a problem with losses on rows; DQN"),
    (["run", "mofld+safe"], "+safe does not fit mofld: its solutions are the server's own, and belong to no client"),
    (["run", "heterofl+safe"], "+safe does not fit heterofl: its clients train networks of different widths"),
    (["run", "fedavgg+safe"], "unknown algorithm 'fedavgg+safe'; did you mean 'fedavg+safe'?"),
    (["run", "fairfed", "--problem", "convex"], "fairfed needs a problem that compares groups of people"),
    # Your own.
    (["run", "own.py"], "'own.py' is not the name of an algorithm; run your own from Python"),
    (["run", "own:SlowMo"], "or name it by an entry point of your package: see docs/develop/add-an-algorithm.md"),
    (["run", "--label", "x1"], "--label x1 names a column of your own data; it goes with --csv FILE"),
    # Numbers.
    (["run", "--clients", "0"], "clients is 0; it is at least 1 and at most 10,000,000"),
    (["run", "--clients", "-3"], "clients is -3; it is at least 1 and at most 10,000,000"),
    (["run", "--clients", "many"], "Invalid value for '--clients'"),
    (["run", "--clients", "2.5"], "Invalid value for '--clients'"),
    (["run", "--clients"], "'--clients' requires an argument"),
    (["run", "--rounds", "0"], "rounds is 0; it is at least 1 and at most 1,000,000,000"),
    (["run", "--seeds", "0"], "seeds is 0; at least 1 is needed"),
    (["run", "--seeds", "-2"], "seeds is -2; at least 1 is needed"),
    (["run", "--seeds", "many"], "seeds is 'many'; write how many, such as 3, or which, such as 4,7"),
    (["run", "--seeds", "1,1"], "seeds is [1, 1]; each seed may be listed once"),
    (["run", "--seeds", "1,-1"], "seeds is [1, -1]; a seed is not negative"),
    (["run", "--seeds", "1.5"], "seeds is '1.5'; write how many"),
    (["run", "--seeds", ""], "seeds is ''; write how many"),
    (["run", "--participation", "0"], "participation is 0; it is a share above 0 and at most 1"),
    (["run", "--participation", "2"], "participation is 2; it is a share above 0 and at most 1"),
    (["run", "--participation", "nan"], "participation is nan; it is a share above 0 and at most 1"),
    (["run", "--quorum", "-1"], "quorum is -1; it is a share below 1 or a whole number of clients"),
    (["run", "--quorum", "nan"], "quorum is nan; it is a share below 1 or a whole number of clients"),
    (["run", "--quorum", "20"], "quorum is 20, but there are only 10 clients"),
    (["run", "--log-to", "wandb"], "cannot be logged to 'wandb'; it is mlflow or tensorboard"),
    (["demo", "--seeds", "0"], "seeds is 0; at least 1 is needed"),
    # Preferences.
    (["run", "--preferences", "-0.5,1.5"], "weight 0 is -0.5; weights cannot be negative"),
    (["run", "--preferences", "0.5,0.6"], "weights sum to 1.1, not 1"),
    (["run", "--preferences", "0,0"], "weights sum to 0, not 1"),
    (["run", "--preferences", "0.5,0.3,0.2"], "3 weights instead of 2"),
    (["run", "--preferences", "nan,1"], "weight 0 is nan, not a finite number"),
    (["run", "--preferences", "0.5,x"], "'x' is not a number"),
    (["run", "--preferences", "0.5,0.5;0.4,0.6"], "got 2 preferences, but there are 10 clients"),
    (["run", "--preferences", "dirichelt"], "unknown preference distribution 'dirichelt'; did you mean 'dirichlet'?"),
    (["run", "--preferences", "groups:5,6"], "the groups hold 11 clients, but there are 10"),
    # Devices.
    (["run", *QUICK, "--set", "device=nonsense", "--out", "r"], "device is 'nonsense'"),
    (["run", *QUICK, "--set", "device=cuda", "--out", "r"], "this machine has no CUDA device that torch can use"),
    (
        ["run", *QUICK, "--set", "memory=1B", "--out", "r"],
        "one client needs about 1KB of working memory, the budget is 1B",
    ),
    (["run", *QUICK, "--set", "rows=1000000000000000", "--out", "r"], "not enough memory (Unable to allocate "),
    (
        ["run", "--problem", "deep-sea-treasure", "--set", "buffer_size=100000000000000", "--out", "r"],
        "one client needs about 8940697GB of working memory, this machine has ",
    ),
    (
        ["run", "--problem", "deep-sea-treasure", "--set", "batch_size=1000000000000", "--out", "r"],
        "; smaller batches, buffers or networks would do",
    ),
    # Files and folders.
    (["run", "mine.yaml"], "'mine.yaml' is a file, not an algorithm; give a spec with --spec: --spec mine.yaml"),
    (["run", "--spec", "missing.yaml"], "the spec missing.yaml cannot be read: No such file or directory"),
    (["run", "--spec", "."], "the spec . cannot be read: Is a directory"),
    (["run", *QUICK, "--out", "/dev/null/run"], "the folder /dev/null/run cannot be made: Not a directory"),
    (["run", *QUICK, "--out", "/dev/null"], "the folder /dev/null cannot be made: File exists"),
    (["resume", "nowhere"], "nowhere: there is no such folder"),
    (["resume", "."], ". is not a run folder: it has no spec.yaml"),
    (["show", "nowhere"], "nowhere: there is no such folder"),
    (["show", "."], ". is not a run folder"),
    (["compare", "nowhere"], "nowhere: there is no such folder"),
    (["compare"], "Missing argument 'RUN...'"),
    (["resume"], "Missing argument 'RUN'"),
    (["matrix"], "Missing argument 'SPEC'"),
    (["matrix", "missing.yaml"], "the spec missing.yaml cannot be read: No such file or directory"),
    (["matrix", "missing.yaml", "--jobs", "0"], "--jobs 0: write how many, at least 1, or ray"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(arguments)[:60] for arguments, _ in MISTAKES])
def test_a_bad_command_line(arguments: list[str], words: str, fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    if "device=cuda" in arguments and torch.cuda.is_available():
        arguments = [part.replace("cuda", "cuda:999") for part in arguments]
        words = "device"
    check(fedpareto(*arguments), words)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds: [1\n", "spec.yaml, line 2: expected"),
        ("rounds: 3\nrouns: 5\n", "spec.yaml, line 2: unknown key 'rouns'; did you mean 'rounds'?"),
        ("clients: many\n", "spec.yaml, line 1: clients is 'many'; it should be a whole number"),
        ("rounds: 5\nclients: 0\n", "spec.yaml, line 2: clients is 0; it is at least 1 and at most 10,000,000"),
        ("learner:\n  lr: -1\n", "spec.yaml, line 2: lr is -1; it is above 0"),
    ],
)
def test_a_malformed_spec_names_file_line_and_key(
    text: str, words: str, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    check(fedpareto("run", "--spec", "spec.yaml"), words)


@pytest.fixture(scope="session")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    values = {"algorithm": "fedpref", "problem": "convex", "clients": 4, "rounds": 3, "seeds": 2}
    with pytest.raises(Stopped):
        start(Draft(values | {"engine": {"threads": 1, "chunk": 8}}).finish(), folder, stop=lambda: True)
    return folder


@pytest.fixture
def stopped(stopped_run: Path, tmp_path: Path) -> Path:
    """A folder that could be resumed, to be spoilt."""
    shutil.copytree(stopped_run, tmp_path / "run")
    return tmp_path / "run"


def test_a_checkpoint_cut_anywhere_is_refused(stopped: Path, fedpareto: Callable[..., Any]) -> None:
    path = stopped / "checkpoint.safetensors"
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        check(fedpareto("resume", "run"), "run/checkpoint.safetensors is damaged")


def test_a_flipped_byte_in_a_checkpoint_is_refused(stopped: Path, fedpareto: Callable[..., Any]) -> None:
    path = stopped / "checkpoint.safetensors"
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x01
        path.write_bytes(spoilt)
        check(fedpareto("resume", "run"), "run/checkpoint.safetensors")
        assert (stopped / "metrics.jsonl").stat().st_size, "nothing else was touched"


def test_a_checkpoint_of_something_else_is_refused(stopped: Path, fedpareto: Callable[..., Any]) -> None:
    from safetensors.torch import save_file

    path = stopped / "checkpoint.safetensors"
    save_file({"model": torch.ones(3)}, path)
    check(fedpareto("resume", "run"), "was not written by fedpareto")
    Checkpoint({"model": torch.ones(3)}, {"problem": "convex"}).save(path)
    check(fedpareto("resume", "run"), "is not a run's checkpoint; delete it to begin the run again")
    path.unlink()
    path.mkdir()
    check(fedpareto("resume", "run"), "run/checkpoint.safetensors")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"choices": {}}', '{"choices": {"threads": 0, "chunk": 1}}']
)
def test_a_damaged_run_json_is_refused(text: str, stopped: Path, fedpareto: Callable[..., Any]) -> None:
    (stopped / "run.json").write_text(text)
    check(fedpareto("resume", "run"), "run/run.json is damaged")
    check(fedpareto("show", "run"), "run/run.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_a_damaged_status_json_is_refused(text: str, stopped: Path, fedpareto: Callable[..., Any]) -> None:
    (stopped / "status.json").write_text(text)
    check(fedpareto("resume", "run"), "run/status.json is damaged")


@pytest.mark.parametrize("text", ["", "algorithm: [", "algorithm: fedpref\nrouns: 3\n", "\x00", "rounds: 0\n"])
def test_a_damaged_spec_is_refused(text: str, stopped: Path, fedpareto: Callable[..., Any]) -> None:
    (stopped / "spec.yaml").write_text(text)
    check(fedpareto("resume", "run"), "run/spec.yaml, line ")


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"{}x", b"not json"])
def test_a_damaged_record_is_refused(damage: bytes, stopped: Path, fedpareto: Callable[..., Any]) -> None:
    path = stopped / "metrics.jsonl"
    path.write_bytes(damage + path.read_bytes()[len(damage) :])
    check(fedpareto("resume", "run"), "run/metrics.jsonl, line 1 is damaged: not valid JSON")


def test_a_new_run_does_not_overwrite_an_old_one(stopped: Path, fedpareto: Callable[..., Any]) -> None:
    before = {path: path.read_bytes() for path in stopped.iterdir()}
    check(fedpareto("run", *QUICK, "--out", "run"), "run holds a run already; continue it with 'fedpareto resume run'")
    assert {path: path.read_bytes() for path in stopped.iterdir()} == before


def test_a_new_run_does_not_overwrite_somebody_elses_files(tmp_path: Path, fedpareto: Callable[..., Any]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.jsonl").write_text("precious")
    check(fedpareto("run", *QUICK, "--out", "mine"), "mine is not empty: its metrics.jsonl would be overwritten")
    assert (tmp_path / "mine" / "metrics.jsonl").read_text() == "precious"


def test_the_demo_deletes_nothing_but_its_own_runs(tmp_path: Path, fedpareto: Callable[..., Any]) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "run.json").write_text("precious")
    answer = fedpareto("demo", "--seeds", "1", "--out", ".")
    assert (answer.code, answer.err) == (
        2,
        "Error: local is not empty: its run.json would be overwritten; name another folder\n",
    )
    assert (tmp_path / "local" / "run.json").read_text() == "precious"


@pytest.mark.parametrize("setting", ["lr=0.5", "rounds=9", "algorithm=fedavg", "faults.lr=1", "quorum", "quorum=-1"])
def test_a_resumed_run_keeps_its_spec(setting: str, stopped: Path, fedpareto: Callable[..., Any]) -> None:
    before = (stopped / "spec.yaml").read_bytes()
    check(fedpareto("resume", "run", "--set", setting), f"--set {setting}: ")
    assert (stopped / "spec.yaml").read_bytes() == before


def test_below_the_quorum_is_one_line_and_the_run_can_go_on(tmp_path: Path, fedpareto: Callable[..., Any]) -> None:
    faults = ("--clients", "5", "--set", "dropout=0.3", "--set", "corrupt=0.1", "--quorum", "4", "--quiet")
    answer = fedpareto("run", "fedavg", *QUICK, *faults, "--out", "run")
    check(answer, "clients gave a valid reply, the quorum is 4 (round ")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "failed"
    answer = fedpareto("resume", "run", "--set", "quorum=0")
    assert answer.code == 0, answer.err
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "finished"


def test_the_installed_command_answers_a_mistake_the_same_way_and_imports_nothing_that_few_algorithms_need() -> None:
    command = Path(sys.executable).with_name("fedpareto")
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    answer = subprocess.run([command, "run", "fedprf"], env=environment, capture_output=True, text=True, check=False)
    said = [line for line in answer.stderr.splitlines() if not line.startswith("import time:")]
    assert answer.returncode == 2
    assert said == ["Error: unknown algorithm 'fedprf'; did you mean 'fedpref'?"]
    packages = set(re.findall(r"^import time:.*\| +(\w+)", answer.stderr, re.MULTILINE))
    assert "torch" in packages
    assert not packages & {"scipy", "sklearn", "pandas", "matplotlib"}
    assert answer.stdout == ""
