"""Two or four small handwritten digits in one image, from scikit-learn's own copy: no download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from fedpareto.config.bounds import AtLeast, Count
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Learner
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.multitask.datasets import CLASSES, Images
from fedpareto.problems.multitask.network import Heads
from fedpareto.problems.multitask.overlaid import Overlaid, draw, partitioned
from fedpareto.tensors import rng
from fedpareto.tensors.rows import OWN_TEST, Rows, Splits, tested_on_all

PIXELS = 8
"""Height and width of a digit."""
PLACES: Mapping[int, Mapping[str, tuple[int, int]]] = {
    2: {"left": (0, 0), "right": (2, 2)},
    4: {"top-left": (0, 0), "top-right": (0, 6), "bottom-left": (6, 0), "bottom-right": (6, 6)},
}
"""Row and column where each digit begins, for images of two and of four: two hide each other, four overlap at
their edges.
"""
COUNTS = {"train": 1297, "test": 500}
"""The first digits are to train, the others to test: they lie one writer after the other, so that these are of writers
whom hardly anybody trained on."""


@dataclass(frozen=True)
class DigitPairs(Overlaid):
    """Two small handwritten digits over each other, classify the left and the right one; few images for each client. Or
    four of them, one in each corner: four tasks.

    The digits are those of scikit-learn (1,797 of 8 × 8 pixels, the test part of UCI's "Optical Recognition of
    Handwritten Digits", Alpaydin and Kaynak 1998): nothing is downloaded.
    """

    name: ClassVar[str] = "digit-pairs"
    white: ClassVar[float] = 16
    mean: ClassVar[float] = 0.3053
    deviation: ClassVar[float] = 0.3760

    samples: Annotated[int, AtLeast(1, COUNTS["train"])] = 600
    """Training images of all clients together; at most 1,297."""
    test_samples: Annotated[int, AtLeast(1, COUNTS["test"])] = 500
    """Test images, on which all models are tested; at most 500."""
    hidden: tuple[Count, ...] = (16,)
    """Widths of the layers that both tasks share; few units make the tasks compete."""
    digits: int = 2
    """Digits in an image: 2, or 4, one in each corner."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.digits not in PLACES:
            raise UserError(f"digits is {self.digits}; an image has 2 of them, or 4, one in each corner")

    @cached_property
    def model(self) -> Heads:
        places = PLACES[self.digits]
        return Heads(_side(places), (), self.hidden, (), CLASSES, tasks=tuple(places), sparsity=self._connected)

    def learner(self) -> Learner:
        """Found by a small search on local training alone."""
        return Supervised(lr=0.005, optimiser="adam", batch_size=32, epochs=5)

    def data(self, clients: int, seed: int) -> Splits:
        """Pairs made from the seed and partitioned over the clients at random, evenly; all are tested on all."""
        counts = {"train": self.samples, "test": self.test_samples}
        return tested_on_all({part: self._drawn(part, count, clients, seed) for part, count in counts.items()})

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        splits = self.data(clients, seed)
        own = splits.get(OWN_TEST, splits["test"]).of_client(client)
        names = (*self.model.tasks, "image")
        columns = (*own["labels"].T.tolist(), own["image"].numpy())
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _drawn(self, part: str, count: int, clients: int, seed: int) -> Rows:
        digits, stream = _digits(part), rng.generator(rng.Address(seed), f"pairs {part}")
        return partitioned(part, *draw([digits] * self.digits, count, stream, overlaid), clients)


def overlaid(*digits: np.ndarray) -> np.ndarray:
    """Two or four times k digits `[k, 8, 8]` on k canvases; where they overlap the larger value counts."""
    places = PLACES[len(digits)]
    canvas = np.zeros((len(digits[0]), _side(places), _side(places)), dtype=np.uint8)
    for (row, column), one in zip(places.values(), digits, strict=True):
        place = canvas[:, row : row + PIXELS, column : column + PIXELS]
        np.maximum(place, one, out=place)
    return canvas


def _side(places: Mapping[str, tuple[int, int]]) -> int:
    """Height and width of a canvas."""
    return PIXELS + max(map(max, places.values()))


@cache
def _digits(part: str) -> Images:
    from sklearn.datasets import load_digits

    found = load_digits()
    place = slice(COUNTS["train"]) if part == "train" else slice(COUNTS["train"], None)
    return Images(found.images[place].astype(np.uint8), found.target[place])
