"""The file of a model to serve: tensors, layout, objectives and how rows become inputs. No pickle.

`fedpareto export` writes one of a run, and a node on Flower writes its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.parameters import build, to_plain
from fedpareto.contract.conditioned import Conditioned
from fedpareto.contract.model_parts import anatomy_to_json, layout_to_json
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective, Problem
from fedpareto.inputs.images_texts import Inputs, inputs_from_json
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.tensors.layout import Layout

FORMAT = 1
CONDITIONED, SOLUTIONS = "conditioned", "solutions"
"""The kinds: a model for every preference, or some to choose from."""
PARTS = ("body", "hypernetwork", "lattice", "front")
"""The tensors of a model for every preference."""


@dataclass(frozen=True)
class Card:
    """The facts about a model that every user of it should know."""

    algorithm: str
    problem: str
    seed: int
    client: int | None
    """The client whose model it is; None: any client's of the run may be chosen."""
    objectives: tuple[Objective, ...]
    inputs: Inputs
    layout: Layout
    outputs: tuple[Output, ...] = ()
    """Meaning of the model's answers; of a yes-or-no answer, which label counts as positive."""
    network: Mapping[str, Any] | None = None
    """The problem's name and parameters, if its network is made from these again; None: the layout tells all."""

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "problem": self.problem,
            "seed": self.seed,
            "client": self.client,
            "objectives": [asdict(objective) for objective in self.objectives],
            "inputs": self.inputs.to_json(),
            "layout": layout_to_json(self.layout),
            "outputs": [output.to_json() for output in self.outputs],
            "network": None if self.network is None else dict(self.network),
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any], source: str) -> Card:
        """The inverse of `to_json`; `source` is named if it is damaged."""
        return cls(
            algorithm=str(plain["algorithm"]),
            problem=str(plain["problem"]),
            seed=int(plain["seed"]),
            client=None if plain["client"] is None else int(plain["client"]),
            objectives=tuple(build(Objective, entry, f"{source}: objective") for entry in plain["objectives"]),
            inputs=inputs_from_json(plain["inputs"], source),
            layout=Layout.from_json(plain["layout"]),
            outputs=tuple(Output.from_json(output) for output in plain.get("outputs", ())),
            network=plain.get("network"),
        )


def network_of_problem(problem: Problem) -> dict[str, Any] | None:
    """Problem and parameters from which a network is made again, if it can be; other problems' parameters may name
    files.
    """
    return {"problem": problem.name, "parameters": to_plain(problem.dense())} if problem.rebuilt_by_name else None


def save_conditioned(path: Path, card: Card, anatomy: Conditioned, parts: Mapping[str, Tensor]) -> None:
    """A body, a hypernetwork, and the objectives of its models (`front`) for the preferences of `lattice`."""
    values = {"format": FORMAT, "kind": CONDITIONED, "card": card.to_json(), "anatomy": anatomy_to_json(anatomy)}
    Checkpoint({name: parts[name] for name in PARTS}, values).save(path)


def save_solutions(
    path: Path,
    card: Card,
    clients: Sequence[int],
    models: Tensor,
    objectives: np.ndarray,
    preferences: np.ndarray | None,
    chosen_by: np.ndarray | None = None,
) -> None:
    """Clients' models `[n, d]`, their objectives `[n, m]`, and the preferences that they were made for, if known.

    `chosen_by` are the objectives by which one of several is chosen, on other rows than those that are shown.
    """
    tensors = {"models": models, "values": torch.as_tensor(objectives)}
    if chosen_by is not None:
        tensors["chosen_by"] = torch.as_tensor(np.ascontiguousarray(chosen_by))
    if preferences is not None:
        tensors["preferences"] = torch.as_tensor(preferences)
    values = {"format": FORMAT, "kind": SOLUTIONS, "card": card.to_json(), "clients": list(clients)}
    Checkpoint(tensors, values).save(path)


# -- at a node -----------------------------------------------------------------------------------------------------


def node_file(folder: Path, seed: int) -> Path:
    return folder / f"servable-seed{seed}.safetensors"


def node_files(folder: Path) -> list[Path]:
    """List all models that a node kept; none if the folder is not a node's, or the run is not over."""
    return sorted(folder.glob("servable-seed*.safetensors"))
