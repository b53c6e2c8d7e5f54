"""Words of the protocol that belong to no row: types of messages, roles, faults, outcomes and reasons."""

from __future__ import annotations

from enum import IntEnum


class Type(IntEnum):
    """The kind of a message."""

    OFFER = 1
    ACCEPT = 2
    COUNTER = 3
    REJECT = 4
    UPDATE = 5
    GLOBAL = 6
    RECEIPT = 7
    FAULT = 8
    HANDOVER = 9
    CLOSE = 10


class Role(IntEnum):
    """Roles of a party in a session."""

    CLIENT = 0
    SERVER = 1
    PEER = 2


class Outcome(IntEnum):
    """Fates of a message that was received."""

    TAKEN = 0
    DUPLICATE = 1
    STALE = 2
    INVALID = 3
    QUARANTINED = 4
    RETURNED = 5
    AWAITED = 6
    """Said of what has not come yet: the server asks for it."""


class FaultKind(IntEnum):
    """Kinds of faults: the fourteen of the failure matrix, and a silent client."""

    SERVER_SILENT = 1
    SERVER_CHANGE = 2
    CLIENT_RESET = 3
    NON_FINITE = 4
    CORRUPT_STATE = 5
    STORAGE_FULL = 6
    LOW_POWER = 7
    DUPLICATE = 8
    OVER_STALE = 9
    UNKNOWN_BASE = 10
    CORRUPT_PAYLOAD = 11
    VERSION_MISMATCH = 12
    UNKNOWN_EXTENSION = 13
    QUORUM_LOST = 14
    CLIENT_SILENT = 15


class Reason(IntEnum):
    """Why a session is closed or handed over."""

    DONE = 0
    LEFT = 1
    FAILED = 2
    REPLACED = 3
    QUORUM_LOST = 4
    SILENT = 5
