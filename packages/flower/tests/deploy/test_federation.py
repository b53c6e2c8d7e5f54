"""Real servers and nodes on loopback: strangers, crashes, and what crosses the wire."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from parties import Parties
from safetensors.torch import load_file
from secrets_of_a_node import found

from fedpareto.config.errors import UserError
from fedpareto.record.store import RunFolder
from fedpareto.spec.draft import Draft
from fedpareto_flower.deploy import certificates, health, status
from fedpareto_flower.deploy.create import create
from fedpareto_flower.deploy.layout import Deployment, NodeFolder
from fedpareto_flower.deploy.silo_node import make_node
from fedpareto_flower.engine.launch import free_ports
from processes import FLOWER, Commands
from waiting import PATIENCE

PREFERENCES = ("0.61728394,0.38271606", "0.13579246,0.86420754")
NODES, ROUNDS = len(PREFERENCES), 3
QUICK = ["timeout=600", "forgiveness=1", "steps=5", "hello_timeout=600"]


@pytest.fixture(scope="module")
def processes():
    return Commands(FLOWER)


@pytest.fixture
def parties(processes, tmp_path):
    parties = Parties(processes, tmp_path / "outputs")
    yield parties
    parties.stop()


def made(folder, schema, rounds=ROUNDS, settings=(), nodes=NODES, **more):
    port = free_ports(1)[0]
    return create(folder, schema, Draft({"rounds": rounds}), [*QUICK, *settings], nodes, "127.0.0.1", port, **more)


def join(parties, deployment, tables, number, folder=None, name=None, afresh=False):
    table = tables / f"{'ab'[number]}.csv"
    words = ("--data", table, "--preference", PREFERENCES[number])
    place = folder or deployment.node(number)
    return parties.start(name or f"node-{number}", "node", "up", place, *words, afresh=afresh)


def models(deployment):
    return load_file(deployment.run / "models.safetensors")


@pytest.fixture(scope="module")
def undisturbed(processes, tables, tmp_path_factory):
    """Registered nodes train, with TLS and authentication, while strangers try to get in."""
    from fedpareto.problems.fairness.schema import TableSchema
    from fedpareto.problems.fairness.sources import Source

    folder = tmp_path_factory.mktemp("undisturbed")
    schema = TableSchema.of(Source(str(tables / "sample.csv")).of_party(), "hired", ["gender"])
    deployment = made(folder / "federation", schema)
    parties = Parties(processes, folder / "outputs")
    try:
        server = parties.start("server", "server", "up", deployment.folder)
        nodes = [join(parties, deployment, tables, 0)]
        strangers = _strangers(parties, deployment, tables, folder)
        assert strangers["schema"].end() == 2
        nodes.append(join(parties, deployment, tables, 1))
        server.wait_for(f"round 1 of {ROUNDS}")
        control = _control_call(deployment)
        _plain_call(deployment)
        seen = _as_an_operator_sees_it(deployment)
        codes = {name: party.end() for name, party in strangers.items()}
        assert [node.end() for node in nodes] == [0] * NODES, parties.outputs().decode()
        assert server.end() == 0
        yield deployment, parties, codes, control, seen
    finally:
        parties.stop()


def _strangers(parties, deployment, tables, folder):
    """Nodes that must not join: each is a copy of a good node's folder with one thing wrong."""

    def copy(name, number):
        place = folder / name
        shutil.copytree(deployment.node(number), place, ignore=shutil.ignore_patterns("logs", "flower", "private"))
        return place

    unregistered = copy("unregistered", 0)
    (unregistered / "node.key").write_bytes(certificates.openssh(certificates.new_key())[0])
    expired = copy("expired", 0)
    signing = certificates.load_key(deployment.server / "ca.key")
    old = certificates.authority(deployment.name, signing, days=-1)
    (expired / "ca.pem").write_bytes(certificates.to_pem(old))
    plain = copy("plain", 0)
    entries = json.loads((plain / "node.json").read_text()) | {"insecure": True}
    (plain / "node.json").write_text(json.dumps(entries))
    schema = copy("schema", 1)
    entries = json.loads((schema / "schema.json").read_text())
    entries["columns"][1]["mean"] += 1
    (schema / "schema.json").write_text(json.dumps(entries))
    return {
        "unregistered": join(parties, deployment, tables, 0, unregistered, "unregistered"),
        "expired": join(parties, deployment, tables, 0, expired, "expired"),
        "plain": join(parties, deployment, tables, 0, plain, "plain"),
        "schema": join(parties, deployment, tables, 1, schema, "schema"),
    }


