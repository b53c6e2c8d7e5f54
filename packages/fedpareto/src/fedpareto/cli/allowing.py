"""The options by which a user allows what a spec or a run's folder names; see contract/consent.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from typer.core import TyperCommand, TyperOption

from fedpareto.contract import consent


class Reading(TyperCommand):
    """A command that reads a spec or a run folder, which may be a stranger's: with options that allow what it names."""

    def get_params(self, ctx: Any) -> list[Any]:
        *own, last = super().get_params(ctx)  # The last one is --help.
        return [*own, *_options(), last]


Command = TypeVar("Command", bound=Callable[..., Any])


def reads_data(command: Command) -> Command:
    """Marks a command that may come to read data by a spec or a run's folder; see Reading."""
    command.command_class = Reading  # type: ignore[attr-defined]
    return command


@functools.cache
def _options() -> tuple[TyperOption, ...]:
    named = "if a spec or a run's folder names it; several times."
    return (
        _option(
            "--allow-sql", "sql", "Queries to databases may run that a spec or a run's folder names.", is_flag=True
        ),
        _option("--allow-import", "modules", f"This Python module may be imported {named}", metavar="MODULE"),
        _option("--allow-address", "addresses", f"This Ray cluster may be used {named}", metavar="HOST:PORT"),
    )


def _option(flag: str, key: str, help: str, *, is_flag: bool = False, metavar: str | None = None) -> TyperOption:
    """An option whose value is given to `consent.allow` under this key."""

    def allow(_: Any, __: Any, given: Any) -> None:
        if given:
            consent.allow(**{key: given})

    return TyperOption(
        param_decls=[flag],
        is_flag=is_flag,
        multiple=not is_flag,
        metavar=metavar,
        help=help,
        expose_value=False,
        callback=allow,
    )
