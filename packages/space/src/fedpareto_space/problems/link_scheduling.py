"""Link scheduling: when a satellite should send its data, and to whom, if cost, latency and energy all count.

Section 6.1.2 of the thesis calls preferences such as cost against latency highly relevant for federations in orbit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, ClassVar

from fedpareto.config.bounds import AtLeast, NotNegative, Positive, bounds_of, check
from fedpareto.config.errors import UserError
from fedpareto.contract.problem import Objective
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.problem import MORLProblem
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.stations import Station, stations
from fedpareto_space.problems.links import Downlinks, Link, Passes

WAYS = ("own", "commercial", "relay")
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Start of a mission that does not say when."""
GIGABYTES_AN_HOUR = 3600 / 8000
"""Gigabytes an hour of a megabit a second."""
MOST_CHOICES = 1_000


@dataclass(frozen=True)
class LinkScheduling(MORLProblem):
    """Three objectives, cost, latency and energy; every client is another satellite of a shell."""

    name: ClassVar[str] = "link-scheduling"

    hidden: tuple[int, ...] = (64, 64)
    discount: float = 0.99
    shell: str = "40/5/1"
    """A Walker shell of circular orbits: satellites/planes/phasing. Client 0 is its first satellite."""
    altitude: float = 530.0
    """Altitude of the shell, in kilometres."""
    inclination: float = 97.5
    """Inclination of the shell, in degrees."""
    stations: tuple[str, ...] = ("svalbard",)
    """The operator's own, by name or as latitude,longitude."""
    commercial: tuple[str, ...] = ("fairbanks", "punta-arenas", "hartebeesthoek", "hawaii")
    """Ground stations of somebody who charges for it."""
    choices: Annotated[int, AtLeast(1, MOST_CHOICES)] = 48
    """Choices of an episode: after the last one it is over."""
    minutes: Positive = 10.0
    """Minutes from one choice to the next."""
    rates: tuple[Positive, ...] = (25.0, 200.0, 3.0)
    """Rates in megabits a second: to an own station, to a commercial one, and to a relay, which is always in sight."""
    watts: tuple[Positive, ...] = (6.0, 6.0, 10.0)
    """Watts that sending takes, in the same order."""
    prices: tuple[NotNegative, ...] = (0.0, 3.0, 0.0)
    """Prices in euros a minute, in the same order."""
    gathered: Positive = 4.0
    """New data in sunlight, in megabits a second."""
    solar_watts: NotNegative = 6.0
    """Watts that the panels have left for the radio in sunlight."""
    battery: Positive = 10.0
    """Watt hours for the radio; an episode begins with a full battery."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in bounds_of(LinkScheduling):
            check(LinkScheduling, name, getattr(self, name))
        for name in ("rates", "watts", "prices"):
            if len(getattr(self, name)) != len(WAYS):
                raise UserError(f"{name} is {list(getattr(self, name))}; it is a number for each of {', '.join(WAYS)}")
        _ = self._satellites, self._networks

    @property
    def _satellites(self) -> Shell:
        return Shell.parse(self.shell, self.altitude, self.inclination)

    @property
    def _networks(self) -> list[tuple[Station, ...]]:
        if not self.stations or not self.commercial:
            raise UserError("stations and commercial have at least one station each, for example svalbard")
        return [stations(self.stations), stations(self.commercial)]

    @cached_property
    def environment(self) -> Downlinks:
        orbits = self._satellites.orbits(START)
        passes = Passes.of(orbits, self._networks, START, self.choices, self.minutes / 60)
        each = zip(self.rates, self.watts, self.prices, strict=True)
        links = tuple(Link(rate * GIGABYTES_AN_HOUR, watts, price * 60) for rate, watts, price in each)
        return Downlinks(passes, links, self.gathered * GIGABYTES_AN_HOUR, self.solar_watts, self.battery)

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        """The reference point is what no policy falls below."""
        names = ("cost", "latency", "energy")
        return tuple(
            Objective(name, maximise=True, reference=value)
            for name, value in zip(names, self.environment.worst(), strict=True)
        )

    def default_clients(self) -> int:
        return self._satellites.satellites

    def learner(self) -> DQN:
        return DQN(
            steps=480,
            lr=0.001,
            batch_size=64,
            buffer_size=20_000,
            learning_starts=480,
            gamma=self.discount,
            target_update_interval=480,
            train_freq=4,
            gradient_steps=2,
            exploration_steps=4_800,
            exploration_final=0.05,
        )
