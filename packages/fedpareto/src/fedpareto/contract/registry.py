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

from fedpareto.config import plugins
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem
from fedpareto.contract.secure_sum import SecureSum

FINE_TUNED, SAFE = "+ft", "+safe"
VARIANTS = {FINE_TUNED: "fine_tuning.FineTuned", SAFE: "safe.Safe"}
"""Wrappers of an algorithm by the end of its name: classes in `fedpareto.algorithms.wrappers`."""
KINDS: dict[str, Any] = {"fedpareto.algorithms": Algorithm, "fedpareto.problems": Problem}
"""Base classes of the classes of a folder of this package, and of the entry-point group of that name."""


def algorithms() -> dict[str, type[Algorithm[Any]]]:
    """Every algorithm by name."""
    return _discover("fedpareto.algorithms")[0]


def problems() -> dict[str, type[Problem]]:
    """Every problem by name."""
    return _discover("fedpareto.problems")[0]


def refresh() -> None:
    """Looks again for what is installed."""
    _discover.cache_clear()


def broken() -> list[str]:
    """Sentences, one each, on what other packages offer and cannot be used. It is no obstacle to anything else."""
    return [why for group in KINDS for why in _discover(group)[1].values()]


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The class behind a name; what "+ft" or "+safe" at its end means is known to the caller."""
    base, variant = parted(name)
    _must_load("fedpareto.algorithms", base)
    if base not in algorithms():
        variants = [known + variant for known in algorithms()] if variant else []
        raise UnknownName("algorithm", name, [*algorithms(), *variants])
    return algorithms()[base]


def parted(name: str) -> tuple[str, str]:
    """The name of an algorithm without, and the end that makes it a variant; that is empty if it is none."""
    variant = next((end for end in VARIANTS if name.endswith(end)), "")
    return name.removesuffix(variant), variant


def problem_class(name: str) -> type[Problem]:
    """The class behind a name."""
    _must_load("fedpareto.problems", name)
    if name not in problems():
        plugins.must_not_be_elsewhere("fedpareto.problems", name, f"the problem '{name}'")
        raise UnknownName("problem", name, problems())
    return problems()[name]


def make_algorithm(name: str, parameters: Mapping[str, Any] | None = None) -> Algorithm[Any]:
    """An algorithm with its hyper-parameters; "+ft" or "+safe" at the end of the name is a variant of it."""
    from fedpareto.config.parameters import build

    algorithm = build(algorithm_class(name), parameters or {}, f"algorithm {name}")
    _, variant = parted(name)
    if not variant:
        return algorithm
    module, cls = VARIANTS[variant].split(".")
    around: Algorithm[Any] = getattr(_wrappers(module), cls)(algorithm)
    return around


def protected(algorithm: Algorithm[Any], privacy: Privacy) -> Algorithm[Any]:
    """The algorithm with clipped updates and noise, or unchanged without privacy."""
    wrapped: Algorithm[Any] = _wrappers("private").protected(algorithm, privacy)
    return wrapped


def secured(algorithm: Algorithm[Any], secure_sum: SecureSum) -> Algorithm[Any]:
    """The algorithm whose server learns only a sum, or unchanged without a secure sum."""
    wrapped: Algorithm[Any] = _wrappers("secured").secured(algorithm, secure_sum)
    return wrapped


def stepping() -> Any:
    """The module that chooses step sizes on validation rows, algorithms.wrappers.stepped."""
    return _wrappers("stepped")


def normalised(algorithm: Algorithm[Any], way: str) -> Algorithm[Any]:
    """The algorithm with normalisation layers averaged, or kept by clients as a whole or in part."""
    module = _wrappers("normalisation")
    wrapped: Algorithm[Any] = module.normalised(algorithm, way)
    return wrapped


def _wrappers(module: str) -> Any:
    """A module of the wrappers around algorithms; the contract must not import them by itself."""
    return importlib.import_module(f"fedpareto.algorithms.wrappers.{module}")


def _must_load(group: str, name: str) -> None:
    """Raises UserError if another package offers the name, but not so that it can be used."""
    why = None if name in _discover(group)[0] else _discover(group)[1].get(name)
    if why is not None:
        raise UserError(why)


def _own(group: str) -> dict[str, Any]:
    """The concrete classes of a folder of this package, every file in it."""
    found: dict[str, Any] = {}
    package = importlib.import_module(group)
    for module_info in pkgutil.walk_packages(package.__path__, prefix=f"{group}."):
        module = importlib.import_module(module_info.name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            is_own = member.__module__ == module.__name__ and issubclass(member, KINDS[group])
            if is_own and isinstance(member.__dict__.get("name"), str) and not inspect.isabstract(member):
                found[member.__dict__["name"]] = member
    return found


def _offered(group: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Objects that other packages' entry points offer by name, and why some of them cannot be used."""
    found: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for point in entry_points(group=group):
        try:
            member = plugins.loaded(point)
        except UserError as problem:
            broken[point.name] = str(problem)
            continue
        called, package = getattr(member, "name", None), plugins.package_of(point)
        if called != point.name:
            broken[point.name] = f"{point.value} of the package {package} is called '{called}', not '{point.name}'"
        elif point.name in found:
            broken[point.name] = f"'{point.name}' is offered twice; the second time by {point.value} of {package}"
        else:
            found[point.name] = member
    return found, broken


@cache
def _discover(group: str) -> tuple[dict[str, Any], dict[str, str]]:
    """All that there is by name, and why some of what other packages offer cannot be used."""
    own, (offered, broken) = _own(group), _offered(group)
    taken = {name: f"'{name}' is a name of fedpareto's own; a package offers it again" for name in own.keys() & offered}
    usable = {name: member for name, member in offered.items() if name not in own}
    return dict(sorted({**own, **usable}.items())), {**broken, **taken}
