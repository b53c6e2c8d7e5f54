"""What the one output of a binary model decides."""

from __future__ import annotations

from typing import Any

from fedpareto.record.servable import Card


def is_yes_or_no(card: Card) -> bool:
    """Whether the one output is the probability of a positive decision."""
    return card.network is None


def decided(card: Card) -> tuple[Any, Any]:
    """The negative and the positive decision in the label's own values; 0 and 1 where those are not known.

    Whole numbers are numbers: a label of 1 and 2 has decisions of 1 and 2.
    """
    classes = next((output.classes for output in card.outputs if len(output.classes) == 2), ("0", "1"))
    negative, positive = (int(name) if name.isdecimal() else name for name in classes)
    return negative, positive
