"""One federation: its clients' private data and preferences, and the public setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.groups import GroupedProblem
from fedpareto.contract.names import by_client
from fedpareto.contract.problem import Problem
from fedpareto.moo import preferences as preference_sets
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Rows, Splits


@dataclass(frozen=True)
class Federation:
    """Clients with their data and preferences. Row i of everything belongs to the client `ids[i]`."""

    seed: int
    ids: tuple[int, ...]
    splits: Splits
    preferences: np.ndarray
    """Preferences `[n, m]`, rows on the simplex."""
    common_preference: tuple[float, ...] | None = None
    """The preference that all clients share, if there is one; else preferences are private to each client."""

    @classmethod
    def create(
        cls,
        problem: Problem,
        clients: int,
        seed: int = 0,
        preferences: preference_sets.Spec = "dirichlet",
        run: int = 0,
        runs: int = 1,
    ) -> Federation:
        """The clients 0 … n − 1 of a problem. `preferences` is a distribution's name, a text or a list of vectors.

        `run` of `runs` matters for the preferences "sweep" only.
        """
        if clients < 1:
            raise UserError(f"clients is {clients}; a federation has at least 1 client")
        drawn = draw_preferences(preferences, clients, problem, seed, run, runs)
        common = tuple(drawn[0].tolist()) if preference_sets.is_common(preferences) else None
        return cls(seed, tuple(range(clients)), problem.data(clients, seed), drawn, common)

    def setting(self, problem: Problem, rounds: int, participation: float = 1.0) -> Setting:
        """Give what is public about this federation."""
        return setting_of(problem, self.ids, self.seed, rounds, participation, self.common_preference)

    @property
    def addresses(self) -> rng.Addresses:
        """The clients' random streams before the first round."""
        return rng.Addresses.at(self.seed, np.array(self.ids), 0)

    def only(self, rows: np.ndarray) -> Federation:
        """Some neighbouring clients with their data, by their rows; the rest can be forgotten."""
        splits = {name: table.only(rows) for name, table in self.splits.items()}
        ids = tuple(np.asarray(self.ids)[rows].tolist())
        return replace(self, ids=ids, splits=splits, preferences=self.preferences[rows].copy())

    def reordered(self, order: list[int]) -> Federation:
        """Put the same clients, each with its id, in another order."""
        splits = {name: Rows.of([rows.of_client(i) for i in order]) for name, rows in self.splits.items()}
        ids = tuple(self.ids[i] for i in order)
        return replace(self, ids=ids, splits=splits, preferences=self.preferences[order])


def draw_preferences(
    spec: preference_sets.Spec, clients: int, problem: Problem, seed: int, run: int = 0, runs: int = 1
) -> np.ndarray:
    """The preferences `[n, m]` of a federation's clients, drawn from its seed."""
    stream = rng.generator(rng.Address(seed), "preferences")
    names = [objective.name for objective in problem.objectives]
    if (given := preference_sets.by_name(spec)) is not None:
        spec = by_client(given, problem.client_names(clients), clients)
    return preference_sets.from_spec(spec, clients, len(names), stream, run, runs, names)


def setting_of(
    problem: Problem,
    clients: Sequence[int],
    seed: int,
    rounds: int,
    participation: float = 1.0,
    preference: tuple[float, ...] | None = None,
) -> Setting:
    """Give what is public about a federation; no data is needed for it."""
    if rounds < 1:
        raise UserError(f"rounds is {rounds}; at least 1 is needed")
    if not 0 < participation <= 1:
        raise UserError(f"participation is {participation}; it is a share above 0 and at most 1")
    return Setting(
        seed=seed,
        clients=np.sort(np.asarray(clients, dtype=np.int64)),
        rounds=rounds,
        layout=problem.layout,
        objectives=problem.objectives,
        initial=problem.initial(seed),
        participation=participation,
        preference=preference,
        comparison=problem.comparison if isinstance(problem, GroupedProblem) else None,
        judge=problem.judge(len(clients), seed),
    )
