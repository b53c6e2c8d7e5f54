"""`fedpareto predict`, `export` and `serve`: a finished run's models in use."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.errors import BadPreference, UserError

LOOPBACK = ("127.0.0.1", "::1", "localhost")

RunOrFile = Annotated[
    Path, typer.Argument(metavar="RUN", help="A finished run's folder, an exported file, or a node's folder.")
]
Client = Annotated[int | None, typer.Option(help="Whose model; not needed where there is one.")]
Seed = Annotated[int | None, typer.Option(help="Of a run with several.  [default: its first]")]


class Format(StrEnum):
    """What a model can be exported as."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"


def predict(
    run: RunOrFile,
    input: Annotated[Path, typer.Option(metavar="FILE", help="Rows as CSV with a header.")],
    preference: Annotated[str | None, typer.Option(help="One weight for each objective, such as 0.7,0.3.")] = None,
    preferences: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: a CSV with a preference for each row.")
    ] = None,
    client: Client = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write.  [default: here]")] = None,
) -> None:
    """Predict for rows of a CSV under a preference, RUN being a finished run, an exported file or a node's folder.

    Example: fedpareto predict runs/praffl-synthetic --client 0 --preference 0.7,0.3 --input rows.csv
    """
    from fedpareto.files import write_atomically
    from fedpareto.serving import predictions, runs, tables
    from fedpareto.serving.preferences import parse

    model = runs.load(run).conditioned(client, seed)  # First: of a run that cannot be served nothing else is asked.
    if (preference is None) == (preferences is None):
        raise UserError("give --preference, such as 0.7,0.3, or --preferences, a file with one for each row")
    rows = tables.read_rows(input, model.card.inputs)
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
        _say(f"'{column}' has a value that no training row had in {count} of {len(rows)} rows; it says nothing")
    text = tables.written(found)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)
        _say(f"written: {out}, {len(rows)} rows")


def export(
    run: RunOrFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write, such as model.safetensors.")],
    client: Client = None,
    seed: Seed = None,
    format: Annotated[Format | None, typer.Option(help="By default as FILE ends.")] = None,
) -> None:
    """Write a model to one file that is all that predict and serve need, or to ONNX.

    Example: fedpareto export runs/praffl-synthetic --client 0 --out model.safetensors
    """
    from fedpareto.serving import files, onnx_file, runs

    model = runs.load(run).conditioned(client, seed)
    if (format or (Format.ONNX if out.suffix == ".onnx" else Format.SAFETENSORS)) is Format.SAFETENSORS:
        files.save(model, out)
        typer.echo(f"written: {out}")
        return
    onnx_file.save(model, out)
    difference = onnx_file.largest_difference(model, out)
    if difference is None:
        typer.echo(f"written: {out}, not checked: there is no onnxruntime here")
    elif not difference <= onnx_file.LARGEST_DIFFERENCE:
        raise UserError(f"{out} differs from the model by {difference:.1e} under onnxruntime; do not use it")
    else:
        typer.echo(f"written: {out}, under onnxruntime the same to {difference:.1e}")


def serve(
    run: RunOrFile,
    host: Annotated[
        str, typer.Option(help="The address to listen at; the default is this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    client: Client = None,
    seed: Seed = None,
) -> None:
    """Answer questions over HTTP: POST /predict, GET /front, GET /health; a description is at /docs.

    Example: fedpareto serve runs/praffl-synthetic --port 8000
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UserError('serving needs other packages; try: pip install "fedpareto[serve]"')
    from fedpareto.serving import runs, service

    if host not in LOOPBACK:
        _say(f"anybody who reaches {host} can ask: there are neither passwords nor encryption here")
    service.serve(runs.load(run), host, port, client, seed, lambda address: _say(f"serving {run} at {address}"))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
