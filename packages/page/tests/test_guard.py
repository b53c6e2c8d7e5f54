"""Who may ask the page what: a table of requests, sent to the real process."""

from __future__ import annotations

import http.client
import os
import signal
import stat
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.responses import PlainTextResponse

from browsing import apart
from fedpareto_page import access
from fedpareto_page.access import POLICY, Guard

OURS = {"content-type": "application/json", "x-fedpareto": "page"}


@pytest.fixture(scope="module")
def server(page_server, tmp_path_factory):
    return page_server([tmp_path_factory.mktemp("runs")], "--port", "0", "--allow-host", "page.example")


def ask(server, path, method="GET", known=True, host=None, body=None, **headers):
    """The answer to one request, exactly as it is given here: no client that cleans up a path."""
    place = urlsplit(server.base)
    connection = http.client.HTTPConnection(place.hostname, place.port)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if known:
        named["cookie"] = "; ".join(f"{name}={value}" for name, value in server.cookies.items())
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("host", host or place.netloc)
    for name, value in named.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
    answer.text = "" if is_endless else answer.read().decode()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("localhost:8000", 200),
        ("LOCALHOST.", 200),
        ("[::1]:80", 200),
        ("page.example", 200),
        ("evil.example", 421),
        ("evil.example:127.0.0.1", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("192.168.0.1", 421),
        ("", 421),
    ],
)
def test_only_names_of_this_machine_and_those_allowed_are_known(server, host, status):
    port = host.rpartition(":")[2]
    cookie = f"fedpareto-{port if port.isdecimal() else 80}={server.token}"
    assert ask(server, "/", host=host or " ", known=False, cookie=cookie).status == status


@pytest.mark.parametrize(
    ("path", "known", "status"),
    [
        ("/", False, 401),
        ("/fronts", False, 401),
        ("/api/runs", False, 401),
        ("/api/stream", False, 401),
        ("/static/main.js", False, 401),
        ("/nothing/here", False, 401),
        ("/?token=wrong", False, 401),
        ("/?token=", False, 401),
        ("/", True, 200),
        ("/fronts?runs=4f1c", True, 200),
        ("/run/4f1c0a2b", True, 200),
        ("/static/main.js", True, 200),
        ("/static/style.css", True, 200),
        ("/api/stream", True, 200),
        ("/api/runs/nothing", True, 404),
        ("/api/nothing", True, 404),
        ("/static/..%2fapp.py", True, 404),
        ("/static/../app.py", True, 404),
        ("/static/%2e%2e/%2e%2e/errors.py", True, 404),
        ("/static//etc/passwd", True, 404),
        ("/static/screens", True, 404),
        ("/static/no.js", True, 404),
        ("/..%2f..%2fetc%2fpasswd", True, 404),
        ("/run/..", True, 404),
        ("/api/runs/..%2f..%2fetc", True, 404),
    ],
)
def test_what_a_reader_gets(server, path, known, status):
    answer = ask(server, path, known=known)
    assert answer.status == status
    assert status not in (401, 404) or len(answer.text.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", OURS, 404),
        ("POST", OURS | {"sec-fetch-site": "same-origin"}, 404),
        ("POST", OURS | {"content-type": "application/json; charset=utf-8"}, 404),
        ("POST", OURS | {"sec-fetch-site": "cross-site"}, 403),
        ("POST", OURS | {"sec-fetch-site": "same-site"}, 403),
        ("POST", {"content-type": "application/json"}, 403),
        ("POST", OURS | {"content-type": "text/plain"}, 403),
        ("POST", OURS | {"content-type": "application/x-www-form-urlencoded"}, 403),
        ("POST", {"x-fedpareto": "page"}, 403),
        ("POST", {}, 403),
        ("PUT", {}, 403),
        ("DELETE", {}, 403),
        ("OPTIONS", {"origin": "https://evil.example", "access-control-request-method": "POST"}, 403),
    ],
)
def test_only_the_page_itself_changes_anything(server, method, headers, status):
    answer = ask(server, "/api/there-is-none", method, body=b"{}", **headers)
    assert answer.status == status
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert ask(server, "/api/there-is-none", method, known=False, body=b"{}", **headers).status == 401


