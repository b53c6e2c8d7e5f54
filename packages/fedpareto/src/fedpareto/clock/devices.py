"""Spec of the clients' devices. Part of a run's spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from fedpareto.clock.machines import COLUMNS, IDEAL, TIERS, VARIED
from fedpareto.clock.presence import Presence
from fedpareto.clock.tables import read_machines, read_trace
from fedpareto.clock.trips import Fleet
from fedpareto.config import kinds
from fedpareto.config.bounds import Bounded, Endless, NotNegative, Positive, PositiveShare, Share, ShareBelowOne
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.messages import Ids
from fedpareto.tensors.rng import Addresses

USUAL = "laptops"
"""Kind of device whose numbers count where none are given."""
LISTS = (*COLUMNS, "factor", "present", "phase")
"""Parameters with one number for all clients, or one for each."""
SUM = 1e-6
"""Tolerance of a sum of shares around 1, such as three times 0.333333."""


@dataclass(frozen=True)
class Devices(Bounded):
    """The clients' machines, from which a run has simulated seconds and joules.

    Speed, links, energy and so on are one number for all clients, or a list of one for each; of `tiers`, one for each
    tier. What is not given is that of a laptop, or of the tier.
    """

    prefix: ClassVar[str] = "devices: "

    kind: kinds.Devices = "none"
    """none: work takes no time; equal: machines as given; lognormal: speed and links vary around that; tiers: kinds of
    machines in given shares; file: a CSV with a line for each client.
    """
    speed: tuple[Endless, ...] = ()
    """Operations a second that training reaches; a multiplication and an addition are two."""
    factor: tuple[Positive, ...] = ()
    """Times `speed`: where only relative speeds are known."""
    down: tuple[Endless, ...] = ()
    """Bytes a second that a client receives."""
    up: tuple[Endless, ...] = ()
    """Bytes a second that a client sends."""
    latency: tuple[NotNegative, ...] = ()
    """Seconds that a message takes on top, in each direction."""
    loss: tuple[ShareBelowOne, ...] = ()
    """Share of packets that are lost and sent again, from 0 to below 1."""
    memory: tuple[Endless, ...] = ()
    """Bytes for training."""
    compute_watts: tuple[NotNegative, ...] = ()
    """Power while a client computes."""
    radio_watts: tuple[NotNegative, ...] = ()
    """Power while a client receives or sends."""
    width: tuple[PositiveShare, ...] = ()
    """Share of the widest network that a client can train; 1 unless given."""
    spread: NotNegative = 0.5
    """σ of the logarithm of speed and links, of `lognormal` and within `tiers`; 0: all alike."""
    tiers: tuple[str, ...] = ("phones", "laptops", "servers")
    """Kinds of machines …"""
    shares: tuple[Share, ...] = (0.6, 0.3, 0.1)
    """… and the share of clients with each; who has which is drawn from the seed."""
    file: str = ""
    """CSV with a column `client` and any of those above, from `speed` to `width` without `factor`; the kind `file`."""
    availability: str = "always"
    """always; periodic; or a CSV with the columns `client`, `start` and `end`: when clients are present, in seconds."""
    period: Positive = 86_400.0
    """Seconds after which `periodic` presence, or a trace that `repeats`, begins again; a day."""
    present: tuple[PositiveShare, ...] = (0.5,)
    """Share of each period in which a client is present, if `periodic`."""
    phase: tuple[NotNegative, ...] = ()
    """Seconds into its period of presence at which a client is at time 0, if `periodic`; empty: drawn from the
    seed.
    """
    repeats: bool = False
    """Repeat a trace after each `period`; otherwise clients are gone for good after their last end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_kind()
        self._check_tiers()
        if not self.present:
            raise UserError("devices: present is empty; it is a share, or one for each client")

    def _check_kind(self) -> None:
        given = [name for name in LISTS if name != "present" and getattr(self, name)]
        if self.availability != "always":
            given.append("availability")
        if self.kind == "none" and given:
            raise UserError(f"devices: {given[0]} is given, but kind is none, for which work takes no time; try equal")
        if (self.kind == "file") != bool(self.file):
            says = f"file is '{self.file}', but kind is {self.kind}" if self.file else "kind is file, but none is named"
            raise UserError(f"devices: {says}; write kind: file and file: devices.csv")

    def _check_tiers(self) -> None:
        for name in self.tiers:
            if name not in TIERS:
                raise UnknownName("tier of devices", name, TIERS)
        if len(set(self.tiers)) != len(self.tiers) or len(self.shares) != len(self.tiers):
            raise UserError(
                f"devices: tiers are {', '.join(self.tiers) or 'none'} with {len(self.shares)} shares; "
                "each is named once and has one"
            )
        if abs(sum(self.shares) - 1) > SUM:
            raise UserError(f"devices: the sum of shares is {sum(self.shares):g}; it is 1")

    # -- the machines of a federation ------------------------------------------------------------------------------

    def fleet(self, clients: Ids, seed: int) -> Fleet:
        """Everybody's machine, drawn from the seed; reads the files."""
        clients = np.asarray(clients, dtype=np.int64)
        tier = self._tier(clients, seed)
        numbers = {name: self._listed(name, self._usual(name), tier) for name in COLUMNS}
        if self.kind in ("lognormal", "tiers"):
            normal = Addresses.at(seed, clients, 0).normal("devices", len(VARIED)).numpy()
            for column, name in enumerate(VARIED):
                numbers[name] = numbers[name] * np.exp(self.spread * normal[:, column])
        if self.kind == "file":
            numbers |= read_machines(Path(self.file), clients)
        numbers["speed"] = numbers["speed"] * self._listed("factor", (1.0,), tier)
        names = self.tiers if self.kind == "tiers" else (self.kind,)
        return Fleet(clients, seed, **numbers, tier=tier, tiers=names, presence=self._presence(clients, seed, tier))

    def _tier(self, clients: Ids, seed: int) -> np.ndarray:
        """The number of each client's tier, `[n]`: as many of each as its share says, to the nearest client."""
        if self.kind != "tiers":
            return np.zeros(len(clients), dtype=np.int64)
        bounds = np.rint(np.cumsum(self.shares) / sum(self.shares) * len(clients))
        drawn = Addresses.at(seed, clients, 0).words("tiers", 1)[:, 0].numpy()
        place = np.argsort(np.argsort(drawn, kind="stable"), kind="stable")
        return np.searchsorted(bounds, place, side="right")

    def _usual(self, name: str) -> tuple[float, ...]:
        """A number where none is given: that of each tier, or one for all."""
        if self.kind == "tiers":
            return tuple(getattr(TIERS[tier], name) for tier in self.tiers)
        return (getattr(IDEAL if self.kind == "none" else TIERS[USUAL], name),)

    def _listed(self, name: str, usual: tuple[float, ...], tier: np.ndarray) -> np.ndarray:
        """A parameter for each client, `[n]`: one for all, one for each, or one for each tier."""
        given = np.array(getattr(self, name) or usual, dtype=np.float64)
        if len(given) == 1:
            return np.full(len(tier), given[0])
        wanted, of = (len(self.tiers), "tiers") if self.kind == "tiers" else (len(tier), "clients")
        if len(given) != wanted:
            raise UserError(
                f"devices: {name} has {len(given)} numbers; it is one for all, or one for each of {wanted} {of}"
            )
        return given[tier] if self.kind == "tiers" else given

    def _presence(self, clients: Ids, seed: int, tier: np.ndarray) -> Presence:
        if self.availability == "always":
            return Presence.always(len(clients))
        if self.availability != "periodic":
            return read_trace(Path(self.availability), clients, self.period if self.repeats else math.inf)
        if self.phase:
            phase = self._listed("phase", (), tier)
        else:
            drawn = Addresses.at(seed, clients, 0).uniform("presence", 1, dtype=torch.float64)
            phase = drawn[:, 0].numpy() * self.period
        return Presence.cycles(self.period, self._listed("present", (), tier), phase)
