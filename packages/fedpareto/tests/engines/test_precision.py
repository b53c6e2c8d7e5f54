"""Lower precision is for the clients' products only."""

from __future__ import annotations

import pytest
import torch

import fedpareto
from fedpareto.engines.machine import products_in
from fedpareto.engines.options import LocalOptions


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_models_stay_single_precision_and_nearly_the_same(precision):
    """Without a GPU tf32 changes nothing, bfloat16 rounds products to three digits."""

    def models(**engine):
        result = fedpareto.run("synthetic", "fedavg", clients=4, rounds=3, engine={"threads": 1, **engine})
        return torch.stack(list(result.models[0].values()))

    one, other = models(), models(precision=precision)
    assert other.dtype == torch.float32
    assert torch.allclose(one, other, atol=0.05)
    assert torch.equal(one, other) == (precision == "tf32")


def allowed():
    """Whether a GPU may round to tf32, in products and in libraries of convolutions."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def test_a_gpu_rounds_to_tf32_only_if_asked():
    for precision in ("float32", "float64", "tf32"):
        with products_in(precision, torch.device("cpu")):
            assert allowed() == (precision == "tf32",) * 2


def test_what_a_user_did_to_torch_is_left_as_it_was():
    before = allowed()
    fedpareto.run("convex", "fedavg", clients=2, rounds=1, engine={"precision": "tf32"})
    assert allowed() == before
    assert not torch.is_autocast_enabled("cpu")


def test_precision_is_of_models_unless_only_products_are_meant():
    kinds = {name: LocalOptions(precision=name).dtype for name in ("float32", "float64", "tf32", "bfloat16")}
    assert kinds == {
        "float32": torch.float32,
        "float64": torch.float64,
        "tf32": torch.float32,
        "bfloat16": torch.float32,
    }
