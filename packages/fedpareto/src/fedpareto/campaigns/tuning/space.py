"""What is searched: keys of a spec, and the values that each may have."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fedpareto.campaigns.parallel import ONE_TO_A_CORE
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import NAMED_SECTIONS, Spec

if TYPE_CHECKING:
    import optuna

MOST_POINTS = 10_000
"""Of a grid; more are a slip of the hand."""
PLAIN = (str, bool, int, float)
Values = dict[str, Any]
"""By key of a spec."""


class Axis(ABC):
    """The values that one key may have."""

    @abstractmethod
    def names(self, key: str) -> list[str]:
        """What its parameters are called in a study."""

    @abstractmethod
    def suggested(self, trial: optuna.Trial, key: str) -> Any:
        """A value that a sampler chose."""

    @abstractmethod
    def read(self, parameters: Mapping[str, Any], key: str) -> Any:
        """The value that a study's parameters stand for."""

    @abstractmethod
    def ends(self) -> list[Any]:
        """Some of the values, which are checked before anything runs: all of a list, both ends of a range."""

    def points(self, key: str) -> list[Mapping[str, Any]]:
        """All values as parameters of a study, for a grid."""
        raise UserError(f"{key} is a range; a grid needs a list of values, such as [0.1, 0.01]")


@dataclass(frozen=True)
class Choice(Axis):
    """One out of a list."""

    values: Sequence[Any]

    @property
    def words(self) -> dict[Any, Any]:
        """By what a study stores, the value: it has no lists, so that they are written as texts."""
        return {value if isinstance(value, PLAIN) else json.dumps(value): value for value in self.values}

    def names(self, key: str) -> list[str]:
        return [key]

    def suggested(self, trial: optuna.Trial, key: str) -> Any:
        return self.words[trial.suggest_categorical(key, list(self.words))]

    def read(self, parameters: Mapping[str, Any], key: str) -> Any:
        return self.words[parameters[key]]

    def ends(self) -> list[Any]:
        return list(self.values)

    def points(self, key: str) -> list[Mapping[str, Any]]:
        return [{key: word} for word in self.words]


@dataclass(frozen=True)
class Range(Axis):
    """Every number from `low` to `high`, whole ones where both are."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def names(self, key: str) -> list[str]:
        return [key]

    def suggested(self, trial: optuna.Trial, key: str) -> Any:
        if self.is_whole:
            return trial.suggest_int(key, int(self.low), int(self.high), step=int(self.step or 1), log=self.log)
        return trial.suggest_float(key, self.low, self.high, step=self.step, log=self.log)

    def read(self, parameters: Mapping[str, Any], key: str) -> Any:
        return parameters[key]

    def ends(self) -> list[Any]:
        return [self.low, self.high]


@dataclass(frozen=True)
class Widths(Axis):
    """The widths of up to `layers` hidden layers; one of width 0 is none."""

    each: Range
    layers: int

    def names(self, key: str) -> list[str]:
        return [f"{key}[{number}]" for number in range(1, self.layers + 1)]

    def suggested(self, trial: optuna.Trial, key: str) -> Any:
        return _without_none([self.each.suggested(trial, name) for name in self.names(key)])

    def read(self, parameters: Mapping[str, Any], key: str) -> Any:
        return _without_none([parameters[name] for name in self.names(key)])

    def ends(self) -> list[Any]:
        return [_without_none([width] * self.layers) for width in self.each.ends()]


def _without_none(widths: Sequence[Any]) -> list[int]:
    return [int(width) for width in widths if width]


# -- a space -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """A spec and the axes along which candidates differ from it."""

    base: Draft
    axes: Mapping[str, Axis]

    @classmethod
    def read(cls, base: Draft, section: Any, place: str) -> Space:
        """From what a file says; every end of every axis is tried."""
        if not isinstance(section, Mapping) or not section:
            raise UserError(f"{place}: a search lists values by key, such as lr: [0.1, 0.01], not {section!r}")
        axes = {}
        for key, values in section.items():
            here = base.where.get(("tune", "search", str(key)), place)
            axes[str(key)] = _axis(str(key), values, here)
        space = cls(base, axes)
        first = {key: axis.ends()[0] for key, axis in axes.items()}
        for key, axis in axes.items():
            for value in axis.ends():
                space.spec(first | {key: value})
        return space

    def spec(self, values: Mapping[str, Any]) -> Spec:
        """A candidate."""
        return Draft(self.draft(values).values, self.base.where).finish()

    def draft(self, values: Mapping[str, Any]) -> Draft:
        """The same as plain values. Unless the file says otherwise, its engine measures nothing."""
        draft = self.base.with_engine(ONE_TO_A_CORE)
        # An algorithm before its parameters, which belong to no other.
        for key in sorted(values, key=lambda key: key not in NAMED_SECTIONS):
            draft = draft.with_value(key, values[key], self.base.where.get(("tune", "search", key), key))
        return draft

    def suggested(self, trial: optuna.Trial) -> Values:
        """What a sampler chose."""
        return {key: axis.suggested(trial, key) for key, axis in self.axes.items()}

    def of(self, parameters: Mapping[str, Any]) -> Values:
        """What a study's parameters stand for."""
        return {key: axis.read(parameters, key) for key, axis in self.axes.items()}

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every combination, as parameters of a study."""
        points = [axis.points(key) for key, axis in self.axes.items()]
        count = math.prod(len(some) for some in points)
        if count > MOST_POINTS:
            raise UserError(f"a grid has at most {MOST_POINTS:,} points; here are {count:,}")
        for chosen in product(*points):
            yield {name: value for part in chosen for name, value in part.items()}


def _axis(key: str, values: Any, place: str) -> Axis:
    if isinstance(values, list | tuple):
        if not values:
            raise UserError(f"{place}: {key} has no values")
        if len(Choice(values).words) < len(values):
            raise UserError(f"{place}: {key} has a value twice")
        return Choice(tuple(values))
    if not isinstance(values, Mapping):
        raise UserError(f"{place}: {key} is {values!r}; write a list of values, or a range: {{low: 0.01, high: 1}}")
    known = ("low", "high", "log", "step", "layers")
    for name in values:
        if name not in known:
            raise UnknownName(f"part of a range in {place}:", str(name), known)
    return _range(key, values, place)


def _number(key: str, values: Mapping[str, Any], name: str, place: str) -> float:
    number = values.get(name)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise UserError(f"{place}: {name} of {key} is {number!r}; it should be a number")
    return number


def _range(key: str, values: Mapping[str, Any], place: str) -> Axis:
    log, low, high = values.get("log"), *(_number(key, values, name, place) for name in ("low", "high"))
    step = _number(key, values, "step", place) if "step" in values else None
    if low > high:
        raise UserError(f"{place}: the range of {key} is empty: from {low} to {high}")
    if log and low <= 0:
        raise UserError(f"{place}: low of {key} is {low}; on a logarithmic scale it is above 0")
    if log and step is not None:
        raise UserError(f"{place}: {key} has a step on a logarithmic scale; leave out one of both")
    if step is not None and step <= 0:
        raise UserError(f"{place}: step of {key} is {step}; it is above 0")
    found = Range(low, high, bool(log), step)
    if "layers" not in values:
        return found
    layers = values["layers"]
    if type(layers) is not int or layers < 1 or not found.is_whole:
        raise UserError(f"{place}: {key} has layers={layers!r}; widths are whole numbers of at least 1 layer")
    return Widths(found, layers)
