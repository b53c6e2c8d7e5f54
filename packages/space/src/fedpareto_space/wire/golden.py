"""Example messages, one of each type at least: docs/space-protocol.md prints their bytes, and other implementations can
be tested against them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fedpareto.codecs import Codec
from fedpareto_space.wire import messages, payload, rows
from fedpareto_space.wire.messages import Message
from fedpareto_space.wire.refusals import Refusal
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.terms import Alternatives, Terms
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason, Role

SESSION = bytes(range(8))
SERVER, STANDBY, CLIENT = 10, 11, 20
"""Node numbers."""
MODEL = {"model": np.arange(6, dtype=np.float32) / 4}


def terms() -> Terms:
    """An agreement: a star with a stand-by, FedAvg over 8-bit differences."""
    model = rows.Reference(payload.digest(MODEL), payload.pack(MODEL, Codec.parse("float32"), {})[0].digest)
    return Terms(
        topology=rows.Star(),
        servers=(rows.Identity(SERVER, key=hashlib.sha256(b"key").digest()), rows.Identity(STANDBY)),
        trigger=rows.AnyOf((rows.Steps(100), rows.AllOf((rows.AtContact(), rows.Norm(0.5))))),
        waiting=rows.Pause(),
        integration=rows.Replace(),
        format=rows.Format(rows.Content.DIFFERENCE, str(Codec.parse("int8-delta")), error_feedback=True, rows=True),
        model=model,
        client_failures=rows.ClientFailures(
            timeout=21600.0,
            on_timeout=Action.RETRY,
            retries=3,
            backoff=2.0,
            on_server_change=rows.ServerChange.STANDBYS,
            on_non_finite=Action.REVERT,
            on_corrupt_state=Action.REVERT,
            on_storage_full=Action.DROP,
            on_low_power=Action.PAUSE,
            on_undecodable=Action.REQUEST_FULL,
            on_unknown_base=Action.REQUEST_FULL,
            checkpoint_every=1,
        ),
        aggregation=rows.Aggregation("fedavg", {"weighting": "size"}, deadline=86400.0, most_stale=4),
        collection=rows.Either(),
        global_model=model,
        server_failures=rows.ServerFailures(
            timeout=43200.0,
            on_timeout=Action.CONTINUE,
            quorum=2,
            on_quorum_lost=Action.PAUSE,
            duplicates=rows.Duplicates.DROP,
            over_stale=rows.OverStale.DOWN_WEIGHT,
            on_invalid=Action.DROP,
            on_unknown_base=Action.DROP,
            quarantine_after=3,
            rejoin=rows.Rejoin.FULL,
            checkpoint_every=5,
            handover_after=172800.0,
            succession=(STANDBY,),
        ),
    )


def alternatives() -> Alternatives:
    """An offer that leads to these terms, with a second choice in five rows."""
    first = terms()
    return Alternatives(
        {
            **Alternatives.of(first).by_place,
            (2, 1): (rows.Star(), rows.Hierarchical(2)),
            (2, 3): (first.trigger, rows.Steps(100)),
            (2, 4): (rows.Pause(), rows.ContinueFor(50)),
            (2, 6): (first.format, rows.Format(rows.Content.WEIGHTS, str(Codec.parse("float32")))),
            (3, 2): (rows.Either(), rows.Push()),
        }
    )


def every() -> dict[str, Message]:
    agreed = terms()
    before: dict[str, Any] = {"session": SESSION}
    after = {**before, "agreement": agreed.id}
    codec = Codec.parse("float32")
    manifest, data = payload.pack(MODEL, codec, {})
    digest = payload.digest(MODEL)
    travels: dict[str, Any] = {
        "round": 2,
        "step": "train",
        "lane": 0,
        "codec": str(codec),
        "payload_digest": payload.short(data),
        "payload": data,
    }
    build = messages
    return {
        "offer": build.Offer(**before, node=SERVER, role=Role.SERVER, rows=alternatives()),
        "accept": build.Accept(**after, node=CLIENT, terms=agreed),
        "counter": build.Counter(**before, node=CLIENT, rows=Alternatives.of(agreed)),
        "reject": build.Reject(**before, code=Refusal.NOT_SUPPORTED, table=2, row=6),
        "update": build.Update(
            **after,
            **travels,
            sequence=7,
            client=CLIENT,
            base=2,
            base_digest=digest[:8],
            steps=100,
            content=rows.Content.DIFFERENCE,
            manifest_digest=manifest.digest,
            rows=640,
        ),
        "global": build.Global(
            **after,
            **travels,
            sequence=8,
            model=3,
            base=2,
            base_digest=digest[:8],
            model_digest=digest,
            content=rows.Content.WEIGHTS,
            manifest=manifest,
        ),
        "receipt": build.Receipt(
            **after, sequence=9, node=SERVER, of=7, outcome=Outcome.TAKEN, model=3, model_digest=digest[:8]
        ),
        "fault": build.Fault(
            **after, sequence=10, node=CLIENT, fault=FaultKind.NON_FINITE, action=Action.REVERT, table=2, row=8, model=3
        ),
        "handover": build.Handover(
            **after,
            sequence=11,
            successor=rows.Identity(STANDBY),
            model=3,
            model_digest=digest,
            reason=Reason.SILENT,
        ),
        "close": build.Close(**after, sequence=12, node=CLIENT, reason=Reason.DONE, model=3, model_digest=digest),
    }
