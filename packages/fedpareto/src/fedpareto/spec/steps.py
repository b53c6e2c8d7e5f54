"""The choice of step sizes on validation rows, and its cost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedpareto.contract import registry
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.client_state import Kept
from fedpareto.contract.learner import Learner
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Problem
from fedpareto.engines.options import EngineOptions


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


def in_words(algorithm: Algorithm[Any], learner: Any) -> str:
    """A line with the step sizes that are tried and their cost; empty where steps are fixed."""
    stepping = registry.stepping()
    said: str = stepping.said(algorithm)
    if not said:
        return ""
    sizes = ", ".join(f"{factor * learner.lr:.2g}" for factor in stepping.FACTORS)
    return f"step sizes {sizes} are tried on validation rows: {said} (step=fixed does without)"


def chosen(private: Kept, run: int) -> dict[str, dict[str, int]]:
    """Count the clients of a run that chose each factor for themselves, for its record; empty where none has."""
    shelf = private.shelves.get((run, 0))
    for name in registry.stepping().CHOSEN:
        if shelf is not None and name in shelf.tensors and len(shelf.clients):
            each = shelf.all()[name][:, 0].tolist()
            return {"step_factors": {f"{one:.4g}": count for one, count in sorted(Counter(each).items()) if one}}
    return {}
