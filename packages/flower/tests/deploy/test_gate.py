"""The gate lets a node's signed requests through, and nothing else."""

from __future__ import annotations

import http.client
import http.server
import logging
import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from gates import moved, opened

from fedpareto_flower.deploy import certificates
from fedpareto_flower.deploy import flower_proxy as gates
from fedpareto_flower.deploy.create import write_server_certificate
from fedpareto_flower.deploy.flower_proxy import NODE_CALLS, SCHEMA_HEADER, STATE
from fedpareto_flower.engine.launch import free_ports
from waiting import PATIENCE, until

CALL = "/v1/fleet/push-object"


class Upstream(http.server.BaseHTTPRequestHandler):
    """In Flower's place: gives back what it got, and remembers the paths."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.paths.append(self.path)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *words):
        pass


@pytest.fixture
def flower(deployment):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    server.paths = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment.server / "server.pem", deployment.server / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def gate(deployment, flower):
    gate = opened(deployment, flower.server_address[1])
    yield gate
    gate.close()


@pytest.fixture
def key(deployment):
    return certificates.load_key(deployment.node(1) / "node.key")


@pytest.fixture
def refusals(caplog):
    logging.getLogger("fedpareto").propagate = True
    caplog.set_level(logging.WARNING, logger="fedpareto.gate")

    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def told(refusals):
    """`told("…")` waits until the gate has said so: its thread may be a little later than the answer."""
    return lambda text: until(lambda: any(text in line for line in refusals()), lambda: str(refusals()))


def connection(gate, deployment, **more):
    context = ssl.create_default_context(cafile=more.get("authority", deployment.authority))
    return http.client.HTTPSConnection(*gate.listen, timeout=PATIENCE, context=context)


def ask(gate, deployment, path, headers, method="POST", body=b"hello", **more):
    link = connection(gate, deployment, **more)
    try:
        link.request(method, path, body=body, headers=headers)
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def how_is_it(gate, deployment, key, schema="fingerprint"):
    headers = certificates.signed(key) | {SCHEMA_HEADER: schema}
    return ask(gate, deployment, STATE, headers, method="GET", body=None)[0]


def test_a_node_hears_how_the_run_is_if_it_has_the_federations_schema(gate, deployment, key, told):
    assert how_is_it(gate, deployment, key) == 200
    until(lambda: gate.told)  # It is noted once the answer has left.
    assert gate.told == {1: "training"}
    assert how_is_it(gate, deployment, key, "another") == 412
    told("node 1 has another schema than the federation")


def test_a_registered_node_reaches_flower(gate, deployment, key):
    for path in NODE_CALLS:
        assert ask(gate, deployment, path, certificates.signed(key)) == (200, b"hello")
    assert set(gate.heard) == {1}


def test_several_requests_share_a_connection(gate, deployment, key):
    link = connection(gate, deployment)
    for body in (b"one", b"", b"three"):
        link.request("POST", CALL, body=body, headers=certificates.signed(key))
        assert link.getresponse().read() == body
    link.close()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/register-node",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/register-node",
        "/v1/fleet/%2e%2e/control/register-node",
        "/v1/fleet/push-object/",
        "/v1/fleet/push-object?x=1",
        "//v1/fleet/push-object",
        "https://127.0.0.1/v1/fleet/push-object",
        "/docs",
        "/openapi.json",
        "/",
    ],
)
def test_nothing_but_the_calls_of_nodes_passes_even_with_a_good_key(gate, deployment, key, flower, path, told):
    status, _ = ask(gate, deployment, path, certificates.signed(key))
    assert status == 403
    assert flower.paths == []
    told(f"POST {path} is not for nodes")


def test_another_method_is_refused(gate, deployment, key, flower):
    assert ask(gate, deployment, CALL, certificates.signed(key), method="GET", body=None)[0] == 403
    assert flower.paths == []


def test_an_unregistered_key_is_refused_by_name(gate, deployment, flower, told):
    assert ask(gate, deployment, CALL, certificates.signed(certificates.new_key()))[0] == 412
    assert ask(gate, deployment, STATE, {}, method="GET", body=None)[0] == 412
    assert flower.paths == []
    told("its key is not registered with this federation")
    told("it does not sign its requests as a node does")


def test_a_key_without_its_signature_an_old_one_and_another_nodes_are_refused(gate, deployment, key, flower):
    good, other = certificates.signed(key), certificates.signed(certificates.new_key())
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for wrong, status in (
        (good | {certificates.SIGNATURE_HEADER: other[certificates.SIGNATURE_HEADER]}, 412),
        (good | {certificates.TIME_HEADER: hour_ago}, 503),
        (good | {certificates.TIME_HEADER: "2020-01-01"}, 412),
        (good | {certificates.SIGNATURE_HEADER: "&"}, 412),
        ({name: value for name, value in good.items() if name != certificates.TIME_HEADER}, 412),
    ):
        assert ask(gate, deployment, CALL, wrong)[0] == status
    assert flower.paths == []


def test_a_node_whose_clock_is_wrong_is_told_apart_and_may_try_again(gate, deployment, key, told, monkeypatch):
    """Flower's SuperNode and the node itself try again after 503 alone."""
    with moved(monkeypatch, timedelta(hours=-1)):
        headers = certificates.signed(key)
    assert ask(gate, deployment, CALL, headers)[0] == 503
    told("its clock differs from the server's by 36")


