"""Minibatches: what is known ahead of a round, and the random orders of the round itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Message
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch, Rows, shares_of
from fedpareto.tensors.workspace import Workspace

GATHERED = 16 << 20
"""Bytes of minibatches that are copied out of the table of rows at once."""


@dataclass(frozen=True, eq=False)
class Outline:
    """The minibatches of n clients, but for the order of the rows. It is the same in every round."""

    counts: np.ndarray
    """Rows of each client, `[n]`."""
    starts: np.ndarray
    """First row of each client in the table of all rows, `[n]`."""
    batch_size: int
    own_steps: np.ndarray
    """Steps that each client takes, `[n]`."""
    passes: int
    """Orders of its rows that the client with the most needs."""

    @classmethod
    def of(cls, rows: Rows, positions: np.ndarray, batch_size: int, epochs: int, steps: int) -> Outline:
        """Outline of `epochs` passes over each client's rows or, if it is not 0, of a number of `steps`."""
        counts, starts = rows.counts[positions], rows.starts[positions]
        per_epoch = np.maximum(-(-counts // batch_size), 1)
        own = np.where(counts > 0, steps or epochs * per_epoch, 0)
        passes = -(-steps // per_epoch) if steps else np.full(len(counts), epochs)
        return cls(counts, starts, batch_size, own, int(passes.max(initial=1)))

    @cached_property
    def steps(self) -> int:
        return int(self.own_steps.max(initial=0))

    @property
    def form(self) -> tuple[object, ...]:
        """Key of a recording: steps, passes, the rows of the largest client, and which steps are full."""
        flags = tuple(self.everyone_full), tuple(self.someone_idle), self.is_in_step, self.is_even
        return self.steps, self.passes, self.longest, *flags

    @cached_property
    def longest(self) -> int:
        return int(self.counts.max(initial=1))

    @cached_property
    def per_epoch(self) -> np.ndarray:
        """Steps of a pass, `[n]`, the last of which may have fewer rows."""
        steps: np.ndarray = np.maximum(-(-self.counts // self.batch_size), 1)
        return steps

    @cached_property
    def is_in_step(self) -> bool:
        """True if all clients begin their passes in the same steps."""
        return bool((self.per_epoch == self.per_epoch[:1]).all())

    @cached_property
    def is_even(self) -> bool:
        """True if all clients have as many rows, and so the same places to fill."""
        return bool((self.counts == self.counts[:1]).all())

    @cached_property
    def rows_of_steps(self) -> np.ndarray:
        """Number of rows of each step, `[n, steps]`; 0 once a client is done."""
        numbers = np.arange(self.steps)
        left = self.counts[:, None] - numbers % self.per_epoch[:, None] * self.batch_size
        return np.where(numbers < self.own_steps[:, None], np.clip(left, 0, self.batch_size), 0)

    @cached_property
    def everyone_full(self) -> list[bool]:
        """True for steps with a row in every place."""
        full: list[bool] = (self.rows_of_steps == self.batch_size).all(axis=0).tolist()
        return full

    @property
    def is_full(self) -> bool:
        return all(self.everyone_full)

    @cached_property
    def someone_idle(self) -> list[bool]:
        """True for steps in which a client has no rows left."""
        idle: list[bool] = (self.rows_of_steps == 0).any(axis=0).tolist()
        return idle

    def tensors(self, device: torch.device) -> Message:
        """Tensors that `drawn` needs, `[n, ...]` each; they may change from round to round while the shapes stay."""
        numbers = np.arange(self.steps)
        late = (numbers >= (self.own_steps - self.per_epoch)[:, None]) & (numbers < self.own_steps[:, None])
        columns = np.stack([self.counts, self.starts, self.per_epoch])
        counts, starts, per_epoch = torch.as_tensor(columns, device=device).unbind()
        of_step, in_last_epoch = (torch.as_tensor(one, device=device) for one in (self.rows_of_steps, late))
        return {"counts": counts, "starts": starts, "per_epoch": per_epoch, "of_step": of_step, "late": in_last_epoch}


@dataclass(frozen=True, eq=False)
class Plan:
    """The minibatches of one round."""

    index: Tensor
    """Rows of all minibatches, absolute, `[n, steps, batch]`; 0 where there is none."""
    mask: Tensor
    """1 where there is a row, `[n, steps, batch]`."""
    last_epoch: Tensor
    """1 in the steps of a client's last epoch, `[n, steps]`."""

    def batches(
        self, rows: Rows, outline: Outline, workspace: Workspace | None = None
    ) -> Iterator[tuple[Batch, Tensor | None]]:
        """The minibatches, and which clients take part in each (`[n, 1]`; None: all).

        With a workspace, each is to be used before the next.
        """
        ones = torch.ones_like(self.mask[:, 0]) if self.mask.numel() else self.mask
        even = ones / outline.batch_size
        steps = zip(self._gathered(rows, workspace), outline.everyone_full, outline.someone_idle, strict=True)
        for number, (columns, full, idle) in enumerate(steps):
            here = ones if full else self.mask[:, number]
            active = (here.amax(dim=1, keepdim=True) > 0) if idle else None
            yield Batch(columns, here, counted=even if full else shares_of(here)), active

    def _gathered(self, rows: Rows, workspace: Workspace | None) -> Iterator[dict[str, Tensor]]:
        """The columns of each minibatch. Several are copied at once: a copy of few rows is as dear as its call."""
        index = self.index.transpose(0, 1)
        of_a_step = 0
        for column in rows.columns.values():
            of_a_step += index[0].numel() * column[:1].numel() * column.element_size()
        at_once = max(1, GATHERED // max(1, of_a_step))
        for first in range(0, len(index), at_once):
            some = index[first : first + at_once]
            columns = rows.take(some.flatten(0, 1), some, workspace=workspace).columns
            by_step = []
            for column in columns.values():
                by_step.append(column.view(*some.shape, *column.shape[2:]).unbind())
            for parts in zip(*by_step, strict=True):
                yield dict(zip(columns, parts, strict=True))


def drawn(
    outline: Outline,
    tensors: Message,
    addresses: rng.Addresses,
    purpose: str,
    dtype: torch.dtype,
    compiled: bool = False,
) -> Plan:
    """The minibatches of a round: each pass over a client's rows is in a new random order, from its own stream.

    In tensor arithmetic only, where the rows are, or by machine code.
    """
    orders = addresses.orders(purpose, tensors["counts"], outline.passes, outline.longest, compiled)
    place = torch.arange(outline.batch_size, device=orders.device)
    of_step = tensors["of_step"][:1] if outline.is_even else tensors["of_step"]
    mask = place < of_step.unsqueeze(2)
    index = _in_steps(orders.add_(tensors["starts"].view(-1, 1, 1)), outline, tensors)
    if not outline.is_even:
        index.mul_(mask)
    return Plan(index, mask.to(dtype).expand(index.shape), tensors["late"].to(dtype))


def _in_steps(orders: Tensor, outline: Outline, tensors: Message) -> Tensor:
    """Row at each place of each step, `[n, steps, batch]`, of orders of rows `[n, passes, longest]`.

    Beyond a client's last row it is anything; 0 if all have as many.
    """
    n, batch = len(orders), outline.batch_size
    if outline.is_in_step:
        empty = -outline.longest % batch
        return torch.nn.functional.pad(orders, (0, empty)).view(n, -1, batch)[:, : outline.steps]
    step, place = torch.arange(outline.steps, device=orders.device), torch.arange(batch, device=orders.device)
    per_epoch = tensors["per_epoch"].unsqueeze(1)
    number = (step // per_epoch).clamp_max(outline.passes - 1)
    first = number * outline.longest + step % per_epoch * batch
    source = (first.unsqueeze(2) + place).clamp_max_(outline.passes * outline.longest - 1)
    return orders.view(n, -1).gather(1, source.view(n, -1)).view(source.shape)
