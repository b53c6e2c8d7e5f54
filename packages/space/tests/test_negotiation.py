"""Two parties that never met agree row by row, or part on a row that both name."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto.contract.registry import make_algorithm
from fedpareto_space.wire import golden, rows
from fedpareto_space.wire.messages import Accept, Counter, Offer, Reject, decode, encode
from fedpareto_space.wire.negotiation import Capabilities, confirm, negotiate, settle
from fedpareto_space.wire.patterns import fits, read
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.terms import BY_PLACE, ROWS, Alternatives
from fedpareto_space.wire.vocabulary import Role

_spec = importlib.util.spec_from_file_location("agreements", Path(__file__).parents[3] / "benchmarks" / "agreements.py")
agreements = importlib.util.module_from_spec(_spec)
sys.modules["agreements"] = agreements
_spec.loader.exec_module(agreements)

OFFER = golden.every()["offer"]
ANYTHING = Capabilities.everything(golden.CLIENT, Role.CLIENT)


def who_can(place, pattern, **proposals):
    accepts = {**ANYTHING.accepts, place: read(BY_PLACE[place].kind, pattern)}
    return dataclasses.replace(ANYTHING, accepts=accepts, **proposals)


def test_both_ends_come_to_the_same_agreement_or_part_on_the_same_row():
    tally = agreements.run(60, seed=1)
    assert set(tally) == {"accepted", "rejected", "countered, accepted", "countered, rejected"}
    assert tally.total() == 60


def test_who_can_do_everything_takes_the_first_of_each_row():
    answer = negotiate(OFFER, ANYTHING)
    assert isinstance(answer, Accept)
    assert answer.terms == golden.terms()
    assert answer.agreement == golden.terms().id
    assert confirm(decode(encode(answer)), OFFER.rows, OFFER.session) == golden.terms()


def test_the_proposers_order_decides_among_what_the_responder_can_do():
    assert negotiate(OFFER, who_can((2, 1), ["hierarchical", "star"])).terms.topology == rows.Star()
    assert negotiate(OFFER, who_can((2, 1), ["hierarchical", "ring"])).terms.topology == rows.Hierarchical(2)


@pytest.mark.parametrize(
    ("place", "pattern"),
    [
        ((2, 1), "decentralised"),
        ((2, 2), {"each": {"node": 99}}),
        ((2, 3), {"steps": {"most": 10}}),
        ((2, 4), "continue"),
        ((2, 5), {"interpolate": 0.5}),
        ((2, 6), {"codec": "int4-delta"}),
        ((2, 7), "constraints"),
        ((2, 8), {"retries": 0}),
        ((3, 1), {"rule": "fedpref"}),
        ((3, 2), "poll"),
        ((3, 3), {"onnx": {"size": {"most": 10}}}),
        ((3, 4), {"quorum": {"least": 10}}),
    ],
)
def test_a_row_in_which_nothing_suits_is_named(place, pattern):
    answer = negotiate(OFFER, who_can(place, pattern))
    assert isinstance(answer, Reject)
    assert (answer.code, answer.place) == (Refusal.NOT_SUPPORTED, place)
    assert len(encode(answer)) <= 24


def test_an_unknown_algorithm_or_parameter_is_refused_with_the_closest():
    def offer_of(rule, parameters):
        terms = dataclasses.replace(golden.terms(), aggregation=rows.Aggregation(rule, parameters))
        return dataclasses.replace(OFFER, rows=Alternatives.of(terms))

    for rule, parameters, words in (
        ("fedpreff", {}, "did you mean 'fedpref'"),
        ("fedavg", {"weigthing": "size"}, "did you mean 'weighting'"),
        ("fedavg", {"weighting": 3}, "weighting"),
    ):
        answer = negotiate(offer_of(rule, parameters), ANYTHING, make_algorithm)
        assert (answer.code, answer.place) == (Refusal.UNKNOWN_RULE, (3, 1))
        assert words in answer.detail
    assert isinstance(negotiate(offer_of("fedavg", {"weighting": "size"}), ANYTHING, make_algorithm), Accept)


def test_there_is_one_counter_and_the_proposer_answers_by_the_same_rule():
    own = rows.Format(rows.Content.WEIGHTS, "int4")
    responder = who_can((2, 6), {"codec": "int4"}, proposals={(2, 6): (own,)})
    counter = negotiate(OFFER, responder)
    assert isinstance(counter, Counter)
    assert counter.rows[2, 6] == (own,)
    assert all(counter.rows[row.place] == OFFER.rows[row.place] for row in ROWS if row.place != (2, 6))
    proposer = Capabilities.everything(golden.SERVER, Role.SERVER)
    answer = settle(decode(encode(counter)), proposer)
    assert isinstance(answer, Accept)
    assert answer.terms == dataclasses.replace(golden.terms(), format=own)
    assert confirm(answer, counter.rows, OFFER.session) == answer.terms
    narrow = dataclasses.replace(proposer, accepts={**proposer.accepts, (2, 6): {"codec": "float32"}})
    last = settle(counter, narrow)
    assert (last.code, last.place) == (Refusal.NOT_SUPPORTED, (2, 6))


def test_rows_that_must_fit_each_other_are_chosen_together():
    alternatives = Alternatives(
        {
            **OFFER.rows.by_place,
            (2, 1): (rows.Decentralised(2), rows.Star()),
            (2, 2): ((rows.Identity(golden.SERVER),),),
        }
    )
    offer = dataclasses.replace(OFFER, rows=alternatives)
    assert negotiate(offer, ANYTHING).terms.topology == rows.Star()
    answer = negotiate(offer, who_can((2, 1), "decentralised"))
    assert (answer.code, answer.place) == (Refusal.INCONSISTENT, (2, 2))


def test_an_acceptance_of_what_was_never_offered_is_refused_with_its_row():
    terms = dataclasses.replace(golden.terms(), waiting=rows.Continue())
    accept = Accept(session=OFFER.session, agreement=terms.id, node=golden.CLIENT, terms=terms)
    with pytest.raises(ProtocolError, match="never offered") as refusal:
        confirm(accept, OFFER.rows, OFFER.session)
    assert refusal.value.place == (2, 4)
    with pytest.raises(ProtocolError, match="another session"):
        confirm(negotiate(OFFER, ANYTHING), OFFER.rows, bytes(8))


def test_roles_and_a_demanded_statement():
    assert negotiate(OFFER, dataclasses.replace(ANYTHING, role=Role.SERVER)).code is Refusal.INCONSISTENT
    careful = dataclasses.replace(ANYTHING, needs_statement=True)
    assert negotiate(OFFER, careful).code is Refusal.NO_STATEMENT
    assert isinstance(negotiate(dataclasses.replace(OFFER, statement=b"signed"), careful), Accept)
    peer = dataclasses.replace(ANYTHING, role=Role.PEER)
    assert isinstance(negotiate(dataclasses.replace(OFFER, role=Role.PEER), peer), Accept)


@pytest.mark.parametrize(
    ("place", "pattern", "value", "whether"),
    [
        ((2, 3), "any", rows.Polled(), True),
        ((2, 3), "steps", rows.Steps(5), True),
        ((2, 3), {"steps": {"least": 6}}, rows.Steps(5), False),
        ((2, 3), {"any-of": {"each": ["poll", "steps"]}}, rows.AnyOf((rows.Steps(5), rows.Polled())), True),
        ((2, 3), {"any-of": {"each": ["poll"]}}, rows.AnyOf((rows.Steps(5), rows.Polled())), False),
        ((2, 6), {"error-feedback": False}, rows.Format(rows.Content.WEIGHTS, "int8"), True),
        ((2, 6), {"objectives": 1}, rows.Format(rows.Content.WEIGHTS, "int8"), True),
        ((3, 1), {"parameters": {"a": {"most": 1}}}, rows.Aggregation("x", {"a": 0.5}), True),
        ((3, 1), {"parameters": {"a": {"most": 1}}}, rows.Aggregation("x", {"b": 0.5}), False),
        ((3, 1), {"parameters": {"a": True}}, rows.Aggregation("x", {"a": 1}), False),
        ((3, 1), {"staleness": {"hinge": {"slope": 0.5}}}, rows.Aggregation("x", staleness=rows.Hinge(0.5, 1.0)), True),
        ((3, 1), {"deadline": None}, rows.Aggregation("x", deadline=5.0), False),
        ((3, 1), {"deadline": [None, {"most": 9}]}, rows.Aggregation("x", deadline=5.0), True),
    ],
)
def test_what_a_pattern_fits(place, pattern, value, whether):
    kind = BY_PLACE[place].kind
    assert fits(read(kind, pattern), kind.to_plain(value)) is whether


@pytest.mark.parametrize(
    ("place", "pattern", "words"),
    [
        ((2, 1), "sta", "did you mean 'star'"),
        ((2, 1), ["star", "rinng"], "did you mean 'ring'"),
        ((2, 3), {"step": 5}, "did you mean 'steps'"),
        ((2, 3), {"steps": {"most": "many"}}, "not a finite number"),
        ((2, 6), {"codecs": "int8"}, "did you mean 'codec'"),
        ((2, 6), {"codec": "int9"}, "int9"),
        ((2, 6), {"content": {"most": 3}}, "for numbers"),
        ((2, 2), 5, "no pattern"),
        ((2, 4), [], "fits nothing"),
    ],
)
def test_a_mistake_in_a_pattern_is_told_when_it_is_read(place, pattern, words):
    with pytest.raises(UserError, match=words):
        read(BY_PLACE[place].kind, pattern)


def test_capabilities_name_every_row():
    plain = {"node": 1, "role": "client", "accepts": {"client": {}, "server": {}}}
    for row in ROWS:
        with pytest.raises(UserError, match=rf"{row.side}: {row.name} is missing") as refusal:
            Capabilities.from_plain(plain)
        assert refusal.value.place == row.place
        plain["accepts"][row.side][row.name] = "any"
    assert Capabilities.from_plain(plain) == Capabilities.everything(1, Role.CLIENT)
    offer = Offer(session=bytes(8), node=2, role=Role.SERVER, rows=golden.alternatives())
    assert isinstance(negotiate(offer, Capabilities.from_plain(plain)), Accept)


@pytest.mark.parametrize("content", [rows.Content.GRADIENT, rows.Content.LOGITS])
def test_a_node_of_this_package_does_not_agree_to_what_it_would_not_do(content):
    from fedpareto_space.session.agreement import capabilities

    node = capabilities(golden.CLIENT, Role.CLIENT)
    assert isinstance(negotiate(OFFER, node), Accept)
    submitted = dataclasses.replace(OFFER.rows[(2, 6)][0], content=content)
    other = Alternatives({**OFFER.rows.by_place, (2, 6): (submitted,)})
    answer = negotiate(dataclasses.replace(OFFER, rows=other), node)
    assert (answer.code, answer.place) == (Refusal.NOT_SUPPORTED, (2, 6))
