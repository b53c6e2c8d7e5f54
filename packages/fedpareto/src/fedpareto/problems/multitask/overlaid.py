"""Classify each of several overlaid images: the goals, whatever the images are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective, most_frequent
from fedpareto.inputs.images_texts import ImageInputs
from fedpareto.problems.multitask.datasets import CLASSES, DIGITS, PIXELS, Images
from fedpareto.problems.multitask.network import Heads
from fedpareto.problems.sparse import SparseProblem
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows

EVALUATED_AT_ONCE = 1024
"""Images of all clients of a stack in one forward pass of an evaluation: patches take up to 0.15 MB an image."""


@dataclass(frozen=True)
class Overlaid(SparseProblem):
    """Overlaid images; the tasks are to classify each of them."""

    rebuilt_by_name: ClassVar[bool] = True
    white: ClassVar[float]
    """The largest value of a pixel."""
    mean: ClassVar[float]
    deviation: ClassVar[float]
    """Deviation of pixels from 0 to 1; images are standardised by it and the mean."""
    shown: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Names of the classes of each image; none: they are digits."""

    @property
    def model(self) -> Heads:
        """The shared block and the heads."""
        raise NotImplementedError

    @property
    def layout(self) -> Layout:
        return self.model.layout

    def initial(self, seed: int) -> Tensor:
        return self.model.initial(seed)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The accuracy of each task, with the reference point 0 of the thesis's chapter 5."""
        return tuple(
            Objective(f"accuracy:{task}", maximise=True, reference=0.0, lowest=0.0, highest=1.0)
            for task in self.model.tasks
        )

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        logits, labels = self._logits(parameters, batch.columns["image"]), batch.columns["labels"]
        each = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view(labels.shape)
        return torch.stack([batch.mean(task) for task in each.unbind(-1)], dim=-1)

    def plain_inputs(self, batch: Batch) -> Tensor:
        return batch.columns["image"].flatten(2)

    def constants(self, rows: Rows) -> np.ndarray:
        return most_frequent(rows, "labels")

    def classes(self) -> tuple[str, int]:
        return "labels", CLASSES

    def input_schema(self, clients: int, seed: int) -> ImageInputs:
        return ImageInputs((self.model.pixels, self.model.pixels))

    def outputs(self) -> tuple[Output, ...]:
        tasks = self.model.tasks
        return tuple(Output(*one) for one in zip(tasks, self.shown or (DIGITS,) * len(tasks), strict=True))

    def answers(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return self._logits(parameters, inputs)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        images, labels = batch.columns["image"], batch.columns["labels"]
        rows = max(1, EVALUATED_AT_ONCE // len(images))
        said = torch.cat([self._logits(parameters, part).argmax(-1) for part in torch.split(images, rows, 1)], dim=1)
        right = (said == labels).to(batch.mask.dtype)
        return torch.stack([batch.mean(task) for task in right.unbind(-1)], dim=-1)

    def _logits(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """`[n, b, tasks, 10]`. Images are kept as bytes, a quarter of the memory, and turned into numbers here."""
        dtype = next(iter(parameters.values())).dtype
        return self.model(parameters, images.to(dtype).div_(self.white).sub_(self.mean).div_(self.deviation))


def partitioned(part: str, images: np.ndarray, labels: np.ndarray, clients: int) -> Rows:
    """Images of a split. They are in random order, so equal slices are a random partition."""
    count = len(images)
    if count < clients:
        name = "samples" if part == "train" else "test_samples"
        raise UserError(f"{clients} clients need at least {clients} images in '{part}'; {name} is {count}")
    columns = {"image": torch.from_numpy(images), "labels": torch.from_numpy(labels.astype(np.int64))}
    return Rows.end_to_end(columns, np.diff(np.arange(clients + 1) * count // clients))


CANVAS = 36
OFFSET = 6
NEAREST = ((np.arange(PIXELS) + 0.5) * CANVAS / PIXELS).astype(int)
"""The canvas's row (or column) whose middle is nearest to the middle of each row of the image."""


def overlaid(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Left and right images `[k, 28, 28]` overlaid, `[k, 28, 28]`, as Sener and Koltun (2018) make Multi-MNIST.

    The left image is in the top-left corner of a canvas of 36 × 36 pixels, the right one 6 pixels below and to the
    right of it; where they overlap the larger value of a pixel counts. The canvas is then resized to 28 × 28 by
    nearest-neighbour interpolation. Their code also stretches each image to the full range of grey, which we omit:
    nearly all have it.
    """
    canvas = np.zeros((len(left), CANVAS, CANVAS), dtype=np.uint8)
    canvas[:, :PIXELS, :PIXELS] = left
    place = canvas[:, OFFSET : OFFSET + PIXELS, OFFSET : OFFSET + PIXELS]
    np.maximum(place, right, out=place)
    return canvas[:, NEAREST[:, None], NEAREST]


def draw(
    sets: Sequence[Images], count: int, stream: np.random.Generator, lay: Callable[..., np.ndarray] = overlaid
) -> tuple[np.ndarray, np.ndarray]:
    """`count` images laid over each other, one of each set, `[count, height, width]`, and their labels `[count, k]`.

    No first image, such as the left one of two, is drawn twice; the others are drawn independently of it.
    """
    first, *others = sets
    chosen = [stream.permutation(len(first.labels))[:count]]
    chosen += [stream.integers(0, len(other.labels), size=count) for other in others]
    images = lay(*(one.pixels[rows] for one, rows in zip(sets, chosen, strict=True)))
    return images, np.stack([one.labels[rows] for one, rows in zip(sets, chosen, strict=True)], axis=1)
