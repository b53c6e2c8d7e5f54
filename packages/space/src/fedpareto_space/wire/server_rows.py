"""What the four rows of table 6.3 of the thesis can hold: the server's side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

from fedpareto_space.wire.client_rows import MOST_NODE, SHORT, Act, Seconds
from fedpareto_space.wire.kinds import Many, Maybe, Octets, Parameters, Real, Text, Whole, Word
from fedpareto_space.wire.schema import OneOf, Record, Struct

# -- table 6.3, row 1: aggregation ----------------------------------------------------------------------------------


class Weighting(IntEnum):
    """What a client's weight in the aggregation follows."""

    RULE = 0
    UNIFORM = 1
    SAMPLES = 2
    QUALITY = 3
    PREFERENCE = 4


@dataclass(frozen=True)
class Fresh(Record):
    """Staleness does not change a weight."""


@dataclass(frozen=True)
class Polynomial(Record):
    """(1 + staleness) to the power of −exponent."""

    exponent: Annotated[float, Real(0)]


@dataclass(frozen=True)
class Hinge(Record):
    """1 up to `start`, then 1 / (1 + slope × (staleness − start))."""

    slope: Annotated[float, Real(0)]
    """How fast it falls."""
    start: Annotated[float, Real(0)]
    """Up to this staleness it does not."""


STALENESS = OneOf((("none", Fresh), ("polynomial", Polynomial), ("hinge", Hinge)))


@dataclass(frozen=True)
class Aggregation(Record):
    """What the server makes of submissions."""

    rule: Annotated[str, Text(48, least=1)]
    """The name of an algorithm."""
    parameters: Annotated[Mapping[str, Any], Parameters()] = field(default_factory=dict)
    """Its hyper-parameters."""
    weighting: Annotated[Weighting, Word(Weighting)] = Weighting.RULE
    """`rule`: as the algorithm's own parameters say."""
    staleness: Annotated[Record, STALENESS] = Fresh()
    """How a late submission's weight falls."""
    minimum: Annotated[int, Whole(1)] = 1
    """Submissions without which nothing is aggregated."""
    deadline: Annotated[float | None, Maybe(Real(0, above=True))] = None
    """Seconds after which a round ends; none: it waits for all."""
    most_stale: Annotated[int | None, Maybe(Whole())] = None
    """Versions by which a submission may be late; none: any number."""
    server_lr: Annotated[float, Real(0, above=True)] = 1.0
    """Factor of the aggregated movement."""


AGGREGATION = Struct(Aggregation)

# -- table 6.3, row 2: collection -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Push(Record):
    """Clients submit by themselves."""


@dataclass(frozen=True)
class Poll(Record):
    """The server asks."""


@dataclass(frozen=True)
class Either(Record):
    """Both."""


@dataclass(frozen=True)
class Contacts(Record):
    """At the contacts of a plan."""

    plan: Annotated[bytes, Octets((SHORT,))]
    """Digest of the plan."""


COLLECTION = OneOf((("push", Push), ("poll", Poll), ("either", Either), ("contacts", Contacts)))

# -- table 6.3, row 4: failure handling of a server -----------------------------------------------------------------


class Duplicates(IntEnum):
    """What is done with a second submission for the same task."""

    DROP = 0
    REPLACE = 1
    SUM = 2


class OverStale(IntEnum):
    """What is done with a submission that is later than the agreement allows."""

    DROP = 0
    DOWN_WEIGHT = 1
    ACCEPT = 2
    RETURN = 3


class Rejoin(IntEnum):
    """What a client gets that comes back."""

    FULL = 0
    DIFFERENCE = 1
    REFUSE = 2


@dataclass(frozen=True)
class ServerFailures(Record):
    """How a server notices faults, and what it does about each."""

    timeout: Seconds
    """Seconds to wait for a submission."""
    on_timeout: Act
    """Of that time."""
    quorum: Annotated[int, Whole(1)]
    """Clients without which the session does not go on."""
    on_quorum_lost: Act
    """Of fewer clients."""
    duplicates: Annotated[Duplicates, Word(Duplicates)]
    """Second submissions for one task."""
    over_stale: Annotated[OverStale, Word(OverStale)]
    """Submissions later than most-stale."""
    on_invalid: Act
    """Of a submission that cannot be decoded, is not finite or does not have its digest."""
    on_unknown_base: Act
    """Of a submission that builds on a version that the server no longer has."""
    quarantine_after: Annotated[int, Whole(0, 255)]
    """Invalid submissions after which a client is not listened to; 0: never."""
    rejoin: Annotated[Rejoin, Word(Rejoin)]
    """What a client gets that comes back."""
    checkpoint_every: Annotated[int, Whole(1)]
    """Versions from one checkpoint to the next."""
    handover_after: Annotated[float | None, Maybe(Real(0, above=True))] = None
    """Seconds of a server's silence after which a stand-by takes over; none: never."""
    succession: Annotated[tuple[int, ...], Many(Whole(1, MOST_NODE), 0, 8)] = ()
    """Nodes that take over, in this order."""


SERVER_FAILURES = Struct(ServerFailures)
