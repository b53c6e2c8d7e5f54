"""A spec says everything about a run. It is the YAML file, the command line and the record in the run folder at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from fedpareto.core import registry
from fedpareto.core.algorithm import Algorithm
from fedpareto.core.federation import Federation
from fedpareto.core.learner import Learner
from fedpareto.core.parameters import build, convert, field_names, parse_value, to_plain
from fedpareto.core.problem import Problem
from fedpareto.engines.faults import Faults
from fedpareto.engines.local import LocalOptions
from fedpareto.errors import UnknownName, UserError

ENGINES = ("local",)
SECTIONS = ("algorithm", "problem", "learner", "engine", "faults")
ROUNDS = 20


@dataclass(frozen=True)
class Spec:
    """Everything about a run, with its objects ready to use."""

    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    clients: int
    rounds: int = ROUNDS
    seeds: tuple[int, ...] = (0,)
    preferences: Any = "dirichlet"
    """A distribution's name, a text of vectors, or a list of vectors; see moo.preferences.from_spec."""
    participation: float = 1.0
    """Share of the clients that take part in a round."""
    quorum: float = 0.0
    """Valid replies that a round needs: below 1 a share of those asked, from 1 on a number of clients."""
    engine: LocalOptions = LocalOptions()
    faults: Faults = Faults()

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise UserError(f"clients is {self.clients}; a federation has at least 1 client")
        if self.rounds < 1:
            raise UserError(f"rounds is {self.rounds}; at least 1 is needed")
        if not self.seeds:
            raise UserError("seeds is empty; give at least one seed")
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds are {list(self.seeds)}; each seed may stand there once")
        if not 0 < self.participation <= 1:
            raise UserError(f"participation is {self.participation}; it is a share above 0 and at most 1")
        if self.quorum < 0:
            raise UserError(f"quorum is {self.quorum}; it is a share below 1 or a number of clients")
        if any(seed < 0 for seed in self.seeds):
            raise UserError(f"seeds are {list(self.seeds)}; a seed is not negative")

    def federation(self, seed: int) -> Federation:
        """The clients of one seed."""
        return Federation.create(self.problem, self.clients, seed, self.preferences)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values with every parameter spelled out, as they are written to spec.yaml."""
        algorithm = getattr(self.algorithm, "algorithm", self.algorithm)  # A fine-tuned one keeps its own parameters.
        return {
            "algorithm": {"name": self.algorithm.name, **to_plain(algorithm)},
            "problem": {"name": self.problem.name, **to_plain(self.problem)},
            "clients": self.clients,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "preferences": self.preferences,
            "participation": self.participation,
            "quorum": self.quorum,
            "learner": to_plain(self.learner),
            "engine": {"name": "local", **to_plain(self.engine)},
            "faults": to_plain(self.faults),
        }

    def to_yaml(self) -> str:
        """The text of spec.yaml."""
        text: str = yaml.safe_dump(self.to_mapping(), sort_keys=False, allow_unicode=True)
        return text


@dataclass(frozen=True)
class Draft:
    """A spec as the user wrote it: nested plain values, and where each of them stands."""

    values: dict[str, Any] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """By path of keys, "spec.yaml, line 3"."""

    @classmethod
    def read(cls, path: Path) -> Draft:
        """From a YAML file."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise UserError(f"the spec {path} cannot be read: {problem}") from None
        try:
            node = yaml.compose(text)
            values = yaml.safe_load(text)
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            reason = getattr(problem, "problem", None) or "not YAML"
            raise UserError(f"{path.name}{line}: {reason}") from None
        if not isinstance(values, dict):
            raise UserError(f"{path.name}, line 1: a spec is a list of 'key: value' lines, such as 'rounds: 20'")
        return cls(values, {keys: f"{path.name}, line {line}" for keys, line in _lines(node, ())})

    def with_values(self, changes: Mapping[str, Any]) -> Draft:
        """With some top-level values set (the command line's flags); None means: not given."""
        values = dict(self.values)
        for key, value in changes.items():
            if value is None:
                continue
            old = values.get(key)
            if key in ("algorithm", "problem") and isinstance(old, dict):
                # Another algorithm does not inherit the parameters written for the first.
                values[key] = {**old, "name": value} if old.get("name") == value else {"name": value}
            else:
                values[key] = value
        where = {keys: place for keys, place in self.where.items() if changes.get(keys[0]) is None}
        return replace(self, values=values, where=where)

    def with_settings(self, settings: Iterable[str]) -> Draft:
        """With `key=value` texts applied; a key may name its section (learner.lr) or stand alone (lr)."""
        values = {key: dict(value) if isinstance(value, dict) else value for key, value in self.values.items()}
        draft = replace(self, values=values)
        for text in settings:
            key, equals, value = text.partition("=")
            if not equals:
                raise UserError(f"--set {text}: write key=value, for example --set lr=0.1")
            section, name = draft._place(key.strip(), text)
            if not section:
                values[name] = parse_value(value)
                continue
            if not isinstance(values.get(section), dict):
                values[section] = {"name": values[section]} if section in values else {}
            values[section][name] = parse_value(value)
        return draft

    def _place(self, key: str, text: str) -> tuple[str, str]:
        """The section and name that a key means."""
        section, dot, name = key.partition(".")
        if dot:
            if section not in SECTIONS:
                raise UnknownName(f"section in --set {text}:", section, SECTIONS)
            return section, name
        if key in _TOP_LEVEL:
            return "", key
        owners = [section for section, names in self._parameters().items() if key in names]
        if len(owners) > 1:
            choices = " or ".join(f"{owner}.{key}" for owner in owners)
            raise UserError(f"--set {text}: several parts have a '{key}'; write {choices}")
        if not owners:
            known = [*_TOP_LEVEL, *(name for names in self._parameters().values() for name in names)]
            raise UnknownName("parameter", key, known)
        return owners[0], key

    def _parameters(self) -> dict[str, list[str]]:
        """The parameters of every section, for the algorithm and problem that this draft names."""
        algorithm = registry.algorithm_class(_name(self.values.get("algorithm", DEFAULT_ALGORITHM)))
        problem = registry.problem_class(_name(self.values.get("problem", DEFAULT_PROBLEM)))
        return {
            "algorithm": field_names(algorithm),
            "problem": field_names(problem),
            "learner": field_names(problem().learner()),
            "engine": field_names(LocalOptions),
            "faults": field_names(Faults),
        }

    def finish(self) -> Spec:
        """The spec, or a clear word on what is wrong and where."""
        for key in self.values:
            if key not in (*_TOP_LEVEL, *SECTIONS):
                with self._at(key):
                    raise UnknownName("key", key, (*_TOP_LEVEL, *SECTIONS))
        with self._at("algorithm"):
            name, parameters = _named(self.values.get("algorithm", DEFAULT_ALGORITHM), "algorithm")
            cls = registry.algorithm_class(name)
        self._check("algorithm", cls, parameters, f"algorithm {name}")
        with self._at("algorithm"):
            algorithm = registry.make_algorithm(name, parameters)
        with self._at("problem"):
            name, parameters = _named(self.values.get("problem", DEFAULT_PROBLEM), "problem")
            problem_class = registry.problem_class(name)
        problem = self._check("problem", problem_class, parameters, f"problem {name}")
        learner = problem.learner()
        learner = self._check("learner", type(learner), to_plain(learner) | self._section("learner"), "learner")
        engine = self._section("engine")
        with self._at("engine"):
            if engine.pop("name", "local") not in ENGINES:
                raise UnknownName("engine", str(self._section("engine")["name"]), ENGINES)
        values: dict[str, Any] = {"clients": problem.default_clients()}
        for key, hint in _TOP_LEVEL.items():
            if key in self.values:
                with self._at(key):
                    values[key] = convert(self.values[key], hint, key)
        parts = {
            "engine": self._check("engine", LocalOptions, engine, "engine"),
            "faults": self._check("faults", Faults, self._section("faults"), "faults"),
        }
        spec = Spec(algorithm, problem, learner, **values, **parts)
        with self._at("preferences"):
            from fedpareto.core import rng
            from fedpareto.moo.preferences import from_spec

            from_spec(spec.preferences, spec.clients, len(problem.objectives), rng.generator(rng.Address(0), "check"))
        return spec

    def _section(self, name: str) -> dict[str, Any]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            if name == "engine":
                return {"name": value}
            with self._at(name):
                raise UserError(f"{name} is {value!r}; it is a group of 'key: value' lines")
        return dict(value)

    def _check(self, section: str, cls: type, values: Mapping[str, Any], what: str) -> Any:
        """Builds one section's dataclass; a message names the line of the key that does not fit."""
        with self._at(section):
            return build(cls, values, what, lambda key: self._prefix((section, key)))

    def _prefix(self, path: tuple[str, ...]) -> str:
        place = self.where.get(path) or self.where.get(path[:1])
        return f"{place}: " if place else ""

    def _at(self, key: str) -> _Located:
        return _Located(self._prefix((key,)))


class _Located:
    """Puts the place in front of a user error's text, unless it has one already."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, UserError) and self.prefix and ", line " not in str(problem):
            raise UserError(f"{self.prefix}{problem}") from None


DEFAULT_ALGORITHM, DEFAULT_PROBLEM = "fedpref", "synthetic"

_TOP_LEVEL: dict[str, Any] = {
    "clients": int,
    "rounds": int,
    "seeds": tuple[int, ...],
    "preferences": Any,
    "participation": float,
    "quorum": float,
}
assert set(_TOP_LEVEL) | set(SECTIONS) == {f.name for f in fields(Spec)}, "a new field of Spec needs its place here"


def load(path: Path) -> Spec:
    """The spec in a YAML file."""
    return Draft.read(path).finish()


def _named(value: Any, kind: str) -> tuple[str, dict[str, Any]]:
    """ "fedpref" or {name: fedpref, …} as name and parameters."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return value["name"], {key: entry for key, entry in value.items() if key != "name"}
    raise UserError(f"{kind} is {value!r}; write its name, or a group of lines with 'name: …' among them")


def _name(value: Any) -> str:
    return value if isinstance(value, str) else str((value or {}).get("name", ""))


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    """The line of every key in a YAML document, by path."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _lines(value, here)
