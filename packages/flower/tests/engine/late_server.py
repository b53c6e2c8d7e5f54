"""A server with five nodes of its own, two of them slow and one that leaves and returns; a test kills it with all.

    python late_server.py FOLDER DRAFT

A second start goes on where the first was killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from factory import make
from real_federation import PATIENT, nodes_of, server_of

from fedpareto.record.store import RunFolder
from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto_flower.engine.launch import LocalFederation
from fedpareto_flower.engine.node import Node
from waiting import until

SLOW, LATE = (1, 3), 3
"""The clients that are slow, and how many rounds they let pass over each task."""
LEAVES, GONE, BACK = 4, 2, 4
"""The client that leaves, after how many rounds, and after how many it is back."""
ARRIVALS = "arrivals.jsonl"


class SlowNode(Node):
    """Answers when others have filled some rounds, or the run has no more: however fast the machine is, it is late."""

    arrivals: Path
    rounds: int

    def answer(self, content):
        wanted = min(self._noted() + LATE, self.rounds)
        answer = super().answer(content)
        until(lambda: self._noted() >= wanted)
        return answer

    def _noted(self):
        """Rounds that are over."""
        lines = self.arrivals.read_text().splitlines() if self.arrivals.exists() else []
        return json.loads(lines[-1])[0] + 1 if lines else 0


def make_some_slow(config):
    node = make(config)
    if node.client in SLOW:
        node.__class__ = SlowNode
        node.arrivals, node.rounds = Path(config["folder"]) / ARRIVALS, json.loads(config["draft"])["rounds"]
    return node


def main(folder: Path, draft: dict) -> None:
    nodes, spec = _nodes(draft, folder), Draft(draft).finish()
    federation = LocalFederation(folder / f"flower{os.getpid()}", nodes, workers=len(nodes))
    with federation.grid() as grid:
        engine = server_of(spec, grid, PATIENT)
        begun = (folder / "run").exists()
        with RunFolder.open(folder / "run") if begun else RunFolder.create(folder / "run", spec) as run:
            experiment = Experiment(spec, engine, run)
            experiment.restore(run)
            _watch(experiment, folder)

            def on_round(now):
                if now.round == GONE:
                    federation.processes.stop(f"supernode{LEAVES}", f"worker{LEAVES}")
                elif now.round == BACK and f"worker{LEAVES}" not in federation.processes.running:
                    federation.start_supernode(LEAVES)
                    federation.start_worker(LEAVES)

            experiment.run(on_round)


def _nodes(draft, folder):
    return [node | {"fedpareto": "late_server:make_some_slow"} for node in nodes_of(draft, folder)]


def _watch(experiment, folder):
    """Writes down whose replies each round has, and how late they are; a killed round may be there twice."""
    exchange = experiment.dispatch.exchange

    def noted(states, *given):
        (handed,) = exchange(states, *given)
        clients, late = handed.replies.clients.tolist(), handed.staleness.tolist()
        with (folder / ARRIVALS).open("a") as file:
            file.write(json.dumps([states[0].round, clients, late]) + "\n")
        return [handed]

    experiment.dispatch.exchange = noted


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
