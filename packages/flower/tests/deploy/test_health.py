"""What operators and their programs learn of a federation: exit codes, JSON, logs that stay short."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time

import pytest

from fedpareto.config.errors import UserError
from fedpareto_flower.deploy import certificates, health, logs, status
from fedpareto_flower.deploy.layout import NodeFolder
from waiting import until


@pytest.fixture
def our_log():
    """What a test does to the log of this process is undone."""
    ours = logging.getLogger("fedpareto")
    before = ours.level, ours.propagate, list(ours.handlers)
    yield ours
    for handler in ours.handlers:
        handler.close()
    ours.level, ours.propagate, ours.handlers = before


def server(deployment, state="training", heard=(0, 1, 2), **more):
    """A server that says this; the caller holds its lock if it is to be alive."""
    now = time.time()
    known = {"state": state, "round": 2, "rounds": 3, "heard": {str(node): now for node in heard}}
    shown = status.ServerStatus.begin(**known | more)
    shown.save(deployment.server)
    return shown


def node(home, **more):
    shown = status.NodeStatus.begin(**{"state": "training", "round": 2, "rounds": 3, "answered": time.time()} | more)
    shown.save(home.folder)
    return shown


@pytest.fixture
def home(deployment):
    return NodeFolder.open(deployment.node(1))


# -- the server ----------------------------------------------------------------------------------------------------


def test_a_server_that_nobody_started_is_not_running(deployment):
    found = health.of_server(deployment)
    assert (found.code, found.facts["state"], found.facts["process"]) == (3, "not started", None)
    assert [node["state"] for node in found.facts["nodes"]] == ["never connected"] * 3


@pytest.mark.parametrize("state", ["starting", "waiting for nodes", "training"])
def test_a_server_that_was_killed_is_not_running(deployment, state):
    server(deployment, state)
    found = health.of_server(deployment)
    assert (found.code, found.facts["state"]) == (3, "killed")
    assert [node["state"] for node in found.facts["nodes"]] == ["away"] * 3
    assert "go on with: fedpareto server resume" in found.reason


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("stopped", 3), ("failed", 3)])
def test_a_run_that_is_finished_is_well_and_one_that_ended_otherwise_is_not(deployment, state, code):
    server(deployment, state, told=[1] if state == "finished" else [])
    found = health.of_server(deployment)
    assert (found.code, found.facts["state"]) == (code, state)
    assert found.facts["nodes"][1]["state"] == ("finished" if state == "finished" else "away")


@pytest.mark.parametrize(
    ("state", "heard", "needed", "code"),
    [
        ("training", (0, 1, 2), 2, 0),
        ("training", (0, 2), 2, 0),
        ("training", (0,), 2, 4),
        ("waiting for nodes", (0, 1), 1, 4),
        ("waiting for nodes", (), 1, 4),
        ("waiting for nodes", (0, 1, 2), 3, 0),
        ("starting", (), 1, 4),
        ("starting", (0, 2), 1, 4),
        ("training", (), 1, 4),
    ],
)
def test_too_few_nodes_have_an_exit_code_of_their_own(deployment, state, heard, needed, code):
    with status.hold_server(deployment):
        server(deployment, state, heard, needed=needed)
        found = health.of_server(deployment)
    assert found.code == code
    assert found.exit_code(alive=True) == 0
    for number in set(range(3)) - set(heard):
        assert str(number) in found.reason


def test_a_server_is_starting_from_the_moment_at_which_it_holds_the_folder(deployment):
    server(deployment, "training", heard=(0, 1, 2))  # Killed a moment ago.
    with status.starting(deployment):
        found = health.of_server(deployment)
    assert (found.code, found.facts["state"], found.facts["round"]) == (4, "starting", 2)
    assert found.reason == "starting, then waiting for node 0, 1, 2"


@pytest.mark.parametrize("before", [None, "stopped", "finished"])
def test_a_start_that_fails_at_once_leaves_the_status_as_it_was(deployment, before):
    if before:
        server(deployment, before)
    with status.starting(deployment):
        assert status.read(deployment).state == ("finished" if before == "finished" else "starting")
    assert status.read(deployment).state == (before or "not started")


def test_what_a_server_says_after_its_start_stays(deployment):
    with status.starting(deployment):
        server(deployment, "stopped")
    assert status.read(deployment).state == "stopped"


def test_a_start_may_take_longer_than_a_server_may_be_silent(deployment, monkeypatch):
    with status.starting(deployment):
        later = time.time() + 2 * health.SILENT
        monkeypatch.setattr(health.time, "time", lambda: later)
        assert health.of_server(deployment).code == 4


def test_who_is_at_work_since_when_is_told_as_long_as_the_server_runs(deployment):
    at_work = {"1": [7, time.time() - 3600]}
    with status.hold_server(deployment):
        server(deployment, at_work=at_work)
        found = health.of_server(deployment)
    assert found.facts["nodes"][1]["round"] == 7
    assert any(f"at work on round 7 since {logs.moment(at_work['1'][1])}" in line for line in found.lines)
    assert "since" not in found.facts["nodes"][0]
    assert "since" not in health.of_server(deployment).facts["nodes"][1], "killed"


def test_a_node_that_spoke_long_ago_is_away(deployment):
    with status.hold_server(deployment):
        shown = server(deployment, heard=(0,))
        shown.heard["1"] = time.time() - 3600
        shown.save(deployment.server)
        found = health.of_server(deployment)
    assert [node["state"] for node in found.facts["nodes"]] == ["connected", "away", "never connected"]
    assert found.facts["nodes"][1]["heard"] == logs.moment(shown.heard["1"])


def test_a_server_that_says_nothing_any_more_is_stuck(deployment, monkeypatch):
    with status.hold_server(deployment):
        server(deployment)
        later = time.time() + 2 * health.SILENT
        monkeypatch.setattr(health.time, "time", lambda: later)
        found = health.of_server(deployment)
    assert found.code == 3
    assert "has been silent for" in found.reason
    assert found.exit_code(alive=True) == 3


def test_a_certificate_that_ends_soon_is_a_warning_and_no_illness(deployment):
    signing = certificates.load_key(deployment.server / "ca.key")
    soon = certificates.authority(deployment.name, signing, days=12)
    (deployment.server / "server.pem").write_bytes(certificates.to_pem(soon))
    with status.hold_server(deployment):
        server(deployment)
        found = health.of_server(deployment)
    assert found.code == 0
    assert found.facts["certificates"]["server.pem"]["soon"]
    assert not found.facts["certificates"]["ca.pem"]["soon"]
    assert 11.9 <= found.facts["certificates"]["server.pem"]["days"] <= 12
    assert any(line.startswith("certificate server.pem: WARNING, valid until") for line in found.lines)


def test_refusals_are_told_apart_from_other_warnings(deployment):
    warnings = [{"time": "T1", "message": "refused 192.0.2.1: no"}, {"time": "T2", "message": "client 1: no answer"}]
    server(deployment, warnings=warnings)
    found = health.of_server(deployment)
    assert (found.facts["refusals"], found.facts["warnings"]) == (warnings[:1], warnings[1:])
    assert found.lines[-2:] == ["  T1 refused 192.0.2.1: no", "  T2 client 1: no answer"]


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 10**30},
        {"nodes": "three"},
        {"round": float("nan")},
        {"since": 1e300},
        {"heard": {"0": "now"}},
        {"heard": [1]},
        {"told": [[]]},
        {"warnings": [1]},
        {"warnings": [{"time": 5, "message": "x"}]},
        {"machine": None},
        {"process": True},
        {"state": 5},
    ],
    ids=str,
)
def test_a_damaged_status_is_named_and_no_health_check_hangs_or_breaks(deployment, change):
    status.ServerStatus.begin(state="training", nodes=3).save(deployment.server)
    path = deployment.server / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"status\.json cannot be read"):
        health.of_server(deployment)


def test_what_another_version_says_beside_is_left_alone(deployment):
    server(deployment, "finished")
    path = deployment.server / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": "good"}))
    assert health.of_server(deployment).facts["state"] == "finished"
    path.write_text("[]")
    with pytest.raises(UserError, match=r"status\.json cannot be read"):
        health.of_server(deployment)


def test_a_server_elsewhere_is_not_stopped_by_its_number(deployment):
    """The same number is another process here, such as that of a container on its host."""
    with status.hold_server(deployment):
        shown = server(deployment)
        shown.machine = "container pid:[4026531836]"
        shown.save(deployment.server)
        with pytest.raises(UserError, match=r"runs elsewhere \(process \d+ on container"):
            status.stop(deployment)
    with pytest.raises(UserError, match="no server is running"):
        status.stop(deployment)


# -- a node --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "known", "code"),
    [
        (True, {}, 0),
        (True, {"answered": 0.0, "state": "waiting for the server"}, 4),
        (True, {"answered": 1e9}, 4),
        (False, {}, 3),
        (False, {"state": "finished"}, 0),
        (False, {"state": "stopped"}, 3),
    ],
)
def test_a_node_is_judged_by_its_process_and_by_the_server(home, held, known, code):
    node(home, **known)
    lock = status.hold_node(home) if held else None
    found = health.of_node(home)
    if lock is not None:
        lock.release()
    assert found.code == code
    assert found.exit_code(alive=True) == (0 if code == 4 else code)
    assert found.facts["node"] == 1


def test_a_held_folder_names_who_holds_it(home, deployment):
    with status.hold_node(home):
        shown = node(home)
        with pytest.raises(UserError) as refused:
            status.hold_node(home)
    assert str(refused.value) == (
        f"node 1 of {home.folder} ({status.place_of(shown)}) is running already; "
        f"see: fedpareto node status {home.folder}"
    )
    status.hold_node(home).release()


# -- the commands --------------------------------------------------------------------------------------------------


def test_the_commands_exit_with_the_verdict_and_load_nothing_heavy(deployment):
    """A health check comes by every few seconds."""
    script = (
        "import sys\n"
        "sys.argv = ['fedpareto', *sys.argv[1:]]\n"
        "try:\n    from fedpareto.cli import main\n    main()\n"
        "except SystemExit as end:\n    assert not {'torch', 'pandas', 'flwr'} & set(sys.modules)\n    raise\n"
    )
    for words in (("server", "status", deployment.folder), ("node", "status", deployment.node(1))):
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, words), "--json"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (3, "")
        assert json.loads(done.stdout)["code"] == 3


# -- logs ----------------------------------------------------------------------------------------------------------


def test_json_lines_are_objects(capsys, our_log):
    memory = logs.begin(logs.LogOptions("json"))
    logging.getLogger("fedpareto.server").warning("refused %s", "x")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["part"], line["message"]) == ("warning", "server", "refused x")
    assert memory.lines[0]["message"] == "refused x"


def test_in_one_terminal_each_line_says_which_node_speaks(capsys, our_log):
    logs.begin(logs.LogOptions(who="node 2"))
    our_log.warning("the table is small")
    assert capsys.readouterr().err.partition(" ")[2] == "node 2: warning: the table is small\n"


def test_a_log_file_is_rotated_by_size(tmp_path, our_log, monkeypatch, capsys):
    monkeypatch.setattr(logs, "LARGEST", 1000)
    path = tmp_path / "server.log"
    logs.begin(logs.LogOptions(file=path))
    for number in range(200):
        our_log.info("event %d", number)
    found = sorted(tmp_path.iterdir())
    assert [one.name for one in found] == ["server.log", *(f"server.log.{number}" for number in range(1, 6))]
    assert all(one.stat().st_size <= 1000 for one in found)
    assert "event 199" in path.read_text(encoding="utf-8")
    assert capsys.readouterr().err.count("event ") == 200


def test_a_log_file_that_cannot_be_written_is_a_mistake(tmp_path, our_log):
    with pytest.raises(UserError, match="cannot be written"):
        logs.begin(logs.LogOptions(file=tmp_path / "nowhere" / "server.log"))


def test_the_log_of_another_program_is_shortened_while_it_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LARGEST", 1000)
    path = tmp_path / "superlink.log"
    with path.open("ab", buffering=0) as theirs:  # As Flower's programs get it.
        theirs.write(b"x" * 1001)
        logs.bound(tmp_path)
        theirs.write(b"and on")
        logs.bound(tmp_path)
    assert path.read_bytes() == b"and on"
    assert (tmp_path / "superlink.log.1").read_bytes() == b"x" * 1001


def test_a_shortened_log_of_the_worker_is_passed_on_from_its_beginning(tmp_path, our_log):
    from fedpareto_flower.deploy.node import _pass_on

    path = tmp_path / "worker.log"
    path.write_text("2026-01-01 INFO round 1: done\n" * 10, encoding="utf-8")
    memory = logs.begin()
    position = _pass_on(path, 0)
    path.write_text("2026-01-01 WARNING round 2: its reply was refused\n", encoding="utf-8")
    assert _pass_on(path, position) == path.stat().st_size
    assert [line["message"] for line in memory.lines] == ["round 2: its reply was refused"]


def test_a_full_disk_is_said_once_and_ends_nothing(deployment, our_log, monkeypatch):
    memory = logs.begin()
    shown = status.ServerStatus.begin()

    def full(path, content):
        raise UserError("No space left on device")

    monkeypatch.setattr(status, "write_atomically", full)
    monkeypatch.setattr(status, "PULSE", 0.001)
    rounds = []
    with status.kept(shown, deployment.server, lambda: rounds.append(1)):
        until(lambda: len(rounds) >= 5)
    assert [line["message"] for line in memory.lines] == ["the status is not up to date: No space left on device"]


@pytest.mark.parametrize(
    ("problem", "state"), [(KeyboardInterrupt(), "stopped"), (LookupError(), "stopped"), (ValueError("x"), "failed")]
)
def test_how_a_process_ended_stands_in_its_status(deployment, our_log, problem, state):
    shown = status.ServerStatus.begin(state="training")
    with (
        pytest.raises(type(problem)),
        status.kept(shown, deployment.server, lambda: None, stops=(LookupError,)),
    ):
        raise problem
    assert status.read(deployment).state == state
