"""The server as a node sees it: asked over HTTP how the run is, and whether it hears this node."""

from __future__ import annotations

import http.client
import json
import logging
import math
import ssl
import time

from fedpareto.config.errors import UserError
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto_flower.deploy import certificates
from fedpareto_flower.deploy.flower_proxy import NODE_HEADER, SCHEMA_HEADER, STATE
from fedpareto_flower.deploy.layout import NodeFolder

PULSE = 2.0
"""Seconds between two checks of the children and the server."""
PATIENCE = 10.0
"""Seconds that a request to the server may take."""

log = logging.getLogger("fedpareto.node")


class Server:
    """The server as a node sees it."""

    def __init__(self, home: NodeFolder) -> None:
        self.home = home
        self.is_there = True
        self._excuse = ""
        self.start = ""
        """Mark of the server's start that answered last."""
        self.answered = 0.0
        """Time of the last answer, in seconds since 1970."""
        self.silence = math.inf
        """Seconds since it heard this node's SuperNode; infinity: never."""
        self.certificate_ends = 0.0
        """Time at which the certificate that it showed ends."""
        self._schema = TableSchema.read(home.schema).fingerprint
        self._context: ssl.SSLContext | None = None
        self._key: certificates.Key | None = None
        if not home.insecure:
            self._key = certificates.load_key(home.key)
            try:
                self._context = ssl.create_default_context(cafile=home.authority)
            except OSError as problem:
                raise UserError(f"{home.authority} is not a certificate ({problem})") from None

    def wait(self) -> str:
        """The first status of a server that answers."""
        while not (word := self.ask()):
            time.sleep(PULSE)
        return word

    def ask(self) -> str:
        """The status of the run; empty without an answer. UserError if this node is refused."""
        before, self._excuse = (self.is_there, bool(self._excuse)), ""
        try:
            word = self._ask()
        except UserError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if why := self._hopeless(problem):
                raise UserError(why) from None
            word = ""
        self.is_there = bool(word)
        if (self.is_there, bool(self._excuse)) != before:
            how = "answers" if word else f"{self._excuse or 'does not answer'}; trying again until it does"
            log.info("the server at %s %s", self.home.server, how)
        return word

    def _ask(self) -> str:
        host, _, port = self.home.server.rpartition(":")
        if self._context is None or self._key is None:
            connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
            headers = {NODE_HEADER: str(self.home.client)}
        else:
            connection = http.client.HTTPSConnection(host, int(port), timeout=PATIENCE, context=self._context)
            headers = certificates.signed(self._key)
        try:
            connection.request("GET", STATE, headers=headers | {SCHEMA_HEADER: self._schema})
            self._look_at_certificate(connection)
            response = connection.getresponse()
            answer = _texts(response.read(10_000))
        finally:
            connection.close()
        if response.status == http.client.PRECONDITION_FAILED:
            raise UserError(f"the server at {self.home.server} refuses this node: {answer.get('fedpareto')}")
        if response.status != http.client.OK:
            self._excuse = f"does not take this node's requests now: {answer.get('fedpareto')}"
            return ""
        self.start, self.answered = answer.get("start", ""), time.time()
        self.silence = float(answer.get("silence") or math.inf)
        return answer.get("fedpareto", "")

    def _look_at_certificate(self, connection: http.client.HTTPConnection) -> None:
        if isinstance(connection.sock, ssl.SSLSocket):
            shown = connection.sock.getpeercert() or {}
            self.certificate_ends = float(ssl.cert_time_to_seconds(str(shown["notAfter"])))

    def _hopeless(self, problem: Exception) -> str | None:
        """Reason why a retry would not help; None if it may, as when the server is only away."""
        where = f"the server at {self.home.server}"
        if isinstance(problem, ssl.SSLCertVerificationError):
            why = problem.verify_message
            return f"the certificate of {where} is not accepted: {why} (authority: {self.home.authority})"
        if isinstance(problem, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return None  # It died in the middle of a response.
        if isinstance(problem, ssl.SSLError):
            return f"{where} does not speak TLS correctly ({problem.reason})"
        if self.home.insecure and _speaks_tls(self.home.server):
            return (
                f"{where} speaks TLS, and this node plain text: its folder is that of an insecure federation; "
                "ask the server's operator for one with a key and a certificate"
            )
        return None


def _texts(content: bytes) -> dict[str, str]:
    """The texts of a JSON object; ValueError if it is not one, as when another program answered."""
    try:
        entries = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(entries, dict):
        raise ValueError("not an object")
    return {name: value for name, value in entries.items() if isinstance(value, str) and value.isprintable()}


def _speaks_tls(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        ssl.get_server_certificate((host, int(port)), timeout=PATIENCE)
    except OSError:
        return False
    return True
