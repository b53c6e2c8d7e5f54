"""Images and texts as a network reads them; tables of columns have `inputs.table`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedpareto.config.errors import UserError, reading
from fedpareto.inputs.table import Encoded, InputSchema

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
"""A word in a lower-case text."""
PADDING, UNKNOWN = 0, 1
"""The indices of padding and of out-of-vocabulary words."""


@dataclass(frozen=True)
class ImageInputs:
    """Pixels from 0 to 255."""

    kind: ClassVar[str] = "image"
    shape: tuple[int, ...]
    """Channels, height and width, or height and width alone."""

    @property
    def columns(self) -> dict[str, str]:
        return {self.kind: f"pixels from 0 to 255 as {list(self.shape)}"}

    def require(self, names: Iterable[str], where: str) -> None:
        if self.kind not in [str(name) for name in names]:
            raise UserError(f"{where} has no '{self.kind}'")

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Rows with an "image" each, `[rows, *shape]`; one grey channel may be left out, or channels may come last."""
        images = []
        for number, row in enumerate(rows, start=1):
            self.require(row, f"row {number}")
            images.append(self._image(row[self.kind], number))
        return Encoded(np.stack(images), {})

    def _image(self, given: Any, number: int) -> np.ndarray:
        try:
            image = np.asarray(given)
        except ValueError:
            image = np.empty(0, dtype=object)
        squeezed = tuple(size for size in self.shape if size != 1)
        if image.shape == (*self.shape[1:], self.shape[0]) and len(self.shape) == 3:
            image = np.moveaxis(image, -1, 0)
        elif tuple(size for size in image.shape if size != 1) == squeezed:
            image = image.reshape(self.shape)
        if image.shape != self.shape:
            raise UserError(f"row {number}: the image has the shape {list(image.shape)} instead of {list(self.shape)}")
        if image.dtype.kind not in "iuf" or not ((image >= 0) & (image <= 255)).all():
            raise UserError(f"row {number}: the image's pixels should be numbers from 0 to 255")
        return image.astype(np.uint8)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "shape": list(self.shape)}


@dataclass(frozen=True)
class TextInputs:
    """Numbers of words, or of characters."""

    kind: ClassVar[str] = "text"
    length: int
    """Number of words that are read, from the beginning, or of characters, from the end."""
    words: tuple[str, ...] = ()
    """The vocabulary, most frequent first; their numbers begin at 2."""
    characters: str = ""
    """Characters that have a number, from 0, in place of words."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def columns(self) -> dict[str, str]:
        return {self.kind: self.kind}

    def require(self, names: Iterable[str], where: str) -> None:
        if self.kind not in [str(name) for name in names]:
            raise UserError(f"{where} has no column '{self.kind}'")

    @property
    def numbers(self) -> int:
        """Bound above all numbers of words or characters."""
        return len(self.words) + 2 if self.words else len(self.characters)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        entries = self.words or self.characters
        return {entry: rank for rank, entry in enumerate(entries, start=2 if self.words else 0)}

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Rows with a "text" each, `[rows, length]`; unknown is a text without any known word."""
        texts = []
        for number, row in enumerate(rows, start=1):
            self.require(row, f"row {number}")
            if not isinstance(row[self.kind], str):
                raise UserError(f"row {number}: '{self.kind}' is not a text")
            texts.append(row[self.kind])
        numbers = np.full((len(rows), self.length), PADDING, dtype=np.int64)
        strange = np.zeros(len(rows), dtype=bool)
        for place, text in enumerate(texts):
            if self.words:
                found = [self._numbers.get(word, UNKNOWN) for word in WORD.findall(text.lower())[: self.length]]
                numbers[place, : len(found)] = found
                strange[place] = all(entry == UNKNOWN for entry in found)
            else:
                # What is before the text is what is before every speech: the end of another line.
                found = [self._numbers[letter] for letter in text if letter in self._numbers][-self.length :]
                numbers[place, self.length - len(found) :] = found
                strange[place] = not found
        return Encoded(numbers, {self.kind: strange} if strange.any() else {})

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "length": self.length, "words": list(self.words), "characters": self.characters}


Inputs = InputSchema | ImageInputs | TextInputs


def inputs_from_json(plain: Any, source: str) -> Inputs:
    """Inverse of each `to_json`; `source` is named if it is damaged."""
    with reading(source):
        if plain["kind"] == InputSchema.kind:
            return InputSchema.from_json(plain, source)
        if plain["kind"] == ImageInputs.kind:
            return ImageInputs(tuple(int(size) for size in plain["shape"]))
        if plain["kind"] == TextInputs.kind:
            return TextInputs(int(plain["length"]), tuple(map(str, plain["words"])), str(plain["characters"]))
        raise ValueError(f"'{plain['kind']}' is not a kind of input")
