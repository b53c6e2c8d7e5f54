"""Clients whose optima are known, and what the tests of personal models read of a finished trial."""

from __future__ import annotations

import numpy as np
from small_problems import Labels

from fedpareto.contract.federation import Federation
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex

DIFFERENT = Convex(heterogeneity=1.0)
CLIENTS, SEED, LR, STEPS = 7, 3, 0.1, 3
FULL_BATCH = Supervised(lr=LR, batch_size=1000, epochs=STEPS)
NETWORK = Labels(goals=2, inputs=6, hidden=(5, 4), rows=24)


def optima(problem=DIFFERENT):
    """Where each client's own objective is least, `[n, d]`."""
    federation = Federation.create(problem, CLIENTS, SEED, "dirichlet")
    return federation.preferences @ problem.centres().numpy() + problem.shifts(CLIENTS, SEED).numpy()


def sizes(problem=DIFFERENT):
    return problem.data(CLIENTS, SEED)["train"].counts


def rows(models):
    return np.stack([models[client].numpy() for client in sorted(models)])


def kept(done, name):
    """A private tensor of every client, `[n, ...]`."""
    return np.stack([done.engine.private[0, 0, client][name].numpy() for client in range(CLIENTS)])


def descend(theta, optimum, pull=0.0, towards=0.0):
    """Plain full-batch training of one client: the gradient of ½‖θ − optimum‖² and of the pull."""
    for _ in range(STEPS):
        theta = theta - LR * (theta - optimum + pull * (theta - towards))
    return theta


def distance(first, second):
    return float(np.abs(first - second).max())
