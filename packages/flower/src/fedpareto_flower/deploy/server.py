"""The server's process: Flower's SuperLink behind the gate, and the loop that every run has."""

from __future__ import annotations

import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.serverapp import Grid

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_secret
from fedpareto.config.interrupts import Interrupts, StopFile, Stopped
from fedpareto.contract.privacy import need_accountant
from fedpareto.engines.reply_checks import required_replies
from fedpareto.problems.fairness.silo import Silo
from fedpareto.record.store import RunFolder, describe
from fedpareto.runs.loop import Experiment
from fedpareto.runs.progress import Progress
from fedpareto.runs.result import Result
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto_flower.deploy import certificates, health, logs, status
from fedpareto_flower.deploy.flower_proxy import Gate
from fedpareto_flower.deploy.layout import Deployment, is_loopback
from fedpareto_flower.deploy.silo_node import SCHEMA_SUBJECT
from fedpareto_flower.deploy.status import FINISHED, terminable
from fedpareto_flower.engine.launch import LOOPBACK, QUIET, Processes, free_ports, program, wait_for_superlink
from fedpareto_flower.engine.link import Address, control_client, server_grid, submit_run
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.server import FlowerEngine

GOODBYE = 60.0
"""Seconds that nodes have to learn that the run is finished."""
BELATED_GOODBYE = 30.0
"""Seconds for nodes of a killed server: those that still wait poll every few seconds."""
DAY = 86_400.0
"""Seconds between two checks of the certificates."""

log = logging.getLogger("fedpareto.server")


@dataclass
class SuperLink:
    """A SuperLink that only this machine can reach. It keeps no state of an earlier one: that would be stale nodes and
    messages; all that matters is in the checkpoint.
    """

    folder: Path
    """Folder of Flower's home, secret and log."""
    certificates: Path | None
    """The folder with ca.pem, server.pem and server.key; None: plain text and no authentication of nodes."""

    def __post_init__(self) -> None:
        self.port = free_ports(1)[0]
        self.processes = Processes(self.folder / "logs", self.folder / "home")
        self.secret = self.folder / "secret"

    @property
    def address(self) -> Address:
        root = None if self.certificates is None else self.certificates / "ca.pem"
        return Address(f"{LOOPBACK}:{self.port}", self.secret, root)

    def client_context(self) -> ssl.SSLContext | None:
        """The certificate by which the gate recognises this SuperLink."""
        if self.certificates is None:
            return None
        return ssl.create_default_context(cafile=self.certificates / "ca.pem")

    def start(self) -> None:
        self.processes.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.secret, secrets.token_hex(32).encode())
        self.processes.start("superlink", self._command())
        wait_for_superlink(self.processes, self.port)

    def stop(self) -> None:
        self.processes.stop()

    @contextmanager
    def grid(self) -> Iterator[Grid]:
        """The Grid of a new run, which ends with the block."""
        submit_run(self.address)
        with server_grid(self.address) as grid:
            yield grid

    def register(self, keys: Mapping[bytes, int]) -> dict[int, int]:
        """Registers the nodes with these public keys; maps Flower's node id to the node's number."""
        client = control_client(self.address)
        try:
            return {
                client.RegisterNode(RegisterNodeRequest(public_key=key)).node_id: number for key, number in keys.items()
            }
        finally:
            client.close()

    def _command(self) -> list[str]:
        place = ["--host", LOOPBACK, "--port", str(self.port)]
        isolation = ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]
        safety = ["--insecure"]
        if self.certificates is not None:
            files = {"ssl-ca-certfile": "ca.pem", "ssl-certfile": "server.pem", "ssl-keyfile": "server.key"}
            safety = [f"--{option}={self.certificates / name}" for option, name in files.items()]
            safety.append("--enable-supernode-auth")
        return [*program("flower-superlink"), *safety, *isolation, *place]


