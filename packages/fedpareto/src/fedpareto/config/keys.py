"""The keys of a run, in one place.

A field of `Keys` is a key of a spec: an argument of `fedpareto.run`, an option of `fedpareto run`, a line of YAML, a
field of the page's form, a word that shells complete and a row of the table in docs/running.md. Its docstring is the
help text. Nothing else has to be written for a new key, but the code that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fedpareto.config import kinds
from fedpareto.config.bounds import Above, AtLeast, Bounds, bounds_of, check, number
from fedpareto.config.errors import UserError
from fedpareto.config.source import field_docs

MOST = 10**9
"""Larger numbers of rounds are a slip of the hand."""


@dataclass(frozen=True)
class _ShareOrNumber(Bounds):
    """A share below 1, or a whole number."""

    def holds(self, value: Any) -> bool:
        return 0 <= value < 1 or (math.isfinite(value) and value >= 1 and value == int(value))

    def __str__(self) -> str:
        return "a share below 1 or a whole number of clients"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The values of a spec that are no sections."""

    clients: Annotated[int, AtLeast(1, 10**7)]
    """Number of clients. [default: the problem's or the engine's own]"""
    rounds: Annotated[int, AtLeast(1, MOST)] = 20
    """Number of exchanges of models between clients and server."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of repeated runs: how many (3 means 0, 1, 2) or which ones (4,7). [default: 1]"""
    preferences: Any = "dirichlet"
    """Preferences of the clients: dirichlet, equidistant, gaussian, uniform, sweep, one vector for all (0.7,0.3), one
    for each (0.7,0.3;0.2,0.8;…), by name (north=0.9,0.1;south=0.2,0.8;*=0.5,0.5) or groups:5,5.
    """
    participation: Annotated[float, Above(0, 1, "a share")] = 1.0
    """Share of the clients that take part in a round."""
    quorum: Annotated[float, _ShareOrNumber()] = 0.0
    """Valid replies that a round needs: below 1 a share of the selected clients, from 1 on a number of clients."""
    evaluate_every: Annotated[int, AtLeast(1, MOST)] = 1
    """Rounds between two evaluations; the final models are always evaluated."""
    stop_after: Annotated[int, AtLeast(0, MOST)] = 0
    """Rounds without improvement on validation rows after which a seed stops, with its best models; 0: never."""
    stop_margin: Annotated[float, AtLeast(0)] = 0.0
    """Rise of the hypervolume on validation rows, or of the mean of a single objective, that counts as improvement."""
    step: Literal["validated", "fixed"] = "fixed"
    """Step sizes of the clients: chosen on validation rows (validated), or the learner's (fixed). [default: validated
    where there are such rows and no step size is set]
    """
    hours: Annotated[float, AtLeast(0)] = 0.0
    """Simulated hours after which a run ends, where clients have devices; 0: after all rounds. [default: 0; 24 for a
    mission]
    """
    measure_losses: bool = False
    """Measure the clients' own training losses before and after each round with an evaluation."""
    measure_contribution: bool = False
    """Record at the server what each client's update adds to the mean of all."""
    normalisation: Literal["averaged", "private-statistics", "private"] = "averaged"
    """Sharing of normalisation layers: all of it, weights without statistics of rows, or nothing."""
    codec: str = "float32"
    """Coding of clients' replies: float32 (as they are), float32-delta, int8-delta and so on; see docs/codecs.md."""
    server_codec: str = "float32"
    """Coding of the server's messages, in the same words; a delta is the difference to what a client holds."""


@dataclass(frozen=True)
class Section:
    """A section of a spec that can be a single word."""

    parameter: str
    """The parameter that the word sets."""
    words: tuple[str, ...]
    about: str
    """The help text."""


SECTIONS: Mapping[str, Section] = {
    "privacy": Section("kind", get_args(kinds.Privacy), "Differential privacy."),
    "secure_sum": Section("kind", get_args(kinds.SecureSum), "Secure sum, which hides single replies."),
    "attack": Section("kind", get_args(kinds.Attack), "Attack by some of the clients."),
    "defence": Section("rule", get_args(kinds.Defence), "Rule by which the server defends itself."),
    "devices": Section("kind", get_args(kinds.Devices), "Machines of the clients; work then takes simulated time."),
    "policy": Section(
        "kind", get_args(kinds.Policy), "Clients that a round waits for. [default: the algorithm's own, mostly sync]"
    ),
    "selection": Section("kind", get_args(kinds.Selection), "Choice of the clients that are asked."),
}


def hints() -> dict[str, Any]:
    """Types of the keys, without their bounds."""
    whole = get_type_hints(Keys)
    return {field.name: whole[field.name] for field in fields(Keys)}


def usual() -> dict[str, Any]:
    """The value that each key has where it is left out; None: that depends."""
    depends = {"clients", "step"}
    found = {field.name: None if field.name in depends else field.default for field in fields(Keys)}
    return {**found, "seeds": 1}


def check_key(name: str, value: Any) -> None:
    if name == "seeds":
        _check_seeds(value)
    else:
        check(Keys, name, value)


def _check_seeds(seeds: Sequence[int]) -> None:
    rule = ""
    if not seeds:
        rule = "at least one seed is needed"
    elif len(set(seeds)) < len(seeds):
        rule = "each seed may be listed once"
    elif min(seeds) < 0:
        rule = "a seed is not negative"
    if rule:
        raise UserError(f"seeds is {list(seeds)}; {rule}")


@dataclass(frozen=True)
class About:
    """A key, as help texts, completion and documents tell of it."""

    name: str
    option: str
    type: Any
    choices: tuple[str, ...]
    text: str
    """Meaning of the key, without the default."""
    default: str
    bounds: str

    @property
    def help(self) -> str:
        return f"{self.text}  [default: {self.default}]"


def about() -> Iterator[About]:
    """Every key, then every section that can be a word."""
    docs, types, values, bounds = field_docs(Keys), hints(), usual(), bounds_of(Keys)
    for name, kind in types.items():
        text, default = _parted(docs[name])
        choices = tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()
        limits = str(bounds[name]) if name in bounds else ""
        yield About(name, _option(name), kind, choices, text, default or _word(values[name]), limits)
    for name, section in SECTIONS.items():
        text, default = _parted(section.about)
        words = f"{text.removesuffix('.')}: {', '.join(section.words)}."
        yield About(name, _option(name), str, section.words, words, default or section.words[0], "")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parted(text: str) -> tuple[str, str]:
    """A help text, and the default that it names in brackets."""
    text, _, default = text.partition(" [default: ")
    return text, default.removesuffix("]")


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


def table() -> str:
    allowed = ((one, one.bounds or ("" if one.name in SECTIONS else ", ".join(one.choices))) for one in about())
    rows = [f"| `{one.name}` | {one.text} | {one.default} | {right} |" for one, right in allowed]
    return "\n".join(["| Key | Meaning | Default | Allowed |", "|---|---|---|---|", *rows])
