"""A run at a glance in a terminal, without opening a figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.record.columns import CONTRIBUTION
from fedpareto.record.entries import EVALUATIONS, OWN_TEST, Objective
from fedpareto.record.phrases import counted
from fedpareto.record.run_files import Array, printable
from fedpareto.record.run_record import Record
from fedpareto.report import across, by_device
from fedpareto.report.axes import MEANINGS, Axis, axis_of
from fedpareto.report.comparison import comparison
from fedpareto.report.likeness import comparable
from fedpareto.report.machines import contributions, of_clients, updates
from fedpareto.report.table import finite

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

BLOCKS = "▁▂▃▄▅▆▇█"
SYMBOLS = "ox+*#@%="
KNOWN, SEVERAL = ".", "&"

LAST_REFUSALS = 5
SPARK_WIDTH = 48

CONTRIBUTIONS = (*CONTRIBUTION, "participation")
"""Contributions of a client, where they were measured."""

MOST_BINS = 8
"""Most bins of a histogram."""

LEAST_ROWS = 4
"""Fewest lines of the plane, even where a long legend exceeds the height."""


def show(record: Record, width: int = 80, over: str | None = None) -> RenderableType:
    """One run: its spec, progress, metrics, statistics over clients, and last refused replies.

    `over` is what its course is shown over: see axes.axis_of.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    parts: list[RenderableType] = [
        _facts(record, axis_of([record], over)),
        Text(),
        comparison([record], over).to_rich(width - len("│  │")),
    ]
    optional = [across.in_terminal([record]), by_device.in_terminal([record])]
    for part in (*optional, _refusals(record) if record.events else None):
        parts += [] if part is None else [Text(), part]
    title = Text(f"{record.algorithm} on {record.problem}", style="bold")
    return Panel(Group(*parts), title=title, title_align="left")


def clients(record: Record, seed: int | None = None) -> RenderableType:
    """Each client of one seed: what it is, what it wants, what its model has, and what that is worth to it."""
    from rich.table import Table as RichTable
    from rich.text import Text

    first = record.started[0] if seed is None else seed
    found = RichTable(title=Text(f"clients of seed {first}, {record.measured}"), title_justify="left")
    rows = clients_plain(record, first)
    heads = [name for name in rows[0] if any(one[name] is not None for one in rows)] if rows else []
    hidden = ["exchange_seconds"] if "device" in heads else ["updates"]  # A terminal is narrow.
    heads = [name for name in heads if name not in hidden]
    for name in heads:
        found.add_column(Text(name.replace("_", " ")), justify="left" if name == "name" else "right")
    for one in rows:
        found.add_row(*(Text(_in_cell(one[name])) for name in heads))
    return found


def clients_plain(record: Record, seed: int) -> list[dict[str, Any]]:
    """List the clients of a seed as plain values; None is unknown."""
    solution, own = record.solution(seed), record.own_utilities(seed)
    wishes, has_own = solution.preferences, OWN_TEST in solution.objectives
    names = record.names if len(record.names) == record.clients else ()
    machines, heard = of_clients(record, seed), updates(record, seed)
    given = contributions(record, seed)
    rows = []
    for i, client in enumerate(solution.clients):
        row: dict[str, Any] = {"client": client, "name": names[client] if names else None}
        row |= {"device": None, "exchange_seconds": None} if machines is None else machines.plain(client)
        row["updates"] = int(heard[client]) if client < len(heard) else None
        row |= {name: finite(given[name][client]) if name in given else None for name in CONTRIBUTIONS}
        row["preference"] = None if wishes is None else wishes[i].tolist()
        for j, objective in enumerate(record.objectives):
            row[objective.name] = finite(solution.objectives[record.held_out][i, j])
            if has_own:
                row[f"{objective.name} on own rows"] = finite(solution.objectives[OWN_TEST][i, j])
        rows.append(row | {"own_utility": None if own is None else finite(own[i])})
    return rows


