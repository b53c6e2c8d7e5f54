"""Health: for people, for monitoring (JSON), and for health checks (the exit code)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpareto_flower.deploy.layout import Deployment, NodeFolder
from fedpareto_flower.deploy.logs import moment
from fedpareto_flower.deploy.status import FINISHED, STARTING, WAITING, NodeStatus, ServerStatus, Status, place_of, read

WELL, NOT_RUNNING, MISSING = 0, 3, 4
"""Exit codes: running or finished; not running though the run is unfinished; others are missing."""
CONNECTED = 45.0
"""Seconds since its last request within which a node counts as connected; it polls every 3, and every 30 in long
tasks.
"""
SILENT = 60.0
"""Seconds after which a process that writes its status every second counts as stuck."""
SLOW_START = 600.0
"""Seconds of silence while a process starts: a busy machine takes long to load torch and Flower, and nothing is written
meanwhile.
"""
SHOWN = 10
"""Warnings shown to people; JSON has all that are kept."""


@dataclass(frozen=True)
class Health:
    """The health of a server or a node, from the files in its folder."""

    code: int
    reason: str
    facts: Mapping[str, Any]
    """For programs."""
    lines: Sequence[str]
    """For people."""

    def text(self, as_json: bool) -> str:
        return json.dumps(self.facts, indent=1, ensure_ascii=False) if as_json else "\n".join(self.lines)

    def exit_code(self, alive: bool) -> int:
        """Exit code; with `alive`, missing others do not count: restarting this process would not bring them back."""
        return WELL if alive and self.code == MISSING else self.code


def of_server(deployment: Deployment) -> Health:
    status, now = read(deployment), time.time()
    nodes = [seen(status, number, now) for number in range(status.nodes)]
    code, reason = _judge_server(status, nodes, now)
    ends = {} if deployment.insecure else _ends(deployment.authority, deployment.server / "server.pem")
    about = {"federation": deployment.name, "address": f"{deployment.host}:{deployment.port}"}
    facts = about | _facts(code, reason, status) | {"needed": status.needed, "nodes": nodes, "certificates": ends}
    lines = _lines(reason, status)
    lines[2:2] = [f"node {node['node']}: {_in_words(node)}" for node in nodes]
    return Health(code, reason, facts, [*lines, *_about_certificates(ends), *_last_warnings(status)])


def of_node(home: NodeFolder) -> Health:
    status, now = NodeStatus.load(home.folder), time.time()
    code, reason = _judge_node(status, home.server, now)
    ends = {} if home.insecure else _ends(home.authority)
    if status.certificate_ends:
        ends["of the server"] = _end(status.certificate_ends)
    about = {"federation": home.federation, "node": home.client, "server": home.server}
    model = home.folder / "model.safetensors"
    facts = about | _facts(code, reason, status) | {"answered": _moment_or_none(status.answered), "certificates": ends}
    facts["model"] = str(model) if model.exists() else None
    lines = _lines(reason, status)
    answered = f"answered {_ago(now - status.answered)} ago" if status.answered else "has not answered yet"
    lines.append(f"server: {home.server}, {answered}")
    return Health(code, reason, facts, [*lines, *_about_certificates(ends), *_last_warnings(status)])


# -- the verdict ---------------------------------------------------------------------------------------------------


def _judge_server(status: ServerStatus, nodes: Sequence[Mapping[str, Any]], now: float) -> tuple[int, str]:
    if (ended := _judge_process(status, "server", "fedpareto server resume", now)) is not None:
        return ended
    absent = [node["node"] for node in nodes if node["state"] != "connected"]
    there = len(nodes) - len(absent)
    who = f"node {', '.join(map(str, absent))}"
    if status.state in (STARTING, WAITING) and absent:
        return MISSING, f"{'starting, then ' if status.state == STARTING else ''}waiting for {who}"
    if there < status.needed:
        return (
            MISSING,
            f"{there} of {len(nodes)} nodes are connected, and a round needs {status.needed}; missing: {who}",
        )
    return WELL, f"running, {there} of {len(nodes)} nodes are connected" + (f"; missing: {who}" if absent else "")


def _judge_node(status: NodeStatus, server: str, now: float) -> tuple[int, str]:
    if (ended := _judge_process(status, "node", "fedpareto node up", now)) is not None:
        return ended
    if now - status.answered > CONNECTED:
        return MISSING, f"the server at {server} does not answer"
    return WELL, "running, the server answers"


def _judge_process(status: Status, what: str, start: str, now: float) -> tuple[int, str] | None:
    """The verdict without looking at the others; None if it depends on them."""
    if status.state == FINISHED:
        return WELL, "the run is finished"
    if not status.process:
        return NOT_RUNNING, f"no {what} is running and the run is not finished; go on with: {start}"
    if now - status.written > (SLOW_START if status.state == STARTING else SILENT):
        return NOT_RUNNING, f"the {what} ({place_of(status)}) has been silent for {_ago(now - status.written)}"
    return None


def seen(status: ServerStatus, number: int, now: float) -> dict[str, Any]:
    last = status.heard.get(str(number))
    state = "never connected" if last is None else "away"
    if last is not None and status.process and now - last < CONNECTED:
        state = "connected"
    if number in status.told:
        state = FINISHED
    found = {"node": number, "state": state, "heard": _moment_or_none(last)}
    if str(number) in status.at_work and status.process:
        round_, since = status.at_work[str(number)]
        found |= {"round": int(round_), "since": moment(since)}
    return found


# -- in words ------------------------------------------------------------------------------------------------------


def _facts(code: int, reason: str, status: Status) -> dict[str, Any]:
    refusals = [warning for warning in status.warnings if "refused" in warning["message"]]
    return {
        "code": code,
        "health": reason,
        "state": status.state,
        "round": status.round,
        "rounds": status.rounds,
        "process": status.process or None,
        "machine": status.machine.partition(" ")[0] or None,
        "since": _moment_or_none(status.since),
        "versions": status.versions,
        "refusals": refusals,
        "warnings": [warning for warning in status.warnings if warning not in refusals],
    }


def _lines(reason: str, status: Status) -> list[str]:
    found = [f"health: {reason}", f"state:  {status.state}"]
    if status.rounds:  # Unknown until a process has run.
        found[1] += f", round {status.round} of {status.rounds}"
    if status.process:
        what = ", ".join(f"{name} {number}" for name, number in status.versions.items())
        found.append(f"{place_of(status)}: {what}")
    return found


def _in_words(node: Mapping[str, Any]) -> str:
    said = f"away, last heard at {node['heard']}" if node["state"] == "away" else str(node["state"])
    return said + (f"; at work on round {node['round']} since {node['since']}" if "since" in node else "")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _moment_or_none(seconds: float | None) -> str | None:
    return moment(seconds) if seconds else None


def _last_warnings(status: Status) -> list[str]:
    if not status.warnings:
        return []
    return ["last warnings:", *(f"  {one['time']} {one['message']}" for one in status.warnings[-SHOWN:])]


# -- certificates --------------------------------------------------------------------------------------------------


def _ends(*paths: Path) -> dict[str, dict[str, Any]]:
    from fedpareto_flower.deploy import certificates

    return {path.name: _end(certificates.end_of(path)) for path in paths}


def _end(seconds: float) -> dict[str, Any]:
    from fedpareto_flower.deploy import certificates

    left = certificates.days_until(seconds)
    return {"expires": moment(seconds), "days": round(left, 1), "soon": left < certificates.SOON}


def _about_certificates(ends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"certificate {name}: {'WARNING, ' if end['soon'] else ''}"
        + (
            f"valid until {end['expires']}, {end['days']:.0f} days"
            if end["days"] > 0
            else f"expired at {end['expires']}"
        )
        for name, end in ends.items()
    ]
