"""What all commands print with: tables that fit, JSON and nothing else, and letters that the console has."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from fedpareto.files import json_text

PLAIN = {
    **dict(zip("↑↓→←−–—×·•…", "^v><---x...", strict=True)),
    **dict(zip("▁▂▃▄▅▆▇█░▒▓━╸╺", "_.,-~=*#.:#---", strict=True)),
    **{"θ": "theta", "ε": "epsilon", "δ": "delta", "λ": "lambda", "≤": "<=", "≥": ">=", "≈": "~"},
}
"""How letters look on a console that has only its country's own, as Windows pipes do; one character where it can be."""

ROOMY = 160
"""Characters in a line from which on every label in a listing has a column of its own."""
AsJson = Annotated[bool, typer.Option("--json", help="JSON for other programs, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def prepare() -> None:
    """Makes sure that no letter which a console lacks ends a command."""
    codecs.register_error("fedpareto.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="fedpareto.plain")


def _plain(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    return "".join(PLAIN.get(letter, "?") for letter in problem.object[problem.start : problem.end]), problem.end


def print_table(*tables: Any) -> None:
    """Tables of Rich, as wide as the terminal; in a pipe there is no width to fit into, and a cut table loses words."""
    from rich.console import Console

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(width=1000, highlight=False)
    for table in tables:
        wide.print(table)


def terminal_width() -> int | None:
    """Characters in a line of the terminal; None in a pipe."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def print_json(value: Any) -> None:
    """A value for other programs; JSON has no NaN and no infinity, null stands in their place."""
    print(json_text(value, indent=1))


def say(line: str) -> None:
    """A line of progress, which is no result: to stderr."""
    print(line, file=sys.stderr, flush=True)
