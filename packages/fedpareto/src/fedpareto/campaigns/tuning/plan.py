"""The section `tune` of a file: the keys of a spec that are searched, their values, and how candidates are judged."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fedpareto.campaigns.parallel import ONE_TO_A_CORE
from fedpareto.campaigns.tuning import grids, measures
from fedpareto.campaigns.tuning.measures import Measure
from fedpareto.campaigns.tuning.trials import shape
from fedpareto.config.bounds import AtLeast, Bounded, Count, Whole
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.parameters import build
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import TUNE, Spec

if TYPE_CHECKING:
    import optuna

MOST_POINTS = 10_000
"""Points of a grid; more are a slip of the hand."""
PLAIN = (str, bool, int, float)
Values = dict[str, Any]
"""Values of a candidate, by key of a spec."""
OBJECTIVES = ("utility", "bytes")
Sampler = Literal["nsga2", "nsga3", "tpe", "gp", "random", "grid"]


class Axis(ABC):
    """The values that one key may have."""

    @abstractmethod
    def suggested(self, trial: optuna.trial.BaseTrial, key: str) -> Any:
        """Return the value that a sampler chose, or of a finished trial, the value that it had."""

    @abstractmethod
    def ends(self) -> list[Any]:
        """Return values that are checked before anything runs: all of a list, both ends of a range."""

    def points(self, key: str) -> list[Mapping[str, Any]]:
        """Return all values as parameters of a study, for a grid."""
        raise UserError(f"{key} is a range; a grid needs a list of values, such as [0.1, 0.01]")


@dataclass(frozen=True)
class Choice(Axis):
    """One out of a list."""

    values: Sequence[Any]

    @property
    def words(self) -> dict[Any, Any]:
        """The values by what a study stores: lists, which it cannot hold, are written as texts."""
        return {value if isinstance(value, PLAIN) else json.dumps(value): value for value in self.values}

    def suggested(self, trial: optuna.trial.BaseTrial, key: str) -> Any:
        return self.words[trial.suggest_categorical(key, list(self.words))]

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
        return isinstance(self.low, int) and isinstance(self.high, int)

    def suggested(self, trial: optuna.trial.BaseTrial, key: str) -> Any:
        if self.is_whole:
            return trial.suggest_int(key, int(self.low), int(self.high), step=int(self.step or 1), log=self.log)
        return trial.suggest_float(key, self.low, self.high, step=self.step, log=self.log)

    def ends(self) -> list[Any]:
        return [self.low, self.high]


@dataclass(frozen=True)
class Widths(Axis):
    """The widths of up to `layers` hidden layers; a layer of width 0 is left out."""

    each: Range
    layers: int

    def suggested(self, trial: optuna.trial.BaseTrial, key: str) -> Any:
        widths = [self.each.suggested(trial, f"{key}[{number}]") for number in range(1, self.layers + 1)]
        return [int(width) for width in widths if width]

    def ends(self) -> list[Any]:
        return [[int(width)] * self.layers if width else [] for width in self.each.ends()]


# -- a space -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """A spec and the axes along which candidates differ from it."""

    base: Draft
    axes: Mapping[str, Axis]

    @classmethod
    def read(cls, base: Draft, section: Any, place: str) -> Space:
        """Read a section of a file; every end of every axis is tried."""
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
        """Return the spec of a candidate."""
        return Draft(self.draft(values).values, self.base.where).finish()

    def draft(self, values: Mapping[str, Any]) -> Draft:
        """Return a candidate as plain values. Unless the file says otherwise, its engine measures nothing."""
        return self.base.with_engine(ONE_TO_A_CORE).with_parameters(values, TUNE, "search")

    def suggested(self, trial: optuna.trial.BaseTrial) -> Values:
        """Return the candidate of a trial, or of a trial that ended."""
        return {key: axis.suggested(trial, key) for key, axis in self.axes.items()}

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield every combination, as parameters of a study."""
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
    log, low, high = bool(values.get("log")), *(_number(key, values, name, place) for name in ("low", "high"))
    step = _number(key, values, "step", place) if "step" in values else None
    found, layers = Range(low, high, log, step), values.get("layers", 1)
    rules = {
        f"the range of {key} is empty: from {low} to {high}": low > high,
        f"low of {key} is {low}; on a logarithmic scale it is above 0": log and low <= 0,
        f"'step' and 'log' of {key} cannot be combined; remove one": log and step is not None,
        f"step of {key} is {step}; it is above 0": step is not None and step <= 0,
        f"{key} has layers={layers!r}; widths are whole numbers of at least 1 layer": "layers" in values
        and (type(layers) is not int or layers < 1 or not found.is_whole),
    }
    for rule, is_broken in rules.items():
        if is_broken:
            raise UserError(f"{place}: {rule}")
    return Widths(found, layers) if "layers" in values else found


