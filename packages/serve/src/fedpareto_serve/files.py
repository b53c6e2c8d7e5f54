"""One file is enough to serve a model; `experiments.servable` defines its format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpareto.config.errors import DamagedFile, UserError, reading
from fedpareto.contract.model_parts import anatomy_from_json
from fedpareto.record import servable
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.servable import Card
from fedpareto_serve.models import AnyPreference, OneOfMany, Servable


def save(model: Servable, path: Path) -> None:
    if isinstance(model, AnyPreference):
        parts = {name: getattr(model, name) for name in servable.PARTS}
        servable.save_conditioned(path, model.card, model.anatomy, parts)
    else:
        assert isinstance(model, OneOfMany), "there are two kinds"
        about = model.values, model.preferences, model.chosen_by
        servable.save_solutions(path, model.card, model.clients, model.models, *about)


def load(path: Path) -> Servable:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    if not _is_safetensors(path):
        raise UserError(f"{path} is not a safetensors file; make a model's file with: fedpareto export RUN --out FILE")
    file = Checkpoint.load(path)
    if not isinstance(file.values, dict) or file.values.get("kind") not in (AnyPreference.kind, OneOfMany.kind):
        raise UserError(f"{path} holds no model to serve; make such a file with: fedpareto export RUN --out FILE")
    if file.values.get("format") != servable.FORMAT:
        raise UserError(f"{path} has format {file.values.get('format')}; this version reads {servable.FORMAT}")
    try:
        with reading(str(path)):
            return _model(file, str(path))
    except DamagedFile:
        raise
    except UserError as problem:
        raise DamagedFile(f"{path} is damaged: {problem}") from None


def _is_safetensors(path: Path) -> bool:
    """Return whether a file begins with the length of a header that begins with a brace."""
    try:
        with path.open("rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from None


def _model(file: Checkpoint, source: str) -> Servable:
    card, tensors = Card.from_json(file.values["card"], source), file.tensors
    if file.values["kind"] == AnyPreference.kind:
        anatomy = anatomy_from_json(file.values["anatomy"])
        parts = {name: tensors[name] for name in servable.PARTS}
        return AnyPreference(card, anatomy, **parts)
    preferences = tensors["preferences"].numpy() if "preferences" in tensors else None
    clients = [int(client) for client in file.values["clients"]]
    values = np.asarray(tensors["values"].numpy())
    chosen_by = np.asarray(tensors["chosen_by"].numpy()) if "chosen_by" in tensors else None
    return OneOfMany(card, clients, tensors["models"], values, preferences, chosen_by)
