"""A deployment: which nodes are there, what became of their replies, and what the server warned of."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted
from fedpareto_page.grid import DOWN, NO_REPLY, NOT_ASKED, REFUSED, UP, states
from fedpareto_page.other_runs import Other
from fedpareto_page.run import Run

STATES = {"never connected": "never"}
"""What a node is called here, where that is another word than the server's."""
MOST_WARNINGS = 50


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
    """By name `[n]`, over all rounds so far: replies, rounds without one, refusals, and bytes both ways."""
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
