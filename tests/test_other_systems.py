"""What Windows and macOS lack is not needed: whole runs in a process from which it was taken."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from fedpareto.config import files
from fedpareto.config.errors import UserError
from fedpareto.config.files import Lock, need_posix, quoted, write_atomically
from fedpareto.engines import memory
from fedpareto.record.checkpoint import Checkpoint
from other_systems import GIGABYTES

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import console

COMMANDS = """\
run fedavg --problem convex --clients 4 --rounds 6 --quorum 1 --set dropout=1 --out stopped
resume stopped --set dropout=0
run fedpref --problem convex --clients 4 --rounds 2 --out whole
run fedpref --problem convex --clients 4 --rounds 2 --out whole
run fedpref --problem nothing --out unbegun
show stopped
compare stopped whole --out comparison
problems
data list
run fedpref --engine flower-local
server status federation
node check node-0 --data mine.csv
"""


@pytest.mark.takes_long
@pytest.mark.skipif(sys.platform != "linux", reason="open files are known from /proc")
def test_runs_resume_show_and_compare_need_nothing_that_windows_lacks(tmp_path):
    script = Path(__file__).with_name("other_systems.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        input=COMMANDS,
        capture_output=True,
        encoding="cp1252",
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        check=False,
    )
    codes = [int(line.split()[-1]) for line in done.stderr.splitlines() if line.startswith("exit code")]
    assert codes == [2, 0, 0, 2, 2, 0, 0, 0, 0, 2, 2, 2], done.stderr
    for name in ("stopped", "whole"):
        assert json.loads((tmp_path / name / "status.json").read_bytes())["status"] == "finished"
    assert (tmp_path / "comparison" / "index.html").is_file()
    assert not (tmp_path / "unbegun").exists()
    assert done.stderr.count("on Windows it runs in WSL") == 3
    assert "distance 1 v" in done.stdout  # An arrow that the console does not have.
    assert "?" not in done.stdout.partition("+- fedavg")[2].partition("versions")[0]
    assert "Traceback" not in done.stderr


def test_a_lock_is_held_once_and_free_after_its_process_was_killed(tmp_path):
    path = tmp_path / ".lock"
    code = (
        "import sys; from pathlib import Path; from fedpareto.config.files import Lock\n"
        "lock = Lock(Path(sys.argv[1])); print(lock.take(), flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    mine = Lock(path)
    assert mine.is_held()
    assert not mine.take()
    other.kill()
    other.communicate()
    assert not mine.is_held()
    with mine:
        assert mine.take()
        assert Lock(path).is_held()
    assert not mine.is_held()


def test_a_lock_that_nobody_made_is_not_held(tmp_path):
    assert not Lock(tmp_path / ".lock").is_held()
    assert list(tmp_path.iterdir()) == []


def test_on_windows_a_file_that_is_being_read_is_replaced_when_its_reader_is_done(tmp_path, monkeypatch):
    path, left, replace = tmp_path / "status.json", [3], os.replace

    def busy(source, target):
        if left[0]:
            left[0] -= 1
            raise PermissionError(13, "in use")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(files, "PAUSE", 0.0)
    with pytest.raises(UserError, match="in use"):
        write_atomically(path, "new")
    monkeypatch.setattr(files, "WINDOWS", True)
    write_atomically(path, "new")
    assert path.read_bytes() == b"new"


def test_a_path_is_quoted_for_the_shell_of_its_system(monkeypatch):
    assert quoted(Path("my runs")) == "'my runs'"
    need_posix("a deployment")
    monkeypatch.setattr(files, "WINDOWS", True)
    assert quoted(Path("my runs")) == '"my runs"'
    with pytest.raises(UserError, match=r"a deployment needs Linux or macOS"):
        need_posix("a deployment")


def test_memory_is_told_by_whichever_system_there_is(monkeypatch):
    told = memory.physical_memory()
    assert told == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.delattr(os, "sysconf")

    def filled(status):
        status._obj.physical = GIGABYTES * 10**9

    class Kernel:
        GlobalMemoryStatusEx = staticmethod(filled)

    class Windll:
        kernel32 = Kernel

    if sys.platform == "linux":  # macOS has an answer of its own.
        assert memory.physical_memory() == memory.UNKNOWN
        monkeypatch.setattr(ctypes, "windll", Windll, raising=False)
        assert memory.physical_memory() == GIGABYTES * 10**9


def test_a_checkpoint_that_was_read_is_not_mapped_any_more(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    Checkpoint({"model": torch.arange(4096.0)}, {}).save(path)
    read = Checkpoint.load(path)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only /proc tells what is mapped")
    assert str(path) not in maps.read_text(encoding="utf-8")
    assert read.tensors["model"][-1] == 4095


def test_letters_that_a_console_lacks_get_others_of_the_same_width_and_never_a_wrong_sign():
    for letter, instead in console.PLAIN.items():
        assert instead.isascii()
        assert len(instead) == 1 or letter in "θεδλ≤≥"
    assert console.PLAIN["−"] == "-"
