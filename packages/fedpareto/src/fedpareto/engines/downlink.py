"""Messages of the server as they travel: the difference to what a client is known to hold, coded, in a closed loop.

The server keeps a replica of what each client holds. A message is the difference of what the server means to the
client's replica; the replica becomes what the client makes of it. What a lossy codec loses is so part of the next
difference, and does not add up. A replica counts once a reply has shown that its client got the message: what is lost
on the way, or answered by nobody, is no base for anything.

A client trains from what it holds. The server moves each reply by what its client was short of, x + (meant − held), so
that an update counts from the model that the server has (see Philippenko and Dieuleveut, "Preserved central model for
faster bidirectional compression in distributed settings", 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.contract.messages import (
    Ids,
    Message,
    Replies,
    Tasks,
    beginnings,
    only_of,
    places,
    taken,
)
from fedpareto.engines.coding import FEW, as_rows

AT_ONCE = 2**22
"""Numbers that are coded at once: a codec needs a few times their memory."""
NOTHING = -1
"""Mark in place of a row: a client holds nothing."""

Key = tuple[int, str, tuple[int, ...]]
"""Lane, name and shape of a tensor."""


@dataclass
class Replicas:
    """Copies that n clients hold of one tensor of d numbers. Clients that hold the same share a row."""

    rows: np.ndarray
    """Different vectors, `[at least as many as are held, d]`."""
    held: np.ndarray
    """The row of what each client is known to hold, `[n]` …"""
    sent: np.ndarray
    """… and of what it was sent last, which it has not answered yet."""

    @classmethod
    def none(cls, clients: int, size: int) -> Replicas:
        """Nobody holds anything."""
        return cls(np.empty((0, size), dtype=np.float32), *np.full((2, clients), NOTHING))

    def send(self, who: np.ndarray, values: np.ndarray, value: np.ndarray, codec: Codec) -> np.ndarray:
        """Sends these clients `[k]` one of some values `[v, d]` each, by its row `[k]`; bytes for each, `[k]`."""
        # Clients that hold the same and are sent the same get the same message.
        pairs, pair = np.unique((self.held[who] + 1) * len(values) + value, return_inverse=True)
        base, new = pairs // len(values) - 1, pairs % len(values)
        known, fine, sizes = self._coded(base, values, new, codec)
        self.sent[who] = NOTHING
        if codec.lossless:
            self.sent[who] = self._put(values)[value]
        else:
            found = values[new]
            found[fine] = known
            self.sent[who] = self._put(found)[pair]
        return sizes[pair]

    def _coded(
        self, base: np.ndarray, values: np.ndarray, new: np.ndarray, codec: Codec
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Code messages with these rows as base; return those that travel coded, as they arrive, which they are,
        and the bytes of all. A message to a client that holds nothing, whose difference is not finite, or that
        would be longer coded, travels as it is.
        """
        whole = values.itemsize * values.shape[1]
        sizes = np.full(len(new), whole)
        coded, which = [values[:0]], [new[:0]]
        candidates = np.flatnonzero(base != NOTHING)
        for some in np.array_split(candidates, len(candidates) * values.shape[1] // AT_ONCE + 1):
            wanted, start = values[new[some]], self.rows[base[some]]
            found = codec.decoded(wanted, start)
            fine = np.flatnonzero(np.isfinite(found).all(axis=1))
            if not len(fine):
                continue
            lengths = codec.sizes(wanted[fine], start[fine])
            fine, lengths = fine[lengths < whole], lengths[lengths < whole]
            sizes[some[fine]] = lengths
            if not codec.lossless:
                coded.append(found[fine])
                which.append(some[fine])
        return np.concatenate(coded), np.concatenate(which), sizes

    def _put(self, found: np.ndarray) -> np.ndarray:
        """The rows in which these vectors are from now on; rows that nobody holds are used again."""
        used = np.concatenate([self.held, self.sent])
        free = np.flatnonzero(np.bincount(used[used != NOTHING], minlength=len(self.rows)) == 0)
        if len(free) < len(found):
            more = max(len(found) - len(free), len(self.rows))
            free = np.concatenate([free, np.arange(len(self.rows), len(self.rows) + more)])
            self.rows = np.concatenate([self.rows, np.empty((more, self.rows.shape[1]), dtype=np.float32)])
        self.rows[free[: len(found)]] = found
        return free[: len(found)]

    def answered(self, who: np.ndarray) -> None:
        """Note that these clients have replied to what they were sent last."""
        who = who[self.sent[who] != NOTHING]
        self.held[who], self.sent[who] = self.sent[who], NOTHING

    def written(self) -> Message:
        """Write down for a checkpoint the vectors that are held, and by whom."""
        used = np.setdiff1d([self.held, self.sent], [NOTHING])
        where = {name: getattr(self, name) for name in ("held", "sent")}
        return {
            "rows": torch.from_numpy(self.rows[used]),
            **{
                name: torch.from_numpy(np.where(one == NOTHING, one, np.searchsorted(used, one)))
                for name, one in where.items()
            },
        }


@dataclass
class Downlink:
    """The server's messages to the clients of one federation."""

    codec: Codec
    clients: Ids
    replicas: dict[Key, Replicas] = field(default_factory=dict)
    _posted: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def post(self, tasks: Sequence[Tasks], clients: np.ndarray) -> np.ndarray:
        """Sends these clients, in any order, their tasks; bytes for each of them, `[n]`."""
        lanes = {some.lane for some in tasks}  # Lanes that the tasks no longer name are over.
        self.replicas = {key: one for key, one in self.replicas.items() if key[0] in lanes}
        order = np.argsort(clients, kind="stable")
        sizes = np.zeros(len(clients), dtype=np.int64)
        for some in only_of(tasks, clients[order]):
            sizes[order[places(clients[order], some.clients)]] += self._send(some)
        self._posted.append((clients, sizes))
        return sizes

    def posted(self) -> tuple[np.ndarray, np.ndarray]:
        """Clients who were sent something since the last call, perhaps twice, and the bytes of each message."""
        found, self._posted = self._posted, []
        nobody = np.empty(0, dtype=np.int64)
        clients, sizes = (np.concatenate([nobody, *some]) for some in (zip(*found, strict=True) if found else ((), ())))
        return clients, sizes

    def _send(self, tasks: Tasks) -> np.ndarray:
        who = places(self.clients, tasks.clients)
        sizes = np.full(len(who), tasks.size)
        for key, name in self._travelling(tasks):
            is_shared = name in tasks.shared
            values = as_rows(tasks.shared[name][None] if is_shared else tasks.own[name])
            value = np.zeros(len(who), dtype=np.int64) if is_shared else np.arange(len(who))
            if key not in self.replicas:
                self.replicas[key] = Replicas.none(len(self.clients), values.shape[1])
            sizes += self.replicas[key].send(who, values, value, self.codec) - values.itemsize * values.shape[1]
        return sizes

    def _travelling(self, tasks: Tasks) -> Iterator[tuple[Key, str]]:
        """The tensors of some tasks that travel coded."""
        shapes = {name: (one, one.shape) for name, one in tasks.shared.items()}
        shapes |= {name: (one, one.shape[1:]) for name, one in tasks.own.items()}
        for name, (tensor, shape) in shapes.items():
            if shape.numel() > FEW and tensor.dtype == torch.float32:
                yield (tasks.lane, name, tuple(shape)), name

    # -- the clients' side -------------------------------------------------------------------------------------------

    def held(self, tasks: Sequence[Tasks]) -> list[Tasks]:
        """The tasks as their clients hold them, who were sent them last."""
        return list(tasks) if self.codec.lossless else [self._held(some) for some in tasks]

    def _held(self, tasks: Tasks) -> Tasks:
        who = places(self.clients, tasks.clients)
        shared, own = dict(tasks.shared), dict(tasks.own)
        for key, name in self._travelling(tasks):
            like = shared.pop(name) if name in shared else own.pop(name)
            replicas = self.replicas[key]
            rows = replicas.sent[who]
            if (rows == rows[0]).all():
                shared[name] = _tensor(replicas.rows[rows[0]], key[2], like)
            else:
                own[name] = _tensor(replicas.rows[rows], (len(rows), *key[2]), like)
        return replace(tasks, shared=shared, own=own)

    def as_meant(self, tasks: Sequence[Tasks], held: Sequence[Tasks], replies: Replies) -> Replies:
        """Replies to tasks that clients `held` so, as if they had held what the server meant: x + (meant − held)."""
        if self.codec.lossless or not len(replies):
            return replies
        tensors = dict(replies.tensors)
        for meant, theirs in zip(tasks, held, strict=True):
            own = np.flatnonzero((replies.lanes == meant.lane) & np.isin(replies.clients, meant.clients))
            where, rows = torch.as_tensor(own), places(meant.clients, replies.clients[own])
            reply = taken(replies.tensors, own)
            short_of = beginnings(theirs.only(rows), reply)
            for name, began in beginnings(meant.only(rows), reply).items():
                moved = reply[name] + (began - short_of[name])
                tensors[name] = tensors[name].index_copy(0, where.to(moved.device), moved)
        return replace(replies, tensors=tensors)

    def answered(self, clients: Ids) -> None:
        """Replies of these clients are here."""
        for one in self.replicas.values():
            one.answered(places(self.clients, clients))

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def written(self) -> tuple[Message, list[Any]]:
        """Write down what all clients hold: tensors by name, and of each replica its lane, name and shape."""
        tensors = {
            f"{number}/{part}": tensor
            for number, one in enumerate(self.replicas.values())
            for part, tensor in one.written().items()
        }
        return tensors, [[lane, name, list(shape)] for lane, name, shape in self.replicas]

    def read(self, tensors: Mapping[str, Tensor], keys: Sequence[Any]) -> None:
        """Takes over what was written."""
        for number, (lane, name, shape) in enumerate(keys):
            parts = (tensors[f"{number}/{part}"].numpy().copy() for part in ("rows", "held", "sent"))
            self.replicas[lane, name, tuple(shape)] = Replicas(*parts)


def _tensor(values: np.ndarray, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.from_numpy(values.reshape(shape).copy()).to(like.device)
