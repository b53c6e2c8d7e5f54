"""Engines by name, and from a spec to its engine, ready to run; an engine ends the processes that it started.

A package offers an engine by an entry point in the group "fedpareto.engines": its name is that of the engine, its value
a subclass of Backend. Nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedpareto.clock.in_flight import Flight
from fedpareto.clock.trips import Fleet
from fedpareto.codecs import Codec
from fedpareto.config import plugins
from fedpareto.config.errors import DamagedFile, UnknownName, UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.engine import Engine
from fedpareto.contract.federation import Federation
from fedpareto.contract.privacy import need_accountant
from fedpareto.engines.coding import Coding
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto.trust.secure_keys import need_cryptography

GROUP = "fedpareto.engines"


class Backend:
    """An engine that specs can name. As it stands, it computes in this process."""

    options: ClassVar[type[EngineOptions]] = LocalOptions
    """The parameters in a spec's section `engine`, and what the engine can do."""

    @contextmanager
    def opened(self, spec: Spec, folder: Path | None, chosen: Mapping[str, Any] | None) -> Iterator[Engine]:
        """The engine of a run in `folder`, if it has one, as long as the block; `chosen` is what `Engine.chosen` was
        when the run began.
        """
        before = None if chosen is None else Choices(**measured_before(chosen, ("threads", "chunk"), folder))
        yield local(spec, before)

    def launched(self, spec: Spec, fleet: Fleet) -> tuple[Fleet, type[Flight]]:
        """The clients' machines, and the class that follows their work on the simulated clock."""
        return fleet, Flight


def names() -> list[str]:
    return [LocalOptions.name, *sorted({point.name for point in entry_points(group=GROUP)} - {LocalOptions.name})]


def backend(name: str) -> Backend:
    if name == LocalOptions.name:
        return Backend()
    for point in entry_points(group=GROUP, name=name):
        found = plugins.loaded(point)
        if not (isinstance(found, type) and issubclass(found, Backend)) or found.options.name != name:
            raise UserError(f"{point.value} is no Backend whose options have the name '{name}'")
        return found()
    plugins.must_not_be_elsewhere(GROUP, name, f"the engine '{name}'")
    raise UnknownName("engine", name, names())


def opened(
    spec: Spec, folder: Path | None = None, chosen: Mapping[str, Any] | None = None
) -> AbstractContextManager[Engine]:
    need_accountant(spec.privacy)
    if spec.secure_sum.kind != "none":
        need_cryptography()
    return backend(spec.engine.name).opened(spec, folder, chosen)


def local(
    spec: Spec,
    choices: Choices | None = None,
    federations: Sequence[Federation] | None = None,
    settings: Sequence[Setting] | None = None,
    own: Mapping[str, Tensor] | None = None,
) -> LocalEngine:
    """All clients of all seeds in this process: the spec's, or these instead, each with `own` parameters of the
    learner.
    """
    federations = federations or [spec.federation(seed) for seed in spec.seeds]
    return LocalEngine(
        spec.algorithm,
        spec.problem,
        spec.learner,
        federations,
        settings or settings_of(spec),
        options=spec.engine,
        faults=spec.faults,
        attack=spec.attack,
        quorum=spec.quorum,
        choices=choices,
        coding=Coding(Codec.parse(spec.codec)),
        own=own or {},
    )


def measured_before(chosen: Mapping[str, Any], names: Sequence[str], folder: Path | None) -> dict[str, int]:
    """Return the choices in a run's record."""
    if set(chosen) != set(names) or not all(type(number) is int and number > 0 for number in chosen.values()):
        where = "run.json" if folder is None else folder / "run.json"
        raise DamagedFile(f"{where} is damaged: 'choices' should hold {', '.join(names)}")
    return dict(chosen)
