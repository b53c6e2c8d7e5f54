"""A node's process: checks its table, then keeps a SuperNode and a worker running until the federation is finished."""

from __future__ import annotations

import http.client
import json
import logging
import math
import secrets
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from torch import Tensor

from fedpareto.core.federation import Federation
from fedpareto.deploy import certificates, logs, status
from fedpareto.deploy.gate import NODE_HEADER, SCHEMA_HEADER, STATE
from fedpareto.deploy.layout import NodeFolder
from fedpareto.deploy.signals import terminable
from fedpareto.deploy.status import FINISHED
from fedpareto.engines.flower import wire
from fedpareto.engines.flower.launch import LOOPBACK, Processes, free_ports, program
from fedpareto.engines.flower.node import MODEL_FILE, Node
from fedpareto.errors import BadPreference, UserError
from fedpareto.experiments.flower import settings_of
from fedpareto.experiments.keeping import keep_servable
from fedpareto.files import write_atomically, write_secret
from fedpareto.moo import preferences
from fedpareto.problems.fairness.schema import TableSchema, unknown_values
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.fairness.sources import Source

SCHEMA_SUBJECT = "the schema of the table"
"""What server and node disagree on, in the server's log, if their schemas differ."""
PULSE = 2.0
"""Seconds between two checks of the children and the server."""
PATIENCE = 10.0
"""Seconds that a request to the server may take."""
PAUSE = 5.0
"""Seconds before a child that ended is restarted."""
SILENT = 60.0
"""Seconds after which a SuperNode that the server does not hear is started again; it reports every 30 at the least."""
UNHEARD = 120.0
"""The same from its start, until it is heard for the first time: a busy machine takes long to load Flower."""
DAY = 86_400.0
"""Seconds between two checks of the certificates."""
PROGRESS = "progress.json"
"""The file in which the worker reports its last round to the node."""

log = logging.getLogger("fedpareto.node")
worker_log = logging.getLogger("fedpareto.flower.rounds")
"""The worker's logger, which shows the messages under fedpareto.flower."""


def up(
    home: NodeFolder, data: Source, preference: Sequence[float], log_to: logs.LogOptions = logs.PLAIN
) -> Path | None:
    """Serves until the federation is finished; the file with this node's model, if it got one.

    The caller holds the folder (see status.hold_node).
    """
    warnings = logs.begin(log_to)
    service = _Service(home, data, preference)
    with terminable(), service.keep_status(warnings):
        _report_unknown_values(home, data)
        return service.run()


def is_finished(home: NodeFolder) -> bool:
    """Whether this node has done its part: the server told it so, and is not there again with an unfinished run (of a
    backup that was restored).
    """
    if status.NodeStatus.load(home.folder).state != FINISHED:
        return False
    try:
        return Server(home).ask() in ("", FINISHED)
    except UserError:
        return True  # Another server is at that address by now, or the certificate has expired.


def kept_model(home: NodeFolder) -> Path | None:
    """The file with this node's model, if it got one."""
    path = home.folder / MODEL_FILE
    return path if path.exists() else None


# -- before joining ------------------------------------------------------------------------------------------------


def table(data: Path | None, sql: str, query: str) -> Source:
    """The party's table as the options name it."""
    found = Source("" if data is None else str(data), sql, query)
    if not found:
        raise UserError("name your table: --data FILE, or --sql URL --query TEXT")
    return found


def table_problems(home: NodeFolder, data: Source, ignored: Sequence[str] = ()) -> list[str]:
    """Why a table does not fit the federation, a line each; empty if it does."""
    problem = _problem(home, data)
    found = problem.table_schema.problems(data.of_party(), ignored)
    if found:
        return found
    try:
        for seed in home.spec().seeds:
            problem.data(1, seed)
    except UserError as trouble:
        return [str(trouble)]
    return []


