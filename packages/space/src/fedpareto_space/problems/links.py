"""Satellites that choose in every step whom to send their data to: an environment as a tensor program.

Times are in hours, data in gigabytes, energy in watt hours, prices in euros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.environment import Actions, TensorEnvironment
from fedpareto.contract.messages import Message
from fedpareto.tensors import rng
from fedpareto_space.orbits.circular import Orbits
from fedpareto_space.orbits.sights import eclipses, over_stations
from fedpareto_space.orbits.stations import Station
from fedpareto_space.orbits.windows import Windows

HOUR = 3600.0
"""Seconds."""


class Link(NamedTuple):
    """A way down."""

    rate: float
    """Gigabytes an hour."""
    watts: float
    price: float
    """Euros an hour."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Light and sight of s satellites in each of t steps, which their orbits decide."""

    light: np.ndarray
    """Hours in sunlight, `[s, t]`."""
    sight: np.ndarray
    """Hours in which it could send over each of k links, `[s, t, k]`."""
    hours: float
    """Hours of a step."""

    @classmethod
    def of(
        cls, orbits: Orbits, networks: Sequence[Sequence[Station]], start: datetime, steps: int, hours: float
    ) -> Passes:
        count, seconds = len(orbits.names), steps * hours * HOUR
        edges = np.arange(steps + 1) * hours * HOUR
        shadow = _overlaps(eclipses(orbits, start, seconds), edges, count)
        seen = [_overlaps(over_stations(orbits, sites, start, seconds), edges, count) for sites in networks]
        return cls(hours - shadow, np.stack([*seen, np.full_like(shadow, hours)], axis=2), hours)

    @cached_property
    def wait(self) -> np.ndarray:
        """Steps until each link is next in sight, 0 for now; until after the end if it never is, `[s, t, k]`."""
        satellites, steps, links = self.sight.shape
        found = np.empty_like(self.sight)
        until = np.ones((satellites, links))
        for step in reversed(range(steps)):
            until = np.where(self.sight[:, step] > 0, 0, until)
            found[:, step] = until
            until = until + 1
        return found


def _overlaps(windows: Windows, edges: np.ndarray, count: int) -> np.ndarray:
    """Hours of each step that lie in windows, of which row r is satellite r % count: `[count, t]`.

    A satellite that sees two stations at a time talks to them one after the other.
    """
    inside = np.minimum(windows.ends[:, None], edges[1:]) - np.maximum(windows.starts[:, None], edges[:-1])
    found = np.zeros((count, len(edges) - 1))
    np.add.at(found, windows.rows % count, np.maximum(inside, 0))
    return np.minimum(found, np.diff(edges)) / HOUR


class _Tables(NamedTuple):
    """On a device. Link 0 is to send nothing; the step after the last one is dark and sees nobody."""

    light: Tensor
    """`[s, t + 1]`."""
    sight: Tensor
    """`[s, t + 1, k + 1]`."""
    seen: Tensor
    """Observations of these, and of how long there is nobody, `[s, t + 1, 1 + 2k]`."""
    rate: Tensor
    """`[k + 1]` each."""
    watts: Tensor
    price: Tensor


