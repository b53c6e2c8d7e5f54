"""What poisoning costs honest clients, with each algorithm's defaults and behind the defence that fits best.

`python benchmarks/poisoning.py` runs the matrix of `examples/matrix-poisoning.yaml` for 1 of 5 and for 3 of 20 clients,
and writes a table and a heat map of points lost against the run without an attack; docs/attacks.md has the results. For
each algorithm that defence is chosen whose worst attack costs least on the first half of the seeds; what it costs is
told of the second half: nothing is chosen by what is reported. Finished cells are kept, so the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.files import read_object, write_atomically
from fedpareto_audit import matrix as matrices
from fedpareto_audit.figures import heat_map, render
from fedpareto_audit.matrix import Matrix

SPEC = Path(__file__).parents[1] / "examples" / "matrix-poisoning.yaml"
FEDERATIONS = {"1 of 5": (5, 0.2, "3,2"), "3 of 20": (20, 0.15, "12,8")}
"""Clients, the share of them that attacks, and how many have each of two preferences."""
ADULT = ("problem=adult", "problem.hidden=16")
PLAIN = "none"
"""The first of the defences."""


def measured(record: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Values of honest clients `[defences, algorithms, attacks, seeds]`, NaN where training failed or nothing fits, and
    how often backdoors open, `[defences, algorithms, seeds]`.
    """
    labels, judged = record["labels"], record["judged"]
    rows, columns, panels = (len(labels[axis]) for axis in ("algorithm", "attack", "defence"))
    values = np.full((panels, rows, columns, len(judged)), np.nan)
    opened = np.full((panels, rows, len(judged)), np.nan)
    for cell in record["cells"]:
        if cell["at"] is None or "clients" not in cell:
            continue
        row, column, panel = cell["at"]
        values[panel, row, column] = _means(cell["clients"], judged)
        if "opened" in cell:
            opened[panel, row] = _means(cell["opened"], judged)
    return values, opened


def _means(of_seeds: list[list[float | None]], judged: list[list[int]]) -> list[float]:
    """Over the judged clients, by seed; NaN if one has no value."""
    pairs = zip(of_seeds, judged, strict=True)
    return [float(np.mean([np.nan if one[i] is None else one[i] for i in who])) for one, who in pairs]


def lost(values: np.ndarray) -> np.ndarray:
    """Points that each cell has less than its algorithm without attack and defence, `[..., attacks, seeds]`; where
    training fails, all of them.
    """
    calm = values[:1, :, :1]
    points: np.ndarray = 100 * np.where(np.isnan(values), calm, calm - values)
    return points


def chosen(record: Mapping[str, Any], points: np.ndarray) -> np.ndarray:
    """For each algorithm the number of the defence whose worst attack costs least `[algorithms]`, by points lost
    `[defences, algorithms, attacks, seeds]`: a server does not know which attack will come.
    """
    worst = points.mean(axis=-1).max(axis=-1)
    for cell in record["cells"]:
        if cell["at"] is not None and "refused" in cell:
            worst[cell["at"][2], cell["at"][0]] = np.inf
    return np.asarray(worst.argmin(axis=0))


def some_of(matrix: Matrix, names: list[str] | None) -> Matrix:
    """With these defences and none, or with all."""
    entries = matrix.axes["defence"]
    kept = tuple(one for one in entries if (one if isinstance(one, str) else one["rule"]) in {PLAIN, *(names or ())})
    return replace(matrix, axes={**matrix.axes, "defence": kept}) if names else matrix


def report(record: Mapping[str, Any], title: str) -> tuple[list[str], np.ndarray]:
    """A table, and the points lost with defaults and behind the chosen defence, `[2, algorithms, attacks]`."""
    labels, (values, opened) = record["labels"], measured(record)
    half, points = values.shape[-1] // 2, lost(values)
    picked = chosen(record, points[..., :half])
    points, rows = points[..., half:], np.arange(len(picked))
    best, plain, open_now = points[picked, rows], points[0], 100 * opened[..., half:].mean(axis=-1)
    lines = [f"| {title} | {' | '.join(labels['attack'])} | trigger works |", "|---|" + "---|" * (1 + best.shape[1])]
    for row, name in enumerate(labels["algorithm"]):
        rule = picked[row]
        cells = [
            f"{plain[row, column].mean():.1f} → {best[row, column].mean():.1f} ± {best[row, column].std():.1f}"
            for column in range(best.shape[1])
        ]
        trigger = f"{open_now[0, row]:.0f} → {open_now[rule, row]:.0f} %"
        lines.append(f"| `{name}`, {labels['defence'][rule]} | " + " | ".join([*cells, trigger]) + " |")
    return [*lines, ""], np.stack([plain.mean(axis=-1), best.mean(axis=-1)])


def draw(records: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Writes poisoning.md, and a heat map with two panels for each record, by defaults and behind the defence."""
    told = {title: report(record, title) for title, record in records.items()}
    text = "\n".join(line for lines, _ in told.values() for line in lines)
    write_atomically(out / "poisoning.md", text + "\n")
    print(text)
    labels = next(iter(records.values()))["labels"]
    values = np.round(np.concatenate([points for _, points in told.values()]), 1)
    figure = heat_map(
        np.clip(values, 0, None),
        np.zeros(values.shape, dtype=bool),
        rows=labels["algorithm"],
        columns=labels["attack"],
        panels=[f"{title}, {how}" for title in told for how in ("no defence", "defended")],
        measure="points lost by honest clients",
        maximise=False,
        across=2,
    )
    for kind in ("png", "pdf"):
        write_atomically(out / f"poisoning.{kind}", render(figure, kind))


def main() -> None:
    """Runs what is missing, and writes poisoning.md, poisoning.png and poisoning.pdf."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/poisoning"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=6, help="half of them to choose a defence by")
    parser.add_argument("--federation", choices=list(FEDERATIONS), action="append")
    parser.add_argument("--defence", action="append", help="some of the defences only, by name; none is always there")
    parser.add_argument("--adult", action="store_true", help="on Adult instead of SYNTHETIC")
    parser.add_argument("--draw", action="append", metavar="TITLE=FOLDER", help="finished folders; nothing is run")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.draw:
        folders = dict(one.split("=", 1) for one in given.draw)
        draw({title: read_object(Path(folder) / matrices.FILE) for title, folder in folders.items()}, given.out)
        return
    records = {}
    for title in given.federation or FEDERATIONS:
        clients, share, groups = FEDERATIONS[title]
        folder = given.out / f"{'adult' if given.adult else 'synthetic'}-{clients}"
        folder.mkdir(parents=True, exist_ok=True)
        text = SPEC.read_text(encoding="utf-8").replace("share: 0.2", f"share: {share}")
        write_atomically(folder / "matrix.yaml", text.replace("groups:3,2@", f"groups:{groups}@"))
        settings = [
            f"clients={clients}",
            f"seeds={given.seeds}",
            "step=fixed",
            *(ADULT if given.adult else ()),
            *given.settings,
        ]
        matrix = some_of(Matrix.read(folder / "matrix.yaml", settings), given.defence)
        records[title] = matrices.run(matrix, folder, given.jobs, print, lambda: False)
    draw(records, given.out)


if __name__ == "__main__":
    main()
