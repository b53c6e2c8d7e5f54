"""The process beside the page's own, as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto_page.worker import Worker, WorkerFailed
from waiting import until

HERE = str(Path(__file__).parent)


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    worker = Worker("answering:answer")
    yield worker
    worker.close()


def test_answers_come_back_and_what_is_printed_does_not_disturb_them(worker):
    assert worker.pid is None, "nothing is started before it is needed"
    assert worker.ask("add", [1, 2, 3]) == 6
    first = worker.pid
    with pytest.raises(UserError, match="lr is -1; it is above 0"):
        worker.ask("wrong", "lr is -1; it is above 0")
    with pytest.raises(WorkerFailed, match="KeyError: it has no 'missing'"):
        worker.ask("fault", {})
    assert worker.ask("add", [0.1]) == 0.1
    assert worker.pid == first, "neither the user's fault nor a job's ends the process"


def test_many_threads_ask_one_at_a_time(worker):
    answers = {}
    threads = [threading.Thread(target=lambda k=k: answers.update({k: worker.ask("add", [k, k])})) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {k: 2 * k for k in range(20)}


def test_a_dead_process_is_begun_anew_once(worker, tmp_path):
    assert worker.ask("die once", str(tmp_path / "died")) == "alive"
    first = worker.pid
    os.kill(first, signal.SIGKILL)
    assert worker.ask("add", [1]) == 1
    assert worker.pid != first
    with pytest.raises(WorkerFailed, match="'die' ended twice"):
        worker.ask("die")
    assert worker.ask("add", [2]) == 2


def test_the_process_ends_with_the_one_that_asked_even_if_that_is_killed(worker):
    asking = "from fedpareto_page.worker import Worker; w = Worker('answering:answer'); w.ask('add', []); print(w.pid)"
    code = f"{asking}; import sys; sys.stdout.flush(); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    assert is_there(child)
    parent.kill()
    parent.communicate()
    until(lambda: not is_there(child))


def is_there(pid):
    """Whether a process runs; one that has ended and nobody asked after yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def test_a_question_that_never_ends_does_not_keep_others_from_asking(worker):
    worker.longest = 0.2
    said = []

    def ask() -> None:
        try:
            worker.ask("sleep")
        except UserError as problem:
            said.append(str(problem))

    slow = threading.Thread(target=ask)
    slow.start()
    until(lambda: worker.pid is not None)
    assert worker.ask("add", [1, 2]) == 3
    slow.join()
    assert "while others waited" in said[0]
