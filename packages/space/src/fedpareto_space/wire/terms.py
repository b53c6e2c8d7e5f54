"""The twelve rows together: what two parties must agree on before they learn together.

In an offer every row is a list of alternatives, the preferred one first; in an agreement it is one value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.wire import cbor, rows
from fedpareto_space.wire.kinds import Kind, Many, shown
from fedpareto_space.wire.refusals import Place, ProtocolError, Refusal, at
from fedpareto_space.wire.schema import Record, within

MOST_ALTERNATIVES = 8
"""Alternatives of a row in an offer."""


@dataclass(frozen=True)
class Row:
    """A row of table 6.2 or 6.3."""

    place: Place
    field: str
    """Field of Terms."""
    name: str
    """In YAML, below `client` or `server`."""
    title: str
    """In the thesis."""
    kind: Kind

    @property
    def side(self) -> str:
        return {2: "client", 3: "server"}[self.place[0]]


ROWS = (
    Row((2, 1), "topology", "topology", "System topology", rows.TOPOLOGY),
    Row((2, 2), "servers", "servers", "Server identity", rows.SERVERS),
    Row((2, 3), "trigger", "trigger", "Local submission trigger", rows.TRIGGER),
    Row((2, 4), "waiting", "waiting", "Local aggregation behaviour", rows.WAITING),
    Row((2, 5), "integration", "integration", "Local integration of global update", rows.INTEGRATION),
    Row((2, 6), "format", "format", "Local submission format", rows.FORMAT),
    Row((2, 7), "model", "model", "Initial model", rows.MODEL),
    Row((2, 8), "client_failures", "failures", "Failure handling", rows.CLIENT_FAILURES),
    Row((3, 1), "aggregation", "aggregation", "Global aggregation behaviour", rows.AGGREGATION),
    Row((3, 2), "collection", "collection", "Model collection mechanism", rows.COLLECTION),
    Row((3, 3), "global_model", "model", "Initial (global) model", rows.MODEL),
    Row((3, 4), "server_failures", "failures", "Failure handling", rows.SERVER_FAILURES),
)
BY_PLACE = {row.place: row for row in ROWS}
SIDES = {2: "client", 3: "server"}

# -- rows that must fit each other -----------------------------------------------------------------------------------

Fits: TypeAlias = Callable[[Any, Any], bool]


def _a_server_unless_decentralised(topology: Record, servers: tuple[rows.Identity, ...]) -> bool:
    return bool(servers) != isinstance(topology, rows.Decentralised)


def _polled_only_by_a_server_that_asks(trigger: Record, collection: Record) -> bool:
    return not (isinstance(trigger, rows.Polled) and isinstance(collection, rows.Push))


def _one_model(local: Any, shared: Any) -> bool:
    if isinstance(local, rows.Constraints) or isinstance(shared, rows.Constraints):
        return True
    return bool(local.digest == shared.digest and local.manifest == shared.manifest)


PAIRS: tuple[tuple[Place, Place, Fits, str], ...] = (
    ((2, 1), (2, 2), _a_server_unless_decentralised, "there is a server if and only if the topology has one"),
    ((2, 3), (3, 2), _polled_only_by_a_server_that_asks, "a client that waits to be asked needs a server that asks"),
    ((2, 7), (3, 3), _one_model, "client and server begin with different models"),
)
"""Rows that must fit each other, the test, and what is wrong where they do not."""


# -- an agreement, and what may become one ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """One value for each row: what two parties agree on."""

    topology: rows.Star | rows.Hierarchical | rows.Ring | rows.Decentralised
    servers: tuple[rows.Identity, ...]
    """The first is the server, the others stand by in this order."""
    trigger: Any
    """One of the forms of rows.TRIGGER."""
    waiting: rows.Pause | rows.Continue | rows.ContinueFor
    integration: rows.Replace | rows.Interpolate | rows.Partial | rows.Rebase | rows.Proximal
    format: rows.Format
    model: rows.Reference | rows.Onnx | rows.Nnef | rows.Constraints
    client_failures: rows.ClientFailures
    aggregation: rows.Aggregation
    collection: rows.Push | rows.Poll | rows.Either | rows.Contacts
    global_model: rows.Reference | rows.Onnx | rows.Nnef | rows.Constraints
    server_failures: rows.ServerFailures

    def __post_init__(self) -> None:
        for row in ROWS:
            with at(row.place), within(row.name):
                object.__setattr__(self, row.field, row.kind.check(getattr(self, row.field)))
        for first, second, fits, trouble in PAIRS:
            if not fits(self[first], self[second]):
                raise ProtocolError(Refusal.INCONSISTENT, trouble, second)

    def __getitem__(self, place: Place) -> Any:
        return getattr(self, BY_PLACE[place].field)

    @property
    def id(self) -> bytes:
        """The first 8 bytes of the SHA-256 of their encoding: in every message of a session that runs on them."""
        return hashlib.sha256(cbor.encode(TERMS.to_wire(self))).digest()[: rows.SHORT]

    def to_plain(self) -> dict[str, Any]:
        return _by_side((row, row.kind.to_plain(self[row.place])) for row in ROWS)

    @classmethod
    def from_plain(cls, plain: Any) -> Terms:
        found = _rows_of(plain, lambda row: row.kind)
        return cls(**{row.field: found[row.place] for row in ROWS})


@dataclass(frozen=True)
class Alternatives:
    """For each row what a party would do, the preferred first: an offer before it is answered."""

    by_place: Mapping[Place, tuple[Any, ...]]

    def __post_init__(self) -> None:
        checked = {}
        for row in ROWS:
            if row.place not in self.by_place:
                raise ProtocolError(Refusal.MISSING, f"{row.name} is missing", row.place)
            with at(row.place), within(row.name):
                checked[row.place] = _distinct(listed(row).check(self.by_place[row.place]))
        object.__setattr__(self, "by_place", checked)

    def __getitem__(self, place: Place) -> tuple[Any, ...]:
        return self.by_place[place]

    @classmethod
    def of(cls, *terms: Terms) -> Alternatives:
        """Every row of these terms, the first terms' first, none twice."""
        found: dict[Place, tuple[Any, ...]] = {}
        for row in ROWS:
            values: list[Any] = []
            for one in terms:
                if one[row.place] not in values:
                    values.append(one[row.place])
            found[row.place] = tuple(values)
        return cls(found)

    def to_plain(self) -> dict[str, Any]:
        return _by_side((row, listed(row).to_plain(self[row.place])) for row in ROWS)

    @classmethod
    def from_plain(cls, plain: Any) -> Alternatives:
        """The other way; every row is a list, even of one."""
        return cls(_rows_of(plain, listed))


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if any(value in values[:place] for place, value in enumerate(values)):
        raise ProtocolError(Refusal.INCONSISTENT, "an alternative is given twice")
    return values


