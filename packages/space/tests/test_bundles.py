"""Bundles: byte for byte those of pyD3TN, no damage unseen, and relays that store and forward them."""

from __future__ import annotations

import random

import pytest
from pyd3tn import bundle7

from fedpareto.config.errors import UserError
from fedpareto_space.links.bundles import (
    AGE,
    CRC_16,
    HOPS,
    PREVIOUS_NODE,
    Block,
    Bundle,
    Endpoint,
    bundle,
    decode,
    encode,
)
from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.fluid import FluidNetwork
from fedpareto_space.links.refusal import Refused
from fedpareto_space.links.relay import BundleNetwork, BundleTransport, fewest_hops
from fedpareto_space.links.transports import Delivery, MemoryNetwork

PAYLOAD = random.Random(22).randbytes(3000)
OURS = bundle(Endpoint(1, 3), Endpoint(2, 4), PAYLOAD, 815_000_000_123, 7, 86_400_000, 16)


def theirs(payload=PAYLOAD, **given):
    """A bundle by pyD3TN."""
    created = bundle7.CreationTimestamp.from_cbor([815_000_000_123, 7])
    primary = bundle7.PrimaryBlock(
        crc_type=bundle7.CRCType.CRC32, destination="ipn:2.4", source="ipn:1.3", creation_time=created, **given
    )
    blocks = [bundle7.BundleAgeBlock(0), bundle7.HopCountBlock(16, 0)]
    return bundle7.Bundle(primary, bundle7.PayloadBlock(payload), blocks)


def test_a_bundle_has_the_bytes_that_pyd3tn_gives_it():
    assert encode(OURS) == bytes(theirs())


def test_pyd3tn_reads_our_bundles_and_writes_the_same_bytes():
    for size in (0, 1, 23, 24, 255, 256, 65_536):
        ours = encode(bundle(Endpoint(1), Endpoint(2**40), bytes(size), 815_000_000_123, size, 1000, 16))
        read = bundle7.Bundle.parse(ours)
        assert read.payload_block.data == bytes(size)
        assert bytes(read) == ours


@pytest.mark.parametrize("crc", [bundle7.CRCType.CRC16, bundle7.CRCType.CRC32])
def test_we_read_bundles_of_pyd3tn_and_write_the_same_bytes(crc):
    written = theirs(report_to="ipn:9.1", lifetime=5)
    written.primary_block.crc_type = crc
    written.add(bundle7.PreviousNodeBlock("ipn:5.0"))
    for block in written:
        block.crc_type = crc
    read = decode(bytes(written))
    assert (read.source, read.destination, read.report_to) == (Endpoint(1, 3), Endpoint(2, 4), Endpoint(9, 1))
    assert (read.payload, read.age, read.hops, read.lifetime) == (PAYLOAD, 0, (16, 0), 5)
    assert encode(read) == bytes(written)


def test_relays_tell_what_pyd3tn_understands():
    passed = OURS.told(AGE, 1500).told(HOPS, [16, 1]).told(PREVIOUS_NODE, [2, [5, 0]])
    read = bundle7.Bundle.parse(encode(passed))
    assert [block.block_type for block in read] == [-1, 6, 7, 10, 1]
    assert bytes(read) == encode(passed) == encode(decode(encode(passed)))
    assert (passed.age, passed.hops) == (1500, (16, 1))


@pytest.mark.parametrize("crc", [None, CRC_16])
def test_no_single_damaged_bit_goes_unseen(crc):
    whole = bundle(Endpoint(1), Endpoint(2), b"sixteen weights.", 815_000_000_123, 7, 1000, 16)
    if crc:
        blocks = tuple(Block(block.kind, block.number, block.data, block.flags, crc) for block in whole.blocks)
        whole = Bundle(whole.source, whole.destination, 1, 7, 1000, blocks, crc=crc)
    data = encode(whole)
    assert decode(data) == whole
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused, match="bundle refused"):
            decode(bytes(damaged))


def test_random_bytes_as_bundles_are_refused_by_name_and_nothing_else():
    chance, data = random.Random(22), encode(bundle(Endpoint(1), Endpoint(2), b"some", 1, 7, 1000, 16))
    for number in range(3000):
        tried = bytearray(data if number % 2 else b"\x9f" + chance.randbytes(chance.randrange(80)))
        for _ in range(chance.randrange(1, 6)):
            tried[chance.randrange(len(tried))] ^= 1 + chance.randrange(255)
        if number % 3 == 0:
            del tried[chance.randrange(len(tried)) :]
        with pytest.raises(Refused):
            decode(bytes(tried))


