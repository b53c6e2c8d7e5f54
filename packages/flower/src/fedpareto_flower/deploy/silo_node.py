"""The node itself, in the worker's process: one party's table in a federation."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.config.files import write_atomically
from fedpareto.contract.federation import Federation
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.fairness.sources import Source
from fedpareto.spec.settings import settings_of
from fedpareto_flower.deploy.layout import NodeFolder
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.node import Node
from fedpareto_flower.node_files import keep_servable

SCHEMA_SUBJECT = "the schema of the table"
"""Subject of a disagreement between server and node in the server's log, if their schemas differ."""
PROGRESS = "progress.json"
"""The file in which the worker reports its last round to the node."""
worker_log = logging.getLogger("fedpareto.flower.rounds")
"""The worker's logger, which shows the messages under fedpareto.flower."""


def problem_of(home: NodeFolder, data: Source) -> Silo:
    problem = home.spec().problem
    assert isinstance(problem, Silo), "load_spec has checked it"
    return replace(problem, schema=str(home.schema), **asdict(data))


@dataclass
class SiloNode(Node):
    """A node that also reports the schema of its table."""

    schema: str = field(default="")
    """Fingerprint of the table's schema."""

    def hello(self, question: RecordDict) -> RecordDict:
        said = wire.decode_hello(super().hello(question))
        return wire.encode_hello(replace(said, schema={**said.schema, SCHEMA_SUBJECT: self.schema}))

    def answer(self, content: RecordDict) -> RecordDict:
        """Answer as `Node` does, and log what was done, once."""
        before, began = self._last, time.perf_counter()
        answer = super().answer(content)
        if self._last is not before:
            self._note(content, answer, time.perf_counter() - began)
        return answer

    def _note(self, content: RecordDict, answer: RecordDict, seconds: float) -> None:
        """A line for each exchange: only objectives that the server receives too; nothing else about the rows."""
        envelope, results = wire.decode_envelope(content, self.limits), wire.decode_answer(answer).results
        if not envelope.jobs:
            return
        job = envelope.jobs[0]
        for failure in (failure for result in results for failure in result.failures):
            worker_log.warning("round %d: its reply was refused: %s", failure.round, failure.reason)
        what = "the run is over" if envelope.final else f"round {job.round}"
        if job.exchange and not envelope.final:
            what += f", exchange {job.exchange + 1}"
        sizes = f"{wire.size(content) / 1000:.1f} kB in, {wire.size(answer) / 1000:.1f} kB out"
        worker_log.info("%s: %.2f s; %s%s", what, seconds, self._objectives_of(results), sizes)
        if not envelope.final:
            write_atomically(self.folder / PROGRESS, json.dumps({"round": job.round}) + "\n")

    def _objectives_of(self, results: Sequence[wire.Result]) -> str:
        """Objectives before and after local training, on test rows if there are any, the mean over the seeds."""
        parts = list(self.engine.split_names)
        part = parts.index("test") if "test" in parts else len(parts) - 1
        both = [
            [float(sum(one[part, number] for one in values) / len(values)) for values in _measured(results)]
            for number in range(len(self.problem.objectives))
        ]
        if not both[0]:
            return ""
        said = [
            f"{objective.name} {' → '.join(f'{value:.4f}' for value in values)}"
            for objective, values in zip(self.problem.objectives, both, strict=True)
        ]
        return f"{', '.join(said)} on its {parts[part]} rows; "


def _measured(results: Sequence[wire.Result]) -> list[list[Tensor]]:
    """The sent and the trained model's objectives, as far as measured."""
    sent = [result.sent for result in results if result.sent is not None]
    trained = [result.trained for result in results if result.trained is not None]
    return [values for values in (sent, trained) if values]


def make_node(config: Mapping[str, Any]) -> Node:
    """The node that a configuration describes; called in the worker's process."""
    home = NodeFolder.open(Path(config["folder"]))
    spec, problem = home.spec(), problem_of(home, Source(**config["data"]))
    preference = np.array([config["preference"]])
    return SiloNode(
        federation=home.federation,
        client=home.client,
        algorithm=spec.algorithm,
        problem=problem,
        learner=spec.learner,
        federations=[Federation(seed, (home.client,), problem.data(1, seed), preference) for seed in spec.seeds],
        settings=settings_of(spec),
        folder=home.folder,
        options=spec.engine,
        faults=spec.faults,
        keep=keep_servable,
        schema=problem.table_schema.fingerprint,
        codec=Codec.parse(spec.codec),
        budget=math.inf if home.budget is None else home.budget,
    )
