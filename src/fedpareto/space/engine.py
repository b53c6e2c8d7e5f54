"""The engine `mission`: a spec's clients as satellites."""

from __future__ import annotations

from fedpareto.core.algorithm import unwrapped
from fedpareto.experiments.engines import Backend
from fedpareto.experiments.flights import HOUR
from fedpareto.experiments.spec import Spec
from fedpareto.fleet.trips import Fleet
from fedpareto.space.missions.flight import MissionFlight
from fedpareto.space.missions.mission import launched
from fedpareto.space.missions.options import MissionOptions
from fedpareto.space.missions.satellites import Satellites


class Mission(Backend):
    """A run whose clients are satellites. They compute in this process; orbits say when messages arrive."""

    options = MissionOptions

    def launched(self, spec: Spec, fleet: Fleet) -> tuple[Satellites, type[MissionFlight]]:
        """The machines on board of satellites."""
        assert isinstance(spec.engine, MissionOptions)
        graph = unwrapped(spec.algorithm).neighbours(spec.clients)
        sums = spec.algorithm.needs == "weighted sum"
        return launched(fleet, spec.engine, spec.hours * HOUR, sums, None if graph is None else graph.edges)
