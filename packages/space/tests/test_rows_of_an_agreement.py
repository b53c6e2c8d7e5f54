"""The twelve rows of tables 6.2 and 6.3: each is typed, needed, and refused by its number."""

from __future__ import annotations

import dataclasses

import pytest

from fedpareto.config.errors import UserError
from fedpareto.config.parameters import to_plain
from fedpareto.contract.registry import algorithms, make_algorithm
from fedpareto_space.wire import cbor, golden, rows
from fedpareto_space.wire.kinds import Many
from fedpareto_space.wire.messages import Accept, Offer, decode, encode
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.schema import OneOf, Struct
from fedpareto_space.wire.terms import BY_PLACE, ROWS, Alternatives, Terms
from fedpareto_space.wire.vocabulary import Role

TERMS = golden.terms()
DIGEST, SHORT = bytes(range(32)), bytes(range(8))
VALUES = {
    (2, 1): [rows.Star(), rows.Hierarchical(3), rows.Ring(), rows.Decentralised(4)],
    (2, 2): [(), (rows.Identity(7, 2, DIGEST), rows.Identity(8))],
    (2, 3): [
        *(rows.Steps(5), rows.Loss(-0.25), rows.Elapsed(0.1), rows.AtContact(), rows.Polled(), rows.Norm(2.0)),
        rows.AnyOf((rows.Norm(0.5),)),
        rows.AllOf((rows.AnyOf((rows.Steps(5), rows.AllOf((rows.Polled(),)))), rows.AtContact())),
    ],
    (2, 4): [rows.Pause(), rows.Continue(), rows.ContinueFor(9)],
    (2, 5): [
        *(rows.Replace(), rows.Interpolate(0.5), rows.Partial(("body.*", "head")), rows.Rebase(), rows.Proximal(0.0)),
    ],
    (2, 6): [
        *(rows.Format(content, "int4-delta") for content in rows.Content),
        rows.Format(rows.Content.WEIGHTS, "float32", True, ("a*",), True, 3, True, (0.25, 0.5, 0.25)),
    ],
    (2, 7): [
        *(rows.Reference(DIGEST, SHORT), rows.Onnx(DIGEST, SHORT, 9), rows.Nnef(DIGEST, SHORT, 9)),
        rows.Constraints((rows.Bound("parameters", 1, 10**6), rows.Bound("outputs", 10, 10))),
    ],
    (2, 8): [
        *(dataclasses.replace(TERMS.client_failures, on_timeout=action) for action in rows.Action),
        *(dataclasses.replace(TERMS.client_failures, on_server_change=change) for change in rows.ServerChange),
    ],
    (3, 1): [
        rows.Aggregation("fedavg"),
        rows.Aggregation("x", {"a": 1, "b": 1.0, "c": [1, 2.5], "d": None, "e": True, "f": "word"}),
        *(rows.Aggregation("x", weighting=weighting) for weighting in rows.Weighting),
        *(rows.Aggregation("x", staleness=one) for one in (rows.Fresh(), rows.Polynomial(0.5), rows.Hinge(0.1, 4.0))),
    ],
    (3, 2): [rows.Push(), rows.Poll(), rows.Either(), rows.Contacts(SHORT)],
    (3, 4): [
        TERMS.server_failures,
        dataclasses.replace(TERMS.server_failures, handover_after=None, succession=()),
        *(dataclasses.replace(TERMS.server_failures, duplicates=one) for one in rows.Duplicates),
        *(dataclasses.replace(TERMS.server_failures, over_stale=one) for one in rows.OverStale),
        *(dataclasses.replace(TERMS.server_failures, rejoin=one) for one in rows.Rejoin),
    ],
}
VALUES[3, 3] = VALUES[2, 7]
"""Every form and every word of every row."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.side}-{row.name}")
def test_every_form_of_every_row_makes_a_round_trip_on_the_wire_and_in_yaml(row):
    for value in VALUES[row.place]:
        data = cbor.encode(row.kind.to_wire(value))
        again = row.kind.check(row.kind.from_wire(cbor.decode(data)))
        assert again == value
        assert row.kind.check(row.kind.from_plain(row.kind.to_plain(value))) == value
    if isinstance(row.kind, OneOf):
        assert {type(value) for value in VALUES[row.place]} == {cls for _, cls in row.kind.forms}
    else:
        assert isinstance(row.kind, Struct | Many)


def test_both_tables_are_complete():
    assert [row.place for row in ROWS] == [*((2, n) for n in range(1, 9)), *((3, n) for n in range(1, 5))]
    assert VALUES.keys() == BY_PLACE.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.side}-{row.name}")
@pytest.mark.parametrize("name", ["offer", "accept"])
def test_a_row_that_is_missing_or_not_understood_is_refused_by_its_number(name, row):
    table, number = row.place[0] - 2, row.place[1]
    whole = cbor.decode(encode(golden.every()[name]))
    key = {"offer": 3, "accept": 2}[name]
    kept = whole[5][key][table].pop(number)
    assert _refusal(whole) == (Refusal.MISSING, row.place)
    unknown = {99: 0} if isinstance(row.kind, Struct) else [99] if isinstance(row.kind, OneOf) else [{99: 0}]
    whole[5][key][table][number] = [unknown] if name == "offer" else unknown
    code = Refusal.NOT_UNDERSTOOD if isinstance(row.kind, OneOf) else Refusal.UNKNOWN_KEY
    assert _refusal(whole) == (code, row.place)
    whole[5][key][table][number] = [kept, kept] if name == "accept" else [*kept, *kept]
    assert _refusal(whole)[1] == row.place
    whole[5][key][table][number] = kept
    assert decode(cbor.encode(whole)) == golden.every()[name]
    whole[5][key][table][9] = kept
    assert _refusal(whole) == (Refusal.UNKNOWN_KEY, (0, 0))


def _refusal(whole):
    with pytest.raises(ProtocolError) as refusal:
        decode(cbor.encode(whole))
    assert refusal.value.session == golden.SESSION, "an answer knows where it goes"
    return refusal.value.code, refusal.value.place


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"topology": rows.Decentralised(2)}, (2, 2)),
        ({"servers": ()}, (2, 2)),
        ({"trigger": rows.Polled(), "collection": rows.Push()}, (3, 2)),
        ({"global_model": rows.Reference(DIGEST, SHORT)}, (3, 3)),
    ],
)
def test_rows_that_contradict_each_other_are_no_agreement(change, place):
    with pytest.raises(ProtocolError) as refusal:
        dataclasses.replace(TERMS, **change)
    assert (refusal.value.code, refusal.value.place) == (Refusal.INCONSISTENT, place)


def test_a_preference_is_told_only_where_that_is_agreed():
    with pytest.raises(ProtocolError, match="not to be disclosed"):
        rows.Format(rows.Content.WEIGHTS, "float32", objectives=2, preference=(0.5, 0.5))
    with pytest.raises(ProtocolError, match="2 weights for 3"):
        rows.Format(rows.Content.WEIGHTS, "float32", objectives=3, disclosed=True, preference=(0.5, 0.5))


def test_conditions_are_nested_four_deep_and_no_deeper():
    trigger = rows.Steps(1)
    for _ in range(3):
        trigger = rows.AnyOf((trigger,))
    offer = dataclasses.replace(
        golden.every()["offer"], rows=Alternatives.of(dataclasses.replace(TERMS, trigger=trigger))
    )
    assert decode(encode(offer)) == offer
    with pytest.raises(ProtocolError, match="nested"):
        rows.AllOf((trigger,))


@pytest.mark.parametrize("name", [name for name, cls in algorithms().items() if "fedpareto." in cls.__module__])
def test_every_algorithm_can_be_named_with_its_hyper_parameters(name):
    parameters = to_plain(make_algorithm(name))
    row = rows.Aggregation(name, parameters)
    terms = dataclasses.replace(TERMS, aggregation=row)
    accept = Accept(session=golden.SESSION, agreement=terms.id, node=1, terms=terms)
    heard = decode(encode(accept)).terms.aggregation
    assert make_algorithm(heard.rule, heard.parameters) == make_algorithm(name)


def test_the_agreement_has_another_id_whenever_a_row_differs():
    ids = {TERMS.id}
    for place, values in VALUES.items():
        for value in values:
            try:
                other = dataclasses.replace(TERMS, **{BY_PLACE[place].field: value})
            except ProtocolError:
                continue
            assert (other.id in ids) == (other == TERMS)
    assert Terms.from_plain(TERMS.to_plain()).id == TERMS.id


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topology": ["sta"]}, "client: topology: .*did you mean 'star'"),
        ({"topology": "star"}, "list"),
        ({"waiting": [{"continue-for": 0}]}, "continue-for: .*0 is not a whole number from 1"),
        ({"format": [{"content": "weights"}]}, "codec is missing"),
        ({"colour": ["red"]}, "unknown row of a client 'colour'"),
        ({"servers": [[{"node": 1, "key": "xyz"}]]}, "hexadecimal"),
    ],
)
def test_a_mistake_in_yaml_is_one_line_with_what_is_right(change, words):
    plain = golden.alternatives().to_plain()
    plain["client"].update(change)
    with pytest.raises(UserError, match=words) as refusal:
        Alternatives.from_plain(plain)
    assert "\n" not in str(refusal.value)


def test_an_offer_is_read_from_yaml_as_it_was_written():
    rows_of = golden.alternatives()
    assert Alternatives.from_plain(rows_of.to_plain()) == rows_of
    offer = Offer(session=golden.SESSION, node=1, role=Role.CLIENT, rows=Alternatives.from_plain(rows_of.to_plain()))
    assert decode(encode(offer)).rows == rows_of
