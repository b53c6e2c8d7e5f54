"""The published sets of images: CIFAR, MNIST and who wrote it, PneumoniaMNIST.

MNIST and Fashion-MNIST are shared with the multi-task problems.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpareto.config.errors import DamagedFile
from fedpareto.config.files import ARCHIVE_DAMAGE
from fedpareto.inputs.idx import parse_idx
from fedpareto.problems.data import GITHUB, REMEDY, DataFile, DataSet
from fedpareto.problems.images_text.examples import Examples
from fedpareto.problems.multitask.datasets import ImageSet

TORONTO = "https://www.cs.toronto.edu/~kriz"
PIXELS = (3, 32, 32)


@dataclass(frozen=True)
class CifarSet(DataSet):
    """CIFAR-10 or CIFAR-100 in the authors' binary format; any number of training files, of any length, will do."""

    labels: int
    """Bytes before an image's pixels; the last of them is its class."""

    def examples(self) -> Examples:
        """All images, read once until the file changes."""
        return _cifar(self.name, self.stamps())

    def census(self) -> dict[str, int]:
        return self.examples().census()


@lru_cache(maxsize=2)
def _cifar(name: str, stamps: tuple[tuple[str, int], ...]) -> Examples:
    dataset = IMAGES[name]
    assert isinstance(dataset, CifarSet)
    ((path, _),) = stamps
    parts = {"train": [np.empty((0, 0), np.uint8)], "test": [np.empty((0, 0), np.uint8)]}
    for member, content in _members(dataset.contents()[0], path):
        part = "test" if member.startswith("test") else "train"
        parts[part].append(_records(content, dataset.labels, f"{path}: {member}"))
    found = {part: records[1:] for part, records in parts.items()}
    if not found["train"] or not found["test"]:
        raise DamagedFile(f"{path} has no training or no test images in it; {REMEDY}")
    records = np.concatenate([*found["train"], *found["test"]])
    tested = np.arange(len(records)) >= sum(map(len, found["train"]))
    images = records[:, dataset.labels :].reshape(-1, *PIXELS)
    return Examples(images, records[:, dataset.labels - 1].astype(np.int64), tested)


def _members(archive: bytes, path: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of each data file (`….bin`) in an archive, in order of their names."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for member in sorted(files.getmembers(), key=lambda member: member.name):
                stream = files.extractfile(member) if member.name.endswith(".bin") else None
                if stream is not None:
                    yield member.name.rpartition("/")[2], stream.read()
    except (tarfile.TarError, *ARCHIVE_DAMAGE):
        raise DamagedFile(f"{path} is damaged: it cannot be unpacked; {REMEDY}") from None


def _records(content: bytes, labels: int, source: str) -> np.ndarray:
    """`[images, labels + 3072]`."""
    length = labels + int(np.prod(PIXELS))
    if not content or len(content) % length:
        raise DamagedFile(f"{source} is damaged: {len(content):,} bytes are not images of {length:,} bytes; {REMEDY}")
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, length)


CIFAR10 = CifarSet(
    name="cifar10",
    about="CIFAR-10: small photographs in 10 classes (Krizhevsky 2009); a subset in the same format will do",
    terms="none stated; for research",
    folder="cifar10",
    files=(
        DataFile(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            (f"{TORONTO}/cifar-10-binary.tar.gz",),
            is_open=True,
        ),
    ),
    published={"training rows": 50_000, "test rows": 10_000, "classes": 10},
    labels=1,
)
CIFAR100 = CifarSet(
    name="cifar100",
    about="CIFAR-100: small photographs in 100 classes (Krizhevsky 2009); a subset in the same format will do",
    terms="none stated; for research",
    folder="cifar100",
    files=(
        DataFile(
            "cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            (f"{TORONTO}/cifar-100-binary.tar.gz",),
            is_open=True,
        ),
    ),
    published={"training rows": 50_000, "test rows": 10_000, "classes": 100},
    labels=2,
)


def grey_images(dataset: ImageSet) -> Examples:
    """Both parts of MNIST or Fashion-MNIST, `[rows, 1, 28, 28]`."""
    return _grey(dataset.name, dataset.stamps())


