"""Sums and inner products of updates by blocks, against the plain formulas."""

from __future__ import annotations

import pytest
import torch

from fedpareto.moo import updates
from fedpareto.moo.updates import gram_of_updates, sum_of_updates


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("entries", [1, 1000, updates.ENTRIES])
def test_blocks_give_what_the_whole_gives(dtype: torch.dtype, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "ENTRIES", entries)
    generator = torch.Generator().manual_seed(0)
    origin = torch.randn(331, generator=generator, dtype=dtype)
    models = torch.randn(5, 331, generator=generator, dtype=dtype)
    factors = torch.randn(5, generator=generator, dtype=torch.float64)
    whole = (models - origin).double()
    assert torch.allclose(gram_of_updates(models, origin), whole @ whole.T, rtol=1e-12)
    assert torch.allclose(sum_of_updates(factors, models, origin), factors @ whole, rtol=1e-10, atol=1e-12)


def test_squares_beyond_single_precision() -> None:
    origin = torch.zeros(3)
    models = torch.tensor([[1e-30, 0, 0], [0, 1e30, 0]])
    assert gram_of_updates(models, origin).diagonal().tolist() == pytest.approx([1e-60, 1e60], rel=1e-6)