def up(deployment: Deployment, warnings: logs.Memory, resume: bool = False, back: bool = False) -> Result | None:
    """Serves a deployment until its run is finished; None if it was already.

    The caller has begun the log and holds the folder (see status.starting).

    With `resume` it goes on from the last checkpoint, with `back` from the last good one, or begins if there is none.
    Of a finished run it informs the nodes that do not know yet.
    """
    spec = deployment.spec()
    need_accountant(spec.privacy)
    with ExitStack() as stack:
        folder = stack.enter_context(_run_folder(deployment, spec, resume))
        finished = (folder.read_json("status.json") or {}).get("status") == FINISHED
        told = status.read(deployment).told if finished else []
        if len(told) == deployment.nodes:
            return None
        if back and not finished:
            folder.go_back()
        _check_certificate(deployment)
        shown = status.ServerStatus.begin(
            state=status.STARTING,
            rounds=spec.rounds,
            nodes=deployment.nodes,
            needed=required_replies(spec.quorum, deployment.nodes),
            told=told,
        )
        service = _Service(deployment, spec, folder, shown)
        stack.enter_context(service.keep_status(warnings))
        if finished:
            service.only_say_goodbye()
            return None
        return service.run()


@contextmanager
def _run_folder(deployment: Deployment, spec: Spec, resume: bool) -> Iterator[RunFolder]:
    begun = RunFolder(deployment.run).spec_file.exists()
    if begun and not resume:
        raise UserError(f"the run of {deployment.folder} has begun; go on with: fedpareto server resume")
    with RunFolder.open(deployment.run) if begun else RunFolder.create(deployment.run, spec) as folder:
        try:
            yield folder
        except BaseException:
            if not begun and folder.read_json("run.json") is None:
                folder.discard()  # A run that could not even begin leaves nothing behind.
            raise


def _check_certificate(deployment: Deployment) -> None:
    if deployment.insecure:
        log.warning("INSECURE: plain text, and no authentication of nodes; only for trials on this machine")
        return
    for path, way_on in _certificates(deployment).items():
        if certificates.days_left(path) <= 0:
            raise UserError(f"the certificate {path} has expired; {way_on}")


def _warn_of_certificates(deployment: Deployment) -> None:
    """Warn of certificates that are about to expire: nodes would no longer accept them."""
    for path, way_on in _certificates(deployment).items():
        left = certificates.days_left(path)
        if left < certificates.SOON:
            log.warning("the certificate %s expires in %.0f days; %s", path.name, left, way_on)


def _certificates(deployment: Deployment) -> dict[Path, str]:
    """The files, and what to do about one that has expired."""
    if deployment.insecure:
        return {}
    return {
        deployment.authority: "make a new deployment: fedpareto server init",
        deployment.server / "server.pem": "make a new one: fedpareto server renew",
    }