@lru_cache(maxsize=2)
def _grey(name: str, stamps: tuple[tuple[str, int], ...]) -> Examples:
    from fedpareto.problems.multitask import datasets

    parts = [datasets.CATALOGUE[name].images(part) for part in ("train", "test")]
    labels = np.concatenate([part.labels for part in parts]).astype(np.int64)
    pixels = np.concatenate([part.pixels for part in parts])[:, None]
    return Examples(pixels, labels, np.arange(len(labels)) >= len(parts[0].labels))


@dataclass(frozen=True)
class WriterSet(DataSet):
    """Writers of MNIST's digits: the label files of QMNIST, whose first rows are MNIST's in MNIST's order."""

    def writers(self) -> tuple[np.ndarray, np.ndarray]:
        """Class and writer (as numbered by NIST) of MNIST's 60,000 training and then 10,000 test digits."""
        training, test = (
            parse_idx(content, file.name) for content, file in zip(self.contents(), self.files, strict=True)
        )
        rows = np.concatenate([training[:60_000], test[:10_000]])
        return rows[:, 0], rows[:, 2]

    def census(self) -> dict[str, int]:
        writers = self.writers()[1]
        return {
            "training writers": len(np.unique(writers[:60_000])),
            "test writers": len(np.unique(writers[60_000:])),
            "writers": len(np.unique(writers)),
        }


QMNIST = WriterSet(
    name="qmnist",
    about="QMNIST's labels: who wrote each digit of MNIST (Yadav and Bottou 2019)",
    terms="BSD-3-Clause",
    folder="mnist",
    files=tuple(
        DataFile(
            f"qmnist-{part}-labels-idx2-int",
            1_920_012,
            checksum,
            (
                f"{GITHUB}/facebookresearch/qmnist/94061367ec2e099ea18c553c75727ecf849ddb9b/"
                f"qmnist-{part}-labels-idx2-int.gz",
            ),
        )
        for part, checksum in (
            ("train", "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5"),
            ("test", "92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd"),
        )
    ),
    published={"training writers": 539, "test writers": 297, "writers": 836},
)


@dataclass(frozen=True)
class MedicalSet(DataSet):
    """A set of MedMNIST: arrays of training, validation and test images and labels."""

    def examples(self) -> Examples:
        """All images, validation ones among the training ones; read once until the file changes."""
        return _medical(self.name, self.stamps())

    def census(self) -> dict[str, int]:
        examples = self.examples()
        return examples.census() | {
            f"label {label}": int(count) for label, count in enumerate(np.bincount(examples.labels))
        }


@lru_cache(maxsize=1)
def _medical(name: str, stamps: tuple[tuple[str, int], ...]) -> Examples:
    ((path, _),) = stamps
    try:
        arrays = np.load(io.BytesIO(IMAGES[name].contents()[0]))
        parts = [(arrays[f"{part}_images"], arrays[f"{part}_labels"].reshape(-1)) for part in ("train", "val", "test")]
    except ARCHIVE_DAMAGE:
        raise DamagedFile(f"{path} is damaged: it is not a MedMNIST file; {REMEDY}") from None
    images = np.concatenate([images for images, _ in parts])[:, None]
    labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return Examples(images, labels, np.arange(len(labels)) >= len(labels) - len(parts[-1][1]))


PNEUMONIA = MedicalSet(
    name="pneumonia-mnist",
    about="PneumoniaMNIST: chest X-rays of children (MedMNIST v2, Yang et al. 2023)",
    terms="CC BY 4.0",
    folder="pneumoniamnist",
    files=(
        DataFile(
            "pneumoniamnist.npz",
            4_170_669,
            "28209eda62fecd6e6a2d98b1501bb15f",
            ("https://zenodo.org/records/10519652/files/pneumoniamnist.npz",),
            # The same images in another order are as good.
            is_open=True,
        ),
    ),
    published={"training rows": 5_232, "test rows": 624, "classes": 2, "label 0": 1_583, "label 1": 4_273},
)


IMAGES: dict[str, DataSet] = {dataset.name: dataset for dataset in (CIFAR10, CIFAR100, QMNIST, PNEUMONIA)}
