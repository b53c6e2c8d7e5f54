"""Training steps as networks see them, and the statistics that these leave there.

A network that is called with a `Training` is in training mode: it drops values at random, by the clients' own streams,
and normalises by the statistics of the minibatch. Called without one it is in evaluation mode. Nothing is kept in the
network itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedpareto.tensors import rng

STEPS = 16
"""The bits of a stream's lane below those that count steps: lanes are fewer than 2¹⁶, and so are steps of a round."""


@dataclass
class Training:
    """A training step of n clients."""

    mask: Tensor
    """1 where a row of the minibatch is real, `[n, b]`: padding has no part in statistics."""
    addresses: rng.Addresses
    """Addresses of the streams from which dropped values are drawn, `[n]` each."""
    step: Tensor
    """The number of the step in its round, a whole number; a tensor, so that a recorded step can count on."""
    purpose: str = "batches"
    """Purpose of the step: two trainings of a round have streams of their own."""
    prefix: str = ""
    """Prefix of the names of buffers, where one step trains two models."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """The new values of the network's buffers by name, `[n, ...]`, once it was called."""
    readers: set[str] = field(default_factory=set)
    """The prefixes of the models that were called with it: a network whose problem forgets it would stay in evaluation
    mode."""

    @property
    def was_read(self) -> bool:
        return bool(self.readers)

    def streams(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Seed, client, round and lane of this step's streams: the step is in the upper half of the lane."""
        of = self.addresses
        return of.seed, of.client, of.round, of.lane + (self.step << STEPS)

    def of(self, prefix: str) -> Training:
        """Step of one of several models, whose buffers begin with `prefix`; it drops values of its own."""
        return replace(self, prefix=prefix, purpose=f"{self.purpose}, {prefix}")

    def repeated(self, times: int) -> Training:
        """Step for `times` models of each client, as if they were clients: the same rows, the same is dropped."""
        mask, addresses = self.mask.repeat_interleave(times, dim=0), self.addresses.repeated(times)
        return replace(self, mask=mask, addresses=addresses, buffers={})

    def wrote(self, buffers: Mapping[str, Tensor]) -> None:
        """Takes down the new values of some buffers, `[n, ...]`."""
        self.buffers.update({self.prefix + name: new for name, new in buffers.items()})


@dataclass
class Now:
    """Call of a layer of one client. Its tensors may be of a whole stack, which vmap hides from the layer."""

    alone: bool = True
    """True if there is no stack around it."""
    mask: Tensor | None = None
    """`[b]` in training; None: evaluation."""
    stream: tuple[Tensor, ...] = ()
    purpose: str = ""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    draws: dict[str, int] = field(default_factory=dict)
    """Number of draws of each layer."""

    @property
    def training(self) -> bool:
        return self.mask is not None

    def call(self, kernel: Callable[..., Any], *tensors: Tensor) -> Any:
        """`kernel` is written for a stack, `[n, ...]`: of one, or of those that vmap hides."""
        if not self.alone:
            return _InStack.apply(kernel, *tensors)  # type: ignore[no-untyped-call]
        results = kernel(*(tensor.unsqueeze(0) for tensor in tensors))
        if isinstance(results, Tensor):
            return results.squeeze(0)
        return tuple(result.squeeze(0) for result in results)

    def dropped(self, layer: str, values: Tensor, p: float, shape: tuple[int, ...] | None = None) -> Tensor:
        """Values of which each, or each of a smaller `shape`, is dropped with the probability `p`.

        The others are scaled, so that the mean stays. In evaluation all are as they were.
        """
        if not self.training or not p:
            return values
        keeps = self.keeps(layer, tuple(values.shape) if shape is None else shape, p, values.dtype)
        return values * (keeps / (1 - p) if p < 1 else keeps)

    def keeps(self, layer: str, shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
        """1 where a value of `shape` is kept, 0 where it is dropped, which has the probability `p`."""
        number = self.draws[layer] = self.draws.get(layer, 0) + 1
        purpose = f"{self.purpose}, dropped {layer} {number}"

        def kernel(*stream: Tensor) -> Tensor:
            return kept(rng.Addresses(*stream), purpose, shape, p, dtype)

        result: Tensor = self.call(kernel, *self.stream)
        return result


@dataclass
class Current:
    """The call that a module is in: its layers look here, since its own code does not hand anything on to them."""

    now: Now = field(default_factory=Now)


def kept(addresses: rng.Addresses, purpose: str, shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """1 where a value is kept, 0 where it is dropped, `[n, *shape]`.

    A random word is enough for four values where p is a multiple of 1/256, else for two: p is then rounded by 10⁻⁵.
    """
    n, count = len(addresses), math.prod(shape)
    if p >= 1:
        return torch.zeros(n, *shape, dtype=dtype, device=addresses.client.device)
    piece, bits = (torch.int8, 8) if float(p * 2**8).is_integer() else (torch.int16, 16)
    words = addresses.words(purpose, -(-count * bits // 32)).contiguous()
    # A word is in the lower half of a 64-bit number.
    pieces = words.view(piece).view(n, -1, 64 // bits)[..., : 32 // bits].flatten(1)[:, :count]
    is_kept: Tensor = pieces >= round(p * 2**bits) - 2 ** (bits - 1)
    return is_kept.to(dtype).view(n, *shape)


class _InStack(torch.autograd.Function):
    """A kernel over a stack of clients, called by code that vmap lets believe that there is one client."""

    @staticmethod
    def forward(kernel: Callable[..., Any], *tensors: Tensor) -> Any:
        """Never called: without vmap there is one client, and a kernel is called as it is."""
        raise AssertionError("a kernel for a stack was called outside of vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """The kernel has a gradient of its own."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kernel: Callable[..., Any], *tensors: Tensor) -> Any:
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if place is None else tensor.movedim(place, 0)
            for tensor, place in zip(tensors, in_dims[1:], strict=True)
        ]
        results = kernel(*stacked)
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)
