"""Rules for what stays the same when a run goes on, and what is noted when something did not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import write_atomically
from fedpareto.config.parameters import as_recorded
from fedpareto.record import columns
from fedpareto.record.store import RunFolder, versions
from fedpareto.spec.spec import Spec

CHANGEABLE = ("quorum", "faults")
"""Fields of its spec that a resumed run may change: whether it continues, not what an undisturbed round computes."""
MOVABLE = ("address", "workers")
"""Parameters of an engine that may be others: where clients are, which is not what they compute."""
APPENDED = {"metrics": "metrics.jsonl", "events": "events.jsonl", "columns": columns.FILE, "mission": "mission.jsonl"}
"""The files that only grow, by the name under which a checkpoint has their length."""


def settled(folder: RunFolder) -> dict[str, int]:
    """The lengths of the files that only grow, all of it being on the disk: a checkpoint notes them."""
    return {name: folder.settle(file) for name, file in APPENDED.items()}


def cut(folder: RunFolder, lengths: Mapping[str, Any]) -> None:
    """Drops what was appended after a checkpoint with these lengths; without a checkpoint, everything."""
    for name, file in APPENDED.items():
        folder.cut(file, lengths[name] if lengths else 0)


def must_be_same(before: Mapping[str, Any], spec: Spec, folder: RunFolder) -> None:
    """Raises UserError if a spec is not that of a checkpoint."""
    if isinstance(problem := before.get("problem"), dict):
        before = {**before, "problem": as_recorded(spec.problem, problem)}
    difference = _difference(before, fixed(spec))
    if difference:
        raise UserError(f"{folder.spec_file} was changed during the run: {difference}; a run keeps its spec")


def chosen(record: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """Choices that the engine measured when the run began."""
    choices = record.get("choices")
    if not isinstance(choices, dict):
        raise DamagedFile(f"{folder.path / 'run.json'} is damaged: it has no 'choices'")
    return choices


def note_changes(folder: RunFolder, done: int, before: Spec, now: Spec) -> None:
    """Updates spec.yaml and run.json when a run is resumed with another quorum or other packages."""
    record = folder.read_json("run.json") or {}
    old, new = before.to_mapping(), now.to_mapping()
    changes = {key: [old[key], new[key]] for key in (*CHANGEABLE, "engine") if old[key] != new[key]}
    if record.get("versions") != versions():
        changes["versions"] = [record.get("versions"), versions()]
    if not changes:
        return
    record["changes"] = [*record.get("changes", []), {"round": done, **changes}]
    folder.write_json("run.json", record | {"versions": versions()})
    write_atomically(folder.spec_file, now.to_yaml())


def fixed(spec: Spec) -> Any:
    """The parts of a spec that may not change during a run, as JSON values."""
    kept = {key: value for key, value in spec.to_mapping().items() if key not in CHANGEABLE}
    kept["engine"] = {key: value for key, value in kept["engine"].items() if key not in MOVABLE}
    return json.loads(json.dumps(kept))


def _difference(before: Any, now: Any, path: str = "") -> str:
    """The first value that differs, in words; empty if none does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            found = _difference(before.get(key), now.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return ""
    return "" if before == now else f"{path} is {now!r}, it was {before!r}"
