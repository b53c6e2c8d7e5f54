"""Two small handwritten digits in one image, from scikit-learn's own copy: no download."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from fedpareto.core import rng
from fedpareto.core.learner import Learner
from fedpareto.core.rows import OWN_TEST, Rows, Splits, tested_on_all
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.multitask import pairs
from fedpareto.problems.multitask.datasets import CLASSES, Images
from fedpareto.problems.multitask.network import TwoHeads
from fedpareto.problems.multitask.two_tasks import TwoTasks, must_exist, partitioned

PIXELS, OFFSET = 8, 2
"""Height and width of a digit, and how far the right one is below and to the right of the left one."""
COUNTS = {"train": 1297, "test": 500}
"""The first digits are to train, the others to test: they lie one writer after the other, so that these are of writers
whom hardly anybody trained on."""


@dataclass(frozen=True)
class DigitPairs(TwoTasks):
    """Two small handwritten digits over each other, classify the left and the right one; few images for each client.

    The digits are those of scikit-learn (1,797 of 8 × 8 pixels, the test part of UCI's "Optical Recognition of
    Handwritten Digits", Alpaydin and Kaynak 1998): nothing is downloaded.
    """

    name: ClassVar[str] = "digit-pairs"
    white: ClassVar[float] = 16
    mean: ClassVar[float] = 0.3053
    deviation: ClassVar[float] = 0.3760

    samples: int = 600
    """Training images of all clients together; at most 1,297."""
    test_samples: int = 500
    """Test images, on which all models are tested; at most 500."""
    hidden: tuple[int, ...] = (16,)
    """Widths of the layers that both tasks share; few units make the tasks compete."""

    def __post_init__(self) -> None:
        super().__post_init__()
        must_exist(self.samples, self.test_samples, COUNTS)
        _ = self.model

    @cached_property
    def model(self) -> TwoHeads:
        """An MLP with two heads."""
        return TwoHeads(PIXELS + OFFSET, (), self.hidden, (), CLASSES, sparsity=self._connected)

    def learner(self) -> Learner:
        """Found by a small search on local training alone."""
        return Supervised(lr=0.005, optimiser="adam", batch_size=32, epochs=5)

    def data(self, clients: int, seed: int) -> Splits:
        """Pairs made from the seed and partitioned over the clients at random, evenly; all are tested on all."""
        counts = {"train": self.samples, "test": self.test_samples}
        return tested_on_all({part: self._drawn(part, count, clients, seed) for part, count in counts.items()})

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        """What each image shows, and the image."""
        splits = self.data(clients, seed)
        own = splits.get(OWN_TEST, splits["test"]).of_client(client)
        names = (*self.model.tasks, "image")
        columns = (*own["labels"].T.tolist(), own["image"].numpy())
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _drawn(self, part: str, count: int, clients: int, seed: int) -> Rows:
        digits, stream = _digits(part), rng.generator(rng.Address(seed), f"pairs {part}")
        return partitioned(part, *pairs.draw(digits, digits, count, stream, overlaid), clients)


def overlaid(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Left and right digits `[k, 8, 8]` on a canvas `[k, 10, 10]`; where they overlap the larger value counts."""
    canvas = np.zeros((len(left), PIXELS + OFFSET, PIXELS + OFFSET), dtype=np.uint8)
    canvas[:, :PIXELS, :PIXELS] = left
    place = canvas[:, OFFSET:, OFFSET:]
    np.maximum(place, right, out=place)
    return canvas


@cache
def _digits(part: str) -> Images:
    from sklearn.datasets import load_digits

    found = load_digits()
    place = slice(COUNTS["train"]) if part == "train" else slice(COUNTS["train"], None)
    return Images(found.images[place].astype(np.uint8), found.target[place])
