from __future__ import annotations

import pytest
import torch

from fedpareto.moo.updates import gram


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_gram_holds_all_inner_products_and_is_exactly_symmetric(count):
    rows = torch.randn(count, 37, dtype=torch.float64)
    products = gram(rows)
    assert torch.allclose(products, rows @ rows.T, atol=1e-12)
    assert torch.equal(products, products.T)
