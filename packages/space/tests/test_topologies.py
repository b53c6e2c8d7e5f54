"""Who talks to whom (table 6.2, row 1), and to which server (row 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.relay import BundleNetwork
from fedpareto_space.links.transports import MemoryNetwork
from fedpareto_space.session.agreement import beginning_as, capabilities, changed, terms_of
from fedpareto_space.session.drive import Plan, Simulation, routes_of
from fedpareto_space.session.peer import as_peers, neighbours_of
from fedpareto_space.wire import rows
from fedpareto_space.wire.terms import Alternatives
from fedpareto_space.wire.vocabulary import Role
from sessions import on_the_local_engine, same, small

LOSSY = Channel(rate=1e6, loss=0.2, delay=0.02)


@pytest.mark.parametrize(("name", "neighbours"), [("fedavg", 1), ("fedavg", 3), ("fedpref", 2), ("fedcmoo", 1)])
def test_without_a_server_all_nodes_end_with_the_local_engines_models(name, neighbours):
    spec = small(name, clients=4)
    simulation = Simulation(Plan(spec, as_peers(terms_of(spec), neighbours)))
    finished = simulation.run()
    assert not simulation.servers
    assert set(finished.reasons.values()) == {"done"}
    digest, models = on_the_local_engine(spec)
    assert finished.digest == digest
    assert same(finished.models, models)


def test_peers_hold_equal_models_after_lossy_updates_over_links_that_lose_frames():
    spec = small("fedavg", clients=3)
    coded = changed(as_peers(terms_of(spec)), format={"codec": "int8-delta", "error_feedback": True})
    finished = Simulation(Plan(spec, coded), CfdpNetwork(LOSSY, seed=5)).run()
    assert set(finished.reasons.values()) == {"done"}
    first, *others = finished.models.values()
    assert all((model == first).all() for model in others)


def test_a_silent_peer_is_waited_for_as_agreed():
    spec = small("fedavg", clients=3)
    terms = changed(as_peers(terms_of(spec)), client_failures={"timeout": 30.0, "retries": 2})
    contacts = [(0.0, 0.5, 10, 11), (0.0, 0.5, 10, 12), (0.0, 0.5, 11, 12)]
    finished = Simulation(Plan(spec, terms), MemoryNetwork(contacts), contacts=contacts).run()
    assert set(finished.reasons.values()) == {"a neighbour is silent"}
    assert finished.faults().count(("client-silent", "retry")) == 9


@pytest.mark.parametrize("topology", [rows.Ring(), rows.Hierarchical(2), rows.Hierarchical(3)])
def test_over_a_ring_and_in_a_hierarchy_messages_reach_the_server_by_other_nodes(topology):
    spec = small("fedavg", clients=5)
    plan = Plan(spec, changed(terms_of(spec), topology=topology))
    routes = routes_of(topology, 1, list(plan.nodes.values()))
    assert any(hop not in pair for pair, hop in routes.items())
    finished = Simulation(plan, BundleNetwork(MemoryNetwork(), routes)).run()
    assert finished.digest == on_the_local_engine(spec)[0]


def test_neighbours_are_the_next_on_the_circle():
    assert neighbours_of(12, [10, 11, 12], 1) == (10,)
    assert neighbours_of(10, [10, 11, 12], 7) == (11, 12)


def test_negotiation_takes_the_first_topology_that_both_know():
    spec = small()
    star, ring = terms_of(spec), changed(terms_of(spec), topology=rows.Ring())
    plan = Plan(spec, star, Alternatives.of(ring, star))
    only_star = {client: capabilities(node, Role.CLIENT, {(2, 1): "star"}) for client, node in plan.nodes.items()}
    simulation = Simulation(plan, abilities=only_star)
    assert simulation.run().digest == on_the_local_engine(spec)[0]
    assert {host.machine.agreed.topology for host in simulation.clients} == {rows.Star()}


def test_two_that_share_no_row_part_on_that_row():
    spec = small()
    plan = Plan.of(spec)
    never = {0: capabilities(plan.nodes[0], Role.CLIENT, {(2, 3): "poll"})}
    finished = Simulation(plan, abilities=never).run()
    assert finished.reasons[10] == "no agreement: table 6.2, row 3"
    assert finished.reasons[1] == finished.reasons[11] == "done"


def test_a_model_under_another_key_is_refused_by_name():
    spec = small()
    key, other = bytes(range(32)), bytes(reversed(range(32)))
    plan = Plan(spec, changed(terms_of(spec), servers=(rows.Identity(1, 1, key),)))
    simulation = Simulation(plan, horizon=100.0)
    assert simulation.run().digest == on_the_local_engine(spec)[0]
    forged = Simulation(plan, horizon=100.0)
    forged.servers[0].machine._key = lambda: other
    finished = forged.run()
    refused = [note for note in finished.log if note.what == "server-change" and note.node == 10]
    assert refused[0].action == "refuse"
    assert refused[0].detail == "node 1 has another key than was agreed on"
    assert not finished.models


def test_a_client_that_begins_with_another_model_parts_on_row_7():
    spec = small("lft-fedavg")
    other = replace(spec, seeds=(7,))
    plan = Plan.of(spec)
    abilities = {1: capabilities(plan.nodes[1], Role.CLIENT, beginning_as(other))}
    finished = Simulation(plan, abilities=abilities).run()
    assert finished.reasons[11] == "no agreement: table 6.2, row 7"
    assert finished.reasons[10] == "done"
