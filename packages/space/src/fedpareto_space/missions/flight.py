"""Work under way in orbit: as any simulated flight, with what goes wrong, and a log of every transfer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedpareto.clock.activity import FAILED, HERE
from fedpareto.clock.in_flight import Flight
from fedpareto.clock.trips import Homeward, Outward
from fedpareto.contract.messages import Failure
from fedpareto_space.missions.options import Mishap
from fedpareto_space.missions.power import SECONDS, WATTS
from fedpareto_space.missions.satellites import Satellites
from fedpareto_space.missions.sky import Left

HOUR = 3600.0
FLIPPED = "a bit flipped in the model"


@dataclass
class MissionFlight(Flight):
    """The work of one mission."""

    fleet: Satellites
    log: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """Log since somebody took it: trips of tasks, and faults."""
    received: np.ndarray = field(init=False)
    """Time at which each satellite had its task …"""
    home: np.ndarray = field(init=False)
    """… when its reply is home, whoever still waits for it; as long as nobody knows, when it is ready …"""
    air: np.ndarray = field(init=False)
    """… and how many bytes were on the air for the task."""
    given_up: np.ndarray = field(init=False)
    """Time at which the server last gave up on each satellite; never is minus infinity."""
    ARRAYS: ClassVar[tuple[str, ...]] = (*Flight.ARRAYS, "received", "home", "air", "given_up", "book")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.received, self.home = np.full((2, len(self.setting.clients)), np.inf)
        self.air = np.zeros(len(self.setting.clients))
        self.given_up = np.full(len(self.setting.clients), -np.inf)

    @property
    def patience(self) -> float:
        return self.fleet.sky.options.timeout * HOUR

    @property
    def book(self) -> np.ndarray:
        return self.fleet.power.book

    @book.setter
    def book(self, lines: np.ndarray) -> None:
        self.fleet.power.book[:] = lines

    @property
    def is_clockwork(self) -> bool:
        return False

    def about(self) -> dict[str, Any]:
        return self.fleet.sky.about(Left(self.fleet.sky).contacts)

    def happened(self) -> list[dict[str, Any]]:
        found, self.log = self.log, []
        return found

    # -- trips -----------------------------------------------------------------------------------------------------

    def _leave_for(self, rows: np.ndarray, out: Outward, operations: np.ndarray | float) -> None:
        self.received[rows], self.air[rows] = out.received, out.air
        seconds = np.broadcast_to(operations / self.fleet.speed[rows], rows.shape)
        self.fleet.power.begin(rows, out.received, seconds, self.fleet.compute_watts[rows])
        for mishap, row in self._flips(rows):
            if self.received[row] <= mishap.seconds < self.ready[row]:
                self._train_again(mishap, row)
        self.home[rows] = self.ready[rows]

    def _earliest(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.minimum(super()._earliest(rows), self.left[rows] + self.patience)
        return found

    def _come_back(self, rows: np.ndarray, sizes: np.ndarray | float) -> Homeward:
        back = super()._come_back(rows, sizes)
        for mishap, row in self._flips(rows):
            if self.ready[row] <= mishap.seconds < self.arrives[row]:
                self._train_again(mishap, row)
                size = np.broadcast_to(sizes, rows.shape)[rows == row]
                back.air[rows == row] = super()._come_back(np.array([row]), size).air
        self.home[rows] = self.arrives[rows]
        self._note_trips(rows, back)
        given_up = self.left[rows] + self.patience
        # What would be given up after the mission is only late.
        for row in rows[(self.arrives[rows] > given_up) & (given_up <= self.ends)].tolist():
            self.given_up[row] = self.left[row] + self.patience
            self._give_up(row, self.given_up[row], f"no reply within {self.patience / HOUR:g} h")
        return back

    def _flips(self, rows: np.ndarray) -> list[tuple[Mishap, int]]:
        return [(one, row) for one, row in self._all_flips if row in rows]

    @cached_property
    def _all_flips(self) -> list[tuple[Mishap, int]]:
        ahead, names = self.fleet.sky.options.mishaps_ahead, self.fleet.sky.names
        lost = {one.who: one.seconds for one in reversed(ahead) if one.kind == "lost"}
        flips = [one for one in ahead if one.kind == "flip" and one.seconds < lost.get(one.who, np.inf)]
        return [(one, names.index(one.who)) for one in flips]

    def _is_at_work(self, row: int, time: float) -> bool:
        return bool(self.received[row] <= time and (time < self.home[row] or not self.weighed[row]))

    def _train_again(self, mishap: Mishap, row: int) -> None:
        """Begin again from what was sent: what the satellite holds does not match its digest any more."""
        self._note_pauses(row, mishap.seconds)
        one, began, power = np.array([row]), np.array([mishap.seconds]), self.fleet.power
        work = self.book[one, SECONDS], self.book[one, WATTS]
        self.ready[row] = power.finish(one, began, *work)[0]
        power.begin(one, began, *work)
        self._fault(mishap.seconds, FLIPPED, mishap.who, "trained again from what it was sent")

    def _give_up(self, row: int, time: float, reason: str) -> None:
        """The reply of a satellite will not count, which the server knows from a time on."""
        self.forget_reply(row)
        client, round_ = int(self.setting.clients[row]), int(self.version[row])
        self.arrives[row], self.stack[row], self.failures[row] = time, FAILED, Failure(client, round_, reason)
        self._fault(time, reason, self.fleet.sky.names[row], "went on without it")

    @property
    def audible(self) -> np.ndarray:
        rows = np.flatnonzero(np.isfinite(self.given_up))
        found = np.ones(len(self.status), dtype=bool)
        found[rows] = self.fleet.presence.following(rows, self.given_up[rows]) <= self.now
        return found

    # -- the server ------------------------------------------------------------------------------------------------

    def wait(self, count: int, until: float = np.inf) -> np.ndarray:
        before = self.now
        try:
            return super().wait(count, until)
        finally:
            for one in self.fleet.sky.options.mishaps_ahead:
                if before <= one.seconds < self.now:
                    self._befall(one)
            for one, row in self._all_flips:
                if before <= one.seconds < self.now and not self._is_at_work(row, one.seconds):
                    action = "nothing was at work: it gets the model anew with its next task"
                    self._fault(one.seconds, FLIPPED, one.who, action)

    def _befall(self, mishap: Mishap) -> None:
        options = self.fleet.sky.options
        if mishap.kind == "lost":
            self._fault(mishap.seconds, "the satellite was lost", mishap.who, "nobody hears it any more")
        elif mishap.kind == "dead":
            self._fault(mishap.seconds, "the station went dead", mishap.who, "satellites wait for the next one")
        elif mishap.kind == "server":
            action = f"a stand-by took over after {options.handover:g} minutes"
            self._fault(mishap.seconds, "the server fell silent", "server", action)
            # The stand-by has the last model, but no replies that waited for their round.
            for row in np.flatnonzero((self.status == HERE) & (self.landed <= mishap.seconds)).tolist():
                self._give_up(row, mishap.seconds, "lost with the server that had it")
                self.arrives[row] = np.inf  # It was here.

    # -- the log ---------------------------------------------------------------------------------------------------

    def _note_trips(self, rows: np.ndarray, back: Homeward) -> None:
        """One line for each task: when it was asked, received, done and back, in seconds, and bytes on the air."""
        air = dict(zip(rows.tolist(), np.broadcast_to(back.air, rows.shape).tolist(), strict=True))
        for row in rows.tolist():
            self._note_pauses(row)
            times = {name: _second(getattr(self, name)[row]) for name in ("left", "received", "ready", "arrives")}
            self.log.append(
                {
                    "what": "trip",
                    "satellite": row,
                    "round": int(self.version[row]),
                    **times,
                    "down": round(float(self.air[row])),
                    "up": round(air[row]),
                }
            )

    def _note_pauses(self, row: int, until: float = np.inf) -> None:
        if not np.isfinite(self.received[row]):
            return
        for start, end in self.fleet.power.pauses(row, until):
            action = f"paused until {end / HOUR:.2f} h" if np.isfinite(end) else "paused for good"
            self._fault(start, "low power", self.fleet.sky.names[row], action)

    def _fault(self, time: float, fault: str, who: str, action: str) -> None:
        self.log.append({"what": "fault", "time": _second(time), "fault": fault, "who": who, "action": action})


def _second(time: float) -> float | None:
    """To the millisecond; None for never."""
    return round(float(time), 3) if np.isfinite(time) else None
