"""`fedpareto page`: runs in the browser, while they go on."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli import console
from fedpareto.cli.allowing import reads_data
from fedpareto.config.errors import UserError
from fedpareto.contract import consent

if TYPE_CHECKING:
    from fedpareto_page.server import Address

RUNS = Path("runs")


@reads_data
def page(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN...]", help="Folders of runs, or with runs in them.  [default: runs]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port to listen at; 0: any that is free.  [default: 8642, or the next free one]"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; the default is this machine alone.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name under which requests may come, as behind a proxy; may be given several times."
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Watch runs, but start or stop none.")] = False,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="The dial may read the tables that run folders name.")
    ] = False,
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows as CSV for the dial.  [default: chosen in the page]")
    ] = None,
) -> None:
    """Watch runs in the browser while they go on, compare them, and turn the dial. Ctrl-C ends it; runs go on.

    Example: fedpareto page runs/demo --port 8642
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError('the page needs other packages; try: pip install "fedpareto[page]"')
    roots = [_folder(path) for path in runs or [RUNS]]
    if rows is not None and not rows.is_file():
        raise UserError(f"there is no file {rows}; --rows takes a table as CSV")
    if allow_files:
        consent.allow_files()
    from fedpareto_page import server

    def ready(address: Address) -> None:
        typer.echo(f"the page is at {address.whole}")
        sys.stdout.flush()
        if not no_browser and _has_screen():
            threading.Thread(target=webbrowser.open, args=(address.once,), daemon=True).start()

    caution = server.warning(host)
    if caution:
        console.say(caution)
    server.serve(roots, server.Options(host, port, tuple(allow_host or ()), read_only, rows), ready)
    console.say("the page has ended; what it has started goes on, and its tabs come back when it is started again")


def _folder(path: Path) -> Path:
    """A folder to watch; that of all runs may come into being later."""
    if path.is_dir() or (path == RUNS and not path.exists()):
        return path
    if path.exists():
        raise UserError(f"{path} is not a folder; the page takes folders of runs, such as runs")
    raise UserError(f"there is no folder {path}; the page takes folders of runs, such as runs")


def _has_screen() -> bool:
    """Return whether a browser can show: without a screen, some systems open a text browser in our terminal."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
