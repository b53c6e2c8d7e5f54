from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.errors import UserError
from fedpareto.problems import partitions
from fedpareto.problems.fairness.partitions import Partition


def stream(seed=0):
    return np.random.default_rng(seed)


def table(owner, classes, clients):
    """Rows of each client and class, `[clients, classes]`."""
    counts = np.zeros((clients, classes.max() + 1), dtype=int)
    np.add.at(counts, (owner, classes), 1)
    return counts


CLASSES = stream().choice(4, size=1003, p=[0.6, 0.25, 0.1, 0.05])


@pytest.mark.parametrize(
    "deal",
    [
        lambda n: partitions.at_random(len(CLASSES), n, stream()),
        lambda n: partitions.stratified(CLASSES, n, stream()),
        lambda n: partitions.dirichlet(CLASSES, n, 0.1, stream()),
        lambda n: partitions.by_class(CLASSES, np.full((4, n), 1 / n), stream()),
    ],
    ids=["random", "stratified", "dirichlet", "shares"],
)
@pytest.mark.parametrize("clients", [1, 7, 50])
def test_every_row_has_exactly_one_owner_and_everyone_has_rows(deal, clients):
    owner = deal(clients)
    assert owner.shape == CLASSES.shape
    assert sorted(set(owner)) == list(range(clients))


def test_random_and_stratified_deal_alike_to_all():
    for owner in (partitions.at_random(1003, 10, stream()), partitions.stratified(CLASSES, 10, stream())):
        assert set(np.bincount(owner)) == {100, 101}


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 20), kinds=st.integers(1, 9), rows=st.integers(20, 200))
def test_stratified_keeps_the_proportions_of_all_classes_within_one_row(seed, clients, kinds, rows):
    classes = stream(seed).integers(0, kinds, rows)
    counts = table(partitions.stratified(classes, clients, stream(seed)), classes, clients)
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_shares_are_as_given():
    owner = partitions.by_class(np.zeros(1003), np.array([[0.5, 0.3, 0.2]]), stream())
    assert np.bincount(owner) / 1003 == pytest.approx([0.5, 0.3, 0.2], abs=0.001)


def test_dirichlet_tends_to_even_shares_as_alpha_grows_and_to_uneven_ones_as_it_falls():
    def spread(alpha):
        counts = table(partitions.dirichlet(CLASSES, 5, alpha, stream(3)), CLASSES, 5)
        return (counts / counts.sum(axis=0)).std()

    assert spread(1e6) < 0.01 < spread(1.0) < spread(0.05)


def test_dirichlet_leaves_no_client_with_less_than_ten_rows():
    for seed in range(20):
        assert np.bincount(partitions.dirichlet(CLASSES, 50, 0.05, stream(seed)), minlength=50).min() >= 10
    assert np.bincount(partitions.dirichlet(CLASSES[:30], 10, 0.05, stream()), minlength=10).tolist() == [3] * 10


def test_a_silo_stays_whole_and_small_ones_share_a_client():
    values = np.repeat([0, 1, 2, 3], [50, 10, 30, 15])
    assert np.bincount(partitions.silos(values, 4)).tolist() == [50, 30, 15, 10]
    owner = partitions.silos(values, 2)
    assert np.bincount(owner).tolist() == [50, 55]
    assert all(len(set(owner[values == value])) == 1 for value in range(4))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 6), rows=st.integers(10, 300))
def test_the_parts_of_a_client_have_their_shares_of_each_class(seed, clients, rows):
    classes, owner = stream(seed).integers(0, 3, rows), stream(seed + 1).integers(0, clients, rows)
    shares = (0.6, 0.2, 0.2)
    part = partitions.parts(owner, classes, shares, seed)
    for client in range(clients):
        for kind in range(3):
            mine = part[(owner == client) & (classes == kind)]
            counts = np.bincount(mine, minlength=3)
            assert counts.sum() == len(mine)
            assert np.abs(counts - len(mine) * np.array(shares)).max() < 1.5
            if len(mine) >= 3:
                assert counts.min() > 0
            if len(mine) == 2:
                assert counts.tolist() == [1, 0, 1]


def test_parts_follow_the_seed():
    owner = CLASSES % 2
    first, again, other = (partitions.parts(owner, CLASSES, (0.7, 0.3), seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(first) == {0, 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stratified", Partition("stratified")),
        ("column:marital-status", Partition("column", column="marital-status")),
        ("shares:0.5, 0.3,0.2", Partition("shares", shares=(0.5, 0.3, 0.2))),
    ],
)
def test_partitions_are_read(text, expected):
    assert Partition.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["stratfied", "column:", "column", "shares:", "shares:0.5,0.6", "shares:1,-0", "shares:a"]
)
def test_a_partition_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="partition"):
        Partition.parse(text)
