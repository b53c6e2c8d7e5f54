from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import UserError
from fedpareto.problems import partitions
from fedpareto.problems.fairness.partitions import Partition
from fedpareto.problems.partitions import UNASSIGNED


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


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 10), each=st.integers(1, 4), spare=st.integers(0, 9))
def test_shards_are_pieces_of_the_rows_in_order_of_class(seed, clients, each, spare):
    classes = stream(seed).integers(0, 5, 400)
    count = clients * each + spare
    owner = partitions.shards(classes, clients, count, each, stream(seed))
    sizes = np.bincount(owner + 1, minlength=clients + 1)[1:]
    smallest = len(classes) // count
    assert (each * smallest <= sizes).all()
    assert (sizes <= each * (smallest + 1)).all()
    assert (owner == partitions.UNASSIGNED).sum() == len(classes) - sizes.sum()
    assert spare or UNASSIGNED not in owner
    # A piece in the order of classes meets one more class than it has borders inside.
    borders = len(np.unique(classes)) - 1
    assert table(owner[owner >= 0], classes[owner >= 0], clients).astype(bool).sum() <= clients * each + borders


def test_no_client_of_one_hundred_with_five_shards_has_more_than_five_classes():
    """FedMGDA+: 500 shards of 50,000 rows in ten classes, 5 a user."""
    classes = np.repeat(np.arange(10), 5000)
    owner = partitions.shards(classes, 100, 500, 5, stream(1))
    assert np.bincount(owner).tolist() == [500] * 100
    assert (table(owner, classes, 100) > 0).sum(axis=1).max() <= 5


def test_shards_that_do_not_suffice_are_refused():
    with pytest.raises(UserError, match="10 clients with 5 shards each need 50 shards; there are 49"):
        partitions.shards(CLASSES, 10, 49, 5, stream())
    with pytest.raises(UserError, match="1,003 rows cannot be cut into 2000 shards"):
        partitions.shards(CLASSES, 10, 2000, 5, stream())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 12), each=st.integers(1, 5), kinds=st.integers(5, 9))
def test_a_client_of_few_classes_has_exactly_so_many_and_shares_them_evenly(seed, clients, each, kinds):
    classes = np.concatenate([np.arange(kinds), stream(seed).integers(0, kinds, 300)]).repeat(12)
    owner = partitions.few_classes(classes, clients, each, stream(seed))
    counts = table(owner[owner >= 0], classes[owner >= 0], clients)
    holders = np.zeros(kinds, dtype=int)
    holders[: counts.shape[1]] = (counts > 0).sum(axis=0)
    assert ((counts > 0).sum(axis=1) == each).all()
    assert np.ptp(holders) <= 1
    assert (holders > 0).all() or clients * each < kinds
    for kind in range(kinds):
        mine = owner[classes == kind]
        assert (mine == UNASSIGNED).all() or UNASSIGNED not in mine
        if holders[kind]:
            shares = np.bincount(mine)[np.unique(mine)]
            assert np.ptp(shares) <= 1


def test_more_classes_a_client_than_there_are_is_refused():
    with pytest.raises(UserError, match="classes_per_client is 5; there are 4 classes"):
        partitions.few_classes(CLASSES, 3, 5, stream())


def test_other_rows_go_alike():
    owner = partitions.dirichlet(CLASSES, 5, 0.3, stream(2))
    others = np.repeat(np.arange(4), 1000)
    found = partitions.alike(owner, CLASSES, others, stream(3))
    shares = table(owner, CLASSES, 5) / np.bincount(CLASSES)
    assert table(found, others, 5) / 1000 == pytest.approx(shares, abs=0.001)
    only = partitions.alike(owner[CLASSES < 2], CLASSES[CLASSES < 2], others, stream(3))
    assert (only[others >= 2] == UNASSIGNED).all()
    assert (only[others < 2] != UNASSIGNED).all()


@pytest.mark.parametrize(
    "deal",
    [
        lambda s: partitions.shards(CLASSES, 5, 20, 2, s),
        lambda s: partitions.few_classes(CLASSES, 5, 2, s),
        lambda s: partitions.dirichlet(CLASSES, 5, 0.5, s),
    ],
    ids=["shards", "few classes", "dirichlet"],
)
def test_partitions_follow_their_stream(deal):
    assert np.array_equal(deal(stream(1)), deal(stream(1)))
    assert not np.array_equal(deal(stream(1)), deal(stream(2)))


def test_a_silo_stays_whole_and_small_ones_share_a_client():
    values = np.repeat([0, 1, 2, 3], [50, 10, 30, 15])
    assert np.bincount(partitions.silos(values, 4)).tolist() == [50, 30, 15, 10]
    owner = partitions.silos(values, 2)
    assert np.bincount(owner).tolist() == [50, 55]
    assert all(len(set(owner[values == value])) == 1 for value in range(4))


