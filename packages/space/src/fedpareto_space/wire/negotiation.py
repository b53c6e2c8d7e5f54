"""Negotiation of two parties: the proposer's order decides, the responder leaves out what it cannot do.

A row on which nothing suits both may be countered, once; the proposer then answers by the same rule. Both ends come to
the same agreement, or part on the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.wire import cbor, patterns
from fedpareto_space.wire.kinds import Whole, Word, shown
from fedpareto_space.wire.messages import Accept, Counter, Offer, Reject
from fedpareto_space.wire.refusals import NOWHERE, Place, ProtocolError, Refusal, at
from fedpareto_space.wire.rows import MOST_NODE
from fedpareto_space.wire.schema import within
from fedpareto_space.wire.terms import BY_PLACE, MOST_ALTERNATIVES, PAIRS, ROWS, SIDES, Alternatives, Terms, listed
from fedpareto_space.wire.vocabulary import Role

CheckRule: TypeAlias = Callable[[str, Mapping[str, Any]], object]
"""Given the name and the parameters of an aggregation rule: raises UserError, with the closest name, if it has none."""

AGGREGATION: Place = (3, 1)
LONGEST_DETAIL = 120
"""Bytes of a reason in words."""


def any_rule(name: str, parameters: Mapping[str, Any]) -> None:
    """Knows every rule."""


@dataclass(frozen=True)
class Capabilities:
    """Abilities of a party in each row, and its proposals instead of what it cannot do."""

    node: int
    role: Role
    accepts: Mapping[Place, Any]
    """Patterns, as `patterns.read` gives them."""
    proposals: Mapping[Place, tuple[Any, ...]] = field(default_factory=dict)
    """For some rows: values, the preferred first."""
    needs_statement: bool = False
    """An offer must hold a certified statement. Its content is not read."""

    def can(self, place: Place, value: Any) -> bool:
        return patterns.fits(self.accepts[place], BY_PLACE[place].kind.to_plain(value))

    @classmethod
    def everything(cls, node: int, role: Role) -> Capabilities:
        return cls(node, role, {row.place: patterns.ANY for row in ROWS})

    @classmethod
    def from_plain(cls, plain: Any) -> Capabilities:
        known = ("node", "role", "accepts", "proposals", "needs-statement")
        if not isinstance(plain, Mapping):
            raise UserError(f"{shown(plain)} is not a group of values by name: {', '.join(known)}")
        for name in plain:
            if name not in known:
                raise UnknownName("field", str(name), known)
        accepts = _by_place(plain.get("accepts"), "accepts", lambda row, one: patterns.read(row.kind, one))
        for row in ROWS:
            if row.place not in accepts:
                what = f"accepts: {row.side}: {row.name} is missing; 'any' is for what may be anything"
                raise ProtocolError(Refusal.MISSING, what, row.place)
        proposals = _by_place(plain.get("proposals", {}), "proposals", _values)
        needs = plain.get("needs-statement", False)
        if not isinstance(needs, bool):
            raise UserError(f"needs-statement is {shown(needs)}; it is true or false")
        return cls(*_who(plain), accepts, proposals, needs)


def _values(row: Any, plain: Any) -> tuple[Any, ...]:
    kind = listed(row)
    return kind.check(kind.from_plain(plain))


def _by_place(plain: Any, what: str, read: Callable[[Any, Any], Any]) -> dict[Place, Any]:
    found = {}
    if not isinstance(plain, Mapping):
        raise UserError(f"{what} is {shown(plain)}; it has a group 'client' and a group 'server'")
    for side, values in plain.items():
        if side not in SIDES.values():
            raise UnknownName(f"group of {what}", str(side), SIDES.values())
        known = {row.name: row for row in ROWS if row.side == side}
        for name, value in (values if isinstance(values, Mapping) else {shown(values): None}).items():
            if name not in known:
                raise UnknownName(f"row of a {side}", str(name), known)
            with at(known[name].place), within(f"{what}: {side}: {name}"):
                found[known[name].place] = read(known[name], value)
    return found


def _who(plain: Mapping[str, Any]) -> tuple[int, Any]:
    with within("node"):
        node = Whole(1, MOST_NODE).check(plain.get("node"))
    with within("role"):
        return node, Word(Role).from_plain(plain.get("role"))


def offer_of(plain: Any, session: bytes) -> Offer:
    known = ("node", "role", *SIDES.values())
    for name in plain:
        if name not in known:
            raise UnknownName("field", str(name), known)
    node, role = _who(plain)
    return Offer(session=session, node=node, role=role, rows=Alternatives.from_plain(plain))


# -- choosing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """The first row on which two parties part."""

    place: Place
    code: Refusal = Refusal.NOT_SUPPORTED
    detail: str | None = None


def choose(alternatives: Alternatives, capabilities: Capabilities, rule: CheckRule = any_rule) -> Terms | Disagreement:
    supported = {row.place: _supported(alternatives[row.place], row.place, capabilities, rule) for row in ROWS}
    return _first(supported, alternatives, rule)


def _supported(values: tuple[Any, ...], place: Place, capabilities: Capabilities, rule: CheckRule) -> tuple[Any, ...]:
    can = tuple(value for value in values if capabilities.can(place, value))
    return can if place != AGGREGATION else tuple(value for value in can if _trouble(value, rule) is None)


def _trouble(aggregation: Any, rule: CheckRule) -> str | None:
    try:
        rule(aggregation.rule, aggregation.parameters)
    except UserError as problem:
        return str(problem)
    return None


def _first(
    supported: Mapping[Place, tuple[Any, ...]], alternatives: Alternatives, rule: CheckRule
) -> Terms | Disagreement:
    chosen = {place: values[0] for place, values in supported.items() if values}
    parted = [_parted(place, alternatives, rule) for place in supported if place not in chosen]
    for first, second, fits, trouble in PAIRS:
        if first in chosen and second in chosen:
            pair = _first_pair(supported[first], supported[second], fits)
            if pair is None:
                parted.append(Disagreement(second, Refusal.INCONSISTENT, trouble))
            else:
                chosen[first], chosen[second] = pair
    if parted:
        return min(parted, key=lambda one: one.place)
    return Terms(**{row.field: chosen[row.place] for row in ROWS})


def _first_pair(first: tuple[Any, ...], second: tuple[Any, ...], fits: Callable[[Any, Any], bool]) -> Any:
    return next(((one, other) for one, other in product(first, second) if fits(one, other)), None)


def _parted(place: Place, alternatives: Alternatives, rule: CheckRule) -> Disagreement:
    if place != AGGREGATION:
        return Disagreement(place)
    troubles = [trouble for value in alternatives[place] if (trouble := _trouble(value, rule)) is not None]
    return Disagreement(place, Refusal.UNKNOWN_RULE, troubles[0]) if troubles else Disagreement(place)


# -- the responder's answer, and the proposer's to a counter -----------------------------------------------------------


def negotiate(offer: Offer, capabilities: Capabilities, rule: CheckRule = any_rule) -> Accept | Counter | Reject:
    """The responder's answer to an offer."""
    if {offer.role, capabilities.role} not in ({Role.CLIENT, Role.SERVER}, {Role.PEER}):
        roles = f"a {offer.role.name.lower()} and a {capabilities.role.name.lower()}"
        trouble = f"{roles} do not fit; right are a client and a server, or two peers"
        return _rejected(offer.session, Disagreement(NOWHERE, Refusal.INCONSISTENT, trouble))
    if offer.node == capabilities.node:
        trouble = f"both are node {offer.node}; every node has a number of its own"
        return _rejected(offer.session, Disagreement(NOWHERE, Refusal.INCONSISTENT, trouble))
    if capabilities.needs_statement and offer.statement is None:
        return _rejected(offer.session, Disagreement(NOWHERE, Refusal.NO_STATEMENT))
    found = choose(offer.rows, capabilities, rule)
    if isinstance(found, Terms):
        return _accept(offer, capabilities, found)
    countered = _countered(offer.rows, capabilities, rule)
    if countered is None:
        return _rejected(offer.session, found)
    return Counter(session=offer.session, node=capabilities.node, rows=countered)


