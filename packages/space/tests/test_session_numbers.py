"""A session has the numbers of the local engine, whatever the algorithm."""

from __future__ import annotations

import pytest

from fedpareto.contract import registry
from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.fluid import FluidNetwork
from fedpareto_space.links.relay import BundleNetwork
from fedpareto_space.links.transports import MemoryNetwork
from fedpareto_space.session.agreement import terms_of
from fedpareto_space.session.drive import Plan, Simulation
from fedpareto_space.wire.messages import Offer, Update, decode, encode
from fedpareto_space.wire.terms import Alternatives
from fedpareto_space.wire.vocabulary import Role
from little_work import few_of
from sessions import on_the_local_engine, same, simulated, small


@pytest.mark.parametrize("name", few_of([*registry.algorithms(), "fedavg+ft", "fedpref+ft"]))
def test_every_algorithm_has_the_local_engines_numbers_over_the_protocol(name):
    spec = small(name)
    finished = simulated(spec)
    digest, models = on_the_local_engine(spec)
    assert set(finished.reasons.values()) == {"done"}
    assert not finished.faults()
    assert finished.digest == digest
    assert same(finished.models, models)


def test_partial_participation_asks_the_same_clients_as_the_local_engine():
    spec = small("fedpref", clients=4, rounds=3, participation=0.5)
    finished = simulated(spec)
    assert finished.digest == on_the_local_engine(spec)[0]
    trained = [note for note in finished.log if note.what == "trains"]
    assert len(trained) == 2 * 3


RELAY = 5
"""A node that passes on what clients and server have for each other."""
LOSSY = Channel(rate=1e6, loss=0.3, delay=0.02)


def over_a_relay(clients):
    """Bundles over a relay that stores and forwards; each hop is CFDP over a link that loses frames."""
    routes = {}
    for node in (10 + client for client in range(clients)):
        routes |= {(1, node): RELAY, (node, 1): RELAY}
    return BundleNetwork(CfdpNetwork(LOSSY, seed=3), routes)


NETWORKS = {
    "memory": lambda clients: MemoryNetwork(),
    "fluid": lambda clients: FluidNetwork(LOSSY),
    "cfdp with 30 % loss": lambda clients: CfdpNetwork(LOSSY, seed=2),
    "bundles over a relay": over_a_relay,
}


@pytest.mark.parametrize("name", ["fedavg", "fedpref", "fedmgda-plus", "fedcmoo"])
def test_the_same_session_over_any_transport_ends_with_the_local_engines_digest(name):
    spec = small(name)
    digests = {network: simulated(spec, make(spec.clients)).digest for network, make in NETWORKS.items()}
    assert digests == dict.fromkeys(NETWORKS, on_the_local_engine(spec)[0])


def test_a_session_goes_on_over_contacts_that_are_short_and_rare():
    spec = small("fedavg")
    contacts = [(100.0 * number, 100.0 * number + 3.0, 1, 10 + number % 2) for number in range(80)]
    network = CfdpNetwork(Channel(rate=2e4, loss=0.2), contacts, seed=4)
    finished = simulated(spec, network, contacts=contacts)
    assert finished.digest == on_the_local_engine(spec)[0]
    assert finished.seconds > 300


def test_offers_and_headers_are_small_whatever_the_algorithm():
    offers = {}
    for name in registry.algorithms():
        spec = small(name)
        offer = Offer(session=bytes(8), node=1, role=Role.SERVER, rows=Alternatives.of(terms_of(spec)))
        offers[name] = len(encode(offer))
    assert max(offers.values()) <= 512
    sent = []
    simulation = Simulation(Plan.of(small(rounds=3)))
    simulation.clients[0].on_send = lambda node, effect, now: sent.append(effect.data)
    simulation.run()
    updates = [(data, decode(data)) for data in sent if isinstance(decode(data), Update)]
    assert [update.manifest is not None for _, update in updates] == [True, False, False]
    assert max(len(data) - len(update.payload) for data, update in updates) <= 128
