"""The published sets of texts: AG News and Shakespeare's plays."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpareto.inputs.images_texts import WORD, TextInputs
from fedpareto.problems.data import GITHUB, DataFile, DataSet
from fedpareto.problems.images_text.examples import Examples


@dataclass(frozen=True)
class NewsSet(DataSet):
    """Headlines and first sentences of news in four classes."""

    def articles(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Texts, classes and whether each is in the test split; read once until a file changes."""
        return _articles(self.name, self.stamps())

    def examples(self, vocabulary: int, length: int) -> Examples:
        """Every text as its first `length` words, each by its rank among the `vocabulary` − 2 most frequent words of
        the training split. Shorter texts are padded with PADDING.
        """
        return _words(self.name, vocabulary, length, self.stamps())

    def words(self, vocabulary: int) -> tuple[str, ...]:
        """The `vocabulary` − 2 words used most, the most frequent first."""
        return _ranked(self.name, vocabulary, self.stamps())

    def census(self) -> dict[str, int]:
        _, labels, tested = self.articles()
        return Examples(labels, labels, tested).census()


@lru_cache(maxsize=1)
def _articles(name: str, stamps: tuple[tuple[str, int], ...]) -> tuple[list[str], np.ndarray, np.ndarray]:
    texts: list[str] = []
    labels: list[int] = []
    counts = []
    for content in TEXTS[name].contents():
        rows = list(csv.reader(io.StringIO(content.decode("utf-8"))))
        # The official files have class, title and description; the sample has a header, class, text and its source.
        texts += [row[1] for row in rows[1:]] if rows[0][0] == "label" else [f"{row[1]} {row[2]}" for row in rows]
        labels += [int(row[0]) - 1 for row in (rows[1:] if rows[0][0] == "label" else rows)]
        counts.append(len(texts))
    return texts, np.array(labels), np.arange(len(texts)) >= counts[0]


@lru_cache(maxsize=2)
def _words(name: str, vocabulary: int, length: int, stamps: tuple[tuple[str, int], ...]) -> Examples:
    texts, labels, tested = _articles(name, stamps)
    reader = TextInputs(length, _ranked(name, vocabulary, stamps))
    numbers = reader.encode([{reader.kind: text} for text in texts]).features.astype(np.int32)
    return Examples(numbers, labels, tested)


@lru_cache(maxsize=2)
def _ranked(name: str, vocabulary: int, stamps: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    texts, _, tested = _articles(name, stamps)
    training = (text for text, is_test in zip(texts, tested, strict=True) if not is_test)
    used = Counter(word for text in training for word in WORD.findall(text.lower()))
    # The most frequent first; in alphabetical order where two are as frequent.
    return tuple(sorted(used, key=lambda word: (-used[word], word))[: vocabulary - 2])


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
        DataFile(
            "test.csv",
            1_857_427,
            "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
            (f"{_NEWS}/test.csv",),
        ),
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

    def examples(self) -> Examples:
        """Every character that a role says, after the CONTEXT ones before it; read once until the file changes.

        A role's rows are in the order of its speeches. There is no published test split.
        """
        return _characters(self.name, self.stamps())

    def census(self) -> dict[str, int]:
        roles = self.roles()
        return {"roles": len(roles), "characters": sum(map(len, roles.values()))}


@lru_cache(maxsize=1)
def _characters(name: str, stamps: tuple[tuple[str, int], ...]) -> Examples:
    dataset = TEXTS[name]
    assert isinstance(dataset, PlaySet)
    windows, origins = [], []
    number = np.zeros(128, dtype=np.uint8)
    number[list(CHARACTERS.encode("ascii"))] = np.arange(len(CHARACTERS))
    for role, words in enumerate(dataset.roles().values()):
        letters = number[np.frombuffer(words.encode("ascii"), dtype=np.uint8)]
        windows.append(np.lib.stride_tricks.sliding_window_view(letters, CONTEXT + 1))
        origins.append(np.full(len(windows[-1]), role))
    rows = np.concatenate(windows)
    none = np.zeros(len(rows), dtype=bool)
    return Examples(rows[:, :CONTEXT], rows[:, CONTEXT].astype(np.int64), none, np.concatenate(origins))


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


TEXTS: dict[str, DataSet] = {dataset.name: dataset for dataset in (AG_NEWS, SHAKESPEARE)}
