"""An agreement and a simulated run: the run by the rule, the policy and the codec that were agreed on, and what the
parties of a run agree on. Nothing runs otherwise than agreed: what a simulation does not have is refused by its row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedpareto.clock.policy import Policy
from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import participant_count
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto_space.session.agreement import agreed_spec, changed, initial_model, policy_of, terms_of
from fedpareto_space.wire import rows
from fedpareto_space.wire.refusals import Place
from fedpareto_space.wire.terms import BY_PLACE, Terms

ONLY: dict[Place, tuple[Any, str]] = {
    (2, 1): (rows.Star(), "is simulated with the topology star"),
    (2, 3): (rows.Steps(1), "trains once for each task: {steps: 1}"),
    (2, 4): (rows.Pause(), "has satellites that wait for the next task: pause"),
    (2, 5): (rows.Replace(), "begins each task from what the server sent: replace"),
}
"""Rows that a simulation has in one way."""
AGES = np.array([0, 1, 2, 5, 10, 20, 50])
"""Rounds at which two policies are compared in what a late reply counts."""


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
    """What the parties of a run agree on; None where no agreement can say it."""
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
    """Whether two policies close rounds alike and weigh late replies alike."""
    if one.kind == other.kind == "sync":
        return True
    told = [(of.kind, of.deadline, of.late, of.replies(count), of.concurrency, of.compensation) for of in (one, other)]
    return told[0] == told[1] and bool(np.array_equal(one.weights(AGES), other.weights(AGES)))