def again(**changed):
    """A bundle with other fields and right checksums."""
    fields = {name: getattr(OURS, name) for name in OURS.__dataclass_fields__}
    return encode(Bundle(**fields | changed))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encode(OURS)[:-1], "CBOR"),
        (encode(OURS) + b"\0", "something follows"),
        (b"", "not an array"),
        (b"\x9f\xff", "fewer than two blocks"),
        (again(flags=1), "a fragment"),
        (again(blocks=OURS.blocks[:2]), "not its payload"),
        (again(blocks=(OURS.blocks[0], *OURS.blocks)), "twice"),
        (again(blocks=(Block(200, 9, b"", 16), *OURS.blocks)), "unknown block that matters"),
        (again(created=0, blocks=OURS.blocks[-1:]), "neither a time nor an age"),
        (again(blocks=(Block(AGE, 2, b"\x18\x01"), OURS.blocks[-1])), "holds no CBOR"),
        (bytes(theirs(report_to="dtn://ground/")), "another scheme"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_it(data, reason):
    with pytest.raises(Refused, match=reason):
        decode(data)


# -- relays --------------------------------------------------------------------------------------------------------

CONTACTS = [(10.0, 60.0, 1, 5), (200.0, 260.0, 5, 6), (400.0, 460.0, 6, 2)]
ROUTES = fewest_hops(CONTACTS)


@pytest.mark.parametrize(
    "hops",
    [
        lambda: MemoryNetwork(CONTACTS),
        lambda: FluidNetwork(Channel(9600.0, 0.2, delay=0.1), CONTACTS),
        lambda: CfdpNetwork(Channel(9600.0, 0.2, delay=0.1), CONTACTS, seed=3),
    ],
    ids=["memory", "fluid", "cfdp"],
)
def test_relays_store_and_forward_over_contacts_that_never_exist_at_the_same_time(hops):
    network = BundleNetwork(hops(), ROUTES)
    network.transport(1).send(2, PAYLOAD, 0.0)
    at = network.advance(1e4)
    assert 400.0 <= at < 460.0
    assert network.transport(2).poll(at) == [Delivery(1, PAYLOAD, at)]
    assert network.advance(1e4) == 1e4


def test_routes_take_the_fewest_hops():
    assert ROUTES[1, 2] == 5
    assert ROUTES[5, 2] == 6
    assert ROUTES[2, 1] == 6
    assert ROUTES[6, 2] == 2
    assert (1, 9) not in ROUTES


def test_polling_lets_all_relays_work():
    network = BundleNetwork(MemoryNetwork(CONTACTS), ROUTES)
    network.transport(1).send(2, PAYLOAD, 0.0)
    assert network.transport(2).poll(399.0) == []
    assert [one.data for one in network.transport(2).poll(401.0)] == [PAYLOAD]


def test_a_node_that_nobody_polls_does_not_hold_up_the_others():
    network = BundleNetwork(MemoryNetwork(CONTACTS), ROUTES)
    network.transport(1).send(5, b"for nobody", 0.0)
    network.transport(1).send(2, b"for somebody", 0.0)
    assert network.advance(1e4) == 10.0
    assert network.advance(1e4) == 400.0
    assert network.transport(2).poll(400.0)
    assert network.advance(1e4) == 1e4


def test_a_bundle_that_is_too_old_is_dropped_where_it_waits():
    network = BundleNetwork(MemoryNetwork(CONTACTS), ROUTES)
    network.transport(1).send(2, PAYLOAD, 0.0, lifetime=300.0)
    assert network.advance(1e4) == 1e4
    assert network.transport(2).poll(1e4) == []


def test_a_bundle_does_not_go_round_in_circles():
    circle = {(1, 9): 2, (2, 9): 3, (3, 9): 1}
    network = BundleNetwork(MemoryNetwork(), circle)
    network.transport(1).send(9, PAYLOAD, 0.0)
    network.pass_time(10.0)
    dropped = [network.transport(node).dropped for node in (1, 2, 3)]
    assert sum(sum(one.values()) for one in dropped) == 1


def test_what_comes_twice_is_delivered_once_and_rubbish_is_counted():
    hops = MemoryNetwork()
    node = BundleTransport(hops.transport(2))
    for data in (encode(bundle(Endpoint(1), Endpoint(2), b"x", 1, 1, 1000, 16)),) * 2 + (b"rubbish",):
        hops.transport(1).send(2, data, 0.0)
    assert [one.data for one in node.poll(0.0)] == [b"x"]
    assert node.dropped == {"it has come before": 1, "not an array of blocks": 1}


def test_a_relay_keeps_unknown_blocks_unless_they_say_otherwise_and_counts_hops_and_age():
    hops = MemoryNetwork()
    relay = BundleTransport(hops.transport(5))
    made = bundle(Endpoint(1), Endpoint(2), b"x", 1, 1, 60_000, 16)
    kept, lost = Block(200, 8, b"kept"), Block(201, 9, b"lost", flags=2)
    made = Bundle(**{**vars(made), "blocks": (kept, lost, *made.blocks)})
    hops.transport(1).send(5, encode(made), 30.0)
    relay.pump(30.0)
    (passed,) = map(decode, (one.data for one in hops.transport(2).poll(30.0)))
    assert [block.kind for block in passed.blocks] == [PREVIOUS_NODE, 200, AGE, HOPS, 1]
    assert (passed.age, passed.hops, passed.payload) == (29_999, (16, 1), b"x")


def test_mistakes_are_named():
    with pytest.raises(UserError, match="cannot send to itself"):
        BundleNetwork(MemoryNetwork()).transport(1).send(1, b"", 0.0)
