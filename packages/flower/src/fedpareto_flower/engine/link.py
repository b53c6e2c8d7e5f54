"""Flower's Runtime API, spoken by our own processes: what lets a server keep its loop and a node stay alive.

Flower would start a new process for every message, which imports torch and reads the data again. With `--isolation
process` it leaves that to other processes: any that knows the secret may take a task. Flower's inner parts are used
here, in `screen` and in `supernode`, and nowhere else.
"""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from fedpareto.config.errors import UserError
from fedpareto_flower.engine.arrivals import FRAMING, Arrival
from fedpareto_flower.engine.pauses import Pauses
from fedpareto_flower.engine.wire import GENEROUS, Malformed

PROTECTED = frozenset({"/flwr.proto.Runtime/AcquireTask"})
TRIES = 8
"""Number of times that a request is repeated while there is no answer, about a minute in all; Flower itself would
never give up.
"""
POLL = 0.1
"""Seconds between two polls for a task, at least; a process that serves several SuperNodes takes longer."""
ARRIVAL = 10.0
"""Seconds that a SuperNode may take from the task to its message."""

PIECES = 600.0
"""Seconds that all of a message may take to arrive."""

APP = """\
[project]
name = "federation"
version = "0.1.0"
description = "A federation of fedpareto"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "fedpareto"

[tool.flwr.app.components]
serverapp = "{module}:{server}"
clientapp = "{module}:{client}"

[tool.flwr.app.config]
"""
"""Description of an app, as Flower needs it."""

log = logging.getLogger("fedpareto.flower")


@dataclass(frozen=True)
class Address:
    """Address at which a SuperLink or a SuperNode offers tasks, and what it takes to get them."""

    host_and_port: str
    secret_file: Path
    """The secret for tasks; the same file that Flower was started with."""
    root_certificate: Path | None = None
    """Root certificate of the CA that signed the server's certificate; None: plain text, for loopback only."""

    def client(self, *, token: str | None = None, tries: int = TRIES) -> RuntimeHttpClient:
        """A connection: to poll for tasks, or with a token for one task."""
        secret = SuperExecAuthHttpInterceptor(master_secret=self.secret_file.read_bytes(), protected_methods=PROTECTED)
        retries = make_simple_http_retry_invoker()
        # Polling is repeated anyway, and one SuperNode must not hold up the others.
        retries.max_tries = 1 if token is None else tries
        return RuntimeHttpClient.from_server_address(
            server_address=self.host_and_port,
            insecure=self.root_certificate is None,
            root_certificates=self.certificate(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="fedpareto"),
                secret if token is None else RuntimeTokenHttpInterceptor(token),
            ],
            retry_invoker=retries,
        )

    def certificate(self) -> bytes | None:
        """The root certificate itself."""
        return None if self.root_certificate is None else self.root_certificate.read_bytes()


