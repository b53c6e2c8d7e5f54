"""What Hu et al. (2022) conclude from figures 1 to 4 and table VI, checked on ours.

Claims compare means over the seeds and do not weigh the deviation. Accuracies are shares of 1; a point is 0.01 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fedpareto_papers.claims import Claim, Part, judged
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda.published import CASES, NORMALISED, TABLE_6, TITLES

Key = tuple[str, str, str]
"""Case, variant (such as fedavg, fedmgda,epsilon=0.1 or afl,bias=1; without its other settings), metric."""
Values = Mapping[Key, float]
"""Means over the seeds."""

POINT = 0.01
NEARLY_ALL = 0.99
"""A share of improved users that "reaches towards 100%"."""
COMPARABLE = 0.02
"""Deviations over users that differ by less are comparable."""
NOT_NORMALISED = tuple(name for name in published.ALGORITHMS if name not in NORMALISED)


def verdicts(name: str, values: Values) -> list[Claim]:
    """The claims about one figure or table, checked on the values that there are."""
    return [claim for claim in JUDGES[name](values) if claim.verdict != "cannot be judged"]


def holds_as_published() -> list[Claim]:
    """The claims about table VI, checked on its own numbers: the only ones that the paper prints."""
    values = {
        ("mnist-writers", algorithm, metric): entry.mean
        for algorithm, row in TABLE_6.items()
        for metric, entry in row.items()
    }
    return verdicts("fedmgda-table-6", values)


# -- figure 1 ------------------------------------------------------------------------------------------------------


def _on_interpolation(values: Values) -> list[Claim]:
    cases = ("cifar10-shards", "cifar10-iid")
    between = [epsilon for epsilon in published.EPSILONS if 0 < epsilon < 1]
    return [
        _claim(
            "epsilon-interpolates",
            "From ε = 0 to ε = 1 the training loss goes from FedAvg's to FedMGDA's.",
            "VI-B1",
            [_in_between(values, case, epsilon) for case in cases for epsilon in between],
        ),
        _claim(
            "fedavg-has-the-lowest-loss",
            "FedAvg (ε = 0) has the lowest mean training loss.",
            "VI-B1",
            [
                _compared(values, case, "loss", _at(0.0), _at(epsilon), lower=True)
                for case in cases
                for epsilon in published.EPSILONS[1:]
            ],
        ),
        _claim(
            "some-epsilon-beats-fedavg",
            "In the non-iid setting some ε between 0 and 1 gives a higher average accuracy than FedAvg.",
            "VI-B1",
            [_some_beat(values, "cifar10-shards", [_at(epsilon) for epsilon in between], _at(0.0))],
        ),
    ]


def _at(epsilon: float) -> str:
    return f"fedmgda,epsilon={epsilon:g}"


def _in_between(values: Values, case: str, epsilon: float) -> Part:
    names = (_at(0.0), _at(epsilon), _at(1.0))
    found = _known(values, case, "loss", names)
    place = f"{CASES[case].title}, ε = {epsilon:g}"
    if len(found) < len(names):
        return _unknown(place, found, names)
    first, here, last = (found[name] for name in names)
    return Part(place, first <= here <= last, f"{here:.3f} between {first:.3f} and {last:.3f}")


def _some_beat(values: Values, case: str, candidates: Sequence[str], other: str) -> Part:
    names = (*candidates, other)
    found = _known(values, case, "average", names)
    if len(found) < len(names):
        return _unknown(CASES[case].title, found, names)
    best = max(candidates, key=found.__getitem__)
    return Part(CASES[case].title, found[best] > found[other], _against(best, found[best], other, found[other]))


# -- figure 2 ------------------------------------------------------------------------------------------------------


def _on_attacks(values: Values) -> list[Claim]:
    return [*_on_bias(values), *_on_scaling(values), _least_loss(values)]


def _on_bias(values: Values) -> list[Claim]:
    return [
        _claim(
            "bias-leads-to-phd-only",
            "Under the largest bias AFL and q-FedAvg fall to near what training on the PhD user alone gives.",
            "VI-B2",
            [_nearer_to_phd_only(values, name) for name in ("afl", "q-fedavg")],
        ),
        _claim(
            "bias-leaves-fedmgda-plus-alone",
            "FedMGDA+ is not affected by any bias.",
            "VI-B2",
            [
                _falls_by_at_most(values, "adult-bias", "fedmgda-plus", _biased("fedmgda-plus", bias), 0.0)
                for bias in published.BIASES["fedmgda-plus"][1:]
            ],
        ),
        _claim(
            "rivals-slightly-better-in-peace",
            "Without an attack AFL and q-FedAvg do slightly better than FedMGDA+ on Adult.",
            "VI-B2",
            [_compared(values, "adult-bias", "pooled", name, "fedmgda-plus") for name in ("afl", "q-fedavg")],
        ),
    ]


def _biased(algorithm: str, bias: float) -> str:
    return f"{algorithm},bias={bias:g}"


def _nearer_to_phd_only(values: Values, algorithm: str) -> Part:
    """Whether the attack costs more than half of the difference between the honest result and PhD-only training."""
    names = (algorithm, _biased(algorithm, published.BIASES[algorithm][-1]), "local")
    found = _known(values, "adult-bias", "pooled", names)
    place = TITLES[algorithm]
    if len(found) < len(names):
        return _unknown(place, found, names)
    honest, attacked, alone = (found[name] for name in names)
    falls = attacked < honest and alone < honest and honest - attacked > (honest - alone) / 2
    return Part(place, falls, f"{_percent(honest)} becomes {_percent(attacked)}; PhD only has {_percent(alone)}")


def _on_scaling(values: Values) -> list[Claim]:
    return [
        _claim(
            "scaling-hurts-who-does-not-normalise",
            "Scaling costs every algorithm without normalisation more than a point.",
            "VI-B2",
            [_falls_by_more(values, "cifar10-scaling", name, _scaled(name), POINT) for name in NOT_NORMALISED],
        ),
        _claim("scaling-hurts-q-fedavg-most", "q-FedAvg falls most.", "VI-B2", [_falls_most(values, "q-fedavg")]),
        _claim(
            "scaling-helps-fedmgda-plus",
            "FedMGDA+ and MGDA-Prox end slightly better under scaling than without.",
            "VI-B2",
            [
                _compared(values, "cifar10-scaling", "average", _scaled(name), name)
                for name in ("fedmgda-plus", "mgda-prox")
            ],
        ),
    ]


def _scaled(algorithm: str) -> str:
    return f"{algorithm},scaling={published.SCALE:g}"


def _least_loss(values: Values) -> Claim:
    largest = _biased("fedmgda-plus", published.BIASES["fedmgda-plus"][-1])
    return _claim(
        "fedmgda-plus-loses-at-most-a-point",
        "FedMGDA+ loses at most one point in either attack.",
        "VI-B2",
        [
            _falls_by_at_most(values, "adult-bias", "fedmgda-plus", largest, POINT),
            _falls_by_at_most(values, "cifar10-scaling", "fedmgda-plus", _scaled("fedmgda-plus"), POINT),
        ],
    )


def _fall(values: Values, case: str, honest: str, attacked: str) -> tuple[float | None, str]:
    """How much accuracy an attack costs, and in words; None if a value is missing."""
    metric = _accuracy(case)
    found = _known(values, case, metric, (honest, attacked))
    if len(found) < 2:
        return None, _unknown("", found, (honest, attacked)).numbers
    return found[honest] - found[attacked], f"{_percent(found[honest])} becomes {_percent(found[attacked])}"


def _falls_by_more(values: Values, case: str, honest: str, attacked: str, much: float) -> Part:
    fall, words = _fall(values, case, honest, attacked)
    return Part(_place(case, honest), None if fall is None else fall > much, words)


def _falls_by_at_most(values: Values, case: str, honest: str, attacked: str, little: float) -> Part:
    fall, words = _fall(values, case, honest, attacked)
    return Part(_place(case, attacked), None if fall is None else fall <= little, words)


def _falls_most(values: Values, champion: str) -> Part:
    falls = {name: _fall(values, "cifar10-scaling", name, _scaled(name))[0] for name in published.ALGORITHMS}
    known = {name: fall for name, fall in falls.items() if fall is not None}
    place = CASES["cifar10-scaling"].title
    if len(known) < len(falls):
        return _unknown(place, known, falls)
    shown = ", ".join(f"{TITLES[name]} {-100 * fall:+.1f}" for name, fall in known.items())
    return Part(place, max(known, key=known.__getitem__) == champion, f"{shown} points")


# -- figure 3 and table VI -----------------------------------------------------------------------------------------


def _on_users(values: Values) -> list[Claim]:
    return _on_fairness(values, ("cifar10-b10", "cifar10-full"))


def _on_writers(values: Values) -> list[Claim]:
    return _on_fairness(values, ("mnist-writers",))


def _on_fairness(values: Values, cases: Sequence[str]) -> list[Claim]:
    return [
        _claim(
            "fedmgda-plus-best-average",
            "FedMGDA+ has the best average accuracy.",
            "VI-B3",
            [_best(values, case, "average", "fedmgda-plus") for case in cases],
        ),
        _claim(
            "fedmgda-plus-as-even-as-q-fedavg",
            "Its deviation over users is comparable with that of q-FedAvg, or lower.",
            "VI-B3",
            [_not_much_above(values, case, "fedmgda-plus", "q-fedavg") for case in cases],
        ),
        _claim(
            "fedmgda-plus-beats-fedmgda",
            "FedMGDA+ has a higher average accuracy than FedMGDA by more than a point.",
            "VI-B3",
            [_compared(values, case, "average", "fedmgda-plus", "fedmgda", by=POINT) for case in cases],
        ),
        _claim(
            "fedmgda-plus-beats-fedavg-n",
            "FedMGDA+ beats FedAvg-n in average accuracy and in deviation over users.",
            "VI-B3",
            [
                _compared(values, case, metric, "fedmgda-plus", "fedavg-n", lower=metric == "deviation")
                for case in cases
                for metric in ("average", "deviation")
            ],
        ),
    ]


def _not_much_above(values: Values, case: str, one: str, other: str) -> Part:
    found = _known(values, case, "deviation", (one, other))
    place = f"{CASES[case].title}, deviation"
    if len(found) < 2:
        return _unknown(place, found, (one, other))
    return Part(place, found[one] <= found[other] + COMPARABLE, _against(one, found[one], other, found[other]))


# -- figure 4 ------------------------------------------------------------------------------------------------------


def _on_improved(values: Values) -> list[Claim]:
    everywhere = tuple(published.FIGURES["fedmgda-fig-4"].variants)
    full = tuple(case for case in everywhere if CASES[case].batch_size == published.FULL)
    small = tuple(case for case in everywhere if case not in full)
    shown = tuple(name for name in published.ALGORITHMS if name != "fedmgda")
    return [
        _claim(
            "fedmgda-plus-improves-most",
            "FedMGDA+ has the largest share of improved participants.",
            "VI-B3",
            [_best(values, case, "improved", "fedmgda-plus", among=shown) for case in everywhere],
        ),
        _claim(
            "small-batches-are-noisy",
            "With b = 10 its share stays below 100 %.",
            "VI-B3",
            [_bounded(values, case, "improved at the end", lambda share: share < NEARLY_ALL) for case in small],
        ),
        _claim(
            "full-batches-improve-all",
            "With full batches and a decaying step its share reaches 99 %.",
            "VI-B3",
            [_bounded(values, case, "improved at the end", lambda share: share >= NEARLY_ALL) for case in full],
        ),
    ]


def _bounded(values: Values, case: str, metric: str, fits: Callable[[float], bool]) -> Part:
    value = values.get((case, "fedmgda-plus", metric))
    place = CASES[case].title
    return Part(place, None, "no value") if value is None else Part(place, fits(value), _percent(value))


JUDGES: Mapping[str, Callable[[Values], list[Claim]]] = {
    "fedmgda-fig-1": _on_interpolation,
    "fedmgda-fig-2": _on_attacks,
    "fedmgda-fig-3": _on_users,
    "fedmgda-fig-4": _on_improved,
    "fedmgda-table-6": _on_writers,
}

# -- judging -------------------------------------------------------------------------------------------------------


def _claim(name: str, statement: str, where: str, parts: Sequence[Part]) -> Claim:
    """Checked on the cases with values; the others are named."""
    known = [part for part in parts if part.holds is not None]
    verdict, detail = judged("comparisons", known or parts)
    missing = ", ".join(dict.fromkeys(part.where for part in parts if part.holds is None))
    return Claim(name, statement, where, verdict, detail + (f"; not run: {missing}" if known and missing else ""))


def _best(values: Values, case: str, metric: str, champion: str, among: Sequence[str] = published.ALGORITHMS) -> Part:
    """Whether no other has a larger value; all others have to be there."""
    found = _known(values, case, metric, among)
    place = CASES[case].title
    if len(found) < len(among):
        return _unknown(place, found, among)
    other = max((name for name in found if name != champion), key=found.__getitem__)
    return Part(place, found[champion] >= found[other], _against(champion, found[champion], other, found[other]))


def _compared(
    values: Values, case: str, metric: str, one: str, other: str, *, lower: bool = False, by: float = 0.0
) -> Part:
    """Whether the first has the larger value (or lower one), and by more than `by`."""
    found = _known(values, case, metric, (one, other))
    place = CASES[case].title + (f", {metric}" if metric != _accuracy(case) else "")
    if len(found) < 2:
        return _unknown(place, found, (one, other))
    ahead = found[one] - found[other]
    words = _against(one, found[one], other, found[other], percent=metric != "loss")
    return Part(place, (-ahead if lower else ahead) > by, words)


def _accuracy(case: str) -> str:
    """The metric by which algorithms are compared: on Adult the accuracy on all rows, of which a user has one in
    eighty.
    """
    return "pooled" if case == "adult-bias" else "average"


def _known(values: Values, case: str, metric: str, names: Iterable[str]) -> dict[str, float]:
    return {name: values[case, name, metric] for name in names if (case, name, metric) in values}


def _unknown(place: str, found: Iterable[str], names: Iterable[str]) -> Part:
    there = set(found)
    return Part(place, None, f"no value for {', '.join(title(name) for name in names if name not in there)}")


def _place(case: str, variant: str) -> str:
    return f"{CASES[case].title}, {title(variant)}"


def title(variant: str) -> str:
    """As the paper has it, with what is special about it."""
    algorithm, comma, special = variant.partition(",")
    return TITLES[algorithm] + (f" ({special.replace('epsilon', 'ε').replace('=', ' ')})" if comma else "")


def _against(one: str, value: float, other: str, its_value: float, *, percent: bool = True) -> str:
    shown = _percent if percent else "{:.3f}".format
    return f"{title(one)} {shown(value)} against {title(other)} {shown(its_value)}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
