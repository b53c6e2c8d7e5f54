"""`fedpareto completion`: completions of a command line, without importing anything heavy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from fedpareto.config import keys
from fedpareto.config.errors import UserError

COMPLETE = "_complete"
"""The hidden command that a shell calls; its arguments are the line so far."""
NAME = re.compile(r'^    name: ClassVar\[str\] = "([^"]+)"', re.MULTILINE)
"""The line with the name of an algorithm or a problem: read, because importing them all takes seconds."""
DEEPEST = 3
"""Folders between here and a run that is offered."""

OVER = ("round", "clock", "joules", "bytes", "updates", "seconds", "epsilon")
"""Axes of figures; written here, because they need numpy."""


Values = Callable[[str], Iterable[str]]


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


SCRIPTS = {
    Shell.BASH: f"""\
_fedpareto() {{
    local IFS=$'\\n'
    COMPREPLY=($(fedpareto {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
}}
complete -o default -F _fedpareto fedpareto
""",
    Shell.ZSH: f"""\
_fedpareto() {{
    local -a found
    found=("${{(@f)$(fedpareto {COMPLETE} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "${{found[1]}}" ]]; then compadd -- $found; else _files; fi
}}
autoload -Uz compinit && compinit
compdef _fedpareto fedpareto
""",
    Shell.FISH: f"""\
complete -c fedpareto -a '(fedpareto {COMPLETE} (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
    Shell.POWERSHELL: f"""\
Register-ArgumentCompleter -Native -CommandName fedpareto -ScriptBlock {{
    param($word, $line, $position)
    $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object {{ "$_" }})
    if ($word -eq "") {{ $words += '""' }}
    fedpareto {COMPLETE} @words 2>$null | ForEach-Object {{ [System.Management.Automation.CompletionResult]::new($_) }}
}}
""",
}


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the lines with which your shell completes commands, options, algorithms, problems, data sets and runs.

    Put them into your shell's start-up file: ~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish or $PROFILE.

    Example: fedpareto completion bash >> ~/.bashrc
    """
    typer.echo(SCRIPTS[shell], nl=False)


def candidates(command: Any, words: list[str]) -> list[str]:
    """Return what the last of the words, which may be empty, can become; `command` is the whole command line.

    Nothing is returned where the shell's own file names are the best completion.
    """
    *before, current = [word.strip('"') for word in words] or [""]
    # Click, which newer versions of Typer bring along and older ones import.
    click = next(cls.__module__.rpartition(".")[0] for cls in type(command).__mro__ if cls.__name__ == "Command")
    _complete_by_name(command, {one.name: one.choices for one in keys.about() if one.choices})
    try:
        shell: Any = import_module(f"{click}.shell_completion").ShellComplete
        line = SimpleNamespace(cli=command, ctx_args={}, prog_name="fedpareto")  # Any shell: our lines are our own.
        found = shell.get_completions(line, before, current)
    except UserError:  # Such as an unknown command.
        return []
    return sorted({one.value for one in found if one.type == "plain" and one.value.startswith(current)})


def _complete_by_name(command: Any, words: Mapping[str, Sequence[str]]) -> None:
    """Let parameters of these names, and of those in VALUES, be completed, in all commands, unless they have a way."""

    def complete(_: Any, parameter: Any, incomplete: str) -> list[str]:
        name = parameter.name
        return list(VALUES[name](incomplete) if name in VALUES else words[name])

    for one in command.params:
        if (one.name in VALUES or one.name in words) and one._custom_shell_complete is None:
            one._custom_shell_complete = complete
    for below in getattr(command, "commands", {}).values():
        _complete_by_name(below, words)


def _algorithms(incomplete: str) -> list[str]:
    """Return the names of algorithms, with their variants once the name is unambiguous."""
    plain = names_of("algorithms")
    meant = [name for name in plain if name == incomplete.partition("+")[0]]
    return [*plain, *(name + variant for name in meant for variant in ("+ft", "+safe"))]


def names_of(kind: str) -> list[str]:
    """Return the names of the algorithms or problems, of this package and of others."""
    files = sorted((Path(__file__).parents[1] / kind).rglob("*.py"))
    own = [name for path in files for name in NAME.findall(path.read_text(encoding="utf-8"))]
    return [*own, *(point.name for point in entry_points(group=f"fedpareto.{kind}"))]


def engine_names() -> list[str]:
    return ["local", *sorted(point.name for point in entry_points(group="fedpareto.engines"))]


def _runs(incomplete: str) -> Iterator[str]:
    """Yield the run folders near here."""
    for depth in range(1, DEEPEST + 1):
        for spec in Path().glob("/".join(["*"] * depth) + "/spec.yaml"):
            yield spec.parent.as_posix()


VALUES: Mapping[str, Values] = {
    "algorithm": _algorithms,
    "problem": lambda incomplete: names_of("problems"),
    "engine": lambda incomplete: engine_names(),
    "over": lambda incomplete: OVER,
    "run": _runs,
    "runs": _runs,
}
"""Values of parameters of these names; those that do not begin with what is typed are left out elsewhere."""
