"""Privacy on nodes: the same numbers as in one stack, and one agreement on what is protected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory_federation import federation_of, local_engine, node_of, play, small
from test_node import envelope_of, raw

from fedpareto.engines.flower import wire
from fedpareto.errors import DamagedFile, UserError

FEDAVG = {"name": "fedavg", "weighting": "equal"}
PRIVACY = {"kind": "local", "clip": 0.5, "noise": 0.1}


@pytest.mark.parametrize(
    ("algorithm", "privacy"), [(FEDAVG, PRIVACY), (FEDAVG, PRIVACY | {"kind": "central"}), ("fedpref", PRIVACY)]
)
def test_private_models_are_the_same_on_nodes_and_in_one_process(algorithm, privacy, tmp_path):
    spec = small(algorithm, privacy=privacy)
    (state,), _ = play(spec, federation_of(spec, tmp_path)[0])
    (wanted,), _ = play(spec, local_engine(spec))
    found, expected = spec.algorithm.solutions(state), spec.algorithm.solutions(wanted)
    for client, message in expected.items():
        torch.testing.assert_close(found[client]["model"], message["model"], atol=1e-5, rtol=0)


def test_a_privately_tuned_model_stays_on_its_node(tmp_path):
    spec = small(FEDAVG | {"name": "fedavg+ft"}, privacy=PRIVACY)
    engine, _ = federation_of(spec, tmp_path)
    (state,), measured = play(spec, engine)
    _, wanted = play(spec, local_engine(spec))
    assert engine.models(0, spec.algorithm.solutions(state)) == {}
    assert all((tmp_path / f"node{client}" / "model.safetensors").is_file() for client in range(spec.clients))
    for client, objectives in wanted[-1].sent.items():
        torch.testing.assert_close(measured[-1].sent[client], objectives, atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", [{"kind": "none"}, {"clip": 5.0}, {"noise": 0.0}, {"delta": 0.1}])
def test_a_node_with_other_privacy_may_not_join(change, tmp_path, caplog):
    spec = small(FEDAVG, privacy=PRIVACY)
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[900] = node_of(small(FEDAVG, privacy=PRIVACY | change), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(spec, engine)
    assert "disagrees on the kind or the parameters of differential privacy" in caplog.text


@pytest.mark.parametrize("randomness", ["seed", "system"])
def test_a_round_is_answered_once_so_that_noise_cannot_be_averaged_away(randomness, tmp_path):
    spec = small(FEDAVG, privacy=PRIVACY | {"randomness": randomness})
    node = node_of(spec, 0, tmp_path)
    first = raw(node.answer(envelope_of(spec, node, nonce="a")))
    assert raw(node.answer(envelope_of(spec, node, nonce="b"))) == first, "a server that resumes gets the same noise"
    again = node_of(spec, 0, tmp_path)
    assert raw(again.answer(envelope_of(spec, again, nonce="c"))) == first, "also from a node that was restarted"
    with pytest.raises(UserError, match="round 1 was answered before, to another task"):
        again.answer(other_model(envelope_of(spec, again, nonce="d")))
    again.ledger._file.write_text("[]")
    with pytest.raises(DamagedFile, match="damaged"):
        again.answer(envelope_of(spec, again, nonce="e"))


def other_model(content):
    envelope = wire.decode_envelope(content)
    (job,) = envelope.jobs
    tasks = tuple(replace(task, message={"model": task.message["model"] + 1}) for task in job.tasks)
    return wire.encode_envelope(replace(envelope, jobs=(replace(job, tasks=tasks),)))


def test_without_local_privacy_a_node_keeps_no_account(tmp_path):
    spec = small(FEDAVG)
    node = node_of(spec, 0, tmp_path)
    node.answer(envelope_of(spec, node, nonce="a"))
    node.answer(other_model(envelope_of(spec, node, nonce="b")))
    assert not node.ledger.folder.exists()


def test_the_privacy_of_a_tuned_algorithm_is_agreed_on_too(tmp_path, caplog):
    tuned = FEDAVG | {"name": "fedavg+ft"}
    engine, grid = federation_of(small(tuned, privacy=PRIVACY), tmp_path)
    grid.nodes[900] = node_of(small(tuned, privacy=PRIVACY | {"clip": 5.0}), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(small(tuned, privacy=PRIVACY), engine)
    assert "disagrees on the kind or the parameters of differential privacy" in caplog.text
