"""Modules that people bring, over a stack of clients, against torch's own of one client at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from any_network import LENGTH, MODULES, AnyNetwork, inputs_of
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.networks.layers import FORWARDS
from fedpareto.networks.module import StackedModule, layout_of
from fedpareto.networks.resnet import ResNet18
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.training import Training
from fedpareto.testing.conformance import largest_difference, trial

N, ROWS = 3, 6


def stacked_of(name):
    """A module in double precision, three models of it, and rows for each."""
    module = MODULES[name]().double()
    stacked = StackedModule(module)
    generator = torch.Generator().manual_seed(1)
    start = stacked.drawn(0)
    models = start + 0.1 * torch.rand(N, len(start), generator=generator, dtype=torch.float64)
    rows = inputs_of(name, N, ROWS, generator=generator)
    return module, stacked, models, rows.double() if rows.is_floating_point() else rows


def step_of(mask, clients=range(N), step=2, round=1):
    return Training(mask, rng.Addresses.at(3, np.array(list(clients)), round), torch.tensor(step))


def trained(stacked, models, rows, training):
    """Outputs, gradients of the real rows' outputs, and new buffers."""
    leaves = {name: view.detach() for name, view in stacked.layout.unflatten(models).items()}
    for name in leaves.keys() - set(stacked.layout.buffers):
        leaves[name].requires_grad_()
    outputs = stacked(leaves, rows, training)
    real = outputs * training.mask.unsqueeze(-1)
    weights = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    gradients = torch.autograd.grad(real.square().sum(), list(weights.values()))
    return real.detach(), dict(zip(weights, gradients, strict=True)), training.buffers


