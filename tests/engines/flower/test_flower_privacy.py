"""Privacy on nodes: the same numbers as in one stack, and one agreement on what is protected."""

from __future__ import annotations

import pytest
import torch
from memory_federation import federation_of, local_engine, node_of, play, small

from fedpareto.errors import UserError

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
