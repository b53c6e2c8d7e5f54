"""A worker on Ray: an ordinary local engine over a part of the clients, which it made or loaded itself.

It keeps the replies of the last exchange, and reads sums from them for a server that needs no more.
"""

from __future__ import annotations

import importlib
import os
import platform
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.config.version import VERSION
from fedpareto.contract.algorithm import model_sized
from fedpareto.contract.messages import Outcome, Parcels, Replies, Tasks
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.reply_checks import Done
from fedpareto_ray import packing
from fedpareto_ray.packing import Plain

DONE, MISTAKE = "done", "mistake"

Where = tuple[int, int, np.ndarray]
"""The number of an exchange, a federation in it, and some of its replies here by their rows."""
Begin = Callable[[Choices | None], LocalEngine]
"""Makes the worker's engine, once it is known how clients are stacked."""


class Worker:
    """Actor that Ray runs; every call goes through `do`."""

    engine: LocalEngine

    def __init__(self) -> None:
        self._begin: Begin | None = None
        self._exchange, self._replies = 0, list[Replies]()
        """The number of the last exchange, and the replies of each federation in it."""

    def do(self, what: str, *arguments: Any) -> tuple[str, Plain]:
        """Calls a method; a user's mistake comes back as its text."""
        try:
            return DONE, getattr(self, what)(*arguments)
        except UserError as mistake:
            return MISTAKE, str(mistake)

    # -- beginning -------------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Plain]:
        """Versions installed here, and where this is."""
        return {**versions(), "host": socket.gethostname(), "pid": os.getpid()}

    def prepare(self, make: str, given: dict[str, Plain]) -> Plain:
        """Loads the clients; `make` names the function, as "package.module:function", that does so."""
        module, _, function = make.partition(":")
        self._begin, more = getattr(importlib.import_module(module), function)(given)
        return more

    def start(self, chosen: dict[str, int] | None) -> dict[str, Plain]:
        """Makes the engine; what it measured is for all workers."""
        assert self._begin is not None, "prepared before"
        self.engine = self._begin(None if chosen is None else Choices(**chosen))
        return {"chosen": self.engine.chosen, "split_names": self.engine.split_names}

    # -- work ------------------------------------------------------------------------------------------------------

    def exchange(self, number: int, shared: Plain, own: Plain, measured: Plain, evaluated: Plain) -> dict[str, Plain]:
        """Run one exchange of every federation. Tensors that grow with the model stay here, the rest is told."""
        outcomes = self.engine.exchange(self._tasks(shared, own), self._solutions(measured, evaluated))
        self._exchange, self._replies = number, [outcome.replies for outcome in outcomes]
        return {"runs": [self._told(outcome) for outcome in outcomes]} | self._status()

    def work(self, number: int, shared: Plain, own: Plain, measured: Plain, evaluated: Plain) -> dict[str, Plain]:
        """Work on an exchange with all rows and before they are checked: attackers on other workers may collude."""
        sent, done = self.engine.work(self._tasks(shared, own), self._solutions(measured, evaluated))
        self._exchange, self._replies = number, []
        told = {"sent": [packing.measured(one) for one in sent], "done": [_unchecked(one) for one in done]}
        return told | self._status()

    def _tasks(self, shared: Plain, own: Plain) -> list[list[Tasks]]:
        return [[one for one in some or () if isinstance(one, Tasks)] for some in self._parcels(shared, own)]

    def _solutions(self, shared: Plain, own: Plain) -> list[Parcels | None]:
        return [None if some is None else some[0] for some in self._parcels(shared, own)]

    def _parcels(self, shared: Plain, own: Plain) -> list[list[Parcels] | None]:
        return packing.put_together(shared, own, self.engine.device)

    def _told(self, outcome: Outcome) -> dict[str, Plain]:
        replies = outcome.replies
        large = self._large(replies)
        small = {name: one for name, one in replies.tensors.items() if name not in large}
        return {
            "clients": replies.clients,
            "lanes": replies.lanes,
            "rounds": replies.rounds,
            "step": replies.step,
            "small": packing.arrays(small),
            "large": {name: (tuple(replies[name].shape[1:]), str(replies[name].dtype)[6:]) for name in large},
            "failures": packing.failures(outcome.failures),
            "sent": packing.measured(outcome.evaluations.sent),
            "trained": packing.measured(outcome.evaluations.trained),
        }

    def _large(self, replies: Replies) -> list[str]:
        if not len(replies):
            return []
        return sorted(model_sized(self.engine.algorithm, self.engine.settings[0], replies.step))

    def _status(self) -> dict[str, Plain]:
        return {"kept": len(self.engine.private), "not_recorded": self.engine.not_recorded}

    def losses(self, shared: Plain, own: Plain) -> Plain:
        solutions = [some for some in self._solutions(shared, own) if some is not None]
        return [packing.measured(one) for one in self.engine.losses(solutions)]

    def models(self, run: int, shared: Plain, own: Plain) -> Plain:
        (solutions,) = (some for some in self._solutions(shared, own) if some is not None)
        return packing.measured(self.engine.models(run, solutions)) if len(solutions) else ((), ())

    def model_parts(self, run: int, shared: Plain, own: Plain) -> Plain:
        (solutions,) = (some for some in self._solutions(shared, own) if some is not None)
        parts = self.engine.model_parts(run, solutions) if len(solutions) else {}
        return {client: packing.arrays(part) for client, part in parts.items()}

    # -- what clients keep -----------------------------------------------------------------------------------------

    def private(self) -> Plain:
        """Private state that all clients keep."""
        return packing.packed(self.engine.private)

    def restore(self, private: Plain) -> None:
        """Puts it back."""
        self.engine.private = packing.unpacked(private, self.engine.device)

    # -- what a server reads of the last replies -------------------------------------------------------------------

    def rows(self, where: Where, name: str, first: int = 0, last: int | None = None) -> np.ndarray:
        """Rows of a tensor, or some of their columns."""
        found = self._some(where)[name]
        return packing.array(found if last is None else found[:, first:last])

    def sum(self, where: Where, name: str, weights: np.ndarray, origin: np.ndarray | None) -> np.ndarray:
        begun = None if origin is None else self._tensor(origin)
        return packing.array(self._some(where).sum(name, self._tensor(weights), begun))

    def sum_each(self, where: Where, name: str, weights: np.ndarray, origins: np.ndarray) -> np.ndarray:
        return packing.array(self._some(where).sum_each(name, self._tensor(weights), self._tensor(origins)))

    def sum_of_products(self, where: Where, left: str, right: str) -> np.ndarray:
        return packing.array(self._some(where).sum_of_products(left, right))

    def squared_norms(self, where: Where, name: str, origin: np.ndarray) -> np.ndarray:
        return packing.array(self._some(where).squared_norms(name, self._tensor(origin)))

    def _some(self, where: Where) -> Replies:
        exchange, run, rows = where
        if exchange != self._exchange:
            raise RuntimeError("replies are kept until the next exchange; these are older")
        return self._replies[run].only(rows)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return packing.tensor(values, self.engine.device)


def versions() -> dict[str, str]:
    """Versions that must be the same everywhere."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"fedpareto": VERSION, "Python": python, "torch": str(torch.__version__).partition("+")[0]}


def _unchecked(done: Done) -> dict[str, Plain]:
    """Pack the results of some work, by federation, client and lane: another process has other rows."""
    work, failed = done.work.only(done.part.rows), packing.failures(list(done.failures.values()))
    return {
        "run": work.run,
        "client": work.client,
        "lane": work.lane,
        "message": packing.arrays(done.part.message),
        "values": None if done.part.values is None else packing.array(done.part.values),
        "failed": [(int(done.work.run[row]), *one) for row, one in zip(done.failures, failed, strict=True)],
    }
