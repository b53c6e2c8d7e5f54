"""The final files of a run: its solutions and models, and what it takes to use these without the data or the problem.

On one machine the run's folder has it; on Flower each node keeps its own, and the server gets nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedpareto.contract.engine import Engine
from fedpareto.contract.messages import Parcels
from fedpareto.contract.model_parts import anatomy_to_json, densely, lattice
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.servable import FORMAT, network_of_problem
from fedpareto.record.store import RunFolder
from fedpareto.runs.result import Result
from fedpareto.spec.spec import Spec

if TYPE_CHECKING:
    pass

CONDITIONED_FILE, INPUTS_FILE = "conditioned.safetensors", "inputs.json"


def save_for_serving(folder: RunFolder, spec: Spec, engine: Engine, solutions: Sequence[Parcels]) -> None:
    """Writes what clients keep to make models for any preference, and how rows become the model's inputs.

    Where clients are remote, neither is known here.
    """
    _save_model_parts(folder, spec, engine, solutions)
    if engine.remote:
        return
    schemas = {str(seed): spec.problem.input_schema(spec.clients, seed) for seed in spec.seeds}
    known = {seed: schema.to_json() for seed, schema in schemas.items() if schema is not None}
    if known:
        outputs = [output.to_json() for output in spec.problem.outputs()]
        network = network_of_problem(spec.problem)
        folder.write_json(INPUTS_FILE, {"format": FORMAT, "inputs": known, "outputs": outputs, "network": network})


def save_result(folder: RunFolder, result: Result, keep_models: bool) -> None:
    """Writes the solutions, and unless they are not to be kept, the models: of a sparse network as dense ones."""
    spec, layout = result.spec, result.spec.problem.layout
    models = Checkpoint(
        {
            f"seed{seed}/client{client}": layout.to_dense(model) if model.shape[-1] == layout.size else model
            for seed, of_seed in zip(spec.seeds, result.models, strict=True)
            for client, model in of_seed.items()
        },
        {"layout": layout.dense.to_json(), "problem": spec.to_mapping()["problem"]},
    )
    if keep_models:
        models.save(folder.path / "models.safetensors")
    folder.write_json(
        "solutions.json",
        [
            {
                "seed": seed,
                "round": kept,
                "clients": list(solutions.clients),
                "preferences": None if solutions.preferences is None else solutions.preferences.tolist(),
                "objectives": {split: points.tolist() for split, points in solutions.values.items()},
                "indicators": solutions.indicators(),
            }
            for seed, kept, solutions in zip(spec.seeds, result.kept, result.solutions, strict=True)
        ],
    )


def _save_model_parts(folder: RunFolder, spec: Spec, engine: Engine, solutions: Sequence[Parcels]) -> None:
    anatomy = spec.algorithm.anatomy(spec.problem.layout, len(spec.problem.objectives))
    parts = [engine.model_parts(run, one) for run, one in enumerate(solutions)]
    if anatomy is None or not any(parts):
        return
    tensors = {
        f"seed{seed}/client{client}/{name}": tensor
        for seed, of_seed in zip(spec.seeds, parts, strict=True)
        for client, of_client in of_seed.items()
        for name, tensor in densely(anatomy, of_client).items()
    }
    tensors["lattice"] = lattice(anatomy.objectives)
    Checkpoint(tensors, {"anatomy": anatomy_to_json(anatomy.dense)}).save(folder.path / CONDITIONED_FILE)
