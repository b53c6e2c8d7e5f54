"""Entries of the shelf besides runs: matrices, sweeps, tuning studies, missions and deployments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError, reading
from fedpareto.config.files import Lock, quoted, read_object
from fedpareto.record.growing_file import Kept
from fedpareto_page.clients import DOWN, NO_REPLY, NOT_ASKED, REFUSED, UP, states
from fedpareto_page.entries import finite
from fedpareto_page.run import Run

OTHERS = {
    "matrix.json": "matrix",
    "sweep.json": "sweep",
    "tuning.json": "tuning",
    "mission.json": "mission",
    "deployment.json": "deployment",
}
"""Kinds of folders by the file that tells."""
FILES = {kind: file for file, kind in OTHERS.items()}
AXES = {"algorithm": "algorithms", "attack": "attacks", "defence": "defences"}
CALM = "none"
"""The attack that is none."""
Cell = tuple[int, int, int]
"""A cell's places on the axes: algorithm, attack, defence."""
STATES = {"never connected": "never"}
"""Names of states on the page, where they differ from the server's."""
MOST_WARNINGS = 50


class Other:
    """An entry of the shelf, followed by the file that grows."""

    def __init__(self, id: str, kind: str, name: str, folder: Path) -> None:
        self.id, self.kind, self.name, self.folder = id, kind, name, folder
        self.file = folder / FILES[kind]
        self.content = Kept(self.file, read_object)
        self._server = Kept(folder / "server" / "status.json", lambda path: read_object(path) if path.is_file() else {})
        self._lock = Lock((folder / "server" if kind == "deployment" else folder) / ".lock")
        self.busy = False

    def look(self) -> bool:
        """Read what is new; return whether anything changed."""
        before, self.busy = self.busy, self.kind != "mission" and self._lock.is_held()
        is_new = self.content.look() | self._server.look()
        return is_new or before != self.busy

    def is_deployment_of(self, run: Path) -> bool:
        return self.kind == "deployment" and run == self.folder / "run"

    @property
    def plain(self) -> dict[str, Any]:
        look = f"fedpareto space look {quoted(self.folder)}" if self.kind == "mission" else None
        found = {"id": self.id, "kind": self.kind, "name": self.name, "command": look}
        try:
            with reading(str(self.file)):
                return found | {"status": self._status(), "error": None}
        except UserError as problem:
            return found | {"status": "damaged", "error": " ".join(str(problem).split())}

    def _status(self) -> str:
        content = self.content.value
        if self.kind == "deployment":
            state = str(self._server.value.get("state", "not started"))
            return state if self.busy or state in ("finished", "stopped", "failed", "not started") else "killed"
        if self.kind == "matrix":
            rows, columns, panels = (len(content["labels"][axis]) for axis in ("algorithm", "attack", "defence"))
            done = sum(cell["at"] is not None for cell in content["cells"])
            return self._progress(done, rows * columns * panels, "cells")
        if self.kind == "sweep":
            return self._progress(
                sum(run["status"] != "waiting" for run in content["runs"]), len(content["runs"]), "runs"
            )
        return ""

    def _progress(self, done: int, of: int, what: str) -> str:
        if done == of:
            return "finished"
        return f"{done} of {of} {what}" + (", running" if self.busy else "")


def matrix(other: Other) -> dict[str, Any]:
    """Every cell with its value, or why it has none."""
    with reading(str(other.file)):
        content = other.content.value
        labels = {axis: [str(label) for label in content["labels"][axis]] for axis in AXES}
        known: dict[Cell, Any] = {tuple(cell["at"]): cell for cell in content["cells"] if cell["at"] is not None}
        found = {at: _by_seed(cell, content) for at, cell in known.items()}
        calm = labels["attack"].index(CALM) if CALM in labels["attack"] else None
        rows, columns, panels = (range(len(labels[axis])) for axis in AXES)
        places: list[Cell] = [(row, column, panel) for panel in panels for row in rows for column in columns]
        measures = {"mean": "mean of honest clients", "worst": "worst honest client"}
        return {
            "id": other.id,
            "name": other.name,
            **{many: labels[axis] for axis, many in AXES.items()},
            "measures": measures | ({} if calm is None else {"loss": "loss against no attack"}),
            "objective": {"name": str(content["measure"]["name"]), "maximise": bool(content["measure"]["maximise"])},
            "judged": [list(map(int, clients)) for clients in content["judged"]],
            "seeds": _seeds(content["base"].get("seeds"), len(content["judged"])),
            "busy": other.busy,
            "cells": [_told(at, known.get(at), found, calm, content, other.busy) for at in places],
        }


