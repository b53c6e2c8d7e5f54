"""The Python front door: one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpareto.core.algorithm import Algorithm
from fedpareto.core.learner import Learner
from fedpareto.core.parameters import to_plain
from fedpareto.core.problem import Problem
from fedpareto.engines.faults import Faults
from fedpareto.engines.local import LocalOptions
from fedpareto.errors import UserError
from fedpareto.experiments.runner import OnRound, Result, start
from fedpareto.experiments.spec import DEFAULT_ALGORITHM, DEFAULT_PROBLEM, ROUNDS, Draft, Spec


def run(
    problem: str | Problem = DEFAULT_PROBLEM,
    algorithm: str | Algorithm[Any] = DEFAULT_ALGORITHM,
    *,
    clients: int | None = None,
    rounds: int = ROUNDS,
    seeds: int | Sequence[int] = 1,
    preferences: Any = "dirichlet",
    participation: float = 1.0,
    quorum: float = 0.0,
    learner: Learner | Mapping[str, Any] | None = None,
    engine: LocalOptions | None = None,
    faults: Faults | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Runs one algorithm on one problem and gives back the solutions of every client.

    `problem` and `algorithm` are names (`fedpareto problems`, `fedpareto algorithms`) or objects; `seeds` is how many
    (0, 1, …) or which; `preferences` is a distribution ("dirichlet", "equidistant", "gaussian"), one vector for
    everyone, or one for each client; `learner` changes how clients train ({"lr": 0.1}). With `out`, everything is kept
    in that folder and can be resumed.

        result = fedpareto.run("convex", "fedpref", clients=20, preferences="equidistant")
    """
    named = Draft(
        {
            "problem": problem if isinstance(problem, str) else DEFAULT_PROBLEM,
            "algorithm": algorithm if isinstance(algorithm, str) else DEFAULT_ALGORITHM,
        }
    ).finish()
    task = named.problem if isinstance(problem, str) else problem
    spec = Spec(
        algorithm=named.algorithm if isinstance(algorithm, str) else algorithm,
        problem=task,
        learner=_learner(task, learner),
        clients=task.default_clients() if clients is None else clients,
        rounds=rounds,
        seeds=_seeds(seeds),
        preferences=preferences,
        participation=participation,
        quorum=quorum,
        engine=engine or LocalOptions(),
        faults=faults or Faults(),
    )
    return start(spec, None if out is None else Path(out), on_round)


def _learner(problem: Problem, given: Learner | Mapping[str, Any] | None) -> Learner:
    if isinstance(given, Learner):
        return given
    from fedpareto.core.parameters import build

    own = problem.learner()
    return build(type(own), to_plain(own) | dict(given or {}), "learner")


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(seeds, int):
        return tuple(seeds)
    if seeds < 1:
        raise UserError(f"seeds is {seeds}; at least 1 is needed")
    return tuple(range(seeds))
