"""Small runs of MOFL/D, for its tests."""

from __future__ import annotations

import json

from fedpareto.contract.federation import Federation
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.record.recording import TIMES
from fedpareto.spec.draft import Draft


def spec_of(rounds=6, problem="convex", learner=None, **parameters):
    values = {
        "algorithm": {"name": "mofld", "training_rounds": 2, "samples": 3, **parameters},
        "problem": problem,
        "clients": 4,
        "rounds": rounds,
        "engine": {"threads": 1, "chunk": 64},
        "learner": learner or {},
    }
    return Draft(values).finish()


EXACT = {"problem": {"name": "convex", "heterogeneity": 0.0, "noise": 0.0}, "learner": {"lr": 0.3, "epochs": 5}}
"""Clients that are alike and come to the optimum of any weights."""


def linear_support(**parameters):
    return spec_of(**EXACT, rounds=80, generator="ols", training_rounds=4, tolerance=0.02, **parameters)


def rows(folder, name="metrics.jsonl"):
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def engine_for(algorithm, problem, clients=4, rounds=6, chunk=64, learner=None):
    federation = Federation.create(problem, clients, 3)
    setting = federation.setting(problem, rounds)
    options, choices = LocalOptions(precision="float64"), Choices(threads=1, chunk=chunk)
    learner = learner or problem.learner()
    return LocalEngine(algorithm, problem, learner, [federation], [setting], options, choices=choices)
