"""An engine gets the work done: in one batched program here, or on nodes elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedpareto.core.messages import Message, Outcome, Task


class Engine(Protocol):
    """Runs the client half of an algorithm."""

    def run(self, tasks: Sequence[Task], evaluate: Mapping[int, Message] | None = None) -> Outcome:
        """Does the tasks and brings back the valid replies; names what it refused.

        With `evaluate`, the solutions by client: measures them before the local steps and after. Raises QuorumLost
        when too few valid replies came back.
        """