def read_preference(home: NodeFolder, given: str) -> list[float]:
    """A preference as it was typed, or from the file of that name; one weight for each objective."""
    path = Path(given).expanduser()
    text = path.read_text(encoding="utf-8") if path.is_file() else given
    objectives = [objective.name for objective in home.spec().problem.objectives]
    try:
        weights = [float(part) for part in text.replace(";", ",").replace("\n", ",").split(",") if part.strip()]
    except ValueError:
        weights = []
    try:
        return [float(weight) for weight in preferences.check([weights], 1, len(objectives))[0]]
    except BadPreference:
        # The weights themselves are private, even in an error message that ends up in a log; their sum is not.
        is_sum = len(weights) == len(objectives) and all(0 <= weight < np.inf for weight in weights)
        raise UserError(
            f"the preference is not valid{f' (its weights sum to {sum(weights):.9g})' if is_sum else ''}: it is a "
            f"file, or {len(objectives)} weights that add up to 1, for {', '.join(objectives)}, such as 0.7,0.3"
        ) from None


def _problem(home: NodeFolder, data: Source) -> Silo:
    problem = home.spec().problem
    assert isinstance(problem, Silo), "load_spec has checked it"
    return replace(problem, schema=str(home.schema), **asdict(data))


def _report_unknown_values(home: NodeFolder, data: Source) -> None:
    for column, rows in unknown_values(_problem(home, data).table_schema, data.of_party()).items():
        log.warning("a value of '%s' is not in the schema and counts as 'other'; number of such rows: %d", column, rows)


# -- the node itself, in the worker's process ----------------------------------------------------------------------


@dataclass
class SiloNode(Node):
    """A node that also reports the schema of its table."""

    schema: str = field(default="")
    """Its fingerprint."""

    def hello(self, question: RecordDict) -> RecordDict:
        """See Node."""
        said = wire.decode_hello(super().hello(question))
        return wire.encode_hello(replace(said, schema={**said.schema, SCHEMA_SUBJECT: self.schema}))

    def answer(self, content: RecordDict) -> RecordDict:
        """See Node; what was done is logged, once."""
        before, began = self._last, time.perf_counter()
        answer = super().answer(content)
        if self._last is not before:
            self._note(content, answer, time.perf_counter() - began)
        return answer

    def _note(self, content: RecordDict, answer: RecordDict, seconds: float) -> None:
        """A line for each exchange: only objectives that the server receives too; nothing else about the rows."""
        envelope, results = wire.decode_envelope(content, self.limits), wire.decode_answer(answer).results
        if not envelope.jobs:
            return
        job = envelope.jobs[0]
        for failure in (failure for result in results for failure in result.failures):
            worker_log.warning("round %d: its reply was refused: %s", failure.round, failure.reason)
        what = "the run is over" if envelope.final else f"round {job.round}"
        if job.exchange and not envelope.final:
            what += f", exchange {job.exchange + 1}"
        sizes = f"{wire.size(content) / 1000:.1f} kB in, {wire.size(answer) / 1000:.1f} kB out"
        worker_log.info("%s: %.2f s; %s%s", what, seconds, self._objectives_of(results), sizes)
        if not envelope.final:
            write_atomically(self.folder / PROGRESS, json.dumps({"round": job.round}) + "\n")

    def _objectives_of(self, results: Sequence[wire.Result]) -> str:
        """Before and after local training, on test rows if there are any, the mean over the seeds."""
        parts = list(self.engine.split_names)
        part = parts.index("test") if "test" in parts else len(parts) - 1
        both = [
            [float(sum(one[part, number] for one in values) / len(values)) for values in _measured(results)]
            for number in range(len(self.problem.objectives))
        ]
        if not both[0]:
            return ""
        said = [
            f"{objective.name} {' → '.join(f'{value:.4f}' for value in values)}"
            for objective, values in zip(self.problem.objectives, both, strict=True)
        ]
        return f"{', '.join(said)} on its {parts[part]} rows; "


def _measured(results: Sequence[wire.Result]) -> list[list[Tensor]]:
    """The sent and the trained model's objectives, as far as measured."""
    sent = [result.sent for result in results if result.sent is not None]
    trained = [result.trained for result in results if result.trained is not None]
    return [values for values in (sent, trained) if values]


