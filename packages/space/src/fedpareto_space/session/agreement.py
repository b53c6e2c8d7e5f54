"""From a run's spec to the twelve rows, and from agreed rows to what learns: nothing runs but what was agreed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedpareto.clock.policy import Policy
from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import to_plain
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Setting, participant_count
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto_space.session import client, server, triggers
from fedpareto_space.session.learning import ClientHalf, ServerHalf, arrays_of
from fedpareto_space.wire import patterns, payload, rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.manifest import Manifest
from fedpareto_space.wire.negotiation import Capabilities
from fedpareto_space.wire.refusals import Place, ProtocolError, Refusal
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.terms import BY_PLACE, ROWS, Terms
from fedpareto_space.wire.vocabulary import Role

SERVER = 1
"""The server's node, if nobody says otherwise."""
FIRST_CLIENT = 10
"""The node of client 0."""
CLIENT_FAILURES = rows.ClientFailures(
    timeout=600.0,
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
)
SERVER_FAILURES = rows.ServerFailures(
    timeout=3600.0,
    on_timeout=Action.RETRY,
    quorum=1,
    on_quorum_lost=Action.LEAVE,
    duplicates=rows.Duplicates.DROP,
    over_stale=rows.OverStale.DROP,
    on_invalid=Action.RETRY,
    on_unknown_base=Action.REQUEST_FULL,
    quarantine_after=3,
    rejoin=rows.Rejoin.FULL,
    checkpoint_every=1,
)


def _offered(faults: Mapping[Any, tuple[str, Mapping[Action, Any]]]) -> dict[str, list[str]]:
    """The actions that a machine has a handler for, by the field of a row."""
    return {field.replace("_", "-"): [spelled(action) for action in handlers] for field, handlers in faults.values()}


ABILITIES: Mapping[tuple[int, int], Any] = {
    (2, 7): "reference",
    (3, 3): "reference",
    (2, 6): {"content": ["weights", "difference", "per-objective-differences"]},
    (2, 8): _offered(client.FAULTS),
    (3, 1): {"weighting": ["rule", "uniform", "samples"]},
    (3, 4): _offered(server.FAULTS),
}
"""Abilities of this package's machines; rows that are not here may be anything that the protocol has."""
ONLY: dict[Place, tuple[Any, str]] = {
    (2, 1): (rows.Star(), "is simulated with the topology star"),
    (2, 3): (rows.Steps(1), "trains once for each task: {steps: 1}"),
    (2, 4): (rows.Pause(), "has satellites that wait for the next task: pause"),
    (2, 5): (rows.Replace(), "begins each task from what the server sent: replace"),
}
AGES = np.array([0, 1, 2, 5, 10, 20, 50])
"""Rounds at which two policies are compared in what a late reply counts."""


def capabilities(node: int, role: Role, narrower: Mapping[tuple[int, int], Any] | None = None) -> Capabilities:
    topologies = ["decentralised"] if role is Role.PEER else ["star", "ring", "hierarchical"]
    wanted = {(2, 1): topologies, **ABILITIES, **(narrower or {})}
    found = {row.place: patterns.read(row.kind, wanted.get(row.place, patterns.ANY)) for row in ROWS}
    return Capabilities(node, role, found)


def known_rule(name: str, parameters: Mapping[str, Any]) -> object:
    """The algorithm of that name; UserError with the closest one if there is none."""
    return registry.make_algorithm(name, _lists(parameters))


def _lists(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}


def terms_of(spec: Spec, servers: Sequence[int] = (SERVER,), **rows_: Any) -> Terms:
    """The rows of a run: star, one local step, replace, float32 as a difference; `rows_` by name are others."""
    setting = settings_of(spec)[0]
    content = rows.Content.WEIGHTS
    if any("updates" in shapes for shapes in spec.algorithm.reply_shapes(setting).values()):
        content = rows.Content.PER_OBJECTIVE_DIFFERENCES
    model = initial_model(setting)
    found: dict[str, Any] = {
        "topology": rows.Star(),
        "servers": tuple(rows.Identity(node) for node in servers),
        "trigger": rows.Steps(1),
        "waiting": rows.Pause(),
        "integration": rows.Replace(),
        "format": rows.Format(content, "float32-delta", objectives=len(setting.objectives)),
        "model": model,
        "client_failures": CLIENT_FAILURES,
        "aggregation": _aggregation(spec),
        "collection": rows.Either(),
        "global_model": model,
        "server_failures": replace(SERVER_FAILURES, succession=tuple(servers[1:])),
    }
    return Terms(**{**found, **rows_})


def initial_model(setting: Setting) -> rows.Reference:
    """The model that all begin with, by the digest of its numbers and that of its manifest."""
    initial = arrays_of({"model": setting.initial.float()})
    return rows.Reference(payload.digest(initial), Manifest.of(initial).digest)


def beginning_as(spec: Spec) -> dict[tuple[int, int], Any]:
    """For `capabilities`: a client agrees to no other initial model than the one that its own spec has."""
    model = initial_model(settings_of(spec)[0])
    own = {"reference": {"digest": model.digest.hex(), "manifest": model.manifest.hex()}}
    return {(2, 7): own, (3, 3): own}


def _aggregation(spec: Spec) -> rows.Aggregation:
    """The rule with all its parameters; one that does not wait aggregates as many updates as its policy says."""
    count, policy = participant_count(spec.participation, spec.clients), spec.policy
    least = policy.replies(count) if policy.kind in ("buffered", "asynchronous") else 1
    if policy.waits and spec.algorithm.policy != "sync":
        least = spec.clients
    staleness: Any = rows.Fresh()
    if policy.staleness == "polynomial":
        staleness = rows.Polynomial(policy.exponent)
    elif policy.staleness == "hinge":
        staleness = rows.Hinge(policy.slope, policy.grace)
    parameters = to_plain(spec.algorithm.method)
    return rows.Aggregation(spec.algorithm.name, parameters, staleness=staleness, minimum=least)


