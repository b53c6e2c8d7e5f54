"""The choice of step sizes on validation rows, and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from fedpareto.config.errors import UserError
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.client_state import Kept
from fedpareto.contract.learner import Learner
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem
from fedpareto.engines.options import EngineOptions

Choice = Literal["validated", "fixed"]


def why_fixed(
    algorithm: Algorithm[Any], problem: Problem, learner: Learner, engine: EngineOptions, privacy: Privacy
) -> str:
    """Say why a run's step size cannot be chosen on validation rows; empty if it can."""
    plain = algorithm.method
    if not problem.validates:
        return f"'{problem.name}' has no validation rows as it is set"
    if "lr" not in learner.own:
        return f"{type(learner).__name__} has no step size that may differ from client to client"
    if "step" in engine.lacks:
        return engine.lacks["step"]
    if privacy.kind != "none" and not plain.personalised:
        return (
            f"with privacy.kind={privacy.kind} what clients of {plain.name} say of step sizes would take a share of "
            "the noise of their models"
        )
    why = registry.stepping().refusal(plain)
    return f"it does not fit {plain.name}: {why}" if why else ""


def usual(
    algorithm: Algorithm[Any],
    problem: Problem,
    learner: Learner,
    engine: EngineOptions,
    privacy: Privacy,
    given: Iterable[str],
) -> Choice:
    """Return the choice of a run that makes none: fixed if a step size is among the names that a user has `given`."""
    is_given = any("lr" in name.split("_") for name in given)
    return "fixed" if is_given or why_fixed(algorithm, problem, learner, engine, privacy) else "validated"


def checked(
    algorithm: Algorithm[Any],
    problem: Problem,
    learner: Learner,
    engine: EngineOptions,
    privacy: Privacy,
    step: Choice,
) -> Algorithm[Any]:
    """The algorithm as it takes its steps, or UserError."""
    if step == "fixed":
        if algorithm.channel.validated:
            raise UserError(f"step is fixed, but {algorithm.name} chooses its step sizes; give the algorithm itself")
        return algorithm
    if why := why_fixed(algorithm, problem, learner, engine, privacy):
        raise UserError(f"step is validated, but {why}; take step=fixed")
    found: Algorithm[Any] = registry.stepping().stepped(algorithm)
    return found


def in_words(algorithm: Algorithm[Any], learner: Any) -> str:
    """A line with the step sizes that are tried and their cost; empty where steps are fixed."""
    stepping = registry.stepping()
    said: str = stepping.said(algorithm)
    if not said:
        return ""
    sizes = ", ".join(f"{factor * learner.lr:.2g}" for factor in stepping.FACTORS)
    return f"step sizes {sizes} are tried on validation rows: {said} (step=fixed does without)"


def beforehand(
    algorithm: Algorithm[Any], problem: Problem, learner: Any, engine: EngineOptions, privacy: Privacy
) -> list[str]:
    """Lines for a user before a run begins: the step sizes that are tried, or why none is, and unusual costs.

    Nothing is said where a user has fixed a step size that could have been chosen, or without validation rows.
    """
    tried, can_tell = in_words(algorithm, learner), problem.validates and hasattr(learner, "lr")
    why = why_fixed(algorithm, problem, learner, engine, privacy) if can_tell and not tried else ""
    fixed = f"the step size {learner.lr:g} is taken as it is, not chosen on validation rows: {why}" if why else ""
    return [line for line in (tried, fixed, algorithm.cost) if line]


def chosen(private: Kept, run: int) -> dict[str, dict[str, int]]:
    """Count the clients of a run that chose each factor for themselves, for its record; empty where none has."""
    shelf = private.shelves.get((run, 0))
    for name in registry.stepping().CHOSEN:
        if shelf is not None and name in shelf.tensors and len(shelf.clients):
            each = shelf.all()[name][:, 0].tolist()
            return {"step_factors": {f"{one:.4g}": count for one, count in sorted(Counter(each).items()) if one}}
    return {}
