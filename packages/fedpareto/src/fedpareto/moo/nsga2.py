"""NSGA-II over subsets of a given size.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002: non-dominated
ranks, crowding distance, binary tournaments, and the best of parents and children together. A genome is a row of n
booleans of which always the same number are true.

Ours are crossover and mutation, because the usual ones on bits change the size of a subset; that of equal genomes only
one survives, because with few subsets a population soon consists of copies; and that whatever is found and not
dominated is kept beside the population, which with more than two objectives soon has no room for all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo._points import Array
from fedpareto.moo.dominance import is_nondominated, ranks

Genomes = NDArray[np.bool_]
Evaluate = Callable[[Genomes], Array]
"""The objectives `[p, m]` of genomes `[p, n]`, all to be minimised."""


def nsga2(
    evaluate: Evaluate, start: Genomes, stream: np.random.Generator, *, population: int, generations: int
) -> tuple[Genomes, Array]:
    """The subsets `[f, n]` that no other one it saw dominates, and their objectives `[f, m]`; of equal ones the first.

    It begins with the genomes `start` `[s, n]`, all of the same size, of which there may be more than `population`.
    """
    seen = start, evaluate(start)
    front, population_now = _front(*seen), survivors(*seen, population)
    for _ in range(generations):
        genomes, _losses = population_now
        children = mutated(crossed(genomes, *parents(len(genomes), population, stream), stream), stream)
        born = children, evaluate(children)
        front = _front(*_together(front, born))
        population_now = survivors(*_together(population_now, born), population)
    return front


def smallest(scores: Array, size: int) -> Genomes:
    """The genomes `[p, n]` of the `size` smallest scores in each row `[p, n]`; of equal ones the first."""
    return _with_members(np.argsort(scores, axis=1, kind="stable")[:, :size], scores.shape[1])


def survivors(genomes: Genomes, losses: Array, population: int) -> tuple[Genomes, Array]:
    """The best `population` of genomes `[p, n]`, the best first: by rank, then those with most room around them."""
    first = _first_of_equal(genomes)
    genomes, losses = genomes[first], losses[first]
    fronts = ranks(losses)
    best = np.lexsort((-crowding(losses, fronts), fronts))[:population]
    return genomes[best], losses[best]


def crowding(losses: Array, fronts: NDArray[np.int64]) -> Array:
    """Crowding distance `[k]` of the points `[k, m]` among those of the same front `[k]`.

    The sum over objectives of the distance between a point's two neighbours, in units of the front's range; infinite
    for a point that is the first or the last in some objective.
    """
    distance = np.zeros(len(losses))
    for column in losses.T:
        order = np.lexsort((column, fronts))
        values, front = column[order], fronts[order]
        changes = front[1:] != front[:-1]
        first, last = np.append(True, changes), np.append(changes, True)
        width = (values[last] - values[first])[np.cumsum(first) - 1]
        gaps = np.full(len(values), np.inf)
        inner = np.flatnonzero(~(first | last))
        gaps[inner] = (values[inner + 1] - values[inner - 1]) / np.where(width > 0, width, 1.0)[inner]
        distance[order] += gaps
    return distance


def crossed(
    genomes: Genomes, mothers: NDArray[np.int64], fathers: NDArray[np.int64], stream: np.random.Generator
) -> Genomes:
    """Children `[p, n]`: what both parents have, filled up at random with what one of them has."""
    scores = stream.random((len(mothers), genomes.shape[1]))
    scores += genomes[mothers]
    scores += genomes[fathers]
    size = int(genomes[0].sum())
    # Quicker than a sort; it may break ties in any way, but random numbers have none.
    return _with_members(np.argpartition(-scores, size - 1, axis=1)[:, :size], scores.shape[1])


def mutated(genomes: Genomes, stream: np.random.Generator) -> Genomes:
    """Each member is exchanged for somebody else with probability 1 / size, so one of a subset on average."""
    p, n = genomes.shape
    size = int(genomes[0].sum())
    if size == n:
        return genomes
    begins = n * np.arange(p)[:, None]
    inside, outside = (np.flatnonzero(some).reshape(p, -1) - begins for some in (genomes, ~genomes))
    exchanges = stream.binomial(size, 1 / size, size=(p,))
    for exchange in range(exchanges.max()):
        rows = np.flatnonzero(exchanges > exchange)
        leaving = rows, stream.integers(size, size=len(rows))
        coming = rows, stream.integers(n - size, size=len(rows))
        inside[leaving], outside[coming] = outside[coming], inside[leaving]
    return _with_members(inside, n)


def parents(count: int, children: int, stream: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Binary tournaments, two for each child; survivors are in order, so the better of two is the earlier one."""
    mothers, fathers = stream.integers(count, size=(2, children, 2)).min(axis=2)
    return mothers, fathers


def _together(some: tuple[Genomes, Array], others: tuple[Genomes, Array]) -> tuple[Genomes, Array]:
    return np.vstack([some[0], others[0]]), np.vstack([some[1], others[1]])


def _front(genomes: Genomes, losses: Array) -> tuple[Genomes, Array]:
    best = is_nondominated(losses)
    return genomes[best], losses[best]


def _with_members(members: NDArray[np.int64], n: int) -> Genomes:
    """Genomes `[p, n]` from the positions of their members `[p, size]`."""
    genomes = np.zeros((len(members), n), dtype=np.bool_)
    np.put_along_axis(genomes, members, True, axis=1)
    return genomes


def _first_of_equal(genomes: Genomes) -> NDArray[np.int64]:
    """The positions of the genomes that equal no earlier one, ascending."""
    bits = np.packbits(genomes, axis=1)
    whole_rows = bits.view(np.dtype((np.void, bits.shape[1])))[:, 0]
    return np.sort(np.unique(whole_rows, return_index=True)[1])
