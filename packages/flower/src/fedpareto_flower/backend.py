"""A run on Flower, on this machine: real processes for all parties, or Flower's simulation.

Every party builds its part from the run's own spec file, so a node holds only its client's rows and preference. What
only a server needs is imported by it alone: it takes a second, and there may be hundreds of nodes.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedpareto.codecs import Codec
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import need_posix, write_atomically
from fedpareto.contract.federation import Federation
from fedpareto.engines.single import only
from fedpareto.spec import backends
from fedpareto.spec.draft import load
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto_flower.engine.options import FlowerOptions, SimulationOptions
from fedpareto_flower.node_files import keep_servable

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedpareto_flower.engine.node import Node
    from fedpareto_flower.engine.server import FlowerEngine

FOLDER = "flower"
"""Folder in the run's folder: what the nodes keep, and the logs of all processes."""


class Flower(backends.Backend):
    """A run whose clients are nodes of Flower, each a process on this machine."""

    options = FlowerOptions

    @contextmanager
    def opened(self, spec: Spec, folder: Path | None, chosen: Mapping[str, Any] | None) -> Iterator[FlowerEngine]:
        """An engine whose nodes run as long as the block; `chosen` names the federation of a resumed run."""
        need_posix(f"the engine {spec.engine.name}")
        if find_spec("flwr") is None:
            raise UserError(f"the engine {spec.engine.name} needs Flower; try: pip install 'fedpareto[flower]'")
        self.must_be_installed()
        with nullcontext(folder) if folder is not None else TemporaryDirectory(prefix="fedpareto-") as kept:
            place = Path(kept) / FOLDER
            place.mkdir(parents=True, exist_ok=True)
            write_atomically(place / "spec.yaml", spec.to_yaml())
            name = _name(chosen, Path(kept))
            nodes = [_configuration(place, name, client) for client in range(spec.clients)]
            with self.grid(place, nodes) as grid:
                yield _engine(spec, grid, name)

    def must_be_installed(self) -> None:
        """Raises UserError if a package besides Flower is missing."""

    def grid(self, place: Path, nodes: list[dict[str, Any]]) -> AbstractContextManager[Grid]:
        """Flower's connection to these nodes."""
        from fedpareto_flower.engine.launch import LocalFederation

        return LocalFederation(place, nodes).grid()


class Simulation(Flower):
    """Backend for Flower's simulation."""

    options = SimulationOptions

    def must_be_installed(self) -> None:
        """Raises UserError without Ray."""
        if find_spec("ray") is None:
            raise UserError(f"the engine {self.options.name} needs Ray; try: pip install 'fedpareto[simulation]'")

    def grid(self, place: Path, nodes: list[dict[str, Any]]) -> AbstractContextManager[Grid]:
        """The simulation's connection to these nodes."""
        return _simulation(nodes)


def _engine(spec: Spec, grid: Grid, name: str) -> FlowerEngine:
    from fedpareto_flower.engine.server import FlowerEngine

    assert isinstance(spec.engine, FlowerOptions)
    return FlowerEngine(
        grid,
        spec.algorithm,
        spec.learner,
        settings_of(spec),
        name,
        options=spec.engine,
        flower=spec.engine,
        quorum=spec.quorum,
        waits=spec.policy.waits,
        codec=Codec.parse(spec.codec),
    )


def make_node(config: Mapping[str, Any]) -> Node:
    """The node that a configuration describes; called in the node's own process."""
    from fedpareto_flower.engine.node import Node

    path, client = Path(config["spec"]), int(config["client"])
    spec = load(path)
    return Node(
        federation=str(config["federation"]),
        client=client,
        algorithm=spec.algorithm,
        problem=spec.problem,
        learner=spec.learner,
        federations=[only(federation, client) for federation in _federations(path)],
        settings=settings_of(spec),
        folder=path.parent / "nodes" / str(client),
        options=spec.engine,
        faults=spec.faults,
        keep=keep_servable,
        codec=Codec.parse(spec.codec),
    )


@lru_cache(maxsize=1)
def _federations(path: Path) -> list[Federation]:
    """All clients of all seeds; once for the several nodes that a process may hold."""
    spec = load(path)
    return [spec.federation(seed) for seed in spec.seeds]


def _configuration(place: Path, federation: str, client: int) -> dict[str, Any]:
    make = f"{__name__}:{make_node.__name__}"
    return {"fedpareto": make, "spec": str((place / "spec.yaml").resolve()), "federation": federation, "client": client}


def _name(chosen: Mapping[str, Any] | None, folder: Path) -> str:
    """The federation's name, by which nodes find their private state again."""
    if chosen is None:
        return secrets.token_hex(8)
    name = chosen.get("federation")
    if not isinstance(name, str):
        raise DamagedFile(f"{folder / 'run.json'} is damaged: 'choices' should name the federation")
    return name


@contextmanager
def _simulation(nodes: list[dict[str, Any]]) -> Iterator[Grid]:
    """Flower's simulation calls back with its Grid; here it is a block like any other."""
    from fedpareto_flower.engine.launch import simulate

    logging.getLogger("flwr").setLevel(logging.ERROR)  # It warns about its own interface at every start.
    grids: queue.Queue[Grid | BaseException] = queue.Queue()
    over = threading.Event()

    def lead(grid: Grid) -> bool:
        grids.put(grid)
        return over.wait()

    def run() -> None:
        try:
            simulate(nodes, lead)
        except BaseException as problem:
            grids.put(problem)

    thread = threading.Thread(target=run, name="simulation", daemon=True)
    thread.start()
    grid = grids.get()
    if isinstance(grid, BaseException):
        raise grid
    try:
        yield grid
    finally:
        over.set()
        thread.join()