def make_node(config: Mapping[str, Any]) -> Node:
    """The node that a configuration describes; called in the worker's process."""
    home = NodeFolder.open(Path(config["folder"]))
    spec, problem = home.spec(), _problem(home, Source(**config["data"]))
    preference = np.array([config["preference"]])
    return SiloNode(
        federation=home.federation,
        client=home.client,
        algorithm=spec.algorithm,
        problem=problem,
        learner=spec.learner,
        federations=[Federation(seed, (home.client,), problem.data(1, seed), preference) for seed in spec.seeds],
        settings=settings_of(spec),
        folder=home.folder,
        options=spec.engine,
        faults=spec.faults,
        keep=keep_servable,
        schema=problem.table_schema.fingerprint,
    )


# -- the process ---------------------------------------------------------------------------------------------------


class _Service:
    """One `fedpareto node up`."""

    def __init__(self, home: NodeFolder, data: Source, preference: Sequence[float]) -> None:
        self.home, self.data, self.preference = home, data.resolved(), list(preference)
        self.server = Server(home)
        self.processes = Processes(home.folder / "logs", home.folder / "flower")
        self.secret = home.folder / "secret"
        self.status = status.NodeStatus.begin(state="checking the table", rounds=home.spec().rounds)
        self._joined, self._begun = "", 0.0
        self._read = 0

    def keep_status(self, warnings: logs.Memory) -> AbstractContextManager[None]:
        """Updates the status file, shortens the children's logs, and checks the certificates."""
        next_look = 0.0

        def refresh() -> None:
            nonlocal next_look
            self.status.answered, self.status.certificate_ends = self.server.answered, self.server.certificate_ends
            if (now := time.monotonic()) >= next_look and self.server.answered:
                next_look = now + DAY
                self._warn_of_certificates()
            self.status.round = _progress(self.home.folder)
            self.status.warnings = list(warnings.lines)

        return status.kept(self.status, self.home.folder, refresh)

    def _warn_of_certificates(self) -> None:
        if self.home.insecure:
            return
        for what, end in {
            "the server's certificate": self.server.certificate_ends,
            "the federation's authority, ca.pem,": certificates.end_of(self.home.authority),
        }.items():
            left = certificates.days_until(end)
            if left < certificates.SOON:
                log.warning("%s expires in %.0f days; tell the server's operator", what, left)

    def run(self) -> Path | None:
        """Until the server says that the run is finished."""
        log.info("the table fits; the server is at %s", self.home.server)
        self.status.state = "waiting for the server"
        if self.server.wait() == FINISHED:
            log.info("the federation is finished already")
            return self._model()
        try:
            self._start()
            self.status.state = "training"
            while self.server.ask() != FINISHED:
                self._tend()
                time.sleep(PULSE)
            self._pass_on()
            log.info("the federation is finished")
            return self._model()
        finally:
            self.processes.stop()

    def _model(self) -> Path | None:
        self.status.state = FINISHED
        return kept_model(self.home)

    def _start(self) -> None:
        self._joined, self._begun = self.server.start, time.monotonic()
        runtime = f"{LOOPBACK}:{free_ports(1)[0]}"
        self.processes.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.secret, secrets.token_hex(32).encode())
        config = {
            "fedpareto": f"{__name__}:{make_node.__name__}",
            "folder": str(self.home.folder),
            "data": asdict(self.data),
            "preference": self.preference,
        }
        plan = self.home.folder / "worker.json"
        write_secret(plan, json.dumps({"secret": str(self.secret), "nodes": {runtime: config}}).encode())
        self._read = self._worker_log.stat().st_size if self._worker_log.exists() else 0
        self.processes.start("supernode", self._supernode(runtime))
        self.processes.start("worker", [sys.executable, "-m", "fedpareto.engines.flower.worker", str(plan)])

    def _supernode(self, runtime: str) -> list[str]:
        host, port = runtime.split(":")
        isolation = ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]
        safety = ["--insecure"]
        if not self.home.insecure:
            safety = ["--root-certificates", str(self.home.authority)]
            safety += ["--auth-supernode-private-key", str(self.home.key)]
        place = ["--superlink", self.home.server, "--host", host, "--port", port]
        return [*program("flower-supernode"), *safety, *isolation, *place]

    def _tend(self) -> None:
        """Forwards the worker's messages, and restarts the children if one has ended or the server was restarted."""
        self._pass_on()
        ended = [name for name, process in self.processes.running.items() if process.poll() is not None]
        if self.server.start != self._joined:
            # Its Flower does not know our SuperNode, which may wait for hours for an answer of the old one.
            log.info("the server was restarted; joining again")
            self._start_again()
        elif ended:
            log.warning("%s ended; starting again in %g s (its log is in %s)", ended[0], PAUSE, self.processes.folder)
            self._start_again(PAUSE)
        elif self.server.is_there and is_lost(self.server.silence, time.monotonic() - self._begun):
            # Flower's SuperNode gives up for good when a connection breaks in the handshake, and its process stays.
            log.warning("the server answers, but does not hear the SuperNode; starting it again")
            self._start_again()

    @property
    def _worker_log(self) -> Path:
        return self.processes.folder / "worker.log"

    def _pass_on(self) -> None:
        """The worker's messages since the last check; then its log may be shortened."""
        self._read = _pass_on(self._worker_log, self._read)
        logs.bound(self.processes.folder)

    def _start_again(self, pause: float = 0.0) -> None:
        """Both: a SuperNode waits for the worker that took its task, and a worker for a SuperNode that is gone."""
        self.processes.stop()
        time.sleep(pause)
        self._start()


