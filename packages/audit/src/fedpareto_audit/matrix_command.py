"""`fedpareto matrix`: algorithms × attacks × defences from one file, and a heat map of the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.cli import jobs as parallel
from fedpareto.cli.allowing import reads_data
from fedpareto.cli.console import AsJson, Quiet, print_json, print_table, say
from fedpareto.cli.runs import Setting
from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted

MOST_REASONS = 3
"""Reasons of failures that are printed; the record has all."""


@reads_data
def matrix(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file with a section 'matrix'.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the cells and figures.")] = Path("runs/matrix"),
    jobs: parallel.HowMany = None,
    address: parallel.Address = None,
    settings: Setting = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every algorithm under every attack behind every defence; SPEC lists them. Ends with a heat map (PNG, PDF).

    Ctrl-C or SIGTERM stops; finished cells are kept, and the same command continues.

    Example: fedpareto matrix examples/matrix.yaml --out runs/matrix
    """
    from fedpareto_audit import matrix as matrices

    where = parallel.chosen(jobs, address, parallel.on_gpu(settings or ()))
    ready = matrices.Matrix.read(spec, settings or ())
    with parallel.stoppable(lambda: f"finished cells are kept in {quoted(out)}: run it again") as asked:
        record = matrices.run(ready, out, where, (lambda line: None) if quiet else say, asked)
    if json:
        print_json(record)
        return
    _print(record)
    for line in _opened(record):
        typer.echo(line)
    reasons = sorted({cell["failed"] for cell in record["cells"] if cell["at"] and "failed" in cell})
    for reason in reasons[:MOST_REASONS]:
        typer.echo(f"failed: {reason}")
    names = ("matrix.png", "matrix.pdf", "matrix.json")
    typer.echo("written: " + ", ".join(quoted(out / name) for name in names))
    if reasons and not any(cell.get("value") is not None for cell in record["cells"] if cell["at"]):
        raise UserError(f"every cell failed; the first reason: {reasons[0]}")


def _opened(record: Mapping[str, Any]) -> list[str]:
    """Tell how often backdoors open, a line for each algorithm behind each defence."""
    labels = record["labels"]
    return [
        "{}, {}, defence {}: the trigger works on {:.0%} of honest clients' rows".format(
            *(labels[axis][place] for axis, place in zip(labels, cell["at"], strict=True)), cell["opens"]
        )
        for cell in record["cells"]
        if cell["at"] is not None and "opens" in cell
    ]


def _print(record: Mapping[str, Any]) -> None:
    import numpy as np
    from rich.table import Table

    from fedpareto_audit.matrix import values_of

    values, refused = values_of(record)
    labels = record["labels"]
    for defence, panel, unfit in zip(labels["defence"], values, refused, strict=True):
        typer.echo(f"{record['measure']['name']}, mean of honest clients; defence: {defence}")
        table = Table("", *labels["attack"])
        for algorithm, row, none in zip(labels["algorithm"], panel, unfit, strict=True):
            words = (
                "–" if no else "failed" if np.isnan(value) else f"{value:.3f}"
                for value, no in zip(row, none, strict=True)
            )
            table.add_row(algorithm, *words)
        print_table(table)
