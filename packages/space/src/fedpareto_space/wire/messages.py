"""The ten messages of the protocol, and their one encoding.

On the wire a message is `[[major, minor], type, session, sequence, agreement, body]` in deterministic CBOR; the body is
a map with the numbers of the message's own fields as keys, and with EXTENSIONS where it has any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Annotated, Any, ClassVar

from fedpareto_space.wire import cbor, schema
from fedpareto_space.wire.kinds import Flag, Many, Maybe, Octets, Text, Whole, Word
from fedpareto_space.wire.manifest import MANIFEST, Manifest
from fedpareto_space.wire.refusals import NOWHERE, Place, ProtocolError, Refusal
from fedpareto_space.wire.rows import DIGEST, SHORT, Action, CodecName, Content, Identity, Node
from fedpareto_space.wire.schema import Record, Struct, within
from fedpareto_space.wire.terms import ALTERNATIVES, BY_PLACE, TERMS, Alternatives, Terms
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason, Role, Type

MAJOR, MINOR = 1, 0
"""The version of the protocol. Another major version is refused; what a later minor one adds travels as extensions."""
EXTENSIONS = 0
"""The key of a body's extensions."""
MOST_SEQUENCE = 2**64 - 1
NO_AGREEMENT = b""

Short = Annotated[bytes, Octets((SHORT,))]
Version = Annotated[int, Whole()]
"""Version of the global model: it grows by one with every aggregation."""
Table = Annotated[int, Whole(0, 3)]
Number = Annotated[int, Whole(0, 8)]


class Extension(Record):
    """Something that this version of the protocol does not have."""

    number: Annotated[int, Whole()]
    """Number of the extension; 0 to 1023 are for later versions of the protocol."""
    critical: Annotated[bool, Flag()]
    """A party that does not know the extension must refuse the message; otherwise it ignores the extension."""
    table: Table = 0
    """2 or 3 if it changes the meaning of a row of table 6.2 or 6.3, else 0."""
    row: Number = 0
    """The row, or 0."""
    data: Annotated[bytes, Octets(most=1024)] = b""
    """Content of the extension."""

    def must_be_consistent(self) -> None:
        _must_be_a_row(self.place)

    @property
    def place(self) -> Place:
        return self.table, self.row


def _must_be_a_row(place: Place) -> None:
    if place != NOWHERE and place not in BY_PLACE:
        raise ProtocolError(Refusal.OUT_OF_RANGE, f"table 6.{place[0]} has no row {place[1]}")


_EXTENSIONS = Many(Struct(Extension), 0, 8)


class Message(Record, kw_only=True):
    """Head of all messages: the session and the agreement they belong to, and their number."""

    type: ClassVar[Type]

    session: bytes
    """8 bytes that the proposer draws."""
    sequence: int = 0
    """Counts a sender's messages in a session."""
    agreement: bytes = NO_AGREEMENT
    """Terms.id; empty as long as there is no agreement."""
    version: tuple[int, int] = (MAJOR, MINOR)
    extensions: tuple[Extension, ...] = ()

    def __post_init__(self) -> None:
        with within("session"):
            Octets((SHORT,)).check(self.session)
        with within("sequence"):
            Whole(0, MOST_SEQUENCE).check(self.sequence)
        with within("agreement"):
            Octets((0, SHORT)).check(self.agreement)
        with within("extensions"):
            object.__setattr__(self, "extensions", _EXTENSIONS.check(self.extensions))
        super().__post_init__()


# -- negotiation ---------------------------------------------------------------------------------------------------


class _Early(Message, kw_only=True):
    """Comes before there is an agreement."""

    def must_be_consistent(self) -> None:
        if self.agreement != NO_AGREEMENT:
            what = f"{self.type.name} comes before there is an agreement, and names one"
            raise ProtocolError(Refusal.INCONSISTENT, what)


class Offer(_Early, kw_only=True):
    """An offer to learn together: alternatives for each of the twelve rows."""

    type: ClassVar[Type] = Type.OFFER

    node: Node
    """Node of the sender."""
    role: Annotated[Role, Word(Role)]
    """Role of the sender."""
    rows: Annotated[Alternatives, ALTERNATIVES]
    """Alternatives of the sender, row by row."""
    statement: Annotated[bytes | None, Maybe(Octets(most=1024))] = None
    """A certified statement of conformance and quality. The protocol carries it and does not read it."""


class Accept(Message, kw_only=True):
    """The agreement, in full: one value for each row."""

    type: ClassVar[Type] = Type.ACCEPT

    node: Node
    """Node of the sender."""
    terms: Annotated[Terms, TERMS]
    """Terms of both from now on; the head's agreement is their id."""

    def must_be_consistent(self) -> None:
        if self.agreement != self.terms.id:
            raise ProtocolError(Refusal.WRONG_AGREEMENT, "the agreement's id is not that of its rows")


