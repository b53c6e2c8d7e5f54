"""Runs side by side: the tables of the report, and in what their specs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpareto.config.errors import UserError
from fedpareto.record.run_record import Record
from fedpareto.report.across import across_clients
from fedpareto.report.by_device import by_device
from fedpareto.report.comparison import comparison
from fedpareto.report.likeness import comparable
from fedpareto.report.table import Table

MISSING = object()


def compare(records: Mapping[str, Record], specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By id: runs that have rounds, and the specs of all that were asked for."""
    different = differences(specs)
    try:
        ids = {one.label: id for id, one in zip(records, comparable(list(records.values())), strict=True)}
    except UserError as problem:
        return {"table": None, "across": [], "by_device": [], "differences": different, "refused": str(problem)}
    runs = list(records.values())
    return {
        "table": _plain(comparison(runs), ids),
        "across": [_plain(table, ids) for table in across_clients(runs)],
        "by_device": [_plain(table, ids) for table in by_device(runs)],
        "differences": different,
        "refused": None,
    }


def _plain(table: Table, ids: Mapping[str, str]) -> dict[str, Any]:
    """With the id of each row's run; the row of a reference has none."""
    found = table.to_plain()
    for row in found["rows"]:
        label = row["label"]
        row["run"] = ids.get(label) or ids.get(label.rpartition(", ")[0])
    return found


def differences(specs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys of which not all runs have the same; null where a run has no such key."""
    keys = dict.fromkeys(key for spec in specs.values() for key in spec)
    return [
        {"key": key, "values": {id: spec.get(key) for id, spec in specs.items()}}
        for key in keys
        if _differ([spec.get(key, MISSING) for spec in specs.values()])
    ]


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values[1:])
