"""A slice of a network, padded with zeros, is the narrower network: outputs and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpareto.config.errors import UserError
from fedpareto.contract.policies import ActorCritic
from fedpareto.networks.mlp import MLP
from fedpareto.networks.module import StackedModule
from fedpareto.networks.resnet import ResNet18
from fedpareto.problems.images_text.networks import CharacterLSTM, TextCNN, convolutional
from fedpareto.problems.multitask.network import Heads
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.widths import cost_of, slice_of

EXACT = 1e-12


def dense(k):
    return MLP(3, (4 * k, 2 * k), 2)


def linear_at_the_end(k):
    return MLP(3, (4 * k, 2 * k), 2, linear=2)


def actor_and_critic(k):
    policy = ActorCritic(MLP(3, (2 * k,), 2), MLP(5, (3 * k,), 1))

    class Both:
        layout = policy.layout

        def __call__(self, parameters, inputs):
            return policy.worth(parameters, inputs, policy.actor(policy.part(parameters, "actor."), inputs).tanh())

    return Both()


def images(k):
    """Everything that may stand between convolutions and linear layers."""
    return StackedModule(
        nn.Sequential(
            nn.Conv2d(1, 2 * k, 3, padding=1),
            *(nn.Tanh(), nn.LocalResponseNorm(2), nn.MaxPool2d(2)),
            nn.Conv2d(2 * k, 3 * k, 2, bias=False),
            *(nn.Sequential(nn.GELU(), nn.AvgPool2d(2, 1)), nn.Dropout(0.0), nn.Flatten()),
            *(nn.Linear(4 * 3 * k, 2 * k), nn.LeakyReLU(), nn.Linear(2 * k, 2), nn.Sigmoid()),
        )
    )


def characters(k):
    return CharacterLSTM(5, embedding=3, hidden=2 * k, layers=2)


def words(k):
    return TextCNN(5, embedding=3, classes=2, widths=(2, 3), channels=2 * k)


def two_heads(k):
    return Heads(16, channels=(2 * k, 3 * k), hidden=(2 * k,), head=(2 * k,), classes=2)


def pooled_heads(k):
    return Heads(16, channels=(2 * k, 2 * k), hidden=(), head=(), classes=2, pooled=True)


INPUTS = {images: (1, 8, 8), characters: (6,), words: (6,), two_heads: (16, 16), pooled_heads: (16, 16)}


def outputs_and_gradient(network, model, inputs):
    model = model.clone().requires_grad_()
    outputs = network(network.layout.unflatten(model.unsqueeze(0)), inputs)
    outputs.square().sum().backward()
    return outputs.detach(), model.grad


@pytest.mark.parametrize(
    "kind", [dense, linear_at_the_end, actor_and_critic, images, characters, words, two_heads, pooled_heads]
)
def test_a_slice_is_the_narrower_network_and_leaves_its_zeros_alone(kind):
    stream = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        wide, narrow = kind(4), kind(2)
    shape = (1, 5, *INPUTS.get(kind, (3,)))
    is_text = kind in (characters, words)
    inputs = torch.randint(5, shape, generator=stream) if is_text else torch.randn(shape, generator=stream).double()
    whole = torch.randn(wide.layout.size, generator=stream, dtype=torch.float64)
    has = slice_of(wide.layout, 0.5)
    assert int(has.sum()) == narrow.layout.size
    outputs, gradient = outputs_and_gradient(wide, whole.where(has, 0), inputs)
    expected, of_narrow = outputs_and_gradient(narrow, whole[has], inputs)
    assert float((outputs - expected).abs().max()) <= EXACT * float(expected.abs().max())
    assert float((gradient[has] - of_narrow).abs().max()) <= EXACT * float(of_narrow.abs().max())
    assert of_narrow.count_nonzero() > 0.5 * len(of_narrow)
    assert gradient[~has].count_nonzero() == 0


def test_units_are_rounded_up_and_slices_are_nested():
    layout = MLP(2, (10, 3), 1).layout
    kept = {share: layout.unflatten(slice_of(layout, share))["1.bias"] for share in (0.01, 0.3, 0.34, 1.0)}
    assert {share: int(marks.sum()) for share, marks in kept.items()} == {0.01: 1, 0.3: 1, 0.34: 2, 1.0: 3}
    assert int(layout.unflatten(slice_of(layout, 0.3))["0.bias"].sum()) == 3
    assert int(layout.unflatten(slice_of(layout, 0.1 + 0.2))["0.bias"].sum()) == 3
    for narrow, wide in ((0.01, 0.3), (0.3, 0.34), (0.34, 1.0)):
        assert not bool((slice_of(layout, narrow) & ~slice_of(layout, wide)).any())


def test_what_a_slice_costs_by_hand():
    layout = MLP(2, (4, 4), 1).layout
    multiplications, entries = cost_of(layout, slice_of(layout, 0.5))
    assert multiplications == pytest.approx((2 * 2 + 2 * 2 + 2 * 1) / (2 * 4 + 4 * 4 + 4 * 1))
    assert entries == pytest.approx((2 * 2 + 2 + 2 * 2 + 2 + 2 * 1 + 1) / (2 * 4 + 4 + 4 * 4 + 4 + 4 * 1 + 1))
    assert cost_of(layout, slice_of(layout, 1.0)) == (1.0, 1.0)


def test_looking_up_a_word_is_no_multiplication():
    network = words(2)
    multiplications, _ = cost_of(network.layout, slice_of(network.layout, 0.5))
    assert multiplications == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["cnn", "cnn-lrn", "cnn-small", "cnn-femnist"])
def test_convolutional_networks_of_the_papers_can_be_narrowed(name):
    with torch.random.fork_rng(devices=[]):
        layout = StackedModule(convolutional(name, (3, 28, 28), 10)).layout
    first, last = layout.names[0], [name for name in layout.names if name.startswith("linear")][-2:]
    for tensor, marks in layout.unflatten(slice_of(layout, 0.5)).items():
        halved = (2 if tensor.endswith("weight") else 1) - (tensor == first) - (tensor in last)
        assert int(marks.sum()) * 2**halved == marks.numel(), tensor


class Own(nn.Module):
    """A module of somebody's own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, rows):
        return self.layer(rows)


