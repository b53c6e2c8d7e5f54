"""What installed packages offer by entry points: engines, algorithms, problems, commands, codecs and reports."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from fedpareto.errors import UserError


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