def _control_call(deployment):
    """What somebody gets who asks for the control API, with a good node's key."""
    context = ssl.create_default_context(cafile=deployment.authority)
    link = http.client.HTTPSConnection("127.0.0.1", deployment.port, timeout=PATIENCE, context=context)
    headers = certificates.signed(certificates.load_key(deployment.node(0) / "node.key"))
    link.request("POST", "/v1/control/list-runs", body=b"", headers=headers)
    answer = link.getresponse().status
    link.close()
    return answer


def _plain_call(deployment):
    """A request without TLS: the node that makes one may have come before the server, and seen only its certificate."""
    with socket.create_connection(("127.0.0.1", deployment.port), timeout=PATIENCE) as link:
        link.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            link.recv(1)


def _as_an_operator_sees_it(deployment):
    """While it trains: how it is by its own account, and what keeps a second process out."""
    homes = [NodeFolder.open(deployment.node(number)) for number in range(NODES)]
    refusals = []
    for hold in (lambda: status.hold_server(deployment), lambda: status.hold_node(homes[1])):
        with pytest.raises(UserError) as refused:
            hold()
        refusals.append(str(refused.value))
    return health.of_server(deployment), [health.of_node(home) for home in homes], refusals


def test_registered_nodes_train_and_each_keeps_its_model(undisturbed):
    deployment, *_ = undisturbed
    assert RunFolder(deployment.run).read_json("status.json")["status"] == "finished"
    at_server = models(deployment)
    for number in range(NODES):
        own = load_file(deployment.node(number) / "model.safetensors")["seed0"]
        assert (own == at_server[f"seed0/client{number}"]).all()
    assert not RunFolder(deployment.run).read_lines("events.jsonl")
    rows = RunFolder(deployment.run).read_lines("metrics.jsonl")
    assert rows[0]["at"] <= rows[-1]["at"]
    assert not any("preferences" in row["columns"] for row in rows), "these stay with the nodes"


def test_the_run_is_an_ordinary_one_for_reports(undisturbed, tmp_path):
    from fedpareto.record import reading
    from fedpareto_page.comparison import write_comparison

    deployment, *_ = undisturbed
    assert reading.load(deployment.run).finished
    assert write_comparison([deployment.run], tmp_path / "page").exists()


def test_strangers_are_refused_each_with_a_clear_line(undisturbed):
    deployment, parties, codes, control, _ = undisturbed
    said = {party.output.stem: party.said() for party in parties.all}
    assert codes == {"unregistered": 2, "expired": 2, "plain": 2, "schema": 2}
    assert "refuses this node: its key is not registered" in said["unregistered"]
    assert "refuses this node: its schema is not the federation's" in said["schema"]
    assert "is not accepted: certificate has expired" in said["expired"]
    assert "speaks TLS, and this node plain text" in said["plain"]
    assert control == 403
    for line in (
        "refused 127.0.0.1: its key is not registered with this federation",
        "refused 127.0.0.1: it does not accept the certificate: one of the two has expired",
        "refused 127.0.0.1: it speaks plain text; this port wants TLS",
        "refused 127.0.0.1: POST /v1/control/list-runs is not for nodes",
        "refused 127.0.0.1: node 1 has another schema than the federation",
    ):
        assert line in said["server"]
    assert any("list-runs" in warning["message"] for warning in status.read(deployment).warnings)


