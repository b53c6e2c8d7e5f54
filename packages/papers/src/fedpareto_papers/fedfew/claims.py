"""What the paper on FedFew concludes, checked on its own numbers and on ours under several scorings.

The published table scores FedFew after local training and others before it. So every claim of table 1 is checked three
times: scored as published, all algorithms before the local steps of a round, and all of them after. Claims compare
means over clients and seeds and ignore deviations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedpareto_papers.claims import Claim, Part, Verdict, judged
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
"""Of our runs."""
NEAR_JAIN, NEAR_ACCURACY = 0.001, 0.5
"""What counts as near-highest Jain's index (ours), and as comparable accuracy (figure 3: within 0.5 points)."""
STABLE = 1.0
"""Points within which accuracy is "relatively stable" over μ; ours."""


@dataclass(frozen=True)
class Survival:
    """The verdicts on a claim, by the numbers on which it is checked."""

    name: str
    statement: str
    where: str
    verdicts: Mapping[str, tuple[Verdict, str]]
    """Verdict and detail, of what was published and of each of SCORINGS."""


def survivals(claims: Mapping[str, Sequence[Claim]]) -> list[Survival]:
    """The same claims, checked on several sets of numbers, by the names of these."""
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
    """Table 1."""
    return {
        (column, algorithm): entry.mean for column, row in published.TABLE_1.items() for algorithm, entry in row.items()
    }


def jain_as_published() -> Scores:
    """Table 5."""
    return {(column, algorithm): value for column, row in published.TABLE_5.items() for algorithm, value in row.items()}


# -- table 1 -------------------------------------------------------------------------------------------------------


def on_table_1(scores: Scores) -> list[Claim]:
    """The claims of section 5.2, on the columns that there are."""
    columns = [column for column in dict.fromkeys(column for column, _ in scores) if (column, FEDFEW) in scores]
    practical = [one for one in columns if one not in COLUMNS or not COLUMNS[one].is_pathological]
    return [
        _claim(
            "outperforms-all",
            "FedFew with 3 models outperforms every other algorithm.",
            "5.2 and abstract",
            (_beats_best(scores, column) for column in columns),
        ),
        _claim(
            "first-or-second",
            "Under practical heterogeneity FedFew is first or second.",
            "5.2",
            (_is_first_or_second(scores, column) for column in practical),
        ),
        _claim(
            "beats-fedrep-pathological",
            "With 2 classes of CIFAR-100 a client and 20 clients FedFew outperforms FedRep.",
            "5.2",
            [_beats(scores, "cifar100-pathological-20", "fedrep")],
        ),
        _claim(
            "beats-best-cifar100",
            "On CIFAR-100 with 20 clients FedFew outperforms the best baseline (published: by 7.02 points).",
            "5.2",
            [_beats_best(scores, "cifar100-20")],
        ),
        _claim(
            "beats-fedrep-ag-news",
            "On AG News FedFew outperforms FedRep.",
            "5.2",
            [_beats(scores, "ag-news", "fedrep")],
        ),
        _claim(
            "beats-ifca",
            "FedFew outperforms IFCA, which has as many models.",
            "5.2, table 1",
            (_beats(scores, column, "ifca") for column in columns),
        ),
        _claim(
            "beats-fedavg",
            "FedFew outperforms FedAvg.",
            "5.3.1, table 1",
            (_beats(scores, column, "fedavg") for column in columns),
        ),
    ]


def _claim(name: str, statement: str, where: str, parts: Iterable[Part], what: str = "columns") -> Claim:
    every = list(parts)
    return Claim(name, statement, where, *(judged(what, every) if every else ("cannot be judged", "nothing was run")))


def _beats(scores: Scores, column: str, other: str) -> Part:
    ours, theirs = scores.get((column, FEDFEW)), scores.get((column, other))
    if ours is None or theirs is None:
        return Part(column, None, f"FedFew and {TITLES[other]} were not both run")
    return Part(column, ours > theirs, _against(ours, other, theirs))


def _others(scores: Scores, column: str) -> dict[str, float]:
    """The algorithms of the published table that FedFew is compared with."""
    return {name: scores[column, name] for name in published.ALGORITHMS if name != FEDFEW and (column, name) in scores}


def _beats_best(scores: Scores, column: str) -> Part:
    ours, others = scores.get((column, FEDFEW)), _others(scores, column)
    if ours is None or not others:
        return Part(column, None, "FedFew and others were not both run")
    best = max(others, key=others.__getitem__)
    return Part(column, ours > others[best], _against(ours, best, others[best]))


