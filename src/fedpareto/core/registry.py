"""Algorithms and problems by name: those of this package, and those of any installed package that offers them.

A third party's package declares an entry point in the group "fedpareto.algorithms" or "fedpareto.problems" whose value
is the class; nothing else is needed.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fedpareto.core.algorithm import Algorithm
from fedpareto.core.privacy import Privacy
from fedpareto.core.problem import Problem
from fedpareto.errors import UnknownName, UserError

FINE_TUNED = "+ft"


@cache
def algorithms() -> dict[str, type[Algorithm[Any]]]:
    """Every algorithm by name."""
    return _discover("fedpareto.algorithms", Algorithm)


@cache
def problems() -> dict[str, type[Problem]]:
    """Every problem by name."""
    return _discover("fedpareto.problems", Problem)


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The class behind a name; a suffix "+ft" is handled by the caller."""
    base = name.removesuffix(FINE_TUNED)
    if base not in algorithms():
        variants = [known + FINE_TUNED for known in algorithms()] if name.endswith(FINE_TUNED) else []
        raise UnknownName("algorithm", name, [*algorithms(), *variants])
    return algorithms()[base]


def problem_class(name: str) -> type[Problem]:
    """The class behind a name."""
    if name not in problems():
        raise UnknownName("problem", name, problems())
    return problems()[name]


def make_algorithm(name: str, parameters: Mapping[str, Any] | None = None) -> Algorithm[Any]:
    """An algorithm with its hyper-parameters; "+ft" at the end of the name is its fine-tuning variant."""
    from fedpareto.core.parameters import build

    algorithm = build(algorithm_class(name), parameters or {}, f"algorithm {name}")
    if not name.endswith(FINE_TUNED):
        return algorithm
    wrapper = importlib.import_module("fedpareto.algorithms.fine_tuning").FineTuned
    tuned: Algorithm[Any] = wrapper(algorithm)
    return tuned


def protected(algorithm: Algorithm[Any], privacy: Privacy) -> Algorithm[Any]:
    """The algorithm with clipped updates and noise, or unchanged without privacy."""
    wrapped: Algorithm[Any] = importlib.import_module("fedpareto.algorithms.private").protected(algorithm, privacy)
    return wrapped


def _discover(group: str, kind: type[Any]) -> dict[str, Any]:
    """The concrete classes of a folder of this package (every file in it) and of the entry-point group of that name."""
    found: dict[str, Any] = {}
    package = importlib.import_module(group)
    for module_info in pkgutil.walk_packages(package.__path__, prefix=f"{group}."):
        module = importlib.import_module(module_info.name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            is_own = member.__module__ == module.__name__ and issubclass(member, kind)
            if is_own and isinstance(member.__dict__.get("name"), str) and not inspect.isabstract(member):
                found[member.__dict__["name"]] = member
    for point in entry_points(group=group):
        try:
            member = point.load()
        except Exception as problem:  # A broken plug-in must not break the others, but its user must be warned.
            raise UserError(
                f"the package that offers '{point.name}' in {group} cannot be loaded: {problem}"
            ) from problem
        if getattr(member, "name", None) != point.name:
            raise UserError(f"{point.value} in {group} is called '{getattr(member, 'name', None)}', not '{point.name}'")
        if point.name in found:
            raise UserError(f"'{point.name}' is offered twice in {group}; the second time by {point.value}")
        found[point.name] = member
    return dict(sorted(found.items()))