def is_lost(silence: float, age: float) -> bool:
    """Whether a SuperNode has to be started again: the server heard it `silence` seconds ago, it is `age` seconds
    old.
    """
    return silence > SILENT if silence < age else age > UNHEARD


class Server:
    """The server as a node sees it."""

    def __init__(self, home: NodeFolder) -> None:
        self.home = home
        self.is_there = True
        self.start = ""
        """Which start of the server answered last."""
        self.answered = 0.0
        """When it last did, in seconds since 1970."""
        self.silence = math.inf
        """Seconds since it heard this node's SuperNode; infinity: never."""
        self.certificate_ends = 0.0
        """When the certificate that it showed ends."""
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
        try:
            word = self._ask()
        except UserError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if why := self._hopeless(problem):
                raise UserError(why) from None
            word = ""
        if bool(word) != self.is_there:
            self.is_there = bool(word)
            how = "answers" if word else "does not answer; trying again until it does"
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
            return ""
        self.start, self.answered = answer.get("start", ""), time.time()
        self.silence = float(answer.get("silence") or math.inf)
        return answer.get("fedpareto", "")

    def _look_at_certificate(self, connection: http.client.HTTPConnection) -> None:
        if isinstance(connection.sock, ssl.SSLSocket):
            shown = connection.sock.getpeercert() or {}
            self.certificate_ends = float(ssl.cert_time_to_seconds(str(shown["notAfter"])))

    def _hopeless(self, problem: Exception) -> str | None:
        """Why a retry would not help, in words; None if it may, as when the server is only away."""
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
    entries = json.loads(content)
    if not isinstance(entries, dict):
        raise ValueError("not an object")
    return {name: value for name, value in entries.items() if isinstance(value, str)}


def _speaks_tls(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        ssl.get_server_certificate((host, int(port)), timeout=PATIENCE)
    except OSError:
        return False
    return True


def _progress(folder: Path) -> int:
    """The last round that the worker's process has done; 0 if there is none yet."""
    try:
        return int(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["round"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _pass_on(path: Path, position: int) -> int:
    """Logs the whole lines that were added to a child's log; returns how far it was read."""
    if not path.exists():
        return position
    if path.stat().st_size < position:
        position = 0  # It was shortened.
    with path.open("rb") as file:
        file.seek(position)
        added = file.read()
    whole = added[: added.rfind(b"\n") + 1]
    for line in whole.decode("utf-8", "replace").splitlines():
        for level in (logging.INFO, logging.WARNING):
            _, found, message = line.partition(f" {logging.getLevelName(level)} ")
            if found:
                log.log(level, "%s", message)
                break
    return position + len(whole)