def _in_cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(f"{weight:.2f}" for weight in value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def plain(record: Record, over: str | None = None) -> dict[str, Any]:
    """Return a run as plain values, for a program; keys are stable."""
    row, *references = comparison([record], over).to_plain()["rows"]
    return {
        "folder": str(record.folder),
        "algorithm": record.algorithm,
        "problem": record.problem,
        "status": record.status.name,
        "message": record.status.message,
        "seconds": record.status.seconds,
        "round": max(int(record.common_rounds[-1]), record.status.round),
        "rounds": record.rounds,
        "clients": record.clients,
        "seeds": list(record.seeds),
        "objectives": [{"name": o.name, "maximise": o.maximise} for o in record.objectives],
        "kept": [solution.round for solution in record.solutions],
        "measured": record.measured,
        "metrics": row["values"],
        "references": {one["label"]: one["values"] for one in references},
        "warnings": record.warnings,
        "of_clients": {str(seed): clients_plain(record, seed) for seed in record.started},
        "across_clients": [table.to_plain() for table in across.across_clients([record])],
        "by_device": [table.to_plain() for table in by_device.by_device([record])],
        "missing_replies": len(record.events),
        "versions": dict(record.versions),
    }


def sparkline(values: Array, width: int = SPARK_WIDTH) -> str:
    """The course of `values` `[r]` in at most `width` characters; NaN is a blank, a constant a flat line."""
    if len(values) > width:
        values = np.array([part.mean() for part in np.array_split(values, width)])
    finite = values[np.isfinite(values)]
    if not len(finite):
        return " " * len(values)
    low, high = float(finite.min()), float(finite.max())
    span = high - low
    middle = len(BLOCKS) // 2
    return "".join(
        " " if not np.isfinite(value) else BLOCKS[round((value - low) / span * 7) if span else middle]
        for value in values
    )


def front_in_terminal(records: Record | Sequence[Record], width: int = 72, height: int = 22) -> str:
    """The fronts of one or several runs as `height` lines of plain text, none longer than `width`.

    The first two objectives span the plane; a point is shown if none dominates it in all of them. Of a single
    objective it is `clients_in_terminal`.
    """
    if width < 40 or height < 12:
        raise ValueError(f"width and height: at least 40 and 12 are needed, got {width} and {height}")
    runs = comparable([records] if isinstance(records, Record) else list(records))
    if runs[0].single:
        return clients_in_terminal(runs, width)
    fronts = [run.front()[:, :2] for run in runs]
    known = next((run.known_front[:, :2] for run in runs if run.known_front is not None), None)
    drawn = np.concatenate([*fronts, *([] if known is None else [known])])
    if not len(drawn):
        return "no solution is finite: there is no front to draw"
    layers = [(SYMBOLS[i % len(SYMBOLS)], points) for i, points in enumerate(fronts)]
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    ticks = [f"{value:.4g}" for value in (high[1], low[1])]
    margin = max(len(tick) for tick in ticks) + 1
    objectives = runs[0].objectives
    rest = f"  [first two of {len(objectives)} objectives]" if len(objectives) > 2 else ""
    top = _axis(objectives[1])[: width - len(rest)] + rest
    legend = _legend(runs, known is not None, width)
    bottom = _bottom(runs, low[0], high[0], margin, width)
    shape = (max(height - len(legend) - len(bottom) - 1, LEAST_ROWS), width - margin - 1)
    canvas = _canvas([*([] if known is None else [(KNOWN, known)]), *layers], low, high, shape)
    left = [ticks[0], *[""] * (len(canvas) - 2), ticks[1]]
    plane = [f"{tick:>{margin - 1}} |{line}".rstrip() for tick, line in zip(left, canvas, strict=True)]
    return "\n".join([top, *plane, *bottom, *legend])


def clients_in_terminal(records: Sequence[Record], width: int = 72) -> str:
    """Count the clients by their value of a single objective, by both evaluations, all seeds together."""
    runs = comparable(records)
    found = {
        (i, evaluation): np.concatenate([np.zeros(0), *(points[:, 0] for points in run.last_values(evaluation))])
        for i, run in enumerate(runs)
        for evaluation in EVALUATIONS
    }
    edges = _edges(np.concatenate(list(found.values())))
    if not len(edges):
        return "no client has a finite value: there is nothing to draw"
    # An end of the range may lie a rounding error outside of its round number.
    counts = {key: np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] for key, values in found.items()}
    most = max(int(of_run.max()) for of_run in counts.values())
    ranges = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
    margin = max(len(text) for text in ranges) + 2
    half = (width - margin) // 2
    bar = half - len(str(most)) - 3
    lines = [f"clients by {_axis(runs[0].objectives[0])}"]
    for i, run in enumerate(runs):
        heads = [run.label[: margin - 1] if len(runs) > 1 else "", *EVALUATIONS]
        lines.append(f"{heads[0]:{margin}}{heads[1]:{half}}{heads[2]}".rstrip())
        for row in reversed(range(len(ranges))):
            found_here = [int(counts[i, evaluation][row]) for evaluation in EVALUATIONS]
            bars = [f"{'█' * max(round(count / most * bar), 1)} {count}" if count else "" for count in found_here]
            lines.append(f"{ranges[row]:>{margin - 2}}  {bars[0]:{half}}{bars[1]}".rstrip())
    return "\n".join(lines)