def _is_first_or_second(scores: Scores, column: str) -> Part:
    ours, others = scores[column, FEDFEW], _others(scores, column)
    if not others:
        return Part(column, None, "nothing else was run")
    place = 1 + sum(value > ours for value in others.values())
    return Part(column, place <= 2, f"place {place} of {len(others) + 1}")


def _against(ours: float, other: str, theirs: float, digits: int = 2) -> str:
    return f"{ours:.{digits}f} against {TITLES[other]} {theirs:.{digits}f}"


# -- table 5 -------------------------------------------------------------------------------------------------------


def on_jain(scores: Scores) -> list[Claim]:
    """The claims of appendix B.4."""
    columns = [column for column in dict.fromkeys(column for column, _ in scores) if (column, FEDFEW) in scores]
    return [
        _claim(
            "jain-near-highest",
            f"FedFew has the highest Jain's index or is within {NEAR_JAIN} of it.",
            "B.4",
            (_is_near_highest(scores, column) for column in columns),
        ),
        _claim(
            "jain-beats-ifca",
            "FedFew's index is higher than IFCA's.",
            "B.4",
            (_fairer(scores, column, "ifca") for column in columns),
        ),
    ]


def _is_near_highest(scores: Scores, column: str) -> Part:
    ours, others = scores[column, FEDFEW], _others(scores, column)
    if not others:
        return Part(column, None, "nothing else was run")
    best = max(others, key=others.__getitem__)
    # The printed indices have three digits.
    return Part(column, ours > others[best] - NEAR_JAIN - 1e-9, _against(ours, best, others[best], 3))


def _fairer(scores: Scores, column: str, other: str) -> Part:
    ours, theirs = scores[column, FEDFEW], scores.get((column, other))
    if theirs is None:
        return Part(column, None, f"{TITLES[other]} was not run")
    return Part(column, ours > theirs, _against(ours, other, theirs, 3))


# -- K, local epochs and μ -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Eq. 9 of one run, mean over seeds."""

    first: float
    last: float


def on_models(accuracies: Mapping[int, float], fedavg: float | None, descents: Mapping[int, Descent]) -> list[Claim]:
    """The claims of section 5.3.1, by K; `fedavg` is its accuracy by the same scoring."""
    shown = _listed(accuracies, "K")
    single, larger = accuracies.get(1), [value for models, value in accuracies.items() if models > 1]
    left = {models: one.last / one.first for models, one in descents.items()}
    falls = [
        Part(f"K = {models}", one.last < one.first, f"{one.first:.3g} to {one.last:.3g}")
        for models, one in descents.items()
    ]
    return [
        _claim(
            "every-k-beats-fedavg",
            "Every K outperforms FedAvg (published: by 28 to 30 points).",
            "5.3.1",
            (
                Part(f"K = {models}", None, "FedAvg was not run")
                if fedavg is None
                else Part(f"K = {models}", value > fedavg, f"{value:.2f} against FedAvg {fedavg:.2f}")
                for models, value in accuracies.items()
            ),
            "numbers of models",
        ),
        _claim(
            "one-model-is-best",
            "K = 1 is the most accurate.",
            "5.3.1",
            [] if single is None or not larger else [Part("CIFAR-10", single > max(larger), shown)],
            "data sets",
        ),
        _claim("objective-falls", "Eq. 9 falls whatever K.", "5.3.1", falls, "numbers of models"),
        _claim(
            "more-models-are-slower",
            "The larger K, the slower eq. 9 falls (the share of its first value that is left grows).",
            "5.3.1",
            _in_order(left, "K", rising=True),
            "steps",
        ),
    ]


def on_epochs(accuracies: Mapping[int, float], descents: Mapping[int, Descent]) -> list[Claim]:
    """The claims of section 5.3.2, by local epochs, all with the same number of local updates."""
    few, many = min(descents, default=0), max(descents, default=0)
    spread = max(accuracies.values(), default=0.0) - min(accuracies.values(), default=0.0)
    parts = []
    if len(descents) > 1:
        numbers = f"{descents[many].last:.3g} against {descents[few].last:.3g}"
        parts = [Part(f"{many} epochs against {few}", descents[many].last < descents[few].last, numbers)]
    return [
        _claim(
            "accuracies-comparable",
            f"Mean accuracies are within {NEAR_ACCURACY} points whatever the number of local epochs.",
            "5.3.2, B.3",
            [Part("CIFAR-10", spread <= NEAR_ACCURACY, _listed(accuracies, "epochs"))] if len(accuracies) > 1 else [],
            "data sets",
        ),
        _claim(
            "more-epochs-descend-further",
            "With more local epochs eq. 9 falls faster for the same number of local updates.",
            "5.3.2",
            parts,
            "comparisons",
        ),
    ]


