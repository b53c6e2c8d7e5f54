from __future__ import annotations

import pytest
import torch

from fedpareto.moo.similarity import cosines, cosines_of


def test_cosines_by_hand() -> None:
    rows = torch.tensor([[1.0, 0], [2, 2], [0, -3], [-5, 0]])
    half = 0.5**0.5
    expected = torch.tensor([[1, half, 0, -1], [half, 1, -half, -half], [0, -half, 1, 0], [-1, -half, 0, 1]])
    assert torch.allclose(cosines(rows), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_row_is_like_itself_and_at_right_angles_to_the_others(dtype: torch.dtype) -> None:
    similarity = cosines(torch.tensor([[0.0, 0], [1, 1], [0, 0]], dtype=dtype))
    assert torch.equal(similarity, torch.eye(3, dtype=dtype))


def test_cosines_of_some_rows_are_those_rows_of_all() -> None:
    vectors = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[0.1], [3], [1], [0], [9], [2]]
    )
    for rows in ([0], [4, 1], [3, 5, 0]):
        assert torch.allclose(cosines_of(torch.tensor(rows), vectors), cosines(vectors)[rows], atol=1e-6)
