"""Runs on workers that are already there, beside the same runs on the local engine."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import torch

from fedpareto.contract.federation import Federation
from fedpareto.engines.options import LocalOptions
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto_ray.backend import engine_on
from fedpareto_ray.cluster import connected
from fedpareto_ray.crew import Crew
from fedpareto_ray.options import RayOptions

CHOSEN = {"threads": 1, "chunk": 8}
ROOM = 16
"""CPUs that Ray believes to have."""


class Crews:
    """Workers, made when they are first asked for."""

    def __enter__(self):
        self._stack, self._crews = ExitStack(), {}
        self._stack.enter_context(connected(cpus=ROOM))
        return self

    def __exit__(self, *problem):
        self._stack.close()

    def __call__(self, count):
        if count not in self._crews:
            self._crews[count] = Crew(RayOptions(workers=count), count)
            self._stack.callback(self._crews[count].dismiss)
        return self._crews[count]


def small(algorithm, **values):
    """Seven unequal clients, of whom five take part in a round; in double precision."""
    engine = {"name": "ray", "precision": "float64", **CHOSEN}
    common = {"problem": "convex", "clients": 7, "rounds": 5, "participation": 0.7, "engine": engine}
    return Draft({"algorithm": algorithm, "policy": "sync", **common, **values}).finish()


def locally(spec):
    """The same on the local engine."""
    return backends.local(replace(spec, engine=LocalOptions(precision="float64", **CHOSEN)))


def remotely(spec, crew):
    """The same on Ray."""
    return engine_on(spec, crew, dict(CHOSEN))


def played(spec, engine, strike=lambda moment, exchange: None):
    """The states after a run's last round, what was measured, and all failures; each seed for itself.

    `strike` is called before each exchange, and again before the server hears of its replies.
    """
    states = [spec.algorithm.begin(setting) for setting in engine.settings]
    measured, failures, exchange = [], [], 0
    while any(state.round < spec.rounds for state in states):
        going = [state.round < spec.rounds for state in states]
        tasks = [spec.algorithm.ask(state) if go else [] for state, go in zip(states, going, strict=True)]
        strike("asked", exchange)
        outcomes = engine.run_all(tasks, [spec.algorithm.solutions(state) for state in states])
        strike("replied", exchange)
        exchange += 1
        for run, outcome in enumerate(outcomes):
            failures += map(str, outcome.failures)
            measured += [outcome.evaluations.sent, outcome.evaluations.trained]
            if going[run]:
                replies = spec.defence.applied(tasks[run], outcome.replies).replies
                states[run] = spec.algorithm.tell(states[run], replies)
    return states, measured, sorted(failures)


def difference(spec, one, other, engine, another):
    """The largest between the models, the objectives and the private state of two runs."""
    gaps = [0.0]
    for run, pair in enumerate(zip(one[0], other[0], strict=True)):
        sent = [spec.algorithm.solutions(state) for state in pair]
        first, second = engine.models(run, sent[0]), another.models(run, sent[1])
        assert list(first) == list(second)
        gaps.append(gap(first.rows, second.rows))
    for first, second in zip(one[1], other[1], strict=True):
        assert list(first) == list(second)
        gaps.append(gap(first.rows, second.rows))
    assert one[2] == other[2], "other clients failed"
    kept, found = engine.private, another.private
    assert set(kept) == set(found)
    for key, state in kept.items():
        assert state.keys() == found[key].keys()
        gaps += [gap(tensor, found[key][name]) for name, tensor in state.items()]
    return max(gaps)


def gap(one, other):
    both = one.double(), other.double()
    assert torch.equal(both[0].isnan(), both[1].isnan())
    return float((both[0] - both[1]).nan_to_num().abs().max()) if one.numel() else 0.0


def unequal(spec):
    """Whether clients have different numbers of rows."""
    federation: Federation = spec.federation(spec.seeds[0])
    counts = federation.splits["train"].counts
    return len(set(counts.tolist())) > 1
