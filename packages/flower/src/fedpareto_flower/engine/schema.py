"""Agreement between the parties of a federation, as short fingerprints that can be compared without sending it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedpareto.codecs import Codec
from fedpareto.config.parameters import to_plain
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.learner import Learner
from fedpareto.contract.secure_sum import VERSION
from fedpareto.tensors.rows import Splits

MEANING = {
    "model": "the model's layers or the objectives",
    "algorithm": "the algorithm or its parameters",
    "privacy": "the kind or the parameters of differential privacy",
    "secure_sum": "the secure sum, its parameters or its version",
    "learner": "the learner or its parameters",
    "codec": "the codec of replies",
    "setting": "the seed, the clients, the rounds or the initial model",
    "data": "the columns of the data",
}
"""Words for what differs when a fingerprint does."""


def agreement(algorithm: Algorithm[Any], learner: Learner, settings: Sequence[Setting], codec: Codec) -> dict[str, str]:
    """Fingerprints by subject of what both server and nodes know."""
    first, sums = settings[0], algorithm.channel.secure_sum
    return {
        "model": _fingerprint([first.layout.to_json(), [asdict(objective) for objective in first.objectives]]),
        "algorithm": _fingerprint(_named(algorithm)),
        "privacy": _fingerprint(to_plain(algorithm.channel.privacy)),
        "secure_sum": _fingerprint([to_plain(sums), VERSION] if sums.kind != "none" else to_plain(sums)),
        "learner": _fingerprint([type(learner).__name__, to_plain(learner)]),
        "codec": _fingerprint(str(codec)),
        "setting": _fingerprint([_setting(setting) for setting in settings]),
    }


def _named(algorithm: Algorithm[Any]) -> list[Any]:
    """The name, the parameters, and what is around it; step sizes where they are chosen, as of late."""
    named = [algorithm.name, to_plain(algorithm.method), algorithm.channel.normalisation]
    return [*named, "validated steps"] if algorithm.channel.validated else named


def columns(splits: Splits) -> dict[str, str]:
    """The names, types and shapes of the data's columns; neither values nor counts."""
    described = {
        split: {name: [str(column.dtype), list(column.shape[1:])] for name, column in sorted(rows.columns.items())}
        for split, rows in splits.items()
    }
    return {"data": _fingerprint(described)}


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Describe what two parties do not agree on; None if they agree."""
    subjects = [MEANING.get(name, name) for name in expected if found.get(name) != expected[name]]
    return " and ".join(subjects) or None


def _setting(setting: Setting) -> list[Any]:
    initial = hashlib.sha256(setting.initial.double().cpu().numpy().tobytes()).hexdigest()
    precision = str(setting.initial.dtype)
    return [setting.seed, setting.clients, setting.rounds, setting.participation, precision, initial]


def _fingerprint(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
