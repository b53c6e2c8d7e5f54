"""The runner works with an engine that has no data: the same record, round by round."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory_federation import federation_of, local_engine, small

from fedpareto.core.defences import Defence
from fedpareto.experiments.runner import Experiment

SAME = ("seed", "round", "replies", "failures", "bytes_up", "bytes_down", "hypervolume", "trained_hypervolume")


@pytest.mark.parametrize("name", ["fedavg", "local"])
def test_a_run_on_nodes_leaves_the_record_of_a_local_run(name, tmp_path):
    spec = small(name, rounds=2)
    engine, _ = federation_of(spec, tmp_path)
    found, wanted = Experiment(spec, engine).run(), Experiment(spec, local_engine(spec)).run()
    for row, expected in zip(found.history, wanted.history, strict=True):
        for key in SAME:
            assert row[key] == pytest.approx(expected[key], abs=1e-5)
    assert found.hypervolume == pytest.approx(wanted.hypervolume, abs=1e-5)
    kept_at_the_nodes = name == "local"
    assert set(found.models[0]) == (set() if kept_at_the_nodes else set(wanted.models[0]))


def test_a_defence_protects_nodes_as_it_protects_local_clients(tmp_path):
    spec = replace(small("fedavg", rounds=2), defence=Defence(rule="median"))
    engine, _ = federation_of(spec, tmp_path)
    found, wanted = Experiment(spec, engine).run(), Experiment(spec, local_engine(spec)).run()
    plain = Experiment(small("fedavg", rounds=2), local_engine(spec)).run()
    torch.testing.assert_close(found.models[0], wanted.models[0], atol=1e-5, rtol=1e-5)
    assert torch.dist(plain.models[0][0], wanted.models[0][0]) > 1e-4, "the median is not the mean"


def test_the_engine_is_what_the_runner_asks_for(tmp_path):
    from fedpareto.core.engine import Engine

    engine: Engine
    engine, _ = federation_of(small("fedavg"), tmp_path)
    assert engine.chosen == {"federation": "test"}
    assert engine.private == {}