REFUSED = {
    "a sigmoid between layers: f(0) ≠ 0": lambda: nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)),
    "a layer that mixes units": lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2)),
    "a layer of somebody's own": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Own()),
    "a module of somebody's own": Own,
    "groups of channels": lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1, groups=2)),
    "pixels as inputs of a linear layer": lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Linear(8, 2)),
    "several outputs of a layer side by side": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    ),
    "a part of an image flattened": lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.Flatten(2), nn.Linear(4, 2)),
    "an embedding": lambda: nn.Sequential(
        nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_networks_of_which_it_cannot_be_told_are_refused_in_one_line(which):
    layout = StackedModule(REFUSED[which]()).layout
    with pytest.raises(UserError, match=r"^the model cannot be narrowed to 0\.5 of its width: only linear and [^\n]*$"):
        slice_of(layout, 0.5)
    assert bool(slice_of(layout, 1.0).all())


def test_normalisation_layers_are_refused_by_name():
    plain = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))
    for module, name in ((plain, "1.weight"), (ResNet18(1, 2, width=4), "bn1.weight")):
        with pytest.raises(UserError, match=f"'{name}' is of a normalisation layer"):
            slice_of(StackedModule(module).layout, 0.5)


def test_a_layout_from_a_file_knows_no_units():
    layout = MLP(2, (4,), 1).layout
    read = Layout.from_json(layout.to_json())
    assert read == layout
    with pytest.raises(UserError, match="cannot be narrowed"):
        slice_of(read, 0.5)
