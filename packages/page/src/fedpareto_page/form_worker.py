"""The form's choices, and what a choice comes to: in a process of its own, since it needs torch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from fedpareto.config import described, keys
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import parse_value, to_plain
from fedpareto.contract import consent, registry
from fedpareto.spec import backends, yaml_file
from fedpareto.spec.draft import USED_BY, Draft
from fedpareto.spec.settings import first_setting
from fedpareto.spec.spec import NAMED_SECTIONS, PARTS, WORDS, Spec

TEXTS = tuple(name for name, kind in keys.hints().items() if kind not in (int, float, bool))
"""Keys whose values are texts on the command line: "3" is three seeds."""
AS_TYPED = {*TEXTS, *NAMED_SECTIONS, *(f"{section}.{word}" for section, word in WORDS.items())}
"""Keys whose values are texts or words, never read as numbers: "none" is a kind of attack."""
FLAGS = {
    **{one.name if one.name not in WORDS else f"{one.name}.{WORDS[one.name]}": one.option for one in keys.about()},
    "problem": "--problem",
    "engine": "--engine",
}
"""Options of `fedpareto run`; everything else is set by --set."""

Values = Mapping[str, Any]
"""A spec's values by flat names, such as "learner.lr"; texts are read as on the command line."""


def answer(name: str, payload: Any) -> Any:
    """Do one of the jobs below; see worker.Answering."""
    jobs: dict[str, Callable[[Any], Any]] = {
        "form": lambda _: form(),
        "check": check,
        "outline": lambda values: check(values, outlined),
        "settle": settle,
    }
    return jobs[name](payload)


# -- what there is -------------------------------------------------------------------------------------------------


def form() -> dict[str, Any]:
    """Every algorithm, problem, engine and part of a spec, with its parameters."""
    return {
        "algorithms": [_choice(name, cls, described.algorithm) for name, cls in registry.algorithms().items()],
        "problems": [_problem(name, cls) for name, cls in registry.problems().items()],
        "engines": [_choice(name, backends.backend(name).options) for name in backends.names()],
        "spec": _top_level(),
        "sections": [_section(name, cls) for name, cls in PARTS.items()],
        "usual": NAMED_SECTIONS,
        "broken": registry.broken(),
    }


def _choice(name: str, cls: type, describe: Callable[[str, Any], dict[str, Any]] | None = None) -> dict[str, Any]:
    about = {"name": name, "about": described.summary(cls)} if describe is None else describe(name, cls)
    return {**about, "parameters": _plain(described.parameters(cls))}


def _problem(name: str, cls: Any) -> dict[str, Any]:
    """A problem with its learner and its usual number of clients."""
    learner = cls().learner()
    usual = to_plain(learner)
    learning = [{**one, "default": usual[one["name"]]} for one in described.parameters(type(learner))]
    found = {"learner": _plain(learning), "clients": cls().default_clients(), "models": list(cls.models)}
    return _choice(name, cls, described.problem) | found


def _section(name: str, cls: type) -> dict[str, Any]:
    used_by = USED_BY.get(name, {})
    parameters = [{**one, "used_by": list(used_by.get(one["name"], ()))} for one in described.parameters(cls)]
    about = {"name": name, "about": described.summary(cls), "word": WORDS.get(name)}
    return {**about, "parameters": _plain(parameters)}


def _top_level() -> list[dict[str, Any]]:
    usual, types = keys.usual(), keys.hints()
    return [
        {
            "name": one.name,
            **described.type_of(types[one.name]),
            "default": usual[one.name],
            "needed": False,
            "meaning": one.text,
        }
        for one in keys.about()
        if one.name in types
    ]


