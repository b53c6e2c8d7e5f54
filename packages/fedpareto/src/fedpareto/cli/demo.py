"""`fedpareto demo`: does it pay to learn together?"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedpareto.cli import runs
from fedpareto.config import plugins
from fedpareto.config.files import quoted, write_atomically

ALGORITHMS = ("local", "fedavg", "fedavg+ft", "fedpref")
SPEC = {"problem": "digit-pairs", "preferences": "equidistant", "engine": {"threads": 1, "chunk": 64}}
"""Sixty images a client are too few to learn from alone, and how much each of two digits matters differs. It is so
little work that to measure how it is done fastest would take longer."""
PICTURE = "gains.png"


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs and figures.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 3,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no tables, only where page and pictures are.")
    ] = False,
) -> None:
    """Ten clients with few images each and preferences of their own: is learning together better than alone?

    Four algorithms, nothing to download: who gains how much, a table, pictures and a page.

    Example: fedpareto demo --seeds 5
    """
    from fedpareto.report import client_figures  # noqa: F401 (what is missing is said before a minute of training)
    from fedpareto.runs.runner import start
    from fedpareto.spec.draft import Draft

    plugins.need("fedpareto.pages", "comparison", "the demo's page")
    specs = {name: Draft({**SPEC, "algorithm": name, "seeds": seeds}).finish() for name in ALGORITHMS}
    if not quiet:
        typer.echo(
            "Ten clients have sixty images each, in which two digits lie over each other. Some want the left one"
        )
        typer.echo("read, some the right one, most a bit of both. They learn alone (local), then together.")
    folders = []
    for name, ready in specs.items():
        folder = out / name
        if (folder / "spec.yaml").exists():  # Of the last demo. Anything else here is not ours to delete.
            shutil.rmtree(folder, ignore_errors=True)
        with runs.watched(ready, folder, quiet) as hooks:
            start(ready, folder, **hooks)
        folders.append(folder)
    _show(folders, out, quiet)


def _show(folders: list[Path], out: Path, quiet: bool) -> None:
    from fedpareto.record import reading
    from fedpareto.report import client_figures, gains, terminal

    runs.compare(folders, out, quiet=quiet)
    records = [reading.load(folder) for folder in folders]
    alone, *others = records
    write_atomically(out / PICTURE, client_figures.render(client_figures.gains(records), "png"))
    typer.echo(f"gains:    {out / PICTURE}")
    if quiet:
        return
    typer.echo(terminal.front_in_terminal(records, width=78, height=18))
    typer.echo("\nWhat clients have more than alone, each under its own preference, on test images:")
    for record in others:
        found = gains.gain(record, alone)
        typer.echo(f"  {record.algorithm:<10} {'not every client has a model' if found is None else found.in_words()}")
    own = float(alone.indicator("own_utility").mean())
    held = [f"{name} {own - float(more.mean()):.3f}" for name, more in alone.beside.items()]
    typer.echo(f"\nWhat that is to be held against, on the same images: {', '.join([f'local {own:.3f}', *held])}.")
    first = "" if find_spec("fastapi") and find_spec("uvicorn") else "pip install 'fedpareto[page]' && "
    typer.echo(f"\nOpen {out / 'index.html'} in a browser, or look client by client:")
    typer.echo(f"  {first}fedpareto page {quoted(out)}")
