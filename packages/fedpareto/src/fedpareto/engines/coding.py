"""Replies as they travel: clients code what grows with the model, and the server holds what is decoded.

A tensor is coded where both ends know what it began from (see fedpareto.contract.messages.origins). All others,
and small ones, travel as they are. What a lossy codec loses is private state of the client, and part of its next reply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.codecs import Codec, CodecError, ErrorFeedback
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.messages import Message, Shapes, origins

LOST = "codec."
"""Prefix of the names of what was lost, in a client's private state."""
FEW = 16
"""Numbers of a tensor that travel as they are: nothing could be saved."""


class Travelled(NamedTuple):
    """Stack of n replies after their way to the server."""

    reply: Message
    """Replies as the server will hold them, `[n, ...]`."""
    lost: Message
    """Loss of the codec, by the names of the private state."""
    sizes: np.ndarray
    """Bytes of each, `[n]`."""
    letters: list[dict[str, bytes]]
    """The coded tensors of each, if wanted."""


@dataclass(frozen=True)
class Coding:
    """The clients' side."""

    codec: Codec
    writes: bool = False
    """Coded bytes are wanted, and not only their number."""

    def nothing_lost(self, algorithm: Algorithm[Any], setting: Setting) -> Message:
        """Loss of a client that has not replied yet, by the names of the private state."""
        if self.codec.lossless:
            return {}
        return {
            f"{step}.{name}": setting.initial.new_zeros(shape)
            for step, shapes in algorithm.reply_shapes(setting).items()
            for name, shape in shapes.items()
            if math.prod(shape) > FEW
        }

    def travelled(self, step: str, sent: Message, reply: Message, lost: Message) -> Travelled:
        """Replies to a step, from clients who were sent these messages and lost this before; `[n, ...]` all."""
        rows = len(next(iter(reply.values()))) if reply else 0
        found, lost, sizes = dict(reply), dict(lost), np.zeros(rows, dtype=np.int64)
        letters: list[dict[str, bytes]] = [{} for _ in range(rows if self.writes else 0)]
        began = origins(sent, reply)
        for name, tensor in reply.items():
            if not _is_coded(name, tensor.shape[1:], began) or tensor.dtype != torch.float32:
                sizes += tensor[:1].numel() * tensor.element_size()
                continue
            place, values, base = f"{step}.{name}", as_rows(tensor), as_rows(began[name])
            if place in lost:
                values, held, left = ErrorFeedback(self.codec).send(values, base, as_rows(lost[place]))
                found[name], lost[place] = _like(held, tensor), _like(left, tensor)
            if self.writes:
                written = [self.codec.encode(values[row], base[row]) for row in range(rows)]
                for letter, data in zip(letters, written, strict=True):
                    letter[name] = data
                sizes += np.array([len(data) for data in written])
            else:
                sizes += self.codec.sizes(values, base)
        return Travelled(found, lost, sizes, letters)


def opened(codec: Codec, shapes: Shapes, sent: Message, reply: Message) -> tuple[Message, int]:
    """A client's reply with its coded tensors decoded, and its bytes; `sent` is what the client got.

    Raises CodecError if a coded tensor is none of this codec, or none that is coded at all.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in reply.values())
    coded = [name for name, tensor in reply.items() if tensor.dtype == torch.uint8 and name in shapes]
    if not coded or codec.plain:
        return reply, size
    began = origins(*(_stacked(one) for one in (sent, _announced(shapes, reply, sent))))
    found = dict(reply)
    for name in coded:
        if not _is_coded(name, shapes[name], began):
            raise CodecError(f"'{name}' travels as it is, not coded")
        try:
            values = codec.decode(reply[name].numpy().tobytes(), math.prod(shapes[name]), as_rows(began[name])[0])
        except CodecError as problem:
            raise CodecError(f"'{name}' cannot be decoded as {codec}: {problem}") from None
        found[name] = torch.from_numpy(values).reshape(shapes[name])
    return found, size


def as_sent(message: Message, letter: Mapping[str, bytes]) -> Message:
    """A client's reply with coded tensors as their bytes."""
    coded = {name: torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy()) for name, data in letter.items()}
    return {**message, **coded}


def _announced(shapes: Shapes, reply: Message, sent: Message) -> Message:
    """The reply as it will be, with zeros in the place of coded tensors; a choice that nobody has is refused."""
    if "choice" in reply and "models" in sent:
        choice = float(reply["choice"])
        if not 0 <= choice < len(sent["models"]):
            raise CodecError(f"'choice' is {choice:g}; there are {len(sent['models'])} models")
    return {
        name: torch.zeros(shapes[name]) if tensor.dtype == torch.uint8 and name in shapes else tensor
        for name, tensor in reply.items()
    }


def _is_coded(name: str, shape: tuple[int, ...], began: Message) -> bool:
    return name in began and math.prod(shape) > FEW


def _stacked(message: Message) -> Message:
    return {name: tensor[None] for name, tensor in message.items()}


def as_rows(tensor: Tensor) -> np.ndarray:
    """`[n, d]`."""
    found: np.ndarray = tensor.detach().reshape(len(tensor), -1).cpu().numpy()
    return found


def _like(values: np.ndarray, tensor: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).reshape(tensor.shape).to(tensor.device)
