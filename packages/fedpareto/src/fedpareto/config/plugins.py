"""What installed packages offer by entry points: engines, algorithms, problems, commands, codecs and reports."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fedpareto.config.errors import UserError

HOMES = {
    ("fedpareto.functions", "load"): "fedpareto-serve",
    ("fedpareto.jobs", "ray"): "fedpareto-ray",
    ("fedpareto.pages", "comparison"): "fedpareto-page",
    ("fedpareto.tracks", "ground"): "fedpareto-space",
}
"""The package that offers what only one does, by group and name."""


def need(group: str, name: str, what: str) -> Any:
    """What a package offers under a name; UserError that says which one to install for `what`."""
    for point in entry_points(group=group, name=name):
        return loaded(point)
    raise UserError(f"{what} needs another package; try: pip install {HOMES[group, name]}")


def have(group: str, name: str) -> bool:
    """Whether a package offers it."""
    return bool(entry_points(group=group, name=name))


def package_of(point: EntryPoint) -> str:
    """The name of the package that offers an entry point."""
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
