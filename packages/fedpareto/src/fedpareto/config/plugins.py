"""Entry points of installed packages: engines, algorithms, problems, commands, codecs and reports."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fedpareto.config.errors import UserError

OFFERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fedpareto-audit": {"fedpareto.commands": ("audit", "matrix")},
    "fedpareto-flower": {
        "fedpareto.commands": ("node", "server"),
        "fedpareto.engines": ("flower-local", "flower-sim"),
    },
    "fedpareto-page": {"fedpareto.commands": ("page",), "fedpareto.pages": ("comparison", "summary")},
    "fedpareto-papers": {"fedpareto.commands": ("reproduce",)},
    "fedpareto-ray": {"fedpareto.engines": ("ray",), "fedpareto.jobs": ("ray",)},
    "fedpareto-serve": {"fedpareto.commands": ("export", "predict", "serve"), "fedpareto.functions": ("load",)},
    "fedpareto-space": {
        "fedpareto.commands": ("space",),
        "fedpareto.engines": ("mission",),
        "fedpareto.problems": ("link-scheduling",),
        "fedpareto.tracks": ("ground",),
    },
}
"""The entry points of the packages beside this one: whoever asks for one of a package that is not installed is told
which that is. A test compares them with the packages.
"""


def must_not_be_elsewhere(group: str, name: str, what: str) -> None:
    """Raises UserError if a package that is not installed offers this name; `what` says what it is for."""
    for package, offers in OFFERS.items():
        if name in offers.get(group, ()):
            raise UserError(f"another package is needed for {what}; try: pip install {package}")


def need(group: str, name: str, what: str) -> Any:
    """The object that a package offers under a name; without it a UserError names the package that `what` needs."""
    for point in entry_points(group=group, name=name):
        return loaded(point)
    must_not_be_elsewhere(group, name, what)
    raise UserError(f"nothing is installed that offers '{name}' in {group}")


def have(group: str, name: str) -> bool:
    return bool(entry_points(group=group, name=name))


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def loaded(point: EntryPoint) -> Any:
    """The object behind an entry point, or UserError: a package that is broken or gone must not break all else."""
    try:
        return point.load()
    except (Exception, SystemExit) as problem:
        package = package_of(point)
        raise UserError(
            f"'{point.name}' of the package {package} cannot be loaded: {problem}; mend it, or remove it: "
            f"pip uninstall {package}"
        ) from None
