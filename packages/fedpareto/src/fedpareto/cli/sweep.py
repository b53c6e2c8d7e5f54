"""`fedpareto sweep`: any list of specs, or a grid in one, as one campaign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli import jobs as parallel
from fedpareto.cli.allowing import reads_data
from fedpareto.cli.console import AsJson, print_json, print_table, say, terminal_width
from fedpareto.cli.runs import Setting
from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted

if TYPE_CHECKING:
    from fedpareto.campaigns.sweep import Campaign

SOME_FAILED = 1
"""The exit code if some runs failed or were stopped, and others were not."""


@reads_data
def sweep(
    specs: Annotated[list[Path], typer.Argument(metavar="SPEC...", help="YAML files, with a grid or without.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs are kept.")] = Path("runs/sweep"),
    jobs: parallel.HowMany = None,
    address: parallel.Address = None,
    settings: Setting = None,
    json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no table, only where the page is.")
    ] = False,
) -> None:
    """Run many specs, or every point of a grid in a spec, as one campaign: a table and a page at the end.

    A grid is a section such as sweep: {lr: [0.1, 0.01], algorithm: [fedavg, fedpref], seeds: 5}.

    Ctrl-C or SIGTERM stops after the current round; the same command continues. Runs that fail, or that 'fedpareto
    stop' ends, are named, and the others go on; the exit code is then 1.

    Example: fedpareto sweep examples/sweep.yaml --out runs/sweep
    """
    from fedpareto.campaigns import grid
    from fedpareto.campaigns import sweep as sweeps
    from fedpareto.config.interrupts import Interrupts, Stopped
    from fedpareto.runs.progress import tallied

    plan = grid.plan(specs, settings or ())
    if jobs is None and sweeps.other_engines(plan):
        jobs = "1"
    where = parallel.chosen(jobs, address, sweeps.on_gpu(plan))
    with Interrupts() as interrupts:
        tally = tallied("runs", len(plan), quiet)
        try:
            campaign = sweeps.run(plan, out, where, tally, interrupts.asked, sweeps.page_of_summary())
        except (Stopped, KeyboardInterrupt) as stopped:
            say(f"{str(stopped) or 'interrupted'}; everything is kept in {quoted(out)}, the same command continues")
            raise typer.Exit(interrupts.exit_code) from None
    if json:
        print_json(campaign.to_plain())
    else:
        _print(campaign, quiet)
    told: dict[str, str] = {}
    for run in campaign.failed:
        first = told.setdefault(run.reason, run.name)
        say(f"failed: {run.name}: {run.reason if first == run.name else f'as {first}'}")
    for run in campaign.stopped:
        say(f"stopped: {run.name}: {run.reason}; the same command continues it")
    if len(campaign.failed) == len(campaign.runs):
        raise UserError(f"every run failed, for the reason{'s' if len(told) > 1 else ''} above")
    if campaign.failed or campaign.stopped:
        raise typer.Exit(SOME_FAILED)


def _print(campaign: Campaign, quiet: bool) -> None:
    if not quiet:
        for summary in campaign.summaries:
            print_table(summary.to_rich(terminal_width()))
            typer.echo(summary.sentence)
    for page in campaign.pages:
        typer.echo(f"page: {page}")
