"""One federation: its clients' private belongings, and the setting that everybody knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.core import rng
from fedpareto.core.algorithm import Setting
from fedpareto.core.problem import Problem, Rows, Splits
from fedpareto.errors import UserError
from fedpareto.moo import preferences as preference_sets


@dataclass(frozen=True)
class Federation:
    """Clients with their data and preferences. Row i of everything belongs to the client `ids[i]`."""

    seed: int
    ids: tuple[int, ...]
    splits: Splits
    preferences: np.ndarray
    """`[n, m]`, rows on the simplex."""

    @classmethod
    def create(
        cls, problem: Problem, clients: int, seed: int = 0, preferences: preference_sets.Spec = "dirichlet"
    ) -> Federation:
        """The clients 0 … n − 1 of a problem. `preferences` is a distribution's name, a text or a list of vectors."""
        if clients < 1:
            raise UserError(f"clients is {clients}; a federation has at least 1 client")
        stream = rng.generator(rng.Address(seed), "preferences")
        drawn = preference_sets.from_spec(preferences, clients, len(problem.objectives), stream)
        return cls(seed, tuple(range(clients)), problem.data(clients, seed), drawn)

    def setting(self, problem: Problem, rounds: int, participation: float = 1.0) -> Setting:
        """What everybody may know of this federation."""
        if rounds < 1:
            raise UserError(f"rounds is {rounds}; at least 1 is needed")
        if not 0 < participation <= 1:
            raise UserError(f"participation is {participation}; it is a share above 0 and at most 1")
        return Setting(
            seed=self.seed,
            clients=tuple(sorted(self.ids)),
            rounds=rounds,
            layout=problem.layout,
            objectives=problem.objectives,
            initial=problem.initial(self.seed),
            participation=participation,
        )

    def reordered(self, order: list[int]) -> Federation:
        """The same clients, each with its id, in another order."""
        splits = {name: Rows.of([rows.of_client(i) for i in order]) for name, rows in self.splits.items()}
        return Federation(self.seed, tuple(self.ids[i] for i in order), splits, self.preferences[order])
