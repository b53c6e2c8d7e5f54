"""`fedpareto reproduce`: a published table, run again and printed beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli import jobs as parallel
from fedpareto.cli.console import Quiet, print_json, print_table, say
from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text, quoted, write_atomically

if TYPE_CHECKING:
    from fedpareto_papers.catalogue import Outcome

STDOUT = Path("-")
OUT, QUICK_OUT = Path("runs/reproduce"), Path("runs/reproduce-quick")


def _names() -> list[str]:
    from fedpareto_papers.catalogue import CATALOGUE

    return list(CATALOGUE)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="Table or figure, such as thesis-5.2; without it, a list of all.", autocompletion=_names),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, in about a minute.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write all results, or the list, here; - prints only them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the runs are kept.  [default: runs/reproduce(-quick)]")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions, for the deviation.  [default: as published]")] = None,
    rounds: Annotated[int | None, typer.Option(help="If there is a choice.  [default: as published]")] = None,
    clients: Annotated[int | None, typer.Option(help="How many.  [default: the table's]")] = None,
    jobs: parallel.HowMany = None,
    address: parallel.Address = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this problem, such as adult-gender or dst; may be repeated."),
    ] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this algorithm, such as cfl; may be repeated.")
    ] = None,
    preferences: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these, such as equidistant; may be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of every run, such as engine.device=cuda."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a published table or figure again: our numbers beside the published ones. Without a name, a list of all.

    Ctrl-C or SIGTERM stops after the current round; the same command continues.

    Example: fedpareto reproduce thesis-5.4 --quick --json table.json
    """
    if not name:
        _list(json)
        return
    from fedpareto.config.interrupts import Interrupts, Stopped
    from fedpareto_papers.catalogue import Options, prepare
    from fedpareto_papers.catalogue import json_text as record_text

    reproduction = prepare(
        name,
        Options(
            quick=quick,
            rounds=rounds,
            clients=clients,
            seeds=seeds,
            problems=tuple(problem or ()),
            algorithms=tuple(algorithm or ()),
            preferences=tuple(preferences or ()),
            settings=tuple(settings or ()),
            jobs=parallel.chosen(jobs, address, parallel.on_gpu(settings or ())),
        ),
    )
    if json not in (None, STDOUT) and not json.absolute().parent.is_dir():  # Now, not after the last cell.
        raise UserError(f"--json {json}: there is no folder {json.absolute().parent}")
    folder = out or (QUICK_OUT if quick else OUT)
    tell = _nothing if quiet else say
    tell(reproduction.headline)
    with Interrupts() as interrupts:
        try:
            outcome = reproduction.run(folder, tell, interrupts.asked)
        except (Stopped, KeyboardInterrupt) as stopped:
            say(f"{str(stopped) or 'interrupted'}; everything is kept in {quoted(folder)}, the same command continues")
            raise typer.Exit(interrupts.exit_code) from None
    if json == STDOUT:
        typer.echo(record_text(outcome.record))
        return
    if json is not None:
        write_atomically(json, record_text(outcome.record))
    _print(outcome)


def _list(json: Path | None) -> None:
    from fedpareto_papers.catalogue import CATALOGUE

    if json is not None:
        found = [{"name": name, "about": entry.about} for name, entry in CATALOGUE.items()]
        if json == STDOUT:
            print_json(found)
        else:
            write_atomically(json, json_text(found, indent=1) + "\n")
        return
    width = max(map(len, CATALOGUE))
    for name, entry in CATALOGUE.items():
        typer.echo(f"{name:{width}}  {entry.about}")


def _print(outcome: Outcome) -> None:
    for shown in outcome.shown:
        if isinstance(shown, str):
            typer.echo(shown)
        else:
            print_table(shown)
    if outcome.files:
        typer.echo("written: " + ", ".join(quoted(path) for path in outcome.files))


def _nothing(line: str) -> None:
    """Quiet."""