def alone_in_torch(module, layout, model, rows):
    """The same of one client by torch itself, in training mode with all dropout off."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif hasattr(part, "dropout") and isinstance(part.dropout, float):
            part.dropout = 0.0
    own = {name: view.clone() for name, view in layout.unflatten(model).items()}
    for name in own.keys() - set(layout.buffers):
        own[name].requires_grad_()
    outputs = torch.func.functional_call(module, own, (rows,))
    weights = [leaf for leaf in own.values() if leaf.requires_grad]
    names = [name for name, leaf in own.items() if leaf.requires_grad]
    gradients = torch.autograd.grad(outputs.square().sum(), weights)
    return outputs.detach(), dict(zip(names, gradients, strict=True)), {name: own[name] for name in layout.buffers}


def close(one, other):
    return torch.allclose(one, other, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", MODULES)
def test_in_evaluation_a_stack_is_each_of_its_modules(name):
    module, stacked, models, rows = stacked_of(name)
    module.eval()
    with torch.no_grad():
        together = stacked(stacked.layout.unflatten(models), rows)
        for client in range(N):
            own = stacked.layout.unflatten(models[client])
            assert close(together[client], torch.func.functional_call(module, own, (rows[client],)))


@pytest.mark.parametrize("name", MODULES)
def test_without_dropout_a_training_step_is_that_of_torch(name):
    """Outputs, gradients and running statistics, on two thirds of the rows; the others are padding."""
    module, _, models, rows = stacked_of(name)
    mask = torch.ones(N, ROWS, dtype=torch.float64)
    mask[:, 4:] = 0
    expected = [alone_in_torch(module, layout_of(module), models[client], rows[client, :4]) for client in range(N)]
    stacked = StackedModule(module)  # Of which the dropout is off now.
    outputs, gradients, buffers = trained(stacked, models, rows, step_of(mask))
    for client, (own, of_own, statistics) in enumerate(expected):
        assert close(outputs[client, :4], own)
        assert all(close(gradients[key][client], gradient) for key, gradient in of_own.items())
        assert all(close(new[client], statistics[key]) for key, new in buffers.items())
    kept = {name for name in stacked.layout.buffers if "running" in name}
    assert set(buffers) == kept, "what else is a buffer never changes"


@pytest.mark.parametrize("name", MODULES)
def test_a_client_beside_others_and_padding_trains_as_it_does_alone(name):
    """With dropout: the same values are dropped in any stack."""
    _, stacked, models, rows = stacked_of(name)
    mask = torch.ones(N, ROWS, dtype=torch.float64)
    mask[1, 3:] = 0
    outputs, gradients, buffers = trained(stacked, models, rows, step_of(mask))
    for client in range(N):
        count = int(mask[client].sum())
        own = trained(
            stacked,
            models[client : client + 1],
            rows[client : client + 1, :count],
            step_of(mask[client : client + 1, :count], [client]),
        )
        assert close(outputs[client, :count], own[0][0])
        assert all(close(gradients[key][client], gradient[0]) for key, gradient in own[1].items())
        assert all(close(buffers[key][client], new[0]) for key, new in own[2].items())


@pytest.mark.parametrize("name", ["resnet", "transformer", "lstm", "dropout"])
def test_stacked_training_is_the_loop_over_clients(name):
    problem = AnyNetwork(module=name)
    federation = Federation.create(problem, 3, 3, "dirichlet")
    together, alone = (trial(FedAvg(), problem, chunk=n, rounds=2, federation=federation).models for n in (3, 1))
    assert largest_difference(together, alone) <= 1e-9
    assert largest_difference(together, dict.fromkeys(together, problem.initial(3).double())) > 1e-3


# -- statistics of rows --------------------------------------------------------------------------------------------


def test_running_statistics_are_those_of_torch_after_several_steps():
    layer = nn.BatchNorm2d(4).double()
    stacked, rows = StackedModule(nn.Sequential(nn.BatchNorm2d(4))), torch.randn(5, N, ROWS, 4, 3, 3).double()
    model = stacked.drawn(0).double().expand(N, -1)
    for number, minibatch in enumerate(rows):
        training = step_of(torch.ones(N, ROWS).double(), step=number)
        stacked(stacked.layout.unflatten(model), minibatch, training)
        model = model.clone()
        for name, new in training.buffers.items():
            model[:, stacked.layout.slices[name]] = new
        layer(minibatch[1])
    views = stacked.layout.unflatten(model)
    assert close(views["0.running_mean"][1], layer.running_mean)
    assert close(views["0.running_var"][1], layer.running_var)
    layer.eval()
    assert close(stacked(views, rows[0])[1], layer(rows[0, 1]))


def test_buffers_are_part_of_the_model_and_no_gradient_moves_them():
    layout = layout_of(ResNet18(width=2))
    names = {name for name in layout.names if "running" in name}
    assert set(layout.buffers) == names
    assert len(names) == 40
    assert {name for name in layout.normalisation if name not in names} == {
        name for name in layout.names if "bn" in name or "downsample.1" in name
    } - names
    assert layout.marked(layout.buffers).sum() == sum(
        layout.slices[name].stop - layout.slices[name].start for name in names
    )
    assert not any("num_batches" in name for name in layout.names)
    assert Layout.from_json(layout.to_json()) == layout, "a file holds names and shapes"


def test_resnet_18_has_the_size_of_torchvision_s():
    with torch.device("meta"):
        layout = layout_of(ResNet18())
    statistics = int(layout.marked(layout.buffers).sum())
    assert (layout.size - statistics, statistics) == (11_689_512, 9_600)


def test_batch_normalisation_of_something_else_than_rows_is_refused():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, rows):
            return self.norm(rows.flatten(0, 1)).view_as(rows)

    stacked = StackedModule(Folded())
    with pytest.raises(UserError, match="the layer 'norm' gets 18 rows of a minibatch of 6"):
        stacked(
            stacked.layout.unflatten(stacked.drawn(0).expand(2, -1)),
            torch.randn(2, 6, 3, 4),
            step_of(torch.ones(2, 6), range(2)),
        )


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.BatchNorm1d(4, track_running_stats=False), "keeps no running statistics"),
        (nn.BatchNorm1d(4, momentum=None), "keeps no running statistics"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "only BatchNorm may have them"),
        (nn.Embedding(4, 3, max_norm=1.0), "max_norm"),
    ],
)
def test_a_layer_that_cannot_be_stacked_is_refused_when_the_module_is_made(module, why):
    with pytest.raises(UserError, match=f"the layer 'part' .*{why}"):
        StackedModule(nn.ModuleDict({"part": module}))


def test_a_layer_of_somebody_s_own_keeps_its_forward_pass():
    class Halved(nn.Dropout):
        def forward(self, rows):
            return rows / 2

    rows = torch.randn(2, 3, 4)
    stacked = StackedModule(nn.Sequential(Halved(), nn.Linear(4, 4)))
    own = stacked.layout.unflatten(stacked.drawn(0).expand(2, -1))
    expected = torch.einsum("nbi,noi->nbo", rows / 2, own["1.weight"]) + own["1.bias"].unsqueeze(1)
    assert torch.allclose(stacked(own, rows, step_of(torch.ones(2, 3), range(2))), expected, atol=1e-6)
    assert Halved.forward not in FORWARDS


# -- dropout -------------------------------------------------------------------------------------------------------


def dropped(layer, rows, **where):
    """Rows `[n, b, ...]` after a layer without parameters."""
    return StackedModule(nn.Sequential(layer))({}, rows, step_of(torch.ones(rows.shape[:2]), range(len(rows)), **where))


@pytest.mark.parametrize("p", [0.25, 0.3, 0.5, 1.0])
def test_dropout_drops_its_share_and_keeps_the_mean(p):
    ones = torch.ones(2, 50, 400)
    values = dropped(nn.Dropout(p), ones)
    spread = (p * (1 - p) / ones.numel()) ** 0.5
    assert abs((values == 0).float().mean() - p) <= 4 * spread
    assert set(values.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p)).item() if p < 1 else 0.0}
    assert torch.equal(StackedModule(nn.Sequential(nn.Dropout(p)))({}, ones), ones), "in evaluation nothing is dropped"


def test_alpha_dropout_keeps_mean_and_variance():
    values = dropped(nn.AlphaDropout(0.3), torch.randn(2, 100, 1000, generator=torch.Generator().manual_seed(0)))
    assert abs(values.mean()) < 0.02
    assert abs(values.var() - 1) < 0.02


@pytest.mark.parametrize(("layer", "shape"), [(nn.Dropout1d, (9,)), (nn.Dropout2d, (3, 3)), (nn.Dropout3d, (2, 2, 2))])
def test_a_channel_is_dropped_as_a_whole(layer, shape):
    values = dropped(layer(0.5), torch.ones(2, 40, 20, *shape)).flatten(3)
    assert torch.equal(values, values[..., :1].expand_as(values))
    assert 0.4 < (values == 0).float().mean() < 0.6


def test_what_is_dropped_differs_by_client_step_round_and_layer():
    ones = torch.ones(2, 4, 64)
    first = dropped(nn.Dropout(0.5), ones)
    assert torch.equal(first, dropped(nn.Dropout(0.5), ones))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, dropped(nn.Dropout(0.5), ones, step=3))
    assert not torch.equal(first, dropped(nn.Dropout(0.5), ones, round=2))
    twice = dropped(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), ones)
    assert 0.65 < (twice == 0).float().mean() < 0.85, "two layers drop different values"


# -- options of attention and recurrent layers ---------------------------------------------------------------------


class Attending(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.key, self.value = nn.Linear(8, options.get("kdim", 8)), nn.Linear(8, options.get("vdim", 8))

    def forward(self, rows):
        hidden = rows[..., 0] > 1
        hidden[:, 0] = False
        values, weights = self.attention(rows, self.key(rows), self.value(rows), key_padding_mask=hidden)
        return torch.cat([values, weights], dim=-1)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 5, "vdim": 6}])
def test_attention_with_its_options_is_that_of_torch(options):
    module = Attending(**options).double()
    stacked, rows = StackedModule(module), torch.randn(N, ROWS, LENGTH, 8, dtype=torch.float64)
    own = stacked.layout.unflatten(stacked.initial(0).expand(N, -1))
    assert close(stacked(own, rows), torch.stack([module(one) for one in rows]))


class Continued(nn.Module):
    """An LSTM that begins where another one ended."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(4, 5, batch_first=True), nn.LSTM(4, 5, batch_first=True)

    def forward(self, rows):
        _, state = self.first(rows)
        values, (_, cell) = self.second(rows, state)
        return values.sum(1) * cell[0]


