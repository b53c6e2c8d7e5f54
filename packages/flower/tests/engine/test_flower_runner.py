"""The runner works with an engine that has no data: the same record, round by round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from memory_federation import federation_of, local_engine, small
from test_server import answers_with, with_model

from fedpareto.algorithms.fronts.mofld import MOFLDState
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import small_setting
from fedpareto.record.store import RunFolder
from fedpareto.runs.loop import Experiment
from fedpareto.runs.recovery import healed
from fedpareto.trust.defences import Defence

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


def test_confidence_and_contributions_on_nodes_are_those_of_local_clients_and_survive_a_restart(tmp_path):
    rule = Defence(rule="confidence", width=0.1)  # So narrow that somebody is discarded in most rounds.
    spec = replace(small("fedavg", rounds=6), defence=rule, measure_contribution=True)
    local = Experiment(spec, local_engine(spec))
    wanted = local.run()
    with RunFolder.create(tmp_path / "run", spec) as folder:
        before = Experiment(spec, federation_of(spec, tmp_path)[0], folder)
        for _ in range(3):
            before._one_round()
        after = Experiment(spec, federation_of(spec, tmp_path)[0], folder)
        after.restore(folder)
        found = after.run()
    assert [row.get("left_out") for row in found.history] == [row.get("left_out") for row in wanted.history]
    assert [row.get("confidence") for row in found.history] == [row.get("confidence") for row in wanted.history]
    assert any(row.get("left_out") for row in wanted.history[:3])
    assert after.oversight.standings[0].tensors().keys() == local.oversight.standings[0].tensors().keys()
    for name, of_clients in wanted.contributions()[0].items():
        np.testing.assert_allclose(found.contributions()[0][name], of_clients, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", ["fedavg", "fedpref"])
def test_a_checkpoint_with_a_poisoned_model_is_left_behind_and_all_train_again(name, tmp_path):
    spec = small(name, rounds=3)
    engine, _ = federation_of(spec, tmp_path)
    with RunFolder.create(tmp_path / "run", spec) as folder:
        before = Experiment(spec, engine, folder)
        before._one_round()
        (state,) = before.states
        poisoned = getattr(state, "models" if name == "fedpref" else "model").clone()
        (poisoned[1] if name == "fedpref" else poisoned).add_(1e30)
        before.states = [replace(state, **{"models" if name == "fedpref" else "model": poisoned})]
        before.checkpoint()
        after = Experiment(spec, federation_of(spec, tmp_path)[0], folder)
        after.restore(folder)
        result = after.run()
        assert len(result.solutions[0].clients) == 3
        assert all(row["replies"] == 3 for row in result.history[1:-1])
        (event,) = folder.read_lines("events.jsonl")
        assert "begun anew: model" in event["reason"]


def test_values_that_nobody_measured_yet_are_no_poison():
    setting = small_setting()
    state = MOFLDState(setting, values=torch.full((2, 3, 2), torch.nan), models=torch.zeros(2, 64))
    assert healed(state, MOFLDState(setting))[1] == ()


def test_going_back_is_to_the_last_round_from_which_nobodys_reply_was_refused(tmp_path):
    spec = small("fedavg", rounds=3)
    engine, grid = federation_of(spec, tmp_path)
    with RunFolder.create(tmp_path / "run", spec) as folder:
        with pytest.raises(UserError, match="no earlier checkpoint"):
            folder.go_back()
        experiment = Experiment(spec, engine, folder)
        experiment.checkpoint()
        experiment._one_round()
        experiment._one_round()
        grid.tamper = answers_with(with_model(lambda model: model.fill_(torch.nan)))
        experiment._one_round()
        assert experiment.round == 3
        folder.go_back()
        experiment.restore(folder)
        assert experiment.round == 1


def test_the_engine_is_what_the_runner_asks_for(tmp_path):
    from fedpareto.contract.engine import Engine

    engine: Engine
    engine, _ = federation_of(small("fedavg"), tmp_path)
    assert engine.chosen == {"federation": "test"}
    assert engine.private == {}