def test_who_was_heard_does_not_depend_on_the_time_of_day(gate, deployment, key, monkeypatch):
    assert how_is_it(gate, deployment, key) == 200
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= gate.silences()[1] < 60


def test_plain_text_is_refused_with_a_clear_line(gate, told):
    with socket.create_connection(gate.listen, timeout=PATIENCE) as link:
        link.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\n\r\n")
        with suppress(OSError):
            assert link.recv(100) == b""
    told("it speaks plain text; this port wants TLS")


def test_an_expired_certificate_is_refused_by_the_node_and_logged_here(gate, deployment, told, tmp_path):
    signing = certificates.load_key(deployment.server / "ca.key")
    expired = tmp_path / "expired.pem"
    expired.write_bytes(certificates.to_pem(certificates.authority(deployment.name, signing, days=-1)))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        ask(gate, deployment, STATE, {}, authority=expired)
    told("it does not accept the certificate: one of the two has expired")


def test_another_authority_is_refused_by_the_node_and_logged_here(gate, deployment, told, tmp_path):
    other = tmp_path / "other.pem"
    other.write_bytes(certificates.to_pem(certificates.authority("other", certificates.new_key())))
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(gate, deployment, STATE, {}, authority=other)
    told("it does not know the authority")


def test_a_renewed_certificate_needs_nothing_new_at_the_nodes(deployment, flower, key):
    write_server_certificate(deployment)
    gate = opened(deployment, flower.server_address[1])
    try:
        assert how_is_it(gate, deployment, key) == 200
    finally:
        gate.close()


def test_two_lengths_and_chunks_are_not_passed_on(gate, deployment, key, flower):
    """Requests that two readers may read differently are how a second request is smuggled past a gate."""
    signed = "".join(f"{name}: {value}\r\n" for name, value in certificates.signed(key).items())
    for lengths in (
        "content-length: 5\r\ncontent-length: 50\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: -1\r\n",
        f"content-length: {2**40}\r\n",
    ):
        link = connection(gate, deployment)
        link.connect()
        link.sock.sendall(f"POST {CALL} HTTP/1.1\r\nhost: x\r\n{signed}{lengths}\r\nhello".encode())
        assert int(link.sock.recv(100).split()[1]) in (400, 413)
        link.close()
    assert flower.paths == []


def test_random_bytes_are_refused_and_the_gate_goes_on(gate, deployment, key):
    for content in (b"\0" * 100, b"GET\r\n\r\n", b"x" * 200_000):
        link = connection(gate, deployment)
        link.connect()
        with suppress(OSError):
            link.sock.sendall(content)
            assert b"200" not in link.sock.recv(100)
        link.close()
    assert ask(gate, deployment, CALL, certificates.signed(key))[0] == 200


def test_without_flower_a_node_is_asked_to_come_again(deployment, key):
    gate = opened(deployment, free_ports(1)[0])
    try:
        assert ask(gate, deployment, CALL, certificates.signed(key))[0] == 503
    finally:
        gate.close()


def test_a_flood_of_refusals_is_one_line(gate, deployment, key, refusals):
    for _ in range(20):
        ask(gate, deployment, "/docs", certificates.signed(key))
    assert len(refusals()) == 1


def test_four_megabytes_are_passed_on_in_large_pieces(gate, deployment, key, monkeypatch):
    send, sent = ssl.SSLSocket.sendall, []

    def counted(link, content, *flags):
        sent.append(len(content))
        return send(link, content, *flags)

    monkeypatch.setattr(ssl.SSLSocket, "sendall", counted)
    body = bytes(4_000_000)
    assert ask(gate, deployment, CALL, certificates.signed(key), body=body) == (200, body)
    assert sum(sent) > 4 * len(body), "to the gate, to Flower and back"
    assert sum(sent) / len(sent) > 10_000


