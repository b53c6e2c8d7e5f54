"""Output of all commands: tables that fit, pure JSON, and characters that the console supports."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text

PLAIN = {
    **dict(zip("↑↓→←−–—×·•…", "^v><---x...", strict=True)),
    **dict(zip("├└│─", "++|-", strict=True)),
    **dict(zip("▁▂▃▄▅▆▇█░▒▓━╸╺", "_.,-~=*#.:#---", strict=True)),
    **{"θ": "theta", "ε": "epsilon", "δ": "delta", "λ": "lambda", "≤": "<=", "≥": ">=", "≈": "~"},
}
"""Replacements on a console with a legacy code page, as in Windows pipes; one character where possible."""

PICTURES = ("png", "pdf", "svg")
ROOMY = 160
"""Line width from which on every label in a listing has its own column."""
AsJson = Annotated[bool, typer.Option("--json", help="JSON for other programs, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def prepare() -> None:
    """Makes sure that a character the console lacks does not end a command."""
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
    """A value for other programs; NaN and infinity, which JSON lacks, become null."""
    print(json_text(value, indent=1))


def picture_kind(picture: Path | None, example: str) -> str:
    """Return the format that `--picture` names; empty if there is none."""
    kind = "" if picture is None else picture.suffix.lstrip(".").lower()
    if picture is not None and kind not in PICTURES:
        raise UserError(f"--picture {picture} is of no known kind; right is, say, {example}, or .pdf or .svg")
    return kind


def say(line: str) -> None:
    """A progress message, not a result: to stderr."""
    print(line, file=sys.stderr, flush=True)
