"""The runs of a sweep: any list of specs, each of which may hold a grid."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpareto.campaigns.parallel import ONE_TO_A_CORE
from fedpareto.config.errors import UserError
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import SWEEP, Spec

SEEDS, SPEC = "seeds", "spec"
MOST = 10_000
"""Most runs of a sweep; more are a slip of the hand."""
LONGEST_NAME = 100
"""Longest name of a run's folder."""

Source = str | Path | Mapping[str, Any]
"""A spec: the path of a YAML file, or what such a file holds."""


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    name: str
    """Name of the run and of its folder."""
    spec: Spec
    values: dict[str, Any]
    """The spec as plain values: see Draft."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ between runs: the values of the grid by their keys, and the file where there are several."""


def plan(sources: Sequence[Source], settings: Sequence[str] = ()) -> list[Planned]:
    """The runs of a sweep, with `key=value` texts applied to each; what is wrong with any of them is said at once.

    Unless a spec says otherwise, an engine among others measures nothing and has one thread.
    """
    if not sources:
        raise UserError("a sweep needs at least one spec: a YAML file")
    grids = [(name, _points(draft, settings)) for name, draft in _read(sources)]
    count = sum(points.count for _, points in grids)
    if count > MOST:
        raise UserError(f"a sweep has at most {MOST:,} runs; here are {count:,}")
    found = []
    for stem, points in grids:
        for changes, draft in points:
            about = ({SPEC: stem} if len(grids) > 1 else {}) | changes
            ready = draft.with_engine(ONE_TO_A_CORE) if count > 1 else draft
            found.append(Planned(_name(about, points.varied, stem), ready.finish(), ready.values, about))
    return _named_apart(_stacked(found))


def _read(sources: Sequence[Source]) -> Iterator[tuple[str, Draft]]:
    """Each spec as it was written, and what it is called."""
    stems = ["run" if isinstance(source, Mapping) else Path(source).stem for source in sources]
    for number, (stem, source) in enumerate(zip(stems, sources, strict=True)):
        name = stem if stems.count(stem) == 1 else f"{stem}-{stems[:number].count(stem) + 1}"
        yield name, Draft(dict(source)) if isinstance(source, Mapping) else Draft.read(Path(source))


# -- a grid --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """The points of a grid; a draft without a grid is one point."""

    base: Draft
    axes: Mapping[str, Sequence[Any]]

    @property
    def count(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    @property
    def varied(self) -> list[str]:
        return [key for key, values in self.axes.items() if len(values) > 1]

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Draft]]:
        """Yield the changes and the draft of each point."""
        for values in itertools.product(*self.axes.values()):
            changes = dict(zip(self.axes, values, strict=True))
            yield changes, self.base.with_parameters(changes, SWEEP)


def _points(draft: Draft, settings: Sequence[str]) -> _Points:
    section, place, rest = draft.parted(SWEEP, {})
    if not isinstance(section, Mapping):
        raise UserError(f"{place}: {SWEEP} lists values by parameter, such as lr: [0.1, 0.01], not {section!r}")
    base = rest.with_settings(settings)
    for text in settings:
        key = text.partition("=")[0].strip()
        if key in section:
            raise UserError(f"--set {text}: {key} is in the section '{SWEEP}' of the file; change it there")
    if SEEDS in section:  # How many or which, as everywhere: they are never told apart, but summed up.
        base = base.with_value(SEEDS, section[SEEDS], _place(base, SEEDS))
    return _Points(base, {key: _axis(draft, key, value) for key, value in section.items() if key != SEEDS})


def _place(draft: Draft, key: str) -> str:
    return draft.where.get((SWEEP, key), f"{SWEEP}.{key}")


def _axis(draft: Draft, key: Any, values: Any) -> list[Any]:
    if not isinstance(key, str):
        raise UserError(f"{draft.where.get((SWEEP,), SWEEP)}: {key!r} is no parameter; write one such as lr")
    found = list(values) if isinstance(values, list | tuple) else [values]
    if not found:
        raise UserError(f"{_place(draft, key)}: {key} has no values")
    if len({_as_text(value) for value in found}) < len(found):
        raise UserError(f"{_place(draft, key)}: {key} has a value twice")
    return found


# -- one run for several specs -------------------------------------------------------------------------------------


def _stacked(runs: Sequence[Planned]) -> list[Planned]:
    """Specs that differ only in their seeds as one run, whose seeds are trained in one stack."""
    alike: dict[str, list[Planned]] = {}
    for number, run in enumerate(runs):
        mapping = run.spec.to_mapping()
        mapping.pop(SEEDS)
        # A seed's result must be the same whichever others are beside it.
        is_alone = not run.spec.engine.in_process or run.spec.preferences == SWEEP or run.spec.privacy.kind != "none"
        alike.setdefault(str(number) if is_alone else _as_text(mapping), []).append(run)
    return [_together(some) for some in alike.values()]


def _together(runs: Sequence[Planned]) -> Planned:
    if len(runs) == 1:
        return runs[0]
    seeds = list(dict.fromkeys(seed for run in runs for seed in run.spec.seeds))
    values = runs[0].values | {SEEDS: seeds}
    return replace(runs[0], values=values, spec=Draft(values).finish())


# -- names ---------------------------------------------------------------------------------------------------------


def _name(settings: Mapping[str, Any], varied: Sequence[str], stem: str) -> str:
    """Name a run's folder by what tells it apart."""
    ends = Counter(key.rpartition(".")[2] for key in varied)
    parts = [str(settings[SPEC])] if SPEC in settings else []
    for key in varied:
        end = key.rpartition(".")[2]
        parts.append(f"{end if ends[end] == 1 else key}={in_words(settings[key])}")
    return re.sub(r"[^\w.+=,-]+", "-", ",".join(parts or [stem])).strip("-.")[:LONGEST_NAME] or "run"


def _named_apart(runs: Sequence[Planned]) -> list[Planned]:
    """Number equal names; some file systems ignore case."""
    used: set[str] = set()
    found = []
    for run in runs:
        names = itertools.chain([run.name], (f"{run.name}-{number}" for number in itertools.count(2)))
        found.append(replace(run, name=next(name for name in names if name.lower() not in used)))
        used.add(found[-1].name.lower())
    return found


def in_words(value: Any) -> str:
    """A value of a grid, as short as it can be."""
    if isinstance(value, Mapping):
        name, *rest = (str(entry) if key == "name" else f"{key}={in_words(entry)}" for key, entry in value.items())
        return " ".join([name, *rest])
    if isinstance(value, list | tuple):
        return " ".join(in_words(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
