"""Fourteen faults, each with what was agreed about it: in simulated time."""

from __future__ import annotations

import pytest

from fedpareto_space.session.agreement import ABILITIES, FIRST_CLIENT, SERVER, changed, terms_of
from fedpareto_space.session.drive import Plan, Simulation
from fedpareto_space.session.matrix import FIRST, SECOND, cases
from fedpareto_space.session.mishaps import Mishap
from fedpareto_space.wire import rows
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.vocabulary import FaultKind
from sessions import small, undisturbed


def told(finished):
    return {(note.node, note.what, note.action) for note in finished.log}


@pytest.fixture(scope="module")
def spec():
    return small("fedavg", clients=2, rounds=3)


@pytest.fixture(scope="module")
def digest():
    return undisturbed("fedavg", 2, 3)


def test_the_matrix_has_all_fourteen_faults():
    assert [case.fault for case in cases()] == list(FaultKind)[:14]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_fault_ends_in_the_negotiated_action(case, spec, digest):
    finished = Simulation(Plan(spec, case.terms(spec)), mishaps=case.mishaps).run()
    assert set(case.told) <= told(finished)
    for node, reason in finished.reasons.items():
        assert node in case.silent or reason == case.ends.get(node, "done"), node
    assert (finished.digest == digest) == case.same


FIELDS = {
    FaultKind.NON_FINITE: "on-non-finite",
    FaultKind.CORRUPT_STATE: "on-corrupt-state",
    FaultKind.STORAGE_FULL: "on-storage-full",
    FaultKind.LOW_POWER: "on-low-power",
    FaultKind.UNKNOWN_BASE: "on-unknown-base",
    FaultKind.CORRUPT_PAYLOAD: "on-undecodable",
}
HARMLESS = {"retry", "revert", "request-full", "continue"}
"""After these the result is that of the undisturbed run: the work is done again, or goes on."""


@pytest.mark.parametrize(
    ("fault", "action"),
    [(fault, action) for fault, field in FIELDS.items() for action in ABILITIES[2, 8][field]],
    ids=lambda value: value if isinstance(value, str) else value.name.lower(),
)
def test_every_action_that_a_client_offers_is_done(fault, action, spec, digest):
    field = FIELDS[fault].replace("-", "_")
    wanted = {field: Action[action.upper().replace("-", "_")], "timeout": 50.0, "retries": 2}
    others = {"timeout": 90.0, "on_timeout": Action.DROP}
    terms = changed(terms_of(spec), client_failures=wanted, server_failures=others)
    struck = SERVER if fault is FaultKind.CORRUPT_PAYLOAD else FIRST
    mishaps = {struck: [Mishap(fault, 2, 30.0)]}
    finished = Simulation(Plan(spec, terms), mishaps=mishaps).run()
    name = fault.name.lower().replace("_", "-")
    assert (FIRST, name, action) in told(finished)
    assert finished.reasons[SERVER] == finished.reasons[SECOND] == "done"
    lost = action == "ignore" and fault in (FaultKind.UNKNOWN_BASE, FaultKind.CORRUPT_PAYLOAD)
    assert lost or (finished.reasons[FIRST] == "done") == (action != "leave")
    if action in HARMLESS or (fault is FaultKind.STORAGE_FULL and action != "leave"):
        assert finished.digest == digest


@pytest.mark.parametrize("action", ["ignore", "retry", "continue", "pause", "revert", "request-full", "leave"])
def test_what_a_client_does_about_a_silent_server_is_what_was_agreed(action, spec):
    wanted = {"on_timeout": Action[action.upper().replace("-", "_")], "timeout": 8.0, "retries": 2, "backoff": 1.0}
    plan = Plan(spec, changed(terms_of(spec), client_failures=wanted))
    mishaps = {SERVER: [Mishap(FaultKind.SERVER_SILENT, 2)]}
    simulation = Simulation(plan, mishaps=mishaps, horizon=60.0)
    finished = simulation.run()
    assert (FIRST, "server-silent", action) in told(finished)
    leaves = {"retry", "request-full", "leave"}
    assert (finished.reasons[FIRST] == "the server is silent") == (action in leaves)
    steps = simulation.clients[0].steps
    assert steps > 20 if action == "continue" else steps == 1


@pytest.mark.parametrize("change", list(rows.ServerChange), ids=lambda change: change.name.lower())
def test_a_client_takes_another_server_only_as_agreed(change, spec):
    terms = changed(
        terms_of(spec, (SERVER, SERVER + 1)),
        client_failures={"on_server_change": change, "timeout": 40.0, "retries": 1, "on_timeout": Action.RETRY},
        server_failures={"handover_after": 30.0, "timeout": 60.0},
    )
    mishaps = {SERVER: [Mishap(FaultKind.SERVER_CHANGE, 2)]}
    finished = Simulation(Plan(spec, terms), mishaps=mishaps).run()
    word = {rows.ServerChange.SIGNED: "refuse"}.get(change, change.name.lower())
    assert (FIRST, "server-change", word) in told(finished)
    taken = change in (rows.ServerChange.STANDBYS, rows.ServerChange.RENEGOTIATE)
    assert (finished.reasons[FIRST] == "done") == taken


@pytest.mark.parametrize("rejoin", list(rows.Rejoin), ids=lambda one: one.name.lower())
def test_a_client_that_comes_back_gets_what_was_agreed(rejoin, spec, digest):
    terms = changed(terms_of(spec), server_failures={"rejoin": rejoin})
    mishaps = {FIRST: [Mishap(FaultKind.CLIENT_RESET, 2)]}
    finished = Simulation(Plan(spec, terms), mishaps=mishaps).run()
    assert (SERVER, "client-reset", rejoin.name.lower()) in told(finished)
    refused = rejoin is rows.Rejoin.REFUSE
    assert (finished.digest == digest) != refused
    assert finished.reasons[FIRST] == ("the server closed the session: replaced" if refused else "done")


@pytest.mark.parametrize("action", ["ignore", "retry", "continue", "pause", "revert", "leave"])
def test_what_a_server_does_about_a_lost_quorum_is_what_was_agreed(action, spec):
    wanted = {"on_quorum_lost": Action[action.upper()], "quorum": 2, "timeout": 20.0, "on_timeout": Action.DROP}
    terms = changed(terms_of(spec), server_failures=wanted, client_failures={"timeout": 500.0, "retries": 1})
    mishaps = {FIRST: [Mishap(FaultKind.QUORUM_LOST, 2)]}
    finished = Simulation(Plan(spec, terms), mishaps=mishaps, horizon=300.0).run()
    assert (SERVER, "quorum-lost", action) in told(finished)
    ends = {"leave": "the quorum is lost", "retry": "the quorum is lost", "pause": "", "revert": ""}
    assert finished.reasons[SERVER] == ends.get(action, "done")


def test_a_client_that_sends_too_much_that_is_invalid_is_quarantined(spec):
    terms = changed(terms_of(spec), server_failures={"quarantine_after": 1})
    mishaps = {FIRST: [Mishap(FaultKind.CORRUPT_PAYLOAD, 2)]}
    finished = Simulation(Plan(spec, terms), mishaps=mishaps, horizon=5000.0).run()
    assert (SERVER, "corrupt-payload", "quarantine") in told(finished)
    assert finished.reasons[SERVER] == finished.reasons[SECOND] == "done"


def test_the_clients_of_these_tests_have_the_nodes_that_the_matrix_names():
    assert (FIRST, SECOND) == (FIRST_CLIENT, FIRST_CLIENT + 1)
