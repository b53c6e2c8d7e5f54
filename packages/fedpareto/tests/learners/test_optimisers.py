"""Optimisers, clipping and schedules against torch's own, and by closed form."""

from __future__ import annotations

import math

import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Pull
from fedpareto.learners.descent import Descent
from fedpareto.learners.gradients import Autograd
from fedpareto.learners.optimisers import Schedule, clip_
from fedpareto.learners.supervised import Supervised
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rng import Address, Addresses
from fedpareto.tensors.rows import Batch

N, D, STEPS = 3, 7, 5
BATCH = Batch({}, torch.ones(N, 1, dtype=torch.float64))


def start():
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def targets():
    return torch.randn(STEPS, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def descended(learner, layout=None, active=None, pull=None, round=1):
    """Models after some steps towards one target after the other."""
    model, number = start(), iter(range(STEPS))

    def loss(parameters, batch):
        del batch
        return (parameters["x"] - targets()[next(number)][:, : parameters["x"].shape[1]]).square().sum(1)

    addresses = Addresses.of([Address(0, client, round) for client in range(N)])
    layout = layout or Layout.of({"x": (D,)})
    descent = Descent(learner, model, layout, Autograd(layout, model, loss), pull, addresses)
    for _ in range(STEPS):
        descent.step(BATCH, active)
    return model


def by_torch(learner, client):
    """The same of one client."""
    model = start()[client].clone().requires_grad_()
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    momentum = {"momentum": learner.momentum} if learner.optimiser == "sgd" else {}
    optimiser = kinds[learner.optimiser]([model], lr=learner.lr, weight_decay=learner.weight_decay, **momentum)
    for target in targets()[:, client]:
        optimiser.zero_grad()
        (model - target).square().sum().backward()
        torch.nn.utils.clip_grad_norm_([model], learner.clip_gradient)
        optimiser.step()
    return model.detach()


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.3}, {"weight_decay": 0.3, "clip_gradient": 2.0}])
def test_a_step_of_many_clients_is_that_of_torch_for_each(optimiser, options):
    learner = Supervised(lr=0.1, optimiser=optimiser, momentum=0.5 if optimiser == "sgd" else 0.0, **options)
    models = descended(learner)
    for client in range(N):
        assert torch.allclose(models[client], by_torch(learner, client), atol=1e-12)


def test_decay_of_adamw_is_decoupled():
    adam, adamw = (descended(Supervised(lr=0.1, optimiser=kind, weight_decay=0.3)) for kind in ("adam", "adamw"))
    assert (adam - adamw).abs().max() > 1e-3
    assert torch.equal(*(descended(Supervised(lr=0.1, optimiser=kind)) for kind in ("adam", "adamw")))


def test_a_gradient_is_clipped_for_each_client_by_itself():
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    clip_(gradient, 1.0)
    assert torch.allclose(gradient, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64), atol=1e-6)


def test_an_idle_client_stays_as_it_is_under_adamw():
    active = torch.tensor([[True], [False], [True]])
    models = descended(Supervised(lr=0.1, optimiser="adamw", weight_decay=0.3), active=active)
    assert torch.equal(models[1], start()[1])
    assert not torch.equal(models[0], start()[0])


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_no_gradient_pull_or_decay_moves_a_buffer(optimiser):
    layout = Layout.of({"x": (D - 2,), "norm.running_mean": (2,)})
    buffered = Layout.of(dict(zip(layout.names, layout.shapes, strict=True)), buffers=["norm.running_mean"])
    learner = Supervised(lr=0.1, optimiser=optimiser, weight_decay=0.3, clip_gradient=5.0)
    pull = Pull(0.5, torch.zeros(N, D, dtype=torch.float64))
    with pytest.raises(UserError, match=r"call it with batch\.training"):
        descended(learner, buffered, pull=pull)
    model, addresses = start(), Addresses.of([Address(0, client) for client in range(N)])
    gradient = Autograd(buffered, model, lambda own, batch: _read(batch).expand(N) + own["x"].square().sum(1))
    descent = Descent(learner, model, buffered, gradient, pull, addresses)
    descent.step(BATCH, None)
    assert torch.equal(model[:, -2:], start()[:, -2:])
    assert (model[:, :-2] != start()[:, :-2]).all()


def _read(batch):
    batch.training.readers.add("")
    return torch.zeros((), dtype=torch.float64)


# -- schedules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "closed_form"),
    [
        (Schedule(), lambda t: 1.0),
        (Schedule("step", period=3, decay=0.5), lambda t: 0.5 ** (t // 3)),
        (Schedule("cosine", period=8, decay=0.1), lambda t: 0.1 + 0.9 * (1 + math.cos(math.pi * min(t, 8) / 8)) / 2),
        (Schedule(warm_up=4), lambda t: min(1.0, (t + 1) / 4)),
        (Schedule("step", period=3, decay=0.5, warm_up=2), lambda t: 0.5 ** (t // 3) * min(1.0, (t + 1) / 2)),
    ],
)
def test_a_schedule_has_its_closed_form(schedule, closed_form):
    factors = schedule(torch.arange(1, 13))
    expected = torch.tensor([closed_form(t) for t in range(12)], dtype=torch.float64)
    assert torch.allclose(factors, expected, atol=1e-12)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_the_step_size_follows_the_round(optimiser):
    scheduled = Supervised(lr=0.2, optimiser=optimiser, lr_schedule="step", lr_period=2, lr_decay=0.5, weight_decay=0.1)
    for round, lr in ((1, 0.2), (2, 0.2), (3, 0.1), (5, 0.05)):
        constant = Supervised(lr=lr, optimiser=optimiser, weight_decay=0.1)
        assert torch.allclose(descended(scheduled, round=round), descended(constant), atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip_gradient": 0}, "clip_gradient is 0; it is above 0, or inf"),
        ({"lr_period": 0}, "lr_period is 0; it is at least 1"),
        ({"lr_warm_up": -1}, "lr_warm_up is -1; it is at least 0"),
        ({"lr_decay": 2.0}, "lr_decay is 2; it is at least 0 and at most 1"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(wrong, message):
    with pytest.raises(UserError, match=message):
        Supervised(**wrong)