class _Service:
    """One server process."""

    def __init__(self, deployment: Deployment, spec: Spec, folder: RunFolder, shown: status.ServerStatus) -> None:
        self.deployment, self.spec, self.folder, self.status = deployment, spec, folder, shown
        assert isinstance(spec.engine, FlowerOptions), "init wrote so"
        self.options = spec.engine
        numbers = () if deployment.insecure else range(deployment.nodes)
        self.keys = {certificates.load_public(deployment.public_key(number)): number for number in numbers}
        self.superlink = SuperLink(deployment.server / "flower", None if deployment.insecure else deployment.server)
        self.gate = self._make_gate()
        self.engine: FlowerEngine | None = None

    def _make_gate(self) -> Gate:
        deployment = self.deployment
        outside = None
        if not deployment.insecure:
            outside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            outside.minimum_version = ssl.TLSVersion.TLSv1_2
            outside.load_cert_chain(deployment.server / "server.pem", deployment.server / "server.key")
        # A host name may be that of a router; only loopback says by itself where to listen.
        place = deployment.host if is_loopback(deployment.host) else "0.0.0.0"
        return Gate(
            (place, deployment.port),
            (certificates.LOOPBACK, self.superlink.port),
            self.keys,
            lambda: self.status.state,
            self._schema(),
            outside,
            self.superlink.client_context(),
        )

    def keep_status(self, warnings: logs.Memory) -> AbstractContextManager[None]:
        """Updates the status file, shortens Flower's logs, and checks the certificates."""
        next_look = 0.0

        def refresh() -> None:
            nonlocal next_look
            if (now := time.monotonic()) >= next_look:
                next_look = now + DAY
                _warn_of_certificates(self.deployment)
            logs.bound(self.superlink.processes.folder)
            # The gate's threads may add to both meanwhile.
            now = time.time()
            self.status.heard = {str(node): now - seconds for node, seconds in self.gate.silences().items()}
            told = {node for node in list(self.gate.told) if self._has_heard(node)}
            self.status.told = sorted(told.union(self.status.told))
            self.status.warnings = list(warnings.lines)
            self.status.at_work = self._at_work()

        return status.kept(self.status, self.deployment.server, refresh, stops=(Stopped,))

    def _at_work(self) -> dict[str, list[float]]:
        """Tasks under way: round and time of sending, by node."""
        now, tasks = time.time(), self.engine.at_work() if self.engine else {}
        return {str(node): [round_, now - seconds] for node, (round_, seconds) in tasks.items()}

    def run(self) -> Result:
        os.environ.update(QUIET)
        with terminable(), ExitStack() as stack:
            stack.callback(self.superlink.stop)
            self.superlink.start()
            owners = self.superlink.register(self.keys)
            self.gate.open()
            stack.callback(self.gate.close)
            with self.superlink.grid() as grid:
                result = self._train(self._engine(grid, owners))
            self._say_goodbye()
            return result

    def only_say_goodbye(self) -> None:
        """Tell nodes that still wait, because the server was killed between the end of the run and its last answer."""
        self.status.state, self.status.round = FINISHED, self.spec.rounds
        untold = set(range(self.deployment.nodes)) - set(self.status.told)
        log.info("finished already; nodes that do not know yet have %g s to ask", BELATED_GOODBYE)
        with terminable(), ExitStack() as stack:
            self.gate.open()
            stack.callback(self.gate.close)
            self._wait_until_heard(lambda: untold, BELATED_GOODBYE)

    def _engine(self, grid: Grid, owners: dict[int, int]) -> FlowerEngine:
        return FlowerEngine(
            grid,
            self.spec.algorithm,
            self.spec.learner,
            settings_of(self.spec),
            self.deployment.name,
            options=self.options,
            flower=self.options,
            quorum=self.spec.quorum,
            waits=self.spec.policy.waits,
            expected={SCHEMA_SUBJECT: self._schema()},
            owners=owners,
            codec=Codec.parse(self.spec.codec),
        )

    def _schema(self) -> str:
        problem = self.spec.problem
        assert isinstance(problem, Silo), "init wrote so"
        return problem.table_schema.fingerprint

    def _train(self, engine: FlowerEngine) -> Result:
        deployment, folder = self.deployment, self.folder
        self.engine = engine
        self.status.state = status.WAITING
        # Until the nodes are there the checkpoint is not read; what the run wrote last is as good.
        self.status.round = (folder.read_json("status.json") or {}).get("round", 0)
        log.info(
            "%s on %d nodes, %d rounds; nodes reach the server at %s:%d",
            self.spec.algorithm.name,
            deployment.nodes,
            self.spec.rounds,
            deployment.host,
            deployment.port,
        )
        with StopFile(folder.path).watched(in_a_round=False):
            experiment = Experiment(self.spec, engine, folder)
            parts = engine.split_names  # Only the nodes know them, so this waits for nodes.
        if folder.read_json("run.json") is None:
            folder.write_json("run.json", describe(self.spec, parts, engine.chosen))
        experiment.restore(folder)
        experiment.checkpoint()
        if experiment.round:
            log.info("going on after round %d", experiment.round)
        self.status.round = experiment.round
        self.status.state = "training"
        with Interrupts() as interrupts:
            return experiment.run(self._on_round, interrupts.asked)

    def _on_round(self, now: Progress) -> None:
        self.status.round = now.round
        log.info(
            "round %d of %d: %s %.4f after round %d, %d %s missed so far",
            now.round,
            now.rounds,
            *now.headline,
            now.measured,
            now.failures,
            "reply" if now.failures == 1 else "replies",
        )

    def _say_goodbye(self) -> None:
        """Wait for nodes that poll the status now and then; connected ones learn that it is finished."""
        self.status.state, self.engine = FINISHED, None
        log.info("finished; the run is in %s", self.deployment.run)
        self._wait_until_heard(
            lambda: {node for node, seconds in self.gate.silences().items() if seconds < health.CONNECTED}, GOODBYE
        )

    def _has_heard(self, node: int) -> bool:
        return node >= 0 and self.gate.told.get(node) == FINISHED

    def _wait_until_heard(self, nodes: Callable[[], set[int]], patience: float) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not all(map(self._has_heard, nodes())):
            time.sleep(0.2)