def _plain(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make parameters such as JSON can hold: infinity is a word, as it is on the command line."""
    return [{**one, "default": _word(one["default"])} for one in parameters]


def _word(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_word(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


# -- what a choice comes to ----------------------------------------------------------------------------------------


def check(values: Values, come_to: Callable[[Values], dict[str, Any]] | None = None) -> dict[str, Any]:
    """The YAML and the command line of what differs from the defaults, or the error and the value that it is about."""
    try:
        return {**(come_to or settle)(values), "error": None, "field": None}
    except UserError as problem:
        field, said = _told(str(problem))
        return {"yaml": None, "words": None, "name": None, "error": said, "field": field}


def settle(values: Values) -> dict[str, Any]:
    """The YAML, the words after `fedpareto run`, and a name for a folder; or UserError."""
    consent.name_all(values)
    return outlined(values, in_full=True)


def outlined(values: Values, in_full: bool = False) -> dict[str, Any]:
    """Settle without a look at any data, for those who may only watch."""
    given = {key.removesuffix(".name"): value for key, value in values.items()}
    given = {"algorithm": given.get("algorithm", NAMED_SECTIONS["algorithm"]), **_in_order(given)}
    spec = _draft(given).finish()
    if in_full:  # As a run does first: here an algorithm refuses problems that it cannot handle.
        with _about("problem"):
            setting = first_setting(spec)
        with _about("algorithm"):
            spec.algorithm.begin(setting)
    needed = _needed(given, spec)
    name = f"{spec.algorithm.name}-{spec.problem.name}"
    return {"yaml": yaml_file.text_of(_nested(needed)), "words": _words(needed, spec), "name": name}


def _in_order(given: Values) -> dict[str, Any]:
    """Put names before parameters: a name that is set later would take the parameters away."""
    names = [name for name in NAMED_SECTIONS if name in given]
    return {key: given[key] for key in [*names, *(key for key in given if key not in names)]}


def _draft(given: Values) -> Draft:
    draft = Draft()
    for key, value in given.items():
        draft = draft.with_value(key, _value(key, value), _place(key))
    return draft


def _value(key: str, value: Any) -> Any:
    return value.strip() if key in AS_TYPED and isinstance(value, str) else _read(value)


def _read(value: Any) -> Any:
    return parse_value(value) if isinstance(value, str) else value


@contextmanager
def _about(key: str) -> Iterator[None]:
    try:
        yield
    except UserError as problem:
        raise UserError(f"{_place(key)}: {problem}") from None


def _place(key: str) -> str:
    """Beginning of a draft's message about a value."""
    return f"⟨{key}⟩"


def _told(problem: str) -> tuple[str | None, str]:
    """The value that a message is about, if it names its place, and the message without that."""
    placed = re.match(r"⟨(.+?)⟩: (.*)", problem, re.DOTALL)
    return (None, problem) if placed is None else (placed[1], placed[2])


def _needed(given: Values, spec: Spec) -> dict[str, Any]:
    """Values that make a difference: without those that can be left out."""
    whole, needed, before = spec.to_mapping(), dict(given), len(given) + 1
    while len(needed) < before:  # An attack's kind can be left out once its parameters are.
        before = len(needed)
        for key in [key for key in needed if key not in ("algorithm", "problem")]:
            fewer = {other: value for other, value in needed.items() if other != key}
            with suppress(UserError):
                if _draft(fewer).finish().to_mapping() == whole:
                    needed = fewer
    return needed


def _nested(needed: Values) -> dict[str, Any]:
    """Nest values as a YAML file has them; a section that is only its name or kind is a word."""
    nested: dict[str, Any] = {}
    words = {**WORDS, **dict.fromkeys(NAMED_SECTIONS, "name")}
    for key, value in needed.items():
        section, dot, parameter = key.partition(".")
        plain = _read(value) if key == "seeds" else _value(key, value)
        if not dot and section not in words:
            nested[key] = plain
        else:
            nested.setdefault(section, {})[parameter or words[section]] = plain
    for section, word in words.items():
        if isinstance(nested.get(section), dict) and list(nested[section]) == [word]:
            nested[section] = nested[section][word]
    return nested


def _words(needed: Values, spec: Spec) -> list[str]:
    """The arguments of `fedpareto run`."""
    words, mapping = [str(needed["algorithm"])], spec.to_mapping()
    for key, value in needed.items():
        if isinstance(mapping.get(key), bool):
            words += [FLAGS[key] if mapping[key] else f"--no-{FLAGS[key][2:]}"]
        elif isinstance(mapping.get(key), int | float):
            words += [FLAGS[key], str(mapping[key])]
        elif key in FLAGS and isinstance(value, str):
            words += [FLAGS[key], value.strip()]
        elif key != "algorithm":
            words += ["--set", f"{key}={_text(value)}"]
    return words


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value)
