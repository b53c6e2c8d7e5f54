"""Checkpoints: tensors and plain values in one safetensors file, written atomically, read only if whole.

No pickle: a checkpoint cannot run code. A digest over everything in the file finds any altered byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from fedpareto.core.algorithm import Setting, State
from fedpareto.core.messages import Message
from fedpareto.errors import DamagedFile, UserError

S = TypeVar("S", bound=State)


@dataclass
class Checkpoint:
    """What a file holds: tensors by name, plain (JSON) values by name."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """To a temporary file first, then in one step to its name: there is never half a checkpoint."""
        from safetensors.torch import save

        # Clones, because safetensors refuses views that share memory.
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        values = json.dumps(self.values, sort_keys=True)
        write_atomically(path, save(tensors, {"values": values, "digest": _digest(tensors, values)}))

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The file's contents, or DamagedFile."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        except (SafetensorError, OSError, ValueError) as problem:
            raise DamagedFile(f"{path} is damaged and cannot be read ({problem}); delete it to start again") from None
        if metadata.get("digest") != _digest(tensors, metadata.get("values", "")):
            raise DamagedFile(f"{path} was altered after it was written; delete it to start again")
        return cls(tensors, json.loads(metadata["values"]))

    def put_state(self, state: State, prefix: str) -> None:
        """Adds an algorithm's state; what everybody knows (its setting) is not saved but made anew."""
        for entry in dataclasses.fields(state):
            name, value = f"{prefix}{entry.name}", getattr(state, entry.name)
            if isinstance(value, Setting):
                continue
            if isinstance(value, Tensor):
                self.tensors[name] = value
            elif isinstance(value, State):
                self.put_state(value, f"{name}.")
            else:
                self.values[name] = _plain(value)

    def get_state(self, like: S, prefix: str) -> S:
        """The saved state, with the structure and the setting of `like`, on its device."""
        hints = get_type_hints(type(like))
        found: dict[str, Any] = {}
        for entry in dataclasses.fields(like):
            name, value = f"{prefix}{entry.name}", getattr(like, entry.name)
            if isinstance(value, Setting):
                continue
            if isinstance(value, Tensor):
                found[entry.name] = self.tensors[name].to(like.setting.initial.device)
            elif isinstance(value, State):
                found[entry.name] = self.get_state(value, f"{name}.")
            else:
                found[entry.name] = _revive(self.values[name], hints[entry.name])
        return dataclasses.replace(like, **found)

    def put_private(self, private: Mapping[tuple[int, int, int], Message]) -> None:
        """Adds the clients' private state by (run, lane, client)."""
        for (run, lane, client), state in private.items():
            for name, tensor in state.items():
                self.tensors[f"private/{run}/{lane}/{client}/{name}"] = tensor

    def get_private(self, device: Any) -> dict[tuple[int, int, int], Message]:
        """The clients' private state."""
        private: dict[tuple[int, int, int], Message] = {}
        for key, tensor in self.tensors.items():
            if key.startswith("private/"):
                _, run, lane, client, name = key.split("/", 4)
                private.setdefault((int(run), int(lane), int(client)), {})[name] = tensor.to(device)
        return private


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file so that a reader, or a crash, finds the old one or the new one and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None


def _digest(tensors: Mapping[str, Tensor], values: str) -> str:
    digest = hashlib.sha256(values.encode())
    for name in sorted(tensors):
        digest.update(f"{name}{list(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(memoryview(tensors[name].reshape(-1).numpy()).cast("B") if tensors[name].numel() else b"")
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state holds tensors and plain values, not {type(value).__name__}")


def _revive(value: Any, hint: Any) -> Any:
    """The inverse of _plain for a type annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _revive(value, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_revive(item, kind) for item, kind in zip(value, inner, strict=True))
    if origin is list:
        return [_revive(item, arguments[0]) for item in value]
    if origin is dict:
        return {arguments[0](key): _revive(item, arguments[1]) for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{name: _revive(item, hints[name]) for name, item in value.items()})
    return value