def listed(row: Row) -> Many:
    return Many(row.kind, 1, MOST_ALTERNATIVES)


def _by_side(values: Iterator[tuple[Row, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {side: {} for side in SIDES.values()}
    for row, value in values:
        found[row.side][row.name] = value
    return found


def _rows_of(plain: Any, kind: Callable[[Row], Kind]) -> dict[Place, Any]:
    for side in SIDES.values():
        values = plain.get(side) if isinstance(plain, Mapping) else None
        if not isinstance(values, Mapping):
            raise UserError(f"{side} is {shown(values)}; it holds the rows of a {side} by name")
        known = [row.name for row in ROWS if row.side == side]
        for name in values:
            if name not in known:
                raise UnknownName(f"row of a {side}", str(name), known)
    found = {}
    for row in ROWS:
        with at(row.place), within(f"{row.side}: {row.name}"):
            if row.name not in plain[row.side]:
                raise ProtocolError(Refusal.MISSING, "the row is missing")
            found[row.place] = kind(row).from_plain(plain[row.side][row.name])
    return found


@dataclass(frozen=True)
class _Tables(Kind):
    """Both tables as CBOR: [{1: … 8: …}, {1: … 4: …}]."""

    alternatives: bool

    def _kind(self, row: Row) -> Kind:
        return listed(row) if self.alternatives else row.kind

    def check(self, value: Any) -> Any:
        if not isinstance(value, Alternatives if self.alternatives else Terms):
            raise self._refuse(value)
        return value

    def says(self) -> str:
        return "the rows of tables 6.2 and 6.3" + (", each a list by preference" if self.alternatives else "")

    def to_wire(self, value: Any) -> list[dict[int, Any]]:
        tables: dict[int, dict[int, Any]] = {table: {} for table in SIDES}
        for row in ROWS:
            tables[row.place[0]][row.place[1]] = self._kind(row).to_wire(value[row.place])
        return list(tables.values())

    def from_wire(self, data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(SIDES) or not all(isinstance(part, dict) for part in data):
            raise self._refuse(data)
        tables = dict(zip(SIDES, data, strict=True))
        for table, values in tables.items():
            for number in values:
                if (table, number) not in BY_PLACE:
                    raise ProtocolError(Refusal.UNKNOWN_KEY, f"table 6.{table} has no row {number!r:.40}")
        found = {}
        for row in ROWS:
            with at(row.place), within(row.name):
                if row.place[1] not in tables[row.place[0]]:
                    raise ProtocolError(Refusal.MISSING, "the row is missing")
                found[row.place] = self._kind(row).from_wire(tables[row.place[0]][row.place[1]])
        if self.alternatives:
            return Alternatives(found)
        return Terms(**{row.field: found[row.place] for row in ROWS})

    def to_plain(self, value: Any) -> Any:
        return value.to_plain()

    def from_plain(self, plain: Any) -> Any:
        return (Alternatives if self.alternatives else Terms).from_plain(plain)


TERMS, ALTERNATIVES = _Tables(False), _Tables(True)
