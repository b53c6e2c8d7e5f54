"""What a file says about a tuning: its section `tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedpareto.campaigns.tuning import grids, measures
from fedpareto.campaigns.tuning.measures import Measure
from fedpareto.campaigns.tuning.space import Space
from fedpareto.campaigns.tuning.trials import shape
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import TUNE, Spec

OBJECTIVES = ("utility", "bytes")
Sampler = Literal["nsga2", "nsga3", "tpe", "gp", "random", "grid"]


@dataclass(frozen=True)
class Settings:
    """How candidates are searched."""

    objectives: tuple[str, ...] = OBJECTIVES
    """What they are judged by: see docs/tuning.md for all that there is."""
    constraints: dict[str, dict[str, float]] = field(default_factory=dict)
    """By measure, `least` and `most` that a candidate may have; the others are not on the front."""
    weights: dict[str, float] = field(default_factory=dict)
    """How much each objective counts in the choice from the front; 1 unless it is here."""
    sampler: Sampler = "nsga2"
    """Who proposes candidates."""
    trials: int = 100
    """How many there are; a grid has as many as it has points."""
    population: int = 20
    """Candidates that are proposed at once, and the population of NSGA-II and NSGA-III."""
    stack: int = 20
    """Candidates of the same shape that are trained in one stack, at the most."""
    prune_every: int = 0
    """With a single objective: rounds between two looks at candidates, of which the worse half ends there; 0: never."""
    seed: int = 0
    """Of the sampler. Candidates are trained with the seeds of the spec."""

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("population", 2), ("stack", 1), ("prune_every", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}; it is at least {least}")
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
    """Some candidate."""

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The names of everything that is measured."""
        names = [one.name for one in self.objectives] + [one.name for one, _ in self.constraints]
        return tuple(dict.fromkeys(names))

    def weights(self) -> list[float]:
        """Of each objective in the choice."""
        return [self.settings.weights.get(one.name, 1.0) for one in self.objectives]

    def to_plain(self) -> dict[str, Any]:
        """What must stay as it is for a study to go on: all but how many trials there are, and who proposes them."""
        kept = asdict(self.settings)
        for name in ("trials", "sampler", "stack", "population", "seed", "weights"):
            del kept[name]
        search = {key: [type(axis).__name__, *_plain(axis)] for key, axis in self.space.axes.items()}
        return kept | {"search": search, "spec": self.space.base.values}


def _plain(axis: Any) -> list[Any]:
    return [asdict(axis)]


def read(source: Path | Mapping[str, Any], settings: Sequence[str] = (), grid: str = "", **changes: Any) -> Tuning:
    """From a file, or from what one holds; `changes` are the command line's, `grid` the name of a published one."""
    draft = Draft(dict(source)) if isinstance(source, Mapping) else Draft.read(source)
    section = draft.values.get(TUNE, {})
    place = draft.where.get((TUNE,), TUNE)
    if not isinstance(section, Mapping):
        raise UserError(f"{place}: {TUNE} is a group of 'key: value' lines, such as search: …, not {section!r}")
    rest = {key: value for key, value in draft.values.items() if key != TUNE}
    base = Draft(rest, draft.where).with_settings(settings)
    given = {str(key): value for key, value in section.items()}
    search = given.pop("search", None)
    if grid:
        search = grids.of(grid, base)
        given["sampler"] = "grid"
    elif search is None:
        raise UserError(f"{place}: a tuning has a section '{TUNE}' with a 'search'; or name a published grid by --grid")
    given |= {key: value for key, value in changes.items() if value is not None}
    found: Settings = build(Settings, given, TUNE, lambda key: _said(draft, key))
    space = Space.read(base, search, draft.where.get((TUNE, "search"), place))
    return _checked(space, found, draft)


def _said(draft: Draft, key: str) -> str:
    place = draft.where.get((TUNE, key))
    return "" if place is None else f"{place}: "


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
