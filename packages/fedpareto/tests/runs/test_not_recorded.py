"""What a GPU could not record is said once, in the run's record."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import ClassVar

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.engines import local
from fedpareto.tensors.replay import Recordings


@dataclass(frozen=True)
class WithAClosure(FedAvg):
    """Minimises a loss that refers to what is around it."""

    name: ClassVar[str] = "with-a-closure"

    def train(self, clients, message):
        problem, target = clients.problem, clients.preferences
        return self._reply(
            clients,
            clients.minimise(
                message["model"], problem.layout, lambda own, batch, given: (problem.losses(own, batch) * target).sum(1)
            ),
        )


def test_a_loss_that_cannot_be_recorded_is_named_in_the_runs_record(tmp_path, monkeypatch, caplog):
    # As on a GPU: what would be recorded there is treated alike here.
    monkeypatch.setattr(local, "Recordings", lambda **_: Recordings(when="always"))
    caplog.set_level(logging.WARNING)
    fedpareto.run("convex", WithAClosure(), clients=3, rounds=3, out=tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert record["not_recorded"] == {"batches": "its loss is a closure, which may refer to something else next time"}
    assert sum("not recorded as a CUDA graph" in line for line in caplog.messages) == 1
