"""The commands that make and show runs: run, resume, show and compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpareto.cli import console, data, jobs
from fedpareto.cli.allowing import reads_data
from fedpareto.cli.options import Keys, with_keys
from fedpareto.config import plugins
from fedpareto.config.errors import UserError
from fedpareto.config.files import free_folder, quoted

if TYPE_CHECKING:
    from fedpareto.record.run_record import Record
    from fedpareto.runs.result import Result
    from fedpareto.spec.spec import Spec

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any parameter, such as lr=0.1 or algorithm.top_ratio=0.2."),
]
Central = Annotated[
    bool,
    typer.Option("--central", help="Train a reference on the rows of all clients, once, and show it beside the rest."),
]
Rank = Annotated[int, typer.Option(min=1, help="Rank of the fronts: they are without the points of those before.")]
Converged = Annotated[
    bool,
    typer.Option("--converged", help="Leave models out of fronts that are fairer than 0.999: too fair to be true."),
]
Over = Annotated[
    str | None,
    typer.Option(
        help="Axis of a run's course: round, clock (see docs/time.md), joules, bytes, updates (replies), seconds or "
        "epsilon.  [default: clock where there is one, else round]"
    ),
]
LogTo = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOOL",
        help="Log every round's figures to tensorboard (in the run's folder; elsewhere: tensorboard:DIR) or mlflow "
        "(where MLFLOW_TRACKING_URI says, or mlflow:URI) too; may be given twice.",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]


@reads_data
@with_keys
def run(
    keys: Keys,
    algorithm: Annotated[
        str | None,
        typer.Argument(
            help="Algorithm; append +ft for local fine-tuning, +safe to keep the better of the federated and the local "
            "model.  [default: fedpref]"
        ),
    ] = None,
    problem: Annotated[str | None, typer.Option(help="Problem.  [default: synthetic]")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine that runs the clients.  [default: local]")] = None,
    csv: Annotated[Path | None, typer.Option(help="Your own table, CSV or Parquet: the problem 'table'.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the table to predict.")] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Sensitive columns of the table: COL[,COL]; may be given several times.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="Your own table in a database: its URL, or env:NAME that holds it.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Query for the table, such as 'SELECT * FROM people'.")] = None,
    spec: Annotated[Path | None, typer.Option(help="YAML file with any of this; options override it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.  [default: runs/ALGORITHM-PROBLEM]")] = None,
    settings: Setting = None,
    log_to: LogTo = None,
    quiet: console.Quiet = False,
) -> None:
    """Run an algorithm on a problem; everything is kept in a folder.

    ALGORITHM is its name (fedpref if none is given); add +ft for its fine-tuning variant, +safe for one in
    which each client keeps the best of what it was sent and of what it has alone.

    Your own data: --csv FILE --label COL --sensitive COL[,COL]; a report on it goes first.

    TensorBoard: --log-to tensorboard; then tensorboard --logdir runs.

    Slow clients: --devices tiers --policy buffered --set policy.buffer=5 --selection oort.

    Ctrl-C or SIGTERM stops after the current round, a second one at once; fedpareto resume continues.

    Example: fedpareto run fedavg+ft --problem convex --clients 20 --rounds 30 --seeds 3 --set lr=0.2
    """
    from fedpareto.runs.runner import start
    from fedpareto.spec.draft import Draft

    if algorithm is not None and algorithm.endswith((".yaml", ".yml")):
        raise UserError(f"'{algorithm}' is a file, not an algorithm; give a spec with --spec: --spec {algorithm}")
    if algorithm is not None and (algorithm.endswith(".py") or ":" in algorithm):
        raise UserError(
            f"'{algorithm}' is not the name of an algorithm; run your own from Python, "
            "fedpareto.run(problem, YourAlgorithm()), or name it by an entry point of your package: "
            "see docs/develop/add-an-algorithm.md"
        )
    own = f"--csv {csv}" if csv is not None else f"--sql {sql}"
    is_own = csv is not None or sql is not None
    if is_own and problem not in (None, "table"):
        raise UserError(f"{own} goes with the problem 'table', not with '{problem}'")
    if label is not None and not is_own and spec is None and problem != "table":
        raise UserError(f"--label {label} names a column of your own data; it goes with --csv FILE")
    draft = Draft.read(spec) if spec else Draft()
    flags = {"algorithm": algorithm, "problem": "table" if is_own else problem, "engine": engine, **keys}
    of_table = {
        "file": None if csv is None else str(csv),
        "label": label,
        "sensitive": sensitive or None,
        "sql": sql,
        "query": query,
    }
    ready = draft.with_values(flags).with_section("problem", of_table).with_settings(settings or []).finish()
    folder = out or free_folder(Path("runs"), f"{ready.algorithm.name}-{ready.problem.name}")
    try:
        if not quiet:
            data.print_report(ready.problem, ready.clients, ready.seeds[0])
            for line in ready.beforehand():
                typer.echo(line)
        with watched(ready, folder, quiet) as hooks:
            result = start(ready, folder, log_to=log_to or (), **hooks)
    finally:
        if out is None:  # A run that could not begin leaves nothing behind; a folder that is not empty stays.
            with suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
    _print_result(result)


@reads_data
def resume(
    run: RunPath,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Changed parameter: quorum=…, a fault, such as dropout=0, or on Ray workers=… and address=….",
        ),
    ] = None,
    log_to: LogTo = None,
    quiet: console.Quiet = False,
) -> None:
    """Continue a run that was stopped or killed, bit for bit; --set may change the quorum and injected faults.

    Example: fedpareto resume runs/fedpref-synthetic
    """
    from fedpareto.record.store import RunFolder
    from fedpareto.runs import runner

    spec = _changed(RunFolder(run).spec(), settings or [])
    with watched(spec, run, quiet) as hooks:
        result = runner.resume(run, spec=spec, log_to=log_to or (), **hooks)
    if result is None:
        typer.echo(f"{run} is finished already; see it with: fedpareto show {quoted(run)}")
    else:
        _print_result(result)


@reads_data
def show(
    run: RunPath,
    clients: Annotated[bool, typer.Option("--clients", help="Also list each client of the first seed.")] = False,
    central: Central = False,
    rank: Rank = 1,
    converged: Converged = False,
    over: Over = None,
    json: console.AsJson = False,
) -> None:
    """Show one run, RUN being its folder: its spec, progress and results.

    Example: fedpareto show runs/fedpref-synthetic
    """
    from rich.console import Console

    from fedpareto.record import following
    from fedpareto.report import terminal

    try:
        loaded = _loaded([run], central, rank, converged)[0]
    except following.NoRoundsYet as reason:
        left = _left_alone(run)
        raise UserError(f"{reason}; {left}") if left else reason from None
    if json:
        console.print_json(terminal.plain(loaded, over))
        return
    screen = Console()
    screen.print(terminal.show(loaded, screen.width, over))
    if clients:
        screen.print(terminal.clients(loaded))
    typer.echo(terminal.front_in_terminal(loaded, width=min(screen.width, 90), height=18))
    left = "" if loaded.finished else _left_alone(run)
    if left:
        typer.echo(left)


def _left_alone(run: Path) -> str:
    """Say how to continue an unfinished run that no process is working on; empty if one is."""
    # Not for a finished run: this needs torch, which takes longer to load than the run to show.
    from fedpareto.record.store import RunFolder

    folder = RunFolder(run)
    return "" if folder.busy() else f"no process is working on this run; continue it with: {folder.way_on()}"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs on the same problem.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the page and the tables.  [default: a new runs/comparison]")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Write every figure as PNG and PDF too, for papers.")
    ] = False,
    central: Central = False,
    rank: Rank = 1,
    converged: Converged = False,
    over: Over = None,
    json: console.AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No tables, only where the page is.")] = False,
) -> None:
    """Compare runs, each RUN being a folder: a table here, and a page to explore them in one HTML file.

    Example: fedpareto compare runs/fedavg-synthetic runs/fedpref-synthetic --out runs/comparison --over bytes
    """
    from rich.console import Console

    from fedpareto.report import across, axes, by_device, likeness
    from fedpareto.report.comparison import comparison

    records = _loaded(runs, central, rank, converged)
    axes.chosen_of(likeness.comparable(records), over)  # Before a folder is made for them.
    out = out or free_folder(Path("runs"), "comparison")
    write = plugins.need("fedpareto.pages", "comparison", "the page and the tables of a comparison")
    where = write(runs, out, rank, converged, over=over, figures=figures)
    written = {"page": str(where)}
    if figures:  # Otherwise matplotlib is not loaded.
        from fedpareto.report.pictures import main_picture

        written["picture"] = str(out / main_picture(records))
    if json:
        of_clients = {
            "across_clients": [table.to_plain() for table in across.across_clients(records)],
            "by_device": [table.to_plain() for table in by_device.by_device(records)],
        }
        table = comparison(records, over).to_plain() | of_clients
        console.print_json({**written, **table})
        return
    if not quiet:
        screen = Console()
        screen.print(comparison(records, over).to_rich(screen.width))
        for tables in filter(None, (across.in_terminal(records), by_device.in_terminal(records))):
            screen.print(tables)
    for name, path in written.items():
        typer.echo(f"{name + ':':9} {path}")


def _loaded(runs: list[Path], central: bool, rank: int, converged: bool) -> list[Record]:
    """Read the runs, the first with a central reference if one is wanted, with outliers or without."""
    from fedpareto.record import reading

    records = [reading.load(run) for run in runs]
    if central and not any(one.central for one in records):
        from fedpareto.runs.central_reference import keep_central

        keep_central(runs[0])
        records = [reading.load(run) for run in runs]
    return [one.without_outliers(rank, converged) for one in records] if rank > 1 or converged else records


def _changed(before: Spec, settings: list[str]) -> Spec:
    """A resumed run's spec: only what decides whether it continues may be changed, never what it computes."""
    from fedpareto.config.parameters import field_names
    from fedpareto.runs.resuming import MOVABLE
    from fedpareto.spec.draft import Draft

    if not settings:
        return before
    movable = [name for name in MOVABLE if name in field_names(before.engine)]
    for text in settings:
        key = text.partition("=")[0].strip()
        if key.removeprefix("engine.") in movable:
            continue
        if key.removeprefix("faults.") not in ("quorum", *field_names(before.faults)):
            may = "quorum and faults" if not movable else f"quorum, faults, {' and '.join(movable)}"
            raise UserError(f"--set {text}: a resumed run keeps its spec; only {may} may be changed")
    return Draft(before.to_mapping()).with_settings(settings).finish()


