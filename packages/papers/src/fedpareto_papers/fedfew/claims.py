"""Conclusions of the paper on FedFew (claims.toml), checked on its own numbers and on ours under several scorings.

The published table scores FedFew after local training and others before it. So every claim of table 1 is checked three
times: scored as published, all algorithms before the local steps of a round, and all of them after. Claims compare
means over clients and seeds and ignore deviations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.fedfew import published
from fedpareto_papers.fedfew.published import COLUMNS, FEDFEW, TITLES

Key = tuple[str, str]
"""Column and algorithm."""
Scores = Mapping[Key, float]
"""Accuracy in percent, or Jain's index."""

PUBLISHED = "published"
SCORINGS: Mapping[str, str] = {
    "paper": "scored as published",
    "sent": "all before local steps",
    "trained": "all after local steps",
}
"""Ways to score our runs."""
NOTHING = "nothing else was run"
ALL = "CIFAR-10"
"""The place of claims about a parameter of FedFew."""


@dataclass(frozen=True)
class Survival:
    """The verdicts on a claim, by the numbers on which it is checked."""

    name: str
    statement: str
    where: str
    verdicts: Mapping[str, tuple[Verdict, str]]
    """Verdict and detail, for the published numbers and for each of SCORINGS."""


def survivals(claims: Mapping[str, Sequence[Claim]]) -> list[Survival]:
    """Join the same claims, checked on several sets of numbers."""
    return [
        Survival(
            same[0].name,
            same[0].statement,
            same[0].where,
            {scoring: (claim.verdict, claim.detail) for scoring, claim in zip(claims, same, strict=True)},
        )
        for same in zip(*claims.values(), strict=True)
    ]


def as_published() -> Scores:
    """The means of table 1."""
    return {
        (column, algorithm): entry.mean for column, row in published.TABLE_1.items() for algorithm, entry in row.items()
    }


def jain_as_published() -> Scores:
    """The indices of table 5."""
    return {(column, algorithm): value for column, row in published.TABLE_5.items() for algorithm, value in row.items()}


class _Judge(Judge):
    package = "fedpareto_papers.fedfew"

    def places(self) -> Iterable[str]:
        return (ALL,)

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        every = [part for found in parts.values() for part in found]
        return judged(one.what, every) if every else ("cannot be judged", "nothing was run")


# -- tables 1 and 5 ------------------------------------------------------------------------------------------------


def on_table_1(scores: Scores) -> list[Claim]:
    """The claims of section 5.2, on the columns that there are."""
    return _OnColumns(scores, "table 1").verdicts()


def on_jain(scores: Scores) -> list[Claim]:
    """The claims of appendix B.4."""
    return _OnColumns(scores, "Jain's index").verdicts()


class _OnColumns(_Judge):
    def places(self) -> Iterable[str]:
        return [
            column for column in dict.fromkeys(column for column, _ in self.values) if (column, FEDFEW) in self.values
        ]

    def key(self, at: At, name: str) -> Key:
        return at.place, name

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        digits = 2 if self.about == "table 1" else 3
        return f"{better[1]:.{digits}f} against {TITLES[other[0]]} {other[1]:.{digits}f}"

    def unknown(self, one: Statement, missing: Iterable[str]) -> str:
        if self.about == "table 1":
            return f"FedFew and {'others' if one.known else TITLES[one.than[0]]} were not both run"
        return NOTHING if one.known else f"{TITLES[one.than[0]]} was not run"

    def first_or_second(self, one: Statement, column: str) -> Iterator[Part]:
        if column in COLUMNS and COLUMNS[column].is_pathological:
            return
        others = [name for name in published.ALGORITHMS if name != FEDFEW and (column, name) in self.values]
        place = 1 + sum(self.values[column, name] > self.values[column, FEDFEW] for name in others)
        yield Part(column, place <= 2 if others else None, f"place {place} of {len(others) + 1}" if others else NOTHING)


# -- K, local epochs and μ -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Eq. 9 of one run, mean over seeds."""

    first: float
    last: float


@dataclass(frozen=True)
class Smoothed:
    """The results of a run with one μ, means over seeds."""

    entropy: float
    """Entropy of w_i, mean over clients, in nats."""
    largest: float
    """max_k w_ik, mean over clients."""
    variation: float
    """Coefficient of variation of α."""
    mean: float
    """Accuracy over clients, in percent, and so on."""
    deviation: float
    worst: float


def on_models(accuracies: Mapping[int, float], fedavg: float | None, descents: Mapping[int, Descent]) -> list[Claim]:
    """The claims of section 5.3.1, by K; `fedavg` is its accuracy by the same scoring."""
    return _OnParameter("K", accuracies, descents, fedavg=fedavg).verdicts()


def on_epochs(accuracies: Mapping[int, float], descents: Mapping[int, Descent]) -> list[Claim]:
    """The claims of section 5.3.2, by local epochs, all with the same number of local updates."""
    return _OnParameter("local epochs", accuracies, descents, short="epochs").verdicts()


def on_mu(found: Mapping[float, Smoothed], models: int = published.MODELS) -> list[Claim]:
    """The claims of appendix B.2."""
    means = {mu: one.mean for mu, one in found.items()}
    return _OnParameter("μ", means, smoothed=found, models=models).verdicts()


