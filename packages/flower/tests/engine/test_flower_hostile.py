"""Hostile nodes in a real federation: what they send is refused by name, and takes neither memory nor the result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hostile import ATTACKS, shares
from memory_federation import local_engine
from real_federation import nodes_of, server_of
from test_flower_parity import largest_difference

from fedpareto.spec.draft import Draft

DRAFT = {"problem": "convex", "algorithm": "fedavg", "clients": 3, "quorum": 1}
HOSTILE = (1, 2)
ROUNDS = -(-len(ATTACKS) // len(HOSTILE))
"""Until the hostile nodes, each with its share, have tried all attacks."""
MOST_MEMORY = 64 * 2**20


@pytest.mark.takes_long
def test_hostile_nodes_are_refused_by_name_and_change_nothing(real, tmp_path):
    nodes = nodes_of(DRAFT, tmp_path)
    for client in HOSTILE:
        nodes[client] |= {"fedpareto": "hostile:make"}
    spec = Draft(DRAFT).finish()
    real.serve(nodes)
    engine = server_of(spec, real.grid)
    state, reasons, growth = attacked(spec, engine, ROUNDS)
    assert len(reasons) == ROUNDS * len(HOSTILE)
    tried = [shares(client) for client in HOSTILE]
    for number, reason in enumerate(reasons):
        round_, client = divmod(number, len(HOSTILE))
        says, _ = tried[client][round_ % len(tried[client])]
        assert says in reason
    wanted = alone(spec, local_engine(spec), ROUNDS)
    assert largest_difference(spec.algorithm.solutions(state), spec.algorithm.solutions(wanted)) <= 1e-5
    assert growth < MOST_MEMORY


def attacked(spec, engine, rounds):
    """The state after these rounds, why replies were refused, and how far this process grew meanwhile, in bytes."""
    algorithm = spec.algorithm
    state, reasons = algorithm.begin(engine.settings[0]), []
    engine.split_names  # noqa: B018 (waits for the nodes, which belongs to nobody's memory)
    before = forget_the_peak()
    for _ in range(rounds):
        outcome = engine.run(algorithm.ask(state), algorithm.solutions(state))
        reasons += [failure.reason for failure in outcome.failures]
        assert not set(HOSTILE) & set(outcome.evaluations.trained)
        state = algorithm.tell(state, outcome.replies)
    return state, reasons, status("VmHWM") - before


def alone(spec, engine, rounds):
    """The same rounds with the honest clients only."""
    algorithm = spec.algorithm
    state = algorithm.begin(engine.settings[0])
    for _ in range(rounds):
        (tasks,) = algorithm.ask(state)
        honest = tasks.only(np.flatnonzero(~np.isin(tasks.clients, HOSTILE)))
        state = algorithm.tell(state, engine.run([honest]).replies)
    return state


def forget_the_peak():
    """From now on the kernel counts the peak anew; the memory in use."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory is read from /proc")
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
