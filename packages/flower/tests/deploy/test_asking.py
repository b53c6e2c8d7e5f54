"""A node asks the server how the run is: whoever is only away is asked again, and what cannot work ends with a line."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import threading
import time
from datetime import timedelta

import pytest
from gates import moved, opened

from fedpareto.config.errors import UserError
from fedpareto.problems.fairness.sources import Source
from fedpareto_flower.deploy.layout import NodeFolder
from fedpareto_flower.deploy.node import _Service
from fedpareto_flower.deploy.server_client import Server
from fedpareto_flower.engine.launch import free_ports


def node(deployment, port, **more):
    """A node's view of a server at this port."""
    path = deployment.node(1) / "node.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"server": f"127.0.0.1:{port}"} | more))
    return Server(NodeFolder.open(deployment.node(1)))


@pytest.fixture
def gates(deployment):
    """Two starts of the same server."""
    fingerprint = deployment.spec().problem.table_schema.fingerprint
    gates = [opened(deployment, free_ports(1)[0], fingerprint) for _ in range(2)]
    yield gates
    for gate in gates:
        gate.close()


@pytest.fixture
def stranger():
    """Answers every connection with these bytes, and hangs up; gives back its port."""
    sockets = []

    def start(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)
        threading.Thread(target=_answer_all, args=(listening, answer), daemon=True).start()
        return listening.getsockname()[1]

    yield start
    for one in sockets:
        one.close()


def _answer_all(listening, answer):
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # The test is over.
        with connection:
            connection.recv(10_000)
            connection.sendall(answer)


def test_every_start_of_a_server_has_a_name_of_its_own(gates, deployment):
    first, second = (node(deployment, gate.listen[1]) for gate in gates)
    assert (first.ask(), second.ask()) == ("training", "training")
    assert first.start
    assert first.start != second.start


def test_a_server_that_dies_in_the_middle_of_a_word_is_only_away(deployment, stranger):
    server = node(deployment, stranger(b""))
    assert server.ask() == ""
    assert not server.is_there


def test_nobody_at_the_port_is_only_away(deployment):
    assert node(deployment, free_ports(1)[0]).ask() == ""
    assert node(deployment, free_ports(1)[0], insecure=True).ask() == ""


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"fedpareto": 1}'])
def test_another_program_at_the_port_is_no_server(deployment, stranger, body):
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    assert node(deployment, stranger(answer), insecure=True).ask() == ""


def test_plain_text_to_a_server_with_tls_ends_with_what_to_do(gates, deployment):
    with pytest.raises(UserError, match=r"speaks TLS, and this node plain text.* ask the server's operator"):
        node(deployment, gates[0].listen[1], insecure=True).ask()


def test_tls_to_a_server_without_ends_with_a_line(deployment, stranger):
    with pytest.raises(UserError, match="does not speak TLS"):
        node(deployment, stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n")).ask()


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_jumps_only_keeps_a_node_waiting(days, gates, deployment, monkeypatch, caplog):
    """Whichever of the two clocks it is: the node would end, for good, as one does that is refused."""
    server = node(deployment, gates[0].listen[1])
    with caplog.at_level("INFO"):
        assert server.ask() == "training"
        with moved(monkeypatch, timedelta(days=days), threading.get_ident()):
            assert [server.ask() for _ in range(3)] == [""] * 3
        assert server.ask() == "training"
    lines = [one.message for one in caplog.records if one.name == "fedpareto.node"]
    assert len(lines) == 2, "one when it begins, one when it ends"
    assert "does not take this node's requests now: its clock differs from the server's by 86" in lines[0]
    assert lines[1].endswith("answers")


@pytest.mark.parametrize("word", ["training\n2026-01-01 WARNING somebody else", "\x1b[2J"])
def test_a_server_writes_no_line_of_its_own_into_a_nodes_log(word, deployment, stranger):
    body = json.dumps({"fedpareto": word}).encode()
    answer = b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with pytest.raises(UserError) as refused:
        node(deployment, stranger(answer), insecure=True).ask()
    assert str(refused.value).isprintable()


# -- a SuperNode that the server does not hear ---------------------------------------------------------------------


def test_a_connection_that_is_reset_in_the_handshake_is_only_away(deployment, resetting):
    server = node(deployment, resetting)
    assert [server.ask() for _ in range(3)] == ["", "", ""]


@pytest.fixture
def resetting():
    """The port of a listener that resets every connection once the other side has said hello."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_reset_all, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]


def _reset_all(listening):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            connection.recv(10)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


def test_a_node_hears_how_long_its_supernode_has_been_silent(gates, deployment):
    gate = gates[0]
    server = node(deployment, gate.listen[1])
    server.ask()
    assert server.silence == math.inf
    gate.worked[1] = time.monotonic() - 100
    server.ask()
    assert 100 <= server.silence < math.inf
    gate.worked[2] = time.monotonic()
    server.ask()
    assert server.silence >= 100, "another node's is not its own"


@pytest.mark.parametrize(
    ("silence", "age", "lost"),
    [
        (10.0, 1000.0, False),
        (61.0, 1000.0, True),
        (61.0, 30.0, False),  # That was the one before it.
        (math.inf, 100.0, False),  # Flower takes long to load on a busy machine.
        (math.inf, 121.0, True),
    ],
)
def test_a_supernode_that_the_server_does_not_hear_is_started_again(
    silence, age, lost, deployment, tables, monkeypatch, caplog
):
    home = NodeFolder.open(deployment.node(1))
    service = _Service(home, Source(str(tables / "a.csv")), [0.5, 0.5])
    started = []
    monkeypatch.setattr(service, "_start", lambda: started.append("again"))
    service.server.silence, service._begun = silence, time.monotonic() - age
    service._tend()
    assert bool(started) == lost
    assert ("does not hear the SuperNode" in caplog.text) == lost
