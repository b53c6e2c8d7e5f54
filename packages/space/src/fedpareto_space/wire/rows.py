"""The forms that the twelve rows of tables 6.2 and 6.3 of the thesis can have; `terms` puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto_space.wire.kinds import Flag, Later, Many, Maybe, Octets, Parameters, Real, Text, Whole, Word, shown
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.schema import OneOf, Record, Struct

DIGEST = 32
"""Bytes of a SHA-256."""
SHORT = 8
"""Bytes of it where it only has to tell a few models, manifests or agreements apart."""
MOST_NODE = 2**32 - 1
"""The largest node number of the ipn scheme that fits here."""
DEEPEST_TRIGGER = 4
"""Conditions inside conditions."""

Node = Annotated[int, Whole(1, MOST_NODE)]
Seconds = Annotated[float, Real(0, is_open=True)]
Globs = Annotated[tuple[str, ...], Many(Text(64, least=1), least=1)]


# -- table 6.2, row 1: topology ------------------------------------------------------------------------------------


class Star(Record):
    """One server, which every client talks to."""


class Hierarchical(Record):
    """Servers below servers: a client talks to that of its level."""

    levels: Annotated[int, Whole(2, 8)]
    """Levels of servers."""


class Ring(Record):
    """Every node passes on to the next, as along an orbit."""


class Decentralised(Record):
    """No server: every node talks to some neighbours."""

    neighbours: Annotated[int, Whole(1, 1024)]
    """Neighbours of each node."""


TOPOLOGY = OneOf(
    (("star", Star), ("hierarchical", Hierarchical), ("ring", Ring), ("decentralised", Decentralised)),
)

# -- table 6.2, row 2: server identity -----------------------------------------------------------------------------


class Identity(Record):
    """A server: where it is, and how it proves who it is."""

    node: Node
    """Node number in the ipn scheme."""
    service: Annotated[int, Whole(0, 2**16 - 1)] = 1
    """Service number in the ipn scheme."""
    key: Annotated[bytes, Octets((0, DIGEST))] = b""
    """SHA-256 of its public key; empty: it cannot be verified."""


SERVERS = Many(Struct(Identity), 0, 8)

# -- table 6.2, row 3: submission trigger --------------------------------------------------------------------------


class Steps(Record):
    """After so many local steps."""

    steps: Annotated[int, Whole(1)]


class Loss(Record):
    """Fires when the training loss is at most this."""

    loss: Annotated[float, Real()]


class Elapsed(Record):
    """After so many seconds of training."""

    seconds: Seconds


class AtContact(Record):
    """Fires when a contact with the server begins."""


class Polled(Record):
    """Fires when the server asks."""


class Norm(Record):
    """Fires when the update is at least so long."""

    norm: Annotated[float, Real(0, is_open=True)]


_CONDITIONS = Many(Later(lambda: TRIGGER), 1, 8)


class _Compound(Record):
    triggers: Annotated[tuple[Record, ...], _CONDITIONS]

    def must_be_consistent(self) -> None:
        if _depth(self) > DEEPEST_TRIGGER:
            raise ProtocolError(Refusal.TOO_DEEP, f"conditions are nested more than {DEEPEST_TRIGGER} deep")


class AnyOf(_Compound):
    """Fires when one of these does."""


class AllOf(_Compound):
    """Fires when all of these do."""


def _depth(trigger: Any) -> int:
    return 1 + max((_depth(part) for part in getattr(trigger, "triggers", ())), default=0)


TRIGGER: OneOf = OneOf(
    (
        *(("steps", Steps), ("loss", Loss), ("seconds", Elapsed), ("contact", AtContact)),
        *(("poll", Polled), ("norm", Norm), ("any-of", AnyOf), ("all-of", AllOf)),
    )
)

# -- table 6.2, row 4: between a submission and the next global model -----------------------------------------------


class Pause(Record):
    """No step until a global model comes."""


class Continue(Record):
    """Goes on training."""


class ContinueFor(Record):
    """Goes on training for at most so many steps."""

    steps: Annotated[int, Whole(1)]


WAITING = OneOf((("pause", Pause), ("continue", Continue), ("continue-for", ContinueFor)))

# -- table 6.2, row 5: integration of a global model ----------------------------------------------------------------


class Replace(Record):
    """The global model replaces the local one."""


class Interpolate(Record):
    """Local + share × (global − local); 1 is replace."""

    share: Annotated[float, Real(0, 1)]


class Partial(Record):
    """Only tensors whose name fits one of these patterns are replaced."""

    tensors: Globs


class Rebase(Record):
    """The local progress since the last global model is put on top of the new one."""


class Proximal(Record):
    """Replaces, and training is pulled towards it with this strength."""

    strength: Annotated[float, Real(0)]


INTEGRATION = OneOf(
    (
        *(("replace", Replace), ("interpolate", Interpolate), ("partial", Partial)),
        *(("rebase", Rebase), ("proximal", Proximal)),
    )
)

# -- table 6.2, row 6: submission format ----------------------------------------------------------------------------


class Content(IntEnum):
    """Kinds of submissions."""

    WEIGHTS = 0
    DIFFERENCE = 1
    GRADIENT = 2
    PER_OBJECTIVE_DIFFERENCES = 3
    PER_OBJECTIVE_GRADIENTS = 4
    LOGITS = 5


@dataclass(frozen=True)
class CodecName(Text):
    """The name of a codec, in its one spelling."""

    def check(self, value: Any) -> str:
        text = super().check(value)
        try:
            codec = Codec.parse(text)
        except UserError as problem:
            raise ProtocolError(Refusal.NOT_UNDERSTOOD, str(problem)) from None
        if str(codec) != text:
            raise ProtocolError(Refusal.NOT_SHORTEST, f"{shown(text)} is spelled {codec}")
        return text

    def from_plain(self, plain: Any) -> str:
        return str(Codec.parse(super().check(plain)))

    def says(self) -> str:
        return "the name of a codec, such as int8-delta"


class Format(Record):
    """Content of submissions, and their coding."""

    content: Annotated[Content, Word(Content)]
    """Content of a submission."""
    codec: Annotated[str, CodecName(48)]
    """Type of number, difference to the base or not, lossless coder: see fedpareto.codecs."""
    error_feedback: Annotated[bool, Flag()] = False
    """Error feedback: what a lossy codec lost is added to the next submission."""
    tensors: Globs = ("*",)
    """Patterns of the names that are submitted."""
    rows: Annotated[bool, Flag()] = False
    """The number of training rows is told with every submission."""
    objectives: Annotated[int, Whole(1, 64)] = 1
    """Number of objectives; per-objective content has so many parts."""
    disclosed: Annotated[bool, Flag()] = False
    """The client tells its preference."""
    preference: Annotated[tuple[float, ...], Many(Real(0, 1), 0, 64)] = ()
    """The weight of each objective, if it is disclosed already; otherwise empty."""

    def must_be_consistent(self) -> None:
        if self.preference and not self.disclosed:
            raise ProtocolError(Refusal.INCONSISTENT, "a preference is given, and is said not to be disclosed")
        if self.preference and len(self.preference) != self.objectives:
            what = f"the preference has {len(self.preference)} weights for {self.objectives} objectives"
            raise ProtocolError(Refusal.INCONSISTENT, what)


FORMAT = Struct(Format)

# -- table 6.2, row 7, and table 6.3, row 3: the initial model ------------------------------------------------------


class _Model(Record):
    digest: Annotated[bytes, Octets((DIGEST,))]
    """SHA-256 of its tensors (see payload.digest)."""
    manifest: Annotated[bytes, Octets((SHORT,))]
    """Digest of the manifest: names, shapes and types."""


class Reference(_Model):
    """A model that both have, by its digest."""


class Onnx(_Model):
    """A model that is sent as an ONNX file."""

    size: Annotated[int, Whole(1)]
    """Bytes of the file."""


class Nnef(_Model):
    """A model that is sent as an NNEF archive."""

    size: Annotated[int, Whole(1)]
    """Bytes of the archive."""


class Bound(Record):
    """A quantity of a model, from the least to the most that it may be."""

    name: Annotated[str, Text(48, least=1)]
    """Such as parameters, inputs, outputs, bytes."""
    low: Annotated[int, Whole()]
    """The least."""
    high: Annotated[int, Whole()]
    """The most."""

    def must_be_consistent(self) -> None:
        if self.low > self.high:
            raise ProtocolError(Refusal.INCONSISTENT, f"{self.name} cannot be from {self.low} to {self.high}")


class Constraints(Record):
    """Any model within these bounds: clients' models may differ."""

    bounds: Annotated[tuple[Bound, ...], Many(Struct(Bound), 1, 16)]
    """Bounds that all hold."""


