"""The service as its operators see it: real processes, tokens, logs, figures, and a stop that breaks nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto_serve.access_log import AccessLog, LogFormat
from fedpareto_serve.batching import Batcher
from fedpareto_serve.metrics import Counters, shared
from fedpareto_serve.predictions import Request, predict
from fedpareto_serve.server import Options, _Worker, _Workers
from processes import Python
from waiting import PATIENCE, until

_spec = importlib.util.spec_from_file_location("load", Path(__file__).parents[3] / "benchmarks" / "load.py")
load = importlib.util.module_from_spec(_spec)
sys.modules["load"] = load
_spec.loader.exec_module(load)

TOKEN = "a-token-of-this-test-1234567890"
QUESTION = {"rows": [{"x1": 1, "x2": 2}], "preference": [0.7, 0.3]}
STOPS, CONNECTIONS = 5, 48

# A server that is stopped again and again, at last with two workers. Forks of one process, so that torch is imported
# once for those with one.
FORKING = """
import os, sys
from pathlib import Path
from fedpareto_serve import server, service
for left in reversed(range(int(sys.argv[2]))):
    child = os.fork()
    if not child:
        options = server.Options(port=0, client=1, workers=1 if left else 2)
        server.serve(Path(sys.argv[1]), options, lambda address: print(os.getpid(), address, flush=True))
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


