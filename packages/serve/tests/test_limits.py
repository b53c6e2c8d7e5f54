"""What strangers may ask of the service, under which name, how long and how much."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

import fedpareto
from fedpareto_serve import listening, request_checks, service
from fedpareto_serve.listening import LOOPBACK
from fedpareto_serve.server import Options
from test_service import InProcess
from waiting import PATIENCE


def test_on_loopback_only_its_own_names_are_known():
    assert Options().known_hosts == LOOPBACK
    assert Options(host="::1").known_hosts == LOOPBACK
    assert Options(hosts=("models.example",)).known_hosts == (*LOOPBACK, "models.example")
    assert Options(host="0.0.0.0").known_hosts == ()
    assert Options(host="10.0.0.1", hosts=("models.example",)).known_hosts == ("10.0.0.1", "models.example")


def test_a_request_under_a_foreign_name_is_refused(fedpref_run):
    client = InProcess(service.app_of(fedpareto.load(fedpref_run), hosts=LOOPBACK))
    try:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "localhost."):
            assert client.get("/front", headers={"host": host}).status_code == 200, host
        for host in ("rebound.example", "rebound.example:8000", "localhost.rebound.example", "[::2]:8000"):
            refused = client.get("/front", headers={"host": host})
            assert refused.status_code == 421, host
            assert "not known under this name" in refused.json()["detail"]
    finally:
        client.close()


def test_a_row_with_more_columns_than_any_table_is_refused(fedpref_run):
    client = InProcess(service.app_of(fedpareto.load(fedpref_run)))
    try:
        row = dict.fromkeys(map(str, range(service.MOST_COLUMNS - 2)), 1) | {"x1": 1, "x2": 2}
        question = {"rows": [row], "preference": [0.5, 0.5]}
        assert client.post("/predict", json=question).status_code == 200
        row["one more"] = 1
        refused = client.post("/predict", json=question)
        assert refused.status_code == 422
        assert str(service.MOST_COLUMNS) in refused.json()["detail"]
    finally:
        client.close()


def test_a_body_that_never_comes_is_answered_with_408(monkeypatch):
    monkeypatch.setattr(request_checks, "BODY_SECONDS", 0.0)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/predict", "method": "POST", "headers": [], "query_string": b""}
    asyncio.run(request_checks.Gate(None)(scope, receive, send))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def answered(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(**limits: int):
    """The address of a server with our protocol."""
    config = uvicorn.Config(answered, http=listening.Protocol, ws="none", lifespan="off", log_level="error", **limits)
    config.load()
    state = ServerState()

    def protocol():
        return listening.Protocol(config=config, server_state=state, app_state={})

    listener = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()


async def asked(address, said: bytes, own: str = "127.0.0.1") -> bytes:
    """What one connection gets back until it is closed."""
    reader, writer = await asyncio.open_connection(*address, local_addr=(own, 0))
    writer.write(said)
    found = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    return found


async def heard(said: bytes, **limits: int) -> bytes:
    """What a server says to its only connection."""
    async with serving(**limits) as address:
        return await asked(address, said)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "])
def test_headers_that_never_end_close_the_connection(said, monkeypatch):
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.2)
    assert asyncio.run(heard(said)) == b""


TRAILERS = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: "


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nx: ", TRAILERS])
def test_headers_without_end_fill_no_memory(begun, monkeypatch):
    monkeypatch.setattr(listening, "HEADER_SECONDS", PATIENCE)

    async def pour(writer):
        writer.write(begun)
        for _ in range(100):
            writer.write(b"y" * listening.MOST_HEADERS)
            await writer.drain()

    async def poured():
        async with serving() as address:
            _, writer = await asyncio.open_connection(*address)
            with pytest.raises(ConnectionError):
                await pour(writer)
            writer.close()

    asyncio.run(poured())


WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def test_a_whole_request_is_answered_and_further_ones_are_refused_over_the_limit():
    assert asyncio.run(heard(WHOLE)).startswith(b"HTTP/1.1 200")
    assert asyncio.run(heard(WHOLE, limit_concurrency=1)).startswith(b"HTTP/1.1 503")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of loopback")
@pytest.mark.parametrize(
    "half", [b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx"]
)
def test_half_sent_requests_of_one_address_leave_places_for_others(half, monkeypatch):
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 8)

    async def crowded():
        async with serving(limit_concurrency=8) as address:
            kept, quiet = await asyncio.open_connection(*address, local_addr=("127.0.0.3", 0))
            crowd = [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(11)]
            for _, writer in crowd:
                writer.write(half)
            own = [await asked(address, WHOLE) for _ in range(3)]
            quiet.write(WHOLE)
            own.append(await asyncio.wait_for(kept.read(), PATIENCE))
            for _, writer in [(kept, quiet), *crowd]:
                writer.close()
            return own

    assert all(answer.startswith(b"HTTP/1.1 200") for answer in asyncio.run(crowded()))


def test_a_stranger_s_body_is_not_waited_for(monkeypatch):
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/health", "method": "POST", "headers": [], "query_string": b""}
    asyncio.run(asyncio.wait_for(request_checks.Gate(answered, token="x" * 20)(scope, receive, send), PATIENCE))
    assert sent[0]["status"] == 200
