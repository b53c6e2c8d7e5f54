"""Multi-MNIST and its relatives: classify both of two overlaid images (section 5.1 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.layout import Layout
from fedpareto.core.learner import Learner
from fedpareto.core.outputs import Output
from fedpareto.core.problem import Objective, SupervisedProblem
from fedpareto.core.rows import Batch, Rows, Splits
from fedpareto.errors import UserError
from fedpareto.inputs.images_texts import ImageInputs
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.multitask import pairs
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
from fedpareto.problems.multitask.network import TwoHeads

CHANNELS, SHARED, HEAD = (10, 20), (50,), (50,)
"""Of the convolutional networks, as in Sener and Koltun (2018), without their dropout."""
MEAN, DEVIATION = 0.1307, 0.3081
"""Of MNIST's pixels from 0 to 1; they standardise all images, as in Sener and Koltun (2018)."""
EVALUATED_AT_ONCE = 1024
"""Images of all clients of a stack in one forward pass of an evaluation: patches take up to 0.15 MB an image."""


@dataclass(frozen=True)
class MultiTask(SupervisedProblem):
    """Two overlaid images; the tasks are to classify the left one and the right one."""

    rebuilt_by_name: ClassVar[bool] = True
    left: ClassVar[ImageSet]
    right: ClassVar[ImageSet]

    samples: int = 10_000
    """Training images (those for validation included) of all clients together; at most 60,000."""
    test_samples: int = 2_000
    """Test images of all clients together; at most 10,000."""
    validation: float = 0.0
    """Share of each client's training images that is held out for validation."""
    network: Literal["strided", "lenet", "mlp"] = "strided"
    """The shared block: LeNet whose convolutions have stride 2, LeNet with pooling (6 times slower), or an MLP."""
    hidden: tuple[int, ...] = (64, 32)
    """Widths of the shared layers of the MLP."""

    def __post_init__(self) -> None:
        for name, asked, part in (("samples", self.samples, "train"), ("test_samples", self.test_samples, "test")):
            most = PARTS[part][1]
            if not 1 <= asked <= most:
                raise UserError(f"{name} is {asked:,}; it is at least 1 and at most the {most:,} images there are")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation is {self.validation:g}; it is a share from 0 to below 1, for example 0.1")
        _ = self.model

    # -- the model -------------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> TwoHeads:
        """The shared block and the two heads."""
        if self.network == "mlp":
            return TwoHeads(PIXELS, (), self.hidden, (), CLASSES)
        return TwoHeads(PIXELS, CHANNELS, SHARED, HEAD, CLASSES, pooled=self.network == "lenet")

    @property
    def layout(self) -> Layout:
        """Of the network."""
        return self.model.layout

    def initial(self, seed: int) -> Tensor:
        """The network's initialisation."""
        return self.model.initial(seed)

    def learner(self) -> Learner:
        """Found by a small search on local training alone."""
        return Supervised(lr=0.002, optimiser="adam", batch_size=64)

    # -- goals -----------------------------------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The accuracy of each task, with the reference point 0 of the thesis's chapter 5."""
        return tuple(
            Objective(f"accuracy:{task}", maximise=True, reference=0.0, lowest=0.0, highest=1.0)
            for task in ("left", "right")
        )

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Cross entropy of each task."""
        logits, labels = self._logits(parameters, batch.columns["image"]), batch.columns["labels"]
        each = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view(labels.shape)
        return torch.stack([batch.mean(task) for task in each.unbind(-1)], dim=-1)

    def classes(self) -> tuple[str, int]:
        """Of both images, in one column."""
        return "labels", CLASSES

    def input_schema(self, clients: int, seed: int) -> ImageInputs:
        """Pixels as they are."""
        return ImageInputs((PIXELS, PIXELS))

    def outputs(self) -> tuple[Output, ...]:
        """What each of the two images shows."""
        return tuple(
            Output(task, CLOTHES if images is FASHION_MNIST else DIGITS)
            for task, images in zip(self.model.tasks, (self.left, self.right), strict=True)
        )

    def answers(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """See Problem."""
        return self._logits(parameters, inputs)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Accuracy of each task."""
        images, labels = batch.columns["image"], batch.columns["labels"]
        rows = max(1, EVALUATED_AT_ONCE // len(images))
        said = torch.cat([self._logits(parameters, part).argmax(-1) for part in torch.split(images, rows, 1)], dim=1)
        right = (said == labels).to(batch.mask.dtype)
        return torch.stack([batch.mean(task) for task in right.unbind(-1)], dim=-1)

    def _logits(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """`[n, b, 2, 10]`. Images are kept as bytes, a quarter of the memory, and turned into numbers here."""
        dtype = next(iter(parameters.values())).dtype
        return self.model(parameters, images.to(dtype).div_(255).sub_(MEAN).div_(DEVIATION))

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
        """`count` images of a split. They are in random order, so equal slices are a random partition."""
        if count < clients:
            name = "samples" if part == "train" else "test_samples"
            raise UserError(f"{clients} clients need at least {clients} images in '{part}'; {name} is {count}")
        stream = rng.generator(rng.Address(seed), f"pairs {part}")
        images, labels = pairs.draw(self.left.images(part), self.right.images(part), count, stream)
        columns = {"image": torch.from_numpy(images), "labels": torch.from_numpy(labels.astype(np.int64))}
        return Rows.end_to_end(columns, np.diff(np.arange(clients + 1) * count // clients))


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


@dataclass(frozen=True)
class FashionMNISTPairs(MultiTask):
    """A digit (left) under a piece of clothing (right), classify both: "Fashion-MNIST" of Lin et al. (2019)."""

    name: ClassVar[str] = "fashion-mnist-pairs"
    left: ClassVar[ImageSet] = MNIST
    right: ClassVar[ImageSet] = FASHION_MNIST
