"""Optional libraries: an error names the extra that brings a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedpareto.config.errors import UserError

EXTRAS = {"pandas": ("tables", "tables"), "matplotlib": ("pictures", "plots")}
"""The purpose of a library, and the extra that brings it."""


@contextmanager
def named() -> Iterator[None]:
    """Turns the failed import of an optional library into a UserError that names its extra."""
    try:
        yield
    except ModuleNotFoundError as problem:
        library = (problem.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        purpose, extra = EXTRAS[library]
        raise UserError(f"{purpose} need {library}; try: pip install 'fedpareto[{extra}]'") from None