SHARES = (0.6, 0.2, 0.2)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 6), rows=st.integers(10, 300))
def test_the_parts_of_a_client_have_their_shares_of_each_class_where_each_is_rounded_by_itself(seed, clients, rows):
    classes, owner = stream(seed).integers(0, 3, rows), stream(seed + 1).integers(0, clients, rows)
    part = partitions.parts_of_each(owner, classes, SHARES, seed)
    for client in range(clients):
        for kind in range(3):
            mine = part[(owner == client) & (classes == kind)]
            counts = np.bincount(mine, minlength=3)
            assert counts.sum() == len(mine)
            assert np.abs(counts - len(mine) * np.array(SHARES)).max() < 1.5
            if len(mine) >= 3:
                assert counts.min() > 0
            if len(mine) == 2:
                assert counts.tolist() == [1, 0, 1]


def by_label(labels, clients, seed):
    """Silos of one label each: nobody has rows of both."""
    return np.where(labels == 1, stream(seed).integers(0, clients // 2, len(labels)), clients // 2) + 0 * labels


OWNERS = {
    "random": lambda labels, classes, n, seed: partitions.at_random(len(labels), n, stream(seed)),
    "stratified": lambda labels, classes, n, seed: partitions.stratified(classes, n, stream(seed)),
    "dirichlet-label": lambda labels, classes, n, seed: partitions.dirichlet(labels, n, 0.3, stream(seed)),
    "dirichlet-group": lambda labels, classes, n, seed: partitions.dirichlet(classes % 3, n, 0.3, stream(seed)),
    "column": lambda labels, classes, n, seed: partitions.silos(np.arange(len(labels)) % 41 + 41 * labels, n),
    "one label each": lambda labels, classes, n, seed: by_label(labels, n, seed),
    "shares": lambda labels, classes, n, seed: partitions.by_class(
        0 * labels, np.arange(1, n + 1)[None] / (n * (n + 1) / 2), stream(seed)
    ),
    "rule": lambda labels, classes, n, seed: partitions.by_class(
        (classes % 3 == 0).astype(int),
        np.array([np.arange(1, n + 1), np.arange(n, 0, -1)]) / (n * (n + 1) / 2),
        stream(seed),
    ),
}


TABLES = [
    (1000, 5, 0.3, (0.31, 0.69)),
    (1000, 40, 0.3, (0.31, 0.69)),
    (1000, 100, 0.3, (0.31, 0.69)),
    (649, 20, 0.846, (0.4, 0.6)),
    (200, 40, 0.3, (0.3, 0.7)),
    (130, 40, 0.1, (0.1, 0.2, 0.7)),
    (20000, 10, 0.48, (0.5, 0.5)),
    (40, 1, 0.5, (0.5, 0.5)),
]
TOO_FEW = {("one label each", 200), ("one label each", 130), ("shares", 130)}
"""Where every client has one test row, or none, and no choice which."""


@pytest.mark.parametrize(
    ("deal", "rows", "clients", "rate", "groups"),
    [(deal, *one) for deal in OWNERS for one in TABLES if (deal, one[0]) not in TOO_FEW],
)
@pytest.mark.parametrize("shares", [SHARES, (0.8, 0.2), (0.5, 0.25, 0.25)], ids=str)
def test_splits_have_the_base_rates_of_the_table(deal, rows, clients, rate, groups, shares):
    for seed in range(3):
        labels = (stream(seed).random(rows) < rate).astype(int)
        classes = 3 * labels + stream(seed + 1).choice(len(groups), size=rows, p=groups)
        owner = OWNERS[deal](labels, classes, clients, seed) if clients > 1 else np.zeros(rows, dtype=int)
        part = partitions.parts(owner, classes, shares, seed, labels)
        sizes = np.bincount(part, minlength=len(shares))
        for split in range(1, len(shares)):
            assert abs((labels[part == split] - labels.mean()).sum()) <= 0.5 + 1e-9
            for kind in np.unique(classes):
                expected = sizes[split] * (classes == kind).mean()
                assert abs(((classes == kind) & (part == split)).sum() - expected) <= 1 + 1e-9
        each = table(owner, part, int(owner.max()) + 1)
        enough = each.sum(axis=1) >= len(shares)
        assert each[enough].min() > 0
        if deal != "one label each":  # There only the numbers of rows can make up for rounding.
            assert np.abs(each - each.sum(axis=1, keepdims=True) * np.array(shares))[enough].max() < 2


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(10, 300))
def test_a_class_that_a_client_has_often_enough_is_in_each_of_its_splits_where_base_rates_allow_it(seed, rows):
    """As with one client, whose rates are the table's."""
    classes = stream(seed).integers(0, 3, rows)
    part = partitions.parts(np.zeros(rows, dtype=int), classes, SHARES, seed, 0 * classes)
    counts = table(classes, part, 3)
    assert np.abs(counts - counts.sum(axis=1, keepdims=True) * np.array(SHARES)).max() < 2
    assert (counts[counts.sum(axis=1) >= 6] > 0).all()


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


def test_a_column_as_a_partition_is_written_with_its_name():
    with pytest.raises(UserError, match=r"unknown partition 'branch'; .*by the values of a column: column:branch"):
        Partition.parse("branch")
