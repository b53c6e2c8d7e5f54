"""The networks of FedFew and FedMGDA+ over a stack of clients, and ResNet-18.

A network has a layout, an initial model and a call; the rest is internal.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from fedpareto.networks.embedding import embedded
from fedpareto.networks.linear import stacked_linear
from fedpareto.networks.lstm import stacked_lstm
from fedpareto.networks.mlp import MLP
from fedpareto.networks.module import StackedModule
from fedpareto.networks.resnet import ResNet18
from fedpareto.tensors import rng
from fedpareto.tensors.connections import Sparsity
from fedpareto.tensors.layout import Hidden, Layout
from fedpareto.tensors.training import Training


class Network(Protocol):
    """Logits of n models for the inputs of n clients."""

    @property
    def layout(self) -> Layout:
        """The shape of a model."""

    def initial(self, seed: int) -> Tensor:
        """The model from which every client starts, `[d]`."""

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        """Logits `[n, b, classes]` of inputs `[n, b, ...]`, as they are stored."""


@dataclass(frozen=True)
class SparseNetwork:
    """Any network with random connections only, see tensors.connections."""

    network: Network
    sparsity: Sparsity

    @cached_property
    def layout(self) -> Layout:
        return self.network.layout.sparse(self.sparsity)

    def initial(self, seed: int) -> Tensor:
        return self.layout.begun(self.network.initial(seed))

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        return self.network(self.layout.filled(parameters), inputs, training)


# -- images --------------------------------------------------------------------------------------------------------


def convolutional(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A network for images of `shape` (channels, height, width) in one of `classes` classes.

    "cnn": FedFew's, that of McMahan et al. (2017) without its zero padding. "cnn-lrn": table II of FedMGDA+, for
    CIFAR. "cnn-small": table III, for Fashion-MNIST. "cnn-femnist": table IV, of Reddi et al. (2021), in which some
    consecutive layers have no non-linearity between them. The last two drop values at random in training.
    """
    channels, height, _ = shape
    if name == "resnet-18":
        return ResNet18(channels, classes)
    layers: dict[str, nn.Module]
    if name == "cnn-femnist":
        side = (height - 4) // 2
        layers = {
            "convolution0": nn.Conv2d(channels, 32, 3),
            "convolution1": nn.Conv2d(32, 64, 3),
            "relu1": nn.ReLU(),
            "pool1": nn.MaxPool2d(2),
            "drop0": nn.Dropout(0.25),
            "flat": nn.Flatten(),
            "linear0": nn.Linear(64 * side**2, 128),
            "drop1": nn.Dropout(0.5),
            "linear1": nn.Linear(128, classes),
        }
        return nn.Sequential(OrderedDict(layers))
    first, second, hidden = {"cnn": (32, 64, [512]), "cnn-lrn": (64, 64, [384, 192]), "cnn-small": (10, 20, [50])}[name]
    side = ((height - 4) // 2 - 4) // 2
    layers = {"convolution0": nn.Conv2d(channels, first, 5), "relu0": nn.ReLU(), "pool0": nn.MaxPool2d(2)}
    layers |= {"convolution1": nn.Conv2d(first, second, 5), "relu1": nn.ReLU(), "pool1": nn.MaxPool2d(2)}
    if name == "cnn-lrn":
        # Normalised after the first pooling and before the second, as in the table.
        order = ["convolution0", "relu0", "pool0", "norm0", "convolution1", "relu1", "norm1", "pool1"]
        layers |= {"norm0": nn.LocalResponseNorm(2), "norm1": nn.LocalResponseNorm(2)}
        layers = {layer: layers[layer] for layer in order}
    if name == "cnn-small":
        layers["drop0"] = nn.Dropout2d(0.5)
    layers["flat"] = nn.Flatten()
    widths = [second * side**2, *hidden]
    for i, (fan_in, fan_out) in enumerate(zip(widths, [*hidden, classes], strict=True)):
        layers[f"linear{i}"] = nn.Linear(fan_in, fan_out)
        if i < len(hidden):
            layers[f"relu{i + 2}"] = nn.ReLU()
            if name == "cnn-small":
                layers["drop1"] = nn.Dropout(0.5)
    return nn.Sequential(OrderedDict(layers))


class ImageNetwork:
    """A convolutional network on pixels from 0 to 255, which become numbers from −1 to 1."""

    def __init__(self, name: str, shape: tuple[int, int, int], classes: int) -> None:
        # Creating layers draws random numbers; the global generator must not change.
        with torch.random.fork_rng(devices=[]):
            self.stacked = StackedModule(convolutional(name, shape, classes))
        self.layout = self.stacked.layout

    def initial(self, seed: int) -> Tensor:
        return self.stacked.drawn(seed)

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        """Logits `[n, b, classes]` of images `[n, b, channels, height, width]`."""
        return self.stacked(parameters, scaled(inputs, parameters), training)


def scaled(inputs: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
    dtype = next(iter(parameters.values())).dtype
    return inputs.to(dtype).div_(127.5).sub_(1)


@dataclass(frozen=True)
class FlatNetwork(MLP):
    """An MLP, or without hidden layers logistic regression, on the flattened input."""

    pixels: bool = False
    """True if inputs are pixels, which become numbers from −1 to 1."""

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        dtype = next(iter(parameters.values())).dtype
        numbers = scaled(inputs, parameters) if self.pixels else inputs.to(dtype)
        return super().__call__(parameters, numbers.flatten(2))


# -- texts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextCNN:
    """Convolutions of several widths over words, max-pooling over time, and a linear layer (Kim 2014)."""

    vocabulary: int
    embedding: int
    classes: int
    widths: tuple[int, ...] = (3, 4, 5)
    """Widths of the convolutions, in words."""
    channels: int = 100
    """Channels of each convolution."""

    @cached_property
    def layout(self) -> Layout:
        """An embedding for each word; of each other layer "weight" `[in, out]` and "bias" `[out]`."""
        shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (self.vocabulary, self.embedding)}
        for width in self.widths:
            shapes |= _linear(f"convolution{width}", width * self.embedding, self.channels)
        # A unit is a channel of every width: what is pooled lies side by side, one width after the other.
        hidden = Hidden.between(self.channels, [f"convolution{width}" for width in self.widths], ["output"])
        shapes |= _linear("output", len(self.widths) * self.channels, self.classes)
        return Layout.of(shapes, hidden=[hidden])

    def initial(self, seed: int) -> Tensor:
        return _initial(self.layout, {}, seed)

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        """Logits `[n, b, classes]` of texts `[n, b, length]`."""
        words = embedded(parameters["embedding.weight"], inputs)
        n, rows = inputs.shape[:2]
        found = []
        for width in self.widths:
            # A convolution is a linear layer on patches.
            patches = words.unfold(2, width, 1).transpose(3, 4).reshape(n, -1, width * self.embedding)
            name = f"convolution{width}"
            outputs = stacked_linear(patches, parameters[f"{name}.weight"], parameters[f"{name}.bias"], relu=True)
            found.append(outputs.view(n, rows, -1, self.channels).amax(2))
        return stacked_linear(torch.cat(found, dim=2), parameters["output.weight"], parameters["output.bias"])


@dataclass(frozen=True)
class CharacterLSTM:
    """Character embeddings, LSTM layers, and a linear layer on the last layer's final output."""

    characters: int
    embedding: int = 8
    hidden: int = 256
    layers: int = 2

    @cached_property
    def layout(self) -> Layout:
        """Each LSTM layer has "input", "recurrent" and "bias", with the gates (in, forget, cell, out) side by side."""
        shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (self.characters, self.embedding)}
        for i in range(self.layers):
            inputs = self.hidden if i else self.embedding
            shapes[f"lstm{i}.input"] = (inputs, 4 * self.hidden)
            shapes[f"lstm{i}.recurrent"] = (self.hidden, 4 * self.hidden)
            shapes[f"lstm{i}.bias"] = (4 * self.hidden,)
        return Layout.of(shapes | _linear("output", self.hidden, self.characters), hidden=self._hidden())

    def _hidden(self) -> Iterator[Hidden]:
        """A cell without weights stays at 0, whatever its gates say, and so does what it gives out."""
        for i in range(self.layers):
            own = ((f"lstm{i}.input", 1), (f"lstm{i}.recurrent", 1), (f"lstm{i}.bias", 0), (f"lstm{i}.recurrent", 0))
            after = (f"lstm{i + 1}.input" if i + 1 < self.layers else "output.weight", 0)
            yield Hidden(self.hidden, tuple((name, dimension, 1) for name, dimension in (*own, after)))

    def initial(self, seed: int) -> Tensor:
        """PyTorch's own initialisation, that of an LSTM being uniform within 1/√hidden; it has one bias for two."""
        return _initial(self.layout, {f"lstm{i}": self.hidden for i in range(self.layers)}, seed)

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        """Logits `[n, b, characters]` of the character that follows each of `[n, b, length]`."""
        values = embedded(parameters["embedding.weight"], inputs.permute(0, 2, 1)).transpose(0, 1)
        for i in range(self.layers):
            weights = (parameters[f"lstm{i}.{part}"] for part in ("input", "recurrent", "bias"))
            values, _ = stacked_lstm(values, *weights)
        return stacked_linear(values[-1], parameters["output.weight"], parameters["output.bias"])


def _linear(name: str, fan_in: int, fan_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (fan_in, fan_out), f"{name}.bias": (fan_out,)}


def _initial(layout: Layout, fan_ins: Mapping[str, int], seed: int) -> Tensor:
    """Word embeddings from a standard normal distribution, all else uniform within 1/√fan-in.

    That is the first size of a layer's weight, unless `fan_ins` gives another.
    """
    stream = rng.torch_generator(rng.Address(seed), "initial model")
    parts, fan_in = [], 1
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        layer, _, kind = name.rpartition(".")
        values = torch.empty(math.prod(shape))
        if layer == "embedding":
            parts.append(values.normal_(generator=stream))
            continue
        fan_in = fan_ins.get(layer, shape[0] if kind == "weight" else fan_in)
        bound = 1 / math.sqrt(fan_in)
        parts.append(values.uniform_(-bound, bound, generator=stream))
    return torch.cat(parts)
