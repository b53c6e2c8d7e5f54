"""Published tables and figures that can be reproduced, by name; catalogue.toml lists them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.parameters import build
from fedpareto_papers import tables

if TYPE_CHECKING:
    from fedpareto.campaigns.parallel import Jobs

Say = Callable[[str], None]
"""Shows the user the progress, one message at a time."""


@dataclass(frozen=True)
class Options:
    """Choices of the user; None and () mean: as published, or as a quick version has it."""

    quick: bool = False
    seeds: int | None = None
    rounds: int | None = None
    clients: int | None = None
    problems: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Parameters of every run, such as engine.device=cuda."""
    jobs: Jobs = 1
    """Parallel jobs, or where."""

    def __post_init__(self) -> None:
        for key in ("seeds", "rounds", "clients", "jobs"):
            value = getattr(self, key)
            if isinstance(value, int) and value < 1:
                raise UserError(f"{key} is {value}; at least 1 is needed")

    def sized(self, usual: Mapping[str, int | None], quick: Mapping[str, int | None]) -> Options:
        """Fill in usual sizes, or those of a quick version, where the user left them open."""
        sizes = {**usual, **(quick if self.quick else {})}
        chosen: dict[str, Any] = {key: getattr(self, key) or size for key, size in sizes.items()}
        return replace(self, **chosen)

    def must_name_parts(self) -> None:
        """Raises UserError unless each setting names its section, since runs differ in algorithm and problem."""
        for text in self.settings:
            if "." not in text.partition("=")[0]:
                raise UserError(f"--set {text}: name the part too, such as engine.device=cuda or learner.lr=0.001")

    def refuse(self, name: str, *keys: str) -> None:
        """Raises UserError for options that a reproduction does not have."""
        for key in keys:
            if getattr(self, key) not in (None, ()):
                raise UserError(f"{name} has no choice of {key}")


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction."""

    record: Mapping[str, Any]
    """For --json."""
    shown: list[Any]
    """Lines, and tables of rich, in the order in which they are printed."""
    files: list[Path] = field(default_factory=list)
    """Figures and tables that were written."""


class Reproduction(Protocol):
    """A reproduction, ready to run."""

    @property
    def headline(self) -> str:
        """Title and size."""

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """Run what is not in the folder yet; raises Stopped if the user stops it."""


@dataclass(frozen=True)
class Entry:
    """A published result."""

    about: str
    module: str
    """Module of this package whose `prepare(name, options)` makes the Reproduction."""


CATALOGUE: Mapping[str, Entry] = {
    name: build(Entry, given, name) for name, given in tables.content("fedpareto_papers", "catalogue.toml").items()
}


def json_text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any] | None:
    """A record that was written before; None if there is none, or no whole one."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def name_of(text: str) -> str:
    """A name as it is listed; upper and lower case do not matter."""
    for name in CATALOGUE:
        if name.lower() == text.lower():
            return name
    raise UnknownName("table or figure", text, CATALOGUE)


def prepare(text: str, options: Options) -> Reproduction:
    """The reproduction of that name; invalid options are reported before anything runs."""
    name = name_of(text)
    module = import_module(f"fedpareto_papers.{CATALOGUE[name].module}")
    ready: Reproduction = module.prepare(name, options)
    return ready


def starting(kind: str, given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Find names in their order: cifar10 means all that begin with cifar10-."""
    wanted = {one: [name for name in names if name == one or name.startswith(f"{one}-")] for one in given}
    for one, found in wanted.items():
        if not found:
            raise UnknownName(kind, one, names)
    return [name for name in names if any(name in found for found in wanted.values())]


def known(kind: str, given: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The given names, if they are known."""
    every = list(names)
    for one in given:
        if one not in every:
            raise UnknownName(kind, one, every)
    return tuple(given)
