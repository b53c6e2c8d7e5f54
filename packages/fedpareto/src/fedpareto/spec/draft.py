"""A spec as the user wrote it: a YAML file, the command line's flags, `--set`; its messages know the line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import SELECTION_PARAMETERS
from fedpareto.codecs import Codec
from fedpareto.config import keys
from fedpareto.config.bounds import number
from fedpareto.config.errors import UnknownName, UserError, at
from fedpareto.config.parameters import as_recorded, build, convert, field_names, must_be_usable, parse_value, to_plain
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.federation import draw_preferences
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Problem
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import EngineOptions
from fedpareto.spec import backends, steps, yaml_file
from fedpareto.spec.spec import (
    MATRIX,
    NAMED_SECTIONS,
    PARTS,
    SECTIONS,
    SWEEP,
    TOP_LEVEL,
    TUNE,
    WORDS,
    Spec,
)
from fedpareto.trust.attacks import ATTACK_PARAMETERS
from fedpareto.trust.defences import DEFENCE_PARAMETERS

USED_BY: Mapping[str, Mapping[str, Sequence[str]]] = {
    "attack": ATTACK_PARAMETERS,
    "defence": DEFENCE_PARAMETERS,
    "selection": SELECTION_PARAMETERS,
}
"""Rules or kinds that use each parameter, of some sections."""
MOST_SEEDS = 10**5
"""More seeds are a slip of the hand, or mean to fill the memory."""
OBJECTS: Mapping[str, type] = {
    "algorithm": Algorithm,
    "problem": Problem,
    "learner": Learner,
    "engine": EngineOptions,
    **PARTS,
}
"""Classes of objects that a section may be in Python, instead of plain values."""


@dataclass(frozen=True)
class Draft:
    """A spec as the user wrote it: nested plain values, and the line of each."""

    values: dict[str, Any] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Place of each path of keys, "spec.yaml, line 3" or "--set lr=0.1"."""

    @classmethod
    def read(cls, path: Path) -> Draft:
        return cls(*yaml_file.read(path))

    @classmethod
    def of_record(cls, path: Path) -> Draft:
        """From the file of a run or a federation, in which every parameter stood that there was then."""
        draft = cls.read(path)
        name, values = draft._named("problem")
        recorded = as_recorded(registry.problem_class(name), values)
        return cls({**draft.values, "problem": {"name": name, **recorded}}, draft.where)

    def parted(self, section: str, usual: Any = None) -> tuple[Any, str, Draft]:
        """Return a section that lists many runs, `usual` without it; its place; and the rest of the file."""
        rest = {key: value for key, value in self.values.items() if key != section}
        return self.values.get(section, usual), self.where.get((section,), section), Draft(rest, self.where)

    def with_values(self, changes: Mapping[str, Any]) -> Draft:
        """With some top-level values set (the command line's flags); None means: not given."""
        values, where = dict(self.values), dict(self.where)
        for key, value in changes.items():
            if value is None:
                continue
            old = values.get(key)
            if key in NAMED_SECTIONS and isinstance(old, dict) and old.get("name", NAMED_SECTIONS[key]) == value:
                continue  # The same one again: its parameters stay. Another one would not inherit them.
            if key in WORDS and isinstance(old, dict) and old.get(WORDS[key]) == value:
                continue
            values[key] = value
            where = {path: place for path, place in where.items() if path[0] != key}
        return Draft(values, where)

    def with_section(self, section: str, changes: Mapping[str, Any]) -> Draft:
        """With some parameters of a section set as they are; None means: not given."""
        given = {key: value for key, value in changes.items() if value is not None}
        if not given:
            return self
        where = {path: place for path, place in self.where.items() if path not in [(section, key) for key in given]}
        return Draft({**self.values, section: self._section(section) | given}, where)

    def with_engine(self, options: Mapping[str, Any]) -> Draft:
        """With options of the local engine that the user did not give; another engine has its own."""
        given = self._section("engine")
        if given.get("name", NAMED_SECTIONS["engine"]) != NAMED_SECTIONS["engine"]:
            return self
        return Draft({**self.values, "engine": {**options, **given}}, self.where)

    def with_settings(self, settings: Iterable[str]) -> Draft:
        """With `key=value` texts applied; a key may name its section (learner.lr) or be bare (lr)."""
        draft, seen = self, dict[str, str]()
        for text in settings:
            key, equals, value = (part.strip() for part in text.partition("="))
            if not equals or not key:
                raise UserError(f"--set {text}: write key=value, for example --set lr=0.1")
            if key in seen and draft._holds_several(draft._path(key, f"--set {text}")):
                both = f"--set {key}={seen[key]},{value}"
                raise UserError(f"--set {text}: {key} is set twice; if both are meant, write them as a list: {both}")
            seen[key] = value
            draft = draft.with_value(key, parse_value(value), f"--set {text}")
        return draft

    def with_value(self, key: str, value: Any, place: str) -> Draft:
        """With one value set; a key may name its section or be bare, a message about it begins with `place`."""
        if key in NAMED_SECTIONS:
            draft = self.with_values({key: value})
            return Draft(draft.values, {**draft.where, (key,): place})
        path = self._path(key, place)
        values = dict(self.values)
        if len(path) == 1:
            values[key] = value
        else:
            values[path[0]] = self._section(path[0]) | {path[1]: value}
        return Draft(values, {**self.where, path: place})

    def with_parameters(self, values: Mapping[str, Any], *section: str) -> Draft:
        """With values by key, an algorithm before its parameters; a message names the line of the key in a section."""
        draft = self
        for key in sorted(values, key=lambda key: key not in NAMED_SECTIONS):
            draft = draft.with_value(key, values[key], self.where.get((*section, key), ".".join((*section, key))))
        return draft

    def _holds_several(self, path: tuple[str, ...]) -> bool:
        """Return True if a parameter is a list of values, such as columns."""
        classes = {"algorithm": registry.algorithm_class, "problem": registry.problem_class}
        if len(path) == 1 or path[0] not in classes:
            return False
        owner = classes[path[0]](self._named(path[0])[0])
        return isinstance(getattr(owner, path[1], None), tuple)

    def _path(self, key: str, place: str) -> tuple[str, ...]:
        section, dot, name = key.partition(".")
        if dot:
            if section not in SECTIONS:
                raise UnknownName(f"section in {place}:", section, SECTIONS)
            return section, name
        if key in TOP_LEVEL and key != "step":
            return (key,)
        if key in WORDS:
            return key, WORDS[key]
        parameters = self._parameters()
        if key in TOP_LEVEL and key not in parameters["algorithm"]:  # That of fairtrade is a factor.
            return (key,)
        owners = [section for section, names in parameters.items() if key in names]
        if len(owners) > 1:
            choices = " or ".join(f"{owner}.{key}" for owner in owners)
            raise UserError(f"{place}: several parts have a '{key}'; write {choices}")
        if not owners:
            full = [f"{section}.{name}" for section in WORDS for name in field_names(PARTS[section])]
            known = [*TOP_LEVEL, *(name for names in parameters.values() for name in names), *full]
            raise UserError(f"{place}: {UnknownName('parameter', key, known)}")
        return owners[0], key

    def _parameters(self) -> dict[str, list[str]]:
        """The parameters that may be bare, by section, for the algorithm and problem that this draft names.

        Those of privacy, attack, defence and of the clock may not: a bare "noise", "clip" or "speed" could mean the
        data or the gradients.
        """
        algorithm = registry.algorithm_class(self._named("algorithm")[0])
        problem = registry.problem_class(self._named("problem")[0])
        return {
            "algorithm": field_names(algorithm),
            "problem": field_names(problem),
            "learner": field_names(problem().learner()),
            "engine": field_names(self._engine_class()),
            "faults": field_names(Faults),
        }

    def finish(self) -> Spec:
        """The spec, or a clear message saying what is wrong and where."""
        self._check_values()
        algorithm, problem = self._algorithm(), self._problem()
        learner = self._learner(problem)
        parts = {
            "engine": self._part("engine", self._engine_class(), self._named("engine")[1]),
            **{name: self._part(name, cls, self._section(name)) for name, cls in PARTS.items()},
        }
        if not self.values.get("policy"):
            waits = algorithm.policy
            # Masks cancel only if nobody is missing.
            parts["policy"] = Policy(kind=waits if parts["secure_sum"].kind == "none" else "sync")
        for section, example in (("attack", "sign-flip"), ("defence", "median"), ("secure_sum", "masked")):
            self._need_word(section, example)
        for section in USED_BY:
            with self._placed():
                self._need_use(section, parts[section])
        values: dict[str, Any] = {"clients": problem.default_clients(), **parts["engine"].defaults}
        for key in TOP_LEVEL:
            if key in self.values:
                with self._at(key):
                    values[key] = _top_level(key, self.values[key])
        if "step" not in values:
            given = [*self._names_in("learner"), *self._names_in("algorithm")]
            is_given = any("lr" in name.split("_") for name in given)
            beside = problem, learner, parts["engine"], parts["privacy"]
            values["step"] = "fixed" if is_given or steps.why_fixed(algorithm, *beside) else "validated"
        with self._placed():
            spec = Spec(algorithm, problem, learner, **values, **parts)
        with self._at("preferences"):
            draw_preferences(spec.preferences, spec.clients, problem, seed=0)
        return spec

    def _check_values(self) -> None:
        """Raises UserError for a key that no run has, and for a value that none can have."""
        for section in {MATRIX, SWEEP, TUNE} & self.values.keys():
            with self._at(section):
                raise UserError(f"a section '{section}' lists many runs; this file is for 'fedpareto {section}'")
        for key in self.values:
            if key not in (*TOP_LEVEL, *SECTIONS):
                with self._at(str(key)):
                    raise UnknownName("key", str(key), (*TOP_LEVEL, *SECTIONS))
        for key, value in self.values.items():
            for name, part in value.items() if isinstance(value, dict) else [("", value)]:
                with self._at(key, name):
                    must_be_usable(part)

    def _need_word(self, section: str, example: str) -> None:
        """Raises UserError if a section has parameters of something that it does not name."""
        given, word = list(self._section(section)), f"{section}.{WORDS[section]}"
        if given and WORDS[section] not in given:
            with self._at(section, given[0]):
                raise UserError(f"{section}.{given[0]} is set, but no {word} that it belongs to, such as {example}")

    def _need_use(self, section: str, given: Any) -> None:
        """Raises UserError if a parameter is set that a section's rule or kind does not have."""
        word, usual = WORDS[section], type(given)()
        kind = getattr(given, word)
        for key in self._section(section):
            kinds = USED_BY[section].get(key, ())
            if kinds and kind not in kinds and getattr(given, key) != getattr(usual, key):
                with at(section, key):
                    raise UserError(f"{section}: {key} is for the {word} {' or '.join(kinds)}, not for {kind}")

    def _engine_class(self) -> type[EngineOptions]:
        given = self.values.get("engine")
        if isinstance(given, EngineOptions):
            return type(given)
        with self._at("engine"):
            return backends.backend(self._named("engine")[0]).options

    def _algorithm(self) -> Algorithm[Any]:
        given = self.values.get("algorithm")
        if isinstance(given, Algorithm):
            return given
        name, parameters = self._named("algorithm")
        with self._at("algorithm"):
            cls = registry.algorithm_class(name)
        # Built once for messages that know their line, and once by the registry, which knows what "+ft" means.
        self._build("algorithm", cls, parameters, f"algorithm {name}")
        return registry.make_algorithm(name, parameters)

    def _problem(self) -> Problem:
        given = self.values.get("problem")
        if isinstance(given, Problem):
            return given
        name, parameters = self._named("problem")
        with self._at("problem"):
            cls = registry.problem_class(name)
        problem: Problem = self._build("problem", cls, parameters, f"problem {name}")
        return problem

    def _learner(self, problem: Problem) -> Learner:
        given, usual = self.values.get("learner"), problem.learner()
        if isinstance(given, Learner):
            return given
        values = self._section("learner")
        learner: Learner = self._build("learner", type(usual), to_plain(usual) | values, "learner") if values else usual
        return learner

    def _part(self, section: str, cls: type, values: Mapping[str, Any]) -> Any:
        """A section's object: the one that was given, or one of these values."""
        given = self.values.get(section)
        return given if isinstance(given, cls) else self._build(section, cls, values, section)

    def _names_in(self, section: str) -> list[str]:
        """The parameters of a section that the user has set; of a learner that is an object, its step size."""
        return ["lr"] if isinstance(self.values.get(section), Learner) else list(self._section(section))

    def _named(self, section: str) -> tuple[str, dict[str, Any]]:
        values = self._section(section)
        name = values.pop("name", NAMED_SECTIONS[section])
        if not isinstance(name, str):
            with self._at(section, "name"):
                raise UserError(f"{section}: name is {name!r}; it should be a text, such as {NAMED_SECTIONS[section]}")
        return name, values

    def _section(self, name: str) -> dict[str, Any]:
        value = self.values.get(name)
        if value is None or isinstance(value, OBJECTS[name]):
            return {}
        if isinstance(value, str) and name in NAMED_SECTIONS:
            return {"name": value}
        if isinstance(value, str) and name in WORDS:
            return {WORDS[name]: value}
        if not isinstance(value, dict):
            with self._at(name):
                word = [f"its {WORDS.get(name, 'name')}"] if name in (*NAMED_SECTIONS, *WORDS) else []
                python = ["parameters by name", f"an object of the class {OBJECTS[name].__name__}"]
                *some, last = [*word, *(["a group of 'key: value' lines"] if self.where else python)]
                right = f"{', '.join(some)}, or {last}" if some else last
                raise UserError(f"{name} is {value!r}; it should be {right}")
        return {str(key): entry for key, entry in value.items()}

    def _build(self, section: str, cls: type, values: Mapping[str, Any], what: str) -> Any:
        """One section's dataclass; a message names the line of the key that does not fit."""
        blamed: list[str] = []

        def blame(key: str) -> str:
            blamed.append(key)
            return ""

        try:
            return build(cls, values, what, blame)
        except UserError as problem:
            with self._at(section, *(blamed or self._named_in(problem, section))[:1]):
                raise

    def _named_in(self, problem: UserError, section: str) -> list[str]:
        """The parameters of a section that a message mentions: a class that checks its own values names them.

        A message about one of several ("unknown goal") is about the parameter that holds them (`goals`).
        """
        words = {key: re.escape(key.removesuffix("s")) + "s?" for key in self._section(section)}
        return [key for key, word in words.items() if re.search(rf"\b{word}\b", str(problem))]

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Prefixes a message with the line of the key that it is about; of a section, of the parameter that it names,
        or of the section's word.
        """
        try:
            yield
        except UserError as problem:
            path = problem.at
            if len(path) == 1 and path[0] in WORDS:
                word = WORDS[path[0]]
                named = [key for key in self._named_in(problem, path[0]) if key != word]
                path = (path[0], *(named or [word])[:1])
            with self._at(*path):
                raise

    @contextmanager
    def _at(self, *path: str) -> Iterator[None]:
        """Prefixes a message with the line of the value that is wrong."""
        try:
            yield
        except _Placed:
            raise
        except UserError as problem:
            place = self.where.get(path) or self.where.get(path[:1])
            if place is None:
                raise
            raise _Placed(f"{place}: {problem}") from None


def _top_level(key: str, value: Any) -> Any:
    """Convert the value of a key that is no section to its type, and check it."""
    if key == "seeds":
        value = _seeds(value)
    elif key == "preferences":
        value = _lists(value)
    ready = convert(value, keys.hints()[key], key)
    keys.check_key(key, ready)
    return str(Codec.parse(ready)) if key in ("codec", "server_codec") else ready


def _seeds(value: Any) -> list[Any]:
    """List seeds from how many (3 means 0, 1, 2) or which ([4, 7] or "4,7"; "4," is the one seed 4)."""
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
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _lists(item) for name, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


class _Placed(UserError):
    """An error whose message already names its line."""


def load(path: Path) -> Spec:
    return Draft.read(path).finish()
