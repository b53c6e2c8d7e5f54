"""The same algorithm files, on nodes of one client each: the same numbers as in one stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from memory_federation import federation_of, local_engine, node_of, play, small

from fedpareto.config.errors import UserError
from fedpareto.contract import registry
from little_work import LITTLE_WORK, few_of

WHOLE_LIST = sorted({*registry.algorithms(), "fedavg+ft", "fsmgda+ft", "fedavg+safe", "fedpref+safe"})


def largest_difference(one, other):
    found = 0.0
    for client in one:
        for name in one[client]:
            gaps = (one[client][name] - other[client][name]).abs()
            found = max(found, float(gaps.max()) if gaps.numel() else 0.0)
    return found


def assert_same_run(spec, engine, local=None):
    states, measured = play(spec, engine)
    expected, expected_measured = play(spec, local or local_engine(spec))
    for state, wanted in zip(states, expected, strict=True):
        difference = largest_difference(spec.algorithm.solutions(state), spec.algorithm.solutions(wanted))
        assert difference <= 1e-5, f"the models differ by {difference}"
    for found, wanted in zip(measured, expected_measured, strict=True):
        for kind in ("sent", "trained"):
            values, wanted_values = getattr(found, kind), getattr(wanted, kind)
            assert list(values) == list(wanted_values)
            for client, objectives in values.items():
                torch.testing.assert_close(objectives, wanted_values[client], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", few_of(WHOLE_LIST))
def test_every_algorithm_gives_the_same_run_on_nodes(name, tmp_path):
    spec = small({"name": name} | LITTLE_WORK.get(name, {}), rounds=2)
    engine, _ = federation_of(spec, tmp_path)
    assert_same_run(spec, engine)


def test_clients_with_sets_of_tasks_give_the_same_run_on_nodes(tmp_path):
    problem = {"name": "digit-pairs", "samples": 60, "test_samples": 12}
    sets = "tasks:accuracy:left,accuracy:right,accuracy:left+accuracy:right"
    spec = small({"name": "fedmtl", "threshold": 0.1}, problem=problem, preferences=sets, learner={}, rounds=2)
    engine, grid = federation_of(spec, tmp_path)
    assert_same_run(spec, engine)
    assert not any("accuracy:" in str(message.content) for message in grid.seen), "tasks have no names on the wire"


def people(folder):
    """A table of few rows, a third of them for validation."""
    stream = np.random.default_rng(0)
    x = stream.standard_normal((90, 3))
    rows = [f"{a},{b},{c},{i % 2},{int(a + b > 0)}" for i, (a, b, c) in enumerate(x)]
    (folder / "people.csv").write_text("\n".join(["a,b,c,group,label", *rows]) + "\n", encoding="utf-8")
    about = {"label": "label", "sensitive": ["group"], "unmeasured": "worst", "hidden": [4], "split": [0.4, 0.4, 0.2]}
    return {"name": "table", "file": str(folder / "people.csv"), **about}


@pytest.mark.parametrize("name", few_of(["fedavg", "fedpref", "local", "fedavg+ft", "fedpref+safe"]))
def test_step_sizes_are_chosen_alike_on_nodes(name, tmp_path):
    spec = small(name, problem=people(tmp_path), learner={"batch_size": 16}, rounds=3, participation=0.6)
    assert spec.step == "validated"
    engine, _ = federation_of(spec, tmp_path)
    assert_same_run(spec, engine)


def test_step_sizes_are_chosen_from_a_secure_sum_alone(tmp_path):
    about = {"problem": people(tmp_path), "learner": {"batch_size": 16}, "rounds": 2}
    spec, plain = small("fedavg", secure_sum="masked", **about), small("fedavg", **about)
    engine, _ = federation_of(spec, tmp_path)
    found, wanted = play(spec, engine)[0][0], play(plain, local_engine(plain))[0][0]
    assert found.inner.factor == wanted.factor > 0
    torch.testing.assert_close(found.inner.inner.model, wanted.inner.model, atol=1e-5, rtol=0)


def test_several_seeds_with_partial_participation_share_one_message_per_node(tmp_path):
    spec = small("local", seeds=[3, 5], participation=0.6)
    engine, grid = federation_of(spec, tmp_path)
    assert_same_run(spec, engine)
    exchanges = spec.rounds + 1
    messages = [
        m for m in grid.seen if m.metadata.message_type == "train.exchange" and not m.metadata.reply_to_message_id
    ]
    assert len(messages) == exchanges * spec.clients


def test_injected_faults_strike_the_same_clients_as_on_the_local_engine(tmp_path):
    spec = small("fedavg", faults={"dropout": 0.3, "stragglers": 0.3, "corrupt": 0.3}, clients=6, seeds=[1])
    engine, _ = federation_of(spec, tmp_path)
    local = local_engine(spec)
    state = spec.algorithm.begin(engine.settings[0])
    tasks = spec.algorithm.ask(state)
    found, wanted = engine.run(tasks), local.run(tasks)
    assert found.replies.clients.tolist() == wanted.replies.clients.tolist()
    assert {str(one) for one in found.failures} == {str(one) for one in wanted.failures}
    for kind in ("dropped out", "injected straggler", "not finite"):
        assert any(kind in failure.reason for failure in found.failures), f"nobody met this fault: {kind}"


def swapped_clients(spec, grid, folder):
    first, second = grid.nodes[900], grid.nodes[899]
    first.federations, second.federations = second.federations, first.federations
    first.federations = [type(one)(one.seed, (0,), one.splits, one.preferences) for one in first.federations]
    second.federations = [type(one)(one.seed, (1,), one.splits, one.preferences) for one in second.federations]


def wrong_data(spec, grid, folder):
    other = small(spec.algorithm.name, seeds=[7])
    stranger = node_of(other, 0, folder)
    mine = grid.nodes[900].federations[0]
    theirs = stranger.federations[0]
    grid.nodes[900].federations = [type(mine)(mine.seed, mine.ids, theirs.splits, mine.preferences)]


@pytest.mark.parametrize("mistake", [swapped_clients, wrong_data])
def test_the_comparison_notices_a_client_with_anothers_data(mistake, tmp_path):
    spec = small("fedpref")
    engine, grid = federation_of(spec, tmp_path)
    mistake(spec, grid, tmp_path)
    with pytest.raises(AssertionError, match="models differ"):
        assert_same_run(spec, engine)


def test_a_node_with_another_seed_may_not_join(tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[900] = node_of(small("fedavg", seeds=[1]), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(spec, engine)
    assert "disagrees on the seed" in caplog.text
