"""The failure matrix: fourteen faults, each with what was agreed about it, and how a session ends that keeps to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpareto.spec.spec import Spec
from fedpareto_space.session.agreement import FIRST_CLIENT, SERVER, changed, terms_of
from fedpareto_space.session.client import SILENT
from fedpareto_space.session.mishaps import Mishap
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.rows import Action, Duplicates, OverStale, Rejoin
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind

STANDBY = SERVER + 1
FIRST, SECOND = FIRST_CLIENT, FIRST_CLIENT + 1


@dataclass(frozen=True)
class Case:
    """One fault."""

    fault: FaultKind
    agreed: str
    """The row and its words, for people."""
    actions: Mapping[int, str]
    """The action of each node that logs the fault."""
    rows: Mapping[str, Any]
    mishaps: Mapping[int, Sequence[Mishap]]
    ends: Mapping[int, str] = field(default_factory=dict)
    """Reasons of nodes that leave before they are done."""
    same: bool = True
    """The result is that of the undisturbed run."""
    follows: tuple[tuple[int, str, str], ...] = ()
    """Nodes, other faults and actions that are logged, too."""

    def terms(self, spec: Spec) -> Terms:
        servers = (SERVER, STANDBY) if self.fault is FaultKind.SERVER_CHANGE else (SERVER,)
        return changed(terms_of(spec, servers), **self.rows)

    @property
    def name(self) -> str:
        return spelled(self.fault)

    @property
    def told(self) -> set[tuple[int, str, str]]:
        """Nodes, faults and actions that must be in the logs."""
        return {(node, self.name, action) for node, action in self.actions.items()} | set(self.follows)

    @property
    def silent(self) -> set[int]:
        """Nodes that are dead at the end."""
        fatal = {FaultKind.SERVER_SILENT, FaultKind.SERVER_CHANGE, FaultKind.QUORUM_LOST}
        return set(self.mishaps) if self.fault in fatal else set()


def cases(unit: float = 20.0) -> list[Case]:
    """All fourteen; a short time-out has `unit` seconds."""

    def case(fault: FaultKind, agreed: str, actions: dict[int, str], at: int = FIRST, **about: Any) -> Case:
        rows = {
            "client_failures": {"timeout": 2 * unit, "retries": 2, "backoff": 1.5} | about.pop("client", {}),
            "server_failures": {"timeout": 4 * unit} | about.pop("server", {}),
            "aggregation": about.pop("aggregation", {}),
        }
        struck = {at: [Mishap(fault, about.pop("round", 2), about.pop("seconds", 0.0))]}
        return Case(fault, agreed, actions, rows, struck | about.pop("also", {}), **about)

    no_quorum = SERVER, "quorum-lost", "leave"
    return [
        case(
            FaultKind.SERVER_SILENT,
            "6.2 row 8: retry twice, then leave",
            {FIRST: "retry", SECOND: "retry"},
            at=SERVER,
            client={"on_timeout": Action.RETRY},
            ends={FIRST: SILENT, SECOND: SILENT},
            same=False,
        ),
        case(
            FaultKind.SERVER_CHANGE,
            "6.2 rows 2 and 8, 6.3 row 4: a stand-by takes over after a time of silence",
            {STANDBY: "hand-over", FIRST: "standbys"},
            at=SERVER,
            server={"handover_after": unit},
        ),
        case(
            FaultKind.CLIENT_RESET,
            "6.3 row 4: a client that comes back gets the full model",
            {FIRST: "revert", SERVER: "full"},
            server={"rejoin": Rejoin.FULL},
        ),
        case(
            FaultKind.NON_FINITE,
            "6.2 row 8: revert to the checkpoint",
            {FIRST: "revert"},
            client={"on_non_finite": Action.REVERT},
        ),
        case(
            FaultKind.CORRUPT_STATE,
            "6.2 row 8: revert to the checkpoint",
            {FIRST: "revert"},
            client={"on_corrupt_state": Action.REVERT},
        ),
        case(
            FaultKind.STORAGE_FULL,
            "6.2 row 8: drop older models",
            {FIRST: "drop", SERVER: "drop"},
            client={"on_storage_full": Action.DROP},
            seconds=10 * unit,
        ),
        case(
            FaultKind.LOW_POWER,
            "6.2 row 8: pause until there is power",
            {FIRST: "pause", SERVER: "pause"},
            client={"on_low_power": Action.PAUSE},
            seconds=unit,
        ),
        case(
            FaultKind.DUPLICATE, "6.3 row 4: drop the second", {SERVER: "drop"}, server={"duplicates": Duplicates.DROP}
        ),
        case(
            FaultKind.OVER_STALE,
            "6.3 rows 1 and 4: drop what comes after its round",
            {SERVER: "drop"},
            server={"over_stale": OverStale.DROP},
            aggregation={"deadline": unit, "most_stale": 0, "minimum": 1},
            round=1,
            seconds=1.5 * unit,
            same=False,
        ),
        case(
            FaultKind.UNKNOWN_BASE,
            "6.2 row 8: request the full model",
            {FIRST: "request-full", SERVER: "request-full"},
            client={"on_unknown_base": Action.REQUEST_FULL},
        ),
        case(
            FaultKind.CORRUPT_PAYLOAD,
            "6.3 row 4: ask again; 6.2 row 8: request the full model",
            {SERVER: "retry", FIRST: "request-full"},
            server={"on_invalid": Action.RETRY},
            also={SERVER: [Mishap(FaultKind.CORRUPT_PAYLOAD, 3)]},
        ),
        case(
            FaultKind.VERSION_MISMATCH,
            "refused by its version; the others go on",
            {FIRST: "reject", SERVER: "reject"},
            at=SERVER,
            server={"quorum": 1},
            ends={FIRST: ""},
            same=False,
        ),
        case(
            FaultKind.UNKNOWN_EXTENSION,
            "refused by its row; without clients there is no quorum",
            {FIRST: "reject", SERVER: "reject"},
            at=SERVER,
            server={"quorum": 1, "on_quorum_lost": Action.LEAVE},
            ends={FIRST: "", SECOND: "", SERVER: "the quorum is lost"},
            same=False,
            follows=(no_quorum,),
        ),
        case(
            FaultKind.QUORUM_LOST,
            "6.3 row 4: leave",
            {},
            server={"timeout": unit, "quorum": 2, "on_timeout": Action.DROP, "on_quorum_lost": Action.LEAVE},
            ends={SERVER: "the quorum is lost", SECOND: "the server closed the session: quorum_lost"},
            same=False,
            follows=((SERVER, "client-silent", "drop"), no_quorum),
        ),
    ]
