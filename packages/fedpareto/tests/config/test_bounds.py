"""Bounds of a dataclass's fields: what they let in, what a refusal says, and that every class keeps to its own."""

from __future__ import annotations

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from fedpareto import UserError
from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config import bounds
from fedpareto.config.bounds import Above, AtLeast, Bounded, Bounds, Count, Endless, Positive, Share, ShareBelowOne
from fedpareto.config.described import parameters
from fedpareto.config.parameters import build
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import algorithms, problems
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.faults import Faults
from fedpareto.learners.ddpg import DDPG
from fedpareto.learners.dqn import DQN
from fedpareto.learners.supervised import Supervised
from fedpareto.spec import backends
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence


@dataclass(frozen=True)
class Plain(Bounded):
    """A class with bounds: nothing but its fields."""

    lr: Positive = 0.1
    beta: ShareBelowOne = 0.9
    epochs: Count = 1
    limit: Endless = math.inf
    top: Annotated[float | None, AtLeast(0, 1, "a share")] = None
    widths: Annotated[tuple[float, ...], Above(0, 1)] = (1.0,)
    free: float = 0.0


@dataclass(frozen=True)
class Other(Plain):
    """Another default keeps the bounds, other bounds replace them, and a rule of its own comes after them."""

    prefix: ClassVar[str] = "engine: "

    beta: float = 0.5
    epochs: Annotated[int, AtLeast(0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta > self.lr * 10:
            raise UserError("beta is too large for lr")


@dataclass(frozen=True)
class Last(Other):
    """A class that says nothing."""


@pytest.mark.parametrize(
    ("limits", "within", "outside", "words"),
    [
        (Above(0), [1e-9, 1e300, 5], [0, -1], "above 0"),
        (AtLeast(0), [0, 0.5], [-1e-9], "at least 0"),
        (AtLeast(0, 1), [0, 1], [-0.1, 1.1], "at least 0 and at most 1"),
        (Above(0, 1, "a share"), [0.1, 1], [0, 1.1], "a share above 0 and at most 1"),
        (AtLeast(0, below=1), [0, 0.999], [1, -1], "at least 0 and below 1"),
        (AtLeast(2, besides=(0,)), [0, 2], [1, -1], "at least 2, or 0"),
        (Bounds(below=1), [0.9, -5, -math.inf], [1], "below 1"),
        (Above(-math.inf), [0, -1e300], [-math.inf], "a finite number"),
    ],
    ids=str,
)
def test_what_is_within_bounds(limits, within, outside, words):
    assert all(map(limits.holds, within))
    assert not any(map(limits.holds, [*outside, math.nan, math.inf]))
    assert str(limits) == words


def test_infinity_is_refused_unless_it_is_named():
    endless = Above(0, besides=(math.inf,))
    assert endless.holds(math.inf)
    assert not any(map(endless.holds, [-math.inf, math.nan, 0]))
    assert str(endless) == "above 0, or inf"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.0}, "lr is 0; it is above 0"),
        ({"lr": math.nan}, "lr is nan; it is above 0"),
        ({"beta": 1.5}, "beta is 1.5; it is at least 0 and below 1"),
        ({"epochs": 0}, "epochs is 0; it is at least 1"),
        ({"limit": -1.0}, "limit is -1; it is above 0, or inf"),
        ({"top": 2.0}, "top is 2; it is a share at least 0 and at most 1"),
        ({"widths": (2.0,)}, "widths is 2; it is above 0 and at most 1"),
        ({"widths": (1.0, 0.0)}, "widths has 0; each is above 0 and at most 1"),
    ],
)
def test_a_refusal_names_the_parameter_its_value_and_what_is_right(given, message):
    with pytest.raises(UserError) as refused:
        Plain(**given)
    assert str(refused.value) == message


def test_what_is_not_given_and_what_has_no_bounds_is_not_checked():
    assert Plain(top=None, widths=(), free=math.nan).top is None


@pytest.mark.parametrize("cls", [Other, Last])
def test_a_subclass_keeps_its_parents_bounds(cls):
    for given, message in (
        ({"lr": -1.0}, "engine: lr is -1; it is above 0"),
        ({"beta": 1.0}, "engine: beta is 1; it is at least 0 and below 1"),
        ({"epochs": -1}, "engine: epochs is -1; it is at least 0"),
        ({"beta": 0.9, "lr": 0.01}, "beta is too large for lr"),
    ):
        with pytest.raises(UserError) as refused:
            cls(**given)
        assert str(refused.value) == message
    assert cls(epochs=0).epochs == 0
    assert bounds.bounds_of(Plain)["epochs"].least == 1


def test_types_are_read_through_bounds():
    built = build(Plain, {"lr": 1, "top": 1, "widths": [1, 0.5], "limit": "inf"}, "plain")
    assert built == Plain(lr=1.0, top=1.0, widths=(1.0, 0.5))
    assert isinstance(built.lr, float)
    with pytest.raises(UserError, match="plain: lr is 'fast'; it should be a number"):
        build(Plain, {"lr": "fast"}, "plain")
    types = {one["name"]: one["type"] for one in parameters(Plain)}
    assert types["lr"] == types["top"] == "number"
    assert (types["epochs"], types["widths"]) == ("whole number", "list")


def bounded() -> list[type]:
    """Every class of the packages whose fields have bounds."""
    _ = algorithms(), problems(), [backends.backend(name) for name in backends.names()]  # Imports them.
    found, new = set(), [Bounded]
    while new:
        new = [one for cls in new for one in cls.__subclasses__() if one not in found]
        found |= set(new)
    ours = [cls for cls in found if cls.__module__.startswith("fedpareto") and not inspect.isabstract(cls)]
    return sorted((cls for cls in ours if bounds.bounds_of(cls)), key=lambda cls: f"{cls.__module__}.{cls.__name__}")


def needed(cls):
    """A value for each field without a default."""
    fields = [one for one in dataclasses.fields(cls) if one.default is one.default_factory is dataclasses.MISSING]
    return {field.name: 1 for field in fields}


def test_every_class_checks_its_bounds():
    """Also where it has rules of its own: none of them forgets those of the class above it."""
    classes = bounded()
    assert {Supervised, DQN, DDPG, Devices, Policy, Selection, Attack, Defence, Privacy, SecureSum, Faults} < set(
        classes
    )
    for cls in classes:
        for name in bounds.bounds_of(cls):
            default: Any = {field.name: field.default for field in dataclasses.fields(cls)}[name]
            wrong = (math.nan,) if isinstance(default, tuple) else math.nan
            with pytest.raises(UserError, match=rf"^{cls.prefix}{name} is nan; it is "):
                cls(**needed(cls) | {name: wrong})


def test_defaults_are_within_bounds():
    for cls in bounded():
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING:
                bounds.check(cls, field.name, field.default)


def test_bounds_by_name():
    assert [str(Share.__metadata__[0]), str(Count.__metadata__[0])] == ["at least 0 and at most 1", "at least 1"]
