"""A spec says everything about a run: it is the YAML file, the command line and the record in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from fedpareto.codecs import Codec
from fedpareto.core import registry
from fedpareto.core.algorithm import Algorithm, participant_count, unwrapped
from fedpareto.core.federation import Federation, draw_preferences
from fedpareto.core.learner import Learner
from fedpareto.core.parameters import to_plain
from fedpareto.core.problem import Problem
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.errors import UserError
from fedpareto.experiments import spec_yaml, steps
from fedpareto.experiments.spec_values import (
    TOP_LEVEL,
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
    check_value,
    need_losses,
    simulates,
)
from fedpareto.fleet.devices import Devices
from fedpareto.fleet.policy import Policy
from fedpareto.fleet.selection import Selection
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence
from fedpareto.trust.privacy import Privacy
from fedpareto.trust.secure_sum import SecureSum

NAMED_SECTIONS = {"algorithm": "fedpref", "problem": "synthetic", "engine": "local"}
"""Sections that begin with a name, and its default."""
WORDS = {
    "privacy": "kind",
    "secure_sum": "kind",
    "attack": "kind",
    "defence": "rule",
    "devices": "kind",
    "policy": "kind",
    "selection": "kind",
}
"""Sections that may be a single word, and the parameter that it sets."""
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
ROUNDS = 20
PRIVATE = "private"
"""The preferences in the spec of a deployment, which only its nodes know."""


@dataclass(frozen=True)
class Spec:
    """Everything about a run, with its objects ready to use."""

    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    clients: int
    """How many there are; mostly the problem says how many it has."""
    rounds: int = ROUNDS
    """How often clients and server exchange models."""
    seeds: tuple[int, ...] = (0,)
    """The same run once for each: how many (3 is 0, 1, 2), or which ones (4,7)."""
    preferences: Any = "dirichlet"
    """What each client wants: dirichlet, equidistant, gaussian, uniform, sweep, one vector for all (0.7,0.3), one for
    each (0.7,0.3;0.2,0.8;…), by name (north=0.9,0.1;south=0.2,0.8;*=0.5,0.5) or groups:5,5.
    """
    participation: float = 1.0
    """Share of the clients that take part in a round."""
    quorum: float = 0.0
    """Valid replies that a round needs: below 1 a share of the selected clients, from 1 on a number of clients."""
    evaluate_every: int = 1
    """Rounds between two evaluations; the final models are always evaluated."""
    stop_after: int = 0
    """Rounds without improvement on validation rows after which a seed stops, with its best models; 0: never."""
    stop_margin: float = 0.0
    """How much the hypervolume on validation rows, or the mean of a single objective, must rise to count as an
    improvement.
    """
    step: steps.Choice = "fixed"
    """Whether clients' step sizes are chosen on validation rows (validated) or are the learner's (fixed); without a
    word, validated where there are such rows and no step size is set.
    """
    hours: float = 0.0
    """Simulated hours after which a run ends, where clients have devices; 0: after all rounds."""
    measure_losses: bool = False
    """Whether the clients' own training losses are measured before and after each round with an evaluation."""
    measure_contribution: bool = False
    """Whether the server records what each client's update added to the mean of all."""
    normalisation: Literal["averaged", "private-statistics", "private"] = "averaged"
    """What clients share of normalisation layers: all of it, their weights without statistics of rows, or nothing."""
    codec: str = "float32"
    """How clients' replies travel, see fedpareto.codecs: float32 as they are, float32-delta, int8-delta and so on."""
    server_codec: str = "float32"
    """How the server's messages travel, in the same words: float32 as they are, or as the difference to what a client
    holds, float32-delta, int8-delta and so on.
    """
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
        # Here, so that no spec can name a protection that its algorithm does not have.
        algorithm = registry.normalised(self.algorithm, self.normalisation)
        algorithm = registry.secured(registry.protected(algorithm, self.privacy), self.secure_sum)
        algorithm = steps.checked(algorithm, self.problem, self.learner, self.engine, self.privacy, self.step)
        object.__setattr__(self, "algorithm", algorithm)
        for key in TOP_LEVEL:
            check_value(key, getattr(self, key))
        if self.quorum > self.clients:
            raise UserError(f"quorum is {self.quorum:g}, but there are only {self.clients} clients")
        if self.measure_losses:
            need_losses(self.engine, self.learner)
        asked, codecs = participant_count(self.participation, self.clients), (self.codec, self.server_codec)
        check_secure_sum(self.secure_sum, self.privacy, asked, self.engine, self.attack, self.defence, codecs)
        check_contribution(self.measure_contribution, self.algorithm, self.privacy)
        check_reports(self.measure_losses, self.privacy)
        check_stopping(self.stop_after, self.stop_margin, self.algorithm, self.engine, self.privacy)
        check_hours(self.hours, self.algorithm, self.engine, self.devices)
        check_losses(self.algorithm, self.problem, self.learner)
        check_graph(self.algorithm, self.engine, self.clients)
        check_normalisation(self.normalisation, self.problem)
        check_attack(self.attack, self.engine, self.problem, self.clients)
        check_begin(self.attack, self.rounds)
        check_defence(self.defence, self.algorithm, self.privacy, self.policy, self.clients, self.participation)
        check_time(self.devices, self.policy, self.selection, self.engine, self.privacy, len(self.seeds))
        for key in ("codec", "server_codec"):
            object.__setattr__(self, key, str(Codec.parse(getattr(self, key))))
        check_codec(self.codec, self.engine, self.privacy)
        check_server_codec(self.server_codec, self.engine, self.privacy)
        self.policy.must_fit(self.algorithm, self.clients)
        self.selection.must_fit(self.clients, asked)

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
        return {
            "algorithm": {"name": self.algorithm.name, **to_plain(unwrapped(self.algorithm))},
            "problem": {"name": self.problem.name, **to_plain(self.problem)},
            "clients": self.clients,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "preferences": self.preferences,
            "participation": self.participation,
            "quorum": self.quorum,
            "evaluate_every": self.evaluate_every,
            "stop_after": self.stop_after,
            "stop_margin": self.stop_margin,
            # Without the word, a spec with a step size has always meant it.
            **({"step": self.step} if self.step == "validated" else {}),
            "hours": self.hours,
            "measure_losses": self.measure_losses,
            "measure_contribution": self.measure_contribution,
            "normalisation": self.normalisation,
            "codec": self.codec,
            "server_codec": self.server_codec,
            "learner": to_plain(self.learner),
            "engine": {"name": self.engine.name, **to_plain(self.engine)},
            **{name: to_plain(getattr(self, name)) for name in PARTS},
        }

    def to_yaml(self) -> str:
        """The text of spec.yaml."""
        return spec_yaml.text_of(self.to_mapping())


assert set(TOP_LEVEL) | set(SECTIONS) == {f.name for f in fields(Spec)}, "a new field of Spec needs its place here"


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any], section: str = "") -> str:
    """The first difference between two specs, such as "learner.lr=0.1, not 0.2"; empty if they are the same."""
    for key in {**now, **before}:
        old, new = before.get(key), now.get(key)
        if old != new:
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                return first_difference(old, new, f"{section}{key}.")
            return f"{section}{key}={old}, not {new}"
    return ""
