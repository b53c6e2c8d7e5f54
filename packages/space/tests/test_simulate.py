"""A run and an agreement say the same: one made of the other gives it back, and what no simulation has is refused."""

from __future__ import annotations

import pytest

from fedpareto.config.errors import UserError
from fedpareto.spec.draft import Draft
from fedpareto_space.session.agreement import agreement_of, as_agreed, changed
from fedpareto_space.wire import rows
from fedpareto_space.wire.terms import Terms

RUNS = [
    {},
    {"codec": "int8-delta"},
    {"policy": {"kind": "buffered", "buffer": 3, "staleness": "hinge", "slope": 2.0}},
    {"policy": {"kind": "asynchronous", "exponent": 0.7}},
    {"policy": {"kind": "deadline", "deadline": 7200.0}},
    {"algorithm": {"name": "fedpref", "top_ratio": 0.3}},
]


def spec_of(**values):
    engine = {"name": "mission", "shell": "6/2/1", "stations": ["svalbard"]}
    return Draft({"algorithm": "fedbuff", "problem": "convex", "engine": engine, **values}).finish()


@pytest.mark.parametrize("values", RUNS, ids=str)
def test_the_agreement_of_a_run_gives_its_rule_its_policy_and_its_codec_back(values):
    kind = values.get("policy", {}).get("kind", "sync")
    algorithm = {"asynchronous": "fedasync", "buffered": "fedbuff"}.get(kind, "fedavg")
    spec = spec_of(**{"algorithm": algorithm, **values})
    terms = agreement_of(spec)
    assert terms is not None
    assert Terms.from_plain(terms.to_plain()) == terms
    again = as_agreed(spec_of(algorithm="local"), terms)
    assert (again.algorithm, again.codec) == (spec.algorithm, spec.codec)
    assert agreement_of(again) == terms
    for name in ("kind", "deadline", *(("buffer",) if kind == "buffered" else ())):
        assert getattr(again.policy, name) == getattr(spec.policy, name)


def test_a_run_that_no_agreement_can_say_has_none():
    late = {"kind": "buffered", "buffer": 3, "compensation": "taylor"}
    for values in ({"policy": {"kind": "tiers"}}, {"policy": late}, {"server_codec": "int8-delta"}):
        assert (
            agreement_of(spec_of(algorithm="fedbuff" if values.get("policy") is late else "fedavg", **values)) is None
        )


REFUSED = [
    ({"topology": rows.Ring()}, "client topology is ring; a mission is simulated with the topology star"),
    ({"trigger": rows.Steps(5)}, "client trigger is {'steps': 5}; a mission trains once for each task"),
    ({"waiting": rows.Continue()}, "client waiting is continue; a mission has satellites that wait"),
    ({"integration": rows.Interpolate(0.5)}, "client integration is"),
    ({"format": {"codec": "int8-delta"}}, "a mission's lossy codecs have error feedback"),
    ({"aggregation": {"server_lr": 0.5}}, "a mission has a server-lr of 1"),
    (
        {"model": rows.Reference(bytes(32), bytes(8)), "global_model": rows.Reference(bytes(32), bytes(8))},
        "the digest",
    ),
]


@pytest.mark.parametrize(("other", "words"), REFUSED, ids=lambda one: one if isinstance(one, str) else None)
def test_what_a_mission_does_not_have_is_refused_by_its_row(other, words):
    spec = spec_of(algorithm="fedavg")
    terms = agreement_of(spec)
    with pytest.raises(UserError) as refusal:
        as_agreed(spec, changed(terms, **other))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
