"""The result of a run: solutions with their objective values. Metrics, reports and pages read nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpareto.contract.plain import plain_points
from fedpareto.contract.problem import Objective, Problem, SupervisedProblem
from fedpareto.moo import dominance, filters, indicators
from fedpareto.moo.tested import CHANCE, Tested
from fedpareto.tensors import rng
from fedpareto.tensors.rows import OWN_TEST, Splits


@dataclass(frozen=True)
class SolutionSet:
    """One solution per client, or a set of the server's. Row i of everything belongs to `clients[i]`."""

    objectives: tuple[Objective, ...]
    clients: tuple[int, ...]
    """The clients' ids; or the numbers 0 … n − 1 of solutions that are no client's."""
    preferences: np.ndarray | None
    """Preferences `[n, m]`, with which the solutions were trained; None if the clients keep theirs private."""
    values: Mapping[str, np.ndarray]
    """The objectives on each part of the data, `{split: [n, m]}`."""
    known_front: np.ndarray | None = None

    @property
    def held_out(self) -> str:
        """The split on which solutions are compared."""
        return held_out(list(self.values))

    @property
    def maximise(self) -> list[bool]:
        """The direction of each objective."""
        return [objective.maximise for objective in self.objectives]

    @property
    def reference(self) -> list[float]:
        """The reference point of the hypervolume."""
        return [objective.reference for objective in self.objectives]

    @property
    def points(self) -> np.ndarray:
        """The solutions' objectives on held-out data, `[n, m]`."""
        return np.asarray(self.values[self.held_out], dtype=float)

    def front(self) -> np.ndarray:
        """The non-dominated points, `[k, m]`."""
        return dominance.front(self.points, maximise=self.maximise)

    def only(self, rank: int = 1, converged: bool = False) -> SolutionSet:
        """Keep the solutions that a front is drawn of, without outliers: under noise a front consists of these (thesis,
        A.3.5).

        `rank` k leaves out the points of the k − 1 fronts before: the front of the rest is the one of rank k (Deb et
        al. 2002). `converged` first leaves out who is too fair to be true: see `filters.is_converged`.
        """
        fairness = [objective.fairness for objective in self.objectives] if converged else None
        kept = filters.counted(self.points, self.maximise, rank, fairness)
        return replace(
            self,
            clients=tuple(np.array(self.clients)[kept].tolist()),
            preferences=None if self.preferences is None else self.preferences[kept],
            values={split: points[kept] for split, points in self.values.items()},
        )

    def hypervolume(self) -> float:
        """Hypervolume of the points, from the objectives' reference point."""
        return indicators.hypervolume(self.points, self.reference, maximise=self.maximise)

    def own_utilities(self) -> np.ndarray | None:
        """Utility of each client's own model under its own preference, `[n]`; None if preferences are private."""
        if self.preferences is None:
            return None
        return indicators.own_utilities(self.points, self.preferences, self.maximise)

    def indicators(self) -> dict[str, float]:
        """All indicators of the points; `regret` is what clients would gain if each could choose among all models."""
        found = indicators.all_indicators(
            self.points,
            self.reference,
            maximise=self.maximise,
            known_front=self.known_front,
            preferences=self.preferences,
        )
        own = self.own_utilities()
        if own is None:
            return found
        return found | {"own_utility": float(own.mean()), "regret": found["expected_utility"] - float(own.mean())}


def held_out(parts: Sequence[str]) -> str:
    """The name of the split on which solutions are compared."""
    return "test" if "test" in parts else parts[-1]


def chosen_on(parts: Sequence[str]) -> str:
    """The name of the split used for selection: never test rows.

    Without validation rows that is the first, the training split; where there is no test split, the one for comparison.
    """
    if "validation" in parts:
        return "validation"
    return parts[0] if "test" in parts else parts[-1]


def roles(parts: Sequence[str]) -> list[int]:
    """Positions of the splits for training, for selection and for comparison."""
    return [0, parts.index(chosen_on(parts)), parts.index(held_out(parts))]


def tested_on(problem: Problem, splits: Splits, clients: rng.Addresses | None) -> Tested | None:
    """Test rows of a seed's models, and the scores of constant answers there.

    None without test rows that have classes: only there is a row right or wrong, so that few of them are luck. Plain
    models need training rows as well. Where clients act instead, it is what they have by chance.
    """
    if "test" not in splits or not isinstance(problem, SupervisedProblem) or problem.classes() is None:
        chance = None if clients is None else problem.by_chance(clients)
        return None if chance is None else Tested(0, 0, np.zeros((0, 1, chance.shape[1])), {CHANCE: chance})
    rows = splits["test"]
    own = splits.get(OWN_TEST, rows).counts
    others = " ".join(one.digest() for name, one in splits.items() if name not in ("test", OWN_TEST))
    fewest, smallest = int(rows.counts.min()), int(own.min())
    plain = plain_points(problem, splits) if "train" in splits else {}
    return Tested(fewest, smallest, problem.constants(rows), plain, rows.digest(), others)
