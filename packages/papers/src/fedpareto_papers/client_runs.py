"""Runs in which clients are the objectives, and the clients' results: what FedMGDA+'s and FedFew's reproductions share.

A cell is one spec with all its seeds in one stack, kept in an ordinary run folder, so that a stopped reproduction can
be resumed. A cell returns every client's first objective, on held-out rows, for both evaluations: of the model that
the server sends, and of the same after the local steps that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.campaigns.parallel import Pieces, announced
from fedpareto.moo.fairness import Evaluation
from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import Pulse
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, Say

Array = NDArray[np.float64]
MODELS = "models.safetensors"


@dataclass(frozen=True)
class Cell:
    """One spec of a reproduction."""

    name: str
    """Also its folder, such as cifar10-b10/fedavg."""
    draft: Mapping[str, Any]
    """The spec as plain values; see experiments.draft."""
    keeps_models: bool = False
    """Whether the clients' models stay in the folder: a hundred copies of a network with 800,000 parameters are
    320 MB."""


@dataclass(frozen=True, eq=False)
class Values:
    """One evaluation of every client over the rounds."""

    rounds: NDArray[np.int64]
    """`[r]`, in which there was such an evaluation."""
    values: Array
    """`[seeds, r, n]`; NaN for a client that was not measured, as non-participants are not after training."""

    def last(self) -> Array:
        """`[seeds, n]` of the last round that has any."""
        return self.values[:, -1]

    def best(self) -> Array:
        """`[seeds, n]` of the round, another for each seed, in which the mean over clients is largest."""
        chosen = self.means().argmax(axis=1)
        return np.stack([values[place] for values, place in zip(self.values, chosen, strict=True)])

    def means(self) -> Array:
        """`[seeds, r]` over the clients."""
        return np.asarray(np.nanmean(self.values, axis=2))


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a cell."""

    cell: Cell
    folder: Path
    sent: Values
    """Of the models that the server sends; the last round's are the final models."""
    trained: Values
    """Of the same after the local steps that follow."""
    refused: int
    """Replies that the server refused or never got, in all seeds and rounds."""
    seconds: float
    is_new: bool
    """False if all of it was done already."""
    losses: Values | None = None
    """Of the same models as `sent`, on all of a client's training rows; None unless the spec has `measure_losses`."""
    improved: Values | None = None
    """The share of a round's participants whose training loss did not rise, `[seeds, r, 1]`; None like `losses`."""

    @property
    def name(self) -> str:
        """Of the cell."""
        return self.cell.name

    def evaluation(self, kind: Evaluation) -> Values:
        """By name."""
        return self.sent if kind == "sent" else self.trained


def spec_of(cell: Cell, settings: Sequence[str] = ()) -> Spec:
    """A cell's spec, with what the user set for every run."""
    return Draft(dict(cell.draft)).with_settings(settings).finish()


def find_all(cells: Sequence[Cell], out: Path, options: Options, say: Say, stop: Callable[[], bool]) -> list[Found]:
    """All cells in the order given, `options.jobs` at a time; a message for each as it is done."""
    pieces = Pieces(partial(find, tuple(options.settings)), cells, out, name_of)
    found = announced(pieces, options.jobs, say, stop)
    return [replace(one, folder=out / one.name) for one in found]  # Wherever it was found.


def name_of(cell: Cell) -> str:
    """Of its folder."""
    return cell.name


def find(settings: Sequence[str], out: Path, cell: Cell, stop: Callable[[], bool]) -> Found:
    """Runs a cell, or what is missing of it."""
    spec, folder = spec_of(cell, settings), out / cell.name
    shown = Pulse(spec, folder)
    shown.name = cell.name
    is_new = ensure(folder, spec, stop, shown=shown, keep_models=cell.keeps_models)
    RunFolder(folder).checkpoint_file.unlink(missing_ok=True)  # A finished run is never resumed.
    loaded = reading.load(folder)
    return Found(
        cell,
        folder,
        _values(loaded, "sent"),
        _values(loaded, "trained"),
        len(loaded.events),
        loaded.status.seconds,
        is_new,
        *(_losses(loaded) if spec.measure_losses else ()),
    )


def _values(loaded: Record, kind: Evaluation) -> Values:
    """The first objective of every client, in the rounds that all seeds have."""
    return _table(
        [
            {
                line.round: found[loaded.held_out][:, 0]
                for line in loaded.of_seed(seed)
                if (found := line.measured(kind))
            }
            for seed in loaded.seeds
        ],
        loaded.clients,
    )


def _losses(loaded: Record) -> tuple[Values, Values]:
    """Every client's training loss, and the share of participants whose loss did not rise in a round."""
    measured = [
        {line.round: losses for line in loaded.of_seed(seed) if (losses := line.losses) is not None}
        for seed in loaded.seeds
    ]
    rounds, shares = loaded.share_improved()
    return _table(measured, loaded.clients), Values(rounds, shares[:, :, None])


def _table(by_seed: Sequence[Mapping[int, Array]], width: int) -> Values:
    """Of each seed a row of `width` numbers by round: those of the rounds that all seeds have."""
    rounds = sorted(set.intersection(*(set(lines) for lines in by_seed)))
    values = [[lines[number] for number in rounds] for lines in by_seed]
    return Values(
        np.array(rounds, dtype=np.int64),
        np.array(values, dtype=np.float64).reshape(len(by_seed), len(rounds), width),
    )
