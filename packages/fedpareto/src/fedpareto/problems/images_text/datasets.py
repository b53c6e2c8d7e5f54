"""The published sets of images and texts: CIFAR, the writers of MNIST, PneumoniaMNIST, AG News and Shakespeare.

MNIST and Fashion-MNIST are shared with the multi-task problems. Nothing heavy is imported here, so that
`fedpareto data list` answers at once.
"""

from __future__ import annotations

import csv
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedpareto.config.errors import DamagedFile
from fedpareto.config.files import ARCHIVE_DAMAGE
from fedpareto.inputs.idx import parse_idx
from fedpareto.inputs.images_texts import WORD, TextInputs
from fedpareto.problems.data import GITHUB, REMEDY, DataFile, DataSet, kept_until_changed
from fedpareto.problems.multitask.datasets import MNIST, ImageSet

TORONTO = "https://www.cs.toronto.edu/~kriz"
PIXELS = (3, 32, 32)


@dataclass(frozen=True)
class Examples:
    """Inputs and labels: rows in the order of the files, training files first."""

    inputs: np.ndarray
    """`[rows, ...]`: pixels, words or characters as small whole numbers."""
    labels: np.ndarray
    """`[rows]`, 0, 1, …"""
    tested: np.ndarray
    """`[rows]`, whether a row is in the published test split."""
    origins: np.ndarray | None = None
    """`[rows]`, the natural client (0, 1, …) of a row, such as its writer, where known."""

    def census(self) -> dict[str, int]:
        counts = {"training rows": int((~self.tested).sum()), "test rows": int(self.tested.sum())}
        counts["classes"] = len(np.unique(self.labels))
        return counts if self.origins is None else {**counts, "origins": len(np.unique(self.origins))}


@dataclass(frozen=True)
class CifarSet(DataSet):
    """CIFAR-10 or CIFAR-100 in the authors' binary format; any number of training files, of any length, will do."""

    labels: int
    """Bytes before an image's pixels; the last of them is its class."""

    @kept_until_changed
    def examples(self) -> Examples:
        path = str(self.path(self.files[0]))
        parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
        for member, content in _members(self.contents()[0], path):
            part = "test" if member.startswith("test") else "train"
            parts[part].append(_records(content, self.labels, f"{path}: {member}"))
        if not parts["train"] or not parts["test"]:
            raise DamagedFile(f"{path} has no training or no test images in it; {REMEDY}")
        records = np.concatenate([*parts["train"], *parts["test"]])
        tested = np.arange(len(records)) >= sum(map(len, parts["train"]))
        images = records[:, self.labels :].reshape(-1, *PIXELS)
        return Examples(images, records[:, self.labels - 1].astype(np.int64), tested)

    def census(self) -> dict[str, int]:
        return self.examples().census()


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


@kept_until_changed
def grey_images(dataset: ImageSet) -> Examples:
    """Both parts of MNIST or Fashion-MNIST, `[rows, 1, 28, 28]`."""
    parts = [dataset.images(part) for part in ("train", "test")]
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

    @kept_until_changed
    def examples(self) -> Examples:
        digits = grey_images(MNIST)
        return replace(digits, origins=np.unique(self.writers()[1], return_inverse=True)[1])

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

    @kept_until_changed
    def examples(self) -> Examples:
        """All images, validation ones among the training ones."""
        try:
            arrays = np.load(io.BytesIO(self.contents()[0]))
            pairs = [(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "val", "test")]
        except ARCHIVE_DAMAGE:
            path = self.path(self.files[0])
            raise DamagedFile(f"{path} is damaged: it is not a MedMNIST file; {REMEDY}") from None
        images = np.concatenate([images for images, _ in pairs])[:, None]
        labels = np.concatenate([labels.reshape(-1) for _, labels in pairs]).astype(np.int64)
        return Examples(images, labels, np.arange(len(labels)) >= len(labels) - len(pairs[-1][1]))

    def census(self) -> dict[str, int]:
        examples = self.examples()
        return examples.census() | {
            f"label {label}": int(count) for label, count in enumerate(np.bincount(examples.labels))
        }


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