def _seeds(value: object, count: int) -> list[int]:
    """Seeds of a spec, which names them or says how many there are."""
    is_list = isinstance(value, list) and len(value) == count
    return [int(seed) for seed in value] if isinstance(value, list) and is_list else list(range(count))


def _by_seed(cell: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Means and worst values `[seeds]` of one cell, over the clients that attack in no cell; empty without a value."""
    if cell.get("value") is None:
        return {}
    pairs = zip(cell["clients"], content["judged"], strict=True)
    judged = [np.array([of_seed[client] for client in clients], dtype=np.float64) for of_seed, clients in pairs]
    least = np.min if content["measure"]["maximise"] else np.max
    return {
        "mean": np.array([values.mean() for values in judged]),
        "worst": np.array([least(values) for values in judged]),
    }


def _told(
    at: Cell,
    cell: Mapping[str, Any] | None,
    found: Mapping[Cell, Mapping[str, np.ndarray]],
    calm: int | None,
    content: Mapping[str, Any],
    is_busy: bool,
) -> dict[str, Any]:
    state, reason = _state(cell, is_busy)
    clients = None
    if cell is not None and "clients" in cell:
        clients = [[None if value is None else finite(value) for value in of_seed] for of_seed in cell["clients"]]
    values = dict(found.get(at, {}))
    before = {} if calm is None else found.get((at[0], calm, at[2]), {})
    if values and before:
        lost = before["mean"] - values["mean"]
        values["loss"] = lost if content["measure"]["maximise"] else -lost
    return {
        **dict(zip(AXES, at, strict=True)),
        "value": {name: finite(of_seeds.mean()) for name, of_seeds in values.items()} or None,
        "deviation": {name: finite(of_seeds.std()) for name, of_seeds in values.items()} or None,
        "state": state,
        "reason": reason,
        "clients": clients,
        "run": None,
    }


def _state(cell: Mapping[str, Any] | None, is_busy: bool) -> tuple[str, str | None]:
    if cell is None:
        return "waiting", "waits for its turn" if is_busy else "not run yet: the same command goes on with it"
    if "refused" in cell:
        return "unfit", str(cell["refused"])
    if cell.get("value") is None:
        return "failed", str(cell.get("failed", "it has no value"))
    return "done", None


def federation(other: Other, run: Run | None) -> dict[str, Any]:
    """The server's own account of its nodes, and what the record of the run says of each."""
    if find_spec("fedpareto_flower") is None:
        raise UserError("the nodes of a federation need another package; try: pip install fedpareto-flower")
    from fedpareto_flower.deploy import health, status
    from fedpareto_flower.deploy.layout import Deployment

    deployment = Deployment.open(other.folder)
    told, now = status.read(deployment), time.time()
    seen = [health.seen(told, number, now) for number in range(deployment.nodes)]
    count = _counted(run, deployment.nodes)
    folder = quoted(deployment.folder)
    return {
        "id": other.id,
        "name": other.name,
        "run": None if run is None else run.id,
        "status": told.state,
        "busy": other.busy,
        "round": told.round,
        "rounds": told.rounds,
        "quorum": told.needed,
        "nodes": [
            {
                "client": number,
                "name": f"node {number}",
                "state": STATES.get(one["state"], one["state"]),
                "since": told.heard.get(str(number)),
                "round": one.get("round"),
                **{name: int(of_nodes[number]) for name, of_nodes in count.items()},
            }
            for number, one in enumerate(seen)
        ],
        "warnings": [{"time": one["time"], "message": one["message"]} for one in told.warnings[-MOST_WARNINGS:]],
        "commands": {
            "status": f"fedpareto server status {folder}",
            "stop": f"fedpareto server stop {folder}" if other.busy else None,
            "resume": None if other.busy or told.state == status.FINISHED else f"fedpareto server resume {folder}",
        },
    }


def _counted(run: Run | None, nodes: int) -> dict[str, np.ndarray]:
    """Counts over all rounds so far, `[n]` each: replies, rounds without one, refusals, and bytes both ways."""
    lines = [] if run is None else [one for one in run.lines if one.columns.block(one.row, "traffic") is not None]
    found = {name: np.zeros(nodes) for name in ("replies", "missed", "refused", "bytes_up", "bytes_down")}
    for seed in {line.seed for line in lines}:
        events = [event for event in run.following.events if event.seed == seed] if run is not None else []
        state, traffic = states([line for line in lines if line.seed == seed], events, nodes)
        found["missed"] += (state == NO_REPLY).sum(axis=0)
        found["refused"] += (state == REFUSED).sum(axis=0)
        found["replies"] += (~np.isin(state, (NOT_ASKED, NO_REPLY, REFUSED))).sum(axis=0)
        found["bytes_up"] += traffic[:, UP].sum(axis=0)
        found["bytes_down"] += traffic[:, DOWN].sum(axis=0)
    return found
