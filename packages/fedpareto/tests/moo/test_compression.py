from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpareto.moo.compression import compress, default_rank, near_square, rearrange, restore
from fedpareto.moo.updates import sum_of_products
from fedpareto.tensors import rng

SHAPES = [(1, 2), (8, 2), (7, 3), (100, 6), (8577, 2), (8577, 6), (2, 8)]


def mean_jacobian(left: Tensor, right: Tensor, d: int, m: int) -> Tensor:
    """`[m, d]`, from factors."""
    return restore(sum_of_products(left, right)[None] / len(left), d, m)[0]


def streams(count: int) -> Callable[[int], Tensor]:
    return partial(rng.Addresses.at(0, np.arange(count), round=1).normal, "compression")


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("d", "m"), SHAPES)
def test_restoring_undoes_the_rearrangement(d: int, m: int) -> None:
    jacobians = noise(3, m, d)
    square = rearrange(jacobians)
    assert square.shape[1:] == near_square(d, m)
    assert torch.equal(restore(square, d, m), jacobians)


def test_the_rearrangement_puts_blocks_of_rows_side_by_side() -> None:
    """d = 5, m = 2: ⌊√10⌋ = 3 rows; the gradients' entries 0 to 2 left, 3 and 4 right, then zeros."""
    jacobian = torch.tensor([[1.0, 2, 3, 4, 5], [10, 20, 30, 40, 50]])
    expected = [[1, 10, 4, 40], [2, 20, 5, 50], [3, 30, 0, 0]]
    assert rearrange(jacobian[None])[0].tolist() == expected


@pytest.mark.parametrize("m", range(2, 7))
def test_by_default_the_factors_hold_about_as_many_numbers_as_the_model(m: int) -> None:
    for d in (5_000, 8_577, 100_000):
        rank, (rows, columns) = default_rank(d, m), near_square(d, m)
        assert 0.93 <= rank * (rows + columns) / d <= 1.02


@pytest.mark.parametrize(("d", "m"), SHAPES)
def test_full_rank_is_exact(d: int, m: int) -> None:
    jacobians = noise(2, m, min(d, 200))
    d = jacobians.shape[2]
    left, right = compress(jacobians, min(near_square(d, m)), streams(2))
    assert torch.allclose(mean_jacobian(left, right, d, m), jacobians.mean(dim=0), atol=1e-10)


@pytest.mark.parametrize("rank", [1, 4, 12])
def test_the_error_is_near_the_least_possible(rank: int) -> None:
    """Eckart and Young: no factors of this rank can be nearer than the singular values left out."""
    jacobian = noise(1, 2, 800)
    u, s, vh = torch.linalg.svd(rearrange(jacobian)[0])
    spectrum = 0.8 ** torch.arange(len(s)).double()
    matrix = (u[:, : len(s)] * spectrum) @ vh[: len(s)]
    left, right = compress(restore(matrix[None], 800, 2), rank, streams(1))
    least = spectrum[rank:].norm()
    assert (left[0] @ right[0] - matrix).norm() <= 1.1 * least + 1e-12


def test_a_matrix_of_low_rank_is_kept_whole() -> None:
    square = noise(1, 40, 3) @ noise(1, 3, 40, seed=1)
    jacobian = restore(square, 800, 2)
    left, right = compress(jacobian, 3, streams(1))
    assert torch.allclose(left @ right, square, atol=1e-10)


def test_a_clients_factors_do_not_depend_on_its_neighbours() -> None:
    jacobians = noise(4, 2, 300)
    everyone = rng.Addresses.at(0, np.arange(4), round=1)
    together = torch.matmul(*compress(jacobians, 3, streams(4)))
    for client in range(4):
        alone = torch.matmul(
            *compress(jacobians[client : client + 1], 3, partial(everyone[client : client + 1].normal, "compression"))
        )
        assert torch.allclose(alone[0], together[client], atol=1e-12)


def test_zero_gradients_give_zero_factors() -> None:
    left, right = compress(torch.zeros(2, 3, 50), 2, streams(2))
    assert left.isfinite().all()
    assert right.isfinite().all()
    assert mean_jacobian(left, right, 50, 3).abs().max() == 0
