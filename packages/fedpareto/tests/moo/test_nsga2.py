from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedpareto.moo.dominance import is_nondominated
from fedpareto.moo.nsga2 import crossed, crowding, mutated, nsga2, smallest, survivors

N, SIZE = 12, 4


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sums(costs: np.ndarray):
    return lambda genomes: genomes @ costs


def every_subset(n: int = N, size: int = SIZE) -> np.ndarray:
    genomes = np.zeros((0, n), dtype=bool)
    for members in itertools.combinations(range(n), size):
        genomes = np.vstack([genomes, np.isin(np.arange(n), members)])
    return genomes


def random_subsets(count: int, n: int, size: int, chance: np.random.Generator) -> np.ndarray:
    return smallest(chance.random((count, n)), size)


def rows_of(genomes: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in genomes}


def test_crowding_by_hand() -> None:
    """The two neighbours' distance in each objective, over the front's range of 10."""
    front = np.array([[0.0, 10.0], [2.0, 6.0], [5.0, 5.0], [10.0, 0.0]])
    expected = [np.inf, (5 - 0) / 10 + (10 - 5) / 10, (10 - 2) / 10 + (6 - 0) / 10, np.inf]
    np.testing.assert_allclose(crowding(front, np.ones(4, dtype=int)), expected)


def test_points_of_another_front_are_no_neighbours() -> None:
    some, others = stream(1).random((5, 3)), stream(2).random((7, 3))
    fronts = np.repeat([2, 1], [5, 7])
    together = crowding(np.vstack([some, others]), fronts)
    np.testing.assert_array_equal(together[:5], crowding(some, np.ones(5, dtype=int)))
    np.testing.assert_array_equal(together[5:], crowding(others, np.ones(7, dtype=int)))


def test_an_objective_in_which_all_are_equal_separates_nobody() -> None:
    losses = np.column_stack([np.arange(4.0), np.zeros(4)])
    # The constant objective has a first and a last point too: they are those of the stable order.
    np.testing.assert_allclose(crowding(losses, np.ones(4, dtype=int)), [np.inf, 2 / 3, 2 / 3, np.inf])


def test_survivors_are_those_of_the_best_ranks_and_then_of_the_widest_gaps() -> None:
    genomes = every_subset(4, 2)[:5]
    #          rank 1: ends at infinity, then 0.9 > 0.6;                                     rank 2
    losses = np.array([[0.0, 10.0], [1.0, 9.0], [5.0, 5.0], [10.0, 0.0], [10.0, 10.0]])
    kept, values = survivors(genomes, losses, 3)
    np.testing.assert_array_equal(values, losses[[0, 3, 2]])
    np.testing.assert_array_equal(kept, genomes[[0, 3, 2]])
    assert rows_of(survivors(genomes, losses, 4)[0]) == rows_of(genomes[:4])


def test_of_equal_subsets_one_survives() -> None:
    genomes = every_subset(5, 2)[[3, 1, 3, 3, 1]]
    kept, _ = survivors(genomes, np.ones((5, 2)), 5)
    assert len(kept) == 2
    assert rows_of(kept) == rows_of(genomes)


def test_a_child_has_what_both_parents_have_and_nothing_that_neither_has() -> None:
    genomes = random_subsets(30, N, SIZE, stream())
    mothers, fathers = stream(1).integers(30, size=(2, 200))
    children = crossed(genomes, mothers, fathers, stream(2))
    assert (children.sum(axis=1) == SIZE).all()
    assert (children >= (genomes[mothers] & genomes[fathers])).all()
    assert (children <= (genomes[mothers] | genomes[fathers])).all()
    different = (genomes[mothers] != genomes[fathers]).any(axis=1)
    assert (children != genomes[mothers])[different].any(axis=1).mean() > 0.5, "children are not copies"


def test_a_mutation_keeps_the_size_and_exchanges_one_on_average() -> None:
    genomes = random_subsets(4000, 100, 20, stream())
    changed = mutated(genomes, stream(1))
    assert (changed.sum(axis=1) == 20).all()
    left = (genomes & ~changed).sum(axis=1)
    # Binomial(20, 1/20) has the mean 1; a place exchanged twice, or somebody who returns, makes it a little less.
    assert 0.9 < left.mean() < 1.0
    assert 0.3 < (left == 0).mean() < 0.42, "(1 - 1/20)^20 = 0.358"


def test_a_set_of_everybody_stays_as_it_is() -> None:
    everybody = np.ones((3, 5), dtype=bool)
    np.testing.assert_array_equal(mutated(everybody, stream()), everybody)
    genomes, losses = nsga2(sums(np.eye(5)), everybody, stream(), population=4, generations=3)
    np.testing.assert_array_equal(genomes, everybody[:1])
    np.testing.assert_array_equal(losses, np.ones((1, 5)))


def test_the_smallest_of_each_row_and_of_equal_ones_the_first() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0], [5.0, 1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(smallest(scores, 2), np.array([[0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0]], bool))


def test_a_child_may_be_any_mixture_of_its_parents() -> None:
    parents = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)
    zeros = np.zeros(6000, dtype=int)
    _, counts = np.unique(crossed(parents, zeros, zeros + 1, stream()), axis=0, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5, "χ² with 5 degrees of freedom, p = 0.001"


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_nearly_the_whole_front_that_enumeration_finds(seed: int) -> None:
    cheap = stream(seed).random(N)
    costs = np.column_stack([cheap, 1 - cheap + 0.3 * stream(seed + 50).random(N)])
    subsets = every_subset()
    exact = subsets[is_nondominated(subsets @ costs)]
    start = random_subsets(20, N, SIZE, stream(seed + 100))
    genomes, losses = nsga2(sums(costs), start, stream(seed + 200), population=20, generations=60)
    found = rows_of(genomes) & rows_of(exact)
    assert len(exact) >= 15, "an instance with something to find"
    assert len(found) >= 0.9 * len(exact)
    assert rows_of(genomes) == found, "and nothing that is dominated"
    np.testing.assert_allclose(losses, genomes @ costs)


def test_no_generations_give_the_front_of_the_start() -> None:
    costs, start = stream(1).random((N, 2)), random_subsets(40, N, SIZE, stream(2))
    genomes, _ = nsga2(sums(costs), start, stream(3), population=40, generations=0)
    assert rows_of(genomes) == rows_of(start[is_nondominated(start @ costs)])


def test_more_generations_never_lose_anything() -> None:
    """With four objectives and few places: what is found once is found, or something that dominates it."""
    costs, start = stream(1).random((60, 4)), random_subsets(10, 60, 15, stream(2))
    fronts = [
        nsga2(sums(costs), start, stream(3), population=10, generations=generations)[1]
        for generations in (0, 5, 10, 40)
    ]
    assert len(fronts[-1]) > 10
    for earlier, later in itertools.pairwise(fronts):
        assert (later[:, None] <= earlier[None]).all(axis=2).any(axis=0).all()
    assert (fronts[-1].min(axis=0) < fronts[0].min(axis=0)).all()


def test_the_stream_is_the_only_chance() -> None:
    costs, start = stream(1).random((60, 3)), random_subsets(20, 60, 15, stream(2))
    once, again, other = (
        nsga2(sums(costs), start, stream(seed), population=20, generations=10)[0] for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(once, again)
    assert rows_of(once) != rows_of(other)
    assert (once.sum(axis=1) == 15).all()
