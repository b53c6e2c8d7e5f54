"""`fedpareto server`: the folder of a federation, and its server process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedpareto.config.errors import QuorumLost, UserError
from fedpareto_flower.cli import check as check_here

if TYPE_CHECKING:
    from fedpareto.runs.result import Result
    from fedpareto_flower.deploy.layout import Deployment
    from fedpareto_flower.deploy.logs import Memory

app = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="A federation across machines, at its server: set up, start, watch, stop, resume.\n\n"
    "Example: fedpareto server up federation",
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder.")]
LogFormat = Annotated[Literal["text", "json"], typer.Option(help="Readable lines, or JSON lines for other programs.")]
LogFile = Annotated[
    Path | None, typer.Option(help="Keep the log here too; at 10 MB a new file begins, and 5 old ones are kept.")
]


@app.callback()
def _server(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def init(
    folder: Folder,
    nodes: Annotated[int, typer.Option(help="Number of parties.")],
    schema_from: Annotated[
        Path | None,
        typer.Option(help="A table with all parties' columns, CSV or Parquet: a sample, or one party's."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="A schema that was made before, instead of a table.")] = None,
    label: Annotated[str, typer.Option(help="Column to predict.")] = "",
    sensitive: Annotated[list[str] | None, typer.Option(help="Sensitive columns: COL[,COL].")] = None,
    positive: Annotated[
        str, typer.Option(help="The label that counts as 1.  [default: the last of its two values]")
    ] = "",
    privileged: Annotated[
        list[str] | None, typer.Option(help="Rule for the rows of group 1: race=White or age>=25.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns that no model sees: COL[,COL].")] = None,
    host: Annotated[str, typer.Option(help="The name or address under which nodes reach the server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The server's port.")] = 8443,
    algorithm: Annotated[str | None, typer.Option(help="Name of the algorithm.  [default: fedpref]")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.  [default: 20]")] = None,
    quorum: Annotated[
        float | None, typer.Option(help="Valid replies a round needs, share or number.  [default: 1 reply]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any parameter, such as lr=0.1.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Plain text, no authentication; for trials on loopback only.")
    ] = False,
) -> None:
    """Write a deployment: spec, schema, certificates, keys, and a folder for each node to hand over.

    Example: fedpareto server init federation --schema-from sample.csv --label hired --sensitive gender --nodes 3
    """
    check_here("fedpareto server")
    from fedpareto.spec.draft import Draft
    from fedpareto_flower.deploy import create

    draft = Draft().with_values({"algorithm": algorithm, "rounds": rounds, "quorum": quorum})
    if (schema is None) == (schema_from is None):
        raise UserError("say what the parties' tables look like: --schema-from a table, or --schema a file made before")
    from fedpareto.problems.fairness.schema import TableSchema

    if schema is not None:
        if label or sensitive or positive or privileged or drop:
            raise UserError(f"--schema {schema} says all about the table; leave the flags that describe it out")
        ready = TableSchema.read(schema)
    else:
        assert schema_from is not None
        ready = create.schema_of(schema_from, label, sensitive or (), positive, privileged or (), drop or ())
    deployment = create.create(folder, ready, draft, settings or [], nodes, host, port, insecure)
    typer.echo(f"wrote {folder}: hand node-0 … node-{nodes - 1} to the parties, and see {folder / 'README.md'}")
    typer.echo(f"the server:  fedpareto server up {folder}")
    m = len(deployment.spec().problem.objectives)
    weights = ",".join(["0.7", "0.3"] if m == 2 else [f"{1 / m:.4g}"] * m)
    typer.echo(f"each node:   fedpareto node up {folder / 'node-0'} --data table.csv --preference {weights}")


@app.command()
def up(folder: Folder, log_format: LogFormat = "text", log_file: LogFile = None) -> None:
    """Start the server: it waits for the nodes, trains, and ends when the run is finished.

    Ctrl-C or SIGTERM stops after the current round, a second one at once; fedpareto server resume continues.

    Example: fedpareto server up federation
    """
    _run(folder, log_format, log_file, resume=False)


@app.command()
def resume(
    folder: Folder,
    log_format: LogFormat = "text",
    log_file: LogFile = None,
    back: Annotated[
        bool,
        typer.Option("--back", help="Continue from the last round after which no reply was refused, not the last one."),
    ] = False,
) -> None:
    """Continue from the last checkpoint, after a stop or a crash; start if there is none.

    Nodes reconnect by themselves.

    Example: fedpareto server resume federation
    """
    _run(folder, log_format, log_file, resume=True, back=back)


@app.command()
def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for monitoring.")] = False,
    alive: Annotated[
        bool, typer.Option("--alive", help="Check the server alone: no exit code 4 for missing nodes.")
    ] = False,
) -> None:
    """Show the run's status, connected nodes, recent refusals, and when certificates expire.

    Exit code 0: running, or finished; 3: not running though the run is unfinished; 4: too few nodes are connected.

    Example: fedpareto server status federation
    """
    check_here("fedpareto server")
    from fedpareto_flower.deploy import health
    from fedpareto_flower.deploy.layout import Deployment

    found = health.of_server(Deployment.open(folder))
    typer.echo(found.text(as_json))
    raise typer.Exit(found.exit_code(alive))


@app.command()
def stop(
    folder: Folder,
    now: Annotated[bool, typer.Option("--now", help="Stop at once; the current round is repeated later.")] = False,
) -> None:
    """Stop the server after the current round; fedpareto server resume continues.

    Example: fedpareto server stop federation
    """
    check_here("fedpareto server")
    from fedpareto_flower.deploy import status as statuses
    from fedpareto_flower.deploy.layout import Deployment

    statuses.stop(Deployment.open(folder), now)
    typer.echo(f"stopped; go on with: fedpareto server resume {folder}")


@app.command()
def renew(folder: Folder) -> None:
    """Make a new certificate for the server; nodes need nothing new for it.

    Example: fedpareto server renew federation
    """
    check_here("fedpareto server")
    from fedpareto_flower.deploy import create
    from fedpareto_flower.deploy.layout import Deployment

    deployment = Deployment.open(folder)
    if deployment.insecure:
        raise UserError(f"{folder} is an insecure deployment; it has no certificate")
    create.write_server_certificate(deployment)
    typer.echo("the server has a new key and certificate; they take effect at its next start")


def _run(
    folder: Path, log_format: Literal["text", "json"], log_file: Path | None, resume: bool, back: bool = False
) -> None:
    check_here("fedpareto server")
    from fedpareto_flower.deploy import logs, status
    from fedpareto_flower.deploy.layout import Deployment

    deployment = Deployment.open(folder)
    with status.starting(deployment):
        warnings = logs.begin(logs.LogOptions(log_format, log_file))
        logging.getLogger("fedpareto.server").info("starting the server and Flower's SuperLink; this may take a minute")
        result = _serve(deployment, warnings, folder, resume, back)
    if result is None:
        typer.echo(f"the run is finished already; see it with: fedpareto show {deployment.run}")
    else:
        typer.echo("\n".join([*result.summary(), f"run: {deployment.run}"]))


def _serve(deployment: Deployment, warnings: Memory, folder: Path, resume: bool, back: bool) -> Result | None:
    from fedpareto.config.interrupts import Stopped
    from fedpareto_flower.deploy import health, server

    try:
        return server.up(deployment, warnings, resume, back)
    except QuorumLost as lost:
        # Not the operator's mistake: a supervisor should restart this server.
        typer.echo(f"Error: {lost}", err=True)
        raise typer.Exit(health.MISSING) from None
    except (Stopped, KeyboardInterrupt) as stopped:
        how = str(stopped) or "interrupted"
        typer.echo(f"{how}; go on with: fedpareto server resume {folder}", err=True)
        raise typer.Exit(143) from None
