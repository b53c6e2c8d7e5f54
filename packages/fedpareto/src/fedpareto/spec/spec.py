"""A spec says everything about a run: it is the YAML file, the command line and the record in the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
from fedpareto.contract.algorithm import Algorithm, participant_count, small_setting
from fedpareto.contract.federation import Federation, draw_preferences
from fedpareto.contract.learner import Learner
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem, SupervisedProblem
from fedpareto.contract.secure_sum import FEWEST, SecureSum
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.spec import steps, yaml_file
from fedpareto.trust.attacks import FORGERIES, Attack
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
BLIND = ("random", "round-robin", "available")
"""Kinds of selection that look at nothing which depends on rows."""
CODECS: tuple[Literal["codec", "server_codec"], ...] = ("codec", "server_codec")
SPECIAL_END = "does in its last round what it does in no other"
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
        algorithm, privacy = self.algorithm, self.privacy
        for key in CODECS:
            with at(key):
                object.__setattr__(self, key, str(Codec.parse(getattr(self, key))))
                self._check_codec(key)
        # Here, so that no spec can name a protection that its algorithm does not have.
        with at("normalisation"):
            algorithm = registry.normalised(algorithm, self.normalisation)
            self._check_normalisation()
        with at("privacy", "kind"):
            algorithm = registry.protected(algorithm, privacy)
        with at("secure_sum", "kind"):
            algorithm = registry.secured(algorithm, self.secure_sum)
        with at("step"):
            algorithm = self._stepped(algorithm)
        object.__setattr__(self, "algorithm", algorithm)
        asked = participant_count(self.participation, self.clients)
        checks: tuple[tuple[str, Callable[[], None]], ...] = (
            ("measure_losses", self._check_measured_losses),
            ("measure_contribution", self._check_contribution),
            ("algorithm.name", self._check_algorithm),
            ("secure_sum", self._check_secure_sum),
            ("attack", self._check_attack),
            ("attack.from_round", self._check_begin),
            ("defence", lambda: self.defence.must_fit(self.algorithm, privacy, self.policy.in_a_round(asked))),
            ("stop_after", self._check_stopping),
            ("hours", self._check_hours),
            ("selection", lambda: self.selection.must_fit(self.clients, asked)),
            ("policy", self._check_policy),
            ("quorum", self._check_quorum),
        )
        for place, check in checks:
            with at(*place.split(".")):
                check()

    def _check_codec(self, key: Literal["codec", "server_codec"]) -> None:
        word = getattr(self, key)
        codec = Codec.parse(word)
        reason = ""
        if key in self.engine.lacks:
            reason = self.engine.lacks[key]
        elif self.engine.precision == "float64":
            reason = "a codec writes float32 numbers, and engine.precision is float64"
        elif self.privacy.kind == "central" and not codec.lossless:
            reason = (
                "with privacy.kind=central the noise is for updates of at most the length clip, and what a codec loses "
                "makes them longer; float32-delta loses nothing"
            )
        if not codec.plain:
            _refuse(f"{key} is {word}", reason)

    def _check_normalisation(self) -> None:
        way = self.normalisation
        if way == "averaged":
            return
        layout = self.problem.layout
        kept, what = layout.names, "normalisation layers"
        if way == "private-statistics":
            kept, what = layout.buffers, "running statistics"
        if not set(layout.normalisation) & set(kept):
            _refuse(f"normalisation is {way}", f"the network of {self.problem.name} has no {what}; leave it out")

    def _stepped(self, algorithm: Algorithm[Any]) -> Algorithm[Any]:
        """Return the algorithm as it takes its steps."""
        if self.step == "fixed":
            if algorithm.channel.validated:
                needs = f"{algorithm.name} chooses its step sizes; give the algorithm itself"
                _refuse("step is fixed", needs)
            return algorithm
        why = steps.why_fixed(algorithm, self.problem, self.learner, self.engine, self.privacy)
        _refuse("step is validated", why, "; take step=fixed")
        found: Algorithm[Any] = registry.stepping().stepped(algorithm)
        return found

    def _check_measured_losses(self) -> None:
        if not self.measure_losses:
            return
        what = "measure_losses is true"
        _refuse(what, self.engine.lacks.get("losses", ""))
        if type(self.learner).loss is Learner.loss:
            _refuse(
                what,
                f"{type(self.learner).__name__} has no loss of a model as it stands; it works on problems with losses "
                "on rows",
            )
        if self.privacy.objectives != "exact":
            _refuse(what, f"privacy.objectives is {self.privacy.objectives}: losses would be told as they are")

    def _check_contribution(self) -> None:
        if not self.measure_contribution:
            return
        reason, sums = "", self.algorithm.channel.secure_sum.kind
        if not self.algorithm.reply_shapes(small_setting()).get("train"):
            reason = f"clients of {self.algorithm.name} send no model that could be compared"
        elif sums != "none":
            reason = f"with secure_sum.kind={sums} nobody sees what a single client sent"
        elif self.privacy.kind == "central":
            reason = "with privacy.kind=central what is recorded of single clients would have no noise; kind=local has"
        _refuse("measure_contribution is true", reason)

    def _check_algorithm(self) -> None:
        check_losses(self.algorithm, self.problem, self.learner)
        graph = self.algorithm.neighbours(self.clients)
        if graph is None and "server" in self.engine.lacks:
            needs = f"{self.algorithm.name} needs a server; take dsfl, or another route"
            _refuse(self.engine.lacks["server"], needs)

    def _check_secure_sum(self) -> None:
        kind, attack, defence = self.secure_sum.kind, self.attack.kind, self.defence.rule
        if kind == "none":
            if self.privacy.kind == "distributed":
                raise UserError(
                    "privacy.kind=distributed needs a secure sum, which hides all but the sum: secure_sum=masked"
                )
            return
        reason, asked = "", participant_count(self.participation, self.clients)
        if asked < FEWEST:
            reason = f"a round has {asked} of the clients, and only a sum of at least {FEWEST} hides each of them"
        elif defence != "none":
            reason = f"defence.rule={defence} looks at each client's update, and a sum hides them"
        elif attack in FORGERIES:
            reason = f"attack.kind={attack} forges replies, which are masked; attacks on rows and losses work"
        elif not all(Codec.parse(codec).plain for codec in (self.codec, self.server_codec)):
            reason = "codec and server_codec are for numbers that can be made shorter; masked ones look random"
        elif "secure_sum" in self.engine.lacks:
            reason = self.engine.lacks["secure_sum"]
        _refuse(f"secure_sum.kind is {kind}", reason)

    def _check_attack(self) -> None:
        if self.attack.kind != "none" and "attack" in self.engine.lacks:
            raise UserError(f"attack: {self.attack.kind} {self.engine.lacks['attack']}")
        self.attack.must_fit(self.problem, self.clients)

    def _check_begin(self) -> None:
        begin = self.attack.from_round
        if self.attack.kind != "none" and begin > self.rounds:
            raise UserError(f"attack: from_round is {begin}, but there are only {self.rounds} rounds")

    def _check_stopping(self) -> None:
        reason = ""
        if not self.stop_after:
            belongs = "no stop_after that it belongs to, such as 5" if self.stop_margin else ""
            _refuse(f"stop_margin is {self.stop_margin:g}", belongs)
            return
        if "stopping" in self.engine.lacks:
            reason = self.engine.lacks["stopping"]
        elif self.privacy.kind != "none":
            reason = "with privacy the choice of a round would depend on rows without any noise"
        elif self.algorithm.ends_as_planned:
            reason = f"{self.algorithm.name} {SPECIAL_END}"
        _refuse(f"stop_after is {self.stop_after}", reason, "; leave it out")

    def _check_hours(self) -> None:
        reason = ""
        if self.engine.simulates_time and not self.hours:
            reason = f"a {self.engine.name} ends by the clock: give its simulated hours, such as 24"
        elif self.hours and not self.simulates:
            reason = "without devices no time passes; try devices=tiers, or leave it out"
        elif self.hours and self.algorithm.ends_as_planned:
            reason = f"{self.algorithm.name} {SPECIAL_END}, and nobody knows which that is"
        _refuse(f"hours is {self.hours:g}", reason)

    def _check_policy(self) -> None:
        self.policy.must_fit(self.algorithm, self.clients)
        self.engine.check_time(self.devices, self.policy, self.selection, len(self.seeds))
        if self.selection.kind not in BLIND and self.privacy.kind != "none":
            raise UserError(
                f"selection.kind={self.selection.kind}: whom it asks depends on rows without any noise; with privacy "
                f"take {' or '.join(BLIND)}"
            )

    def _check_quorum(self) -> None:
        if self.quorum > self.clients:
            raise UserError(f"quorum is {self.quorum:g}, but there are only {self.clients} clients")

    @property
    def timed(self) -> bool:
        """True if the run has a simulated clock."""
        return self.simulates or self.chooses

    @property
    def simulates(self) -> bool:
        """True if that clock moves: without devices work takes no time."""
        return self.devices.kind != "none" or self.engine.simulates_time

    @property
    def chooses(self) -> bool:
        """True if policy and selection choose the clients that are asked, and not the algorithm's own draw."""
        return not self.policy.waits or self.selection.kind != "random"

    def beforehand(self) -> list[str]:
        """Lines for a user before a run begins: the step sizes that are tried, or why none is, and unusual costs.

        Nothing is said where a user has fixed a step size that could have been chosen, or without validation rows.
        """
        learner: Any = self.learner
        tried, fixed = steps.in_words(self.algorithm, learner), ""
        if self.problem.validates and hasattr(learner, "lr") and not tried:
            why = steps.why_fixed(self.algorithm, self.problem, learner, self.engine, self.privacy)
            taken = f"the step size {learner.lr:g} is taken as it is, not chosen on validation rows"
            fixed = f"{taken}: {why}" if why else ""
        return [line for line in (tried, fixed, self.algorithm.cost) if line]

    def federation(self, seed: int) -> Federation:
        run, runs = self.seeds.index(seed), len(self.seeds)
        return Federation.create(self.problem, self.clients, seed, self.preferences, run, runs)

    def preferences_of(self, seed: int) -> np.ndarray | None:
        """The clients' preferences under one seed, `[n, m]`."""
        run, runs = self.seeds.index(seed), len(self.seeds)
        return draw_preferences(self.preferences, self.clients, self.problem, seed, run, runs)

    def attackers(self) -> list[list[int]]:
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
        return yaml_file.text_of(self.to_mapping())


