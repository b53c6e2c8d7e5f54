"""Contact plans: from orbits, in and out as ION's text, for networks; and routes over them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.config.errors import UserError
from fedpareto_space.links.transports import MemoryNetwork
from fedpareto_space.orbits import ion
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.plans import Contact, ContactPlan, Range, Rates, in_order, plan
from fedpareto_space.orbits.routes import Router
from fedpareto_space.orbits.sights import every_pair, over_stations
from fedpareto_space.orbits.stations import stations

START = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = 6 * 3600.0


@pytest.fixture(scope="module")
def day():
    orbits, sites = Shell(8, 4, 1).orbits(START), stations(["svalbard", "awarua@5"])
    return plan(orbits, sites, START, HOURS, Rates(down=1e6, up=9600.0, between=4800.0), every_pair(8))


def test_a_plan_has_both_ways_of_every_window_with_its_rate_and_its_light_time(day):
    orbits, sites = Shell(8, 4, 1).orbits(START), stations(["svalbard", "awarua@5"])
    windows = over_stations(orbits, sites, START, HOURS)
    ground = [one for one in day.contacts if max(one.a, one.b) > 8]
    assert len(ground) == 2 * len(windows)
    assert {(one.a > 8, one.rate) for one in ground} == {(False, 1e6), (True, 9600.0)}
    assert {one.rate for one in day.contacts if max(one.a, one.b) <= 8} == {4800.0}
    assert [day.name(node) for node in (1, 3, 9, 10)] == ["sat-1-1", "sat-2-1", "svalbard", "awarua"]
    assert len(day.ranges) == len(day.contacts) / 2
    assert all(530 / 299_792 < one.seconds < 2500 / 299_792 for one in day.ranges if max(one.a, one.b) > 8)


def test_a_plan_survives_ions_text_to_the_last_bit(day):
    text = ion.to_text(day)
    assert ion.from_text(text) == day
    assert ion.to_text(ion.from_text(text)) == text
    assert text.count("\na contact +") == len(day.contacts)
    whole = day.whole()
    assert ion.from_text(ion.to_text(whole)) == whole
    assert "." not in ion.to_text(whole)  # ION reads whole numbers only.
    assert all(any(one.start <= w.start and w.end <= one.end for one in day.contacts) for w in whole.contacts[:50])


times = st.floats(0, 1e9, allow_nan=False)
spans = st.tuples(times, times).filter(lambda pair: pair[0] != pair[1]).map(sorted)
nodes = st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True)


@given(
    st.lists(st.tuples(spans, nodes, st.floats(1e-3, 1e12)), min_size=1, max_size=5),
    st.lists(st.tuples(spans, nodes, st.floats(0, 1e5)), max_size=5),
)
def test_any_numbers_survive_the_text(contacts, ranges):
    contact_list = [Contact(*span, *pair, rate) for span, pair, rate in contacts]
    range_list = [Range(*span, *pair, seconds) for span, pair, seconds in ranges]
    made = ContactPlan(in_order(contact_list), in_order(range_list), {3: "über alles"})
    assert ion.from_text(ion.to_text(made)) == made


def test_a_file_of_ion_is_read_with_all_its_other_commands():
    text = """1 1 ionconfig
