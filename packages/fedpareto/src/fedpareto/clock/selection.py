"""Selection of the clients that are asked next, from what the server knows: part of a run's spec.

A rule never sees data or preferences; it sees how long an exchange takes, what it costs, and what clients reported.
It keeps no state: the same knowledge and the same random stream choose the same clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedpareto.config import kinds
from fedpareto.config.bounds import AtLeast, Bounded, Count, NotNegative, PositiveShare, Share, Whole
from fedpareto.config.errors import UserError
from fedpareto.moo.nsga2 import Genomes, nsga2, smallest
from fedpareto.tensors import rng

SELECTION_PARAMETERS: Mapping[str, Sequence[str]] = {
    "candidates": ("power-of-choice",),
    "exploration": ("oort",),
    "decay": ("oort",),
    "least": ("oort",),
    "preferred": ("oort",),
    "penalty": ("oort",),
    "population": ("nsga2",),
    "generations": ("nsga2",),
}
"""Kinds that use each parameter."""
UNCERTAINTY, CAP, CUT = 0.1, 0.95, 0.95
"""Constants of Oort: the factor under the root of algorithm 1, the quantile at which utilities are cut off, and the
share of the last chosen one's utility from which on clients have a chance (sections 4.3 and 4.4).
"""
FASTEST = 1e-9
"""Least share of the longest expected time: what takes less counts as this long, since nobody is infinitely fast."""


@dataclass
class Known:
    """Knowledge of a server about its n clients, arrays `[n]`; never a private preference."""

    seconds: np.ndarray
    """Seconds expected for one exchange: receiving, computing and sending; NaN: unknown."""
    joules: np.ndarray
    """Joules expected for one exchange; NaN: unknown."""
    rows: np.ndarray
    """Training rows that a client said it has; 0: unknown."""
    value: np.ndarray
    """The mean of its last reported training objectives, turned so that larger is worse; NaN: unknown."""
    heard: np.ndarray
    """Versions since it was last heard; large if never."""
    asked: np.ndarray
    """Number of times that it was asked."""
    present: np.ndarray
    """Presence now, bool."""
    version: int
    """Version of the server's model: how many rounds are over."""