def test_a_given_state_and_its_gradient_are_those_of_torch():
    module = Continued().double()
    stacked, rows = StackedModule(module), torch.randn(N, ROWS, 4, 4, dtype=torch.float64)
    models = stacked.initial(0).expand(N, -1).clone().requires_grad_()
    values = stacked(stacked.layout.unflatten(models), rows)
    expected = torch.stack([module(one) for one in rows])
    assert close(values, expected)
    (ours,) = torch.autograd.grad(values.square().sum(), models)
    theirs = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    assert close(ours.sum(0), torch.cat([one.flatten() for one in theirs]))


@pytest.mark.parametrize(
    ("module", "rows", "why"),
    [
        (nn.MultiheadAttention(4, 2, add_bias_kv=True), None, "add_bias_kv"),
        (nn.LSTM(4, 5, proj_size=2), torch.randn(2, 3, 6, 4), "proj_size"),
        (nn.GRU(4, 5), torch.randn(2, 6, 4), "minibatches of equal length"),
    ],
)
def test_an_option_that_is_not_stacked_is_refused_in_one_line(module, rows, why):
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = module

        def forward(self, rows):
            return self.part(rows, rows, rows)[0] if isinstance(module, nn.MultiheadAttention) else self.part(rows)[0]

    stacked = StackedModule(Around())
    own = stacked.layout.unflatten(stacked.drawn(0).expand(2, -1))
    with pytest.raises(UserError, match=f"the layer 'part' .*{why}"):
        stacked(own, torch.randn(2, 3, 6, 4) if rows is None else rows)


def test_a_problem_that_does_not_say_that_it_trains_is_told_so():
    class Forgetful(AnyNetwork):
        def losses(self, parameters, batch):
            return self.evaluate(parameters, batch)

    with pytest.raises(UserError, match=r"the problem's losses do not call it with batch\.training"):
        trial(FedAvg(), Forgetful(), rounds=1)
