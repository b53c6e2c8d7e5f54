"""Rounds of a secure sum in which chosen clients drop out at chosen steps, and everything that the server sees."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.wrappers.secured import Secured
from fedpareto.contract.federation import Federation
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.problems.synthetic import Synthetic

CLIENTS = 10
MASKED = SecureSum("masked")


@dataclass
class Watched:
    """What came of one round."""

    states: list = field(default_factory=list)
    seen: dict = field(default_factory=dict)
    """By step, the replies that arrived at the server …"""
    late: dict = field(default_factory=dict)
    """… and those that came after it had gone on without them."""


def engine_of(algorithm, clients=CLIENTS, **values):
    problem = Synthetic(hidden=(40,))
    federation = Federation.create(problem, clients, 5, "dirichlet")
    setting = federation.setting(problem, 3, 1.0)
    learner = problem.learner().probe()
    choices = Choices(threads=1, chunk=clients)
    return LocalEngine(algorithm, problem, learner, [federation], [setting], LocalOptions(), choices=choices, **values)


def played(algorithm=None, gone=None, engine=None, state=None):
    """One round in which clients are gone from a step on: `gone` is {step: clients}."""
    algorithm = algorithm or Secured(FedAvg(), MASKED)
    engine = engine or engine_of(algorithm)
    watched = Watched([state or algorithm.begin(engine.settings[0])])
    lost, before = [], watched.states[0].round
    while watched.states[-1].round == before:
        (tasks,) = algorithm.ask(watched.states[-1])
        replies = engine.run([tasks]).replies
        lost += (gone or {}).get(tasks.step, [])
        is_late = np.isin(replies.clients, lost)
        watched.late[tasks.step] = replies.only(np.flatnonzero(is_late))
        watched.seen[tasks.step] = replies.only(np.flatnonzero(~is_late))
        watched.states.append(algorithm.tell(watched.states[-1], watched.seen[tasks.step]))
    return watched
