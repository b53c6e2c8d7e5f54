"""Two CFDP entities and a link between them whose every PDU a test can look at, drop, double or hold back."""

from __future__ import annotations

from math import inf

from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import decode
from fedpareto_space.links.stores import BytesSource
from fedpareto_space.links.transactions import Delivered, Ended, Faulted

MANAGED = Managed(segment=100, largest_pdu=200, ack_limit=3, nak_limit=3, inactivity=1000.0)


class Pair:
    """Node 1 and node 2; `fate` says for each PDU how many copies arrive."""

    def __init__(self, managed=MANAGED, fate=lambda pdu, count: 1, **given):
        self.one, self.two = Entity(1, managed, **given), Entity(2, managed, **given)
        self.now, self.fate, self.sent, self.told = 0.0, fate, [], {1: [], 2: []}

    def send(self, data, **given):
        """Begin to send from 1 to 2."""
        return self.one.put(2, BytesSource(data), self.now, **given)

    def exchange(self):
        """Carry PDUs until neither has any; true if there were some."""
        some = False
        moved = True
        while moved:
            moved = False
            for here, there in ((self.one, self.two), (self.two, self.one)):
                found = here.pull(there.node, self.now)
                if found is not None:
                    some = moved = True
                    self._carry(found[0], here, there)
        for entity in (self.one, self.two):
            self.told[entity.node] += entity.indications()
        return some

    def _carry(self, data, here, there):
        pdu = decode(data)[1]
        earlier = sum(type(one) is type(pdu) and node == here.node for node, one in self.sent)
        self.sent.append((here.node, pdu))
        for _ in range(self.fate(pdu, earlier)):
            there.receive(data, self.now, here.node)

    def run(self, until=inf):
        """Let time pass until nothing more happens, or to a time."""
        self.exchange()
        while (at := min(self.one.next_time(), self.two.next_time())) < until:
            self.now = at
            self.one.tick(at)
            self.two.tick(at)
            self.exchange()
        return self

    def link(self, up):
        """Begin or end a contact at both ends."""
        self.one.link(2, up, self.now)
        self.two.link(1, up, self.now)

    def of(self, kind, node=None):
        """The PDUs of a kind that were sent, in order."""
        return [pdu for sender, pdu in self.sent if isinstance(pdu, kind) and node in (None, sender)]

    @property
    def files(self):
        """What arrived at 2."""
        return [told.sink.data for told in self.told[2] if isinstance(told, Delivered)]

    def ends(self, node):
        """The conditions with which transactions ended at a node."""
        return [told.condition for told in self.told[node] if isinstance(told, Ended)]

    def faults(self, node):
        """The faults at a node."""
        return [told.condition for told in self.told[node] if isinstance(told, Faulted)]

    @property
    def open(self):
        """Transactions that have not ended, at both ends."""
        return self.one.open + self.two.open
