"""Predictions in the user's terms: the class with all probabilities, or the action to take."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpareto.contract.outputs import PROBABILITY, Output
from fedpareto.record.servable import Card
from fedpareto_serve.models import decided, is_yes_or_no
from fedpareto_serve.predictions import Predictions


def meaning(card: Card) -> str:
    """The meaning of the outputs, in one line; empty where the problem does not say."""
    if is_yes_or_no(card):
        return "".join(f"probability of '{output.positive}' ({output.name})" for output in card.outputs)
    return "; ".join(_meaning(output) for output in card.outputs)


def _meaning(output: Output) -> str:
    if not output.classes:
        return output.name
    return f"{output.name}: one of {len(output.classes)}, with the {output.measure} of each"


def by_row(card: Card, found: Predictions) -> list[dict[str, Any]]:
    """Answers by output for each row: the class and the values of all classes, or a number."""
    rows = zip(found.probabilities, found.decisions, strict=True)
    return [
        {output.name: _answer(output, said[head], int(best[head])) for head, output in enumerate(card.outputs)}
        for said, best in rows
    ]


def _answer(output: Output, said: np.ndarray, best: int) -> Any:
    if not output.classes:
        return float(said[0])
    many = "probabilities" if output.measure == PROBABILITY else "values"
    return {"class": output.classes[best], many: dict(zip(output.classes, said.tolist(), strict=True))}


def header(card: Card) -> list[str]:
    if is_yes_or_no(card):
        return ["probability", "decision"]
    names: list[str] = []
    for output in card.outputs:
        shown = (name if name.isprintable() else repr(name)[1:-1] for name in output.classes)
        names += [output.name, *(f"{output.measure} of {name} ({output.name})" for name in shown)]
    return names


def fields(card: Card, found: Predictions, row: int) -> list[Any]:
    if is_yes_or_no(card):
        return [f"{found.probabilities[row]:.6f}", decided(card)[int(found.decisions[row])]]
    values: list[Any] = []
    for head, output in enumerate(card.outputs):
        said = [f"{number:.6f}" for number in found.probabilities[row, head]]
        values += [output.classes[int(found.decisions[row, head])], *said] if output.classes else said[:1]
    return values
