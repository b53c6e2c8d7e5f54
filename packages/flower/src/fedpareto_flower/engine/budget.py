"""Privacy that a node has spent, on its own disk: the node counts for itself, whatever a server says.

A charge is written before the answer is worked out, so a process that is killed has counted too much, never too little.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import write_atomically
from fedpareto.contract.privacy import Privacy

FILE = "spent.json"


class BudgetSpent(UserError):
    """An answer would cost more than is left."""


@dataclass(frozen=True)
class Budget:
    """The largest ε of one client, over all rounds, seeds and repeated questions, and what is spent of it."""

    folder: Path
    client: int
    privacy: Privacy
    limit: float = math.inf
    """The node's own; the federation's counts too, whichever is lower."""

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise UserError(f"the budget is {self.limit}; the largest ε is positive")
        if self.largest < math.inf:
            self.privacy.must_be_countable()

    @property
    def largest(self) -> float:
        """ε that may be spent."""
        return min(self.limit, self.privacy.budget)

    @property
    def spent(self) -> float:
        """ε so far."""
        return self.privacy.epsilon_of(self._read()["cost"])

    def charge(self, entry: str, digest: str, cost: float) -> None:
        """Counts an answer to a question, unless this very question was counted before; BudgetSpent beyond the limit.

        Without a limit nothing is kept.
        """
        if math.isinf(self.largest) or not cost:
            return
        known = self._read()
        if known["charged"].get(entry) == digest:
            return
        after = known["cost"] + cost
        epsilon = self.privacy.epsilon_of(after)
        if epsilon > self.largest:
            raise BudgetSpent(
                f"the privacy budget of client {self.client} is spent: another answer would make ε {epsilon:.4g}, "
                f"above {self.largest:g} (at δ = {self.privacy.delta:g})"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        written = {"epsilon": epsilon, "cost": after, "charged": {**known["charged"], entry: digest}}
        write_atomically(self._file, json.dumps(written, indent=1) + "\n")

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    def _read(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            cost = float(found["cost"])
            is_sound = isinstance(found["charged"], dict) and 0 <= cost < math.inf
        except FileNotFoundError:
            return {"cost": 0.0, "charged": {}}
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            is_sound = False
        if not is_sound:
            raise DamagedFile(f"{self._file} is damaged; without it nobody knows what privacy is left")
        return {"cost": cost, "charged": found["charged"]}
