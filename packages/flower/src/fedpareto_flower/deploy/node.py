"""A node's process: checks its table, then keeps a SuperNode and a worker running until the federation is finished."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedpareto.config.errors import DAMAGE, BadPreference, UserError
from fedpareto.config.files import python, write_secret
from fedpareto.moo import preferences
from fedpareto.problems.fairness.schema import unknown_values
from fedpareto.problems.fairness.sources import Source
from fedpareto_flower.deploy import certificates, logs, status
from fedpareto_flower.deploy.layout import NodeFolder
from fedpareto_flower.deploy.server_client import PULSE, Server
from fedpareto_flower.deploy.silo_node import PROGRESS, make_node, problem_of
from fedpareto_flower.deploy.status import FINISHED, terminable
from fedpareto_flower.engine.launch import LOOPBACK, Processes, free_ports, program
from fedpareto_flower.engine.node import MODEL_FILE

PAUSE = 5.0
"""Seconds before a child that ended is restarted."""
SILENT = 60.0
"""Seconds after which a SuperNode that the server does not hear is started again; it reports every 30 at the least."""
UNHEARD = 120.0
"""Seconds from the SuperNode's start until it is heard for the first time: a busy machine takes long to load Flower."""
DAY = 86_400.0
"""Seconds between two checks of the certificates."""

log = logging.getLogger("fedpareto.node")


def up(
    home: NodeFolder, data: Source, preference: Sequence[float], log_to: logs.LogOptions = logs.PLAIN
) -> Path | None:
    """Serves until the federation is finished; the file with this node's model, if it got one.

    The caller holds the folder (see status.hold_node).
    """
    warnings = logs.begin(log_to)
    service = _Service(home, data, preference)
    with terminable(), service.keep_status(warnings):
        for column, rows in unknown_values(problem_of(home, data).table_schema, data.of_party()).items():
            said = "a value of '%s' is not in the schema and counts as 'other'; number of such rows: %d"
            log.warning(said, column, rows)
        return service.run()


def is_finished(home: NodeFolder) -> bool:
    """Return whether this node has done its part: the server told it so, and is not there again with an unfinished run
    (of a backup that was restored).
    """
    if status.NodeStatus.load(home.folder).state != FINISHED:
        return False
    try:
        return Server(home).ask() in ("", FINISHED)
    except UserError:
        return True  # Another server is at that address by now, or the certificate has expired.


def kept_model(home: NodeFolder) -> Path | None:
    path = home.folder / MODEL_FILE
    return path if path.exists() else None


# -- before joining ------------------------------------------------------------------------------------------------


def table(data: Path | None, sql: str, query: str) -> Source:
    found = Source("" if data is None else str(data), sql, query)
    if not found:
        raise UserError("name your table: --data FILE, or --sql URL --query TEXT")
    return found


def table_problems(home: NodeFolder, data: Source, ignored: Sequence[str] = ()) -> list[str]:
    """Reasons why a table does not fit the federation, a line each; empty if it does."""
    problem = problem_of(home, data)
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
    """Read a preference as it was typed, or from the file of that name; one weight for each objective."""
    path = Path(given).expanduser()
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else given
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


# -- the process ---------------------------------------------------------------------------------------------------


class _Service:
    """One `fedpareto node up`."""

    def __init__(self, home: NodeFolder, data: Source, preference: Sequence[float]) -> None:
        self.home, self.data, self.preference = home, data.resolved(), list(preference)
        self.server = Server(home)
        self.processes = Processes(home.folder / "logs", home.folder / "flower")
        self.secret, self.plan = home.folder / "secret", home.folder / "worker.json"
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
        """Serve until the server says that the run is finished."""
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
            model = self._model()
            self._pass_on()
            log.info("the federation is finished")
            return model
        finally:
            self.processes.stop()
            for told in (self.plan, self.secret):  # The preference, and how the table is reached.
                told.unlink(missing_ok=True)

    def _model(self) -> Path | None:
        self.status.state = FINISHED
        self.status.save(self.home.folder)  # At once: the server goes, and nobody would tell this node again.
        return kept_model(self.home)

    def _start(self) -> None:
        self._joined, self._begun = self.server.start, time.monotonic()
        runtime = f"{LOOPBACK}:{free_ports(1)[0]}"
        self.processes.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.secret, secrets.token_hex(32).encode())
        config = {
            "fedpareto": f"{make_node.__module__}:{make_node.__name__}",
            "folder": str(self.home.folder),
            "data": asdict(self.data),
            "preference": self.preference,
        }
        write_secret(self.plan, json.dumps({"secret": str(self.secret), "nodes": {runtime: config}}).encode())
        self._read = self._worker_log.stat().st_size if self._worker_log.exists() else 0
        self.processes.start("supernode", self._supernode(runtime))
        self.processes.start("worker", python("fedpareto_flower.engine.worker", str(self.plan)))

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
        """Log the worker's messages since the last check; then its log may be shortened."""
        self._read = _pass_on(self._worker_log, self._read)
        logs.bound(self.processes.folder)

    def _start_again(self, pause: float = 0.0) -> None:
        """Start both again: a SuperNode waits for the worker that took its task, and a worker for a SuperNode that is
        gone.
        """
        self.processes.stop()
        time.sleep(pause)
        self._start()


def is_lost(silence: float, age: float) -> bool:
    """Return whether a SuperNode has to be started again: the server heard it `silence` seconds ago, it is `age`
    seconds old.
    """
    return silence > SILENT if silence < age else age > UNHEARD


def _progress(folder: Path) -> int:
    """The last round that the worker's process has done; 0 if there is none yet."""
    try:
        return int(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["round"])
    except (OSError, *DAMAGE):
        return 0


def _pass_on(path: Path, position: int) -> int:
    """Log the whole lines that were added to a child's log; return how far it was read."""
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
