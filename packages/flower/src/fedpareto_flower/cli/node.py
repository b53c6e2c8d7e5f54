"""`fedpareto node`: one party of a federation, with its own table and its own preference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedpareto.config.errors import UserError
from fedpareto_flower.cli import check as check_here

if TYPE_CHECKING:
    from fedpareto.problems.fairness.sources import Source
    from fedpareto_flower.deploy.layout import NodeFolder

app = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="A federation across machines, at one of its nodes: check your table, join, train.\n\n"
    "Example: fedpareto node up node-0 --data mine.csv --preference 0.7,0.3",
)

Folder = Annotated[Path, typer.Argument(metavar="NODE", help="The folder that the server's operator handed over.")]
Data = Annotated[Path | None, typer.Option(help="Your table, CSV or Parquet; it stays here.")]
Sql = Annotated[str, typer.Option(help="Your database's URL, or env:NAME that holds it, instead of --data.")]
Query = Annotated[str, typer.Option(help="The database query, such as 'SELECT * FROM people'.")]
Ignore = Annotated[
    list[str] | None, typer.Option(help="Columns of the table that the federation does not use: COL[,COL].")
]


@app.callback()
def _node(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    folder: Folder,
    preference: Annotated[
        str,
        typer.Option(
            help="A file with one weight for each objective, or the weights, such as 0.7,0.3, which others on this "
            "machine can then see in the list of processes. They stay here."
        ),
    ],
    data: Data = None,
    sql: Sql = "",
    query: Query = "",
    ignore: Ignore = None,
    budget: Annotated[
        float | None,
        typer.Option(help="The largest epsilon to spend, over all rounds and seeds; beyond it this node refuses."),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Readable lines, or JSON lines for other programs.")
    ] = "text",
    log_file: Annotated[
        Path | None, typer.Option(help="Keep the log here too; at 10 MB a new file begins, and 5 old ones are kept.")
    ] = None,
) -> None:
    """Check the table, join the federation and train until it is finished; reconnects after the server was away.

    Your model is kept in the node's folder at the end; fedpareto predict NODE and serve NODE use it.

    Example: fedpareto node up node-0 --data mine.csv --preference 0.7,0.3
    """
    check_here("fedpareto node")
    from fedpareto_flower.deploy import node, status
    from fedpareto_flower.deploy.layout import NodeFolder
    from fedpareto_flower.deploy.logs import LogOptions

    home = NodeFolder.open(folder)
    with status.hold_node(home):
        if node.is_finished(home):
            model = node.kept_model(home)
            typer.echo(f"the run is finished already; {_about(model)}")
            return
        if budget is not None:
            home = home.with_budget(budget)
        weights = node.read_preference(home, preference)
        table = node.table(data, sql, query)
        _check(home, table, ignore, "; not joining")
        try:
            model = node.up(home, table, weights, LogOptions(log_format, log_file, f"node {home.client}"))
        except KeyboardInterrupt:
            typer.echo("stopped; the same command joins again", err=True)
            raise typer.Exit(143) from None
    typer.echo(_about(model))


@app.command()
def check(folder: Folder, data: Data = None, sql: Sql = "", query: Query = "", ignore: Ignore = None) -> None:
    """Check the table against the federation's schema, and do nothing else.

    Example: fedpareto node check node-0 --data mine.csv
    """
    check_here("fedpareto node")
    from fedpareto_flower.deploy import node
    from fedpareto_flower.deploy.layout import NodeFolder

    table = node.table(data, sql, query)
    _check(NodeFolder.open(folder), table, ignore)
    typer.echo(f"{table.shown} fits the federation's schema")


@app.command("status")
def show_status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for monitoring.")] = False,
    alive: Annotated[
        bool, typer.Option("--alive", help="Check the node alone: no exit code 4 if the server is away.")
    ] = False,
) -> None:
    """Show this node's status: its round, when the server last answered, and when certificates expire.

    Exit code 0: running, or finished; 3: not running though the run is unfinished; 4: the server does not answer.

    Example: fedpareto node status node-0
    """
    check_here("fedpareto node")
    from fedpareto_flower.deploy import health
    from fedpareto_flower.deploy.layout import NodeFolder

    found = health.of_node(NodeFolder.open(folder))
    typer.echo(found.text(as_json))
    raise typer.Exit(found.exit_code(alive))


def _about(model: Path | None) -> str:
    return "this node got no model" if model is None else f"model: {model}"


def _check(home: NodeFolder, table: Source, ignore: list[str] | None, so: str = "") -> None:
    from fedpareto.problems.fairness.goals import listed
    from fedpareto_flower.deploy import node

    found = node.table_problems(home, table, listed((",".join(ignore or ()),)))
    for line in found:
        typer.echo(f"{table.name}: {line}", err=True)
    if found:
        lines = "the line above" if len(found) == 1 else f"the {len(found)} lines above"
        raise UserError(f"{table.shown} does not fit the federation's schema; see {lines}{so}")