async def stop_under_load(pid, port):
    """Many clients ask as fast as they can; when all have answers, the server is told to stop."""
    tally = asyncio.create_task(
        load.load("127.0.0.1", port, load.post("/predict", json.dumps(QUESTION).encode()), CONNECTIONS, asyncio.Event())
    )
    async with httpx.AsyncClient(timeout=PATIENCE, base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(20):
            assert (await client.get("/ready")).status_code == 200
    os.kill(pid, signal.SIGTERM)
    return await tally


@pytest.mark.takes_long
def test_a_stop_under_load_breaks_no_request(praffl_run):
    command = [sys.executable, "-c", FORKING, str(praffl_run), str(STOPS)]
    with Python(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(STOPS):
            pid, address = process.stdout.readline().split()
            tally = asyncio.run(stop_under_load(int(pid), int(address.rsplit(":", 1)[1])))
            assert tally.broken == 0, f"{tally.broken} of {tally.answered}"
            assert tally.refused == CONNECTIONS, "everybody was told to go, and found nobody afterwards"
            assert set(tally.statuses) == {200}
            assert tally.answered >= CONNECTIONS
            assert process.stdout.readline().split() == ["ended", "0"]


def test_what_a_worker_failed_at_is_told_whatever_another_says_afterwards(tmp_path):
    listener = socket.socket()
    workers = _Workers(tmp_path, Options(workers=2), listener)
    says = []
    for number, is_alive in enumerate((False, True)):
        here, there = multiprocessing.Pipe()
        process = SimpleNamespace(
            is_alive=lambda is_alive=is_alive: is_alive, join=lambda: None, terminate=lambda: None, exitcode=0
        )
        workers._running[number] = _Worker(process, here, 0.0)
        says.append(there)
    first, second = workers._running.values()
    says[0].send("the log cannot be written")
    workers._listen_to(0, first)
    says[1].send(None)
    workers._listen_to(1, second)
    assert workers._problem == "the log cannot be written"
    assert listener.fileno() == -1, "nobody is served by half a service"


@contextmanager
def serving(run, *options, environment=None):
    command = [sys.executable, "-m", "fedpareto", "serve", str(run), "--port", "0", "--client", "1", *options]
    environment = {**os.environ, **(environment or {})}
    with Python(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = next((line for line in process.stderr if line.startswith("serving")), "")
            yield process, line.split()[-1]
        finally:
            process.kill()


def figures(text):
    """By name and labels; every line is a comment or a figure."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            name, value = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\})?) (\S+)', line).groups()
            found[name] = float(value)
    return found


def test_two_workers_with_a_token_are_one_service(praffl_run, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    log = tmp_path / "access.log"
    options = ("--workers", "2", "--token-file", str(tmp_path / "token"), "--access-log", str(log))
    with serving(praffl_run, *options, "--log-format", "json", "--drain", "60") as (process, address):
        with httpx.Client(timeout=PATIENCE, base_url=address) as anybody:
            assert anybody.post("/predict", json=QUESTION).status_code == 401
            assert anybody.get("/metrics").status_code == 401
            assert anybody.get("/health").json() == {"status": "ok"}
            wrong = anybody.post("/predict", json=QUESTION, headers={"authorization": f"Bearer {TOKEN}x"})
            assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, "Bearer")
        port = int(address.rsplit(":", 1)[1])
        request = load.post("/predict", json.dumps(QUESTION).encode(), TOKEN)

        async def some():
            enough = asyncio.Event()
            enough.set()
            return await load.load("127.0.0.1", port, request, 40, enough)

        answered = asyncio.run(some()).answered
        assert answered == 40
        with httpx.Client(timeout=PATIENCE, base_url=address, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            assert client.get("/health").json()["columns"] == {"x1": "number", "x2": "number"}
            found = figures(client.get("/metrics").text)
            assert found['fedpareto_requests_total{path="/predict",status="200"}'] == answered
            assert found['fedpareto_requests_total{path="/predict",status="401"}'] == 2
            assert found["fedpareto_rows_total"] == answered
            assert found["fedpareto_batch_rows_sum"] == answered
            assert found["fedpareto_requests_in_flight"] == 1, "the one that asks"
            assert found["fedpareto_workers"] == 2
            assert client.get("/ready").json() == {"status": "ready"}
            process.terminate()
            answers: list[httpx.Response] = []

            def drains() -> bool:  # Once the signal has arrived at the worker that answers; the other may be later.
                answers.append(client.get("/ready"))
                return answers[-1].status_code == 503

            until(drains)
            draining = answers[-1]
            assert draining.json() == {"status": "draining"}
            assert draining.headers["connection"] == "close"
            assert client.post("/predict", json=QUESTION).status_code == 200
        process.terminate()  # Who asks twice is in a hurry.
        rest = process.stderr.read()
        assert process.wait() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    asked = [line for line in lines if (line["path"], line["status"]) == ("/predict", 200)]
    assert [line["rows"] for line in asked] == [1] * (answered + 1)
    assert set(lines[0]) == {"time", "address", "method", "path", "status", "ms", "rows"}
    assert TOKEN not in log.read_text() + rest
    assert "Traceback" not in rest


@pytest.mark.parametrize("kind", ["praffl_run", "fedpref_run"])
def test_requests_that_come_together_are_answered_as_if_each_came_alone(kind, request):
    model = fedpareto.load(request.getfixturevalue(kind)).conditioned(1)
    stream = np.random.default_rng(0)
    requests = [
        Request([{"x1": x, "x2": -x} for x in stream.standard_normal(count).tolist()], preference)
        for count, preference in ((1, [0.2, 0.8]), (3, [1, 0]), (2, [[0.5, 0.5], [0, 1]]), (1, [0.9, 0.1]))
    ]
    wrong = {2: Request([{"x1": "many", "x2": 1}], [0.5, 0.5]), 5: Request([{"x1": 1, "x2": 1}], [0.5, 0.6])}
    for place, one in wrong.items():
        requests.insert(place, one)
    batches = []

    async def together():
        batcher = Batcher(lambda *sizes: batches.append(sizes))
        return await asyncio.gather(*[batcher.predict(model, one) for one in requests], return_exceptions=True)

    for place, (one, found) in enumerate(zip(requests, asyncio.run(together()), strict=True)):
        if place in wrong:
            with pytest.raises(UserError) as alone:
                predict(model, one.rows, one.preference)
            assert str(found) == str(alone.value)
            continue
        alone = predict(model, one.rows, one.preference)
        np.testing.assert_allclose(found.probabilities, alone.probabilities, atol=1e-6)
        assert found.decisions.tolist() == alone.decisions.tolist()
        assert found.served_by == alone.served_by
    right = [one for place, one in enumerate(requests) if place not in wrong]
    assert batches == [(len(right), sum(len(one.rows) for one in right))], "what was refused is not counted"


def test_what_several_processes_count_is_added():
    table = shared(2)
    first, second = Counters(table, 0), Counters(table, 1)
    for counters, status in ((first, 200), (second, 200), (second, 418)):
        counters.begin()
        counters.end("/predict", status, 0.003, rows=2)
    second.begin()
    second.end("/../etc", 404, 7.0, rows=0)
    first.begin()
    found = figures(second.text({"problem": 'a "b"\\'}))
    assert found['fedpareto_requests_total{path="/predict",status="200"}'] == 2
    assert found['fedpareto_requests_total{path="/predict",status="other"}'] == 1
    assert found['fedpareto_requests_total{path="other",status="404"}'] == 1
    assert found["fedpareto_rows_total"] == 6
    assert found["fedpareto_requests_in_flight"] == 1
    name = "fedpareto_request_duration_seconds"
    assert found[f'{name}_bucket{{path="/predict",le="0.0025"}}'] == 0
    assert found[f'{name}_bucket{{path="/predict",le="0.005"}}'] == 3
    assert found[f'{name}_bucket{{path="/predict",le="+Inf"}}'] == found[f'{name}_count{{path="/predict"}}'] == 3
    assert found[f'{name}_sum{{path="/predict"}}'] == pytest.approx(0.009)
    assert found[f'{name}_bucket{{path="other",le="5"}}'] == 0
    again = Counters(table, 0)  # Of a process that died while it answered, what it had counted stays.
    assert figures(again.text({"problem": "table"}))["fedpareto_rows_total"] == 6
    assert figures(again.text({"problem": "table"}))["fedpareto_requests_in_flight"] == 0


def test_no_path_can_pretend_to_be_a_line_of_the_log(tmp_path):
    scope = {
        "client": ("10.0.0.1", 5),
        "method": "GET",
        "path": "/a b\n2026 127.0.0.1 GET / 200",
        "query_string": b"x=1",
    }
    for form in LogFormat:
        AccessLog(str(tmp_path / form), form).write(scope, 404, 0.0125, 0)
        (line,) = (tmp_path / form).read_text().splitlines()
        assert "/a%20b%0A2026%20127.0.0.1%20GET%20/%20200" in line
    assert (tmp_path / "text").read_text().split()[1:] == [
        *("10.0.0.1", "GET", "/a%20b%0A2026%20127.0.0.1%20GET%20/%20200", "404", "12.5", "0")
    ]