def on_table_6(accuracies: Mapping[str, Mapping[int, float]]) -> list[Claim]:
    """The claims of appendix B.5: mean accuracy by column and K."""
    return _OnTable6(accuracies, "table 6").verdicts()


class _OnParameter(_Judge):
    """FedFew's accuracy, and its other results, by the value of a parameter."""

    def __init__(
        self,
        about: str,
        accuracies: Mapping[int, float] | Mapping[float, float],
        descents: Mapping[int, Descent] | None = None,
        smoothed: Mapping[float, Smoothed] | None = None,
        fedavg: float | None = None,
        models: int = published.MODELS,
        short: str = "",
    ) -> None:
        super().__init__(accuracies, about)
        self.descents, self.smoothed = descents or {}, smoothed or {}
        self.fedavg, self.models = fedavg, models
        self.short = short or about

    def listed(self, values: Mapping[float, float] | Mapping[int, float]) -> str:
        return ", ".join(f"{value:.2f} with {self.short} = {key:g}" for key, value in values.items())

    def in_order(self, values: Mapping[float, float] | Mapping[int, float], *, rising: bool) -> Iterator[Part]:
        for (before, one), (after, other) in pairwise(sorted(values.items())):
            holds = other > one if rising else other < one
            yield Part(f"{self.short} = {before:g} to {after:g}", holds, f"{one:.4g} to {other:.4g}")

    def every_k_beats_fedavg(self, one: Statement, place: str) -> Iterator[Part]:
        for models, value in self.values.items():
            if self.fedavg is None:
                yield Part(f"K = {models}", None, "FedAvg was not run")
            else:
                yield Part(f"K = {models}", value > self.fedavg, f"{value:.2f} against FedAvg {self.fedavg:.2f}")

    def one_model_is_best(self, one: Statement, place: str) -> Iterator[Part]:
        larger = [value for models, value in self.values.items() if models > 1]
        if 1 in self.values and larger:
            yield Part(place, self.values[1] > max(larger), self.listed(self.values))

    def objective_falls(self, one: Statement, place: str) -> Iterator[Part]:
        for models, found in self.descents.items():
            yield Part(f"K = {models}", found.last < found.first, f"{found.first:.3g} to {found.last:.3g}")

    def more_models_are_slower(self, one: Statement, place: str) -> Iterator[Part]:
        return self.in_order({models: found.last / found.first for models, found in self.descents.items()}, rising=True)

    def accuracies_comparable(self, one: Statement, place: str) -> Iterator[Part]:
        if len(self.values) > 1:
            spread = max(self.values.values()) - min(self.values.values())
            yield Part(place, spread <= one.by, self.listed(self.values))

    def more_epochs_descend_further(self, one: Statement, place: str) -> Iterator[Part]:
        if len(self.descents) > 1:
            few, many = min(self.descents), max(self.descents)
            less, further = self.descents[few].last, self.descents[many].last
            yield Part(f"{many} epochs against {few}", further < less, f"{further:.3g} against {less:.3g}")

    def entropy_rises(self, one: Statement, place: str) -> Iterator[Part]:
        return self.in_order({mu: found.entropy for mu, found in self.smoothed.items()}, rising=True)

    def variation_falls(self, one: Statement, place: str) -> Iterator[Part]:
        return self.in_order({mu: found.variation for mu, found in self.smoothed.items()}, rising=False)

    def hard_and_soft_ends(self, one: Statement, place: str) -> Iterator[Part]:
        if len(self.smoothed) > 1:
            low, high = min(self.smoothed), max(self.smoothed)
            largest, entropy, uniform = self.smoothed[low].largest, self.smoothed[high].entropy, math.log(self.models)
            yield Part(f"μ = {low:g}", largest > 0.95, f"largest weight {largest:.3f}, published 0.997")
            yield Part(f"μ = {high:g}", entropy > 0.99 * uniform, f"entropy {entropy:.3f} of at most {uniform:.3f}")

    def middle_is_least_fair(self, one: Statement, place: str) -> Iterator[Part]:
        others = [found for mu, found in self.smoothed.items() if mu != 0.1]
        if len(others) < 2 or len(others) == len(self.smoothed):
            return
        middle = self.smoothed[0.1]
        deviations, worst = (
            self.listed({mu: getattr(found, measure) for mu, found in self.smoothed.items()})
            for measure in ("deviation", "worst")
        )
        yield Part("deviation", middle.deviation > max(found.deviation for found in others), deviations)
        yield Part("worst client", middle.worst < min(found.worst for found in others), worst)


class _OnTable6(_Judge):
    def places(self) -> Iterable[str]:
        return self.values

    def best_k(self, one: Statement, column: str) -> Iterator[Part]:
        row: Mapping[int, float] = self.values[column]
        wanted = published.PEAKS["kvasir" if column == published.MEDICAL else column]
        if wanted not in row or len(row) < 2:
            yield Part(column, None, f"K = {wanted} and others were not both run")
            return
        best = max(row, key=row.__getitem__)
        listed = ", ".join(f"{value:.2f} with K = {models}" for models, value in row.items())
        yield Part(column, best == wanted, f"best is K = {best}: {listed}")
