"""`fedpareto stop`: asks the process of a run to stop, by a file in its folder. Nothing heavy is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.config.errors import UserError
from fedpareto.config.files import Lock, quoted, read_object
from fedpareto.config.interrupts import StopFile

DEPLOYMENT = "deployment.json"
"""In the folder of a deployment, whose run is in the folder `run`."""
CAMPAIGNS = ("sweep.json", "matrix.json")
"""In the folder of many runs, or of many cells."""


def stop(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, a sweep or a matrix.")],
    now: Annotated[bool, typer.Option("--now", help="Stop at once; the current round is repeated later.")] = False,
) -> None:
    """Stop a run that somebody is working on, wherever that was started: after the current round, as Ctrl-C does.

    'fedpareto resume' continues it. Of a sweep, the same command does.

    Example: fedpareto stop runs/fedpref-synthetic
    """
    if any((run / name).exists() for name in CAMPAIGNS):
        _stop_campaign(run, now)
        return
    folder = run / "run" if (run / DEPLOYMENT).exists() else run
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    if not (folder / "spec.yaml").exists():
        raise UserError(f"{folder} is not a run folder: it has no spec.yaml")
    found = read_object(folder / "status.json") if (folder / "status.json").exists() else {}
    if found.get("status") == "finished":
        typer.echo(f"{folder} is finished already; see it with: fedpareto show {quoted(folder)}")
    elif not _is_busy(folder):
        typer.echo(f"no process is working on {folder}{_so_far(found)}; continue it with: {_way_on(folder)}")
    else:
        StopFile(folder).write(now)
        when = "at once; the current round is repeated later" if now else "after the current round"
        typer.echo(f"asked: {folder} stops {when}{_so_far(found)}; continue it with: {_way_on(folder)}")


def _stop_campaign(folder: Path, now: bool) -> None:
    if now:
        raise UserError(f"--now is for single runs; without it, all in {folder} stop after the rounds they are in")
    if not _is_busy(folder):
        typer.echo(f"no process is working on {folder}; the command that began it continues it")
        return
    StopFile(folder).write()
    typer.echo(f"asked: all in {folder} stop after the rounds they are in; the command that began it continues it")


def _is_busy(folder: Path) -> bool:
    return Lock(folder / ".lock").is_held()


def _so_far(status: dict[str, Any]) -> str:
    """Repeat what the run wrote last of itself, which may be some rounds ago."""
    name, rounds = status.get("status"), status.get("round")
    return f" ({name}, {rounds} rounds are safe)" if isinstance(name, str) and isinstance(rounds, int) else ""


def _way_on(folder: Path) -> str:
    parent = folder.resolve().parent
    if (parent / DEPLOYMENT).exists():
        return f"fedpareto server resume {quoted(parent)}"
    return f"fedpareto resume {quoted(folder)}"