@contextmanager
def watched(spec: Spec, folder: Path, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """Show a run's progress, and let Ctrl-C or SIGTERM stop it; yield what a run is told of both."""
    from fedpareto.runs.progress import shown

    def kept() -> str:
        is_kept = (folder / "spec.yaml").exists()
        return f"continue with: fedpareto resume {quoted(folder)}" if is_kept else "nothing was kept"

    progress = shown(spec, folder, quiet)
    with jobs.stoppable(kept) as asked:
        try:
            yield {"on_begin": progress.begin, "on_round": progress.round, "stop": asked}
        finally:
            progress.end()


def _print_result(result: Result) -> None:
    for line in result.summary():
        typer.echo(line)
    privacy = result.spec.privacy
    if result.epsilon is not None:
        caution = "; for a study only: the noise follows from the seed" if privacy.randomness == "seed" else ""
        covered = "" if math.isfinite(privacy.report_cost) else " (it does not cover them)"
        told = f"; objectives are {privacy.objectives}{covered}"
        typer.echo(f"privacy {privacy.kind}: ε = {result.epsilon:.4g} at δ = {privacy.delta:g}{told}{caution}")
    assert result.folder is not None, "a run of the command line has a folder"
    typer.echo(f"run: {result.folder}   see it: fedpareto show {quoted(result.folder)}")
