"""A run's figures for MLflow: an experiment for each problem, a run for each seed."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text, read_object, write_atomically
from fedpareto.runs.callbacks import Ending
from fedpareto.runs.logged import About, Log

IDS_FILE = "mlflow.json"
"""File in a run's folder: by seed, the run of MLflow that it goes on with."""
MOST_FIGURES, MOST_PARAMETERS, LONGEST_PARAMETER = 1000, 100, 500
"""Limits of MLflow on one request, and on one parameter of its oldest versions."""
STATUS: Mapping[Ending, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
HABITS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # Nothing goes anywhere but to the tracking server.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # A server that is away holds a run up for seconds, not for minutes.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Settings of MLflow for this process, unless they were made already."""

NOT_IN_NAMES = re.compile(r"[^/\w.\- ]")
"""Characters that MLflow's oldest versions refuse in the name of a figure."""

T = TypeVar("T")


class MLflow(Log):
    """Runs at the tracking server `WHERE`, or without one where MLflow's own settings say."""

    def __init__(self, about: About, where: str = "") -> None:
        super().__init__(about, where)
        if find_spec("mlflow") is None:
            raise UserError("logging to MLflow needs other packages; try: pip install 'fedpareto[mlflow]'")
        for name, value in HABITS.items():
            os.environ.setdefault(name, value)
        self._ids: dict[int, str] = {}
        self._after: dict[int, int] = {}
        self._waiting: dict[int, list[Any]] = {}

    def begin(self) -> None:
        """Goes on with the runs that the folder names, if this server has them; else makes new ones."""
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # It tells of every table that it makes.
        about, self._client = self.about, MlflowClient(tracking_uri=self.where or None)
        known = _kept_ids(about.folder)
        for seed in about.seeds:
            run = self._found(known.get(seed)) or self._made(seed)
            self._ids[seed], self._waiting[seed] = run.info.run_id, []
            self._after[seed] = int(run.data.metrics.get("round", -1))
        if about.folder is not None:
            write_atomically(about.folder / IDS_FILE, json_text({str(seed): one for seed, one in self._ids.items()}))

    def _found(self, run_id: str | None) -> Any:
        """A run of this server that is told more."""
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None
        try:
            self._client.update_run(run_id, status="RUNNING")
            return self._client.get_run(run_id)
        except MlflowException as problem:
            if problem.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    def _made(self, seed: int) -> Any:
        """A new run with the spec as its parameters."""
        from mlflow.entities import Param

        about, experiment = self.about, self._client.get_experiment_by_name(self.about.problem)
        number = experiment.experiment_id if experiment else self._client.create_experiment(about.problem)
        name = about.name if len(about.seeds) == 1 else f"{about.name}, seed {seed}"
        run = self._client.create_run(number, run_name=name, tags={"fedpareto.run": about.name})
        values = {**about.parameters, "seed": seed}
        parameters = [Param(key, str(value)[:LONGEST_PARAMETER]) for key, value in values.items() if str(value)]
        for some in _portions(parameters, MOST_PARAMETERS):
            self._client.log_batch(run.info.run_id, params=some)
        return run

    def figures(self, seed: int, round: int, at: float, values: Mapping[str, float]) -> None:
        """Log the figures of a round that MLflow does not have yet; the step is the round."""
        if round > self._after[seed]:
            self._wait(seed, round, at, {**values, "round": float(round)})

    def final(self, seed: int, round: int, values: Mapping[str, float]) -> None:
        self._wait(seed, round, time.time(), {f"final/{name}": value for name, value in values.items()})

    def _wait(self, seed: int, round: int, at: float, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        named = {NOT_IN_NAMES.sub(" ", name): value for name, value in values.items()}
        self._waiting[seed] += [Metric(name, value, int(1000 * at), round) for name, value in named.items()]

    def flush(self) -> None:
        """Sends what waits."""
        for seed, waiting in self._waiting.items():
            for some in _portions(waiting, MOST_FIGURES):
                self._client.log_batch(self._ids[seed], metrics=some)
            waiting.clear()

    def end(self, how: Ending) -> None:
        """Closes the runs."""
        self.flush()
        for run_id in self._ids.values():
            self._client.set_terminated(run_id, STATUS[how])


def _kept_ids(folder: Path | None) -> dict[int, str]:
    if folder is None or not (folder / IDS_FILE).exists():
        return {}
    return {int(seed): str(run_id) for seed, run_id in read_object(folder / IDS_FILE).items()}


def _portions(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), most):
        yield values[start : start + most]
