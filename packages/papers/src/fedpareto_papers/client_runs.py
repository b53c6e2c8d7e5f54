"""Results of runs in which clients are the objectives, as in FedMGDA+'s and FedFew's papers.

A result is every client's first objective, on held-out rows, for both evaluations: of the model that the server sends,
and of the same after the local steps that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo.fairness import Evaluation
from fedpareto.record.run_record import Record
from fedpareto_papers.study import Run

Array = NDArray[np.float64]
MODELS = "models.safetensors"


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
class ClientResults:
    """The result of a run."""

    sent: Values
    """Evaluations of the models that the server sends; the last round's are the final models."""
    trained: Values
    """Evaluations of the same after the local steps that follow."""
    refused: int = 0
    """Replies that the server refused or never got, in all seeds and rounds."""
    losses: Values | None = None
    """Losses of the models in `sent` on all of a client's training rows; None unless the spec has `measure_losses`."""
    improved: Values | None = None
    """The share of a round's participants whose training loss did not rise, `[seeds, r, 1]`; None like `losses`."""

    def evaluation(self, kind: Evaluation) -> Values:
        return self.sent if kind == "sent" else self.trained


def read(run: Run) -> ClientResults:
    loaded = run.record
    losses = _losses(loaded) if run.spec.measure_losses else ()
    return ClientResults(_values(loaded, "sent"), _values(loaded, "trained"), len(loaded.events), *losses)


def _values(loaded: Record, kind: Evaluation) -> Values:
    """Read the first objective of every client, in the rounds that all seeds have."""
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
    """Read every client's training loss, and the share of participants whose loss did not rise in a round."""
    measured = [
        {line.round: losses for line in loaded.of_seed(seed) if (losses := line.losses) is not None}
        for seed in loaded.seeds
    ]
    rounds, shares = loaded.share_improved()
    return _table(measured, loaded.clients), Values(rounds, shares[:, :, None])


def _table(by_seed: Sequence[Mapping[int, Array]], width: int) -> Values:
    """Make rows of `width` numbers by seed and round, of the rounds that all seeds have."""
    rounds = sorted(set.intersection(*(set(lines) for lines in by_seed)))
    values = [[lines[number] for number in rounds] for lines in by_seed]
    return Values(
        np.array(rounds, dtype=np.int64),
        np.array(values, dtype=np.float64).reshape(len(by_seed), len(rounds), width),
    )