MODEL = OneOf((("reference", Reference), ("onnx", Onnx), ("nnef", Nnef), ("constraints", Constraints)))

# -- table 6.2, row 8: failure handling of a client -----------------------------------------------------------------


class Action(IntEnum):
    """Actions about a fault."""

    IGNORE = 0
    RETRY = 1
    CONTINUE = 2
    PAUSE = 3
    REVERT = 4
    DROP = 5
    REQUEST_FULL = 6
    LEAVE = 7


class ServerChange(IntEnum):
    """Other servers that a client accepts."""

    REFUSE = 0
    STANDBYS = 1
    SIGNED = 2
    RENEGOTIATE = 3


Act = Annotated[Action, Word(Action)]


class ClientFailures(Record):
    """Failure handling of a client: how it notices faults, and what it does about each."""

    timeout: Seconds
    """Seconds to wait for a global model."""
    on_timeout: Act
    """Action after that time."""
    retries: Annotated[int, Whole(0, 255)]
    """Number of retries before the client leaves."""
    backoff: Annotated[float, Real(1)]
    """Factor by which the time-out grows with every retry."""
    on_server_change: Annotated[ServerChange, Word(ServerChange)]
    """Other servers that are accepted."""
    on_non_finite: Act
    """Action on a local model that is not finite."""
    on_corrupt_state: Act
    """Action on stored weights that do not have their digest."""
    on_storage_full: Act
    """Action when there is no room for a model."""
    on_low_power: Act
    """Action when there is too little power to train."""
    on_undecodable: Act
    """Action on a global model that cannot be decoded or does not have its digest."""
    on_unknown_base: Act
    """Action on a global model that builds on one that the client does not have."""
    checkpoint_every: Annotated[int, Whole(1)]
    """Global models from one checkpoint to the next."""