# -- texts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewsSet(DataSet):
    """Headlines and first sentences of news in four classes."""

    @kept_until_changed
    def articles(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Texts, classes and whether each is in the test split."""
        texts: list[str] = []
        labels: list[int] = []
        counts = []
        for content in self.contents():
            rows = list(csv.reader(io.StringIO(content.decode("utf-8"))))
            # The official files have class, title and description; the sample has a header, class, text and its source.
            is_sample = rows[0][0] == "label"
            texts += [row[1] for row in rows[1:]] if is_sample else [f"{row[1]} {row[2]}" for row in rows]
            labels += [int(row[0]) - 1 for row in rows[is_sample:]]
            counts.append(len(texts))
        return texts, np.array(labels), np.arange(len(texts)) >= counts[0]

    @kept_until_changed
    def examples(self, vocabulary: int, length: int) -> Examples:
        """Every text as its first `length` words, each by its rank among the `vocabulary` − 2 most frequent words of
        the training split. Shorter texts are padded with PADDING.
        """
        texts, labels, tested = self.articles()
        reader = TextInputs(length, self.words(vocabulary))
        numbers = reader.encode([{reader.kind: text} for text in texts]).features.astype(np.int32)
        return Examples(numbers, labels, tested)

    @kept_until_changed
    def words(self, vocabulary: int) -> tuple[str, ...]:
        """The `vocabulary` − 2 words used most, the most frequent first."""
        texts, _, tested = self.articles()
        training = (text for text, is_test in zip(texts, tested, strict=True) if not is_test)
        used = Counter(word for text in training for word in WORD.findall(text.lower()))
        # The most frequent first; in alphabetical order where two are as frequent.
        return tuple(sorted(used, key=lambda word: (-used[word], word))[: vocabulary - 2])

    def census(self) -> dict[str, int]:
        _, labels, tested = self.articles()
        return Examples(labels, labels, tested).census()


_NEWS = f"{GITHUB}/mhjabreel/CharCnn_Keras/555590db4219b1243abb1918effd6a7425a2d75f/data/ag_news_csv"
AG_NEWS = NewsSet(
    name="ag-news",
    about="AG News: headlines and first sentences in 4 classes (Zhang, Zhao and LeCun 2015)",
    terms="for research and other non-commercial use",
    folder="ag_news",
    files=(
        DataFile(
            "train.csv",
            29_470_338,
            "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
            (f"{_NEWS}/train.csv",),
            instead=DataFile(
                "train_sample_6k.csv",
                1_507_393,
                "bc4e1a5ee357f3c5c5e48b3c18b3fefcb0b31d6e4d7134a4a1b07ac8ef0c7a96",
                (),
            ),
        ),
        DataFile.at(1_857_427, "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699", f"{_NEWS}/test.csv"),
    ),
    published={"training rows": 120_000, "test rows": 7_600, "classes": 4},
)
CONTEXT = 80
"""Characters of context before the predicted one, as in LEAF (Caldas et al. 2018)."""
LEAST_SPOKEN = 2_000
"""Fewest characters of a role that is a client."""
CHARACTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The alphabet."""
SPEECH = re.compile(r"(?:\A|\n\n)([^\n:]+):\n(.*?)(?=\n\n[^\n:]+:\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class PlaySet(DataSet):
    """Scenes of Shakespeare's plays: speeches under the speakers' names."""

    def roles(self) -> dict[str, str]:
        """The text of each role with enough characters, in order of first appearance."""
        text = self.contents()[0].decode("ascii")
        said: dict[str, list[str]] = {}
        for name, speech in SPEECH.findall(text):
            said.setdefault(name, []).append(speech.strip("\n") + "\n")
        spoken = {name: "".join(speeches) for name, speeches in said.items()}
        return {name: words for name, words in spoken.items() if len(words) >= LEAST_SPOKEN}

    @kept_until_changed
    def examples(self) -> Examples:
        """Every character that a role says, after the CONTEXT ones before it.

        A role's rows are in the order of its speeches. There is no published test split.
        """
        windows, origins = [], []
        number = np.zeros(128, dtype=np.uint8)
        number[list(CHARACTERS.encode("ascii"))] = np.arange(len(CHARACTERS))
        for role, words in enumerate(self.roles().values()):
            letters = number[np.frombuffer(words.encode("ascii"), dtype=np.uint8)]
            windows.append(np.lib.stride_tricks.sliding_window_view(letters, CONTEXT + 1))
            origins.append(np.full(len(windows[-1]), role))
        rows = np.concatenate(windows)
        none = np.zeros(len(rows), dtype=bool)
        return Examples(rows[:, :CONTEXT], rows[:, CONTEXT].astype(np.int64), none, np.concatenate(origins))

    def census(self) -> dict[str, int]:
        roles = self.roles()
        return {"roles": len(roles), "characters": sum(map(len, roles.values()))}


SHAKESPEARE = PlaySet(
    name="shakespeare",
    about="Scenes of Shakespeare's plays, one megabyte (as collected by Karpathy 2015)",
    terms="public domain",
    folder="shakespeare",
    files=(
        DataFile(
            "tinyshakespeare.txt",
            1_115_394,
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            (f"{GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",),
        ),
    ),
    published={"roles": 99, "characters": 915_101},
)

CATALOGUE: dict[str, DataSet] = {
    dataset.name: dataset for dataset in (CIFAR10, CIFAR100, QMNIST, PNEUMONIA, AG_NEWS, SHAKESPEARE)
}
