"""From a spec to its engine, ready to run; an engine ends the processes that it started."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.core.algorithm import Setting
from fedpareto.core.engine import Engine
from fedpareto.core.federation import Federation
from fedpareto.engines.coding import Coding
from fedpareto.engines.flower.options import FlowerOptions, SimulationOptions
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.ray.options import RayOptions
from fedpareto.errors import DamagedFile, UserError
from fedpareto.experiments.settings import settings_of
from fedpareto.experiments.spec import Spec
from fedpareto.files import need_posix
from fedpareto.trust.privacy import need_accountant
from fedpareto.trust.secure_keys import need_cryptography


@contextmanager
def opened(spec: Spec, folder: Path | None = None, chosen: Mapping[str, Any] | None = None) -> Iterator[Engine]:
    """The engine that a spec names, for a run in `folder`; `chosen` is what one measured when that run began."""
    need_accountant(spec.privacy)
    if spec.secure_sum.kind != "none":
        need_cryptography()
    if isinstance(spec.engine, RayOptions):
        from fedpareto.experiments import ray

        with ray.opened(spec, folder, chosen) as on_ray:
            yield on_ray
        return
    if not isinstance(spec.engine, FlowerOptions):
        before = None if chosen is None else Choices(**measured_before(chosen, ("threads", "chunk"), folder))
        yield local(spec, before)
        return
    need_posix(f"the engine {spec.engine.name}")
    if find_spec("flwr") is None:
        raise UserError(f"the engine {spec.engine.name} needs Flower; try: pip install 'fedpareto[flower]'")
    if isinstance(spec.engine, SimulationOptions) and find_spec("ray") is None:
        raise UserError(f"the engine {spec.engine.name} needs Ray; try: pip install 'fedpareto[simulation]'")
    from fedpareto.experiments import flower

    if folder is not None:
        with flower.opened(spec, folder, chosen) as engine:
            yield engine
        return
    with tempfile.TemporaryDirectory(prefix="fedpareto-") as temporary, flower.opened(spec, Path(temporary)) as engine:
        yield engine


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
    """What a run's record says was chosen when it began."""
    if set(chosen) != set(names) or not all(type(number) is int and number > 0 for number in chosen.values()):
        where = "run.json" if folder is None else folder / "run.json"
        raise DamagedFile(f"{where} is damaged: 'choices' should hold {', '.join(names)}")
    return dict(chosen)
