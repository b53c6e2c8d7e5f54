from __future__ import annotations

import pytest
import torch

from fedpareto.moo.similarity import cosines


def test_cosines_by_hand() -> None:
    rows = torch.tensor([[1.0, 0], [2, 2], [0, -3], [-5, 0]])
    half = 0.5**0.5
    expected = torch.tensor([[1, half, 0, -1], [half, 1, -half, -half], [0, -half, 1, 0], [-1, -half, 0, 1]])
    assert torch.allclose(cosines(rows), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_row_is_like_itself_and_at_right_angles_to_the_others(dtype: torch.dtype) -> None:
    similarity = cosines(torch.tensor([[0.0, 0], [1, 1], [0, 0]], dtype=dtype))
    assert torch.equal(similarity, torch.eye(3, dtype=dtype))