def settle(counter: Counter, capabilities: Capabilities, rule: CheckRule = any_rule) -> Accept | Reject:
    """The proposer's answer to a counter: there is no second one."""
    found = choose(counter.rows, capabilities, rule)
    if isinstance(found, Terms):
        return _accept(counter, capabilities, found)
    return _rejected(counter.session, found)


def confirm(accept: Accept, rows: Alternatives, session: bytes) -> Terms:
    """The terms of an ACCEPT, after a look whether each row was among those that this party sent in its OFFER or
    COUNTER.
    """
    if accept.session != session:
        raise ProtocolError(Refusal.INCONSISTENT, "the ACCEPT belongs to another session")
    for row in ROWS:
        offered = [cbor.encode(row.kind.to_wire(value)) for value in rows[row.place]]
        if cbor.encode(row.kind.to_wire(accept.terms[row.place])) not in offered:
            raise ProtocolError(Refusal.INCONSISTENT, f"{row.name}: this was never offered", row.place)
    return accept.terms


def _countered(offered: Alternatives, capabilities: Capabilities, rule: CheckRule) -> Alternatives | None:
    found = {row.place: _supported(offered[row.place], row.place, capabilities, rule) for row in ROWS}
    empty = {place for place, values in found.items() if not values}
    for first, second, fits, _ in PAIRS:
        if not {first, second} & empty and _first_pair(found[first], found[second], fits) is None:
            empty |= {first, second}
    for place in empty:
        own = [value for value in capabilities.proposals.get(place, ()) if value not in found[place]]
        found[place] = (*found[place], *own)[:MOST_ALTERNATIVES]
    if isinstance(_first(found, offered, rule), Disagreement):
        return None
    return Alternatives(found)


def _accept(message: Offer | Counter, capabilities: Capabilities, terms: Terms) -> Accept:
    return Accept(session=message.session, agreement=terms.id, node=capabilities.node, terms=terms)


def _rejected(session: bytes, parted: Disagreement) -> Reject:
    (table, row), code = parted.place, parted.code
    detail = None if parted.detail is None else fitting(parted.detail)
    return Reject(session=session, code=code, table=table, row=row, detail=detail)


def rejection(problem: ProtocolError) -> Reject:
    """The answer to an OFFER, COUNTER or ACCEPT that was refused; its session must have been read."""
    return _rejected(problem.session, Disagreement(problem.place, problem.code, problem.what))


def fitting(text: str) -> str:
    """Words for a detail: printable, and not too long."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain.encode("utf-8", "replace")[:LONGEST_DETAIL].decode("utf-8", "ignore")
