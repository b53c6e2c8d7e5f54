"""What the values of a spec may be, each by itself and beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.codecs import Codec
from fedpareto.config import keys
from fedpareto.config.bounds import number
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import convert
from fedpareto.contract.algorithm import Algorithm, participant_count, small_setting
from fedpareto.contract.learner import Learner
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem, SupervisedProblem
from fedpareto.contract.secure_sum import FEWEST, SecureSum
from fedpareto.engines.options import EngineOptions
from fedpareto.trust.attacks import FORGERIES, Attack
from fedpareto.trust.defences import Defence

BLIND = ("random", "round-robin", "available")
"""Kinds of selection that look at nothing which depends on rows."""
MOST_SEEDS = 10**5
"""More are a slip of the hand, or mean to fill the memory."""


def top_level(key: str, value: Any) -> Any:
    """A top-level value of a spec as its type, if it is valid."""
    if key == "seeds":
        value = _seeds(value)
    elif key == "preferences":
        value = _lists(value)
    ready = convert(value, keys.hints()[key], key)
    keys.check_key(key, ready)
    return str(Codec.parse(ready)) if key in ("codec", "server_codec") else ready


def need_losses(engine: EngineOptions, learner: Learner) -> None:
    """Raises UserError where clients' losses cannot be measured."""
    if "losses" in engine.lacks:
        raise UserError(f"measure_losses is true, but {engine.lacks['losses']}")
    if type(learner).loss is Learner.loss:
        raise UserError(
            f"measure_losses is true, but {type(learner).__name__} has no loss of a model as it stands; "
            "it works on problems with losses on rows"
        )


def check_contribution(measured: bool, algorithm: Algorithm[Any], privacy: Privacy) -> None:
    """Raises UserError where the server cannot say, or may not record, what a client contributes."""
    if not measured:
        return
    reason = ""
    if not algorithm.reply_shapes(small_setting()).get("train"):
        reason = f"clients of {algorithm.name} send no model that could be compared"
    elif algorithm.channel.secure_sum.kind != "none":
        reason = f"with secure_sum.kind={algorithm.channel.secure_sum.kind} nobody sees what a single client sent"
    elif privacy.kind == "central":
        reason = "with privacy.kind=central what is recorded of single clients would have no noise; kind=local has"
    if reason:
        raise UserError(f"measure_contribution is true, but {reason}")


def check_normalisation(way: str, problem: Problem) -> None:
    """Raises UserError if there is nothing that clients could keep."""
    if way == "averaged":
        return
    layout = problem.layout
    kept = set(layout.normalisation) & set(layout.buffers if way == "private-statistics" else layout.names)
    if not kept:
        what = "running statistics" if way == "private-statistics" else "normalisation layers"
        raise UserError(f"normalisation is {way}, but the network of {problem.name} has no {what}; leave it out")


def check_reports(measured: bool, privacy: Privacy) -> None:
    """Raises UserError if clients would report their losses, which have no noise, though not their objectives."""
    if measured and privacy.objectives != "exact":
        raise UserError(
            f"measure_losses is true, but privacy.objectives is {privacy.objectives}: losses would be told as they are"
        )


def check_codec(word: str, engine: EngineOptions, privacy: Privacy) -> None:
    """Raises UserError where replies cannot travel coded."""
    _check_numbers("codec", word, engine, privacy)


def check_server_codec(word: str, engine: EngineOptions, privacy: Privacy) -> None:
    """Raises UserError where what the server sends cannot travel coded."""
    _check_numbers("server_codec", word, engine, privacy)


def _check_numbers(key: Literal["codec", "server_codec"], word: str, engine: EngineOptions, privacy: Privacy) -> None:
    """Raises UserError if a codec does not fit the engine or the numbers of a run."""
    if key in engine.lacks:
        _check_codec(key, word, engine.lacks[key])
    if engine.precision == "float64":
        _check_codec(key, word, "a codec writes float32 numbers, and engine.precision is float64")
    if privacy.kind == "central" and not Codec.parse(word).lossless:
        _check_codec(
            key,
            word,
            "with privacy.kind=central the noise is for updates of at most the length clip, and what a codec loses "
            "makes them longer; float32-delta loses nothing",
        )


def _check_codec(key: str, word: str, reason: str) -> None:
    """Raises UserError with the reason if numbers do not travel as they are."""
    if not Codec.parse(word).plain:
        raise UserError(f"{key} is {word}, but {reason}")


def check_secure_sum(
    secure_sum: SecureSum,
    privacy: Privacy,
    asked: int,
    engine: EngineOptions,
    attack: Attack,
    defence: Defence,
    codecs: Sequence[str],
) -> None:
    """Raises UserError where a round has too few clients, or somebody has to see or change a single one's reply."""
    if secure_sum.kind == "none":
        if privacy.kind == "distributed":
            raise UserError(
                "privacy.kind=distributed needs a secure sum, which hides all but the sum: secure_sum=masked"
            )
        return
    reason = ""
    if asked < FEWEST:
        reason = f"a round has {asked} of the clients, and only a sum of at least {FEWEST} hides each of them"
    elif defence.rule != "none":
        reason = f"defence.rule={defence.rule} looks at each client's update, and a sum hides them"
    elif attack.kind in FORGERIES:
        reason = f"attack.kind={attack.kind} forges replies, which are masked; attacks on rows and losses work"
    elif not all(Codec.parse(codec).plain for codec in codecs):
        reason = "codec and server_codec are for numbers that can be made shorter; masked ones look random"
    elif "secure_sum" in engine.lacks:
        reason = engine.lacks["secure_sum"]
    if reason:
        raise UserError(f"secure_sum.kind is {secure_sum.kind}, but {reason}")


