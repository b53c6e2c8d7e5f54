"""Pieces on a Ray cluster: the same files come back from wherever they are done."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedpareto
from fedpareto.campaigns import grid, sweep
from fedpareto.campaigns.parallel import Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.runs.progress import Tally
from fedpareto_ray import cluster, jobs
from fedpareto_ray.jobs import OnRay, carried_out
from folders import assert_same_results
from processes import Commands

pytestmark = pytest.mark.takes_long

SPEC = {"problem": "convex", "clients": 4, "rounds": 4, "sweep": {"algorithm": ["fedavg", "local"], "seeds": 2}}
NAMES = ("algorithm=fedavg", "algorithm=local")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep by processes of this machine."""
    return fedpareto.sweep(SPEC, tmp_path_factory.mktemp("here"), quiet=True).folder


def task_of(out: Path, name: str) -> jobs._Task:
    """As a driver in the folder `out` sends it to a worker that does not see it."""
    return jobs._Task(sweep._do, Path("/of/another/machine"), ".seen", name, jobs._packed(out, name))


def planned(name: str) -> tuple[str, dict[str, Any]]:
    (run,) = [one for one in grid.plan([SPEC]) if one.name == name]
    return run.name, run.values


def test_a_sweep_on_ray_is_the_sweep_here(here: Path, server: Commands, tmp_path: Path) -> None:
    path, log = tmp_path / "grid.yaml", tmp_path / "log"
    path.write_text(json.dumps(SPEC), encoding="utf-8")
    code = server.run(["sweep", path, "--jobs", "ray", "--out", tmp_path / "out", "--quiet"], log)
    assert code == 0, log.read_text()
    for name in NAMES:
        assert_same_results(here / name, tmp_path / "out" / name)
    assert not list((tmp_path / "out").glob(f"{jobs.MARK}*"))


def test_a_worker_elsewhere_sends_the_run_back_and_goes_on_with_what_it_is_sent(here: Path, tmp_path: Path) -> None:
    asked = iter([False, False, True])
    half = carried_out(task_of(tmp_path, NAMES[0]), planned(NAMES[0]), lambda: next(asked))
    assert half.stopped
    jobs._unpack(tmp_path, half.files)
    assert json.loads((tmp_path / NAMES[0] / "status.json").read_text())["status"] == "stopped"
    whole = carried_out(task_of(tmp_path, NAMES[0]), planned(NAMES[0]), lambda: False)
    assert (whole.answer, whole.mistake, whole.stopped) == (("finished", ""), "", False)
    jobs._unpack(tmp_path, whole.files)
    assert_same_results(here / NAMES[0], tmp_path / NAMES[0])


def test_a_worker_that_sees_the_folder_works_in_it(here: Path, tmp_path: Path) -> None:
    (tmp_path / ".seen").touch()
    task = replace(task_of(tmp_path, NAMES[1]), out=tmp_path)
    assert carried_out(task, planned(NAMES[1]), lambda: False).files == {}
    assert_same_results(here / NAMES[1], tmp_path / NAMES[1])


def test_a_mistake_comes_back_as_its_line_and_another_version_is_refused(tmp_path: Path) -> None:
    def wrong(*_: Any) -> None:
        raise UserError("rounds is 0")

    task = replace(task_of(tmp_path, NAMES[0]), do=wrong)
    assert carried_out(task, None, lambda: False).mistake == "rounds is 0"
    other = carried_out(replace(task, version="0.0.7"), None, lambda: False).mistake
    assert "this process has 0.0.7; install the same version everywhere" in other


def test_ray_takes_no_signal_away_from_the_command() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cluster._own_signals():
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_ray_cannot_give_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="a piece needs 1 GPU, the Ray cluster has 0"):
        jobs._must_suffice({"CPU": 4.0}, OnRay(gpus=1))
    with pytest.raises(UserError, match=r"there is no Ray cluster at .*; start one with: ray start --head"):
        cluster._must_listen("127.0.0.1:9")
    with pytest.raises(UserError, match="but the engine flower-sim has workers of its own"):
        sweep.run(grid.plan([{**SPEC, "engine": "flower-sim"}]), Path("none"), OnRay(), Tally("runs", 2, str), bool)
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--jobs ray needs Ray; try: pip install 'fedpareto\[cluster\]'"):
        list(side_by_side(Pieces(carried_out, [1]), OnRay(), lambda: False))
