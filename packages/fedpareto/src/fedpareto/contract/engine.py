"""An engine runs the tasks: in one batched program on this machine, or on remote nodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from fedpareto.contract.algorithm import Setting
from fedpareto.contract.client_state import Kept
from fedpareto.contract.messages import ByClient, Ids, Message, Outcome, Parcels, Tasks
from fedpareto.moo.tested import Tested


class Engine(Protocol):
    """Runs the client half of an algorithm, for one federation or for several (seeds) at once."""

    settings: Sequence[Setting]
    """The setting of each seed, with the initial model on the engine's device."""
    device: torch.device
    """Device of the server's tensors."""
    private: Kept
    """The clients' private state by (index of the seed, lane, client), as far as this process holds it."""

    remote: ClassVar[bool]
    """True if clients are remote. They keep the state of their last two rounds, so a server may not go back further."""

    @property
    def split_names(self) -> list[str]:
        """The parts of the data, in the order of the evaluations."""

    @property
    def chosen(self) -> dict[str, Any]:
        """Measurements that are made once, for a resumed run to reuse."""

    @property
    def tested(self) -> tuple[Tested, ...]:
        """Test rows of each seed's models; nothing where the rows are elsewhere, or clients have none."""

    @property
    def not_recorded(self) -> dict[str, str]:
        """Parts of the clients' work that could not be recorded on a GPU so far, and why."""

    def threads(self) -> AbstractContextManager[None]:
        """The engine's own settings for the time of a run."""

    def run(self, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
        """Runs the tasks and returns the valid replies; names what it refused.

        With `evaluate`, the solutions (of no client, if only trained models are wanted): measures them before the local
        steps and after. Raises QuorumLost
        when too few valid replies came back.
        """

    def run_all(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """Do for every seed what `run` does, in one exchange."""

    def losses(self, solutions: Sequence[Parcels]) -> list[ByClient]:
        """Training loss of each client on all its training rows, of every seed's solutions.

        It is one number under the client's own preference, so only an engine whose clients are in this process has it.
        """

    def models(self, run: int, solutions: Parcels) -> ByClient:
        """The models that the clients of a seed would use, `[d]` each, as far as this process may know them."""

    def model_parts(self, run: int, solutions: Parcels) -> dict[int, Message]:
        """Tensors that the clients of a seed keep to make models for any preference, as far as this process may know
        them.

        With it comes "front" `[k, m]`, the objectives of such models at the preferences of `model_parts.lattice`.
        """


class Simulating(Engine, Protocol):
    """An engine whose clients can be late: it computes what they do now, and somebody says when it arrives."""

    holds: bool
    """True if what clients keep after a step counts only once their replies have `landed`."""
    held: Kept
    """State that waits until then."""

    def exchange(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """Do as `run_all`, whatever the quorum is."""

    def landed(self, run: int, clients: Ids) -> None:
        """The replies of these clients have arrived."""

    def operations(self, run: int) -> np.ndarray:
        """Operations of one training of each client of a seed, `[n]`."""
