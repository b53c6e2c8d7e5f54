"""Federated multi-objective learning: train across parties, get the whole trade-off back.

    import fedpareto
    result = fedpareto.run("synthetic", "fedpref", clients=10, rounds=20)
    print(result.hypervolume, result.solutions[0].front())

Heavy modules are imported only when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpareto.api import load as load
    from fedpareto.api import resume as resume
    from fedpareto.api import run as run
    from fedpareto.api import sweep as sweep
    from fedpareto.api import table as table
    from fedpareto.api import tune as tune
    from fedpareto.config.errors import UserError as UserError
    from fedpareto.contract.consent import allow as allow
    from fedpareto.contract.federation import Federation as Federation
    from fedpareto.contract.registry import make_algorithm as make_algorithm
    from fedpareto.contract.solutions import SolutionSet as SolutionSet
    from fedpareto.engines.local import LocalEngine as LocalEngine
    from fedpareto.runs.callbacks import Callback as Callback
    from fedpareto.runs.result import Result as Result

from fedpareto.config.version import VERSION as __version__

_HOMES = {
    "fedpareto.api": ("load", "resume", "run", "sweep", "table", "tune"),
    "fedpareto.config.errors": ("UserError",),
    "fedpareto.contract.consent": ("allow",),
    "fedpareto.contract.federation": ("Federation",),
    "fedpareto.contract.registry": ("make_algorithm",),
    "fedpareto.contract.solutions": ("SolutionSet",),
    "fedpareto.engines.local": ("LocalEngine",),
    "fedpareto.runs.callbacks": ("Callback",),
    "fedpareto.runs.result": ("Result",),
}
__all__ = ["__version__", *(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604 - all are texts


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'fedpareto' has no attribute '{name}'")