def test_a_federation_that_trains_is_well_by_its_own_account(undisturbed):
    deployment, parties, *_, (server, nodes, _) = undisturbed
    processes = {party.output.stem: party.process.pid for party in parties.all}
    assert server.code == 0
    assert (server.facts["state"], server.facts["rounds"], server.facts["process"]) == (
        "training",
        ROUNDS,
        processes["server"],
    )
    assert [node["state"] for node in server.facts["nodes"]] == ["connected"] * NODES
    assert {"ca.pem", "server.pem"} == set(server.facts["certificates"])
    assert any("another schema" in refusal["message"] for refusal in server.facts["refusals"])
    for number, node in enumerate(nodes):
        assert (node.code, node.facts["node"]) == (0, number)
        assert (node.facts["state"], node.facts["process"]) == ("training", processes[f"node-{number}"])
        assert 364 < node.facts["certificates"]["of the server"]["days"] < 366
    homes = [NodeFolder.open(deployment.node(number)) for number in range(NODES)]
    after = [health.of_server(deployment), *map(health.of_node, homes)]
    assert {(one.code, one.facts["state"], one.facts["round"]) for one in after} == {(0, "finished", ROUNDS)}


def test_a_live_folder_keeps_a_second_process_out_and_says_whom_to_look_for(undisturbed):
    _, parties, *_, (_, _, refusals) = undisturbed
    processes = {party.output.stem: party.process.pid for party in parties.all}
    for refusal, name in zip(refusals, ("server", "node-1"), strict=True):
        assert "is running already; see: fedpareto" in refusal
        assert f"(process {processes[name]} on " in refusal
        assert ", since 20" in refusal


def test_nodes_log_a_line_for_every_round(undisturbed):
    _, parties, *_ = undisturbed
    said = {party.output.stem: party.said() for party in parties.all}
    line = (
        r"round (\d+): [\d.]+ s; accuracy [\d.]+ → [\d.]+, demographic-parity:gender [\d.]+ → [\d.]+ on its test rows; "
    )
    for number in range(NODES):
        rounds = re.findall(line + r"[\d.]+ kB in, [\d.]+ kB out", said[f"node-{number}"])
        assert [int(round) for round in rounds] == [1, 2, 3]


def test_no_log_holds_rows_preferences_or_keys(undisturbed, tables):
    deployment, parties, *_ = undisturbed
    logs = [path.read_bytes() for path in deployment.folder.rglob("*.log")]
    assert len(logs) >= 1 + 2 * NODES  # The SuperLink, and SuperNode and worker of each node.
    everything = b"".join([parties.outputs(), *logs, (deployment.server / "status.json").read_bytes()])
    secrets = [weight.encode() for preference in PREFERENCES for weight in preference.split(",")]
    for name in "ab":
        secrets += [line.split(b",")[3] for line in (tables / f"{name}.csv").read_bytes().splitlines()[1:]]
    for path in deployment.folder.rglob("*"):
        if path.suffix == ".key":
            secrets += [line for line in path.read_bytes().splitlines() if b"-----" not in line and len(line) > 20]
        elif path.name == "secret":
            secrets.append(path.read_bytes())
    assert len(secrets) > 480
    assert not [secret for secret in secrets if secret in everything]


