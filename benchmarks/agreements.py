"""Two parties with random capabilities: do both come to the same agreement, or part on the same row?

    python benchmarks/agreements.py --pairs 10000

Each pair exchanges bytes only. What they come to is compared between the two ends, and with what somebody would choose
who knows both: by plain conditions, not by the patterns that the parties use.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedpareto.config.errors import UnknownName
from fedpareto_space.wire import golden, patterns, rows
from fedpareto_space.wire.messages import Accept, Counter, Message, Offer, Reject, decode, encode
from fedpareto_space.wire.negotiation import Capabilities, confirm, negotiate, settle
from fedpareto_space.wire.refusals import Place
from fedpareto_space.wire.rows import Action, Content, Identity
from fedpareto_space.wire.terms import BY_PLACE, PAIRS, ROWS, Alternatives
from fedpareto_space.wire.vocabulary import Role

TERMS = golden.terms()
RULES = ("fedavg", "fedpref", "fedcmoo", "fedmgda-plus")
CODECS = ("float32", "float32-delta", "int8-delta", "int4-delta")
DIGESTS = tuple(bytes([number]) * 32 for number in range(3))
ACTIONS = (Action.RETRY, Action.PAUSE, Action.LEAVE)

Holds = Callable[[Any], bool]


@dataclass(frozen=True)
class Party:
    """One end: what it says that it can do, and the same as conditions."""

    capabilities: Capabilities
    holds: Mapping[Place, Holds]


def some(draw: random.Random, things: Any, most: int = 3) -> list[Any]:
    """A few of these, in any order."""
    return draw.sample(list(things), draw.randint(1, min(most, len(things))))


def one_of_forms(names: Mapping[str, type], draw: random.Random) -> tuple[Any, Holds]:
    chosen = some(draw, names, 4)
    classes = tuple(names[name] for name in chosen)
    return chosen, lambda value: isinstance(value, classes)


def topologies(draw: random.Random) -> tuple[Any, Holds]:
    pattern, holds = one_of_forms({"star": rows.Star, "ring": rows.Ring, "decentralised": rows.Decentralised}, draw)
    levels = draw.randint(2, 8)
    return [
        *pattern,
        {"hierarchical": {"most": levels}},
    ], lambda value: value.levels <= levels if isinstance(value, rows.Hierarchical) else holds(value)


def servers(draw: random.Random) -> tuple[Any, Holds]:
    known = some(draw, range(1, 5), 4)
    return {"each": {"node": known}}, lambda value: all(one.node in known for one in value)


def triggers(draw: random.Random) -> tuple[Any, Holds]:
    most = draw.randint(1, 100)
    pattern, holds = one_of_forms({"poll": rows.Polled, "contact": rows.AtContact, "any-of": rows.AnyOf}, draw)
    return [
        {"steps": {"least": 1, "most": most}},
        *pattern,
    ], lambda value: value.steps <= most if isinstance(value, rows.Steps) else holds(value)


def waitings(draw: random.Random) -> tuple[Any, Holds]:
    return one_of_forms({"pause": rows.Pause, "continue": rows.Continue, "continue-for": rows.ContinueFor}, draw)


def integrations(draw: random.Random) -> tuple[Any, Holds]:
    share = draw.choice((0.25, 0.5, 1.0))
    pattern, holds = one_of_forms({"replace": rows.Replace, "rebase": rows.Rebase}, draw)
    return [
        {"interpolate": share},
        *pattern,
    ], lambda value: value.share == share if isinstance(value, rows.Interpolate) else holds(value)


def formats(draw: random.Random) -> tuple[Any, Holds]:
    codecs, most = some(draw, CODECS), draw.randint(1, 4)
    pattern = {"codec": codecs, "objectives": {"most": most}, "disclosed": False}
    return pattern, lambda value: value.codec in codecs and value.objectives <= most and not value.disclosed


def models(draw: random.Random) -> tuple[Any, Holds]:
    known = some(draw, DIGESTS)
    pattern = [{"reference": {"digest": [digest.hex() for digest in known]}}, "constraints"]
    return pattern, lambda value: isinstance(value, rows.Constraints) or value.digest in known


def client_failures(draw: random.Random) -> tuple[Any, Holds]:
    least, actions = draw.choice((1.0, 60.0, 3600.0)), some(draw, ACTIONS)
    pattern = {"timeout": {"least": least}, "on-timeout": [action.name.lower() for action in actions]}
    return pattern, lambda value: value.timeout >= least and value.on_timeout in actions


def aggregations(draw: random.Random) -> tuple[Any, Holds]:
    known = some(draw, RULES)
    return {"rule": [*known, "unheard-of"]}, lambda value: value.rule in known


def collections(draw: random.Random) -> tuple[Any, Holds]:
    return one_of_forms({"push": rows.Push, "poll": rows.Poll, "either": rows.Either, "contacts": rows.Contacts}, draw)


def server_failures(draw: random.Random) -> tuple[Any, Holds]:
    most = draw.randint(1, 5)
    return {
        "quorum": {"most": most},
        "handover-after": None,
    }, lambda value: value.quorum <= most and value.handover_after is None


MODELS = (
    *(rows.Reference(digest, bytes(8)) for digest in DIGESTS),
    rows.Constraints((rows.Bound("parameters", 1, 1000),)),
)
POOL: dict[Place, tuple[Any, ...]] = {
    (2, 1): (rows.Star(), rows.Hierarchical(2), rows.Hierarchical(5), rows.Ring(), rows.Decentralised(3)),
    (2, 2): ((), (Identity(1),), (Identity(2), Identity(1)), (Identity(3), Identity(4)), (Identity(4),)),
    (2, 3): (rows.Steps(10), rows.Steps(50), rows.Polled(), rows.AtContact(), rows.AnyOf((rows.Steps(3),))),
    (2, 4): (rows.Pause(), rows.Continue(), rows.ContinueFor(3), rows.ContinueFor(9)),
    (2, 5): (rows.Replace(), rows.Rebase(), rows.Interpolate(0.25), rows.Interpolate(0.5), rows.Interpolate(1.0)),
    (2, 6): tuple(rows.Format(Content.WEIGHTS, codec, objectives=m) for codec in CODECS for m in (1, 2, 4)),
    (2, 7): MODELS,
    (2, 8): tuple(
        replace(TERMS.client_failures, timeout=seconds, on_timeout=action)
        for seconds in (30.0, 600.0, 7200.0)
        for action in ACTIONS
    ),
    (3, 1): tuple(rows.Aggregation(rule) for rule in (*RULES, "unheard-of")),
    (3, 2): (rows.Push(), rows.Poll(), rows.Either(), rows.Contacts(bytes(8))),
    (3, 3): MODELS,
    (3, 4): tuple(replace(TERMS.server_failures, quorum=n, handover_after=None) for n in (1, 2, 3, 5)),
}
CAN = {
    **{(2, 1): topologies, (2, 2): servers, (2, 3): triggers, (2, 4): waitings, (2, 5): integrations},
    **{(2, 6): formats, (2, 7): models, (2, 8): client_failures},
    **{(3, 1): aggregations, (3, 2): collections, (3, 3): models, (3, 4): server_failures},
}
NARROW = 0.35
"""How often a party can do anything in a row."""


def party(draw: random.Random, node: int, role: Role) -> Party:
    """Random capabilities, with proposals for some rows that it can do."""
    accepts: dict[Place, Any] = {}
    holds: dict[Place, Holds] = {}
    proposals: dict[Place, tuple[Any, ...]] = {}
    easy = draw.random()
    for place, can in CAN.items():
        pattern, holds[place] = can(draw)
        accepts[place] = patterns.read(BY_PLACE[place].kind, pattern)
        if draw.random() < max(NARROW, easy):
            accepts[place], holds[place] = patterns.ANY, lambda value: True
        own = [value for value in POOL[place] if holds[place](value) and known_rule_of(value)]
        if own and draw.random() < 0.5:
            proposals[place] = tuple(some(draw, own))
    return Party(Capabilities(node, role, accepts, proposals), holds)


def known_rule_of(value: Any) -> bool:
    return getattr(value, "rule", RULES[0]) in RULES


def known_rule(name: str, parameters: Mapping[str, Any]) -> None:
    """What a library says about an algorithm that it lacks."""
    if name not in RULES:
        raise UnknownName("algorithm", name, RULES)


def offer_of(draw: random.Random) -> Offer:
    """Any alternatives: a party may offer what it cannot do itself, and rows that do not fit each other."""
    found = Alternatives({place: tuple(some(draw, POOL[place])) for place in CAN})
    return Offer(session=draw.randbytes(8), node=1, role=Role.SERVER, rows=found)


def travel(message: Message) -> Any:
    """To the other end, as bytes."""
    return decode(encode(message))


def ends(offer: Offer, proposer: Party, responder: Party) -> tuple[Any, Any, str]:
    """What the proposer and the responder hold at the end, and the last message but the first."""
    answer = negotiate(travel(offer), responder.capabilities, known_rule)
    heard = travel(answer)
    if isinstance(heard, Accept):
        return confirm(heard, offer.rows, offer.session).id, answer.agreement, "accepted"
    if isinstance(heard, Reject):
        return (heard.code, heard.place), (answer.code, answer.place), "rejected"
    last = settle(heard, proposer.capabilities, known_rule)
    again = travel(last)
    if isinstance(again, Accept):
        return last.agreement, confirm(again, answer.rows, offer.session).id, "countered, accepted"
    return (last.code, last.place), (again.code, again.place), "countered, rejected"


# -- somebody who knows both -----------------------------------------------------------------------------------------


def first_that_suits(offered: Mapping[Place, tuple[Any, ...]], holds: Mapping[Place, Holds]) -> Any:
    """The chosen values by row, or the first row on which they part."""
    suits = {
        place: [value for value in values if holds[place](value) and known_rule_of(value)]
        for place, values in offered.items()
    }
    parted = [place for place, values in suits.items() if not values]
    chosen = {place: values[0] for place, values in suits.items() if values}
    for first, second, fits, _ in PAIRS:
        if suits[first] and suits[second]:
            both = [pair for pair in itertools.product(suits[first], suits[second]) if fits(*pair)]
            if both:
                chosen[first], chosen[second] = both[0]
            else:
                parted.append(second)
    return min(parted) if parted else chosen


def check(offer: Offer, proposer: Party, responder: Party) -> str:
    """How this pair ended; AssertionError if the ends differ from each other, or from who knows both."""
    one, other, how = ends(offer, proposer, responder)
    assert one == other, how
    expected = first_that_suits(offer.rows.by_place, responder.holds)
    answer = negotiate(offer, responder.capabilities, known_rule)
    if how == "accepted":
        assert {row.place: answer.terms[row.place] for row in ROWS} == expected
    else:
        assert isinstance(expected, tuple), f"{how}, but both can do {expected}"
    if how == "rejected":
        assert answer.place == expected
    if isinstance(answer, Counter):
        second = first_that_suits(answer.rows.by_place, proposer.holds)
        last = settle(answer, proposer.capabilities, known_rule)
        agreed = {row.place: last.terms[row.place] for row in ROWS} if isinstance(last, Accept) else last.place
        assert agreed == second
    return how


def run(pairs: int, seed: int = 0) -> Tally[str]:
    """How so many pairs ended."""
    tally: Tally[str] = Tally()
    for number in range(pairs):
        draw = random.Random(f"{seed} {number}")
        tally[check(offer_of(draw), party(draw, 1, Role.SERVER), party(draw, 2, Role.CLIENT))] += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.process_time()
    tally = run(options.pairs, options.seed)
    for how, count in sorted(tally.items()):
        print(f"{how}: {count:,}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{tally.total():,} pairs, both ends alike; {time.process_time() - began:.1f} s, {memory:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
