"""MNIST and Fashion-MNIST: the published image sets behind multi-task images.

Nothing heavy is imported here, so that `fedpareto data list` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedpareto.inputs.idx import parse_idx
from fedpareto.problems.data import DataFile, DataSet, kept_until_changed, verified

CLASSES = 10
DIGITS = tuple(map(str, range(CLASSES)))
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""Names of the classes, in the order of their numbers."""
PIXELS = 28
"""Height and width of an image in both sets."""
PARTS: Mapping[str, tuple[int, int]] = {"train": (0, 60_000), "test": (2, 10_000)}
"""Index of each split's images in `files`, followed by their labels, and their number."""


@dataclass(frozen=True)
class Images:
    """Images and labels, in the order of the files."""

    pixels: np.ndarray
    """`[k, 28, 28]`, 0 (background) to 255."""
    labels: np.ndarray
    """`[k]`, 0 to 9."""


@dataclass(frozen=True)
class ImageSet(DataSet):
    """A published set of small greyscale images in ten classes, in the format of MNIST."""

    @kept_until_changed
    def images(self, part: str) -> Images:
        first = PARTS[part][0]
        paths = {file: self.path(file) for file in self.files[first : first + 2]}
        return Images(*(parse_idx(verified(file, path), str(path)) for file, path in paths.items()))

    def census(self) -> dict[str, int]:
        labels = [self.images(part).labels for part in PARTS]
        counts = {f"{part} images": len(found) for part, found in zip(PARTS, labels, strict=True)}
        for label in range(CLASSES):
            counts[f"label {label}"] = int(sum((found == label).sum() for found in labels))
        return counts


def _files(checksums: tuple[str, ...], *origins: str) -> tuple[DataFile, ...]:
    """The four files of such a set, training split first; both sets have the same names and sizes."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    return tuple(
        DataFile(f"{name}-ubyte", size, checksum, tuple(f"{origin}/{name}-ubyte.gz" for origin in origins))
        for name, size, checksum in zip(names, sizes, checksums, strict=True)
    )


def _published(*labels: int) -> dict[str, int]:
    counts = {f"{part} images": count for part, (_, count) in PARTS.items()}
    return counts | {f"label {label}": count for label, count in enumerate(labels)}


MNIST = ImageSet(
    name="mnist",
    about="MNIST: handwritten digits (LeCun, Cortes and Burges 1998)",
    terms="CC BY-SA 3.0",
    folder="mnist",
    files=_files(
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    published=_published(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
)

FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    about="Fashion-MNIST: pieces of clothing (Xiao, Rasul and Vollgraf 2017)",
    terms="MIT",
    folder="fashion_mnist",
    files=_files(
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    published=_published(*[7000] * CLASSES),
)

CATALOGUE: dict[str, ImageSet] = {dataset.name: dataset for dataset in (MNIST, FASHION_MNIST)}
