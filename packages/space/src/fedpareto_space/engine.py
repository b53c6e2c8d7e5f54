"""The engine `mission`: a spec's clients as satellites."""

from __future__ import annotations

from fedpareto.clock.trips import Fleet
from fedpareto.runs.in_flight import HOUR
from fedpareto.spec.backends import Backend
from fedpareto.spec.spec import Spec
from fedpareto_space.missions.flight import MissionFlight
from fedpareto_space.missions.mission import launched
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.satellites import Satellites


class Mission(Backend):
    """A run whose clients are satellites. They compute in this process; orbits say when messages arrive."""

    options = MissionOptions

    def launched(self, spec: Spec, fleet: Fleet) -> tuple[Satellites, type[MissionFlight]]:
        """The machines on board of satellites."""
        assert isinstance(spec.engine, MissionOptions)
        graph = spec.algorithm.neighbours(spec.clients)
        sums = spec.algorithm.needs == "weighted sum"
        return launched(fleet, spec.engine, spec.hours * HOUR, sums, None if graph is None else graph.edges)