CLIENT_FAILURES = Struct(ClientFailures)


# -- table 6.3, row 1: aggregation ----------------------------------------------------------------------------------


class Weighting(IntEnum):
    """Weighting of clients in the aggregation."""

    RULE = 0
    UNIFORM = 1
    SAMPLES = 2
    QUALITY = 3
    PREFERENCE = 4


class Fresh(Record):
    """Staleness does not change a weight."""


class Polynomial(Record):
    """(1 + staleness) to the power of −exponent."""

    exponent: Annotated[float, Real(0)]


class Hinge(Record):
    """1 up to `start`, then 1 / (1 + slope × (staleness − start))."""

    slope: Annotated[float, Real(0)]
    """Slope of the fall."""
    start: Annotated[float, Real(0)]
    """Up to this staleness it does not."""


STALENESS = OneOf((("none", Fresh), ("polynomial", Polynomial), ("hinge", Hinge)))


class Aggregation(Record):
    """Aggregation of submissions."""

    rule: Annotated[str, Text(48, least=1)]
    """The name of an algorithm."""
    parameters: Annotated[Mapping[str, Any], Parameters()] = field(default_factory=dict)
    """Hyper-parameters of the algorithm."""
    weighting: Annotated[Weighting, Word(Weighting)] = Weighting.RULE
    """`rule`: as the algorithm's own parameters say."""
    staleness: Annotated[Record, STALENESS] = Fresh()
    """Fall of a late submission's weight."""
    minimum: Annotated[int, Whole(1)] = 1
    """Submissions without which nothing is aggregated."""
    deadline: Annotated[float | None, Maybe(Real(0, is_open=True))] = None
    """Seconds after which a round ends; none: it waits for all."""
    most_stale: Annotated[int | None, Maybe(Whole())] = None
    """Versions by which a submission may be late; none: any number."""
    server_lr: Annotated[float, Real(0, is_open=True)] = 1.0
    """Factor of the aggregated movement."""


AGGREGATION = Struct(Aggregation)

# -- table 6.3, row 2: collection -----------------------------------------------------------------------------------


class Push(Record):
    """Clients submit by themselves."""


class Poll(Record):
    """The server asks."""


class Either(Record):
    """Both."""


class Contacts(Record):
    """At the contacts of a plan."""

    plan: Annotated[bytes, Octets((SHORT,))]
    """Digest of the plan."""


COLLECTION = OneOf((("push", Push), ("poll", Poll), ("either", Either), ("contacts", Contacts)))

# -- table 6.3, row 4: failure handling of a server -----------------------------------------------------------------


class Duplicates(IntEnum):
    """Ways to treat a second submission for the same task."""

    DROP = 0
    REPLACE = 1
    SUM = 2


class OverStale(IntEnum):
    """Ways to treat a submission that is later than the agreement allows."""

    DROP = 0
    DOWN_WEIGHT = 1
    ACCEPT = 2
    RETURN = 3


class Rejoin(IntEnum):
    """Ways to treat a client that comes back."""

    FULL = 0
    DIFFERENCE = 1
    REFUSE = 2


class ServerFailures(Record):
    """Failure handling of a server: how it notices faults, and what it does about each."""

    timeout: Seconds
    """Seconds to wait for a submission."""
    on_timeout: Act
    """Action after that time."""
    quorum: Annotated[int, Whole(1)]
    """Clients without which the session does not go on."""
    on_quorum_lost: Act
    """Action when there are fewer clients."""
    duplicates: Annotated[Duplicates, Word(Duplicates)]
    """Second submissions for one task."""
    over_stale: Annotated[OverStale, Word(OverStale)]
    """Submissions later than most-stale."""
    on_invalid: Act
    """Action on a submission that cannot be decoded, is not finite or does not have its digest."""
    on_unknown_base: Act
    """Action on a submission that builds on a version that the server no longer has."""
    quarantine_after: Annotated[int, Whole(0, 255)]
    """Invalid submissions after which a client is not listened to; 0: never."""
    rejoin: Annotated[Rejoin, Word(Rejoin)]
    """Treatment of a client that comes back."""
    checkpoint_every: Annotated[int, Whole(1)]
    """Versions from one checkpoint to the next."""
    handover_after: Annotated[float | None, Maybe(Real(0, is_open=True))] = None
    """Seconds of a server's silence after which a stand-by takes over; none: never."""
    succession: Annotated[tuple[int, ...], Many(Whole(1, MOST_NODE), 0, 8)] = ()
    """Nodes that take over, in this order."""


SERVER_FAILURES = Struct(ServerFailures)
