"""`fedpareto space schemes`: the published ways to learn across a constellation, and how to ask for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpareto.cli.console import AsJson, print_json, print_table
from fedpareto.config.errors import UnknownName

if TYPE_CHECKING:
    from fedpareto_space.missions.schemes import Scheme


def schemes(
    name: Annotated[
        str | None, typer.Argument(help="Name of a scheme, whose lines of a mission file are printed.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List published schemes for learning in orbit with their papers, or what a mission file has of that called NAME.

    Example: fedpareto space schemes fedspace
    """
    from fedpareto_space.missions.schemes import SCHEMES

    if name is not None and name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    if json:
        found = [_plain(known, scheme) for known, scheme in SCHEMES.items() if name in (None, known)]
        print_json(found if name is None else found[0])
        return
    if name is not None:
        _print_lines_of(SCHEMES[name])
        return
    _print(SCHEMES)
    typer.echo("The lines that a mission file has of one: fedpareto space schemes NAME")


def _plain(name: str, scheme: Scheme) -> dict[str, Any]:
    return {"name": name, "paper": scheme.paper, **_with_engine(scheme), "differs": scheme.differs}


def _with_engine(scheme: Scheme) -> dict[str, Any]:
    """The changes, with the name of the engine before its options."""
    return {**scheme.changes, "engine": {"name": "mission", **scheme.changes.get("engine", {})}}


def _print_lines_of(scheme: Scheme) -> None:
    import yaml

    typer.echo(f"# {scheme.paper}; what differs: {scheme.differs}")
    typer.echo(yaml.safe_dump(_with_engine(scheme), sort_keys=False, allow_unicode=True).rstrip())


def _print(found: dict[str, Scheme]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for title in ("name", "paper", "algorithm", "policy", "route", "what differs"):
        table.add_column(title, overflow="fold")
    for name, scheme in found.items():
        algorithm = scheme.changes["algorithm"]
        named = algorithm if isinstance(algorithm, str) else algorithm["name"]
        route = scheme.changes.get("engine", {}).get("route", "direct")
        cells = (name, scheme.paper, named, scheme.changes["policy"]["kind"], route, scheme.differs)
        table.add_row(*(escape(cell) for cell in cells))
    print_table(table)
