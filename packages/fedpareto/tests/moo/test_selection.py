from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.moo.selection import SAMPLE, kth_smallest


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.sampled_from([1, 7, 4095, 4096, 9001]),
    where=st.floats(0, 1),
    kind=st.sampled_from(["normal", "ties", "sorted", "zeros", "heavy"]),
)
def test_kth_smallest_is_exact_on_any_kind_of_row(seed, length, where, kind):
    stream = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, length, generator=stream)
    rows = {
        "normal": rows,
        "ties": rows.round(),
        "sorted": rows.sort(dim=1).values,
        "zeros": torch.zeros_like(rows),
        "heavy": rows.exp() ** 3,
    }[kind]
    k = max(1, round(where * length))
    assert torch.equal(kth_smallest(rows, k), rows.sort(dim=1).values[:, k - 1 : k])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kth_smallest_keeps_the_precision(dtype):
    rows = torch.rand(2, 5000, dtype=dtype)
    assert kth_smallest(rows, 2500).dtype == dtype
    assert torch.equal(kth_smallest(rows, 2500), rows.sort(dim=1).values[:, 2499:2500])


@pytest.mark.parametrize("sampled", [-9.0, 9.0])
def test_it_is_exact_where_the_sample_is_like_no_other_entry(sampled):
    rows = torch.rand(1, 8192, generator=torch.Generator().manual_seed(1))
    rows[:, :: 8192 // SAMPLE | 1] += sampled
    wanted = rows.sort(dim=1).values
    for k in (1, 2, 700, 1700, 4000, 6500, 6553, 8191, 8192):
        assert torch.equal(kth_smallest(rows, k), wanted[:, k - 1 : k])
