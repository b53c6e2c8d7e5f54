"""Layers of many clients at once against torch's own, one client at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from fedpareto.config.errors import UserError
from fedpareto.networks import convolution
from fedpareto.networks.backprop import Backprop
from fedpareto.networks.convolution import stacked_conv2d
from fedpareto.networks.linear import stacked_linear
from fedpareto.networks.mlp import MLP
from fedpareto.networks.module import StackedModule
from fedpareto.tensors.workspace import Workspace

N, ROWS = 3, 4


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "steps"),
    [
        (3, (12, 12), (5, 5), ((1, 1), (0, 0))),
        (1, (9, 7), (3, 2), ((1, 1), (0, 0))),
        (2, (5, 5), (5, 5), ((1, 1), (0, 0))),
        (2, (8, 7), (3, 2), ((2, 3), (1, 2))),
        (3, (8, 8), (7, 7), ((2, 2), (3, 3))),
    ],
)
@pytest.mark.parametrize("tiles", [1, 6, 256])
def test_stacked_convolutions_and_their_gradients_are_those_of_torch(channels, size, kernel, steps, tiles, monkeypatch):
    """The gradient is one product, or the sum of two or four."""
    monkeypatch.setattr(convolution, "TILES", tiles)
    inputs = noise(N, ROWS, channels, *size)
    weight, bias = noise(N, 6, channels, *kernel, seed=1), noise(N, 6, seed=2)
    expected = torch.stack([conv2d(x, w, b, *steps) for x, w, b in zip(inputs, weight, bias, strict=True)])
    values = stacked_conv2d(inputs, weight, bias, *steps)
    assert torch.allclose(values, expected, atol=1e-12)
    towards = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(values, (inputs, weight, bias), towards),
        torch.autograd.grad(expected, (inputs, weight, bias), towards),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 2, 3, 8])
@pytest.mark.parametrize("steps", [((1, 1), (0, 0)), ((1, 1), (1, 2)), ((2, 1), (1, 2))])
def test_stacked_convolutions_in_a_precision_of_16_bits_are_torchs_but_for_rounding(channels, steps):
    """There three channels become four, and the gradient of images is a convolution."""
    tensors = noise(N, ROWS, channels, 9, 8), noise(N, 6, channels, 3, 4, seed=1), noise(N, 6, seed=2)
    lowered = [tensor.detach().bfloat16().requires_grad_() for tensor in tensors]
    exact = [tensor.detach().double().requires_grad_() for tensor in lowered]
    values = stacked_conv2d(*lowered, *steps)
    expected = torch.stack([conv2d(x, w, b, *steps) for x, w, b in zip(*exact, strict=True)])
    close = {"rtol": 0.02, "atol": 0.01 * float(expected.detach().abs().max())}
    torch.testing.assert_close(values.double(), expected, **close)
    towards = torch.randn_like(values)
    found = torch.autograd.grad(values, lowered, towards)
    for one, other in zip(found, torch.autograd.grad(expected, exact, towards.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0.02, atol=0.01 * float(other.abs().max()))


class Flat(nn.Module):
    """A layer of somebody's own that counts on rows which lie one number after the other."""

    def forward(self, rows):
        return rows.view(len(rows), -1)


class Centred(nn.Module):
    """One that mixes the rows of a client."""

    def forward(self, rows):
        return rows - rows.mean(0)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 8 * 8, 3)],
        [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3), nn.MaxPool2d(2), Flat(), nn.Linear(36, 3)],
        [nn.ReLU(), nn.Flatten()],
        [nn.Linear(10, 3), nn.Tanh(), Flat(), Centred(), nn.Linear(60, 2)],
    ],
)
def test_layers_that_want_their_rows_as_torch_lays_them_get_them_so(layers):
    module = nn.Sequential(*layers)
    stacked, inputs = StackedModule(module), torch.randn(N, ROWS, 2, 10, 10)
    own = stacked.layout.unflatten(stacked.initial(0).expand(N, -1)) if stacked.layout.size else {}
    assert torch.allclose(stacked(own, inputs), torch.stack([module(rows) for rows in inputs]), atol=1e-6)


def test_no_rows_have_no_gradient():
    inputs, weight, bias = noise(N, 0, 2, 5, 5), noise(N, 6, 2, 3, 3, seed=1), noise(N, 6, seed=2)
    of_weight, of_bias = torch.autograd.grad(stacked_conv2d(inputs, weight, bias).sum(), (weight, bias))
    assert not of_weight.any()
    assert not of_bias.any()


def layers(padding):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.LocalResponseNorm(2),
        nn.Conv2d(4, 3, 2),
        nn.Flatten(),
        nn.Linear(3 * (4 if padding else 3) ** 2, 5),
    )


@pytest.mark.parametrize("padding", [0, 1])
def test_a_stack_of_sequential_networks_is_each_of_them(padding):
    """With padding a layer has no stacked form here and goes through vmap."""
    module = layers(padding).double()
    stacked = StackedModule(module)
    models = torch.stack([stacked.drawn(seed).double() for seed in range(N)])
    inputs = torch.randn(N, ROWS, 2, 10, 10, dtype=torch.float64)
    together = stacked(stacked.layout.unflatten(models), inputs)
    for client in range(N):
        own = stacked.layout.unflatten(models[client])
        alone = torch.func.functional_call(module, own, (inputs[client],))
        assert torch.allclose(together[client], alone, atol=1e-12)


