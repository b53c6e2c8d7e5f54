"""Machine code from Python's own loops, by numba: an extra, and imported only where it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

from fedpareto.config.errors import UserError

F = TypeVar("F", bound=Callable[..., None])


def need_numba() -> None:
    """Refuses at once, before a run begins."""
    if find_spec("numba") is None or find_spec("threadpoolctl") is None:
        raise UserError("engine: compiled needs numba; try: pip install 'fedpareto[compiled]'")


def compiled(function: F) -> F:
    """A function of arrays and numbers as machine code, made in its first call and kept on disk if there is a folder
    for it: beside the package, or the user's own cache.

    Sums may be taken in any order, which is the same in every call; infinities and NaN stay what they are.
    """
    from numba import njit

    how = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy", "nogil": True}
    try:
        made: F = njit(cache=True, **how)(function)
    except RuntimeError:  # Neither can be written to: each process compiles for itself.
        made = njit(**how)(function)
    return made


def products_on_one_thread() -> AbstractContextManager[Any]:
    """BLAS without threads of its own: products for one client at a time are too small to be shared."""
    limited: AbstractContextManager[Any] = _blas().limit(limits=1)
    return limited


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401 (only libraries that are loaded are found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
