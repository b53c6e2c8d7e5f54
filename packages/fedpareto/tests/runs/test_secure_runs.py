"""Runs with a secure sum: resumed to the same bits, counted in bytes, and without secrets in what is kept."""

from __future__ import annotations

import pytest
import torch

import fedpareto
from fedpareto.record.checkpoint import Checkpoint
from folders import assert_same_results

COMMON = {
    "clients": 6,
    "rounds": 4,
    "seeds": 2,
    "engine": {"threads": 1, "chunk": 6},
    "faults": {"dropout": 0.05},
    "secure_sum": {"kind": "masked", "threshold": 0.5},
}


def interrupted(progress):
    if progress.round == 2:
        raise KeyboardInterrupt


def test_a_run_that_was_interrupted_ends_with_the_same_bits_though_keys_are_never_the_same(tmp_path):
    undisturbed = fedpareto.run("convex", "fedavg", out=tmp_path / "undisturbed", **COMMON)
    with pytest.raises(KeyboardInterrupt):
        fedpareto.run("convex", "fedavg", out=tmp_path / "stopped", on_round=interrupted, **COMMON)
    fedpareto.resume(tmp_path / "stopped")
    assert_same_results(tmp_path / "undisturbed", tmp_path / "stopped")
    plain = fedpareto.run("convex", "fedavg", **{**COMMON, "secure_sum": "none"})
    for one, other in zip(undisturbed.models, plain.models, strict=True):
        for client, model in one.items():
            torch.testing.assert_close(model, other[client], atol=1e-6, rtol=0)


def test_after_a_round_the_secrets_of_all_who_stayed_are_forgotten(tmp_path):
    fedpareto.run("convex", "ditto", out=tmp_path / "run", **{**COMMON, "faults": None})
    kept = Checkpoint.load(next((tmp_path / "run").rglob("checkpoint*.safetensors")))
    secret = [tensor for name, tensor in kept.tensors.items() if "secure.kept" in name]
    assert len(secret) == 2 * 6, "six parts of each seed's clients"
    assert not any(tensor.any() for tensor in secret)
    assert any(name.endswith("/own") for name in kept.tensors), "what the algorithm keeps stays"
