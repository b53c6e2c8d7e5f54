"""One file is enough to serve a model: tensors, layout, objectives and how rows become inputs. No pickle."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.core.inputs import InputSchema
from fedpareto.core.keepsake import anatomy_from_json, anatomy_to_json, layout_to_json
from fedpareto.core.layout import Layout
from fedpareto.core.problem import Objective
from fedpareto.errors import DamagedFile, UserError
from fedpareto.experiments.checkpoint import Checkpoint
from fedpareto.serving.models import AnyPreference, Card, OneOfMany, Servable

FORMAT = 1


def save(model: Servable, path: Path) -> None:
    """Writes a model to a .safetensors file."""
    values = {"format": FORMAT, "kind": model.kind, "card": card_to_json(model.card)}
    if isinstance(model, AnyPreference):
        tensors = {name: getattr(model, name) for name in ("body", "hypernetwork", "lattice", "front")}
        values["anatomy"] = anatomy_to_json(model.anatomy)
    else:
        assert isinstance(model, OneOfMany), "there are two kinds"
        tensors = {"models": model.models, "values": torch.as_tensor(model.values)}
        if model.preferences is not None:
            tensors["preferences"] = torch.as_tensor(model.preferences)
        values["clients"] = model.clients
    Checkpoint(tensors, values).save(path)


def load(path: Path) -> Servable:
    """A model from its file."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    file = Checkpoint.load(path)
    if not isinstance(file.values, dict) or file.values.get("kind") not in (AnyPreference.kind, OneOfMany.kind):
        raise UserError(f"{path} holds no model to serve; make such a file with: fedpareto export RUN --out FILE")
    if file.values.get("format") != FORMAT:
        raise UserError(f"{path} has format {file.values.get('format')}; this version reads {FORMAT}")
    try:
        return _model(file, str(path))
    except UserError as problem:
        raise DamagedFile(f"{path} is damaged: {problem}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DamagedFile(f"{path} is damaged ({type(problem).__name__}: {problem})") from None


def _model(file: Checkpoint, source: str) -> Servable:
    card, tensors = card_from_json(file.values["card"], source), file.tensors
    if file.values["kind"] == AnyPreference.kind:
        anatomy = anatomy_from_json(file.values["anatomy"])
        parts = {name: tensors[name] for name in ("body", "hypernetwork", "lattice", "front")}
        return AnyPreference(card, anatomy, **parts)
    preferences = tensors["preferences"].numpy() if "preferences" in tensors else None
    clients = [int(client) for client in file.values["clients"]]
    return OneOfMany(card, clients, tensors["models"], np.asarray(tensors["values"].numpy()), preferences)


def card_to_json(card: Card) -> dict[str, Any]:
    """As plain values."""
    return {
        "algorithm": card.algorithm,
        "problem": card.problem,
        "seed": card.seed,
        "client": card.client,
        "objectives": [asdict(objective) for objective in card.objectives],
        "inputs": card.inputs.to_json(),
        "layout": layout_to_json(card.layout),
    }


def card_from_json(plain: dict[str, Any], source: str) -> Card:
    """The inverse of `card_to_json`."""
    return Card(
        algorithm=str(plain["algorithm"]),
        problem=str(plain["problem"]),
        seed=int(plain["seed"]),
        client=None if plain["client"] is None else int(plain["client"]),
        objectives=tuple(Objective(**objective) for objective in plain["objectives"]),
        inputs=InputSchema.from_json(plain["inputs"], source),
        layout=Layout.of(dict(plain["layout"])),
    )
