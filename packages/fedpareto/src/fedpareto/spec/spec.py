"""A spec says everything about a run: it is the YAML file, the command line and the record in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.codecs import Codec
from fedpareto.config import keys
from fedpareto.config.errors import UserError, at
from fedpareto.config.keys import Keys
from fedpareto.config.parameters import to_plain
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Algorithm, participant_count
from fedpareto.contract.federation import Federation, draw_preferences
from fedpareto.contract.learner import Learner
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.spec import steps, yaml_file
from fedpareto.spec.checks import (
    check_attack,
    check_begin,
    check_codec,
    check_contribution,
    check_defence,
    check_graph,
    check_hours,
    check_losses,
    check_normalisation,
    check_reports,
    check_secure_sum,
    check_server_codec,
    check_stopping,
    check_time,
    need_losses,
    simulates,
)
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence

NAMED_SECTIONS = {"algorithm": "fedpref", "problem": "synthetic", "engine": "local"}
"""Sections that begin with a name, and its default."""
WORDS = {name: section.parameter for name, section in keys.SECTIONS.items()}
"""Sections that may be a single word, and the parameter that it sets."""
TOP_LEVEL = tuple(keys.hints())
"""Keys that are no sections."""
PARTS: dict[str, type] = {
    "faults": Faults,
    "privacy": Privacy,
    "secure_sum": SecureSum,
    "attack": Attack,
    "defence": Defence,
    "devices": Devices,
    "policy": Policy,
    "selection": Selection,
}
"""Sections that are one dataclass each."""
SECTIONS = ("algorithm", "problem", "learner", "engine", *PARTS)
MATRIX, SWEEP, TUNE = "matrix", "sweep", "tune"
"""The sections of a file that list many runs."""
PRIVATE = "private"
"""The preferences in the spec of a deployment, which only its nodes know."""


@dataclass(frozen=True)
class Spec(Keys):
    """Everything about a run, with its objects ready to use."""

    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    engine: EngineOptions = LocalOptions()
    faults: Faults = Faults()
    privacy: Privacy = Privacy()
    secure_sum: SecureSum = SecureSum()
    attack: Attack = Attack()
    defence: Defence = Defence()
    devices: Devices = Devices()
    policy: Policy = Policy()
    selection: Selection = Selection()

    def __post_init__(self) -> None:
        for key in keys.hints():
            with at(key):
                keys.check_key(key, getattr(self, key))
        algorithm, engine, privacy = self.algorithm, self.engine, self.privacy
        for key, checked in (("codec", check_codec), ("server_codec", check_server_codec)):
            with at(key):
                object.__setattr__(self, key, str(Codec.parse(getattr(self, key))))
                checked(getattr(self, key), engine, privacy)
        # Here, so that no spec can name a protection that its algorithm does not have.
        with at("normalisation"):
            algorithm = registry.normalised(algorithm, self.normalisation)
            check_normalisation(self.normalisation, self.problem)
        with at("privacy", "kind"):
            algorithm = registry.protected(algorithm, privacy)
        with at("secure_sum", "kind"):
            algorithm = registry.secured(algorithm, self.secure_sum)
        with at("step"):
            algorithm = steps.checked(algorithm, self.problem, self.learner, engine, privacy, self.step)
        object.__setattr__(self, "algorithm", algorithm)
        self._check_measures()
        self._check_trust()
        self._check_time()

    def _check_measures(self) -> None:
        algorithm, engine, privacy = self.algorithm, self.engine, self.privacy
        with at("measure_losses"):
            if self.measure_losses:
                need_losses(engine, self.learner)
            check_reports(self.measure_losses, privacy)
        with at("measure_contribution"):
            check_contribution(self.measure_contribution, algorithm, privacy)
        with at("algorithm", "name"):
            check_losses(algorithm, self.problem, self.learner)
            check_graph(algorithm, engine, self.clients)

    def _check_trust(self) -> None:
        attack, defence, clients = self.attack, self.defence, self.clients
        asked, codecs = participant_count(self.participation, clients), (self.codec, self.server_codec)
        with at("secure_sum"):
            check_secure_sum(self.secure_sum, self.privacy, asked, self.engine, attack, defence, codecs)
        with at("attack"):
            check_attack(attack, self.engine, self.problem, clients)
        with at("attack", "from_round"):
            check_begin(attack, self.rounds)
        with at("defence"):
            check_defence(defence, self.algorithm, self.privacy, self.policy, clients, self.participation)

    def _check_time(self) -> None:
        algorithm, engine = self.algorithm, self.engine
        with at("stop_after"):
            check_stopping(self.stop_after, self.stop_margin, algorithm, engine, self.privacy)
        with at("hours"):
            check_hours(self.hours, algorithm, engine, self.devices)
        with at("selection"):
            self.selection.must_fit(self.clients, participant_count(self.participation, self.clients))
        with at("policy"):
            self.policy.must_fit(algorithm, self.clients)
            check_time(self.devices, self.policy, self.selection, engine, self.privacy, len(self.seeds))
        with at("quorum"):
            if self.quorum > self.clients:
                raise UserError(f"quorum is {self.quorum:g}, but there are only {self.clients} clients")

    @property
    def timed(self) -> bool:
        """Whether the run has a simulated clock."""
        return self.simulates or self.chooses

    @property
    def simulates(self) -> bool:
        """Whether that clock moves: without devices work takes no time."""
        return simulates(self.engine, self.devices)

    @property
    def chooses(self) -> bool:
        """Whether policy and selection say who is asked, and not the algorithm's own draw."""
        return not self.policy.waits or self.selection.kind != "random"

    def federation(self, seed: int) -> Federation:
        """The clients of one seed."""
        run, runs = self.seeds.index(seed), len(self.seeds)
        return Federation.create(self.problem, self.clients, seed, self.preferences, run, runs)

    def preferences_of(self, seed: int) -> np.ndarray | None:
        """The clients' preferences under one seed, `[n, m]`."""
        run, runs = self.seeds.index(seed), len(self.seeds)
        return draw_preferences(self.preferences, self.clients, self.problem, seed, run, runs)

    def attackers(self) -> list[list[int]]:
        """The clients that attack, of each seed."""
        return [sorted(self.attack.attackers(range(self.clients), seed)) for seed in self.seeds]

    def to_mapping(self) -> dict[str, Any]:
        """Plain values with every parameter spelled out, as they are written to spec.yaml."""
        plain = {key: list(self.seeds) if key == "seeds" else getattr(self, key) for key in keys.hints()}
        if self.step == "fixed":  # Without the word, a spec with a step size has always meant it.
            del plain["step"]
        return {
            "algorithm": {"name": self.algorithm.name, **to_plain(self.algorithm.method)},
            "problem": {"name": self.problem.name, **to_plain(self.problem)},
            **plain,
            "learner": to_plain(self.learner),
            "engine": {"name": self.engine.name, **to_plain(self.engine)},
            **{name: to_plain(getattr(self, name)) for name in PARTS},
        }

    def to_yaml(self) -> str:
        """The text of spec.yaml."""
        return yaml_file.text_of(self.to_mapping())


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any], section: str = "") -> str:
    """The first difference between two specs, such as "learner.lr=0.1, not 0.2"; empty if they are the same."""
    for key in {**now, **before}:
        old, new = before.get(key), now.get(key)
        if old != new:
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                return first_difference(old, new, f"{section}{key}.")
            return f"{section}{key}={old}, not {new}"
    return ""
