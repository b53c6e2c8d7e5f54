"""Gossip between real nodes: nobody speaks with anybody but its neighbours, from the first offer to the last update."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from fedpareto.contract.registry import make_algorithm
from fedpareto_space.links.transports import MemoryNetwork
from fedpareto_space.links.udp import UdpTransport
from fedpareto_space.session.agreement import FIRST_CLIENT, terms_of
from fedpareto_space.session.drive import Plan, Simulation
from fedpareto_space.session.peer import as_peers
from sessions import on_the_local_engine, same, small

CLIENTS = 5
GRAPHS = {
    "gossip-fedavg": {},
    "gossip-fedpref": {"graph": "grid"},
    "dmoead": {"graph": "edges", "edges": ["0-1", "0-2", "0-3", "3-4"]},
}


def plan_of(name):
    spec = replace(small(name, clients=CLIENTS), algorithm=make_algorithm(name, GRAPHS[name]))
    return Plan(spec, as_peers(terms_of(spec)))


def pairs_of(plan):
    graph = plan.spec.algorithm.neighbours(CLIENTS)
    return {(FIRST_CLIENT + int(one), FIRST_CLIENT + int(other)) for one, other in np.argwhere(graph.matrix())}


def watched(simulation):
    """Notes who sends to whom."""
    sent = set()
    for host in simulation.hosts:
        host.on_send = lambda node, effect, now: sent.add((node, effect.to))
    return sent


@pytest.mark.parametrize("name", GRAPHS)
def test_nobody_sends_to_others_than_neighbours_and_all_end_as_on_the_local_engine(name):
    """To the bit: what a node makes of a round is what one stack of all makes of it."""
    plan = plan_of(name)
    simulation = Simulation(plan, MemoryNetwork())
    sent = watched(simulation)
    finished = simulation.run()
    assert set(finished.reasons.values()) == {"done"}
    assert sent == pairs_of(plan)
    assert same(finished.models, on_the_local_engine(plan.spec)[1])


class Sockets:
    """Every node a real socket of UDP on this machine, which has the addresses of its neighbours and of nobody else."""

    def __init__(self, pairs):
        nodes = sorted({one for one, _ in pairs})
        self.transports = {node: UdpTransport(node, {}) for node in nodes}
        for one, other in pairs:
            self.transports[one].meet(other, self.transports[other].address)
        self.began = time.monotonic()

    def transport(self, node):
        return self.transports[node]

    def advance(self, until):
        next(iter(self.transports.values())).wait(0.001)
        return time.monotonic() - self.began


def test_over_sockets_that_know_only_their_neighbours_the_front_is_the_same():
    plan = plan_of("dmoead")
    network = Sockets(pairs_of(plan))
    finished = Simulation(plan, network, seconds=lambda ask: 0.0).run()
    for transport in network.transports.values():
        transport.close()
    assert set(finished.reasons.values()) == {"done"}
    assert same(finished.models, on_the_local_engine(plan.spec)[1])
    assert all(transport.traffic.bytes_received for transport in network.transports.values())
