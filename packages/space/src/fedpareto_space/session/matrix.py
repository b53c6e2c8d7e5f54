"""The failure matrix: fourteen faults, each with what was agreed about it, and how a session ends that keeps to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpareto.spec.spec import Spec
from fedpareto_space.session.agreement import FIRST_CLIENT, SERVER, changed, terms_of
from fedpareto_space.session.mishaps import Mishap
from fedpareto_space.wire import rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind

STANDBY = SERVER + 1
FIRST, SECOND = FIRST_CLIENT, FIRST_CLIENT + 1
"""Two clients."""
SAME = "the undisturbed run's model"
"""How most of them end."""


@dataclass(frozen=True)
class Case:
    """One fault."""

    fault: FaultKind
    agreed: str
    """The row and what it says, for people."""
    told: Sequence[tuple[int, str, str]]
    """Nodes, faults and actions that must be in the logs."""
    ends: Mapping[int, str]
    """Why nodes leave; those that are not here are done."""
    same: bool = True
    """Whether the result is that of the undisturbed run."""
    rows: Mapping[str, Any] = field(default_factory=dict)
    mishaps: Mapping[int, Sequence[Mishap]] = field(default_factory=dict)
    standby: bool = False

    def terms(self, spec: Spec) -> Terms:
        """What is agreed for this one."""
        return changed(terms_of(spec, (SERVER, STANDBY) if self.standby else (SERVER,)), **self.rows)

    @property
    def name(self) -> str:
        """In words."""
        return spelled(self.fault)

    @property
    def silent(self) -> set[int]:
        """Nodes that are dead at the end."""
        fatal = {FaultKind.SERVER_SILENT, FaultKind.SERVER_CHANGE, FaultKind.QUORUM_LOST}
        return {node for node, some in self.mishaps.items() if any(one.fault in fatal for one in some)}


def cases(unit: float = 20.0) -> list[Case]:
    """All fourteen; `unit` is how many seconds a short time-out has."""
    client = {"timeout": 2 * unit, "retries": 2, "backoff": 1.5}
    server = {"timeout": 4 * unit}
    silent = "the server is silent"

    def struck(fault: FaultKind, node: int = FIRST, round_: int = 2, seconds: float = 0.0) -> dict[int, list[Mishap]]:
        return {node: [Mishap(fault, round_, seconds)]}

    def of_client(**fields: Any) -> dict[str, Any]:
        return {"client_failures": {**client, **fields}, "server_failures": server}

    def of_server(**fields: Any) -> dict[str, Any]:
        return {"client_failures": client, "server_failures": {**server, **fields}}

    return [
        Case(
            FaultKind.SERVER_SILENT,
            "6.2 row 8: retry twice, then leave",
            [(FIRST, "server-silent", "retry"), (SECOND, "server-silent", "retry")],
            {FIRST: silent, SECOND: silent},
            same=False,
            rows=of_client(on_timeout=Action.RETRY),
            mishaps=struck(FaultKind.SERVER_SILENT, SERVER),
        ),
        Case(
            FaultKind.SERVER_CHANGE,
            "6.2 rows 2 and 8, 6.3 row 4: a stand-by takes over after a time of silence",
            [(STANDBY, "server-change", "hand-over"), (FIRST, "server-change", "standbys")],
            {},
            rows=of_server(handover_after=unit),
            mishaps=struck(FaultKind.SERVER_CHANGE, SERVER),
            standby=True,
        ),
        Case(
            FaultKind.CLIENT_RESET,
            "6.3 row 4: a client that comes back gets the full model",
            [(FIRST, "client-reset", "revert"), (SERVER, "client-reset", "full")],
            {},
            rows=of_server(rejoin=rows.Rejoin.FULL),
            mishaps=struck(FaultKind.CLIENT_RESET),
        ),
        Case(
            FaultKind.NON_FINITE,
            "6.2 row 8: revert to the checkpoint",
            [(FIRST, "non-finite", "revert")],
            {},
            rows=of_client(on_non_finite=Action.REVERT),
            mishaps=struck(FaultKind.NON_FINITE),
        ),
        Case(
            FaultKind.CORRUPT_STATE,
            "6.2 row 8: revert to the checkpoint",
            [(FIRST, "corrupt-state", "revert")],
            {},
            rows=of_client(on_corrupt_state=Action.REVERT),
            mishaps=struck(FaultKind.CORRUPT_STATE),
        ),
        Case(
            FaultKind.STORAGE_FULL,
            "6.2 row 8: drop older models",
            [(FIRST, "storage-full", "drop"), (SERVER, "storage-full", "drop")],
            {},
            rows=of_client(on_storage_full=Action.DROP),
            mishaps=struck(FaultKind.STORAGE_FULL, seconds=10 * unit),
        ),
        Case(
            FaultKind.LOW_POWER,
            "6.2 row 8: pause until there is power",
            [(FIRST, "low-power", "pause"), (SERVER, "low-power", "pause")],
            {},
            rows=of_client(on_low_power=Action.PAUSE),
            mishaps=struck(FaultKind.LOW_POWER, seconds=unit),
        ),
        Case(
            FaultKind.DUPLICATE,
            "6.3 row 4: drop the second",
            [(SERVER, "duplicate", "drop")],
            {},
            rows=of_server(duplicates=rows.Duplicates.DROP),
            mishaps=struck(FaultKind.DUPLICATE),
        ),
        Case(
            FaultKind.OVER_STALE,
            "6.3 rows 1 and 4: drop what comes after its round",
            [(SERVER, "over-stale", "drop")],
            {},
            same=False,
            rows=of_server(over_stale=rows.OverStale.DROP)
            | {"aggregation": {"deadline": unit, "most_stale": 0, "minimum": 1}},
            mishaps=struck(FaultKind.OVER_STALE, round_=1, seconds=1.5 * unit),
        ),
        Case(
            FaultKind.UNKNOWN_BASE,
            "6.2 row 8: request the full model",
            [(FIRST, "unknown-base", "request-full"), (SERVER, "unknown-base", "request-full")],
            {},
            rows=of_client(on_unknown_base=Action.REQUEST_FULL),
            mishaps=struck(FaultKind.UNKNOWN_BASE),
        ),
        Case(
            FaultKind.CORRUPT_PAYLOAD,
            "6.3 row 4: ask again; 6.2 row 8: request the full model",
            [(SERVER, "corrupt-payload", "retry"), (FIRST, "corrupt-payload", "request-full")],
            {},
            rows=of_server(on_invalid=Action.RETRY),
            mishaps=struck(FaultKind.CORRUPT_PAYLOAD) | struck(FaultKind.CORRUPT_PAYLOAD, SERVER, 3),
        ),
        Case(
            FaultKind.VERSION_MISMATCH,
            "refused by its version; the others go on",
            [(FIRST, "version-mismatch", "reject"), (SERVER, "version-mismatch", "reject")],
            {FIRST: ""},
            same=False,
            rows=of_server(quorum=1),
            mishaps=struck(FaultKind.VERSION_MISMATCH, SERVER),
        ),
        Case(
            FaultKind.UNKNOWN_EXTENSION,
            "refused by its row; without clients there is no quorum",
            [
                (FIRST, "unknown-extension", "reject"),
                (SERVER, "unknown-extension", "reject"),
                (SERVER, "quorum-lost", "leave"),
            ],
            {FIRST: "", SECOND: "", SERVER: "the quorum is lost"},
            same=False,
            rows=of_server(quorum=1, on_quorum_lost=Action.LEAVE),
            mishaps=struck(FaultKind.UNKNOWN_EXTENSION, SERVER),
        ),
        Case(
            FaultKind.QUORUM_LOST,
            "6.3 row 4: leave",
            [(SERVER, "client-silent", "drop"), (SERVER, "quorum-lost", "leave")],
            {SERVER: "the quorum is lost", SECOND: "the server closed the session: quorum_lost"},
            same=False,
            rows=of_server(timeout=unit, quorum=2, on_timeout=Action.DROP, on_quorum_lost=Action.LEAVE),
            mishaps=struck(FaultKind.QUORUM_LOST),
        ),
    ]