def changed(terms: Terms, **rows_: Any) -> Terms:
    """With some rows, or some fields of a row (`client_failures={"retries": 1}`), others."""
    found: dict[str, Any] = {}
    for name, value in rows_.items():
        found[name] = replace(getattr(terms, name), **value) if isinstance(value, dict) else value
    return replace(terms, **found)


# -- what learns -----------------------------------------------------------------------------------------------------


def agreed_spec(spec: Spec, terms: Terms) -> Spec:
    rule = terms.aggregation
    if rule.weighting is rows.Weighting.RULE:
        return replace(spec, algorithm=registry.make_algorithm(rule.rule, _lists(rule.parameters)))
    named = {rows.Weighting.UNIFORM: "equal", rows.Weighting.SAMPLES: "size"}.get(rule.weighting, "")
    try:
        algorithm = registry.make_algorithm(rule.rule, {**_lists(rule.parameters), "weighting": named})
    except UserError:
        what = f"{rule.rule} cannot weight clients by {rule.weighting.name.lower()}"
        raise ProtocolError(Refusal.NOT_SUPPORTED, what, (3, 1)) from None
    return replace(spec, algorithm=algorithm)


def policy_of(spec: Spec, terms: Terms) -> Policy:
    """For whom a round waits, and what a late update counts."""
    rule = terms.aggregation
    own = "sync" if rule.minimum >= spec.clients else spec.algorithm.policy
    options: dict[str, Any] = {"kind": own, "staleness": "constant"}
    if own == "sync" and rule.deadline is not None:
        options |= {"kind": "deadline", "deadline": rule.deadline}
    if own == "buffered":
        options["buffer"] = min(rule.minimum, spec.clients)
    match rule.staleness:
        case rows.Polynomial(exponent):
            options |= {"staleness": "polynomial", "exponent": exponent}
        case rows.Hinge(slope, start):
            options |= {"staleness": "hinge", "slope": slope, "grace": start}
    return Policy(**options)


def client_half(spec: Spec, client: int, terms: Terms) -> ClientHalf:
    mu = terms.integration.strength if isinstance(terms.integration, rows.Proximal) else 0.0
    watches = any(isinstance(one, rows.Loss) for one in triggers.every(terms.trigger))
    return ClientHalf(agreed_spec(spec, terms), client, mu, watches)


def server_half(spec: Spec, terms: Terms) -> ServerHalf:
    agreed = agreed_spec(spec, terms)
    return ServerHalf(agreed, policy_of(agreed, terms), terms.aggregation.server_lr)


def enough_of(terms: Terms, half: ServerHalf) -> int | None:
    kind = half.policy.kind
    return None if kind in ("sync", "deadline") else terms.aggregation.minimum


# -- an agreement and a simulated run ---------------------------------------------------------------------------------


def as_agreed(spec: Spec, terms: Terms) -> Spec:
    """The run by what was agreed on; UserError names the first row that it cannot have."""
    for place, (only, why) in ONLY.items():
        if terms[place] != only:
            _refuse(terms, place, f"a mission {why}")
    model = initial_model(settings_of(spec)[0])
    for place in ((2, 7), (3, 3)):
        if isinstance(terms[place], rows.Reference) and terms[place] != model:
            _refuse(terms, place, f"the first model of this mission has the digest {model.digest.hex()}")
    how, rule = terms.format, terms.aggregation
    if not Codec.parse(how.codec).lossless and not how.error_feedback:
        _refuse(terms, (2, 6), "a mission's lossy codecs have error feedback: true")
    if how.tensors != ("*",):
        _refuse(terms, (2, 6), "a mission's replies are whole: tensors ['*']")
    if rule.server_lr != 1 or rule.most_stale is not None:
        _refuse(terms, (3, 1), "a mission has a server-lr of 1 and no most-stale")
    agreed = agreed_spec(spec, terms)
    return replace(agreed, policy=policy_of(agreed, terms), codec=how.codec)


def _refuse(terms: Terms, place: Place, why: str) -> None:
    row = BY_PLACE[place]
    text = str(row.kind.to_plain(terms[place]))
    given = text if len(text) <= 60 else f"{text[:59]}…"
    raise UserError(f"the agreement's {row.side} {row.name} is {given}; {why}")


def agreement_of(spec: Spec) -> Terms | None:
    try:
        coded = {"codec": spec.codec, "error_feedback": not Codec.parse(spec.codec).lossless}
        deadline = {"deadline": spec.policy.deadline} if spec.policy.kind == "deadline" else {}
        terms = changed(terms_of(spec), format=coded, aggregation=deadline)
        again = as_agreed(spec, terms)
    except UserError:
        return None
    count = participant_count(spec.participation, spec.clients)
    same = again.algorithm == spec.algorithm and _same(again.policy, spec.policy, count)
    return terms if same and Codec.parse(spec.server_codec).plain else None


def _same(one: Policy, other: Policy, count: int) -> bool:
    if one.kind == other.kind == "sync":
        return True
    told = [(of.kind, of.deadline, of.late, of.replies(count), of.concurrency, of.compensation) for of in (one, other)]
    return told[0] == told[1] and bool(np.array_equal(one.weights(AGES), other.weights(AGES)))
