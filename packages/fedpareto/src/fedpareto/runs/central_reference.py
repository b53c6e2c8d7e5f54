"""A central reference: what the same learner reaches where all training rows lie in one place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.contract import registry
from fedpareto.contract.federation import Federation
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import LocalOptions
from fedpareto.record.parsing import CENTRAL_FILE
from fedpareto.record.store import RunFolder
from fedpareto.runs.loop import Experiment
from fedpareto.runs.progress import OnRound
from fedpareto.runs.result import Result
from fedpareto.runs.stopping import VALIDATION
from fedpareto.spec import backends
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Rows
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence


def central(spec: Spec, on_round: OnRound | None = None) -> Result:
    """Train, for each client's preference, a model on the training rows of all clients.

    The learner is the run's own, for as many rounds; there is no communication, and nobody attacks or fails. Models are
    tested on the same rows as those of the run.
    """
    alone = replace(
        spec,
        algorithm=registry.algorithm_class("local")(),
        engine=spec.engine if spec.engine.in_process else LocalOptions(),
        faults=Faults(),
        privacy=Privacy(),
        secure_sum=SecureSum(),
        attack=Attack(),
        defence=Defence(),
        participation=1.0,
        quorum=0.0,
        stop_after=0,
        stop_margin=0.0,
        evaluate_every=spec.rounds,
        measure_losses=False,
        measure_contribution=False,
    )
    federations = [_together(spec.federation(seed), spec.problem.name) for seed in spec.seeds]
    experiment = Experiment(alone, backends.local(alone, federations=federations), keep_models=False)
    return experiment.run(on_round)


def keep_central(folder: Path, on_round: OnRound | None = None) -> None:
    """Trains a run's central reference, unless the folder has it, and keeps its points there for reports."""
    path = folder / CENTRAL_FILE
    if path.is_file():
        return
    result = central(RunFolder(folder).spec(), on_round)
    found: list[dict[str, Any]] = [
        {"seed": seed, "points": np.asarray(one.points).tolist()}
        for seed, one in zip(result.spec.seeds, result.solutions, strict=True)
    ]
    write_atomically(path, json.dumps(found, allow_nan=False) + "\n")


def _together(federation: Federation, problem: str) -> Federation:
    """Make a federation of the same clients, each with the training and validation rows of all."""
    if "train" not in federation.splits:
        raise UserError(f"'{problem}' has no rows that could lie in one place, so there is no central reference")
    everyone = {name: _shared(federation.splits[name]) for name in ("train", VALIDATION) if name in federation.splits}
    return replace(federation, splits={**federation.splits, **everyone})


def _shared(rows: Rows) -> Rows:
    """The rows of all clients for each of them."""
    clients, total = len(rows.counts), int(rows.counts.sum())
    return Rows(rows.columns, np.zeros(clients, dtype=int), np.full(clients, total))