def test_a_body_has_a_limit(server):
    assert ask(server, "/api/rows", "POST", body=b" " * (16 * 2**20 + 1), **OURS).status == 413


@pytest.mark.parametrize("path", ["/", "/api/nothing", "/static/main.js", "/static/no.js"])
@pytest.mark.parametrize("known", [True, False])
def test_every_answer_has_the_headers(server, path, known):
    headers = ask(server, path, known=known).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if known and path in ("/", "/static/main.js") else "no-store")
    assert headers["server"] is None


def test_scripts_and_styles_have_types_with_which_a_browser_takes_them(server):
    assert ask(server, "/static/main.js").headers["content-type"].startswith("text/javascript")
    assert ask(server, "/static/style.css").headers["content-type"].startswith("text/css")


def test_the_token_leaves_the_address_at_once_and_is_a_cookie_from_then_on(server):
    answer = ask(server, f"/fronts?runs=a%26b&token={server.token}&x=1", known=False)
    assert answer.status == 303
    assert answer.headers["location"] == "/fronts?runs=a%26b&x=1"
    (name, value), *rest = [part.strip().split("=") for part in answer.headers["set-cookie"].split(";")]
    assert {name: value} == server.cookies
    assert {part[0].lower(): part[-1].lower() for part in rest} == {
        "httponly": "httponly",
        "path": "/",
        "samesite": "lax",
    }
    elsewhere = ask(server, f"//evil.example?token={server.token}", known=False)
    assert not elsewhere.headers["location"].startswith("//")


def test_the_cookie_is_named_by_the_port_that_the_browser_sees(server):
    answer = ask(server, f"/?token={server.token}", known=False, host="localhost:4000")
    assert answer.headers["set-cookie"].startswith("fedpareto-4000=")
    assert ask(server, "/", known=False, host="localhost:4000", cookie=f"fedpareto-4000={server.token}").status == 200
    assert ask(server, "/", host="localhost:4000").status == 401


def visited(guard, path, **cookies):
    """The answer to one request."""

    async def asked():
        transport = httpx.ASGITransport(guard)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver", cookies=cookies) as client:
            return await client.get(path)

    return apart(asked())


def test_a_ticket_is_good_for_one_visit():
    guard = Guard(PlainTextResponse("in"), "t" * 32, ("testserver",))
    ticket = guard.ticket()
    answer = visited(guard, f"/?token={ticket}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert dict(answer.cookies) == {"fedpareto-80": "t" * 32}
    assert visited(guard, "/", **answer.cookies).text == "in"
    assert visited(guard, f"/?token={ticket}").status_code == 401


def test_nothing_is_printed_but_the_address_and_the_end(page_server, tmp_path):
    server = page_server([tmp_path], "--port", "0")
    for path in ("/?token=wrong", f"/?token={server.token}", "/api/nothing", "/%0aforged"):
        ask(server, path, known=False)
    assert server.end(signal.SIGTERM) == 0
    lines = server.log.read_text(encoding="utf-8").splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["the", "the"]
    assert [server.token in line for line in lines] == [True, False]


def test_a_page_that_is_started_again_on_its_port_has_its_token_and_any_other_has_not(page_server, tmp_path):
    first = page_server([tmp_path], "--port", "0")
    port = str(urlsplit(first.url).port)
    first.end()
    second = page_server([tmp_path], "--port", port)
    assert second.token != first.token, "a port that nobody asked for is nobody's"
    second.end(signal.SIGKILL)
    assert page_server([tmp_path], "--port", port).token == second.token


def test_a_kept_token_is_private_and_not_used_for_ever(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    token = access.token_for(1)
    (file,) = (tmp_path / "fedpareto").iterdir()
    assert access.token_for(1) == token == file.read_text(encoding="utf-8")
    assert access.token_for(2) != token
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    os.utime(file, (0, 0))
    assert access.token_for(1) != token
    file.write_text("x", encoding="utf-8")
    assert len(access.token_for(1)) == 32
    file.parent.chmod(0o755)
    assert access.token_for(1) != access.token_for(1), "a folder that others can read is not used"
