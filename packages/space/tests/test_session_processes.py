"""Sessions between processes: real sockets, the real clock, real kills."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from fedpareto_space.session.agreement import terms_of
from fedpareto_space.session.drive import Plan
from fedpareto_space.session.matrix import cases
from fedpareto_space.session.process import nodes_of
from fedpareto_space.wire.vocabulary import FaultKind
from processes import Python
from sessions import on_the_local_engine, small, undisturbed
from waiting import until

UNIT = 2.0
"""Seconds of a short time-out."""
MODULES = ("fedpareto_space.session.process",)


def free_ports(nodes):
    """A port for each node that nobody uses now."""
    sockets = {node: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for node in nodes}
    for one in sockets.values():
        one.bind(("127.0.0.1", 0))
    ports = {node: one.getsockname()[1] for node, one in sockets.items()}
    for one in sockets.values():
        one.close()
    return ports


class Nodes:
    """All nodes of a session, each a process."""

    def __init__(self, plan, folder, mishaps=None, loss=0.0):
        ports = free_ports([*plan.servers, *plan.nodes.values()])
        self.files = nodes_of(plan, ports, folder, mishaps or {}, loss)
        self.folder, self.running = folder, {}
        for node in reversed(self.files):  # The server is the last: clients wait for its offer.
            self.start(node)
            until(lambda node=node: self.said(node, "up") or self.ended(node), self.errors)

    def start(self, node):
        words = [sys.executable, "-c", f"from {MODULES[0]} import main; main()", self.files[node]]
        with (self.folder / f"{node}.out").open("ab") as out, (self.folder / f"{node}.err").open("ab") as err:
            self.running[node] = Python(words, modules=MODULES, stdin=-3, stdout=out, stderr=err)

    def log(self, node):
        lines = (self.folder / f"{node}.out").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def told(self):
        found = {node: self.log(node) for node in self.files}
        return {(node, line["what"], line["action"]) for node, lines in found.items() for line in lines}

    def said(self, node, what):
        """What came after that word in the last such line of a node's log."""
        found = [line for line in self.log(node) if line["what"] == what]
        return found[-1] if found else None

    def errors(self):
        return "\n".join((self.folder / f"{node}.err").read_text() for node in self.files) + str(self.told())

    def ended(self, node):
        return self.running[node].poll() is not None

    def stop(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def nodes(tmp_path):
    """Starts the nodes of a session; at the end none is left."""
    started = []

    def start(plan, mishaps=None, loss=0.0):
        started.append(Nodes(plan, tmp_path, mishaps, loss))
        return started[-1]

    yield start
    for some in started:
        some.stop()


LONG = pytest.mark.takes_long


@pytest.mark.parametrize(
    "name", ["fedpref", *(pytest.param(name, marks=LONG) for name in ("fedavg", "fedmgda-plus", "fedcmoo"))]
)
def test_processes_over_udp_that_loses_frames_have_the_local_engines_numbers(name, nodes):
    spec = small(name)
    plan = Plan(spec, terms_of(spec))
    running = nodes(plan, loss=0.3)
    until(lambda: all(running.ended(node) for node in running.files), running.errors)
    assert running.said(1, "result")["action"] == on_the_local_engine(spec)[0].hex()
    assert {running.said(node, "left")["detail"] for node in running.files} == {"done"}


@LONG
@pytest.mark.parametrize("case", cases(UNIT), ids=lambda case: case.name)
def test_a_fault_ends_in_the_negotiated_action_between_processes(case, nodes):
    spec = small("fedavg", clients=2, rounds=3)
    running = nodes(Plan(spec, case.terms(spec)), case.mishaps)
    if case.fault is FaultKind.CLIENT_RESET:
        (struck,) = case.mishaps
        until(lambda: running.ended(struck), running.errors)
        assert running.running[struck].poll() == -9
        running.start(struck)
    idle = {node for node, reason in case.ends.items() if not reason}
    until(lambda: all(running.ended(node) for node in running.files if node not in idle), running.errors)
    assert set(case.told) <= running.told(), running.errors()
    for node in running.files:
        left = running.said(node, "left")
        reason = "" if left is None else left["detail"]
        assert node in case.silent or reason == case.ends.get(node, "done"), running.errors()
    server = plan_server(case, running)
    if case.same:
        assert server["action"] == undisturbed("fedavg", 2, 3).hex()


def plan_server(case, running):
    """The line with the result, of whoever was the server at the end."""
    return running.said(2 if case.fault is FaultKind.SERVER_CHANGE else 1, "result")
