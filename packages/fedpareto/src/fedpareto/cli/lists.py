"""`fedpareto algorithms` and `fedpareto problems`: what there is, for people and for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpareto.cli.completion import VALUES
from fedpareto.cli.console import ROOMY, AsJson, picture_kind, print_json, print_table, terminal_width
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto.contract.taxonomy import Box

WIDTH = 80
"""Characters in a line, where there is no terminal to ask or that is wider: longer lists are hard to read."""
EMPTY = "(empty)"
LEADS = {"server": "server leads", "client": "clients lead", "distributed": "nobody leads"}


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of an algorithm, for its hyper-parameters.", autocompletion=VALUES["algorithm"]),
    ] = None,
    json: AsJson = False,
    taxonomy: Annotated[
        bool, typer.Option("--taxonomy", help="Show the boxes of the taxonomy, empty ones too.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Picture of the taxonomy, with --taxonomy: .png, .pdf or .svg.")
    ] = None,
) -> None:
    """List the algorithms with their place in the taxonomy, or the one called NAME with its hyper-parameters.

    Example: fedpareto algorithms fedpref
    """
    from fedpareto.config import described
    from fedpareto.contract import registry

    if taxonomy or picture is not None:
        if name is not None or not taxonomy:
            raise UserError("--taxonomy shows all algorithms, and --picture draws that: give no name, and both of them")
        _show_taxonomy(json, picture)
        return
    if name is not None:
        cls = registry.algorithm_class(name)
        if json:
            print_json({**described.algorithm(name, cls), "parameters": described.parameters(cls)})
            return
        _print_parameters(name, cls)
        labels = cls.taxonomy
        typer.echo(f"\ntaxonomy: {labels.place}; {labels.method}; objectives: {labels.objectives}")
        return
    found = [described.algorithm(known, cls) for known, cls in registry.algorithms().items()]
    if json:
        print_json(found)
        return
    print_table(algorithm_table(found, terminal_width()))
    _warn_of_broken()
    typer.echo(
        "Add +ft to a name for its fine-tuning variant, +safe for one in which each client keeps, by its own "
        "validation rows, the best of what it was sent and of what it has alone. Hyper-parameters: fedpareto "
        "algorithms NAME"
    )


def _show_taxonomy(json: bool, picture: Path | None) -> None:
    from fedpareto.contract import registry
    from fedpareto.contract.taxonomy import occupants, outsiders

    kind, known = picture_kind(picture, "taxonomy.png"), registry.algorithms()
    boxes, outside = occupants(known), outsiders(known)
    if picture is not None:
        from fedpareto.report.taxonomy_figure import render, taxonomy_figure

        write_atomically(picture, render(taxonomy_figure(boxes), kind))
    if json:
        print_json(taxonomy_plain(boxes, outside))
        return
    for line in taxonomy_lines(boxes, outside, min(terminal_width() or WIDTH, WIDTH)):
        typer.echo(line)
    _warn_of_broken()
    if picture is not None:
        typer.echo(f"picture: {picture}")


def problems(
    name: Annotated[
        str | None, typer.Argument(help="Name of a problem, for its parameters.", autocompletion=VALUES["problem"])
    ] = None,
    json: AsJson = False,
) -> None:
    """List the problems with their objectives, or the one called NAME with its parameters.

    Example: fedpareto problems synthetic
    """
    from fedpareto.config import described
    from fedpareto.contract import registry

    if name is not None:
        cls = registry.problem_class(name)
        if json:
            plain = {"name": name, "about": described.summary(cls), "parameters": described.parameters(cls)}
            print_json({**plain, "models": list(cls.models)})
            return
        _print_parameters(name, cls)
        if cls.models:
            typer.echo(f"\nnetworks (model): {', '.join(cls.models)}")
        return
    found = [described.problem(known, cls) for known, cls in registry.problems().items()]
    if json:
        print_json(found)
        return
    print_table(problem_table(found, terminal_width()))
    _warn_of_broken()


def _warn_of_broken() -> None:
    """Warn on stderr of what other packages offer and cannot be used."""
    from fedpareto.contract import registry

    for why in registry.broken():
        typer.echo(f"warning: {why}", err=True)


def algorithm_table(found: Sequence[dict[str, Any]], width: int | None) -> Table:
    from rich.table import Table

    if width is None or width >= ROOMY:
        table = Table("name", "what it does", "level", "family", "multi-objective method", "objectives", "personal")
        for one in found:
            personal = "yes" if one["personal"] else "with +ft"
            labels = (one[key] for key in ("level", "family", "method", "objectives"))
            table.add_row(one["name"], one["about"], *labels, personal)
        return table
    table = Table("name", "what it does, and its place", show_lines=True)
    for one in found:
        personal = "personal" if one["personal"] else "personal with +ft"
        place = f"{one['place']}, {personal}; {one['method']}; objectives: {one['objectives']}"
        table.add_row(one["name"], f"{one['about']}\n[dim]{place}[/dim]")
    return table


def problem_table(found: Sequence[dict[str, Any]], width: int | None) -> Table:
    from rich.table import Table

    def goals(one: dict[str, Any]) -> str:
        return ", ".join(f"{goal['name']} {'↑' if goal['maximise'] else '↓'}" for goal in one["objectives"])

    if width is None or width >= ROOMY:
        table = Table("name", "what it is", "objectives", "parameters", "known front")
        for one in found:
            front = "yes" if one["known_front"] else "no"
            table.add_row(one["name"], one["about"], goals(one), f"{one['model_size']:,}", front)
        return table
    table = Table("name", "what it is, and its objectives", show_lines=True)
    for one in found:
        front = "; the front is known" if one["known_front"] else ""
        table.add_row(one["name"], f"{one['about']}\n[dim]{goals(one)}; {one['model_size']:,} parameters{front}[/dim]")
    return table


def parameter_table(cls: type) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from fedpareto.config import described
    from fedpareto.config.source import field_docs

    docs = field_docs(cls)
    table = Table("parameter", "default", "meaning")
    for name, default, is_needed in described.fields(cls):
        shown = "(needed)" if is_needed else escape(str(default)) or "(empty)"
        table.add_row(name, shown, escape(docs.get(name, "")))
    return table


def _print_parameters(name: str, cls: type) -> None:
    from fedpareto.config import described

    typer.echo(f"{name}: {described.summary(cls)}\n")
    table = parameter_table(cls)
    if table.row_count:
        print_table(table)
    else:
        typer.echo("no parameters")


# -- the taxonomy ---------------------------------------------------------------------------------------------------


def taxonomy_lines(boxes: Mapping[Box, Sequence[str]], outside: Sequence[str], width: int) -> Iterator[str]:
    """Draw levels, branches and boxes as a tree, each box with its occupants under it: figure 2.4 of the thesis."""
    from fedpareto.contract.taxonomy import LEVELS

    filled = sum(bool(names) for names in boxes.values())
    yield f"Multi-objective methods in federated learning: {filled} of {len(boxes)} boxes are occupied"
    for level, of_level in groupby(boxes, key=lambda box: box.level):
        yield from ("", LEVELS[level])
        branches = [(branch, list(some)) for branch, some in groupby(of_level, key=lambda box: box.branch)]
        for place, (branch, some) in enumerate(branches, start=1):
            is_last = place == len(branches)
            yield f"{'└' if is_last else '├'}─ {branch}"
            yield from _branch({box: boxes[box] for box in some}, "   " if is_last else "│  ", width)
    yield from ("", "outside of the taxonomy, to compare with")
    yield from _wrapped(outside, "   ", width)
    yield from ("", "* a box in which the thesis knows no work")


def _branch(boxes: Mapping[Box, Sequence[str]], margin: str, width: int) -> Iterator[str]:
    for place, (box, names) in enumerate(boxes.items(), start=1):
        is_last = place == len(boxes)
        star = " *" if box.was_empty else ""
        yield f"{margin}{'└' if is_last else '├'}─ {box.number:>2} {box.family}{star} [{_outcome(box)}]"
        yield from _wrapped(names or [EMPTY], f"{margin}{' ' if is_last else '│'}     ", width)


def _outcome(box: Box) -> str:
    solutions = {"one": "one solution", "front": "a front", "client-specific": "one for each client"}[box.solutions]
    return f"{solutions}; {LEADS[box.leads]}"


def _wrapped(names: Sequence[str], margin: str, width: int) -> list[str]:
    return textwrap.wrap(
        ", ".join(names),
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )


def taxonomy_plain(boxes: Mapping[Box, Sequence[str]], outside: Sequence[str]) -> dict[str, Any]:
    found = [
        {
            "number": box.number,
            "level": box.level,
            "branch": box.branch,
            "family": box.family,
            "solutions": box.solutions,
            "leads": box.leads,
            "section": box.section,
            "unexplored": box.was_empty,
            "ways": list(box.ways),
            "algorithms": [name for name in names if name not in box.ways],
        }
        for box, names in boxes.items()
    ]
    return {"boxes": found, "outside": list(outside)}
