from __future__ import annotations

import pytest
import torch

from fedpareto.networks.mlp import MLP
from fedpareto.networks.module import StackedModule
from fedpareto.tensors.layout import Layout

LAYOUT = Layout.of({"0.weight": (2, 3), "0.bias": (3,), "scale": (), "1.weight": (3, 1)})


def test_unflatten_gives_views_that_move_with_the_flat_tensor():
    flat = torch.arange(2 * LAYOUT.size, dtype=torch.float32).reshape(2, -1)
    views = LAYOUT.unflatten(flat)
    assert {name: tuple(view.shape) for name, view in views.items()} == {
        "0.weight": (2, 2, 3),
        "0.bias": (2, 3),
        "scale": (2,),
        "1.weight": (2, 3, 1),
    }
    flat += 1
    assert torch.equal(views["0.bias"], flat[:, 6:9])


def test_flatten_is_the_inverse_of_unflatten():
    flat = torch.randn(LAYOUT.size)
    assert torch.equal(LAYOUT.flatten(LAYOUT.unflatten(flat)), flat)


def test_weight_and_bias_of_a_module_are_one_layer():
    assert LAYOUT.layers == {"0": slice(0, 9), "scale": slice(9, 10), "1": slice(10, 13)}


def test_layers_that_do_not_lie_side_by_side_are_refused():
    with pytest.raises(ValueError, match="layer 'a' do not lie side by side"):
        _ = Layout.of({"a.weight": (1,), "b.weight": (1,), "a.bias": (1,)}).layers


def test_stacked_mlp_equals_a_torch_module_for_each_client():
    mlp = MLP(inputs=3, hidden=(5, 4), outputs=2)
    flat = torch.randn(3, mlp.layout.size, dtype=torch.float64)
    inputs = torch.randn(3, 7, 3, dtype=torch.float64)
    outputs = mlp(mlp.layout.unflatten(flat), inputs)
    for client in range(3):
        own = mlp.layout.unflatten(flat[client])
        network = torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        ).double()
        for i, place in enumerate((0, 2, 4)):
            network[place].weight.data = own[f"{i}.weight"].T
            network[place].bias.data = own[f"{i}.bias"]
        assert torch.allclose(outputs[client], network(inputs[client]))


def test_gradients_of_the_stacked_mlp_are_right():
    mlp = MLP(inputs=2, hidden=(3,), outputs=1)
    flat = torch.randn(2, mlp.layout.size, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p, x: mlp(mlp.layout.unflatten(p), x), (flat, inputs))


def test_any_module_can_be_stacked_and_a_stack_equals_its_members():
    module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(6, 1))
    stacked = StackedModule(module)
    assert torch.equal(stacked.drawn(3), stacked.drawn(3))
    assert not torch.equal(stacked.drawn(3), stacked.drawn(4))
    flat = torch.stack([stacked.drawn(seed) for seed in range(3)])
    inputs = torch.randn(3, 4, 1, 5)
    together = stacked(stacked.layout.unflatten(flat), inputs)
    for client in range(3):
        alone = stacked(stacked.layout.unflatten(flat[client : client + 1]), inputs[client : client + 1])
        assert torch.allclose(together[client], alone[0], atol=1e-6)
