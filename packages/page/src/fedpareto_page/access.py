"""Access to the page: the name a request came under, its token, and where changes come from.

A page in the browser can send requests to servers of this machine. Names of this machine alone are taken, so that no
site can give us a name of its own; whoever does not know the token gets nothing; and only our own page changes things.
The token for a port is kept in a private file, so that open tabs go on when the page is started again.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto_serve.request_checks import digest_of, host_of, said, whole_request

TOKEN = "token"
"""The parameter of the first address."""
BYTES = 24
DAYS = 7
"""Days without use after which a token is not used again."""
SHAPE = re.compile(rf"[A-Za-z0-9_-]{{{BYTES * 4 // 3}}}")
OURS = ("x-fedpareto", "page")
"""A header that a form or a foreign page cannot send."""
READING = ("GET", "HEAD")
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",  # A page alone in its process may ask how much memory it holds.
    "cross-origin-resource-policy": "same-origin",  # Another port of this machine is the same site to a browser.
}


class Guard:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        self.app = app
        self._token, self._digest = token, digest_of(token.encode())
        self._tickets: set[str] = set()
        self._hosts = frozenset(host.lower() for host in hosts)

    def ticket(self) -> str:
        """A stand-in for the token in one address, good for one visit."""
        one = secrets.token_urlsafe()
        self._tickets.add(one)
        return one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self._first(scope) or self._stranger(scope) or _foreign(scope)
        if answer is not None:
            await answer(scope, receive, answering)
            return
        arrived = await whole_request(scope, receive, answering)
        if arrived is not None:
            await self.app(scope, arrived, answering)

    def _refusal(self, scope: Scope) -> Response | None:
        """Refuse other names: a site can give its own name this machine's address; the browser then takes us for its
        server.
        """
        if host_of(scope) in self._hosts:
            return None
        return said(421, "this page is not known under this name; see fedpareto page --allow-host")

    def _first(self, scope: Scope) -> Response | None:
        """Redirect the address with the token: the browser keeps it as a cookie, and the address loses it."""
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == TOKEN]
        if not tokens or scope["method"] not in READING or not self._admits(tokens[-1]):
            return None
        rest = urlencode([(name, value) for name, value in given if name != TOKEN])
        path = "/" + scope["path"].lstrip("/")  # Two slashes would be another host.
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(_cookie_name(scope), self._token, httponly=True, samesite="lax")
        return answer

    def _stranger(self, scope: Scope) -> Response | None:
        cookies = cookie_parser(Headers(scope=scope).get("cookie", ""))
        if self._is_token(cookies.get(_cookie_name(scope), "")):  # No token is empty.
            return None
        sentence = "this page needs the whole address that fedpareto page has printed, with its token"
        if scope["path"].startswith("/api/"):
            return said(401, sentence)
        return PlainTextResponse(f"T{sentence[1:]}.\n", 401)

    def _admits(self, text: str) -> bool:
        if text in self._tickets:
            self._tickets.discard(text)
            return True
        return self._is_token(text)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(digest_of(text.encode("utf-8", "replace")), self._digest)


def _foreign(scope: Scope) -> Response | None:
    """Refuse changes that come from a form or from another site."""
    if scope["method"] in READING:
        return None
    headers = Headers(scope=scope)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_ours = headers.get("sec-fetch-site", "none") in ("same-origin", "none") and headers.get(OURS[0]) == OURS[1]
    if kind == "application/json" and is_ours:
        return None
    return said(403, "only the page itself may ask for changes")


def _cookie_name(scope: Scope) -> str:
    """Name the cookie with the port that the browser knows, which need not be ours behind a tunnel: cookies are the
    same for all ports.
    """
    port = Headers(scope=scope).get("host", "").rpartition(":")[2]
    return f"fedpareto-{port if port.isdecimal() else 80}"


def new_token() -> str:
    return secrets.token_urlsafe(BYTES)


def token_for(port: int) -> str:
    """The token with which the page was last on this port, or a new one; where none can be kept, a new one."""
    try:
        file = _private_folder() / f"page-{port}.token"
    except OSError:
        return new_token()
    token = _kept_token(file) or new_token()
    with suppress(UserError):
        write_atomically(file, token)
    return token


def _kept_token(file: Path) -> str:
    """The token in a file; empty without one, or if it is too old or damaged."""
    try:
        text, age = file.read_text(encoding="utf-8"), time.time() - file.stat().st_mtime
    except (OSError, UnicodeDecodeError):
        return ""
    return text if SHAPE.fullmatch(text) and age < DAYS * 86_400 else ""


def _private_folder() -> Path:
    """A folder that only this user can read; OSError if there is none.

    The system's own folder for this is emptied when the user logs out. In the common folder for temporary files another
    user could have made one of our name: then it is not ours.
    """
    own = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(own) / "fedpareto" if own else Path(tempfile.gettempdir()) / f"fedpareto-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if user != "" and (not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077):
        raise PermissionError(f"{folder} is not private")
    return folder
