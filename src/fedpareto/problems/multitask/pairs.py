"""Two overlaid images, as Sener and Koltun (2018) make Multi-MNIST.

The left image is in the top-left corner of a canvas of 36 × 36 pixels, the right one 6 pixels below and to the
right of it; where they overlap the larger value of a pixel counts. The canvas is then resized to 28 × 28 by
nearest-neighbour interpolation. Their code also stretches each image to the full range of grey, which we omit: nearly
all have it.
"""

from __future__ import annotations

from collections.abc import Callable

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
    left: Images,
    right: Images,
    count: int,
    stream: np.random.Generator,
    lay: Callable[[np.ndarray, np.ndarray], np.ndarray] = overlaid,
) -> tuple[np.ndarray, np.ndarray]:
    """`count` images laid over each other `[count, height, width]` and their labels `[count, 2]`, left first.

    No left image is drawn twice; the right ones are drawn independently of them.
    """
    lefts = stream.permutation(len(left.labels))[:count]
    rights = stream.integers(0, len(right.labels), size=count)
    images = lay(left.pixels[lefts], right.pixels[rights])
    return images, np.stack([left.labels[lefts], right.labels[rights]], axis=1)
