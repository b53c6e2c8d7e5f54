"""Rows of clients' data: all of them in one table, and minibatches of n clients side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from fedpareto.tensors.training import Training
from fedpareto.tensors.workspace import Workspace

DIGEST_BYTES = 8
"""Bytes of a digest: enough to tell a few runs' data apart, which nobody forges."""


@dataclass(frozen=True)
class Batch:
    """Rows of n clients side by side. Clients with fewer rows are padded; `mask` is 1 where a row is real."""

    columns: Mapping[str, Tensor]
    """Columns by name, `[n, b, ...]`."""
    mask: Tensor
    """`[n, b]`, ones and zeros in the model's type."""
    training: Training | None = None
    """The step in which models are trained on these rows; None: they are evaluated. `losses` hands it to the network,
    whose layers may drop values at random and keep statistics of rows."""

    counted: Tensor | None = None
    """Shares, if they are known already."""

    @cached_property
    def shares(self) -> Tensor:
        """Share of each row in a client's mean, `[n, b]`: 1 / its rows, or 0."""
        return shares_of(self.mask) if self.counted is None else self.counted

    def mean(self, values: Tensor) -> Tensor:
        """The mean of `values` `[n, b]` over each client's real rows; 0 where there is none."""
        return (values * self.shares).sum(-1)

    def shared_by(self, clients: int) -> Batch:
        """One client's rows for several that hold the same ones; without a copy."""
        columns = {name: column.expand(clients, *column.shape[1:]) for name, column in self.columns.items()}
        return Batch(columns, self.mask.expand(clients, -1))

    def of(self, prefix: str) -> Batch:
        """Batch for one of several models that are trained side by side, whose tensors' names begin with `prefix`."""
        return self if self.training is None else replace(self, training=self.training.of(prefix))

    def for_each(self) -> Batch:
        """Batch with a dimension for several models of each client, over which rows are the same: `[n, 1, b, ...]`."""
        columns = {name: column.unsqueeze(1) for name, column in self.columns.items()}
        return Batch(columns, self.mask.unsqueeze(1))


def shares_of(mask: Tensor) -> Tensor:
    """Share of each row in a client's mean, `[..., b]`: 1 / its rows, or 0."""
    return mask / mask.sum(-1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Rows:
    """The rows of all clients in one table, so that memory is what the data needs and no padding is stored."""

    columns: Mapping[str, Tensor]
    """Columns by name, `[total, ...]`."""
    starts: np.ndarray
    """First row of each client, `[n]`."""
    counts: np.ndarray
    """Number of each client's rows, `[n]`. Clients may hold the same rows, such as a common test set."""

    @classmethod
    def end_to_end(cls, columns: Mapping[str, Tensor], counts: Sequence[int] | np.ndarray) -> Rows:
        """Rows of clients that follow one another in `columns`."""
        ends = np.cumsum(counts)
        return cls(columns, ends - counts, np.asarray(counts))

    @classmethod
    def of(cls, clients: Sequence[Mapping[str, Tensor]]) -> Rows:
        names = list(clients[0])
        counts = [len(client[names[0]]) for client in clients]
        columns = {name: torch.cat([client[name] for client in clients]) for name in names}
        return cls.end_to_end(columns, counts)

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """The clients of several federations as one."""
        if len(parts) == 1:
            return parts[0]
        tables = {id(part.columns): part.columns for part in parts}  # The same rows again are not copied.
        lengths = [len(next(iter(table.values()))) for table in tables.values()]
        bases = dict(zip(tables, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True))
        columns = {name: torch.cat([table[name] for table in tables.values()]) for name in parts[0].columns}
        starts = np.concatenate([part.starts + bases[id(part.columns)] for part in parts])
        return cls(columns, starts, np.concatenate([part.counts for part in parts]))

    def of_client(self, position: int) -> dict[str, Tensor]:
        place = slice(int(self.starts[position]), int(self.starts[position] + self.counts[position]))
        return {name: column[place] for name, column in self.columns.items()}

    def only(self, positions: np.ndarray) -> Rows:
        """Rows of neighbouring clients; rows that none of them holds are left behind where they lie at the ends."""
        starts, counts = self.starts[positions], self.counts[positions]
        first, last = int(starts.min()), int((starts + counts).max())
        columns = {name: column[first:last] for name, column in self.columns.items()}
        if last - first < max((len(column) for column in self.columns.values()), default=0):
            columns = {name: column.clone() for name, column in columns.items()}
        return Rows(columns, starts - first, counts)

    def take(
        self, index: Tensor, mask: Tensor, shares: Tensor | None = None, workspace: Workspace | None = None
    ) -> Batch:
        """The rows at `index` `[n, b]` (absolute), with their mask and, if known, their shares in a mean."""
        flat, taken = index.reshape(-1), {}
        for name, column in self.columns.items():
            if workspace is None or column.is_cuda:
                found = torch.index_select(column, 0, flat)
            else:
                found = workspace.take(f"rows' {name}", (len(flat), *column.shape[1:]), column.dtype)
                # In two thirds of torch's time; all places are within the table, so that nothing is clipped.
                np.take(column.numpy(), flat.numpy(), axis=0, out=found.numpy(), mode="clip")
            taken[name] = found.view(*index.shape, *column.shape[1:])
        return Batch(taken, mask, counted=shares)

    def digest(self) -> str:
        found = blake2b(digest_size=DIGEST_BYTES)
        for name, column in sorted(self.columns.items()):
            found.update(f"{name} {column.dtype} {tuple(column.shape)} ".encode())
            found.update(column.detach().cpu().contiguous().numpy().tobytes())
        for whose in (self.starts, self.counts):
            found.update(np.ascontiguousarray(whose, dtype=np.int64).tobytes())
        return found.hexdigest()

    @property
    def are_shared(self) -> bool:
        return bool((self.starts == self.starts[0]).all() and (self.counts == self.counts[0]).all())

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        """Rows on another device; floating columns in another precision."""
        columns = {
            name: column.to(device, dtype if column.is_floating_point() else None)
            for name, column in self.columns.items()
        }
        return Rows(columns, self.starts, self.counts)


Splits = Mapping[str, Rows]
"""The parts of every client's data by name: "train" first, "validation" and "test" where there are any."""

OWN_TEST = "own-test"
"""Each client's own test rows, where "test" is those of all clients."""


def tested_on_all(splits: Splits) -> Splits:
    """Splits in which every model is tested on the test rows of all clients; a client's own are a split of their own.

    Few rows of one's own say little: the best of many clients is then good by luck.
    """
    own = splits["test"]
    clients, total = len(own.counts), int(own.counts.sum())
    if clients == 1:
        return splits
    everyone = Rows(own.columns, np.zeros(clients, dtype=int), np.full(clients, total))
    return {**splits, "test": everyone, OWN_TEST: own}
