"""Checkpoints: tensors and plain values in one safetensors file, written atomically, read only if whole.

No pickle: a checkpoint cannot run code. A digest over everything in the file finds any altered byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from fedpareto.config import limits
from fedpareto.config.errors import DAMAGE, DamagedFile, UserError, reading
from fedpareto.config.files import parse_object, write_atomically
from fedpareto.contract.algorithm import Setting, State
from fedpareto.contract.client_state import Kept
from fedpareto.contract.messages import Message

S = TypeVar("S", bound=State)

IDS = "client ids"
"""The name of the tensor beside private state that says whose it is."""
METADATA = "fedpareto"
"""Digest and values are one entry of the file's metadata: safetensors writes several in a random order."""


@dataclass
class Checkpoint:
    """A file of tensors by name and plain (JSON) values by name."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write to a temporary file first and rename it in one step: there is never half a checkpoint."""
        write_atomically(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        from safetensors.torch import save

        # Clones, because safetensors refuses views that share memory.
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        values = json.dumps(self.values, sort_keys=True)
        metadata = json.dumps({"digest": _digest(tensors, values), "values": values})
        written: bytes = save(tensors, {METADATA: metadata})
        return written

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The file's contents, or DamagedFile."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                names = _few(file.keys(), str(path))
                metadata = (file.metadata() or {}).get(METADATA)
                # Copies: Windows replaces no file that tensors are still mapped to.
                tensors = {name: file.get_tensor(name).clone() for name in names}
        except DamagedFile:
            raise
        except FileNotFoundError:
            raise DamagedFile(f"{path} is missing") from None
        except (SafetensorError, OSError, *DAMAGE) as problem:
            raise DamagedFile(f"{path} is damaged and cannot be read ({problem})") from None
        return cls._checked(tensors, metadata, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Checkpoint:
        """The contents of what `to_bytes` gave, which is called `what`; or DamagedFile."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            size = int.from_bytes(data[:8], "little")  # Safetensors: the length of a header of JSON, and the header.
            header = json.loads(data[8 : 8 + size])
            metadata = header.pop("__metadata__", {}).get(METADATA)
            _few(header, what)
            tensors = load(data)
        except DamagedFile:
            raise
        except (SafetensorError, *DAMAGE) as problem:
            raise DamagedFile(f"{what} is damaged and cannot be read ({problem})") from None
        return cls._checked(tensors, metadata, what)

    @classmethod
    def _checked(cls, tensors: dict[str, Tensor], metadata: str | None, what: str) -> Checkpoint:
        if metadata is None:
            raise DamagedFile(f"{what} was not written by fedpareto, or it is damaged")
        with reading(what):
            written = parse_object(metadata, what)
            if written["digest"] != _digest(tensors, written["values"]):
                raise DamagedFile(f"{what} was altered after it was written")
            return cls(tensors, parse_object(written["values"], what))

    # -- an algorithm's state ---------------------------------------------------------------------------------------

    def put_state(self, state: State, name: str) -> None:
        """Adds an algorithm's state; its public setting is not saved but rebuilt."""
        self.values[name] = self._pack(state, name)

    def get_state(self, like: S, name: str) -> S:
        """The saved state, with the setting of `like` (a state of the same algorithm) and on its device."""
        return cast(S, self._unpack(self.values[name], [type(like)], like, like.setting))

    def _pack(self, value: Any, path: str) -> Any:
        """A value as JSON: what is not a plain value becomes {type: content}."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Tensor):
            self.tensors[path] = value
            return {"tensor": path}
        if isinstance(value, Setting):
            return {"setting": None}
        if isinstance(value, list | tuple):
            packed = [self._pack(item, f"{path}.{i}") for i, item in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": packed}
        if isinstance(value, dict):
            pairs = enumerate(value.items())
            return {"dict": [[self._pack(key, f"{path}.{i}k"), self._pack(v, f"{path}.{i}")] for i, (key, v) in pairs]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [entry.name for entry in dataclasses.fields(value)]
            return {"fields": {name: self._pack(getattr(value, name), f"{path}.{name}") for name in names}}
        raise TypeError(f"a state holds tensors and plain values, not {type(value).__name__} ({path})")

    def _unpack(self, packed: Any, classes: Sequence[type], like: Any, setting: Setting) -> Any:
        """The inverse of _pack. `classes` are the dataclasses allowed here, `like` is such a value if known."""
        if not isinstance(packed, dict):
            return packed
        ((kind, content),) = packed.items()
        if kind == "tensor":
            return _fits(self.tensors[content], like).to(setting.initial.device)
        if kind == "setting":
            return setting if like is None else like
        if kind in ("list", "tuple"):
            items = [self._unpack(item, classes, None, setting) for item in content]
            return tuple(items) if kind == "tuple" else items
        if kind == "dict":
            return {
                self._unpack(key, classes, None, setting): self._unpack(item, classes, None, setting)
                for key, item in content
            }
        cls = _fitting(classes, content)
        hints = get_type_hints(cls)
        found = {}
        for name, item in content.items():
            own = getattr(like, name) if isinstance(like, cls) else None
            # Of a tuple, the types of its items: states of algorithms that nothing here names.
            kinds = {type(one) for one in (own if isinstance(own, tuple) else (own,))}
            found[name] = self._unpack(item, [*kinds, *_dataclasses(hints[name])], own, setting)
        return cls(**found)

    # -- other tensors ---------------------------------------------------------------------------------------------

    def put_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self.tensors |= {f"{name}/{part}": tensor for part, tensor in tensors.items()}

    def get_tensors(self, name: str) -> dict[str, Tensor]:
        place = f"{name}/"
        return {key.removeprefix(place): one for key, one in self.tensors.items() if key.startswith(place)}

    # -- the clients' private state ---------------------------------------------------------------------------------

    def put_private(self, private: Kept, name: str = "private") -> None:
        """Adds the clients' private state: for each run and lane the ids, and a stack of each part."""
        for (run, lane), shelf in private.shelves.items():
            if len(shelf.clients):
                self.tensors[f"{name}/{run}/{lane}/{IDS}"] = torch.as_tensor(shelf.clients)
                self.tensors |= {f"{name}/{run}/{lane}/{part}": tensor for part, tensor in shelf.all().items()}

    def get_private(self, device: Any, name: str = "private") -> Kept:
        found: dict[tuple[int, int], Message] = {}
        for key, tensor in self.tensors.items():
            if key.startswith(f"{name}/"):
                _, run, lane, part = key.split("/", 3)
                found.setdefault((int(run), int(lane)), {})[part] = tensor
        private = Kept()
        for place, parts in found.items():
            ids = parts.pop(IDS).numpy()
            private.shelf(*place).write(ids, {part: tensor.to(device) for part, tensor in parts.items()})
        return private


def _few(names: Collection[str], what: str) -> list[str]:
    """The names of tensors, unless there are more than anybody has."""
    if len(names) > limits.TENSORS:
        raise DamagedFile(f"{what} has {len(names):,} tensors; {limits.TENSORS:,} are read at most")
    return list(names)


def _digest(tensors: Mapping[str, Tensor], values: str) -> str:
    digest = hashlib.sha256(values.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{list(tensor.shape)}{tensor.dtype}".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _fits(tensor: Tensor, like: Any) -> Tensor:
    """The tensor, if it can be in the place of `like`: rows may be added in a run, but models keep their size."""
    if isinstance(like, Tensor) and like.numel() and like.ndim > 1:
        is_same = tensor.ndim == like.ndim and tensor.shape[-1] == like.shape[-1]
        if not is_same:
            raise ValueError(f"a tensor has the shape {list(tensor.shape)} instead of {list(like.shape)}")
        if tensor.dtype != like.dtype:
            raise ValueError(f"a tensor is of {tensor.dtype} instead of {like.dtype}")
    return tensor


def _dataclasses(hint: Any) -> Iterator[type]:
    """Yield every dataclass that an annotation names, such as Cluster in tuple[Cluster, ...] | None."""
    cls = get_origin(hint) or hint
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        yield cls
    for argument in get_args(hint):
        yield from _dataclasses(argument)


def _fitting(classes: Sequence[type], content: Mapping[str, Any]) -> type:
    """The class that has these fields; or one that has more by now, which have a default."""
    known = [cls for cls in classes if dataclasses.is_dataclass(cls)]
    for cls in known:
        if {entry.name for entry in dataclasses.fields(cls)} == content.keys():
            return cls
    for cls in known:
        fields, missing = dataclasses.fields(cls), dataclasses.MISSING
        needed = {one.name for one in fields if one.default is missing and one.default_factory is missing}
        if needed <= content.keys() <= {one.name for one in fields}:
            return cls
    raise UserError(f"the checkpoint was written by another version: nothing here has the parts {', '.join(content)}")
