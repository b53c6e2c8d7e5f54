"""Multi-MNIST and its relatives: classify both of two overlaid images (section 5.1 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from torch import Tensor

from fedpareto.config.bounds import AtLeast, Count, ShareBelowOne
from fedpareto.contract.learner import Learner
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.multitask.datasets import (
    CLASSES,
    CLOTHES,
    DIGITS,
    FASHION_MNIST,
    MNIST,
    PARTS,
    PIXELS,
    ImageSet,
)
from fedpareto.problems.multitask.network import Heads
from fedpareto.problems.multitask.overlaid import Overlaid, draw, partitioned
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Rows, Splits

CHANNELS, SHARED, HEAD = (10, 20), (50,), (50,)
"""Widths of the convolutional networks, as in Sener and Koltun (2018), without their dropout."""


@dataclass(frozen=True)
class MultiTask(Overlaid):
    """Two overlaid published images; the tasks are to classify the left one and the right one."""

    white: ClassVar[float] = 255
    mean: ClassVar[float] = 0.1307
    deviation: ClassVar[float] = 0.3081
    """Statistics of MNIST's pixels; they standardise all images, as in Sener and Koltun (2018)."""
    left: ClassVar[ImageSet]
    right: ClassVar[ImageSet]

    samples: Annotated[int, AtLeast(1, PARTS["train"][1])] = 10_000
    """Training images (those for validation included) of all clients together; at most 60,000."""
    test_samples: Annotated[int, AtLeast(1, PARTS["test"][1])] = 2_000
    """Test images of all clients together; at most 10,000."""
    validation: ShareBelowOne = 0.0
    """Share of each client's training images that is held out for validation."""
    network: Literal["strided", "lenet", "mlp"] = "strided"
    """The shared block: LeNet whose convolutions have stride 2, LeNet with pooling (6 times slower), or an MLP."""
    hidden: tuple[Count, ...] = (64, 32)
    """Widths of the shared layers of the MLP."""

    @property
    def validates(self) -> bool:
        return self.validation > 0

    # -- the model -------------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> Heads:
        if self.network == "mlp":
            return Heads(PIXELS, (), self.hidden, (), CLASSES, sparsity=self._connected)
        pooled = self.network == "lenet"
        return Heads(PIXELS, CHANNELS, SHARED, HEAD, CLASSES, pooled, sparsity=self._connected)

    def learner(self) -> Learner:
        """Found by a small search on local training alone."""
        return Supervised(lr=0.002, optimiser="adam", batch_size=64)

    # -- data ------------------------------------------------------------------------------------------------------

    def data(self, clients: int, seed: int) -> Splits:
        """Images made from the seed and partitioned over the clients at random, evenly."""
        training = self._partitioned("train", self.samples, clients, seed)
        # At least one image to train on; clients have equally many, or one fewer.
        kept = [min(int(self.validation * count), count - 1) for count in training.counts]
        if not any(kept):
            return {"train": training, "test": self._partitioned("test", self.test_samples, clients, seed)}
        tables = [training.of_client(client) for client in range(clients)]
        return {
            "train": Rows.of([_cut(table, slice(k, None)) for table, k in zip(tables, kept, strict=True)]),
            "validation": Rows.of([_cut(table, slice(k)) for table, k in zip(tables, kept, strict=True)]),
            "test": self._partitioned("test", self.test_samples, clients, seed),
        }

    def _partitioned(self, part: str, count: int, clients: int, seed: int) -> Rows:
        stream = rng.generator(rng.Address(seed), f"pairs {part}")
        images = draw([self.left.images(part), self.right.images(part)], count, stream)
        return partitioned(part, *images, clients)


def _cut(table: Mapping[str, Tensor], place: slice) -> dict[str, Tensor]:
    return {name: column[place] for name, column in table.items()}


@dataclass(frozen=True)
class MultiMNIST(MultiTask):
    """Multi-MNIST (Sener and Koltun 2018): two overlapping handwritten digits, classify the left and the right one."""

    name: ClassVar[str] = "multi-mnist"
    left: ClassVar[ImageSet] = MNIST
    right: ClassVar[ImageSet] = MNIST


@dataclass(frozen=True)
class MultiFashion(MultiTask):
    """Multi-Fashion (Lin et al. 2019): two overlapping pieces of clothing, classify the left and the right one."""

    name: ClassVar[str] = "multi-fashion"
    left: ClassVar[ImageSet] = FASHION_MNIST
    right: ClassVar[ImageSet] = FASHION_MNIST
    shown: ClassVar[tuple[tuple[str, ...], ...]] = (CLOTHES, CLOTHES)


@dataclass(frozen=True)
class FashionMNISTPairs(MultiTask):
    """A digit (left) under a piece of clothing (right), classify both: "Fashion-MNIST" of Lin et al. (2019)."""

    name: ClassVar[str] = "fashion-mnist-pairs"
    left: ClassVar[ImageSet] = MNIST
    right: ClassVar[ImageSet] = FASHION_MNIST
    shown: ClassVar[tuple[tuple[str, ...], ...]] = (DIGITS, CLOTHES)
