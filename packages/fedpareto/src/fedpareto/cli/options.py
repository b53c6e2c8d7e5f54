"""Options that several commands share: those that follow from the keys of a spec, and the model of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fedpareto.config.keys import about

Keys = dict[str, Any]
"""Values of the keys of a spec; None where the user gave none."""
PLAIN = (int, float, bool)

RunOrFile = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a finished run or of a node, or an exported file.")
]
Client = Annotated[str | None, typer.Option(help="Name or number of the model's client; not needed if there is one.")]
Seed = Annotated[int | None, typer.Option(help="Seed of a run with several.  [default: its first]")]


def with_keys(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for every key, in place of its parameter `keys`."""
    hints = get_type_hints(command, include_extras=True)
    own = [one for one in signature(command).parameters.values() if one.name != "keys"]
    options = {one.name: _option(one) for one in about()}

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        keys = {name: given.pop(name) for name in options}
        command(keys, **given)

    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in options.items()]
    first = [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in own]
    place = 1 + next(number for number, one in enumerate(first) if one.name == "engine")
    parameters = [*first[:place], *added, *first[place:]]
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def _option(one: Any) -> Any:
    """The type of an option; texts such as preferences are read by the spec."""
    kind = one.type if one.type in PLAIN else str
    flag = f"{one.option}/--no-{one.option[2:]}" if kind is bool else one.option
    return Annotated[kind | None, typer.Option(flag, help=one.help, show_default=False)]