@dataclass(frozen=True, eq=False)
class Downlinks(TensorEnvironment):
    """A client is a satellite: it gathers data in sunlight, and empties its queue over one link at a time, or none.

    Action 0 sends nothing, action j sends over link j for as long as there is data, sight and power. Rewards are what
    this cost, how long data waited, and the energy it took, all negative.
    """

    passes: Passes
    links: tuple[Link, ...]
    gathered: float = 1.8
    """Gigabytes in an hour of sunlight."""
    solar: float = 6.0
    """Watts in sunlight for the radio."""
    battery: float = 10.0
    """Watt hours that the battery holds; an episode begins with a full one."""
    warm_up: float = 0.1
    """Watt hours that a transmitter takes whenever it is switched on."""

    objectives: int = 3

    @cached_property
    def observation_size(self) -> int:  # type: ignore[override]
        """Queue, battery, time, light, and of each link how long it is in sight and when it will be."""
        return 4 + 2 * len(self.links)

    @cached_property
    def actions(self) -> Actions:  # type: ignore[override]
        return Actions(count=1 + len(self.links))

    @cached_property
    def horizon(self) -> int:  # type: ignore[override]
        return int(self.passes.light.shape[1])

    @cached_property
    def _tables(self) -> dict[torch.device, _Tables]:
        return {}

    def _on(self, device: torch.device) -> _Tables:
        if device not in self._tables:
            passes = self.passes
            light, sight, wait = (_with_an_end(one) for one in (passes.light, passes.sight, passes.wait))
            seen = np.concatenate([light[..., None] / passes.hours, sight / passes.hours, wait / self.horizon], axis=2)
            arrays = (
                light,
                np.concatenate([np.zeros_like(sight[..., :1]), sight], axis=2),
                seen,
                # Numbers other than 0 for the link that does not exist: nothing is divided by it.
                *np.array([(1.0, 1.0, 0.0), *self.links]).T,
            )
            self._tables[device] = _Tables(
                *(torch.as_tensor(array, dtype=torch.float32, device=device) for array in arrays)
            )
        return self._tables[device]

    def start(self, n: int, device: torch.device) -> Message:
        whole = torch.zeros(n, dtype=torch.int64, device=device)
        empty = torch.zeros(n, device=device)
        return {"satellite": whole, "step": whole.clone(), "queue": empty, "energy": empty + self.battery}

    def begin(self, addresses: rng.Addresses, device: torch.device) -> Message:
        satellite = addresses.client.to(device) % len(self.passes.light)
        return super().begin(addresses, device) | {"satellite": satellite}

    def restart(self, state: Message) -> Message:
        return super().restart(state) | {"satellite": state["satellite"]}

    def observe(self, state: Message) -> Tensor:
        step = state["step"]
        own = [state["queue"] / self.gathered, state["energy"] / self.battery, 1 - step / self.horizon]
        orbit = self._on(step.device).seen[state["satellite"], step]
        return torch.cat([torch.stack(own, dim=1), orbit], dim=1)

    def advance(self, state: Message, action: Tensor) -> tuple[Message, Tensor, Tensor]:
        tables, satellite, step = self._on(action.device), state["satellite"], state["step"]
        light = tables.light[satellite, step]
        queue = state["queue"] + self.gathered * light
        energy = (state["energy"] + self.solar * light).clamp(max=self.battery)
        rate, watts = tables.rate[action], tables.watts[action]
        is_on = (action > 0) & (energy >= self.warm_up)
        left = energy - self.warm_up
        sent = torch.minimum(torch.minimum(tables.sight[satellite, step, action], queue / rate), left / watts) * is_on
        used = (self.warm_up + watts * sent) * is_on
        # Rounding must not leave less than nothing.
        queue, energy = (queue - rate * sent).clamp(min=0), (energy - used).clamp(min=0)
        reward = -torch.stack([tables.price[action] * sent, queue * self.passes.hours, used], dim=1)
        after = {"satellite": satellite, "step": step + 1, "queue": queue, "energy": energy}
        return after, reward, step + 1 >= self.horizon

    def worst(self) -> tuple[float, float, float]:
        """Returns that no policy falls below: all data over the dearest link, none sent at all, all power used up."""
        steps, hours = self.horizon, self.passes.hours
        dearest = max(link.price / link.rate for link in self.links)
        power = steps * (self.warm_up + max(link.watts for link in self.links) * hours)
        energy = min(power, self.battery + self.solar * hours * steps)
        return (
            -dearest * self.gathered * hours * steps,
            -self.gathered * hours**2 * steps * (steps + 1) / 2,
            -energy,
        )


def _with_an_end(table: np.ndarray) -> np.ndarray:
    """`[s, t + 1, …]`: zeros after the last step."""
    return np.concatenate([table, np.zeros_like(table[:, :1])], axis=1)
