"""Numbers are functions of their address: the published vectors, any chunk, and the distributions they claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import ndtri
from torch import Tensor

from fedpareto.tensors import rng
from fedpareto.tensors.quantiles import logarithm, normal_quantile

ONES, PI = (1 << 32) - 1, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter_and_key", "expected"),
    [
        ((0,) * 6, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 6, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
@pytest.mark.parametrize("kind", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_philox_gives_the_words_that_its_authors_published(
    counter_and_key: tuple[int, ...], expected: str, kind: Callable[[list[int]], Any]
) -> None:
    *counter, first, second = (kind([word]) for word in counter_and_key)
    assert [f"{int(word[0]):08x}" for word in rng.philox(counter, (first, second))] == expected.split()


def _everyone(n: int = 40, seed: int = 3) -> rng.Addresses:
    return rng.Addresses.at(seed, np.arange(n), round=2, lane=1)


def test_pairs_of_numbers_without_tensors_are_those_of_addresses() -> None:
    wanted = rng.Addresses.at(2**63 + 5, np.arange(40), round=2, lane=1).uniform("x", 8, dtype=torch.float64)
    for place in range(4):
        first, second = rng.pairs(2**63 + 5, np.arange(40), 2, 1, "x", place)
        assert first.tolist() == wanted[:, 2 * place].tolist()
        assert second.tolist() == wanted[:, 2 * place + 1].tolist()


def test_a_client_draws_the_same_alone_and_in_any_stack() -> None:
    everyone, order = _everyone(), np.array([7, 3, 31])
    for draw in ("words", "uniform", "normal", "exponential"):
        whole: Tensor = getattr(everyone, draw)("batches", 13)
        assert torch.equal(getattr(everyone[order], draw)("batches", 13), whole[order])
        assert torch.equal(getattr(everyone[5:6], draw)("batches", 13)[0], whole[5])


def test_a_stream_goes_on_where_it_stopped_also_at_a_position_in_a_tensor() -> None:
    whole = _everyone().words("masks", 24)
    assert torch.equal(_everyone().words("masks", 12, start=12), whole[:, 12:])
    assert torch.equal(_everyone().words("masks", 12, start=torch.tensor(12)), whole[:, 12:])
    assert torch.equal(_everyone().normal("masks", 8, start=4), _everyone().normal("masks", 12)[:, 4:])


def test_every_part_of_an_address_gives_another_stream() -> None:
    one = rng.Address(3, 1, 2, 0)
    others = [rng.Address(4, 1, 2, 0), rng.Address(3, 2, 2, 0), rng.Address(3, 1, 3, 0), rng.Address(3, 1, 2, 1)]
    far = [rng.Address(3 + 2**32, 1, 2, 0), rng.Address(3, rng.SERVER, 2, 0), rng.Address(3, 1, 2, -1)]
    words = rng.Addresses.of([one, *others, *far]).words("a", 8)
    assert len(words.unique()) == words.numel()
    assert not (rng.Addresses.of([one]).words("b", 8) == words[0]).any()


def test_orders_are_permutations_whatever_the_longest_of_the_stack_is() -> None:
    counts = torch.arange(1, 41)
    orders = _everyone().orders("batches", counts, passes=2, longest=50)
    for client, count in enumerate(counts.tolist()):
        alone = _everyone()[client : client + 1].orders("batches", counts[client : client + 1], 2, count)
        assert torch.equal(alone[0], orders[client, :, :count])
        assert torch.equal(alone.sort(-1).values[0, 0], torch.arange(count))
        assert orders[client, 0, count:].tolist() == list(range(count, 50))
    assert not torch.equal(orders[-1, 0], orders[-1, 1])


def test_each_row_comes_first_equally_often() -> None:
    first = _everyone(6000).orders("batches", torch.full((6000,), 6), 1, 6)[:, 0, 0]
    assert stats.chisquare(np.bincount(first.numpy(), minlength=6)).pvalue > 1e-3


def test_numbers_are_distributed_as_they_say() -> None:
    many = _everyone(100)
    assert stats.kstest(many.uniform("u", 200).flatten(), "uniform").pvalue > 1e-3
    assert stats.kstest(many.uniform("u", 200, dtype=torch.float64).flatten(), "uniform").pvalue > 1e-3
    assert stats.kstest(many.normal("n", 200).flatten(), "norm").pvalue > 1e-3
    assert stats.kstest(many.exponential("e", 200).flatten(), "expon").pvalue > 1e-3


def test_logarithm_and_quantile_are_those_of_the_libraries() -> None:
    inside = torch.cat(
        [torch.linspace(1e-6, 1 - 1e-6, 9999, dtype=torch.float64), 2.0 ** -torch.arange(1.0, 60).double()]
    )
    assert torch.allclose(logarithm(inside), inside.log(), rtol=1e-15, atol=0)
    assert np.allclose(normal_quantile(inside).numpy(), ndtri(inside.numpy()), rtol=1e-14, atol=1e-14)