def on_table_6(accuracies: Mapping[str, Mapping[int, float]]) -> list[Claim]:
    """The claims of appendix B.5: mean accuracy by column and K."""
    return [
        _claim(
            "best-k-depends",
            "The best K depends on the data: 5 on AG News, 3 on the medical images.",
            "B.5",
            (_peak(column, row) for column, row in accuracies.items()),
        )
    ]


def _peak(column: str, row: Mapping[int, float]) -> Part:
    wanted = published.PEAKS["kvasir" if column == published.MEDICAL else column]
    if wanted not in row or len(row) < 2:
        return Part(column, None, f"K = {wanted} and others were not both run")
    best = max(row, key=row.__getitem__)
    return Part(column, best == wanted, f"best is K = {best}: {_listed(row, 'K')}")


@dataclass(frozen=True)
class Smoothed:
    """The results of a run with one μ, means over seeds."""

    entropy: float
    """Of w_i, mean over clients, in nats."""
    largest: float
    """max_k w_ik, mean over clients."""
    variation: float
    """Coefficient of variation of α."""
    mean: float
    """Accuracy over clients, in percent, and so on."""
    deviation: float
    worst: float


def on_mu(found: Mapping[float, Smoothed], models: int = published.MODELS) -> list[Claim]:
    """The claims of appendix B.2."""
    low, high = min(found, default=math.nan), max(found, default=math.nan)
    means = {mu: one.mean for mu, one in found.items()}
    spread = max(means.values(), default=0.0) - min(means.values(), default=0.0)
    middle = 0.1
    ends: list[Part] = []
    if len(found) > 1:
        uniform = math.log(models)
        ends = [
            Part(
                f"μ = {low:g}", found[low].largest > 0.95, f"largest weight {found[low].largest:.3f}, published 0.997"
            ),
            Part(
                f"μ = {high:g}",
                found[high].entropy > 0.99 * uniform,
                f"entropy {found[high].entropy:.3f} of at most {uniform:.3f}",
            ),
        ]
    worst_in_the_middle: list[Part] = []
    if middle in found and len(found) > 2:
        others = [one for mu, one in found.items() if mu != middle]
        worst_in_the_middle = [
            Part(
                "deviation",
                found[middle].deviation > max(one.deviation for one in others),
                _listed({mu: one.deviation for mu, one in found.items()}, "μ"),
            ),
            Part(
                "worst client",
                found[middle].worst < min(one.worst for one in others),
                _listed({mu: one.worst for mu, one in found.items()}, "μ"),
            ),
        ]
    return [
        _claim(
            "entropy-rises",
            "The larger μ, the softer the choice of a model: the entropy of w rises.",
            "B.2, figure 6",
            _in_order({mu: one.entropy for mu, one in found.items()}, "μ", rising=True),
            "steps",
        ),
        _claim("hard-and-soft-ends", "A small μ is a hard choice, a large one nearly none.", "B.2", ends, "ends"),
        _claim(
            "variation-falls",
            "The larger μ, the more alike the clients' weights α: their coefficient of variation falls.",
            "B.2, figure 5",
            _in_order({mu: one.variation for mu, one in found.items()}, "μ", rising=False),
            "steps",
        ),
        _claim(
            "accuracy-stable",
            f"Mean accuracy is stable over μ (within {STABLE:g} point).",
            "B.2",
            [Part("CIFAR-10", spread <= STABLE, _listed(means, "μ"))] if len(means) > 1 else [],
            "data sets",
        ),
        _claim(
            "middle-is-least-fair",
            "μ = 0.1 is the least fair: the largest deviation between clients, the worst worst client.",
            "B.2, figure 5",
            worst_in_the_middle,
            "measures",
        ),
    ]


def _in_order(values: Mapping[float, float] | Mapping[int, float], what: str, rising: bool) -> Iterator[Part]:
    """Whether each value is above the one before it (or below)."""
    for (before, one), (after, other) in pairwise(sorted(values.items())):
        holds = other > one if rising else other < one
        yield Part(f"{what} = {before:g} to {after:g}", holds, f"{one:.4g} to {other:.4g}")


def _listed(values: Mapping[float, float] | Mapping[int, float], what: str) -> str:
    return ", ".join(f"{value:.2f} with {what} = {key:g}" for key, value in values.items())