# -- crowds --------------------------------------------------------------------------------------------------------


@pytest.fixture
def silent(gate):
    """Connections that say nothing."""
    opened = []

    def connect(count):
        opened.extend(socket.create_connection(gate.listen, timeout=PATIENCE) for _ in range(count))
        return opened

    yield connect
    for one in opened:
        one.close()


def test_a_crowd_of_silent_strangers_does_not_shut_the_gate(gate, deployment, key, silent, told, monkeypatch):
    monkeypatch.setattr(gates, "MOST_STRANGERS", 8)
    crowd = silent(40)
    told("too many connections at a time without a signed request")
    for _ in range(3):
        assert how_is_it(gate, deployment, key) == 200
        silent(10)
    assert crowd[0].recv(1) == b"", "the oldest went first"


def test_a_node_that_is_connected_stays_so_in_a_crowd(gate, deployment, key, silent, told, monkeypatch):
    monkeypatch.setattr(gates, "MOST_STRANGERS", 8)
    link = connection(gate, deployment)
    for _ in range(3):
        link.request("POST", CALL, body=b"hello", headers=certificates.signed(key))
        assert link.getresponse().read() == b"hello"
        silent(20)
    told("too many connections")
    link.close()


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
def test_who_does_not_say_who_it_is_in_time_has_to_go_however_busy_it_seems(
    begun, deployment, flower, told, monkeypatch
):
    monkeypatch.setattr(gates, "FIRST_REQUEST", 0.05)
    gate = opened(deployment, flower.server_address[1])
    with socket.create_connection(gate.listen, timeout=PATIENCE) as stranger:
        stranger.sendall(begun)
        with suppress(ConnectionError):
            assert stranger.recv(1) == b""
    told("refused 127.0.0.1: no signed request within 0.05 s")
    gate.close()


def test_half_a_request_is_not_waited_for_after_the_handshake(deployment, flower, told, monkeypatch):
    monkeypatch.setattr(gates, "FIRST_REQUEST", 1.0)
    gate = opened(deployment, flower.server_address[1])
    context = ssl.create_default_context(cafile=deployment.authority)
    raw = socket.create_connection(gate.listen, timeout=PATIENCE)
    with suppress(OSError), context.wrap_socket(raw, server_hostname="127.0.0.1") as stranger:
        stranger.sendall(b"GET /fedpareto/state HTTP/1.1\r\n")
        while stranger.recv(1):
            pass
    told("no signed request within 1 s")
    gate.close()


def test_a_node_has_only_so_many_connections_and_the_others_still_have_theirs(gate, deployment, key, told, monkeypatch):
    monkeypatch.setattr(gates, "MOST_OF_NODE", 2)
    links = [connection(gate, deployment) for _ in range(3)]

    def status(link, key):
        link.request("POST", CALL, body=b"hello", headers=certificates.signed(key))
        answer = link.getresponse()
        answer.read()
        return answer.status

    assert [status(link, key) for link in links] == [200, 200, 503]
    told("node 1 has 2 connections already")
    other = certificates.load_key(deployment.node(0) / "node.key")
    links.append(connection(gate, deployment))
    assert status(links[3], other) == 200
    links.pop(0).close()
    until(lambda: how_is_it(gate, deployment, key) == 200)
    for link in links:
        link.close()


def test_a_pace_is_a_rate_after_what_was_saved_up():
    pace = gates._Pace(rate=10.0, burst=5.0)
    assert [round(pace.wait(1, 100.0), 9) for _ in range(7)] == [-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2]
    assert pace.wait(1, 100.3) == pytest.approx(0.0), "ten a second since"
    assert pace.wait(50, 1000.0) == pytest.approx(4.5), "five of fifty had been saved up, not more"


def test_a_node_that_asks_too_fast_waits_and_loses_nothing(gate, deployment, key, flower, told, monkeypatch):
    monkeypatch.setitem(gates.PACE, "requests", (100.0, 1.0))
    assert [ask(gate, deployment, CALL, certificates.signed(key)) for _ in range(4)] == [(200, b"hello")] * 4
    assert gate._paces[1, "requests"]._due > 0
    assert flower.paths == [CALL] * 4
