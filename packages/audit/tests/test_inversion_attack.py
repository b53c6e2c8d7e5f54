"""Rows from gradients: exact in closed form for a linear layer with one row, and by search where there is none."""

from __future__ import annotations

import math

import torch

from fedpareto_audit import inversion_attack as attack


def gradients(rows, seed=0, outputs=40, weight_scale=0.3):
    """Of the first layer of a small ReLU network on rows `[b, in]`: weight `[in, out]` and bias `[out]`."""
    stream = torch.Generator().manual_seed(seed)
    weight = (weight_scale * torch.randn(rows.shape[1], outputs, generator=stream).double()).requires_grad_()
    bias = (weight_scale * torch.randn(outputs, generator=stream).double()).requires_grad_()
    last = torch.randn(outputs, generator=stream).double()
    loss = torch.nn.functional.softplus(torch.relu(rows @ weight + bias) @ last).mean()
    return torch.autograd.grad(loss, (weight, bias))


def some_rows(count, width=12, seed=1):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).double()


def test_one_row_is_recovered_exactly():
    rows = some_rows(1)
    assert torch.allclose(attack.rows_of_linear(*gradients(rows), 1), rows, atol=1e-10)


def test_few_rows_are_recovered_from_units_that_only_one_excites_and_many_are_not():
    for count, wanted in ((3, 0.99), (30, -0.3)):
        rows = some_rows(count)
        found = attack.paired(attack.rows_of_linear(*gradients(rows, outputs=200), count), rows)
        exact = attack.features_recovered(found, rows, torch.ones(12)).eq(1).double().mean()
        assert exact >= wanted if wanted > 0 else exact <= -wanted


def test_noise_hides_a_row_and_silence_is_no_error():
    rows = some_rows(1)
    weight, bias = gradients(rows)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)).double()
    found = attack.rows_of_linear(weight + 100 * noise, bias + 100 * noise[0], 1)
    assert attack.features_recovered(found, rows, torch.ones(12)).item() < 0.5
    assert torch.equal(attack.rows_of_linear(0 * weight, 0 * bias, 2), torch.zeros(2, 12).double())


def test_a_search_finds_the_row_whose_gradient_it_is_given():
    rows = some_rows(1).clamp(-2, 2).unsqueeze(0)
    stream = torch.Generator().manual_seed(4)
    layer = torch.randn(12, 30, generator=stream).double()

    def gradient_of(rows, wants):
        return torch.tanh(rows @ layer).flatten(1)

    target = gradient_of(rows, None)
    low, high = torch.tensor(-2.0).double(), torch.tensor(2.0).double()
    found, apart = attack.matched(
        gradient_of, target, torch.zeros_like(rows), 2, low, high, attack.Search(steps=300, lr=0.05)
    )
    assert float(apart) < 0.01
    before = (rows**2).mean()
    assert ((found - rows) ** 2).mean() < 0.1 * before


def test_rows_are_paired_with_their_nearest_whatever_their_order():
    rows = some_rows(5)
    assert torch.equal(attack.paired(rows.flip(0), rows), rows)


def test_decibels_are_those_of_the_definition_and_end_where_an_image_is_exact():
    image = torch.zeros(1, 2, 2).double()
    assert math.isclose(float(attack.peak_signal_to_noise(image + 25.5, image, 255)), 20)
    assert float(attack.peak_signal_to_noise(image, image, 255)) == attack.EXACT