def usual_policy(algorithm: Algorithm[Any], secure_sum: SecureSum) -> Policy:
    """Of a run that does not say for whom its rounds wait: the algorithm's own, or for all where masks must cancel."""
    return Policy(kind=algorithm.policy if secure_sum.kind == "none" else "sync")


def check_stopping(
    after: int, margin: float, algorithm: Algorithm[Any], engine: EngineOptions, privacy: Privacy
) -> None:
    """Raises UserError where a run cannot be stopped early."""
    if not after:
        if margin:
            raise UserError(f"stop_margin is {margin:g}, but no stop_after that it belongs to, such as 5")
        return
    reason = ""
    if "stopping" in engine.lacks:
        reason = engine.lacks["stopping"]
    elif privacy.kind != "none":
        reason = "with privacy the choice of a round would depend on rows without any noise"
    elif algorithm.ends_as_planned:
        reason = f"{algorithm.name} does in its last round what it does in no other"
    if reason:
        raise UserError(f"stop_after is {after}, but {reason}; leave it out")


def simulates(engine: EngineOptions, devices: Devices) -> bool:
    """Whether a run has a clock that moves: of machines that are simulated, or of satellites."""
    return devices.kind != "none" or engine.simulates_time


def check_hours(hours: float, algorithm: Algorithm[Any], engine: EngineOptions, devices: Devices) -> None:
    """Raises UserError where a run cannot end by the clock."""
    if engine.simulates_time and not hours:
        raise UserError(f"hours is 0, but a {engine.name} ends by the clock: give its simulated hours, such as 24")
    reason = ""
    if hours and not simulates(engine, devices):
        reason = "without devices no time passes; try devices=tiers, or leave it out"
    elif hours and algorithm.ends_as_planned:
        reason = f"{algorithm.name} does in its last round what it does in no other, and nobody knows which that is"
    if reason:
        raise UserError(f"hours is {hours:g}, but {reason}")


def check_graph(algorithm: Algorithm[Any], engine: EngineOptions, clients: int) -> None:
    """Raises UserError if clients cannot be neighbours as an algorithm wants it, or in a swarm are none."""
    graph = algorithm.neighbours(clients)
    if graph is None and "server" in engine.lacks:
        raise UserError(f"{engine.lacks['server']}, but {algorithm.name} needs a server; take dsfl, or another route")


def check_losses(algorithm: Algorithm[Any], problem: Problem, learner: Learner) -> None:
    """Raises UserError if an algorithm needs losses on rows, or a hidden layer, and there are none."""
    needing = algorithm.method if "losses" in algorithm.method.requires else algorithm
    if "losses" in needing.requires and type(learner).loss is Learner.loss:
        raise UserError(
            f"{needing.name} needs a problem with losses on rows; {type(learner).__name__} on '{problem.name}' has none"
        )
    _check_hidden(algorithm.method, problem)


def _check_hidden(plain: Algorithm[Any], problem: Problem) -> None:
    """Raises UserError if an algorithm reads a network's last hidden layer, and that is inside of another module."""
    if "hidden layer" not in plain.requires or problem.layout.hidden == ():
        return
    if not isinstance(problem, SupervisedProblem) or problem.readout() is None:
        raise UserError(
            f"{plain.name} compares what the last hidden layer sees; of '{problem.name}' that is not known: take a "
            "problem whose model is an MLP, such as synthetic, table or adult"
        )


def check_attack(attack: Attack, engine: EngineOptions, problem: Problem, clients: int) -> None:
    """Raises UserError if an attack cannot be simulated."""
    if attack.kind != "none" and "attack" in engine.lacks:
        raise UserError(f"attack: {attack.kind} {engine.lacks['attack']}")
    attack.must_fit(problem, clients)


def check_begin(attack: Attack, rounds: int) -> None:
    """Raises UserError if an attack would begin after the last round."""
    if attack.kind != "none" and attack.from_round > rounds:
        raise UserError(f"attack: from_round is {attack.from_round}, but there are only {rounds} rounds")


def check_defence(
    defence: Defence, algorithm: Algorithm[Any], privacy: Privacy, policy: Policy, clients: int, participation: float
) -> None:
    """Raises UserError if a defence does not fit the rest of a spec."""
    defence.must_fit(algorithm, privacy, policy.in_a_round(participant_count(participation, clients)))


def check_time(
    devices: Devices, policy: Policy, selection: Selection, engine: EngineOptions, privacy: Privacy, seeds: int
) -> None:
    """Raises UserError where a clock, a policy or a choice of clients does not fit the engine or the privacy."""
    engine.check_time(devices, policy, selection, seeds)
    if selection.kind not in BLIND and privacy.kind != "none":
        raise UserError(
            f"selection.kind={selection.kind}: whom it asks depends on rows without any noise; with privacy take "
            f"{' or '.join(BLIND)}"
        )


def _seeds(value: Any) -> list[Any]:
    """How many (3 means 0, 1, 2) or which ([4, 7] or "4,7"; "4," is the one seed 4)."""
    if isinstance(value, str):
        try:
            which = [int(part) for part in value.removesuffix(",").split(",")]
        except ValueError:
            raise UserError(f"seeds is '{value}'; write how many, such as 3, or which, such as 4,7") from None
        value = which if "," in value else which[0]
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise UserError(f"seeds is {value}; at least 1 is needed")
        if value > MOST_SEEDS:
            raise UserError(f"seeds is {number(value)}; at most {MOST_SEEDS:,} can be handled")
        return list(range(value))
    return list(value) if isinstance(value, Sequence) else [value]


def _lists(value: Any) -> Any:
    """Arrays and tuples as lists, which a file can hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _lists(item) for name, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