@pytest.mark.parametrize("after_it", [0, 3])
def test_a_linear_layer_held_as_torch_holds_it_has_the_same_gradient_in_the_same_layout(after_it):
    """Also where it is a part of a longer model, whose rows do not follow one another."""
    inputs, bias = noise(N, ROWS, 8), noise(N, 5, seed=2)
    weight = noise(N, 40 + after_it, seed=1).detach()[:, :40].view(N, 5, 8).requires_grad_()
    towards = torch.randn(N, ROWS, 5, dtype=torch.float64)
    values = stacked_linear(inputs, weight.mT, bias)
    ours = torch.autograd.grad(values, (inputs, weight, bias), towards)
    expected = torch.einsum("nbi,noi->nbo", inputs, weight) + bias.unsqueeze(1)
    theirs = torch.autograd.grad(expected, (inputs, weight, bias), towards)
    assert torch.allclose(values, expected)
    assert all(torch.allclose(one, other) for one, other in zip(ours, theirs, strict=True))
    assert ours[1].is_contiguous(), "a copy of a large layer for each step would cost more than its product"


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, rows):
        return nn.functional.dropout(self.linear(rows), 0.5)


@pytest.mark.parametrize("clients", [1, N])
@pytest.mark.parametrize("module", [Functional(), nn.Sequential(nn.Conv2d(1, 1, 1), Functional(), nn.Conv2d(1, 1, 1))])
def test_randomness_inside_a_module_is_refused_when_it_is_used(module, clients):
    stacked = StackedModule(module)
    own = stacked.layout.unflatten(stacked.drawn(0).expand(clients, -1))
    with pytest.raises(UserError, match="cannot be stacked over clients by torch's vmap: it draws random numbers"):
        stacked(own, torch.randn(clients, ROWS, 1, 4, 4))


def test_a_seed_fixes_all_that_was_drawn_of_attention():
    first, second = (StackedModule(nn.MultiheadAttention(4, 2)) for _ in range(2))
    assert torch.equal(first.drawn(0), second.drawn(0))
    place = first.layout.unflatten(first.drawn(0))["in_proj_weight"]
    assert not torch.equal(place, first.layout.unflatten(first.drawn(1))["in_proj_weight"])


def test_given_weights_are_kept_and_a_draw_changes_no_module_of_the_users():
    """Also a factor of zeros, as an adapter begins with, and whatever the seed."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        module[0].weight.fill_(0.123)
        module[1].running_mean.fill_(7)
        module[2].weight.zero_()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    stacked = StackedModule(module)
    assert not torch.equal(stacked.drawn(0), stacked.drawn(1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(stacked.initial(0), stacked.initial(1))
    found = stacked.layout.unflatten(stacked.initial(0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.items())


def test_a_module_that_initialises_its_layers_has_the_last_word():
    class Quiet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)

        def reset_parameters(self):
            nn.init.zeros_(self.last.weight)

    stacked = StackedModule(Quiet())
    found = stacked.layout.unflatten(stacked.drawn(0))
    assert not found["last.weight"].any()
    assert found["first.weight"].any()
    attention = StackedModule(nn.MultiheadAttention(4, 2))
    assert not attention.layout.unflatten(attention.drawn(0))["out_proj.bias"].any(), "as torch itself begins"


def test_a_parameter_that_no_seed_can_fix_is_refused_and_a_constant_one_is_not():
    class Bare(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.scale = nn.Parameter(values)

    with pytest.raises(UserError, match="the parameter 'scale' was drawn when the module was made"):
        StackedModule(Bare(torch.randn(3))).drawn(0)
    assert torch.equal(StackedModule(Bare(torch.ones(3))).drawn(0), torch.ones(3))


def test_lower_precision_is_used_where_it_is_asked_for():
    inputs, weight, bias = (noise(*shape).float().detach() for shape in ((N, ROWS, 8), (N, 8, 5), (N, 5)))
    image = noise(N, ROWS, 2, 6, 6).float().detach()
    kernel, shift = noise(N, 3, 2, 3, 3).float().detach().requires_grad_(), noise(N, 3).float().detach()
    exact = stacked_linear(inputs, weight, bias), stacked_conv2d(image, kernel, shift)
    with torch.autocast("cpu", torch.bfloat16):
        rough = stacked_linear(inputs, weight, bias), stacked_conv2d(image, kernel, shift)
    for one, other in zip(exact, rough, strict=True):
        assert other.dtype == torch.bfloat16
        assert torch.allclose(one, other.float(), atol=0.1, rtol=0.05)
    (gradient,) = torch.autograd.grad(rough[1].float().sum(), kernel)
    assert gradient.dtype == torch.float32, "models stay as they are"


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("linear", [1, 2])
def test_the_passes_of_an_mlp_by_hand_are_those_of_autograd_whatever_the_size_of_the_minibatch(outputs, linear):
    network = MLP(5, (7, 6), outputs, linear)
    models = noise(N, network.layout.size)
    written = torch.empty_like(models).detach()
    by_hand = Backprop(network, models, written, Workspace())
    for rows in (ROWS, 9, ROWS):
        inputs, of_outputs = noise(N, rows, 5, seed=rows).detach(), noise(N, rows, outputs, seed=2).detach()
        expected = network(network.layout.unflatten(models), inputs)
        (gradient,) = torch.autograd.grad(expected, models, of_outputs)
        torch.testing.assert_close(by_hand.forward(inputs), expected.detach())
        by_hand.backward(of_outputs)
        torch.testing.assert_close(written, gradient)
