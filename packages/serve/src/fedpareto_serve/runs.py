"""A finished run, a model that was exported from one, or a node's folder: where models to serve come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.config.errors import UserError, reading
from fedpareto.config.files import read_json, read_object
from fedpareto.config.parameters import build
from fedpareto.contract.model_parts import anatomy_from_json
from fedpareto.contract.names import client_of
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective
from fedpareto.contract.solutions import SolutionSet, chosen_on
from fedpareto.inputs.images_texts import inputs_from_json
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.servable import Card, node_files
from fedpareto.record.store import RunFolder
from fedpareto.runs.final_files import CONDITIONED_FILE, INPUTS_FILE
from fedpareto.tensors.layout import Layout
from fedpareto_serve import files
from fedpareto_serve.models import AnyPreference, OneOfMany, Servable


class SavedRun:
    """A finished run's folder: its solutions, and its models for any preference."""

    def __init__(self, path: Path) -> None:
        self.path, self._folder = path, RunFolder(path)
        self._folder.must_be_run()
        if not (path / "run.json").exists():
            raise UserError(f"{path} is not a run folder: it has no run.json")
        status = (self._folder.read_json("status.json") or {}).get("status")
        if status == "running" and self._folder.busy():
            raise UserError(f"{path} is still running; its models are there once it is finished")
        if status != "finished":
            raise UserError(f"{path} is not finished but {status or 'not begun'}; try: fedpareto resume {path}")
        with self._read("run.json"):
            record = self._folder.read_json("run.json") or {}
            self.algorithm, self.problem = str(record["algorithm"]), str(record["problem"])
            self.seeds = [int(seed) for seed in record["seeds"]]
            objectives = record["objectives"]
            self.objectives = tuple(build(Objective, entry, f"{path / 'run.json'}: objective") for entry in objectives)
            if not self.seeds or not self.objectives:
                raise ValueError("it has no seeds, or no objectives")
            self._layout = Layout.from_json(record["layout"])
            self._known_front = record["known_front"]
            self.names = [str(name) for name in record.get("names", [])]
            self._remote = "threads" not in record["choices"]

    def __repr__(self) -> str:
        return f"<{self.algorithm} on {self.problem}, {len(self.clients)} clients, seeds {self.seeds}: {self.path}>"

    @cached_property
    def solutions(self) -> list[SolutionSet]:
        with self._read("solutions.json"):
            records = read_json(self.path / "solutions.json")
            front = None if self._known_front is None else np.array(self._known_front)
            by_seed = {record["seed"]: record for record in records}
            return [_solution_set(by_seed[seed], self.objectives, front) for seed in self.seeds]

    @property
    def clients(self) -> list[int]:
        """The clients with a model, under the first seed."""
        return list(self.solutions[0].clients)

    def conditioned(self, client: int | str | None = None, seed: int | None = None) -> Servable:
        """`model(x, preference)` of this client: made for the preference, or the one model that the client has.

        `client` is a number, or the client's name, such as its branch.
        Without `client`, where clients have one model each: for a preference the one of all of them that fits it, see
        OneOfMany. Without `seed`, of the run's first.
        """
        seed = self.seeds[0] if seed is None else seed
        if seed not in self.seeds:
            raise UserError(f"{self.path} has no seed {seed}; it has {_listed(self.seeds)}")
        record = self._inputs(seed)
        solutions = self.solutions[self.seeds.index(seed)]
        conditioned = (self.path / CONDITIONED_FILE).exists()
        if conditioned and client is None and len(solutions.clients) > 1:
            raise UserError(f"each client has its own model; choose a client: {_listed(solutions.clients)}")
        if conditioned and client is None:
            client = solutions.clients[0]
        client = number_of(self, client)
        if client is not None and client not in solutions.clients:
            raise UserError(f"there is no client {client} in {self.path}; there are {_listed(solutions.clients)}")
        card = Card(self.algorithm, self.problem, seed, client, self.objectives, layout=self._layout, **record)
        return self._any_preference(card) if conditioned else self._one_of_many(card, solutions)

    def _any_preference(self, card: Card) -> AnyPreference:
        file = Checkpoint.load(self.path / CONDITIONED_FILE)
        with self._read(CONDITIONED_FILE):
            anatomy = anatomy_from_json(file.values["anatomy"])
            prefix = f"seed{card.seed}/client{card.client}"
            own = {name: file.tensors[f"{prefix}/{name}"] for name in ("body", "hypernetwork", "front")}
            return AnyPreference(card, anatomy, lattice=file.tensors["lattice"], **own)

    def _one_of_many(self, card: Card, solutions: SolutionSet) -> OneOfMany:
        tensors = Checkpoint.load(self.path / "models.safetensors").tensors
        with self._read("models.safetensors"):
            wanted = solutions.clients if card.client is None else [card.client]
            rows = [solutions.clients.index(client) for client in wanted]
            models = torch.stack([tensors[f"seed{card.seed}/client{client}"] for client in wanted])
        preferences = None if solutions.preferences is None else solutions.preferences[rows]
        chosen_by = solutions.values[chosen_on(list(solutions.values))][rows]
        return OneOfMany(card, wanted, models, solutions.points[rows], preferences, chosen_by)

    def _inputs(self, seed: int) -> dict[str, Any]:
        """The Card's entries on inputs, outputs and network."""
        record = self._folder.read_json(INPUTS_FILE)
        if record is None:
            raise UserError(f"{self.path} cannot be served: {self._why_no_inputs()}")
        with self._read(INPUTS_FILE):
            return {
                "inputs": inputs_from_json(record["inputs"][str(seed)], str(self.path / INPUTS_FILE)),
                "outputs": tuple(Output.from_json(output) for output in record.get("outputs", ())),
                "network": record.get("network"),
            }

    def _why_no_inputs(self) -> str:
        if self._remote:
            return "its clients ran on Flower, and their models stay with them; name a node's own folder instead"
        return (
            f"it has no {INPUTS_FILE}: it was made by an earlier version, and should be run again, or its problem "
            f"'{self.problem}' predicts nothing"
        )

    def _read(self, name: str) -> AbstractContextManager[None]:
        return reading(str(self.path / name))


