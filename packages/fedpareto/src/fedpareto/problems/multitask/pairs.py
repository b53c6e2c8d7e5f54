"""Two overlaid images, as Sener and Koltun (2018) make Multi-MNIST.

The left image is in the top-left corner of a canvas of 36 × 36 pixels, the right one 6 pixels below and to the
right of it; where they overlap the larger value of a pixel counts. The canvas is then resized to 28 × 28 by
nearest-neighbour interpolation. Their code also stretches each image to the full range of grey, which we omit: nearly
all have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedpareto.problems.multitask.datasets import PIXELS, Images

CANVAS = 36
OFFSET = 6
NEAREST = ((np.arange(PIXELS) + 0.5) * CANVAS / PIXELS).astype(int)
"""The canvas's row (or column) whose middle is nearest to the middle of each row of the image."""


def overlaid(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Left and right images `[k, 28, 28]` overlaid, `[k, 28, 28]`."""
    canvas = np.zeros((len(left), CANVAS, CANVAS), dtype=np.uint8)
    canvas[:, :PIXELS, :PIXELS] = left
    place = canvas[:, OFFSET : OFFSET + PIXELS, OFFSET : OFFSET + PIXELS]
    np.maximum(place, right, out=place)
    return canvas[:, NEAREST[:, None], NEAREST]


def draw(
    sets: Sequence[Images],
    count: int,
    stream: np.random.Generator,
    lay: Callable[..., np.ndarray] = overlaid,
) -> tuple[np.ndarray, np.ndarray]:
    """`count` images laid over each other, one of each set, `[count, height, width]`, and their labels `[count, k]`.

    No first image, such as the left one of two, is drawn twice; the others are drawn independently of it.
    """
    first, *others = sets
    chosen = [stream.permutation(len(first.labels))[:count]]
    chosen += [stream.integers(0, len(other.labels), size=count) for other in others]
    images = lay(*(one.pixels[rows] for one, rows in zip(sets, chosen, strict=True)))
    return images, np.stack([one.labels[rows] for one, rows in zip(sets, chosen, strict=True)], axis=1)
