"""`fedpareto tune`: an outer search over the parameters of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli import jobs as parallel
from fedpareto.cli.allowing import reads_data
from fedpareto.cli.console import AsJson, print_json, print_table, say
from fedpareto.cli.runs import Setting
from fedpareto.config.errors import UserError
from fedpareto.config.files import quoted

if TYPE_CHECKING:
    from fedpareto.campaigns.tuning.front import Outcome

MOST_ROWS = 30
"""Of the table; the record has all."""


@reads_data
def tune(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A YAML file with a section 'tune'.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the study is kept.")] = Path("runs/tune"),
    trials: Annotated[int | None, typer.Option(help="How many candidates.  [default: the file's, or 100]")] = None,
    sampler: Annotated[
        str | None, typer.Option(help="nsga2, nsga3, tpe, gp, random or grid.  [default: the file's, or nsga2]")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(metavar="TABLE", help="A published grid instead of a search: A.3, A.4, A.10 or V.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, metavar="N", help="Stacks at a time.  [default: one per core]")
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
    from fedpareto.config.interrupts import Interrupts, Stopped
    from fedpareto.runs.progress import tallied

    study.need_optuna()
    tuning = plan.read(spec, settings or (), grid or "", trials=trials, sampler=sampler)
    where = parallel.chosen(None if jobs is None else str(jobs), None, tuning.first.engine.device.startswith("cuda"))
    with Interrupts() as interrupts:
        tally = tallied("trials", study.grid_size(tuning), quiet)
        try:
            outcome = study.run(tuning, out, where, tally, interrupts.asked)
        except (Stopped, KeyboardInterrupt) as stopped:
            say(f"{str(stopped) or 'interrupted'}; everything is kept in {quoted(out)}, the same command continues")
            raise typer.Exit(interrupts.exit_code) from None
    if outcome.chosen is None:
        reason = next((one.reason for one in outcome.tried if one.reason), "none meets the constraints")
        raise UserError(f"no candidate came to anything; the first reason: {reason}")
    if json:
        print_json(outcome.to_plain())
    else:
        _print(outcome, quiet)


def _print(outcome: Outcome, quiet: bool) -> None:
    from fedpareto.campaigns.grid import in_words

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
    typer.echo(f"written: {', '.join(quoted(outcome.folder / name) for name in _files())}")


def _files() -> tuple[str, ...]:
    from fedpareto.campaigns.tuning import study

    return study.CHOSEN, study.PICTURE, study.RECORD, study.FILE