def test_what_both_sides_keep_is_what_the_page_on_data_protection_tells(undisturbed, tables):
    """And the server has neither rows nor preference of the node whose table is looked for."""
    deployment, *_ = undisturbed
    page = (Path(__file__).parents[4] / "docs/data-protection.md").read_text(encoding="utf-8")

    def told(heading):
        return set(re.findall(r"`([\w./-]+)`", page.partition(f"## {heading}\n")[2].partition("\n## ")[0]))

    for number in range(NODES):
        at_node = {path for path in deployment.node(number).rglob("*") if path.is_file()}
        assert {path.name for path in deployment.node(number).iterdir()} <= told("What a node keeps")
        assert not {"worker.json", "secret"} & {path.name for path in at_node}, "only for as long as it runs"
        preference = PREFERENCES[number].split(",")[0].encode()
        assert not [path.name for path in at_node if preference in path.read_bytes()]
    at_server = [path for part in (deployment.run, deployment.server) for path in part.rglob("*") if path.is_file()]
    about_nodes = {path for path in told("What the server keeps") if path.startswith("run/")}
    no_numbers = {"run/spec.yaml", "run/run.json", "run/status.json", "run/inputs.json"}
    names = {f"run/{path.name}" for path in deployment.run.iterdir() if not path.name.startswith(".")}
    assert {name for name in names if "checkpoint" not in name} <= about_nodes | no_numbers
    kept = b"|".join(path.read_bytes() for path in at_server)
    assert models(deployment)["seed0/client0"].numpy().tobytes() in kept, "it was looked at"
    assert _found(kept, deployment.node(0), tables) == set()


@pytest.mark.takes_long
def test_a_killed_server_resumes_to_the_models_of_an_undisturbed_run(undisturbed, schema, tables, parties, tmp_path):
    deployment = made(tmp_path / "federation", schema)
    server = parties.start("server", "server", "up", deployment.folder)
    nodes = [join(parties, deployment, tables, number) for number in range(NODES)]
    server.wait_for(f"round 1 of {ROUNDS}")
    server.kill()
    assert status.read(deployment).state == "killed"
    assert health.of_server(deployment).code == 3
    resumed = parties.start("resumed", "server", "resume", deployment.folder)
    resumed.wait_for("going on after round")
    assert [node.end() for node in nodes] == [0] * NODES, parties.outputs().decode()
    assert resumed.end() == 0
    for node in nodes:
        assert "the server was restarted; joining again" in node.said()
    expected, found = models(undisturbed[0]), models(deployment)
    assert found.keys() == expected.keys()
    for name, model in expected.items():
        assert (found[name] == model).all()
    again = parties.start("again", "server", "resume", deployment.folder)
    assert again.end() == 0
    assert "finished already" in again.said()


def test_nodes_that_were_never_told_of_the_end_hear_of_it_on_resume(undisturbed, tables, parties, tmp_path):
    """As after a server that was killed behind its last round: the run is finished, and its nodes wait."""
    over = undisturbed[0]
    assert status.read(over).told == [0, 1]
    shutil.copytree(over.folder, tmp_path / "federation")
    deployment = Deployment.open(tmp_path / "federation")
    shown = status.read(deployment)
    shown.state, shown.told = "training", [1]
    shown.save(deployment.server)
    waiting = status.NodeStatus.load(deployment.node(0))
    waiting.state = "training"
    waiting.save(deployment.node(0))
    node = join(parties, deployment, tables, 0)
    node.wait_for("does not answer")
    server = parties.start("server", "server", "resume", deployment.folder)
    assert node.end() == 0, parties.outputs().decode()
    assert f"model: {deployment.node(0)}" in node.said()
    assert server.end() == 0
    assert "the run is finished already" in server.said()
    found = status.read(deployment)
    assert (found.state, found.round, found.told) == ("finished", ROUNDS, [0, 1])


@pytest.mark.takes_long
def test_a_killed_node_is_missed_by_the_quorum_and_serves_again(schema, tables, parties, tmp_path):
    patience = 30  # Seconds: above an honest node's time for a round, also on a busy machine.
    settings = [f"timeout={patience}", "retries=0", "quorum=1"]
    deployment = made(tmp_path / "federation", schema, rounds=100, settings=settings)
    server = parties.start("server", "server", "up", deployment.folder, "--log-format", "json")
    nodes = [join(parties, deployment, tables, number) for number in range(NODES)]
    server.wait_for("round 1 of 100")
    nodes[1].kill()
    server.wait_for('"client 1: ')  # No answer in time, or no heartbeat, whichever is found first.
    again = join(parties, deployment, tables, 1, name="again")
    again.wait_for("is ready")
    _wait_for_a_full_round(server, deployment)
    stopped = parties.start("stop", "server", "stop", deployment.folder)
    assert stopped.end() == 0
    assert server.end() == 143
    assert status.read(deployment).state == "stopped"
    for line in server.said().splitlines():
        if line.startswith("{"):
            assert {"time", "level", "part", "message"} == set(json.loads(line))


