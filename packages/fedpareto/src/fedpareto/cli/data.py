"""`fedpareto data`: a report on the user's own table; listing, fetching and checking published data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpareto.cli.console import ROOMY, AsJson, print_json, print_table, terminal_width
from fedpareto.config.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto.contract.problem import Problem
    from fedpareto.problems.data import DataSet
    from fedpareto.problems.fairness.benchmarks import OwnTable
    from fedpareto.problems.fairness.data_report import DataReport

app = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Your own table: report. The published data sets: list, fetch, check.\n\n"
    "Example: fedpareto data report people.csv --label hired --sensitive gender",
)


def _known() -> list[str]:
    from fedpareto.problems.data import catalogue

    return list(catalogue())


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Names of data sets; see fedpareto data list.", autocompletion=_known),
]


@app.callback()
def _data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def report(
    file: Annotated[Path | None, typer.Argument(help="Your table: CSV, Parquet, or a folder of Parquet files.")] = None,
    label: Annotated[str, typer.Option(help="Column to predict; without one, candidates are listed.")] = "",
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Sensitive columns: COL[,COL]; may be given several times.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.  [default: the problem's own, 10]")] = None,
    sql: Annotated[str, typer.Option(help="URL of a database, instead of FILE; or env:NAME that holds it.")] = "",
    query: Annotated[str, typer.Option(help="The database query, such as 'SELECT * FROM people'.")] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the problem 'table', such as positive=1."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report on your own table before you train: columns, label, groups, clients, warnings.

    It says which value of the label counts as positive and why, the base rate of each group, the test rows of each
    client, and what a constant prediction would score.

    Example: fedpareto data report people.csv --label hired --sensitive gender
    """
    import json

    from fedpareto.config.parameters import build, parse_value
    from fedpareto.problems.fairness.benchmarks import OwnTable

    values: dict[str, Any] = {
        "file": "" if file is None else str(file),
        "sql": sql,
        "query": query,
        "label": label,
        "sensitive": sensitive or [],
    }
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write key=value, for example --set positive=1")
        values[key.strip().removeprefix("problem.")] = parse_value(value)
    found = _reported(build(OwnTable, values, "problem table"), clients)
    typer.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False) if as_json else "\n".join(found.lines()))


def print_report(problem: Problem, clients: int, seed: int) -> None:
    """A table in a few lines, before a run trains on it; nothing for other problems."""
    from fedpareto.problems.fairness.benchmarks import OwnTable

    if isinstance(problem, OwnTable):
        for line in _reported(problem, clients, seed).lines(whole=False):
            typer.echo(line, err=True)


def _reported(problem: OwnTable, clients: int | None, seed: int = 0) -> DataReport:
    from fedpareto.problems.fairness.data_report import data_report

    return data_report(problem, clients, seed)


@app.command("list")
def list_(json: AsJson = False) -> None:
    """List the data sets: content, source, size, licence, and whether they are here.

    Example: fedpareto data list
    """
    from fedpareto.problems.data import catalogue, data_folder

    found = [
        {
            "name": name,
            "about": dataset.about,
            "bytes": sum(file.size for file in dataset.files),
            "terms": dataset.terms,
            "here": all(dataset.paths()),
            "files": [f"{dataset.folder}/{file.name}" for file in dataset.files],
        }
        for name, dataset in catalogue().items()
    ]
    if json:
        print_json({"folder": str(data_folder()), "sets": found})
        return
    print_table(data_table(found, terminal_width()))
    typer.echo(f"data folder: {data_folder()} (set FEDPARETO_DATA to use another)\nmissing ones: fedpareto data fetch")


def data_table(found: Sequence[Mapping[str, Any]], width: int | None) -> Table:
    from rich.table import Table

    is_roomy = width is None or width >= ROOMY
    headings = ("size", "terms", "here", "files") if is_roomy else ("here",)
    table = Table("name", "what it is", *headings, show_lines=not is_roomy)
    for one in found:
        here, size, files = "yes" if one["here"] else "no", f"{one['bytes'] / 1e6:.1f} MB", ", ".join(one["files"])
        if is_roomy:
            table.add_row(one["name"], one["about"], size, one["terms"], here, files)
        else:
            table.add_row(one["name"], f"{one['about']}\n[dim]{size}; {one['terms']}\n{files}[/dim]", here)
    return table


@app.command()
def fetch(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Fetch all data sets.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages, only errors.")] = False,
) -> None:
    """Download data sets into the data folder; what is here already stays.

    Example: fedpareto data fetch adult compas
    """
    from fedpareto.problems.data import fetch as fetch_file
    from fedpareto.problems.data import find, is_named, verified

    if bool(names) == everything:
        raise UserError("name the data sets to fetch, or all of them with --all; see: fedpareto data list")
    for dataset in _chosen(names):
        for file in dataset.files:
            path = find(dataset, file)
            # A sample in its place is not what was requested.
            is_new = path is None or not is_named(path, file)
            path = (
                fetch_file(dataset, file, (lambda have, total: None) if quiet else None)
                if path is None or is_new
                else path
            )
            if not is_new:
                verified(file, path)
            if not quiet:
                typer.echo(f"{dataset.name}: {path} {'fetched' if is_new else 'is here already'}")


@app.command()
def check(names: Names = None, json: AsJson = False) -> None:
    """Check the data sets that are here: content (SHA-256), rows, label and groups against the published counts.

    Example: fedpareto data check adult
    """
    from rich.table import Table

    from fedpareto.problems.data import data_folder

    table, found = Table("name", "content", "counts", "verdict"), []
    bad, present, others = [], 0, []
    for dataset in _chosen(names):
        is_here = all(dataset.paths())
        content, counts, is_good = _judged(dataset) if is_here else ("not here", "", not names)
        verdict = ("good" if is_good else "BAD") if is_here else ("missing" if names else "")
        table.add_row(dataset.name, content, counts, verdict)
        found.append(
            {"name": dataset.name, "content": content, "counts": counts.splitlines(), "verdict": verdict or "missing"}
        )
        present += is_here
        bad += [] if is_good else [dataset.name]
        others += [dataset.name] if is_here and is_good and not dataset.is_published() else []
    if json:
        print_json({"folder": str(data_folder()), "sets": found})
    else:
        print_table(table)
    if bad:
        raise UserError(f"{len(bad)} of the data sets are missing or not as published: {', '.join(bad)}")
    if not present:
        raise UserError(f"no data set is in {data_folder()}; get one with: fedpareto data fetch NAME")
    published = present - len(others)
    if json:
        return
    if published:
        typer.echo(f"as published: {published} of the {present} data sets in {data_folder()}")
    if others:
        typer.echo(f"other files in the published format, not to be compared with it: {', '.join(others)}")


def _judged(dataset: DataSet) -> tuple[str, str, bool]:
    try:
        sizes = [len(content) for content in dataset.contents()]
        found = dataset.census()
    except UserError as problem:
        return str(problem), "", False
    is_published = dataset.is_published()
    expected = dataset.published if is_published else found
    wrong = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    shown = "\n".join(
        f"{name}: {found.get(name, 0):,}" + (f" instead of {expected.get(name, 0):,}" if name in wrong else "")
        for name in found
    )
    content = "SHA-256 right" if is_published else "not the published files, but in their format"
    return f"{content}, {sum(sizes):,} bytes", shown, not wrong


def _chosen(names: list[str] | None) -> list[DataSet]:
    from fedpareto.problems.data import catalogue, data_set

    return [data_set(name) for name in names] if names else list(catalogue().values())
