"""Candidates of the same shape are trained in one stack, with the results that each has by itself."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.campaigns.tuning.trials import run_all, shape
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft

JUDGED_BY = ("distance 1", "worst distance 2", "deviation of distance 1", "utility", "worst client", "bytes")


def candidate(algorithm="fedavg", own=None, learner=None, **others):
    values = {
        "problem": "convex",
        "algorithm": {"name": algorithm, **(own or {})},
        "clients": 3,
        "rounds": 2,
        "seeds": 2,
        "engine": {"threads": 1, "chunk": 64},
        "learner": learner or {},
    }
    return Draft(values | others).finish()


def by_themselves(spec):
    """What `fedpareto run` comes to: the clients' objectives, all seeds together, and the bytes of one."""
    result = start(spec, None, keep_models=False)
    points = np.concatenate([solutions.values["train"] for solutions in result.solutions])
    sent = sum(row["bytes_down"] + row["bytes_up"] for row in result.history)
    return points, sent


def test_a_stack_of_candidates_has_the_results_of_each_by_itself():
    specs = [
        candidate(learner={"lr": 0.3}, rounds=3),
        candidate(learner={"lr": 0.05, "momentum": 0.9}),
        candidate(learner={"lr": 0.1, "weight_decay": 0.5}, participation=0.5),
        candidate(learner={"lr": 1e-3, "momentum": 0.5}, rounds=1),
    ]
    assert len({shape(spec) for spec in specs}) == 1
    for ended, spec in zip(run_all(specs, JUDGED_BY), specs, strict=True):
        points, sent = by_themselves(spec)
        assert ended.values["distance 1"] == pytest.approx(points[:, 0].mean(), rel=1e-6)
        worst = np.mean([points[:3, 1].max(), points[3:, 1].max()])
        assert ended.values["worst distance 2"] == pytest.approx(worst, rel=1e-6)
        assert ended.values["bytes"] == sent / 2
        assert ended.bytes == sent


def test_bytes_of_a_federation_without_a_server_are_those_between_neighbours_in_a_stack_too():
    specs = [candidate("gossip-fedavg", learner={"lr": lr}, clients=5) for lr in (0.1, 0.3)]
    assert len({shape(spec) for spec in specs}) == 1
    for ended, spec in zip(run_all(specs, JUDGED_BY), specs, strict=True):
        assert ended.bytes == by_themselves(spec)[1]


def test_what_only_a_server_reads_may_differ_in_a_stack():
    specs = [candidate("fedpref", {"threshold": one, "top_ratio": other}) for one, other in ((0.0, 0.4), (9.0, 1.0))]
    specs += [candidate("fedpref", {"similarity_bound": 0.5}, learner={"lr": 0.3})]
    assert len({shape(spec) for spec in specs}) == 1
    together = run_all(specs, JUDGED_BY)
    assert together[0].values != together[1].values
    for ended, spec in zip(together, specs, strict=True):
        assert ended.values["distance 1"] == pytest.approx(by_themselves(spec)[0][:, 0].mean(), rel=1e-6)


def test_other_networks_algorithms_codecs_and_clocks_are_in_no_common_stack():
    plain = candidate()
    others = [
        candidate("fedprox", {"mu": 0.5}),
        candidate("fedprox", {"mu": 0.1}),
        candidate(problem={"name": "convex", "dimension": 9}),
        candidate(learner={"batch_size": 8}),
        candidate(codec="int8-delta"),
    ]
    assert len({shape(spec) for spec in [plain, *others]}) == 1 + len(others)
    for alone in ({"devices": "equal"}, {"faults": {"dropout": 0.1}}, {"server_codec": "float32-delta"}):
        assert shape(candidate(**alone)) is None


def test_a_candidate_that_diverges_costs_the_others_nothing():
    good, bad = candidate(learner={"lr": 0.1}), candidate(learner={"lr": 1e30}, rounds=4)
    first, second = run_all([good, bad], JUDGED_BY)
    assert first.values == run_all([good], JUDGED_BY)[0].values
    assert second.values == {}
    assert "not finite" in second.reason


def test_simulated_seconds_joules_and_bytes_are_those_of_the_run():
    spec = candidate(devices="equal", server_codec="float32-delta", seeds=1)
    (ended,) = run_all([spec], ("seconds", "joules", "bytes"))
    last = start(spec, None).history[-1]
    assert ended.values["seconds"] == pytest.approx(last["clock"])
    assert ended.values["joules"] == pytest.approx(last["joules"])
