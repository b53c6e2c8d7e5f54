"""Networks with running statistics and dropout on three nodes of Flower, against one stack on this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory_federation import federation_of, local_engine, play, small

from any_network import AnyNetwork
from fedpareto.engines.options import LocalOptions


@pytest.mark.parametrize(
    ("module", "normalisation"),
    [
        ("resnet", "averaged"),
        pytest.param("resnet", "private-statistics", marks=pytest.mark.takes_long),
        pytest.param("resnet", "private", marks=pytest.mark.takes_long),
        ("transformer", "averaged"),
        ("lstm", "averaged"),
        ("dropout", "averaged"),
    ],
)
def test_nodes_train_any_network_as_one_stack_does(module, normalisation, tmp_path):
    problem = AnyNetwork(module=module)
    spec = replace(
        small("fedavg", rounds=2),
        problem=problem,
        learner=problem.learner(),
        normalisation=normalisation,
        engine=LocalOptions(precision="float64"),
    )
    engine, _ = federation_of(spec, tmp_path)
    (apart,), measured = play(spec, engine)
    (together,), expected = play(spec, local_engine(spec))
    assert torch.allclose(apart.model, together.model, atol=1e-9)
    # With what each client kept for itself.
    for client in range(3):
        assert torch.allclose(measured[-1].sent[client], expected[-1].sent[client], atol=1e-9)
    assert (apart.model - problem.initial(0).double()).abs().max() > 1e-3


def test_nodes_and_one_stack_have_the_same_connections(tmp_path):
    spec = small("fedpref", rounds=2, problem={"name": "synthetic", "hidden": [8], "sparsity": 1.0, "rows": 300})
    engine, _ = federation_of(spec, tmp_path)
    (apart,), _ = play(spec, engine)
    (together,), _ = play(spec, local_engine(spec))
    assert spec.problem.layout.size < spec.problem.layout.dense.size
    assert torch.allclose(apart.models, together.models, atol=1e-5)