class Counter(_Early, kw_only=True):
    """An offer in return: rows that suit both as they were offered, and for the others what the sender could do."""

    type: ClassVar[Type] = Type.COUNTER

    node: Node
    """Node of the sender."""
    rows: Annotated[Alternatives, ALTERNATIVES]
    """Alternatives of the sender, row by row."""


class Reject(_Early, kw_only=True):
    """No agreement: why, and because of which row."""

    type: ClassVar[Type] = Type.REJECT

    code: Annotated[Refusal, Word(Refusal)]
    """Why; see Refusals."""
    table: Table = 0
    """2 or 3 for table 6.2 or 6.3; 0 if it is about no row."""
    row: Number = 0
    """The row on which they part, or 0."""
    detail: Annotated[str | None, Maybe(Text())] = None
    """For people, such as the closest name that is known."""

    def must_be_consistent(self) -> None:
        super().must_be_consistent()
        _must_be_a_row(self.place)

    @property
    def place(self) -> Place:
        return self.table, self.row


# -- learning ------------------------------------------------------------------------------------------------------


class _Later(Message, kw_only=True):
    """Belongs to an agreement."""

    def must_be_consistent(self) -> None:
        if self.agreement == NO_AGREEMENT:
            raise ProtocolError(Refusal.WRONG_AGREEMENT, f"{self.type.name} names no agreement")


class Update(_Later, kw_only=True):
    """A submission of a client."""

    type: ClassVar[Type] = Type.UPDATE

    client: Node
    """The sender."""
    base: Version
    """The version that it builds on."""
    base_digest: Short
    """The first 8 bytes of that model's SHA-256."""
    round: Annotated[int, Whole()]
    """Round of the task that it answers."""
    step: Annotated[str, Text(48, least=1)]
    """Name of the algorithm's client step that it answers."""
    lane: Annotated[int, Whole()]
    """Number of the task among several of one client in a round; 0 if there is one."""
    steps: Annotated[int, Whole()]
    """Local steps that were done."""
    content: Annotated[Content, Word(Content)]
    """Meaning of the tensors."""
    codec: Annotated[str, CodecName(48)]
    """Codec of coded tensors."""
    manifest_digest: Short
    """The first 8 bytes of the manifest's SHA-256."""
    payload_digest: Short
    """The first 8 bytes of the payload's SHA-256."""
    payload: Annotated[bytes, Octets()] = field(repr=False)
    """The tensors; see Payloads."""
    rows: Annotated[int | None, Maybe(Whole(0, 2**53))] = None
    """Training rows, if the agreement says that they are told."""
    manifest: Annotated[Manifest | None, Maybe(MANIFEST)] = None
    """Sent once; later messages only give its digest."""

    def must_be_consistent(self) -> None:
        super().must_be_consistent()
        if self.manifest is not None and self.manifest.digest != self.manifest_digest:
            raise ProtocolError(Refusal.WRONG_DIGEST, "the manifest does not have its digest")


class Global(_Later, kw_only=True):
    """A task of the server: a model, or anything else that the algorithm's next client step needs."""

    type: ClassVar[Type] = Type.GLOBAL

    model: Version
    """The version that it makes."""
    base: Version
    """The version that it builds on; 0 with a base digest of zeros: on none, it is complete."""
    base_digest: Short
    """The first 8 bytes of that model's SHA-256."""
    model_digest: Annotated[bytes, Octets((DIGEST,))]
    """SHA-256 of the tensors that the client then holds."""
    round: Annotated[int, Whole()]
    """Round of the task."""
    step: Annotated[str, Text(48, least=1)]
    """Name of the algorithm's client step that is asked for."""
    lane: Annotated[int, Whole()]
    """Number of the task among several of one client in a round; 0 if there is one."""
    content: Annotated[Content, Word(Content)]
    """Meaning of the tensors."""
    codec: Annotated[str, CodecName(48)]
    """Codec of coded tensors."""
    manifest: Annotated[Manifest, MANIFEST]
    """Names, shapes and types of the tensors."""
    payload_digest: Short
    """The first 8 bytes of the payload's SHA-256."""
    payload: Annotated[bytes, Octets()] = field(repr=False)
    """The tensors; see Payloads."""
    key: Annotated[bytes | None, Maybe(Octets((DIGEST,)))] = None
    """SHA-256 of the sender's public key, where row 2 of table 6.2 names one."""


class Receipt(_Later, kw_only=True):
    """Fate of a message."""

    type: ClassVar[Type] = Type.RECEIPT

    node: Node
    """Node of the sender."""
    of: Annotated[int, Whole(0, MOST_SEQUENCE)]
    """The sequence number of that message."""
    outcome: Annotated[Outcome, Word(Outcome)]
    """Fate of that message."""
    model: Version
    """The version that the sender of the receipt holds."""
    model_digest: Short
    """The first 8 bytes of that model's SHA-256."""


