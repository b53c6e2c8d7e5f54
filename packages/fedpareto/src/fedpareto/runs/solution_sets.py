"""Final solutions of each seed of a run, from what its clients reported or from what its server found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Found
from fedpareto.contract.solutions import SolutionSet, held_out, roles
from fedpareto.spec.spec import Spec


def of_clients(spec: Spec, run: int, values: Mapping[str, np.ndarray]) -> SolutionSet:
    """The clients' solutions of one seed, from values `[n, m]`; a client whose training diverged has none."""
    good = np.isfinite(values[held_out(list(values))]).all(axis=1)
    preferences = spec.preferences_of(spec.seeds[run])
    if not good.any() and not _is_withheld(spec):
        raise UserError(
            f"seed {spec.seeds[run]}: training diverged, no client's objectives are finite numbers; "
            "a smaller lr may help"
        )
    return SolutionSet(
        objectives=spec.problem.objectives,
        clients=tuple(np.flatnonzero(good).tolist()),
        preferences=None if preferences is None or not good.any() else preferences[good],
        values={split: points[good] for split, points in values.items()},
        known_front=spec.problem.known_front(),
    )


def lost(spec: Spec, solutions: SolutionSet) -> list[int]:
    """The clients who have no solution, though they report objectives."""
    return [] if _is_withheld(spec) else np.setdiff1d(np.arange(spec.clients), solutions.clients).tolist()


def of_server(spec: Spec, names: Sequence[str], found: Found) -> SolutionSet:
    """The solutions of one seed, where they are a set of their own."""
    values = found.values.double().cpu().numpy()
    return SolutionSet(
        objectives=spec.problem.objectives,
        clients=tuple(range(len(values))),
        preferences=found.weights.double().cpu().numpy(),
        values={names[part]: values[:, place] for place, part in enumerate(roles(names))},
        known_front=spec.problem.known_front(),
    )


def _is_withheld(spec: Spec) -> bool:
    return spec.privacy.objectives == "withheld"
