"""What a run leaves behind so that its models can be used without the data, the problem or a download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpareto.core.engine import Engine
from fedpareto.core.keepsake import anatomy_to_json, lattice
from fedpareto.core.messages import Message
from fedpareto.experiments.checkpoint import Checkpoint
from fedpareto.experiments.spec import Spec
from fedpareto.experiments.store import FORMAT, RunFolder

CONDITIONED_FILE, INPUTS_FILE = "conditioned.safetensors", "inputs.json"


def save_for_serving(folder: RunFolder, spec: Spec, engine: Engine, solutions: Sequence[Mapping[int, Message]]) -> None:
    """Writes what clients keep to make models for any preference, and how rows become the model's inputs.

    Where clients are elsewhere, neither is known here.
    """
    _save_keepsakes(folder, spec, engine, solutions)
    if engine.remote:
        return
    schemas = {str(seed): spec.problem.input_schema(spec.clients, seed) for seed in spec.seeds}
    known = {seed: schema.to_json() for seed, schema in schemas.items() if schema is not None}
    if known:
        folder.write_json(INPUTS_FILE, {"format": FORMAT, "inputs": known})


def _save_keepsakes(folder: RunFolder, spec: Spec, engine: Engine, solutions: Sequence[Mapping[int, Message]]) -> None:
    anatomy = spec.algorithm.anatomy(spec.problem.layout, len(spec.problem.objectives))
    keepsakes = [engine.keepsakes(run, one) for run, one in enumerate(solutions)]
    if anatomy is None or not any(keepsakes):
        return
    tensors = {
        f"seed{seed}/client{client}/{name}": tensor
        for seed, of_seed in zip(spec.seeds, keepsakes, strict=True)
        for client, keepsake in of_seed.items()
        for name, tensor in keepsake.items()
    }
    tensors["lattice"] = lattice(anatomy.objectives)
    Checkpoint(tensors, {"anatomy": anatomy_to_json(anatomy)}).save(folder.path / CONDITIONED_FILE)