class Fault(_Later, kw_only=True):
    """A fault, and what its sender does about it, as agreed."""

    type: ClassVar[Type] = Type.FAULT

    node: Node
    """Node of the sender."""
    fault: Annotated[FaultKind, Word(FaultKind)]
    """Fault of the sender."""
    action: Annotated[Action, Word(Action)]
    """Action of the sender."""
    table: Table = 0
    """2 or 3 for table 6.2 or 6.3; 0 if no row says so."""
    row: Number = 0
    """The row that says so."""
    model: Version = 0
    """The version that the sender holds."""
    detail: Annotated[str | None, Maybe(Text())] = None
    """For people."""

    def must_be_consistent(self) -> None:
        super().must_be_consistent()
        _must_be_a_row((self.table, self.row))


class Handover(_Later, kw_only=True):
    """Another node is the server from now on."""

    type: ClassVar[Type] = Type.HANDOVER

    successor: Annotated[Identity, Struct(Identity)]
    """The new server."""
    model: Version
    """The version with which it begins."""
    model_digest: Annotated[bytes, Octets((DIGEST,))]
    """SHA-256 of that model."""
    reason: Annotated[Reason, Word(Reason)]
    """Why."""
    state: Annotated[bytes | None, Maybe(Octets())] = field(default=None, repr=False)
    """For stand-bys: what the server has learnt so far. Clients get none."""


class Close(_Later, kw_only=True):
    """The sender's part in the session is over."""

    type: ClassVar[Type] = Type.CLOSE

    node: Node
    """Node of the sender."""
    reason: Annotated[Reason, Word(Reason)]
    """Why."""
    model: Version
    """The version that the sender holds."""
    model_digest: Annotated[bytes, Octets((DIGEST,))]
    """SHA-256 of that model."""


MESSAGES: dict[Type, type[Message]] = {
    cls.type: cls for cls in (Offer, Accept, Counter, Reject, Update, Global, Receipt, Fault, Handover, Close)
}


# -- bytes ---------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    body: dict[int, Any] = schema.to_wire(message)
    if message.extensions:
        body[EXTENSIONS] = _EXTENSIONS.to_wire(message.extensions)
    head = [list(message.version), int(message.type), message.session, message.sequence, message.agreement]
    return cbor.encode([*head, body])


def decode(data: bytes, extensions: Collection[int] = ()) -> Message:
    """The message of an encoding; ProtocolError says by code, row and words why it is refused.

    `extensions` are the numbers of those that the caller understands.
    """
    whole = cbor.decode(data)
    if not isinstance(whole, list) or len(whole) != 6:
        raise ProtocolError(Refusal.WRONG_TYPE, "a message is a list of six: version, type, session, sequence, …")
    version, kind, session, sequence, agreement, body = whole
    Octets((SHORT,)).check(session)
    Whole(0, MOST_SEQUENCE).check(sequence)
    try:
        return _read(_version(version), kind, body, extensions, (session, sequence, agreement))
    except ProtocolError as problem:
        problem.session, problem.sequence = session, sequence
        raise


def _version(version: Any) -> tuple[int, int]:
    kind = Many(Whole(), 2, 2)
    with within("version"):
        major, minor = kind.check(kind.from_wire(version))
    if major != MAJOR:
        raise ProtocolError(Refusal.VERSION, f"version {major}.{minor} of the protocol; this is {MAJOR}.{MINOR}")
    return major, minor


def _read(
    version: tuple[int, int], kind: Any, body: Any, known: Collection[int], head: tuple[bytes, int, bytes]
) -> Message:
    with within("type"):
        cls = MESSAGES[Word(Type).from_wire(kind)]  # type: ignore[index]  # It is a Type.
    if not isinstance(body, dict):
        raise ProtocolError(Refusal.WRONG_TYPE, "the body of a message is a map")
    extensions: tuple[Extension, ...] = ()
    if EXTENSIONS in body:
        extensions = _EXTENSIONS.from_wire(body.pop(EXTENSIONS))
        if not extensions:
            raise ProtocolError(Refusal.FORBIDDEN, "an empty list of extensions is left out")
    for extension in extensions:
        if extension.critical and extension.number not in known:
            what = f"extension {extension.number} must be understood, and is not"
            raise ProtocolError(Refusal.CRITICAL_EXTENSION, what, extension.place)
    session, sequence, agreement = head
    values = schema.values_of(cls, body)
    return cls(
        session=session,
        sequence=sequence,
        agreement=agreement,
        version=version,
        extensions=extensions,
        **values,
    )
