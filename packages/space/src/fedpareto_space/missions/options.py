"""Options of a mission: orbits, stations, links, power and mishaps. They are part of a run's spec, as its engine."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config.bounds import AtLeast, Endless, NotNegative, Positive, ShareBelowOne, Whole
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.engines.options import EngineOptions, Feature
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.plans import RATE, Rate
from fedpareto_space.orbits.stations import MASK, Station, stations

KINDS = {
    "lost": "a satellite is gone for good",
    "dead": "a station hears nobody any more",
    "flip": "a bit flips in what a satellite holds of the model",
    "server": "the server falls silent, and a stand-by takes over",
}
"""Kinds of mishaps."""
EXAMPLES = {"lost": "lost sat-1-3 at 12", "dead": "dead svalbard at 20", "flip": "flip sat-2-1 at 30"}
TEXT = re.compile(r"(?P<kind>[a-z]+)(?:\s+(?P<who>\S+))?\s+at\s+(?P<hours>[-+.\d\w]+)")
USUAL_STATIONS = ("svalbard", "bangalore", "awarua")
LONGITUDES = 180.0
A_DAY = 24.0
"""Simulated hours of a mission whose spec has none."""


@dataclass(frozen=True)
class Mishap:
    """One event."""

    kind: str
    who: str
    """A satellite or a station by name; of the server nothing."""
    hours: float

    @classmethod
    def parse(cls, text: str) -> Mishap:
        found = TEXT.fullmatch(text.strip())
        if found is None:
            raise UserError(f"engine: mishaps has '{text}'; right is, say, 'lost sat-1-3 at 12', in hours")
        kind, who = found["kind"], found["who"] or ""
        if kind not in KINDS:
            raise UnknownName("mishap", kind, KINDS)
        if bool(who) == (kind == "server"):
            example = EXAMPLES.get(kind, "server at 36")
            raise UserError(f"engine: mishaps has '{text}'; right is, say, '{example}'")
        try:
            hours = float(found["hours"])
        except ValueError:
            hours = math.nan
        if not 0 <= hours < math.inf:
            raise UserError(f"engine: mishaps has '{text}'; its time is a number of hours from 0 on")
        return cls(kind, who, hours)

    @property
    def seconds(self) -> float:
        return 3600 * self.hours

    def must_happen(self, satellites: tuple[str, ...], stations: tuple[str, ...], seconds: float) -> None:
        """Raises UserError if there is nobody of that name, or the mission is over before."""
        known = {"lost": satellites, "flip": satellites, "dead": stations}.get(self.kind)
        if known is not None and self.who not in known:
            kind = "station" if self.kind == "dead" else "satellite"
            raise UserError(
                f"engine: mishaps has '{self}', but there is no {kind} of that name; they are {known[0]} to {known[-1]}"
            )
        if self.seconds >= seconds:
            raise UserError(f"engine: mishaps has '{self}', but the mission is over after {seconds / 3600:g} hours")

    def __str__(self) -> str:
        return f"{self.kind} {self.who} at {self.hours:g}".replace("  ", " ")


def _of_the_shell(problem: str, shell: str) -> str:
    return "" if any(name in problem for name in ("shell", "altitude", "inclination")) else f" (shell is {shell})"


@dataclass(frozen=True)
class MissionOptions(EngineOptions):
    """A constellation whose satellites are the clients; client 0 is the first one. Clients compute as on `local`, all
    in one stack; when their messages arrive is known from orbits, links and power.
    """

    name: ClassVar[str] = "mission"
    simulates_time: ClassVar[bool] = True

    shell: str = "40/5/1"
    """A Walker shell of circular orbits: satellites/planes/phasing."""
    altitude: float = 530.0
    """Altitude of the shell, in kilometres."""
    inclination: float = 97.5
    """Inclination of the shell, in degrees."""
    star: bool = False
    """Spread of the planes over 180° (for polar orbits) instead of 360°."""
    tle: str = ""
    """A file with two-line elements, in place of the shell."""
    plan: str = ""
    """A contact plan in ION's text form, in place of all orbits: nodes that talk to others are satellites, the others
    stations.
    """
    start: str = "2026-01-01T00:00"
    """Start of the mission; UTC unless it says otherwise."""
    stations: tuple[str, ...] = USUAL_STATIONS
    """Ground stations by name or as latitude,longitude, with a mask of their own behind an @: svalbard,
    hap=52.5,13.4,20000@0.
    """
    mask: float = MASK
    """Degrees above the horizon from which on a station hears a satellite, unless it says otherwise."""
    antennas: Whole = 0
    """Satellites that a station talks to at a time; 0: all that it sees."""
    relays: tuple[Annotated[float, AtLeast(-LONGITUDES, 2 * LONGITUDES)], ...] = ()
    """Longitudes, in degrees, of relay satellites in geostationary orbit, which are in touch with the server always."""
    route: Literal["direct", "relay", "plane", "swarm"] = "direct"
    """Way of messages. direct: between satellites and stations or relays; relay: also through other satellites,
    whichever way is fastest; plane: within a plane from neighbour to neighbour, and the replies of a plane are added up
    on the way where the algorithm allows that; swarm: there is no server, and neighbours exchange their models.
    """
    down: Rate = RATE
    """Rate from satellites to stations, in bits a second."""
    up: Rate = RATE
    """Rate from stations to satellites, in bits a second."""
    between: Positive = 1e6
    """Rate between satellites, in bits a second."""
    loss: ShareBelowOne = 0.05
    """Share of frames that a link loses."""
    depth: Literal["fluid", "packets"] = "fluid"
    """fluid: what CFDP takes on average; packets: each PDU of it in its frame, which takes much longer to simulate.
    Hops between satellites of a plane are fluid always.
    """
    solar_watts: NotNegative = 0.0
    """Watts of the panels in sunlight; 0: power is never short, and nothing about it is simulated."""
    battery: NotNegative = 0.0
    """Watt hours that are there for learning, all of them at the beginning; 0: a satellite learns in sunlight only.
    With an empty battery it pauses until the panels alone give enough, or a tenth of the battery is charged again.
    """
    idle_watts: NotNegative = 0.0
    """Watts that the satellite takes from panels and battery in any case, radio and all."""
    storage: Endless = math.inf
    """Bytes on board for models and what waits to be sent."""
    timeout: NotNegative = 48.0
    """Hours after which the server gives up on a reply."""
    handover: NotNegative = 10.0
    """Minutes until a stand-by has taken over from a server that fell silent."""
    mishaps: tuple[str, ...] = ()
    """Mishaps with their hours: `lost sat-1-3 at 12`, `dead svalbard at 20`, `flip sat-2-1 at 30`, `server at 36`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers()
        if self.tle and self.plan:
            raise UserError("engine: tle and plan are both given; a mission has orbits, or a finished contact plan")
        if self.plan and (self.relays or self.solar_watts or self.route in ("plane", "swarm")):
            raise UserError(
                "engine: a finished contact plan has no orbits, so no relays, no power and no planes; "
                "take a shell or tle, or leave these out"
            )
        self._check_route()
        _ = self.begins, self.mishaps_ahead
        if not self.plan:
            _ = self.sites
        if not self.plan and not self.tle:
            _ = self.walker

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """A plan of contacts rules out what changes from round to round; a swarm has no server."""
        found: dict[Feature, str] = {
            "step": "a mission plans with the same work in every round",
            "secure_sum": "a mission plans for one exchange a round, and it has four; take another engine",
        }
        if self.route == "swarm":
            found["server"] = "engine.route is swarm"
            found["server_codec"] = "with engine.route=swarm there is no server that sends; leave it out"
        return found

    @property
    def defaults(self) -> Mapping[str, Any]:
        """As many clients as satellites, for a day."""
        return {"clients": self.satellites, "hours": A_DAY}

    def check_time(self, devices: Devices, policy: Policy, selection: Selection, seeds: int) -> None:
        """Raises UserError if devices have links or times of their own: those of satellites are the mission's."""
        given = [name for name in ("down", "up", "latency", "loss") if getattr(devices, name)]
        if devices.availability != "always":
            given.append("availability")
        if given:
            other = f"engine.{given[0]}" if hasattr(self, given[0]) else "from orbits and stations"
            raise UserError(f"devices: {given[0]} is given, but that of satellites is {other}")

    def _check_numbers(self) -> None:
        if 0 < self.solar_watts <= self.idle_watts:
            raise UserError(
                f"engine: solar_watts is {self.solar_watts:g} and idle_watts {self.idle_watts:g}; nothing is left for "
                "learning: panels give more than the satellite takes in any case"
            )
        if not self.solar_watts and (self.battery or self.idle_watts):
            raise UserError("engine: battery and idle_watts are of use with solar_watts only; say what the panels give")

    def _check_route(self) -> None:
        if self.route in ("relay", "swarm") and self.depth == "packets":
            raise UserError(
                f"engine: depth is packets, but route is {self.route}, of whose links between satellites only the "
                "average is known; take fluid, or route: direct or plane"
            )
        if self.route == "swarm" and any(one.kind in ("server", "dead") for one in self.mishaps_ahead):
            raise UserError("engine: mishaps has one of the ground, but a swarm has neither server nor stations")
        if not self.plan and self.route != "swarm" and not self.stations and not self.relays:
            raise UserError("engine: nobody is on the ground: give stations or relays, or take route: swarm")

    @cached_property
    def begins(self) -> datetime:
        try:
            found = datetime.fromisoformat(self.start)
        except ValueError:
            raise UserError(f"engine: start is '{self.start}'; right is, say, 2026-01-31T12:00") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    @cached_property
    def walker(self) -> Shell:
        try:
            return Shell.parse(self.shell, self.altitude, self.inclination, self.star)
        except UserError as problem:
            raise UserError(f"engine: {problem}{_of_the_shell(str(problem), self.shell)}") from None

    @cached_property
    def sites(self) -> tuple[Station, ...]:
        try:
            return stations(self.stations, self.mask)
        except UserError as problem:
            raise UserError(f"engine: stations: {problem}") from None

    @cached_property
    def mishaps_ahead(self) -> tuple[Mishap, ...]:
        return tuple(sorted((Mishap.parse(text) for text in self.mishaps), key=lambda one: one.hours))

    @cached_property
    def satellites(self) -> int:
        if self.plan:
            from fedpareto_space.orbits import ion
            from fedpareto_space.orbits.plans import satellites_of

            return len(satellites_of(ion.read(Path(self.plan))))
        if self.tle:
            from fedpareto_space.orbits.tle import read_tle

            return len(read_tle(Path(self.tle)).names)
        return self.walker.satellites