def _edges(values: Array) -> Array:
    """Round numbers that divide the range of `values` into at most `MOST_BINS` parts; none without a value."""
    if not len(values):
        return np.zeros(0)
    low, high = float(values.min()), float(values.max())
    least = (high - low) / MOST_BINS or abs(low) / MOST_BINS or 1.0
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least)
    first = math.floor(low / step)
    # The last bin includes its upper end, so a value there needs no bin of its own.
    bins = max(math.ceil(high / step - 1e-9) - first, 1)
    return np.array([step * (first + i) for i in range(bins + 1)])


def _facts(record: Record, axis: Axis) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in _described(record, axis):
        grid.add_row(name, Text(value))
    return grid


def _described(record: Record, axis: Axis) -> list[tuple[str, str]]:
    goals = ", ".join(f"{o.name} {'↑' if o.maximise else '↓'}" for o in record.objectives)
    status = record.status
    of_some = [
        ("attack", record.attack),
        ("defence", record.defence),
        ("early stop", record.early_stop),
        ("step size", _steps(record)),
    ]
    facts = [
        ("folder", str(record.folder)),
        ("status", f"{status.name}, {status.seconds:.1f} s" + (f": {status.message}" if status.message else "")),
        ("progress", _progress(record)),
        (
            "setting",
            f"{counted(record.clients, 'client')}, {record.rounds} rounds, {counted(len(record.seeds), 'seed')}",
        ),
        ("objectives", goals),
        *(("predicts", output.in_words) for output in record.outputs),
        *((name, words) for name, words in of_some if words),
        *_courses(record, axis),
    ]
    spent = max((line.epsilon for line in record.lines if np.isfinite(line.epsilon)), default=None)
    if spent is not None:
        facts.append(("privacy", f"ε = {spent:.4g} so far"))
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return [*facts, ("versions", versions)] if versions else facts


def _steps(record: Record) -> str:
    """Tell which step sizes the clients' validation rows have chosen, seed by seed; empty where these were fixed."""
    found = []
    for seed in record.started:
        row = record.of_seed(seed)[-1].row
        one, each = row.get("step_factor"), row.get("step_factors")
        if isinstance(one, int | float):
            found.append(f"× {one:g}")
        elif isinstance(each, dict):
            found.append(", ".join(f"× {factor} for {counted(count, 'client')}" for factor, count in each.items()))
    return printable(f"the learner's {'; '.join(found)}") if found else ""


