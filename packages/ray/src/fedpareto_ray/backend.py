"""A run on Ray: every worker makes its part of the clients from the run's own spec."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpareto.contract import consent
from fedpareto.contract.solutions import tested_on
from fedpareto.engines.machine import memory_of
from fedpareto.engines.reply_checks import Screening
from fedpareto.moo.tested import Tested
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto.trust.attacks import raid_on
from fedpareto_ray import cluster, room
from fedpareto_ray.options import AUTO, RayOptions

if TYPE_CHECKING:
    from fedpareto_ray.crew import Crew
    from fedpareto_ray.engine import RayEngine
    from fedpareto_ray.packing import Plain
    from fedpareto_ray.worker import Begin

COLLUSION = "collusion"
"""The attack whose attackers need to know each other's updates."""
DATA = "FEDPARETO_DATA"


class Ray(backends.Backend):
    """A run whose clients are spread over the workers of a Ray cluster."""

    options = RayOptions

    @contextmanager
    def opened(self, spec: Spec, folder: Path | None, chosen: Mapping[str, Any] | None) -> Iterator[RayEngine]:
        """An engine whose workers live as long as the block."""
        options = spec.engine
        assert isinstance(options, RayOptions)
        if options.address not in ("", AUTO):
            consent.need_address(options.address)
        before = None if chosen is None else backends.measured_before(chosen, ("threads", "chunk", "workers"), folder)
        with cluster.connected(options.address, f"the engine {options.name}"):
            from fedpareto_ray.crew import Crew

            count = room.workers_for(options, spec.clients, before.pop("workers") if before else 0)
            crew = Crew(options, count)
            try:
                yield engine_on(spec, crew, before)
            finally:
                crew.dismiss()


def engine_on(spec: Spec, crew: Crew, chosen: dict[str, int] | None) -> RayEngine:
    """An engine on these workers, who make their clients now."""
    from fedpareto_ray.engine import RayEngine
    from fedpareto_ray.packing import Shards

    assert isinstance(spec.engine, RayOptions)
    dtype = spec.engine.dtype
    settings = [replace(one, initial=one.initial.to(dtype)) for one in settings_of(spec)]
    shards = Shards(settings[0].clients, len(crew))
    common = {"spec": spec.to_mapping(), "folder": str(Path.cwd()), "data": os.environ.get(DATA, "")}
    common["named"] = consent.passed()
    memory = room.workers_here(len(crew))
    given = [
        common | {"places": shards.places(shard), "tested": shard == 0, "workers": memory} for shard in range(len(crew))
    ]
    begun = crew.begin(f"{__name__}:{make_shard.__name__}", given, chosen)
    screening = None
    if spec.attack.kind == COLLUSION:
        raid = raid_on(settings, spec.attack, spec.problem)
        screening = Screening(spec.algorithm, settings, dtype, torch.device("cpu"), spec.faults, raid)
    return RayEngine(
        crew,
        shards,
        spec.algorithm,
        settings,
        spec.engine,
        begun["split_names"],
        {**begun["chosen"], "workers": len(crew)},
        screening=screening,
        forges=spec.attack.kind != "none",
        quorum=spec.quorum,
        tested=tuple(Tested(*one) for one in begun["more"]),
    )


def make_shard(given: dict[str, Plain]) -> tuple[Begin, Plain]:
    """A worker's part of the clients, and what models are tested on; called in the worker's own process."""
    consent.take(given["named"])
    if given["data"]:
        os.environ.setdefault(DATA, given["data"])
    with suppress(OSError):  # On another machine there may be no such folder.
        os.chdir(given["folder"])
    spec = Draft(given["spec"]).finish()
    rows = np.arange(*given["places"])
    federations, tested = [], []
    for seed in spec.seeds:
        whole = spec.federation(seed)
        if given["tested"] and (one := tested_on(spec.problem, whole.splits, whole.addresses)) is not None:
            tested.append(tuple(getattr(one, field.name) for field in fields(one)))
        federations.append(whole.only(rows))
    assert isinstance(spec.engine, RayOptions)
    options = spec.engine
    if not options.memory:
        budget = memory_of(torch.device(options.device)) // 2
        options = replace(options, memory=f"{budget // (1 if options.device == 'cuda' else given['workers'])}B")
    options = replace(options, threads=options.cpus)
    attack = replace(spec.attack, kind="none") if spec.attack.kind == COLLUSION else spec.attack

    # A quorum is of all workers' clients together.
    here = replace(spec, engine=options, attack=attack, quorum=0.0)
    return lambda choices: backends.local(here, choices, federations), tested
