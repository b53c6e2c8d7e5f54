"""Runs in which clients are the objectives, and how they fare: what FedMGDA+'s and FedFew's reproductions share.

A cell is one spec with all its seeds in one stack, kept in an ordinary run folder, so that what was stopped goes on
where it was. Of a cell every client's first objective is given back, on held-out rows, for both evaluations: of the
model that the server sends, and of the same after the local steps that follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import UserError
from fedpareto.experiments.reproduce.catalogue import Options, Say
from fedpareto.experiments.reproduce.morl_runs import Pulse
from fedpareto.experiments.reproduce.parallel import side_by_side
from fedpareto.experiments.reproduce.runs import ensure
from fedpareto.experiments.spec import Draft, Spec
from fedpareto.experiments.store import RunFolder
from fedpareto.report import record

Array = NDArray[np.float64]
Evaluation = Literal["sent", "trained"]
MODELS = "models.safetensors"


@dataclass(frozen=True)
class Cell:
    """One spec of a reproduction."""

    name: str
    """Also its folder, such as cifar10-b10/fedavg."""
    draft: Mapping[str, Any]
    """The spec as plain values; see spec.Draft."""
    keeps_models: bool = False
    """Whether the clients' models stay in the folder: a hundred copies of a network with 800,000 parameters are
    320 MB."""


@dataclass(frozen=True, eq=False)
class Values:
    """One evaluation of every client over the rounds."""

    rounds: NDArray[np.int64]
    """`[r]`, in which there was such an evaluation."""
    values: Array
    """`[seeds, r, n]`; NaN for a client that was not measured, as those who sat out are not after training."""

    def last(self) -> Array:
        """`[seeds, n]` of the last round that has any."""
        return self.values[:, -1]

    def best(self) -> Array:
        """`[seeds, n]` of the round, another for each seed, in which the mean over clients is largest."""
        means = np.nanmean(self.values, axis=2)
        return self.values[np.arange(len(means)), means.argmax(axis=1)]

    def means(self) -> Array:
        """`[seeds, r]` over the clients."""
        return np.asarray(np.nanmean(self.values, axis=2))


@dataclass(frozen=True, eq=False)
class Found:
    """What a cell gave."""

    cell: Cell
    folder: Path
    sent: Values
    """Of the models that the server sends; the last round's is what the run leaves behind."""
    trained: Values
    """Of the same after the local steps that follow."""
    seconds: float
    is_new: bool
    """False if all was there already."""

    def evaluation(self, kind: Evaluation) -> Values:
        """By name."""
        return self.sent if kind == "sent" else self.trained

    def noted(self, key: str) -> tuple[NDArray[np.int64], Array]:
        """Rounds `[r]` and values `[seeds, r]` of a number that stands in the rows of metrics.jsonl; NaN for null."""
        rows = [row for row in RunFolder(self.folder).read_lines("metrics.jsonl") if key in row]
        seeds, rounds = (sorted({row[name] for row in rows}) for name in ("seed", "round"))
        values = np.full((len(seeds), len(rounds)), np.nan)
        for row in rows:
            if row[key] is not None:
                values[seeds.index(row["seed"]), rounds.index(row["round"])] = row[key]
        return np.array(rounds, dtype=np.int64), values


def checked(settings: Sequence[str]) -> tuple[str, ...]:
    """What the user set for every run; each names its section, since cells differ in algorithm and problem."""
    for text in settings:
        if "." not in text.partition("=")[0]:
            raise UserError(f"--set {text}: name the part too, such as engine.device=cuda or learner.lr=0.001")
    return tuple(settings)


def spec_of(cell: Cell, settings: Sequence[str] = ()) -> Spec:
    """A cell's spec, with what the user set for every run."""
    return Draft(dict(cell.draft)).with_settings(settings).finish()


def find_all(cells: Sequence[Cell], out: Path, options: Options, say: Say, stop: Callable[[], bool]) -> list[Found]:
    """All cells in the order given, `options.jobs` at a time; a line for each as it is done."""
    start, reading = time.monotonic(), 0.0
    last, new = start, 0
    found: dict[int, Found] = {}
    for number, one in side_by_side(partial(find, out, tuple(options.settings)), cells, options.jobs, stop):
        found[number] = one
        now, left = time.monotonic(), ""
        new += one.is_new
        reading += 0.0 if one.is_new else now - last
        last = now
        if new and len(found) < len(cells):
            seconds = (now - start - reading) / new * (len(cells) - len(found))
            left = f", about {timedelta(seconds=round(seconds))} left"
        how = f"{one.seconds:.0f} s" if one.is_new else "was there"
        say(f"{len(found)} of {len(cells)}, {one.cell.name} ({how}){left}")
    return [found[number] for number in range(len(cells))]


def find(out: Path, settings: Sequence[str], cell: Cell, stop: Callable[[], bool]) -> Found:
    """Runs a cell, or what is missing of it."""
    spec, folder = spec_of(cell, settings), out / cell.name
    shown = Pulse(spec, folder)
    shown.name = cell.name
    is_new = ensure(folder, spec, stop, shown=shown)
    RunFolder(folder).checkpoint_file.unlink(missing_ok=True)  # Nobody goes on from a finished run.
    if not cell.keeps_models:
        (folder / MODELS).unlink(missing_ok=True)
    loaded = record.load(folder)
    return Found(
        cell,
        folder,
        _values(loaded, "sent"),
        _values(loaded, "trained"),
        loaded.status.seconds,
        is_new,
    )


def _values(loaded: record.Record, kind: Evaluation) -> Values:
    """The first objective of every client, in the rounds that all seeds have."""
    by_seed = [
        {line.round: tables[loaded.held_out][:, 0] for line in loaded.of_seed(seed) if (tables := getattr(line, kind))}
        for seed in loaded.seeds
    ]
    rounds = sorted(set.intersection(*(set(lines) for lines in by_seed)))
    values = [[lines[number] for number in rounds] for lines in by_seed]
    return Values(
        np.array(rounds, dtype=np.int64),
        np.array(values, dtype=np.float64).reshape(len(by_seed), len(rounds), loaded.clients),
    )