def _courses(record: Record, axis: Axis) -> list[tuple[str, str]]:
    """Draw the course of results, mean over the seeds, each as a sparkline."""
    rounds = record.common_rounds
    if record.single:
        courses = {f"mean {record.objectives[0].name}": (rounds, record.mean_over_rounds(0))}
    else:
        courses = {"hypervolume": (rounds, record.hypervolume)}
    courses["share improved"] = record.share_improved()
    found = []
    for name, (after, values) in courses.items():
        if len(after):
            places, of_seeds = axis.placed(record, after, values)
            course = of_seeds.mean(axis=0)
            drawn, until = course, ""
            if axis.is_stepped:  # At places that are equally far from each other: a value stands until the next one.
                at = np.linspace(places[0], places[-1], SPARK_WIDTH)
                drawn, meaning = course[np.searchsorted(places, at, side="right") - 1], MEANINGS[axis.over]
                until = f" in {meaning.quantity.text(places[-1] * axis.size)} of {meaning.words}"
            found.append((name, f"{sparkline(drawn)}  {course[0]:.4g} → {course[-1]:.4g}{until}"))
    return found


def _progress(record: Record, width: int = 24) -> str:
    """Rounds that are over; the record of the last one is written when the next begins, so the status is more
    current.
    """
    over = max(record.common_rounds[-1], record.status.round)
    share = min(over / max(record.rounds, 1), 1.0)
    full = int(share * width)
    reached = f"round {over} of {record.rounds}"
    seeds = f"{len(record.started)} of {counted(len(record.seeds), 'seed')}"
    return f"{'█' * full}{'░' * (width - full)} {share:.0%}, {reached}, {seeds}"


def _refusals(record: Record) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = record.events[-LAST_REFUSALS:]
    table = RichTable(
        title=f"last {len(shown)} of {len(record.events)} missing replies",
        title_justify="left",
    )
    for heading in ("seed", "round", "client"):
        table.add_column(heading, justify="right")
    table.add_column("reason")
    for event in shown:
        table.add_row(str(event.seed), str(event.round), str(event.client), Text(event.reason))
    return table


def _canvas(layers: list[tuple[str, Array]], low: Array, high: Array, shape: tuple[int, int]) -> list[str]:
    """The layers from back to front; where two runs overlap, neither hides the other."""
    grid = np.full(shape, " ")
    span = np.where(high > low, high - low, 1.0)
    for symbol, points in layers:
        cells = np.rint((points - low) / span * (shape[1] - 1, shape[0] - 1)).astype(int)
        for column, row in np.unique(cells, axis=0):
            place = (shape[0] - 1 - row, column)
            grid[place] = symbol if grid[place] in (" ", KNOWN) else SEVERAL
    return ["".join(line) for line in grid]


def _bottom(runs: Sequence[Record], low: float, high: float, margin: int, width: int) -> list[str]:
    ends = f"{low:.4g}", f"{high:.4g}"
    space = " " * (width - margin - 1 - sum(len(end) for end in ends))
    indent = " " * (margin + 1)
    axis = " " * margin + "+" + "-" * (width - margin - 1)
    name = _axis(runs[0].objectives[0])[: width - margin - 1]
    return [axis, indent + ends[0] + space + ends[1], indent + name]


def _axis(objective: Objective) -> str:
    return f"{objective.name} ({objective.better} is better)"


def _legend(runs: Sequence[Record], known: bool, width: int) -> list[str]:
    entries = [f"{SYMBOLS[i % len(SYMBOLS)]} {run.label}" for i, run in enumerate(runs)]
    entries += [f"{KNOWN} known front"] if known else []
    entries += [f"{SEVERAL} several runs"] if len(runs) > 1 else []
    # Labels have no-break spaces, so that a line breaks between two entries.
    glued = "   ".join(entry.replace(" ", "\N{NO-BREAK SPACE}") for entry in entries)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(glued, width)]