# -- a tuning ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings(Bounded):
    """The settings of a search."""

    objectives: tuple[str, ...] = OBJECTIVES
    """Measures that candidates are judged by: see docs/tuning.md for all that there is."""
    constraints: dict[str, dict[str, float]] = field(default_factory=dict)
    """Limits by measure, `least` and `most`; a candidate beyond them is not on the front."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weight of each objective in the choice from the front; 1 unless it is here."""
    sampler: Sampler = "nsga2"
    """Sampler that proposes candidates."""
    trials: Count = 100
    """Number of candidates; a grid has as many as it has points."""
    population: Annotated[int, AtLeast(2)] = 20
    """Candidates that are proposed at once, and the population of NSGA-II and NSGA-III."""
    stack: Count = 20
    """Candidates of the same shape that are trained in one stack, at the most."""
    prune_every: Whole = 0
    """With a single objective: rounds between two looks at candidates, of which the worse half ends there; 0: never."""
    seed: Whole = 0
    """Seed of the sampler. Candidates are trained with the seeds of the spec."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.objectives:
            raise UserError("objectives is empty; at least one is needed, such as utility")
        if len(set(self.objectives)) < len(self.objectives):
            raise UserError(f"objectives is {list(self.objectives)}; each may be listed once")
        if self.prune_every and len(self.objectives) > 1:
            raise UserError(
                f"prune_every is {self.prune_every}, but there are {len(self.objectives)} objectives; candidates can "
                "be given up early under a single objective only"
            )
        for name, limits in self.constraints.items():
            if not limits or set(limits) - {"least", "most"}:
                raise UserError(f"constraints: {name} has {limits}; write least or most, such as {name}: {{most: 1e6}}")
        if any(not weight >= 0 for weight in self.weights.values()):
            raise UserError(f"weights are {self.weights}; none is negative")


@dataclass(frozen=True)
class Tuning:
    """A search: its space, what candidates are judged by, and how they are found."""

    space: Space
    settings: Settings
    objectives: tuple[Measure, ...]
    constraints: tuple[tuple[Measure, Mapping[str, float]], ...]
    first: Spec
    """The spec of the first candidate."""

    @property
    def judged_by(self) -> tuple[str, ...]:
        names = [one.name for one in self.objectives] + [one.name for one, _ in self.constraints]
        return tuple(dict.fromkeys(names))

    def weights(self) -> list[float]:
        """Weight of each objective in the choice."""
        return [self.settings.weights.get(one.name, 1.0) for one in self.objectives]

    def to_plain(self) -> dict[str, Any]:
        """Return what must stay the same for a study to go on: all but the number of trials and the sampler."""
        kept = asdict(self.settings)
        for name in ("trials", "sampler", "stack", "population", "seed", "weights"):
            del kept[name]
        axes: Mapping[str, Any] = self.space.axes
        search = {key: [type(axis).__name__, asdict(axis)] for key, axis in axes.items()}
        return kept | {"search": search, "spec": self.space.base.values}


def read(source: Path | Mapping[str, Any], settings: Sequence[str] = (), grid: str = "", **changes: Any) -> Tuning:
    """Read a file, or what one holds; `changes` are the command line's, `grid` the name of a published one."""
    draft = Draft(dict(source)) if isinstance(source, Mapping) else Draft.read(source)
    section, place, rest = draft.parted(TUNE, {})
    if not isinstance(section, Mapping):
        raise UserError(f"{place}: {TUNE} is a group of 'key: value' lines, such as search: …, not {section!r}")
    base = rest.with_settings(settings)
    given = {str(key): value for key, value in section.items()}
    search = given.pop("search", None)
    if grid:
        search = grids.of(grid, base)
        given["sampler"] = "grid"
    elif search is None:
        raise UserError(f"{place}: a tuning has a section '{TUNE}' with a 'search'; or name a published grid by --grid")
    given |= {key: value for key, value in changes.items() if value is not None}
    places = {keys[1]: f"{line}: " for keys, line in draft.where.items() if keys[0] == TUNE and len(keys) == 2}
    found: Settings = build(Settings, given, TUNE, lambda key: places.get(key, ""))
    space = Space.read(base, search, draft.where.get((TUNE, "search"), place))
    return _checked(space, found, draft)


def _checked(space: Space, settings: Settings, draft: Draft) -> Tuning:
    first = space.spec({key: axis.ends()[0] for key, axis in space.axes.items()})
    where = {
        name: draft.where.get((TUNE, name), TUNE) for name in ("objectives", "constraints", "weights", "prune_every")
    }
    objectives = tuple(measures.named(first, name, where["objectives"]) for name in settings.objectives)
    constraints = tuple(
        (measures.named(first, name, where["constraints"]), limits) for name, limits in settings.constraints.items()
    )
    names = {one.name for one in objectives}
    weights = {measures.named(first, name, where["weights"]).name: one for name, one in settings.weights.items()}
    for name in weights:
        if name not in names:
            raise UserError(f"{where['weights']}: {name} has a weight, but it is no objective of this tuning")
    if settings.prune_every and shape(first) is None:
        raise UserError(
            f"{where['prune_every']}: prune_every works where candidates are trained in a stack; these have devices, "
            "privacy, faults or another engine, and run to their ends"
        )
    return Tuning(space, replace(settings, weights=weights), objectives, constraints, first)
