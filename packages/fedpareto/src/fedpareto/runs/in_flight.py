"""Tasks in flight, and knowledge of clients before anybody was heard, for the spec of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, cast

import numpy as np

from fedpareto.clock.activity import Roster
from fedpareto.clock.in_flight import Flight
from fedpareto.clock.selection import Known, drawn_places, stream_of
from fedpareto.clock.timetable import Timetable
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.engine import Engine, Simulating
from fedpareto.contract.messages import ByClient, Parcels
from fedpareto.spec import backends
from fedpareto.spec.spec import Spec
from fedpareto.trust.attacks import without_work

HOUR = 3600.0


class Mail(Protocol):
    """Work under way to real nodes: see backends.flower.airmail."""

    solutions: Parcels | None

    def reports(self) -> ByClient:
        """The objectives that clients reported last."""


class Remote(Engine, Protocol):
    """An engine whose clients are nodes."""

    def air(self, run: int) -> Roster:
        """Roster of one seed; it is Mail, too."""


def of(spec: Spec, engine: Engine, run: int, setting: Setting) -> Roster:
    """Make the roster of one seed."""
    if engine.remote:
        return cast(Remote, engine).air(run)
    return _flight(spec, cast(Simulating, engine), run, setting)


def _flight(spec: Spec, engine: Simulating, run: int, setting: Setting) -> Flight:
    fleet = spec.devices.fleet(setting.clients, setting.seed)
    fleet, flight = backends.backend(spec.engine.name).launched(spec, fleet)
    width = setting.initial.element_size()
    shapes = spec.algorithm.reply_shapes(setting)
    sizes = {step: width * sum(math.prod(shape) for shape in of_step.values()) for step, of_step in shapes.items()}
    shares = spec.algorithm.shares(setting)
    # The model, its gradient and what it began from: without these nobody trains.
    fleet.must_hold(3.0 * width * setting.layout.size * (1.0 if shares is None else shares[:, 1]))
    idlers = without_work(setting, spec.attack, spec.problem)
    ends = spec.hours * HOUR or math.inf
    return flight(setting, fleet, engine.operations(run), sizes, shares, ends, without_work=idlers)


def known(flight: Roster) -> Known:
    """Make the knowledge of clients before anybody was heard."""
    clients = len(flight.setting.clients)
    work = flight.operations if isinstance(flight, Flight) else np.zeros(clients)
    seconds, joules = flight.expected()
    return Known(
        seconds=seconds,
        joules=joules,
        rows=work / max(work.max(), 1.0),
        value=np.full(clients, np.nan),
        heard=np.zeros(clients, dtype=np.int64),
        asked=np.zeros(clients, dtype=np.int64),
        present=np.ones(clients, dtype=bool),
        version=0,
    )


def timetable(spec: Spec, flight: Roster, count: int) -> Timetable | None:
    """Timetable of one seed, where rounds of one reply are clockwork and so many take part; None: they are not."""
    policy, seed = spec.policy, flight.setting.seed
    is_one = policy.kind in ("asynchronous", "buffered") and policy.replies(count) == 1
    if not is_one or spec.selection.kind != "random" or not isinstance(flight, Flight) or not flight.is_clockwork:
        return None

    def choose(round_: int, free: int) -> int:
        return int(drawn_places(free, 1, stream_of(seed, round_))[0])

    return Timetable(flight, policy.at_work(count), choose)


def tiers(spec: Spec, flight: Roster) -> Callable[[], np.ndarray]:
    """The tier of each client: that of its device, or equal shares of all by how long a task takes them. What real
    nodes take is seen only with time.
    """

    def by_time() -> np.ndarray:
        order = np.argsort(np.argsort(flight.expected()[0], kind="stable"), kind="stable")
        found: np.ndarray = order * min(spec.policy.tiers, len(order)) // len(order)
        return found

    if not isinstance(flight, Flight):
        return by_time
    found = flight.fleet.tier if flight.fleet.tier.any() else by_time()
    return lambda: found