class SavedModel:
    """A file that `fedpareto export` wrote: one model, and nothing else is needed."""

    def __init__(self, path: Path) -> None:
        self.path, self._model = path, files.load(path)
        self.seeds = [self._model.card.seed]
        self.clients = sorted({point.client for point in self._model.points})

    def conditioned(self, client: int | str | None = None, seed: int | None = None) -> Servable:
        """The model in the file; another client or seed than its own is refused."""
        card, client = self._model.card, number_of(self, client)
        if seed not in (None, card.seed):
            raise UserError(f"{self.path} holds a model of seed {card.seed}, not of {seed}")
        if client not in (None, card.client):
            whose = "all clients of a run" if card.client is None else f"client {card.client}"
            raise UserError(f"{self.path} holds the model of {whose}, not of client {client}")
        return self._model


class SavedNode:
    """The folder of a node on Flower: its own model, a file for each seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._of_seed = {model.seeds[0]: model for model in map(SavedModel, node_files(path))}
        self.seeds = sorted(self._of_seed)
        self.clients = self._of_seed[self.seeds[0]].clients

    def conditioned(self, client: int | str | None = None, seed: int | None = None) -> Servable:
        """The node's model, of its first seed unless another is given."""
        seed = self.seeds[0] if seed is None else seed
        if seed not in self._of_seed:
            raise UserError(f"{self.path} has no seed {seed}; it has {_listed(self.seeds)}")
        return self._of_seed[seed].conditioned(client, seed)


Source = SavedRun | SavedModel | SavedNode


def number_of(source: Source, client: int | str | None) -> int | None:
    """Number of a client that may be given by name."""
    if not isinstance(client, str):
        return client
    return client_of(client, source.names if isinstance(source, SavedRun) else (), source.clients)


def load(path: Path) -> Source:
    """A run's folder, an exported file, or what a node on Flower kept in its folder."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    if path.is_file():
        return SavedModel(path)
    if node_files(path):
        return SavedNode(path)
    if (path / "node.json").exists():
        raise UserError(f"{path} is a node's folder and has no model yet: {_progress_of_node(path)}")
    return SavedRun(path)


def _progress_of_node(path: Path) -> str:
    if not (path / "status.json").exists():
        return "it has not joined; start it with: fedpareto node up"
    try:
        with reading(str(path / "status.json")):
            status = read_object(path / "status.json")
            done, rounds = int(status["round"]), int(status["rounds"])
    except UserError:
        done, rounds = 0, 0
    see = f"see: fedpareto node status {path}"
    return f"it is at round {done} of {rounds}, and gets one at the end; {see}" if rounds else see


def _solution_set(
    record: Mapping[str, Any], objectives: tuple[Objective, ...], known_front: np.ndarray | None
) -> SolutionSet:
    clients = tuple(int(client) for client in record["clients"])
    shape = len(clients), len(objectives)
    if not record["objectives"]:
        raise ValueError("it has no objectives")
    preferences = record["preferences"]
    return SolutionSet(
        objectives=objectives,
        clients=clients,
        preferences=None if preferences is None else _matrix(preferences, shape),
        values={str(split): _matrix(points, shape) for split, points in record["objectives"].items()},
        known_front=known_front,
    )


def _matrix(rows: Any, shape: tuple[int, int]) -> np.ndarray:
    """Make numbers `[n, m]`; null, for a row or a number, is NaN."""
    found = np.array([[np.nan] * shape[1] if row is None else row for row in rows], dtype=float)
    if found.shape != shape or not len(found):
        raise ValueError(f"{shape[0]} rows of {shape[1]} numbers were expected")
    return found


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