@pytest.mark.takes_long
def test_under_a_policy_that_does_not_wait_a_node_that_is_away_holds_up_nobody(schema, tables, parties, tmp_path):
    settings = ["policy=buffered", "policy.buffer=1", "hello_timeout=5"]
    deployment = made(tmp_path / "federation", schema, rounds=10_000, settings=settings)
    server = parties.start("server", "server", "up", deployment.folder)
    nodes = [join(parties, deployment, tables, number) for number in range(NODES)]
    server.wait_for("round 2 of 10000")
    nodes[1].kill()
    server.wait_for("round 5 of 10000")
    server.kill()
    resumed = parties.start("resumed", "server", "resume", deployment.folder)
    resumed.wait_for("going on after round")
    join(parties, deployment, tables, 1, name="again")
    resumed.wait_for("joined as client 1")
    stopped = parties.start("stop", "stop", deployment.folder)  # By a file in the run's folder.
    assert stopped.end() == 0
    assert f"continue it with: fedpareto server resume {deployment.folder}" in stopped.said()
    assert resumed.end() == 143
    assert not RunFolder(deployment.run).read_lines("events.jsonl"), "a node that is away is no failure"


def _wait_for_a_full_round(server, deployment):
    """Until all clients have replied after one was missed."""
    server.wait_for("joined as client 1")
    counted = len(RunFolder(deployment.run).read_lines("metrics.jsonl"))
    for _ in range(100):
        server.wait_for(f"round {counted + 1} of 100")
        counted += 1
        row = RunFolder(deployment.run).read_lines("metrics.jsonl")[counted - 1]
        if row["replies"] == NODES:
            return
    raise AssertionError("the killed node never served again")


class Tap:
    """A wire that remembers: passes bytes between a node and the server, and keeps both directions."""

    def __init__(self, server):
        self.server, self.kept = server, bytearray()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                node, _ = self.socket.accept()
            except OSError:
                return  # The test is over.
            try:
                server = socket.create_connection(self.server)
            except OSError:
                node.close()
                continue
            for source, target in ((node, server), (server, node)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source, target):
        try:
            while piece := source.recv(2**16):
                self.kept += piece
                target.sendall(piece)
        except OSError:
            pass
        source.close()
        target.close()


@pytest.mark.takes_long
def test_neither_rows_nor_preferences_cross_the_wire(schema, tables, parties, tmp_path):
    """In plain text, so that the tap can read it. Models do cross: that they are found shows that it can.

    Here, as outside tests, the operators' processes start Flower's programs from their files.
    """
    deployment = made(tmp_path / "federation", schema, rounds=2, nodes=1, insecure=True)
    tap = Tap(("127.0.0.1", deployment.port))
    folder = deployment.node(0)
    entries = json.loads((folder / "node.json").read_text()) | {"server": f"127.0.0.1:{tap.port}"}
    (folder / "node.json").write_text(json.dumps(entries))
    server = parties.start("server", "server", "up", deployment.folder, afresh=True)
    node = join(parties, deployment, tables, 0, afresh=True)
    assert (node.end(), server.end()) == (0, 0), parties.outputs().decode()
    tap.socket.close()
    assert "INSECURE" in server.said()
    model = models(Deployment.open(deployment.folder))["seed0/client0"].numpy()
    assert model[:100].tobytes() in tap.kept
    assert _found(tap.kept, folder, tables) == set()


def _found(things, folder, tables):
    """Which secrets of node 0 some bytes hold."""
    weights = [float(weight) for weight in PREFERENCES[0].split(",")]
    table = tables / "a.csv"
    node = make_node({"folder": str(folder), "data": {"file": str(table)}, "preference": weights})
    return found(things, node, table, weights)
