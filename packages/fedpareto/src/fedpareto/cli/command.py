"""The command line. Torch is imported only by the commands that train, so that help is fast."""

from __future__ import annotations

import functools
import os
import re
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
import typer.core
from typer.core import TyperGroup

from fedpareto.cli import campaigns, completion, console, data, demo, lists, runs, stop
from fedpareto.config import extras, plugins
from fedpareto.config.errors import UnknownName, UserError, printable
from fedpareto.config.version import VERSION
from fedpareto.contract import consent

# Help is plain text here; without this, Typer 0.20 escapes brackets in it as if Rich were to print it.
typer.core.HAS_RICH = False


def _keep_help_of_arguments() -> None:
    """Click 8.5 has help for arguments too, and a section of its own for them.

    It replaces what Typer 0.20 has set by nothing; and Typer writes its own section.
    """
    construct: Any = typer.core.TyperArgument.__init__

    @functools.wraps(construct)
    def constructed(self: Any, *positions: Any, help: str | None = None, **others: Any) -> None:
        construct(self, *positions, help=help, **others)
        self.help = help

    parts: Any = typer.core
    parts.TyperArgument.__init__ = constructed
    parts.TyperCommand.format_arguments = lambda *_: None


_keep_help_of_arguments()

# Typer's base class of command-line errors. It is click's, which newer versions of Typer bring along and
# older ones import; this finds it in either.
_UsageError: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


class _Commands(TyperGroup):
    """Commands in the order of this file; an unknown one comes with the closest name."""

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        if arguments and self.get_command(context, arguments[0]) is None and not arguments[0].startswith("-"):
            if context.parent is None:
                plugins.must_not_be_elsewhere(GROUP, arguments[0], f"'fedpareto {arguments[0]}'")
            raise UnknownName("command", arguments[0], self.list_commands(context))
        return super().resolve_command(context, arguments)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated multi-objective learning: train across parties, get the whole trade-off back.\n\n"
    "Example: fedpareto run fedpref --clients 10 --rounds 20 --seeds 3",
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"fedpareto {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


OWN: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(runs.run, stop.stop, runs.resume, runs.show, runs.compare),
        *(lists.algorithms, lists.problems, demo.demo, campaigns.sweep, campaigns.tune),
    )
} | {"data": data.app, "completion": completion.completion}
"""The commands of this package, in the order of the help."""
GROUP = "fedpareto.commands"
"""The entry points by which packages offer others: functions as Typer takes them, or whole Typer apps."""


def _add(name: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, cls=_Commands)
    else:
        app.command(name, cls=getattr(command, "command_class", None))(command)


for _name, _own in OWN.items():
    _add(_name, _own)


def _offered(point: EntryPoint) -> Any:
    """The command behind an entry point; one that cannot be loaded says so when it is called."""
    try:
        return plugins.loaded(point)
    except UserError as problem:
        why = str(problem)

        def broken() -> None:
            raise UserError(why)

        broken.__doc__ = f"Broken: {why}"
        return broken


for _point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
    if _point.name not in OWN:
        _add(_point.name, _offered(_point))


@functools.cache
def _command() -> Any:
    """The whole command; typer reads the signatures of all its parts for it, which takes a tenth of a second."""
    return typer.main.get_command(app)


def main() -> None:
    """The entry point: a user error is one line and exit code 2, never a traceback."""
    console.prepare()
    consent.name_words(sys.argv[1:])
    if sys.argv[1:2] == [completion.COMPLETE]:
        found = completion.candidates(_command(), sys.argv[2:])
        sys.stdout.write("".join(f"{text}\n" for text in found))
        return
    try:
        with extras.named():
            code = _command()(prog_name="fedpareto", standalone_mode=False)
        sys.stdout.flush()
    except _UsageError as problem:
        _fail(problem.format_message(), 2)
    except UserError as problem:
        _fail(str(problem), 2)
    except (MemoryError, RuntimeError) as problem:
        if not isinstance(problem, MemoryError) and not re.search("(not enough|out of|allocate) memory", str(problem)):
            raise
        what = str(problem).partition("\n")[0].rpartition("] ")[2]  # Torch's message, without its source location.
        _fail(f"not enough memory ({what}); fewer clients or seeds, or --set memory=… for smaller stacks, may help", 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        _end_for_lack_of_a_reader()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Rich has met it, and would end with 1.
            _end_for_lack_of_a_reader()
        raise
    except (OSError, ValueError) as problem:
        said = _of_a_file(problem)
        if not said:
            raise
        _fail(said, 2)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _of_a_file(problem: Exception) -> str:
    """Return the words of a file system for a name that it does not take, or a file that it does not give; else
    nothing.

    Whoever opens a file says it better, but a path that the user gives passes through many hands.
    """
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename or 'a file'}: {problem.strerror}"
    return "a path holds a null character" if "null byte" in str(problem) or "null character" in str(problem) else ""


def _end_for_lack_of_a_reader() -> None:
    """The reader of our output has closed it, as `fedpareto algorithms | head -1` does; that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # For what Python still has to write at its end.
    sys.exit(0)


def _fail(message: str, code: int) -> None:
    typer.echo(f"Error: {printable(' '.join(message.split()))}", err=True)
    sys.exit(code)
