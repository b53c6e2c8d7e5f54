"""Meaning of a model's outputs, in the user's terms: enough to read a prediction without the data it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROBABILITY, VALUE = "probability", "value"


@dataclass(frozen=True)
class Output:
    """One thing that a model predicts: a label's column, a task of several, or the action to take."""

    name: str
    """Name of the column or task, such as "income"."""
    classes: tuple[str, ...]
    """Possible answers, in the order of the model's own outputs; of a yes-or-no answer first the negative one, then the
    positive one, whose probability the model gives. None: the answer is a number.
    """
    measure: str = PROBABILITY
    """Measure that the model gives of each class: its probability, or what it is worth (VALUE)."""

    @property
    def positive(self) -> str:
        """The one of two classes that counts as 1."""
        return self.classes[-1]

    @property
    def is_probable(self) -> bool:
        """True if the model gives a probability of each class, so that they sum to 1."""
        return bool(self.classes) and self.measure == PROBABILITY

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "classes": list(self.classes), "measure": self.measure}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Output:
        """The inverse of `to_json`."""
        classes = tuple(str(name) for name in plain["classes"])
        return cls(str(plain["name"]), classes, str(plain.get("measure", PROBABILITY)))
