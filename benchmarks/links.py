"""Space links under load: thousands of transfers by CFDP over channels that lose, damage, double and reorder frames.

`python benchmarks/links.py` makes 10,000 transfers of a file of 76,225 bytes (an int8 update of a network with 151,306
parameters), a quarter of them each plain, with duplicates and reordering, with bit errors, and with contacts and
outages, at losses from 0 to 50 %. All have to arrive bit for bit and be closed at both ends; the bytes that the source
sends, frames and all, are compared with the bound 1.033 / (1 − p), where p is the share of frames that is lost or
damaged and 3.3 % are headers. Frames that are sent into an outage of which nobody is told are not counted. `--speed`
prints how many PDUs a second the engine makes; `--bundles` damages every single bit of a bundle with 8 KiB.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from fedpareto_space.links.bundles import Endpoint, bundle, decode, encode
from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.frames import Deframer, Framer
from fedpareto_space.links.refusal import Refused
from fedpareto_space.links.stores import BytesSource
from fedpareto_space.links.transports import Contact

SIZE = 76_225
FRAME = 1054
"""Bytes of a frame with a whole segment."""
HEADERS = 1.033
ALLOWED = 1.05
"""How much more than the bound is allowed."""
LOSSES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
BIT_ERRORS = (1e-6, 1e-5, 3e-5, 1e-4)
CHUNK = 25
"""Transfers that a process makes at a time."""


@dataclass(frozen=True)
class Transfer:
    """One transfer: over what."""

    number: int
    kind: str
    channel: Channel
    contacts: tuple[Contact, ...] | None = None

    @property
    def bound(self) -> float:
        """Bytes sent for each byte of the file, at least."""
        return HEADERS / self.channel.survives(FRAME)


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    transfer: Transfer
    equal: bool
    closed: bool
    ratio: float
    """Bytes sent for each byte of the file."""
    refused: int


def transfer(number: int) -> Transfer:
    """The transfer of a number: kinds and losses in turn, rates and delays by chance."""
    chance = np.random.default_rng([22, number])
    rate, delay = float(chance.choice([2400.0, 9600.0, 1e6])), float(chance.choice([0.005, 0.25, 1.3]))
    loss = LOSSES[number // 4 % len(LOSSES)]
    kind = ("plain", "doubled and reordered", "bit errors", "contacts and outages")[number % 4]
    if kind == "doubled and reordered":
        late = float(chance.uniform(0.1, 5.0))
        channel = Channel(rate, loss, 0.0, delay, duplication=0.05, reordering=0.1, late=late)
        return Transfer(number, kind, channel)
    if kind == "bit errors":
        return Transfer(number, kind, Channel(rate, loss, float(chance.choice(BIT_ERRORS)), delay))
    if kind == "contacts and outages":
        length = float(chance.uniform(20.0, 60.0))
        contacts = tuple((5700.0 * orbit, 5700.0 * orbit + length, 1, 2) for orbit in range(400))
        outages = tuple((5700.0 * orbit + 3.0, 5700.0 * orbit + 8.0) for orbit in range(0, 400, 3))
        return Transfer(number, kind, Channel(rate, loss, 0.0, delay, outages=outages), contacts)
    return Transfer(number, kind, Channel(rate, loss, 0.0, delay))


def run(one: Transfer) -> Outcome:
    """Make a transfer."""
    data = np.random.default_rng([one.number]).bytes(SIZE)
    network = CfdpNetwork(one.channel, one.contacts, seed=one.number)
    source, destination = network.transport(1), network.transport(2)
    source.send(2, data, 0.0)
    network.pass_time(3e6)
    arrived = destination.poll(3e6)
    sent = source.traffic.bytes_sent - network.drowned(1, 2)
    return Outcome(
        one,
        [delivery.data for delivery in arrived] == [data],
        network.open == 0 and source.traffic.messages_sent == 1,
        sent / SIZE,
        source.traffic.packets_refused + destination.traffic.packets_refused,
    )


def some(first: int) -> list[Outcome]:
    """The outcomes of a few transfers."""
    return [run(transfer(number)) for number in range(first, first + CHUNK)]


def outcomes(count: int, jobs: int) -> Iterator[Outcome]:
    """The outcomes of the first transfers."""
    if jobs == 1:
        yield from (run(transfer(number)) for number in range(count))
        return
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(some, range(0, count, CHUNK)):
            yield from found


def groups(found: list[Outcome]) -> dict[tuple[str, float, float], list[Outcome]]:
    """Outcomes by kind, loss and bit errors, which have the same bound."""
    together = defaultdict(list)
    for one in found:
        channel = one.transfer.channel
        together[one.transfer.kind, channel.loss, channel.bit_errors].append(one)
    return dict(sorted(together.items()))


def over_the_bound(group: list[Outcome]) -> float:
    """How many times the bound a group's mean bytes are."""
    return float(np.mean([one.ratio for one in group]) / group[0].transfer.bound)


def speed() -> None:
    """PDUs a second of the engine alone, and of engine, packets and frames, for four megabytes without loss."""
    for name, framed in (("CFDP", False), ("CFDP, space packets and USLP frames", True)):
        here, there = Entity(1), Entity(2)
        framer, deframer = Framer(1), Deframer(1)
        here.put(2, BytesSource(bytes(4_000_000)), 0.0)
        count, began = 0, time.process_time()
        while (found := here.pull(2, 0.0)) is not None:
            pdu = deframer.pdu(framer.frame(found[0])) if framed else found[0]
            there.receive(pdu, 0.0, 1)
            count += 1
        seconds = time.process_time() - began
        print(f"{name}: {count / seconds:,.0f} PDUs a second, sent and received; {4 / seconds:.1f} MB/s")


def damaged_bundles() -> tuple[int, int]:
    """How many bundles with one damaged bit were refused, of how many."""
    whole = encode(bundle(Endpoint(1), Endpoint(2), np.random.default_rng(22).bytes(8192), 1, 1, 1000, 16))
    damaged, refused = bytearray(whole), 0
    for bit in range(8 * len(whole)):
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            decode(bytes(damaged))
        except Refused:
            refused += 1
        damaged[bit >> 3] ^= 1 << (bit & 7)
    return refused, 8 * len(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transfers", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--bundles", action="store_true")
    given = parser.parse_args()
    if given.speed:
        speed()
        return
    if given.bundles:
        refused, bits = damaged_bundles()
        print(f"{refused} of {bits} bundles with one damaged bit refused")
        return
    found = list(outcomes(given.transfers, given.jobs))
    print(f"{'kind':24} {'loss':>5} {'bit errors':>10} {'transfers':>9} {'bytes / file':>12} {'bound':>6} {'times':>6}")
    for (kind, loss, errors), group in groups(found).items():
        mean, bound = np.mean([one.ratio for one in group]), group[0].transfer.bound
        print(f"{kind:24} {loss:5.2f} {errors:10g} {len(group):9} {mean:12.3f} {bound:6.3f} {mean / bound:6.3f}")
    equal, closed = sum(one.equal for one in found), sum(one.closed for one in found)
    worst = max(over_the_bound(group) for group in groups(found).values())
    damaged = sum(one.refused for one in found)
    print(f"{equal} of {len(found)} bit-identical, {closed} closed at both ends, {damaged} damaged frames refused")
    print(f"at most {worst:.3f} times the bound (allowed: {ALLOWED})")


if __name__ == "__main__":
    main()