def control_client(address: Address) -> ControlHttpClient:
    """A connection to a SuperLink as its operator, which registers nodes and starts runs."""
    return ControlHttpClient.from_server_address(
        address.host_and_port,
        insecure=address.root_certificate is None,
        root_certificates=address.certificate(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedpareto")],
    )


def submit_run(
    address: Address,
    module: str = "fedpareto_flower.engine.apps",
    server: str = "server_app",
    client: str = "client_app",
    code: Mapping[str, str] | None = None,
) -> None:
    """Starts a run of two apps in a module on a SuperLink: ours, which are installed, or `code`'s, by file name.

    `flwr run` does the same in a process of its own, which takes seconds.
    """
    from flwr.cli.build import build_fab_from_files  # Nodes do not need it.

    files = {"pyproject.toml": APP.format(module=module, server=server, client=client), **(code or {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Flower calls deprecated functions of other packages.
        packed, _ = build_fab_from_files({name: text.encode() for name, text in files.items()})
    app = Fab(hash_str=hashlib.sha256(packed).hexdigest(), content=packed)
    control = control_client(address)
    try:
        control.StartRun(StartRunRequest(fab=app))
    except httpx.HTTPError as problem:
        raise UserError(f"Flower did not accept the run: {' '.join(str(problem).split())[-500:]}") from None
    finally:
        control.close()


@contextmanager
def server_grid(address: Address, patience: float = 60.0) -> Iterator[Grid]:
    """The Grid of the run that was started last, in this process; the run ends with the block."""
    from fedpareto_flower.engine.screen import ScreenedGrid  # Nodes do not need it, and it takes long to import.

    token = _token(address, TaskType.SERVER_APP, patience)
    grid = ScreenedGrid(
        address.host_and_port,
        insecure=address.root_certificate is None,
        root_certificates=address.certificate(),
        token=token,
    )
    grid._retry_invoker.max_tries = TRIES
    client = address.client(token=token)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.FAILED, "the server stopped before its end"
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        _be(task.task_id, task.run.run_id, task.context.node_id)
        grid.set_run(run_from_proto(task.run))
        yield grid
        status, details = SubStatus.COMPLETED, ""
    except Exception as problem:
        details = str(problem)
        raise
    finally:
        heartbeat.stop()
        client.close()
        grid.close()
        _say_goodbye(address, token, PushTaskOutputRequest(sub_status=status, details=details))


def _say_goodbye(address: Address, token: str, output: PushTaskOutputRequest) -> None:
    """Tells Flower how the run ended, once, unless Flower itself is gone."""
    client = address.client(token=token, tries=1)
    with suppress(httpx.HTTPError):
        client.PushTaskOutput(output)
    client.close()


def _token(address: Address, kind: TaskType, patience: float) -> str:
    client = address.client()
    deadline = time.monotonic() + patience
    try:
        while time.monotonic() < deadline:
            token = _acquire(client, kind)
            if token:
                return token
            time.sleep(POLL)
    finally:
        client.close()
    raise UserError(f"Flower's SuperLink at {address.host_and_port} had no run for this server within {patience:g} s")


def _acquire(client: RuntimeHttpClient, kind: TaskType) -> str:
    """The token of a task, or an empty text if there is none, or no server yet or at the moment."""
    try:
        found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    except httpx.TransportError:
        return ""
    return str(found.token) if found.HasField("task") else ""


def _be(task: int, run: int, node: int) -> None:
    """Flower keeps the current task of a process in a global; messages cannot be made without it."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task, run, node


def serve(apps: Mapping[Address, ClientApp], alive: Callable[[], bool] = lambda: True) -> None:
    """Answers what one or several SuperNodes receive, in this process, for as long as `alive` says so."""
    clients = {address: address.client() for address in apps}
    pauses = Pauses(POLL * len(clients))
    try:
        while alive():
            tokens = {address: _acquire(client, TaskType.CLIENT_APP) for address, client in clients.items()}
            for address, token in tokens.items():
                if token:
                    _answer(address, token, apps[address])
            if any(tokens.values()):
                pauses.begin_anew()
            else:
                pauses.sleep()
    finally:
        for client in clients.values():
            client.close()


def _answer(address: Address, token: str, app: ClientApp) -> None:
    """Answer one message. Errors are reported to the server, and the process goes on."""
    client = address.client(token=token)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    context: Context | None = None
    status, details = SubStatus.FAILED, ""
    try:
        message, context = _take(client)
        reply, status, details = _reply(app, message, context)
        push_message(client, reply, context)
    except Exception as problem:  # The server sends it again, or goes on without this node.
        why = f": {problem}" if isinstance(problem, Malformed) else ""
        log.warning("a message was lost: %s%s", type(problem).__name__, why)
        details = type(problem).__name__
    finally:
        push_task_output(client, context, status, details)
        heartbeat.stop()
        client.close()


def _take(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """The message of a task. Flower's own function waits a whole second if part of it has not arrived."""
    task = client.PullTaskInput(PullTaskInputRequest())
    _be(task.task_id, task.run.run_id, task.context.node_id)
    tree, node, run = _announced(client), Node(node_id=task.context.node_id), task.run.run_id
    message = fetched(
        Arrival(tree.object_id, tree, GENEROUS.bytes + FRAMING),
        make_pull_object_fn_protobuf(client.PullObject, node, run),
    )
    make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run)(tree.object_id)
    return message, context_from_proto(task.context)


def fetched(arrival: Arrival, pull: Callable[[str], bytes]) -> Message:
    """A message whose pieces may still be on their way; Malformed if it would be too large unpacked."""
    deadline = time.monotonic() + PIECES
    while not arrival.is_here(pull):
        if time.monotonic() > deadline:
            raise TimeoutError("a message did not arrive as a whole")
        time.sleep(POLL)
    return arrival.open()


def _announced(client: RuntimeHttpClient) -> Any:
    """Wait for the tree of a task's message. A SuperNode offers the task a moment before it has the message."""
    deadline = time.monotonic() + ARRIVAL
    while time.monotonic() < deadline:
        found = client.PullMessages(PullAppMessagesRequest())
        if found.message_object_trees:
            return found.message_object_trees[0]
        time.sleep(POLL)
    raise TimeoutError("a task arrived without its message")


def _reply(app: ClientApp, message: Message, context: Context) -> tuple[Message, str, str]:
    try:
        return app(message=message, context=context), SubStatus.COMPLETED, ""
    except Exception as problem:  # It is the node's failure; the federation goes on.
        # A library's error message may contain a value of a row; only our own messages are known not to.
        own_words = isinstance(problem, UserError | Malformed)
        reason = f"{type(problem).__name__}: {problem}" if own_words else type(problem).__name__
        log.warning("a message was refused: %s", reason)
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason)
        return Message(error, reply_to=message), SubStatus.FAILED, reason