def _refuse(what: str, reason: str, hint: str = "") -> None:
    """Raise UserError that `what` cannot be, unless the reason is empty."""
    if reason:
        raise UserError(f"{what}, but {reason}{hint}")


def check_losses(algorithm: Algorithm[Any], problem: Problem, learner: Learner) -> None:
    """Raise UserError if an algorithm needs losses on rows, or a hidden layer, and the problem has none."""
    plain = algorithm.method
    needing = plain if "losses" in plain.requires else algorithm
    if "losses" in needing.requires and type(learner).loss is Learner.loss:
        raise UserError(
            f"{needing.name} needs a problem with losses on rows; {type(learner).__name__} on '{problem.name}' has none"
        )
    if "hidden layer" not in plain.requires or problem.layout.hidden == ():
        return
    if not isinstance(problem, SupervisedProblem) or problem.readout() is None:
        raise UserError(
            f"{plain.name} compares what the last hidden layer sees; of '{problem.name}' that is not known: take a "
            "problem whose model is an MLP, such as synthetic, table or adult"
        )


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any], section: str = "") -> str:
    """The first difference between two specs, such as "learner.lr=0.1, not 0.2"; empty if they are the same."""
    for key in {**now, **before}:
        old, new = before.get(key), now.get(key)
        if old != new:
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                return first_difference(old, new, f"{section}{key}.")
            return f"{section}{key}={old}, not {new}"
    return ""
