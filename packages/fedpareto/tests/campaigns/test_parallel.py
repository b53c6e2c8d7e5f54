"""Pieces of work side by side: all answers come, a wish to stop reaches the workers, a dead parent leaves none."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from fedpareto.campaigns.parallel import Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from processes import Python
from waiting import until


def square(out, number, stop):
    return number * number, os.getpid()


def until_told(out, path, stop):
    """Works until it is to stop; its pid is in the file meanwhile."""
    path.write_text(str(os.getpid()))
    until(stop)
    path.unlink()
    raise Stopped("stopped in the middle")


def fails(out, number, stop):
    raise ValueError(f"no {number}")


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_piece_is_answered_once(jobs):
    found = dict(side_by_side(Pieces(square, [3, 4, 5]), jobs, lambda: False))
    assert {number: answer for number, (answer, _) in found.items()} == {0: 9, 1: 16, 2: 25}
    assert (os.getpid() in {pid for _, pid in found.values()}) == (jobs == 1)


def test_a_wish_to_stop_reaches_the_workers(tmp_path):
    work = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(Stopped):
        list(side_by_side(Pieces(until_told, work), 2, lambda: all(path.exists() for path in work)))
    assert not any(path.exists() for path in work)


def test_a_failure_is_the_callers():
    with pytest.raises(ValueError, match="no 7"):
        list(side_by_side(Pieces(fails, [7, 7]), 1, lambda: False))


def is_killed(out, number, stop):
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_is_one_clear_line():
    with pytest.raises(
        UserError, match="a worker process was killed, perhaps for lack of memory: try fewer jobs than 2"
    ):
        list(side_by_side(Pieces(is_killed, [1, 2, 3]), 2, lambda: False))


def test_where_a_killed_worker_has_an_answer_the_others_go_on():
    pieces = Pieces(is_killed, [1, 2, 4], lost=str)
    found = dict(side_by_side(pieces, 2, lambda: False))
    assert found == {0: "its process was killed, perhaps for lack of memory", 1: 2, 2: 4}


def test_workers_of_a_killed_parent_end(tmp_path):
    code = (
        "import pathlib, test_parallel as t\n"
        f"work = [pathlib.Path({str(tmp_path)!r}) / name for name in 'ab']\n"
        "list(t.side_by_side(t.Pieces(t.until_told, work), 2, lambda: False))\n"
    )
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    parent = Python([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": places})
    work = [tmp_path / name for name in "ab"]
    until(lambda: all(path.exists() and path.read_text() for path in work))
    workers = [int(path.read_text()) for path in work]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(path.exists() for path in work))
    until(lambda: not any(is_there(worker) for worker in workers))


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
