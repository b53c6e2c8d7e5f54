"""Temperature scaling: the temperature that made the labels is found, and nobody is certain of few rows."""

from __future__ import annotations

import math

import pytest
import torch

from fedpareto.contract.calibration import COLDEST, HOTTEST, inverse_temperature


def drawn(temperature: float, rows: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits `[1, 1, rows]` that are too large by a factor, and labels drawn from the true probabilities."""
    generator = torch.Generator().manual_seed(3)
    true = torch.randn(1, 1, rows, generator=generator, dtype=torch.float64) * 2
    labels = (torch.rand(1, 1, rows, generator=generator, dtype=torch.float64) < true.sigmoid()).double()
    return true * temperature, labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0, 20.0])
def test_the_temperature_that_made_the_labels_is_found(temperature):
    logits, labels = drawn(temperature)
    found = inverse_temperature(logits, labels, torch.ones_like(labels))
    assert found.item() == pytest.approx(1 / temperature, rel=0.05)


def test_rows_that_are_separated_give_platt_s_probability_not_certainty():
    """Two rows, one of each label, far apart: σ(z/T) = (1 + 1)/(1 + 2), so z/T = ln 2."""
    logits = torch.tensor([[[50.0, -50.0]]], dtype=torch.float64)
    found = inverse_temperature(logits, torch.tensor([[[1.0, 0.0]]], dtype=torch.float64), torch.ones(1, 1, 2).double())
    assert found.item() * 50 == pytest.approx(math.log(2), rel=1e-6)


def test_padding_does_not_count_and_without_rows_nothing_changes():
    logits, labels = drawn(3.0, rows=500)
    alone = inverse_temperature(logits, labels, torch.ones_like(labels))
    padded = torch.cat([logits, torch.full((1, 1, 7), 9.0)], dim=-1), torch.cat([labels, torch.zeros(1, 1, 7)], dim=-1)
    mask = torch.cat([torch.ones_like(labels), torch.zeros(1, 1, 7)], dim=-1)
    assert inverse_temperature(*padded, mask).item() == pytest.approx(alone.item(), rel=1e-9)
    assert inverse_temperature(*padded, torch.zeros_like(mask)).item() == 1


def test_each_client_has_its_own_and_it_stays_within_bounds():
    logits, labels = drawn(3.0, rows=500)
    two = inverse_temperature(
        torch.cat([logits, -logits]), torch.cat([labels, labels]), torch.ones(2, 1, 500, dtype=torch.float64)
    )
    assert two[0].item() == pytest.approx(1 / 3, rel=0.3)
    assert two[1].item() == pytest.approx(1 / HOTTEST, rel=1e-6)  # It says the opposite of the truth.
    certain = inverse_temperature(logits * 1e-9, labels, torch.ones_like(labels))
    assert certain.item() == pytest.approx(1 / COLDEST, rel=1e-6)
