"""MOON against FedAvg where both are the same, and against a plain loop by autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from personal_models import CLIENTS, SEED

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.moon import MOON
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.synthetic import Synthetic
from fedpareto.spec.draft import Draft
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import largest_difference, trial

PROBLEM = Synthetic(hidden=(6, 4), rows=400)
LR, STEPS, MU, TAU = 0.1, 3, 2.0, 0.5
FULL_BATCH = Supervised(lr=LR, batch_size=10_000, epochs=STEPS)


def done_by(algorithm, rounds):
    return trial(algorithm, PROBLEM, rounds=rounds, learner=FULL_BATCH)


def test_without_contrast_and_in_the_first_round_it_is_fedavg():
    """In the first round a client's last model is the global one, so it is drawn to and fro by the same."""
    assert largest_difference(done_by(MOON(mu=0.0), 2).models, done_by(FedAvg(), 2).models) == 0
    assert largest_difference(done_by(MOON(mu=MU), 1).models, done_by(FedAvg(), 1).models) <= 1e-12
    assert largest_difference(done_by(MOON(mu=MU), 2).models, done_by(FedAvg(), 2).models) > 1e-4


def hidden(theta, features):
    """The last hidden layer of a 2-6-4-1 network whose tensors lie one after the other."""
    values, place = features, 0
    for fan_in, fan_out in ((2, 6), (6, 4)):
        weight = theta[place : place + fan_in * fan_out].view(fan_in, fan_out)
        bias = theta[place + fan_in * fan_out : place + (fan_in + 1) * fan_out]
        values, place = torch.relu(values @ weight + bias), place + (fan_in + 1) * fan_out
    return values


def test_a_stack_equals_a_plain_loop_over_clients():
    federation = Federation.create(PROBLEM, CLIENTS, SEED, "dirichlet")
    model, previous = PROBLEM.initial(SEED).double(), [PROBLEM.initial(SEED).double()] * CLIENTS
    rows = federation.splits["train"].to(torch.device("cpu"), torch.float64)
    tables = [rows.of_client(i) for i in range(CLIENTS)]
    preferences = torch.as_tensor(federation.preferences)
    for _ in range(3):
        trained = model.expand(CLIENTS, -1).clone()
        for _ in range(STEPS):
            trained.requires_grad_()
            loss = torch.zeros(())
            for i, table in enumerate(tables):
                batch = Batch(
                    {name: column[None] for name, column in table.items()}, torch.ones(1, len(table["label"]))
                )
                loss = loss + preferences[i] @ PROBLEM.losses(PROBLEM.layout.unflatten(trained[i : i + 1]), batch)[0]
                z, like, unlike = (hidden(one, table["features"]) for one in (trained[i], model, previous[i]))
                to, fro = (torch.cosine_similarity(z, other) / TAU for other in (like, unlike))
                loss = loss - MU * torch.log(to.exp() / (to.exp() + fro.exp())).mean()
            (slope,) = torch.autograd.grad(loss, trained)
            trained = (trained - LR * slope).detach()
        model, previous = trained.mean(0), list(trained)
    found = done_by(MOON("equal", mu=MU, temperature=TAU), 3).states[-1].model
    assert float((found - model).abs().max()) <= 1e-8


def test_a_network_whose_hidden_layer_cannot_be_read_is_refused_in_one_line():
    with pytest.raises(UserError, match="moon compares what the last hidden layer sees; of 'digit-pairs' that is not"):
        Draft({"algorithm": "moon", "problem": "digit-pairs"}).finish()
    for wrong, message in (
        ({"mu": -1.0}, "mu is -1; it is at least 0"),
        ({"temperature": 0.0}, "temperature is 0; it is above 0"),
    ):
        with pytest.raises(UserError, match=message):
            replace(MOON(), **wrong)
