"""The HTTP service: the same answers as the model, 422 for what is wrong, and nothing that breaks it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import fedpareto
from fedpareto_serve import service
from fedpareto_serve.request_checks import MOST_BYTES
from processes import Python
from test_serving_models import BAD
from waiting import PATIENCE

FUZZ, FUZZ_OVER_A_SOCKET = 1_500, 100


class InProcess:
    """The real application without a socket; what it does not handle is raised here."""

    def __init__(self, app):
        from anyio.from_thread import start_blocking_portal

        self._portal = start_blocking_portal()
        self._portal_call = self._portal.__enter__().call
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")

    def request(self, *arguments, **options):
        return self._portal_call(lambda: self._client.request(*arguments, **options))

    def get(self, *arguments, **options):
        return self.request("GET", *arguments, **options)

    def post(self, *arguments, **options):
        return self.request("POST", *arguments, **options)

    def close(self):
        self._portal_call(self._client.aclose)
        self._portal.__exit__(None, None, None)


@pytest.fixture(scope="module")
def praffl(praffl_run):
    client = InProcess(service.app_of(fedpareto.load(praffl_run)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def fedpref(fedpref_run):
    client = InProcess(service.app_of(fedpareto.load(fedpref_run)))
    yield client
    client.close()


ROWS = [{"x1": 1, "x2": 2}, {"x1": "-3", "x2": 0.5, "label": "ignored"}]


def test_predictions_are_the_models_own(praffl, praffl_run):
    answer = praffl.post("/predict", json={"rows": ROWS, "preference": [0.7, 0.3], "client": 1}).json()
    expected = fedpareto.load(praffl_run).conditioned(1)([[1.0, 2.0], [-3.0, 0.5]], [0.7, 0.3]).tolist()
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)
    assert answer["decisions"] == [int(p > 0.5) for p in expected]
    each = praffl.post("/predict", json={"rows": ROWS, "preference": [[0.7, 0.3], [0, 1]], "client": 1}).json()
    assert each["probabilities"][0] == pytest.approx(expected[0], abs=1e-6)
    assert each["served_by"] == [None, None]


def test_a_chosen_model_is_named(fedpref):
    answer = fedpref.post("/predict", json={"rows": ROWS, "preference": [[0.7, 0.3], [0, 1]]}).json()
    assert [served["client"] for served in answer["served_by"]] == [3, 0]
    assert answer["served_by"][0]["preference"] == [0.75, 0.25]
    assert set(answer["served_by"][0]["objectives"]) == {"accuracy", "demographic-parity"}


def test_the_front_and_health(praffl, fedpref):
    assert len(praffl.get("/front", params={"client": 2}).json()["points"]) == 101
    assert [point["client"] for point in fedpref.get("/front").json()["points"]] == [0, 1, 2, 3, 4]
    health = praffl.get("/health").json()
    assert health["status"] == "ok"
    assert health["clients"] == [0, 1, 2]
    assert health["columns"] == {"x1": "number", "x2": "number"}
    assert health["outputs"] == [{"name": "y", "classes": ["0", "1"], "measure": "probability"}]


def test_the_description_needs_nothing_from_elsewhere(praffl):
    paths = praffl.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/predict", "/front", "/health", "/ready", "/metrics"}
    page = praffl.get("/docs").text
    assert all(path in page for path in paths)
    assert "http" not in page


@pytest.mark.parametrize(("preference", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_preference_is_422(praffl, preference, words):
    rows = [ROWS[0]] * 50
    question = json.dumps({"rows": rows, "preference": preference, "client": 0})
    answer = praffl.post("/predict", content=question, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    if all(isinstance(entry, float) for entry in preference or [None]):
        assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": [{"x1": 1, "y2": 2}]}, "row 1 has no column 'x2'; is 'y2' meant?"),
        ({"rows": [{"x1": 1, "x2": "many"}]}, "row 1: 'x2' is 'many', not a number"),
        ({"rows": [{"x1": 1, "x2": [1]}]}, "body.rows.0.x2"),
        ({"rows": []}, "body.rows: List should have at least 1 item"),
        ({"client": 9}, "there is no client 9"),
        ({"client": None}, "choose a client: 0, 1, 2"),
        ({"colour": "red"}, "body.colour: Extra inputs are not permitted"),
    ],
)
def test_a_bad_question_is_422(praffl, change, words):
    question = {"rows": ROWS, "preference": [0.7, 0.3], "client": 0} | change
    answer = praffl.post("/predict", json=question)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_a_service_for_one_client_answers_for_no_other(praffl_run):
    client = InProcess(service.app_of(fedpareto.load(praffl_run), client=2))
    assert client.post("/predict", json={"rows": ROWS, "preference": [1, 0]}).status_code == 200
    refused = client.post("/predict", json={"rows": ROWS, "preference": [1, 0], "client": 1})
    assert (refused.status_code, refused.json()["detail"]) == (422, "this service answers for client 2 only")
    client.close()


def test_a_question_that_is_too_long_is_413(praffl):
    answer = praffl.post("/predict", content=b"[" * (MOST_BYTES + 1))
    assert answer.status_code == 413
    assert "longer than" in answer.json()["detail"]


# -- anything at all -----------------------------------------------------------------------------------------------

HEADERS = [
    {"content-type": "application/json"},
    {"content-type": "text/plain"},
    {},
    {"content-type": "application/json; x"},
]
STRANGE = [
    None,
    True,
    0,
    -1,
    1,
    0.5,
    1e308,
    -1e308,
    10**400,
    "",
    "a",
    "\ud800",
    "\x00",
    "NaN",
    "∞",
    [],
    {},
    [[]],
    [None],
]


def anything(stream, depth=0):
    kind = stream.randrange(8 if depth < 3 else 5)
    if kind == 5:
        return [anything(stream, depth + 1) for _ in range(stream.randrange(4))]
    if kind in (6, 7):
        names = ["rows", "preference", "client", "x1", "x2", "", "\udfff", "é"]
        return {stream.choice(names): anything(stream, depth + 1) for _ in range(stream.randrange(4))}
    return stream.choice([*STRANGE, float("nan"), float("inf"), stream.random(), stream.getrandbits(70)])


def question(stream):
    """A question that is good but for one or two things."""
    count = stream.randrange(1, 4)
    good = {"rows": [{"x1": 1.0, "x2": 2} for _ in range(count)], "preference": [0.5, 0.5], "client": 1}
    for _ in range(stream.randrange(1, 3)):
        part = stream.choice(["rows", "preference", "client", "row", "value", "weight", "more"])
        if part == "row":
            good["rows"] = [anything(stream)]
        elif part == "value":
            good["rows"] = [{"x1": anything(stream, 2), "x2": anything(stream, 2)}]
        elif part == "weight":
            good["preference"] = [anything(stream, 2) for _ in range(stream.randrange(4))]
        elif part == "more":
            good[stream.choice(["a", "\ud800", "rows "])] = anything(stream)
        else:
            good[part] = anything(stream)
    return good


def body(stream):
    kind = stream.randrange(6)
    if kind == 0:
        return stream.randbytes(stream.randrange(60))
    if kind == 1:
        return stream.choice(
            [b"[" * 100_000, b'{"rows":' * 5_000, b"1" * 5_000, b'"\\ud800"', b"{", b"nul", b"\xff", b""]
        )
    whole = json.dumps(anything(stream) if kind == 2 else question(stream)).encode()
    if kind == 3:
        place = stream.randrange(len(whole))
        return whole[:place] + stream.randbytes(stream.randrange(3)) + whole[place + 1 :]
    return whole


def ask(client, stream):
    path = stream.choice(
        ["/predict"] * 8 + ["/front", "/health", "/docs", "/nowhere", "/front?client=%FF", "/front?client=1e9"]
    )
    method = stream.choice(["POST"] * 8 + ["GET", "PUT", "DELETE"])
    return client.request(method, path, content=body(stream), headers=stream.choice(HEADERS[:1] * 5 + HEADERS))


def test_no_question_breaks_the_service(praffl, fedpref):
    stream, codes = random.Random(0), set()
    for number in range(FUZZ):
        answer = ask(praffl if number % 2 else fedpref, stream)  # An exception that nobody handles is raised here.
        codes.add(answer.status_code)
        assert answer.status_code < 500, answer.text
        if answer.headers["content-type"] == "application/json":
            json.loads(answer.text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert {200, 404, 405, 422} <= codes
    assert praffl.get("/health").status_code == 200


def test_over_a_real_socket(praffl_run, tmp_path):
    command = [Path(sys.executable).with_name("fedpareto"), "serve", praffl_run, "--port", "0", "--client", "1"]
    with Python(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            address = line.split()[-1]
            assert address.startswith("http://127.0.0.1:"), line
            stream = random.Random(1)
            with httpx.Client(base_url=address, timeout=PATIENCE) as client:
                for _ in range(FUZZ_OVER_A_SOCKET):
                    assert ask(client, stream).status_code < 500
                answer = client.post("/predict", json={"rows": ROWS, "preference": [0.7, 0.3]})
                assert len(answer.json()["probabilities"]) == 2
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert "Traceback" not in rest