@dataclass(frozen=True)
class Selection(Bounded):
    """A rule for who is asked. All but `random` leave out who is away, as long as enough others are present."""

    prefix: ClassVar[str] = "selection: "

    kind: kinds.Selection = "random"
    """`random` prefers nobody; `round-robin` takes those asked least often; `available` those not heard for longest;
    `power-of-choice` the worst of some candidates; `oort` those with most utility per time; `nsga2` a compromise
    between time, energy, data and silence.
    """
    candidates: Count | None = None
    """Number of clients drawn, d, of whom the worst are asked (power-of-choice); none: twice as many as are asked."""
    exploration: Share = 0.9
    """Share of those asked that were never asked before, ε, in the first round (oort)."""
    decay: PositiveShare = 0.98
    """Factor on that share with each round (oort)."""
    least: Share = 0.2
    """Least value of that share (oort)."""
    preferred: Share = 0.5
    """Time that an exchange should take at most, T, as a quantile of what all clients are expected to take (oort); 1:
    nobody is too slow.
    """
    penalty: NotNegative = 2.0
    """Exponent α against slow clients (oort): one that takes t > T has (T/t)^α of its utility; 0: none."""
    population: Annotated[int, AtLeast(2)] = 40
    """Number of subsets in a generation (nsga2)."""
    generations: Whole = 20
    """Number of times that the subsets are crossed, mutated and selected (nsga2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.exploration:
            raise UserError(
                f"selection: least is {self.least:g}, above exploration, {self.exploration:g}, from which it falls"
            )

    def must_fit(self, clients: int, count: int) -> None:
        """Raises UserError if the rule cannot choose `count` of so many clients."""
        if self.kind == "power-of-choice" and self.candidates is not None and not count <= self.candidates <= clients:
            raise UserError(
                f"selection: candidates is {self.candidates}; "
                f"it is from {count}, who are asked at a time, to {clients}, all clients"
            )

    def chosen(self, known: Known, free: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
        """The rows of those to ask, ascending: of the rows `free`, `count` of them or all if there are fewer."""
        free = np.sort(np.asarray(free, dtype=np.int64))
        count = min(count, len(free))
        if self.kind == "random":
            return np.sort(free[drawn_places(len(free), count, stream)])
        here = known.present[free].astype(bool)
        first, later = free[here], free[~here]
        if len(first) >= count:
            return np.sort(self._best(known, first, count, stream))
        return np.sort(np.concatenate([first, self._best(known, later, count - len(first), stream)]))

    def _best(self, known: Known, pool: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
        """`count` of the ascending rows `pool`, in any order, by the rule."""
        if count in (0, len(pool)):
            return pool[:count]
        rules: Mapping[str, Callable[[], np.ndarray]] = {
            "round-robin": lambda: _first(pool, known.asked, count),
            "available": lambda: _first(pool, -known.heard, count),
            "power-of-choice": lambda: power_of_choice(known, pool, count, self.candidates or 2 * count, stream),
            "oort": lambda: self._oort(known, pool, count, stream),
            "nsga2": lambda: compromise(known, pool, count, self.population, self.generations, stream),
        }
        return rules[self.kind]()

    def _oort(self, known: Known, pool: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
        """Lai et al., "Oort: efficient federated learning via guided participant selection", 2021, algorithm 1.

        Here: exploration of those never asked, the quick ones more likely, with a share that falls; statistical
        utility, cut off at the 95 % quantile; uncertainty by how long a client was not heard; the penalty of slow ones;
        a draw by utility among all who nearly reach the cut-off. Not here: the pacer that prolongs T when utility
        falls (T is a fixed quantile), the exclusion of those chosen often, the mixture with fairness, the noise on
        reported losses, the selection of testers. A server does not know the losses of single rows: their mean stands
        for the root of their mean square.
        """
        new = (known.asked[pool] == 0) & np.isnan(known.value[pool])
        fresh, tried = pool[new], pool[~new]
        share = max(self.least, self.exploration * self.decay**known.version)
        # Rounded up as often as the fraction says: if one is asked at a time, exploration would be all or nothing.
        wanted = math.floor(share * count + stream.random())
        explored = min(max(wanted, count - len(tried)), len(fresh), count)
        seconds = _expected(known.seconds)
        speeds = 1 / np.maximum(seconds, FASTEST * seconds.max() or 1.0)
        utility = self._utility(known, tried, seconds)
        return np.concatenate(
            [
                fresh[_drawn(speeds[fresh], explored, stream)],
                tried[_among_the_best(utility, count - explored, stream)],
            ]
        )

    def _utility(self, known: Known, tried: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Oort's utility of some rows: what their data are worth, uncertainty, and time."""
        if not len(tried):
            return np.zeros(0)
        worth = _worth(known)[tried]
        cap = float(np.quantile(worth, CAP))
        worth = np.minimum(worth, cap) / cap if cap > 0 else np.ones(len(tried))
        now = max(known.version, 1)
        last = np.maximum(now - known.heard[tried], 1)
        preferred = float(np.quantile(seconds, self.preferred))
        slow = np.maximum(seconds[tried], preferred)
        punctual = np.divide(preferred, slow, out=np.ones(len(tried)), where=slow > 0) ** self.penalty
        return np.asarray((worth + np.sqrt(UNCERTAINTY * math.log(now) / last)) * punctual)


def stream_of(seed: int, round_: int) -> np.random.Generator:
    """Random stream from which those who are asked in a round are drawn."""
    return rng.generator(rng.Address(seed, round=round_), "selection")


def drawn_places(free: int, count: int, stream: np.random.Generator) -> np.ndarray:
    """Draw by the rule `random`: `count` different places among so many who are free, in any order."""
    return stream.choice(free, count, replace=False)


def power_of_choice(
    known: Known, pool: np.ndarray, count: int, candidates: int, stream: np.random.Generator
) -> np.ndarray:
    """Cho, Wang and Joshi, "Client selection in federated learning", 2020: the worst of d drawn by their rows.

    It is their π_rpow-d, which takes the last reported value instead of asking candidates for a new one. Who was never
    asked counts as worst, so everybody has a turn.
    """
    drawn = pool[_drawn(_data(known)[pool], min(max(candidates, count), len(pool)), stream)]
    return _first(drawn, -_badness(known, np.inf), count)


