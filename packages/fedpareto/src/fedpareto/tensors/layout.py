"""Parameters are one flat tensor; a layout says which slice is which layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.tensors.connections import Connections, Sparsity, filled

LARGEST_SIZE = 2**31
"""Largest size of a dimension; no network here comes near."""
TABLE = "embedding"
"""The layer whose weight is looked up by word."""


@dataclass(frozen=True)
class Hidden:
    """A hidden layer: how many units it has, and where they are in a model's tensors."""

    units: int
    along: tuple[tuple[str, int, int], ...]
    """Each tensor that holds something of them, the dimension along which they lie, and the length of their blocks:
    place p of that dimension belongs to unit ⌊p / block⌋ mod `units`.
    """

    @classmethod
    def between(cls, units: int, before: Iterable[str], after: Iterable[str], block: int = 1) -> Hidden:
        """The outputs of some layers that are the inputs of others, with a weight `[in, out]` and a bias each."""
        own = [place for name in before for place in ((f"{name}.weight", 1, 1), (f"{name}.bias", 0, 1))]
        return cls(units, (*own, *((f"{name}.weight", 0, block) for name in after)))

    def under(self, prefix: str) -> Hidden:
        """Hidden layer of a larger model, where the names of tensors begin with `prefix`."""
        return Hidden(self.units, tuple((prefix + name, dimension, block) for name, dimension, block in self.along))


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's tensors, in the order in which they lie in a flat vector of length `size`.

    Two layouts are equal if these are, whatever is known about the tensors: files hold names and shapes only.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    buffers: tuple[str, ...] = field(default=(), compare=False)
    """Tensors that no gradient moves, such as running statistics: a network in training writes them itself."""
    normalisation: tuple[str, ...] = field(default=(), compare=False)
    """Tensors of normalisation layers, which may stay with a client (see algorithms.normalisation)."""
    hidden: tuple[Hidden, ...] | None = field(default=None, compare=False)
    """The hidden layers of a network that can be narrowed (see widths), none if it has no hidden units; None: it
    cannot be narrowed, or nobody knows.
    """
    heads: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    """Tensors of each objective that no other one depends on, its task layers; none: the network has no such."""
    connections: tuple[Connections, ...] = ()
    """Connections of sparse weights; here such a tensor is a list of the numbers that there are."""

    @classmethod
    def of(
        cls,
        shapes: Mapping[str, Sequence[int]],
        buffers: Iterable[str] = (),
        normalisation: Iterable[str] = (),
        hidden: Iterable[Hidden] | None = None,
        heads: Iterable[tuple[str, ...]] = (),
    ) -> Layout:
        """A layout from `{"0.weight": (64, 100), …}`; of `buffers` and `normalisation` those that are in it."""
        return cls(
            tuple(shapes),
            tuple(tuple(shape) for shape in shapes.values()),
            tuple(name for name in buffers if name in shapes),
            tuple(name for name in normalisation if name in shapes),
            None if hidden is None else tuple(hidden),
            tuple(heads),
        )

    @classmethod
    def from_json(cls, plain: Any) -> Layout:
        """A layout from a file, an object or pairs of name and shape; ValueError or TypeError if it is none."""
        shapes = dict(plain)
        for name, shape in shapes.items():
            if type(name) is not str or not all(type(size) is int and 0 <= size <= LARGEST_SIZE for size in shape):
                raise ValueError(f"'{name}' has no shape")
        return cls.of(shapes)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Place of each named tensor in the flat vector."""
        places, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            places[name] = slice(start, start + math.prod(shape))
            start = places[name].stop
        return places

    @cached_property
    def size(self) -> int:
        """d, the number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def layers(self) -> dict[str, slice]:
        """Place of each layer: neighbouring tensors of one module ("0.weight", "0.bias") are one layer."""
        layers: dict[str, slice] = {}
        for name, place in self.slices.items():
            layer = name.rpartition(".")[0] or name
            before = layers.get(layer)
            if before is not None and before.stop != place.start:
                raise ValueError(f"the tensors of layer '{layer}' do not lie side by side in the layout")
            layers[layer] = slice(before.start if before else place.start, place.stop)
        return layers

    def cut(self, last: int) -> tuple[Layout, Layout]:
        """The first layers, and the `last` ones (all of them, if there are no more); both are contiguous."""
        layers = list(self.layers.values())
        end = layers[-last:][0].start if last else self.size
        first = [name for name, place in self.slices.items() if place.start < end]
        shapes = dict(zip(self.names, self.shapes, strict=True))
        before = {name: shapes.pop(name) for name in first}
        return self._part(before), self._part(shapes)

    def _part(self, shapes: Mapping[str, Sequence[int]]) -> Layout:
        inside = tuple(one for one in self.connections if one.name in shapes)
        return replace(Layout.of(shapes, self.buffers, self.normalisation), connections=inside)

    def marked(self, names: Iterable[str]) -> Tensor:
        """True for entries of the flat vector that belong to tensors of these names, booleans `[d]`."""
        marks = torch.zeros(self.size, dtype=torch.bool)
        for name in names:
            marks[self.slices[name]] = True
        return marks

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views by name: `[..., d]` gives `{name: [..., *shape]}` without a copy."""
        ahead, found = flat.shape[:-1], {}
        for name, begin, length, shape in self._places:
            found[name] = flat.narrow(-1, begin, length).reshape((*ahead, *shape))
        return found

    @cached_property
    def _places(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """Name, beginning, length and shape of each tensor."""
        each = zip(self.names, self.shapes, strict=True)
        return [(name, self.slices[name].start, math.prod(shape), shape) for name, shape in each]

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Inverse of `unflatten` for a single model."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])

    # -- sparse networks -------------------------------------------------------------------------------------------

    def sparse(self, sparsity: Sparsity) -> Layout:
        """Layout with random connections only (see `tensors.connections`); as it is, if they are all there.

        Weights of linear and of convolutional layers are meant: a table of words is no layer of connections.
        """
        shapes, found = dict(zip(self.names, self.shapes, strict=True)), []
        for name, shape in shapes.items():
            layer, _, kind = name.rpartition(".")
            if kind != "weight" or len(shape) < 2 or layer == TABLE:
                continue
            probability = sparsity.probability(*shape[:2])
            if probability == 1:
                continue
            found.append(Connections(name, shape, probability, sparsity.seed))
            shapes[name] = (found[-1].count,)
            if shapes[name] == (0,):
                raise UserError(
                    f"sparsity is {sparsity.epsilon:g}, and layer '{layer}' has no connection left; take a larger one"
                )
        return replace(self, shapes=tuple(shapes.values()), connections=tuple(found))

    @cached_property
    def dense(self) -> Layout:
        shapes = dict(zip(self.names, self.shapes, strict=True)) | {one.name: one.shape for one in self.connections}
        return replace(self, shapes=tuple(shapes.values()), connections=())

    def filled(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors by name, or some of them, as the network computes with them: 0 where there is no connection."""
        return filled(tensors, self.connections)

    def to_dense(self, flat: Tensor) -> Tensor:
        """Flat models of the dense network, `[..., dense.size]`, of those of this layout, `[..., d]`."""
        if not self.connections:
            return flat
        tensors = self.filled(self.unflatten(flat))
        return torch.cat([tensors[name].reshape(*flat.shape[:-1], -1) for name in self.names], dim=-1)

    def of_dense(self, flat: Tensor) -> Tensor:
        """Flat models `[..., d]` of those of the dense network: the inverse of `to_dense`."""
        if not self.connections:
            return flat
        parts = {name: flat[..., place] for name, place in self.dense.slices.items()}
        parts |= {one.name: one.kept(parts[one.name]) for one in self.connections}
        return torch.cat([parts[name] for name in self.names], dim=-1)

    def begun(self, flat: Tensor) -> Tensor:
        """An initial model, of one of the dense network `[dense.size]`: outputs of sparse layers vary as much there.

        Of the inputs of a unit the share p is left, so that its weights are 1/√p times as large.
        """
        found = self.of_dense(flat)
        for one in self.connections:
            found[self.slices[one.name]] /= math.sqrt(one.probability)
        return found

    def to_json(self) -> dict[str, Any]:
        return {name: list(shape) for name, shape in zip(self.names, self.shapes, strict=True)}
