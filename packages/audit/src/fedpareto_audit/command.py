"""`fedpareto audit`: what a curious server learns at these settings, and what would keep it from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpareto.cli import jobs as parallel
from fedpareto.cli.allowing import reads_data
from fedpareto.cli.console import AsJson, Quiet, print_json, print_table
from fedpareto.cli.runs import Setting
from fedpareto.config.files import quoted

DEFAULT_ATTACKS = "preference,membership,inversion"
DEFAULT_PROTECTIONS = "noise=0.01,noise=0.1,noise=1,secure-sum"


@reads_data
def audit(
    target: Annotated[Path, typer.Argument(metavar="SPEC|RUN", help="YAML file of a spec, or folder of a run.")],
    attacks: Annotated[str, typer.Option(metavar="LIST", help="Names of the attacks.")] = DEFAULT_ATTACKS,
    protect: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Protections that are tried beside the settings: noise=Z (privacy.kind=local), secure-sum, any "
            "parameter, such as batch_size=512, or several with +; none: nothing.",
        ),
    ] = DEFAULT_PROTECTIONS,
    seeds: Annotated[str | None, typer.Option(help="Seeds: how many, or which (4,7).  [default: the spec's]")] = None,
    settings: Setting = None,
    shadows: Annotated[int, typer.Option(min=2, help="Number of the attacker's own clients for each message.")] = 32,
    references: Annotated[int, typer.Option(min=2, help="Number of the attacker's own federations.")] = 4,
    rows: Annotated[int, typer.Option(min=2, help="Number of rows of each client whose membership is guessed.")] = 100,
    batches: Annotated[str, typer.Option(help="Numbers of rows in a gradient that is inverted.")] = "1,8",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the table and the picture.")] = Path("runs/audit"),
    jobs: parallel.HowMany = None,
    address: parallel.Address = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack your own configuration, as a curious server would: preferences, membership and rows.

    SPEC or RUN is trained here again, with shadow clients of the attacker beside it, as it is set and under each
    protection. Ends with a table, a picture (PNG, SVG) and advice.

    Example: fedpareto audit runs/fedpref-synthetic --attacks preference --protect noise=0.1 --seeds 3
    """
    from fedpareto.runs.progress import tallied
    from fedpareto_audit import audit as audits
    from fedpareto_audit.world import Effort

    where = parallel.chosen(jobs, address, parallel.on_gpu(settings or ()))
    given = [*(settings or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    effort = Effort(shadows=shadows, references=references, rows=rows, batches=_numbers(batches))
    protections = tuple(audits.Protection.parse(text) for text in _listed(protect) if text != "none")
    ready = audits.Audit(audits.read(target, given), _listed(attacks), protections, effort)
    progress = tallied("worlds", len(ready.worlds), quiet)
    with parallel.stoppable(lambda: "nothing was kept") as asked:
        try:
            record = audits.run(ready, out, where, progress.one_more, asked)
        finally:
            progress.end()
    if json:
        print_json(record)
        return
    _print(record)
    typer.echo("written: " + ", ".join(quoted(out / name) for name in ("audit.json", "audit.png", "audit.svg")))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str) -> tuple[int, ...]:
    from fedpareto.config.errors import UserError

    parts = _listed(text)
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"--batches {text}: numbers of rows, such as 1,8")
    return tuple(int(part) for part in parts)


def _print(record: Mapping[str, Any]) -> None:
    from rich.table import Table

    protections = record["protections"]
    table = Table("attack", "guess", *protections)
    for measure in record["measures"]:
        table.add_row(measure["name"], f"{measure['guess']:.3f}", *_cells(measure["values"], protections))
    useful = record["usefulness"]
    table.add_row(f"{useful['name']} (use)", "", *_cells(useful["values"], protections))
    print_table(table)
    for what in ("refused", "unfit"):
        for name, why in record[what].items():
            typer.echo(f"{name}: {why}")
    for sentence in record["advice"]:
        typer.echo(sentence)


def _cells(values: Mapping[str, Any], protections: list[str]) -> list[str]:
    def text(entry: Mapping[str, Any]) -> str:
        spread = f" ± {entry['deviation']:.3f}" if len(entry["seeds"]) > 1 else ""
        return f"{entry['mean']:.3f}{spread}"

    return [text(values[name]) if name in values else "–" for name in protections]
