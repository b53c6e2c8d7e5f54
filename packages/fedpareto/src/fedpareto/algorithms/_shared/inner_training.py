"""An algorithm inside another: which ones can train a candidate of a search for a front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpareto.config.errors import UserError
from fedpareto.config.parameters import parse_value
from fedpareto.contract.algorithm import Algorithm, Setting, overrides, small_setting
from fedpareto.contract.registry import make_algorithm

INSTEAD = "take fedavg, fedprox or another whose clients and server exchange one model in a round"
WEIGHTS = "weights"
"""The name of what a task of a candidate has beside the algorithm's own: the importance of each objective."""


def inner_algorithm(name: str, given: Sequence[str]) -> Algorithm[Any]:
    """The algorithm of that name, with hyper-parameters such as `mu=0.1`; UserError with the reason if it does not
    fit.
    """
    parts = [one.partition("=") for one in given]
    if not all(sign for _, sign, _ in parts):
        raise UserError(f"inner_set is {', '.join(given)}; it has hyper-parameters of {name} such as mu=0.1")
    try:
        found = make_algorithm(name, {key.strip(): parse_value(value) for key, _, value in parts})
    except UserError as problem:
        raise UserError(f"inner: {problem}") from None
    if why := _why_not(found):
        raise _refused(name, why)
    return found


def must_fit(algorithm: Algorithm[Any], setting: Setting) -> None:
    """Raises UserError if its tasks or its solutions are not one model for each client."""
    state = algorithm.begin(setting)
    tasks, solutions = algorithm.ask(state), algorithm.solutions(state)
    if len(tasks) != 1 or tasks[0].lane:
        raise _refused(algorithm.name, "its clients have several tasks in a round")
    if WEIGHTS in tasks[0].names:
        raise _refused(algorithm.name, "its tasks have weights of their own")
    if solutions.names != {"model"} or solutions.stacked()["model"].dim() != 2:
        raise _refused(algorithm.name, "its clients are sent more than a model, or a part of one")


def _why_not(algorithm: Algorithm[Any]) -> str:
    """Why a candidate cannot be trained by it; empty if it can, as far as can be said without a federation."""
    steps = sorted(algorithm.reply_shapes(small_setting()).keys() - {"fine_tune"})
    if overrides(algorithm, "found") or algorithm.ends_as_planned:
        return "it looks for a front itself, or does in its last round what it does in no other"
    if algorithm.neighbours(1) is not None:
        return "it has no server, which is where candidates come from"
    if algorithm.policy != "sync":
        return "its rounds wait for nobody, and candidates are compared after the same number of rounds"
    if steps != ["train"]:
        return f"a round of it has several exchanges ({', '.join(steps)})"
    if overrides(algorithm, "personal"):
        return "its clients use other models than they are sent, and a candidate is one model that all can use"
    if "groups" in algorithm.requires:
        return "its clients train on a loss of its own, whatever the candidate's weights are"
    return ""


def _refused(name: str, why: str) -> UserError:
    return UserError(f"inner is {name}, which cannot train a candidate: {why}; {INSTEAD}")
