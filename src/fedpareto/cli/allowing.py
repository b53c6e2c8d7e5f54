"""The options by which a user allows what a spec or a run's folder names; see core/consent.py."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

from fedpareto.core import consent


class Reading(TyperCommand):
    """A command that reads a spec or a run folder, which may be a stranger's: with options that allow what it names."""

    def get_params(self, ctx: Any) -> list[Any]:
        """See click."""
        *own, last = super().get_params(ctx)  # The last one is --help.
        return [*own, *_options(), last]


@functools.cache
def _options() -> tuple[Any, ...]:
    def sql(_: Any, __: Any, given: bool) -> None:
        consent.allow(sql=bool(given))

    def modules(_: Any, __: Any, given: Sequence[str] | None) -> None:
        consent.allow(modules=given or ())

    def addresses(_: Any, __: Any, given: Sequence[str] | None) -> None:
        consent.allow(addresses=given or ())

    return (
        TyperOption(
            param_decls=["--allow-sql"],
            is_flag=True,
            help="Queries to databases may run that a spec or a run's folder names.",
            expose_value=False,
            callback=sql,
        ),
        TyperOption(
            param_decls=["--allow-import"],
            multiple=True,
            metavar="MODULE",
            help="This Python module may be imported if a spec or a run's folder names it; several times.",
            expose_value=False,
            callback=modules,
        ),
        TyperOption(
            param_decls=["--allow-address"],
            multiple=True,
            metavar="HOST:PORT",
            help="This Ray cluster may be used if a spec or a run's folder names it; several times.",
            expose_value=False,
            callback=addresses,
        ),
    )
