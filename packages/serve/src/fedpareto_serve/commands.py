"""`fedpareto predict`, `export` and `serve`: a finished run's models in use."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.cli.options import Client, RunOrFile, Seed
from fedpareto.config.errors import BadPreference, UserError
from fedpareto_serve.access_log import LogFormat

TOKEN = "FEDPARETO_TOKEN"
SHORTEST_TOKEN = 16
"""Characters; fewer could be guessed."""


class Format(StrEnum):
    """The formats of an exported model."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"


def predict(
    run: RunOrFile,
    input: Annotated[Path, typer.Option(metavar="FILE", help="Rows or texts as CSV; images as a folder or .npy.")],
    preference: Annotated[str | None, typer.Option(help="One weight for each objective, such as 0.7,0.3.")] = None,
    preferences: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV with a preference for each row, instead of one for all.")
    ] = None,
    client: Client = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the predictions.  [default: the terminal]")
    ] = None,
) -> None:
    """Predict for rows of a CSV under a preference, RUN being a finished run, an exported file or a node's folder.

    Example: fedpareto predict runs/praffl-synthetic --client 0 --preference 0.7,0.3 --input rows.csv
    """
    from fedpareto.config.files import write_atomically
    from fedpareto_serve import answers, predictions, runs, tables
    from fedpareto_serve.preferences import parse

    model = runs.load(run).conditioned(client, seed)  # First: a run that cannot be served is refused.
    if (preference is None) == (preferences is None):
        raise UserError("give --preference, such as 0.7,0.3, or --preferences, a file with one for each row")
    rows = tables.read_rows(input, model.card.inputs, _say)
    names = [objective.name for objective in model.card.objectives]
    wanted: Any = parse(preference) if preference is not None else None
    if preferences is not None:
        wanted = tables.read_preferences(preferences, names)
        if len(wanted) != len(rows):
            raise UserError(f"{preferences} has {len(wanted)} preferences, {input} has {len(rows)} rows")
    try:
        found = predictions.predict(model, rows, wanted)
    except BadPreference:
        raise
    except UserError as problem:
        raise UserError(f"{input}, {problem}") from None
    if preference is not None:
        _say(f"used: {model.describe(wanted)}")
    else:
        clients = {model.card.client if point is None else point.client for point in found.served_by}
        _say(f"used: a preference for each row, models of client {', '.join(sorted(map(str, clients)))}")
    for column, count in found.unseen.items():
        _say(
            f"'{column}' is empty or has a value that no training row had in {count} of {len(rows)} rows; a number "
            "counts as the mean there, a word as none of the known ones"
        )
    if answers.meaning(model.card):
        _say(f"answers: {answers.meaning(model.card)}")
    text = tables.written(model.card, found)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)
        _say(f"written: {out}, {len(rows)} rows")


def export(
    run: RunOrFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the model, such as model.safetensors.")],
    client: Client = None,
    seed: Seed = None,
    format: Annotated[Format | None, typer.Option(help="Format of the file.  [default: by its ending]")] = None,
) -> None:
    """Write a model to one file that is all that predict and serve need, or to ONNX.

    Example: fedpareto export runs/praffl-synthetic --client 0 --out model.safetensors
    """
    from fedpareto_serve import files, onnx_network, runs

    model = runs.load(run).conditioned(client, seed)
    if (format or (Format.ONNX if out.suffix == ".onnx" else Format.SAFETENSORS)) is Format.SAFETENSORS:
        files.save(model, out)
        typer.echo(f"written: {out}, seed {model.card.seed}")
        return
    onnx_network.save(model, out)
    difference = onnx_network.largest_difference(model, out)
    if difference is None:
        typer.echo(f"written: {out}, not checked: there is no onnxruntime here")
    elif not difference <= onnx_network.LARGEST_DIFFERENCE:
        raise UserError(f"{out} differs from the model by {difference:.1e} under onnxruntime; do not use it")
    else:
        typer.echo(f"written: {out}, under onnxruntime the same to {difference:.1e}")


def serve(
    run: RunOrFile,
    host: Annotated[str, typer.Option(help="Address to listen at; the default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")] = 8000,
    client: Client = None,
    seed: Seed = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that share the port; one for each core is best.")
    ] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token that requests must carry.  [default: FEDPARETO_TOKEN]"),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Allow requests without a token on another --host.")
    ] = False,
    access_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File for a line on each request; - for stderr.  [default: no log]"),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Format of the access log.")] = LogFormat.TEXT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name under which requests may come, as behind a proxy; may be given several times."
        ),
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds for which new connections are still accepted after SIGTERM.")
    ] = 0.0,
) -> None:
    """Answer requests over HTTP: /predict, /front, /health, /ready and /metrics; a description is at /docs.

    Example: fedpareto serve runs/praffl-synthetic --port 8000 --workers 2 --access-log -
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError('serving needs other packages; try: pip install "fedpareto[serve]"')
    from fedpareto_serve import runs, server
    from fedpareto_serve.listening import is_loopback

    token = _token(token_file)
    if not is_loopback(host) and token is None and not no_token:
        raise UserError(
            f"anyone who reaches {host} could send requests; give a token file with --token-file, or use --no-token"
        )
    if workers > 1 and sys.platform == "win32":
        raise UserError("several workers share a socket, which Windows does not support; use --workers 1")
    source = runs.load(run)
    whose = runs.number_of(source, client)
    if workers > 1:  # Errors are reported before a process is started.
        source.conditioned(source.clients[0] if whose is None else whose, seed)
    options = server.Options(
        host, port, whose, seed, workers, token, access_log, log_format, drain, tuple(allow_host or ())
    )
    server.serve(run, options, lambda address: _say(f"serving {run} at {address}"))


def _token(file: Path | None) -> str | None:
    """The token of a file or of the environment; it is never shown, not even in the process list."""
    text, source = os.environ.get(TOKEN), f"the variable {TOKEN}"
    if file is not None:
        source = str(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise UserError(f"{file} cannot be read: {getattr(problem, 'strerror', '') or 'it is not text'}") from None
    if text is None:
        return None
    token = text.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(
            f"the token in {source} should be one word of at least {SHORTEST_TOKEN} letters and digits, such as "
            "openssl rand -hex 32 makes"
        )
    return token


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
