"""The commands that make many runs: sweep, over any list of specs or a grid, and tune, a search over parameters."""

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
    from fedpareto.campaigns.tuning.study import Outcome

MOST_ROWS = 30
"""Rows of the table of a tuning; the record has all."""
SOME_FAILED = 1
"""The exit code if some runs failed or were stopped, and others were not."""


@reads_data
def sweep(
    specs: Annotated[list[Path], typer.Argument(metavar="SPEC...", help="Files of specs, with a grid or without.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs.")] = Path("runs/sweep"),
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
    from fedpareto.runs.progress import tallied

    plan = grid.plan(specs, settings or ())
    if jobs is None and sweeps.other_engines(plan):
        jobs = "1"
    where = parallel.chosen(jobs, address, sweeps.on_gpu(plan))
    with parallel.stoppable(lambda: _kept(out)) as asked:
        tally = tallied("runs", len(plan), quiet)
        campaign = sweeps.run(plan, out, where, tally, asked, sweeps.page_of_summary())
    if json:
        print_json(campaign.to_plain())
    else:
        _print_campaign(campaign, quiet)
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


def _kept(out: Path) -> str:
    return f"everything is kept in {quoted(out)}, the same command continues"


def _print_campaign(campaign: Campaign, quiet: bool) -> None:
    if not quiet:
        for summary in campaign.summaries:
            print_table(summary.to_rich(terminal_width()))
            typer.echo(summary.sentence)
    for page in campaign.pages:
        typer.echo(f"page: {page}")


@reads_data
def tune(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file with a section 'tune'.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the study.")] = Path("runs/tune"),
    trials: Annotated[int | None, typer.Option(help="Number of candidates.  [default: the file's, or 100]")] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Sampler of the candidates: nsga2, nsga3, tpe, gp, random or grid.  [default: the file's, or nsga2]"
        ),
    ] = None,
    grid: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Published grid, instead of a search: A.3, A.4, A.10 or V.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="Number of stacks at a time.  [default: 1 per core]"),
    ] = None,
    settings: Setting = None,
    json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table, only the choice.")] = False,
) -> None:
    """Search over any keys of a spec, with one or several objectives; ends with a front and a choice.

    A search is a section such as tune: {search: {lr: {low: 0.001, high: 1, log: true}}, objectives: [utility, bytes]}.

    Everything is measured on validation rows. The study is an SQLite file that Optuna's own dashboard opens:
    optuna-dashboard sqlite:///runs/tune/study.db.

    Ctrl-C or SIGTERM stops; the same command continues, after a crash too.

    Example: fedpareto tune examples/tune.yaml --trials 40 --out runs/tune
    """
    from fedpareto.campaigns.tuning import plan, study
    from fedpareto.runs.progress import tallied

    study.need_optuna()
    tuning = plan.read(spec, settings or (), grid or "", trials=trials, sampler=sampler)
    where = parallel.chosen(None if jobs is None else str(jobs), None, tuning.first.engine.device.startswith("cuda"))
    with parallel.stoppable(lambda: _kept(out)) as asked:
        outcome = study.run(tuning, out, where, tallied("trials", study.grid_size(tuning), quiet), asked)
    if outcome.chosen is None:
        reason = next((one.reason for one in outcome.tried if one.reason), "none meets the constraints")
        raise UserError(f"no candidate came to anything; the first reason: {reason}")
    if json:
        print_json(outcome.to_plain())
    else:
        _print_outcome(outcome, quiet)


def _print_outcome(outcome: Outcome, quiet: bool) -> None:
    from fedpareto.campaigns.grid import in_words
    from fedpareto.campaigns.tuning import study

    chosen, front = outcome.chosen, outcome.front
    assert chosen is not None, "looked at before"
    if not quiet:
        from rich.table import Table

        table = Table("trial", *chosen.parameters, *outcome.objectives, "")
        for one in front[:MOST_ROWS]:
            parameters = [in_words(value) for value in one.parameters.values()]
            values = [f"{one.values[name]:,.4g}" for name in outcome.objectives]
            table.add_row(str(one.number), *parameters, *values, "this one" if one is chosen else "")
        print_table(table)
        typer.echo(f"{len(front)} on the front; {outcome.sentence}")
    said = ", ".join(f"{key}={in_words(value)}" for key, value in chosen.parameters.items())
    typer.echo(f"this one: trial {chosen.number}, {said}, the nearest to the best of every objective")
    files = (study.CHOSEN, study.PICTURE, study.RECORD, study.FILE)
    typer.echo(f"written: {', '.join(quoted(outcome.folder / name) for name in files)}")
