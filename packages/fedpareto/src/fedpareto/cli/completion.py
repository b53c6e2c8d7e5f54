"""`fedpareto completion`: completions of a command line, without importing anything heavy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.config import keys

COMPLETE = "_complete"
"""The hidden command that a shell calls; its arguments are the line so far."""
NAME = re.compile(r'^    name: ClassVar\[str\] = "([^"]+)"', re.MULTILINE)
"""The line with the name of an algorithm or a problem: read, because importing them all takes seconds."""
DEEPEST = 3
"""Folders between here and a run that is offered."""

OVER = ("round", "clock", "joules", "bytes", "updates", "seconds", "epsilon")
"""Axes of figures; written here, because they need numpy."""


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


def completion(shell: Annotated[Shell, typer.Argument(help="Yours.")]) -> None:
    """Print the lines with which your shell completes commands, options, algorithms, problems, data sets and runs.

    Put them into your shell's start-up file: ~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish or $PROFILE.

    Example: fedpareto completion bash >> ~/.bashrc
    """
    typer.echo(SCRIPTS[shell], nl=False)


def candidates(command: Any, words: list[str]) -> list[str]:
    """What the last of the words, which may be empty, can become; `command` is the whole command line."""
    *before, current = [word.strip('"') for word in words] or [""]
    path: list[str] = []
    place, awaited = 0, None
    for word in before:
        if awaited is not None:
            awaited = None
        elif word.startswith("-"):
            awaited = _option(command, word)
        elif word in _commands(command):
            command, place = _commands(command)[word], 0
            path.append(word)
        else:
            place += 1
    if awaited is None and current.startswith("-"):
        found: Iterable[str] = (text for option in command.params for text in option.opts if text.startswith("-"))
        found = [*found, "--help"]
    elif awaited is None and _commands(command):
        found = [name for name, one in _commands(command).items() if not one.hidden]
    else:
        parameter = awaited or _argument(command, place)
        found = _values(parameter, path, current) if parameter is not None else ()
    return sorted({text for text in found if text.startswith(current)})


def _commands(command: Any) -> dict[str, Any]:
    return getattr(command, "commands", {})


def _option(command: Any, word: str) -> Any:
    """The option whose value the word is, if any."""
    return next((one for one in command.params if word in one.opts and not getattr(one, "is_flag", False)), None)


def _argument(command: Any, place: int) -> Any:
    """The argument at a place; the last may take many words."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if place < len(arguments):
        return arguments[place]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _values(parameter: Any, path: list[str], current: str) -> Iterable[str]:
    """What a parameter may be; nothing where file names are the best completion."""
    own = parameter.shell_complete(None, current) if parameter._custom_shell_complete else ()
    if own:
        return [item.value for item in own]
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return [str(getattr(choice, "value", choice)) for choice in choices]
    name, command = parameter.name, path[0] if path else ""
    if name == "algorithm" or (name == "name" and command == "algorithms"):
        return _algorithms(current)
    if name == "problem" or (name == "name" and command == "problems"):
        return names_of("problems")
    if name == "names" and command == "data":
        from fedpareto.problems.data import catalogue

        return catalogue()
    if name == "engine":
        return engine_names()
    if name in ("run", "runs"):
        return _runs()
    if name == "over":
        return OVER
    return next((one.choices for one in keys.about() if one.name == name), ())


def _algorithms(current: str) -> list[str]:
    """With their variants, once the name is unambiguous."""
    plain = names_of("algorithms")
    meant = [name for name in plain if name == current.partition("+")[0]]
    return [*plain, *(name + variant for name in meant for variant in ("+ft", "+safe"))]


def names_of(kind: str) -> list[str]:
    """Of the algorithms or problems, of this package and of others."""
    files = sorted((Path(__file__).parents[1] / kind).rglob("*.py"))
    own = [name for path in files for name in NAME.findall(path.read_text(encoding="utf-8"))]
    return [*own, *(point.name for point in entry_points(group=f"fedpareto.{kind}"))]


def engine_names() -> list[str]:
    """All engines that are installed."""
    return ["local", *sorted(point.name for point in entry_points(group="fedpareto.engines"))]


def _runs() -> Iterator[str]:
    """The run folders near here."""
    for depth in range(1, DEEPEST + 1):
        for spec in Path().glob("/".join(["*"] * depth) + "/spec.yaml"):
            yield spec.parent.as_posix()
