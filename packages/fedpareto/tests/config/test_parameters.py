from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.algorithms.clustered.fedpref import FedPref, FedPrefClustering
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build, parse_value, to_plain
from fedpareto.config.source import field_docs
from fedpareto.contract.registry import algorithms, problems


@dataclass(frozen=True)
class Example:
    rate: float = 0.1
    count: int = 3
    on: bool = True
    kind: Literal["fast", "slow"] = "fast"
    widths: tuple[int, ...] = (4, 2)
    maybe: float | None = None
    span: tuple[float, float] = (0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rate", "1", 1.0),
        ("rate", "-inf", -math.inf),
        ("rate", "1e-3", 0.001),
        ("count", "7", 7),
        ("count", "7.0", 7),
        ("on", "false", False),
        ("kind", "slow", "slow"),
        ("widths", "[8, 8]", (8, 8)),
        ("widths", "16", (16,)),
        ("widths", "8,4", (8, 4)),
        ("maybe", "none", None),
        ("maybe", "2", 2.0),
    ],
)
def test_what_a_user_writes_becomes_the_fields_type(name, text, value):
    built = getattr(build(Example, {name: parse_value(text)}, "example"), name)
    assert built == value
    assert type(built) is type(value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rat": 1}, "unknown parameter of example 'rat'; did you mean 'rate'?"),
        ({"rate": "fast"}, "example: rate is 'fast'; it should be a number"),
        ({"rate": True}, "example: rate is True; it should be a number"),
        ({"count": 1.5}, "example: count is 1.5; it should be a whole number"),
        ({"on": 1}, "example: on is 1; it should be true or false"),
        ({"kind": "fst"}, "unknown value of example: kind 'fst'; did you mean 'fast'?"),
        ({"widths": ["a"]}, "example: widths is 'a'; it should be a whole number"),
        ({"span": 1.0}, "example: span is 1.0; it should be 2 values"),
        ({"span": [1, 2, 3]}, "example: span is [1, 2, 3]; it should be 2 values"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(values, message):
    with pytest.raises(UserError) as problem:
        build(Example, values, "example")
    assert str(problem.value) == message


def test_parameters_survive_the_way_to_a_file_and_back():
    for cls in [*algorithms().values(), *problems().values()]:
        assert build(cls, to_plain(cls()), cls.name) == cls()


def test_every_hyper_parameter_of_every_algorithm_and_problem_is_explained():
    for cls in [*algorithms().values(), *problems().values(), *(type(p().learner()) for p in problems().values())]:
        docs = field_docs(cls)
        missing = [name for name in to_plain(cls()) if not docs.get(name)]
        assert not missing, f"{cls.__name__}: {missing} have no line of prose"


def test_a_subclass_inherits_the_prose_of_its_fields():
    assert field_docs(FedPrefClustering)["patience"] == field_docs(FedPref)["patience"]
    assert field_docs(FedProx)["weighting"].startswith("Weighting of clients")
