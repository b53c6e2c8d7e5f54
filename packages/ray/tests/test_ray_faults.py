"""A worker that is killed is replaced, and the run ends with the models of an undisturbed one."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.runs.runner import start
from fedpareto_ray import crew as crew_module
from fedpareto_ray import engine as engine_module
from fedpareto_ray.options import RayOptions
from fedpareto_ray.room import workers_for
from on_ray import played, remotely, small
from waiting import until

pytestmark = pytest.mark.takes_long


def kill(process):
    """kill -9, and it is gone."""
    os.kill(process, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{process}/cmdline").exists() or not Path(f"/proc/{process}/cmdline").read_bytes())


def test_a_killed_worker_changes_no_bit(crews, monkeypatch):
    """Before an exchange, and after it, when the server wants sums of replies that are gone with their worker; before
    and after clients' private state was saved.
    """
    monkeypatch.setattr(engine_module, "MOST_REPEATED", 2)
    spec, crew = small("ditto", rounds=6), crews(2)
    undisturbed = played(spec, remotely(spec, crew))
    kept = remotely(spec, crew)
    expected = played(spec, kept), kept.private
    killed = []

    def strike(moment, exchange):
        if (moment, exchange) in (("replied", 1), ("asked", 4)):
            killed.append(crew.processes[exchange % 2])
            kill(killed[-1])

    engine = remotely(spec, crew)
    found = played(spec, engine, strike)
    assert len(killed) == 2
    assert not set(killed) & set(crew.processes), "others are in their place"
    for other in (undisturbed, expected[0]):
        for one, same in zip(found[1], other[1], strict=True):
            assert torch.equal(one.rows, same.rows)
    private = engine.private
    assert set(private) == set(expected[1])
    assert all(torch.equal(state[name], private[key][name]) for key, state in expected[1].items() for name in state)


def test_work_that_kills_every_worker_ends_the_run_in_one_line(crews, monkeypatch):
    monkeypatch.setattr(crew_module, "MOST_DEATHS", 2)
    spec, crew = small("fedavg", rounds=1), crews(2)
    engine = remotely(spec, crew)
    arrived = crew._arrived

    def doomed():
        worker = arrived()
        crew._ray.kill(worker)
        return worker

    monkeypatch.setattr(crew, "_arrived", doomed)
    kill(crew.processes[0])
    with pytest.raises(UserError, match=r"worker 0 died 2 times over the same work; is there enough memory\?"):
        engine.run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))
    monkeypatch.undo()
    crew._workers[0] = crew._arrived()


def test_more_workers_than_there_is_room_for_are_refused(crews):
    crews(2)  # A Ray with room for sixteen.
    with pytest.raises(UserError, match="workers is 17, but the cluster has room for 16, with a CPU for each of them"):
        workers_for(RayOptions(workers=17), 7)
    with pytest.raises(UserError, match="workers is 9, but the cluster has room for 8, with 2 CPUs for each of them"):
        workers_for(RayOptions(workers=9, threads=2), 7)
    with pytest.raises(UserError, match="there is no worker, but the cluster has room for 0, with a GPU for each"):
        workers_for(RayOptions(device="cuda"), 7)
    assert workers_for(RayOptions(), 3) == 3, "no worker is without a client"
    assert workers_for(RayOptions(), 7, usual=2) == 2, "a resumed run has as many as before"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"address": "somewhere"}, "address is 'somewhere'; it is auto, or host:port such as"),
        ({"address": "ray://head:10001"}, "address is 'ray://head:10001'"),
        ({"workers": -1}, "workers is -1; it is at least 0 and at most 10,000"),
        ({"device": "cuda:1"}, "on Ray it is cpu or cuda"),
    ],
)
def test_options_that_mean_nothing_are_refused(given, complaint):
    with pytest.raises(UserError, match=complaint):
        RayOptions(**given)


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"the engine ray needs Ray; try: pip install 'fedpareto\[cluster\]'"):
        start(small("fedavg"))


def test_a_ray_of_our_own_listens_on_loopback_only(crews):
    crews(2)
    listening = [
        connection.laddr.ip
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 3, "its server, its daemon and its workers"
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