def compromise(
    known: Known, pool: np.ndarray, count: int, population: int, generations: int, stream: np.random.Generator
) -> np.ndarray:
    """Multi-objective selection by NSGA-II, after Banerjee, Vu and Bhuyan, "Optimized and adaptive federated learning
    for straggler-resilient device selection", 2022.

    The objectives of a subset: the time of its slowest client, its clients' energy, what their data are worth (rows ×
    value), and for how long they have not been heard, in total. The population begins with the best subset for each
    objective alone, which is known exactly, and with the best for random weights of the clients' own costs: from random
    subsets of a large fleet, hundreds of generations do not get as near. Of all subsets found that are not dominated,
    the one nearest to the ideal point is taken (`nearest_ideal`). Single clients are all looked at, without a search.
    """
    silence = np.minimum(known.heard, known.version + 1)
    columns = [_expected(known.seconds), _expected(known.joules), -_worth(known), -silence]
    costs = np.column_stack(columns).astype(np.float64)[pool]
    if count == 1:
        return pool[[nearest_ideal(costs, costs[costs.argmin(axis=0)])]]

    def evaluate(genomes: Genomes) -> np.ndarray:
        slowest = np.where(genomes, costs[:, 0], 0.0).max(axis=1)
        return np.column_stack([slowest, genomes @ costs[:, 1:]])

    m = costs.shape[1]
    weights = np.vstack([np.eye(m), stream.dirichlet(np.ones(m), size=population)])
    width = np.ptp(costs, axis=0)
    start = smallest(weights @ (costs / np.where(width > 0, width, 1.0)).T, count)
    genomes, losses = nsga2(evaluate, start, stream, population=population, generations=generations)
    return np.asarray(pool[genomes[nearest_ideal(losses, evaluate(start[:m]))]])


def nearest_ideal(losses: np.ndarray, corners: np.ndarray) -> int:
    """Index of the point nearest to the ideal one, of the points `[f, m]`.

    The corners `[m, m]` are the best points for each objective alone: their best values are the ideal point, and their
    ranges the unit of each objective.
    """
    best, width = corners.min(axis=0), np.ptp(corners, axis=0)
    return int((((losses - best) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=1).argmin())


def _first(pool: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """The `count` rows of `pool` that are smallest in `order` `[n]`; of equal ones the earlier in `pool`."""
    return pool[np.argsort(order[pool], kind="stable")[:count]]


def _drawn(weights: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
    """`count` positions, drawn one after the other with probability proportional to the weights of those left.

    The smallest of exponential variates divided by their weights (Efraimidis and Spirakis, 2006); where a weight is 0,
    after all others.
    """
    variates = stream.standard_exponential(len(weights))
    keys = np.divide(variates, weights, out=np.full(len(weights), np.inf), where=weights > 0)
    return np.argsort(keys, kind="stable")[:count]


def _among_the_best(utility: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
    """`count` positions drawn by utility from all that have nearly the utility of the `count`-th best."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    near = np.flatnonzero(utility >= CUT * np.sort(utility)[-count])
    return np.asarray(near[_drawn(utility[near], count, stream)])


def _expected(costs: np.ndarray) -> np.ndarray:
    """Seconds or joules with numbers everywhere: the mean where they are unknown, twice the largest for infinity."""
    finite = costs[np.isfinite(costs)]
    mean, most = (finite.mean(), finite.max()) if len(finite) else (1.0, 1.0)
    return np.nan_to_num(np.asarray(costs, dtype=np.float64), nan=mean, posinf=2 * most)


def _data(known: Known) -> np.ndarray:
    """Rows; where they are unknown, the mean of the others."""
    told = known.rows > 0
    return np.where(told, known.rows, known.rows[told].mean() if told.any() else 1.0)


def _badness(known: Known, untried: float) -> np.ndarray:
    """The last values; `untried` for those never asked.

    Who was asked and never told a value counts as average: as the worst, somebody who cannot answer would be asked for
    ever.
    """
    told = ~np.isnan(known.value)
    usual = known.value[told].mean() if told.any() else 1.0
    return np.where(told, known.value, np.where(known.asked > 0, usual, untried))


def _worth(known: Known) -> np.ndarray:
    """Rows × value, Oort's statistical utility; nobody's is negative, and those never asked have the worst value.

    Where values are negative, such as returns that were turned, they are counted from the best one.
    """
    told = known.value[~np.isnan(known.value)]
    lowest, highest = (min(told.min(), 0.0), told.max()) if len(told) else (0.0, 1.0)
    return _data(known) * (_badness(known, highest) - lowest)