s
# a comment
@ 2026/01/31-12:00:00
a contact +0 +600 1 2 1200
a contact 2026/01/31-12:10:00 2026/01/31-12:20:00 2 1 125000 1.0
@ 2026/01/31-13:00:00
a contact +0 +60 1 2 1200
a range +0 +600 1 2 1
m horizon +0
"""
    found = ion.from_text(text)
    contacts = (Contact(0, 600, 1, 2, 9600), Contact(600, 1200, 2, 1, 1e6), Contact(3600, 3660, 1, 2, 9600))
    assert found == ContactPlan(contacts, (Range(3600, 4200, 1, 2, 1),))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "a contact +0 +600 1 2",
            r"line 2: 'a contact .* is not understood; right is, say, 'a contact \+0 \+600 1 2 1200",
        ),
        ("a contact +9 +3 1 2 100", "line 2: contact from 9.0 to 3.0 of 1 and 2"),
        ("a contact +9 +1e400 1 2 100", "line 2: contact from 9.0 to inf of 1 and 2"),
        ("a contact +0 +3 1 1 100", "of two nodes"),
        ("a contact +0 +3 1 2 0", "line 2: .* has a rate of 0.0; it is in bits a second, above 0"),
        ("a contact +0 +3 1 x 100", "line 2: invalid literal"),
        ("a contact +0 +3 1 2 100 0.5", "a confidence of 0.5; only certain ones"),
        ("a contact 2026/01/01-00:00:00 +3 1 2 100", "absolute time; a line '@ 2026/01/01-00:00:00' before it"),
        ("@ yesterday", "'yesterday' is no time"),
        ("d contact +0 1 2", "not understood"),
        ("a range +0 +3 1 2 -1", "light seconds"),
        ("", "holds no contacts"),
    ],
)
def test_a_plan_that_is_none_is_refused_with_its_line(line, why):
    with pytest.raises(UserError, match=why):
        ion.from_text(f"# a plan\n{line}\n")


def test_networks_hear_each_other_when_both_ways_are_open():
    made = ContactPlan((Contact(0, 10, 1, 2), Contact(4, 12, 2, 1), Contact(20, 30, 1, 2), Contact(25, 26, 2, 1)))
    assert made.both_ways() == [(4, 10, 1, 2), (25, 26, 1, 2)]
    network = MemoryNetwork(made.both_ways())
    network.transport(1).send(2, b"model", 0.0)
    assert [(one.at, one.data) for one in network.transport(2).poll(30.0)] == [(4.0, b"model")]


def test_a_plan_knows_its_nodes_by_name_and_number(day):
    assert day.number("svalbard") == day.number("9") == 9
    with pytest.raises(UserError, match="unknown node 'svalbart'; did you mean 'svalbard'"):
        day.number("svalbart")


# -- routes --------------------------------------------------------------------------------------------------------


def test_a_message_takes_the_detour_that_arrives_first():
    made = ContactPlan(
        (
            Contact(0, 100, 1, 3, 800),
            Contact(50, 60, 3, 2, 800),
            Contact(90, 200, 1, 2, 8000),
            Contact(0, 5, 1, 2, 800),
        ),
        (Range(0, 1000, 3, 2, 2.0),),
    )
    router = Router(made)
    hops = router.route(1, 2, size=900)  # 9 s at 100 bytes a second; the first contact of 1 and 2 is too short for it.
    assert [(hop.contact.a, hop.contact.b, hop.leaves, hop.arrives) for hop in hops] == [(1, 3, 0, 9), (3, 2, 50, 61)]
    assert [hop.arrives for hop in router.route(1, 2, size=1100)] == [91.1]  # The detour's contact is too short.
    assert [hop.arrives for hop in router.route(1, 2, now=3.0, size=100)] == [4.0]
    assert router.route(2, 1) is None
    assert router.route(1, 1) == ()
    assert router.route(1, 2, now=200.0) is None
    assert router.arrivals(1, size=900) == {1: 0, 3: 9, 2: 61}


def test_a_later_contact_that_is_faster_wins():
    made = ContactPlan((Contact(0, 1000, 1, 2, 8), Contact(10, 1000, 1, 2, 800)))
    (hop,) = Router(made).route(1, 2, size=100)
    assert (hop.leaves, hop.arrives) == (10, 11)


def earliest(made, source, now, size):
    """Arrivals, by going over all contacts until nothing gets earlier."""
    found = {source: now}
    while True:
        before = dict(found)
        for one in made.contacts:
            if one.a in found:
                leaves = max(found[one.a], one.start)
                sent = leaves + 8 * size / one.rate
                if leaves < one.end and sent <= one.end:
                    found[one.b] = min(found.get(one.b, np.inf), sent)
        if found == before:
            return found


def test_routes_are_the_earliest_of_all():
    random = np.random.default_rng(23)
    for _, size in itertools.product(range(30), (0, 100, 2000)):
        contacts = []
        for _ in range(40):
            start, long = random.uniform(0, 100), random.uniform(0.1, 20)
            a, b = random.choice(8, 2, replace=False).tolist()
            contacts.append(Contact(start, start + long, a, b, float(random.choice([800.0, 8000.0]))))
        made = ContactPlan(in_order(contacts))
        router, best = Router(made), earliest(made, 0, 1.0, size)
        assert router.arrivals(0, 1.0, size) == pytest.approx(best)
        for target in range(1, 8):
            hops = router.route(0, target, 1.0, size)
            assert (hops is None) == (target not in best)
            for one, other in itertools.pairwise(hops or ()):
                assert one.contact.b == other.contact.a
                assert one.arrives <= other.leaves
