"""What chapter 3 of the thesis concludes from its tables, checked on our numbers and on its own.

A claim is checked on the environments that were run; the others are named. Claims compare means and do not weigh the
deviation over seeds, so that a tendency in the thesis may hold in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from fedpareto_papers.claims import Claim, Part, judged
from fedpareto_papers.thesis.mofld import published
from fedpareto_papers.thesis.mofld.published import CONFIGURATIONS, ENVIRONMENTS, NON_FEDERATED_NAME

Key = tuple[str, str, str]
"""Metric, environment, configuration (such as 3/10k/F)."""
Values = Mapping[Key, float]
"""Means over the seeds."""
Judge = Callable[[Values, str], Iterator[Part]]
"""The comparisons of a claim in one environment."""

FEDERATED = tuple(name for name in CONFIGURATIONS if name != NON_FEDERATED_NAME)
CLIENTS, STEPS, WARM_STARTS = ("2", "3", "5"), ("2k", "5k", "10k"), ("T", "F")
MATCHES = 0.02
"""Hypervolumes that differ by a smaller share match; the thesis calls 970.8 and 983.1 similar."""


def verdicts(values: Values) -> list[Claim]:
    """Every claim, checked on the values that there are."""
    complex_ones = ("dmc", "moll")
    return [
        _claim(
            values,
            "federated-larger-hypervolume",
            "On DMC and MOLL federated systems have a larger hypervolume than the non-federated one.",
            "3.2.3.1",
            complex_ones,
            lambda values, place: (_larger(values, "hypervolume", place, one, NON_FEDERATED_NAME) for one in FEDERATED),
        ),
        _claim(
            values,
            "federated-lower-sparsity",
            "There they also have a lower sparsity.",
            "3.2.3.1",
            complex_ones,
            lambda values, place: (_larger(values, "sparsity", place, NON_FEDERATED_NAME, one) for one in FEDERATED),
        ),
        _claim(
            values,
            "federated-matches",
            f"On DST all federated systems match the hypervolume of the non-federated one (within {MATCHES:.0%}).",
            "3.2.3.1",
            ("dst",),
            lambda values, place: (_matches(values, place, one, NON_FEDERATED_NAME) for one in FEDERATED),
        ),
        _claim(
            values,
            "more-clients-larger-hypervolume",
            "On DMC and MOLL five clients have a larger hypervolume than two.",
            "3.2.3.3",
            complex_ones,
            lambda values, place: (
                _larger(values, "hypervolume", place, f"5/{rest}", f"2/{rest}") for rest in _joined(STEPS, WARM_STARTS)
            ),
        ),
        _claim(
            values,
            "more-clients-lower-sparsity",
            "There they also have a lower sparsity.",
            "3.2.3.1",
            complex_ones,
            lambda values, place: (
                _larger(values, "sparsity", place, f"2/{rest}", f"5/{rest}") for rest in _joined(STEPS, WARM_STARTS)
            ),
        ),
        _claim(
            values,
            "more-clients-match",
            f"On DST five clients match the hypervolume of two and three (within {MATCHES:.0%}).",
            "3.2.3.3",
            ("dst",),
            lambda values, place: (
                _matches(values, place, f"5/{rest}", f"{few}/{rest}")
                for rest, few in product(_joined(STEPS, WARM_STARTS), ("2", "3"))
            ),
        ),
        _claim(
            values,
            "longest-rounds-best",
            "On MOLL rounds of 10,000 local steps lead to the largest hypervolume.",
            "3.2.3.2",
            ("moll",),
            _longest_is_best,
        ),
        _claim(
            values,
            "shorter-rounds-best",
            "On DST and DMC shorter rounds lead to a larger hypervolume than those of 10,000 steps.",
            "3.2.3.2",
            ("dst", "dmc"),
            _shorter_are_better,
        ),
        _claim(
            values,
            "warm-start-undecided",
            "Whether a warm start raises the hypervolume depends: it does in some cases and not in others.",
            "3.2.3.1",
            tuple(ENVIRONMENTS),
            _undecided,
            together=True,
        ),
        _claim(
            values,
            "warm-start-sparser",
            "On DST and MOLL solutions of systems with a warm start have a higher sparsity.",
            "A.1.3.1",
            ("dst", "moll"),
            lambda values, place: (
                _larger(values, "sparsity", place, f"{one}/T", f"{one}/F") for one in _joined(CLIENTS, STEPS)
            ),
        ),
        _claim(
            values,
            "warm-start-hurts",
            "On DMC a warm start lowers the hypervolume.",
            "A.1.3.1",
            ("dmc",),
            lambda values, place: (
                _larger(values, "hypervolume", place, f"{one}/F", f"{one}/T") for one in _joined(CLIENTS, STEPS)
            ),
        ),
    ]


def holds_as_published() -> list[Claim]:
    """The same claims in the same order, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """All of the thesis's numbers."""
    return {
        (metric, environment, name): entry.mean
        for metric, rows in published.TABLES.items()
        for name, columns in rows.items()
        for environment, entry in columns.items()
    }


# -- judging -------------------------------------------------------------------------------------------------------


def _claim(
    values: Values,
    name: str,
    statement: str,
    where: str,
    environments: Sequence[str],
    judge: Judge,
    *,
    together: bool = False,
) -> Claim:
    """A claim about some environments, checked on those with values.

    Comparisons that lack a value are counted, not listed. `together`: the claim is that neither side is always better,
    which one comparison on each side shows and only all of them refute.
    """
    parts = {environment: list(judge(values, environment)) for environment in environments}
    run = {key: found for key, found in parts.items() if any(part.holds is not None for part in found)}
    missing = [ENVIRONMENTS[key].title for key in parts if key not in run]
    if not run:
        return Claim(name, statement, where, "cannot be judged", f"needs {', '.join(missing)}")
    every = [part for found in run.values() for part in found]
    known = [part for part in every if part.holds is not None]
    verdict, detail = judged("comparisons", known)
    if together:
        is_mixed, is_whole = len({part.holds for part in known}) == 2, len(known) == len(every) and not missing
        verdict = "holds" if is_mixed else "does not hold" if is_whole else "cannot be judged"
    elif verdict == "holds" and len(known) < len(every):
        verdict = "holds in part"
    notes = [f"{len(every) - len(known)} more lack a value"] if len(known) < len(every) else []
    notes += [f"not run: {', '.join(missing)}"] if missing else []
    return Claim(name, statement, where, verdict, "; ".join([detail, *notes]))


def _larger(values: Values, metric: str, environment: str, one: str, other: str) -> Part:
    """Whether the first of two configurations has the larger value."""
    return _compared(values, metric, environment, one, other, lambda mine, theirs: mine > theirs)


def _matches(values: Values, environment: str, one: str, other: str) -> Part:
    """Whether the first of two configurations has about the hypervolume of the second, or more."""
    return _compared(
        values, "hypervolume", environment, one, other, lambda mine, theirs: mine >= (1 - MATCHES) * theirs
    )


def _undecided(values: Values, environment: str) -> Iterator[Part]:
    """Where a warm start has the larger hypervolume."""
    for one in _joined(CLIENTS, STEPS):
        yield _larger(values, "hypervolume", environment, f"{one}/T", f"{one}/F")


def _longest_is_best(values: Values, environment: str) -> Iterator[Part]:
    for clients, ws in product(CLIENTS, WARM_STARTS):
        shorter = _best_of(values, environment, [f"{clients}/{steps}/{ws}" for steps in STEPS[:-1]])
        yield _larger(values, "hypervolume", environment, f"{clients}/10k/{ws}", shorter)


def _shorter_are_better(values: Values, environment: str) -> Iterator[Part]:
    for clients, ws in product(CLIENTS, WARM_STARTS):
        shorter = _best_of(values, environment, [f"{clients}/{steps}/{ws}" for steps in STEPS[:-1]])
        yield _larger(values, "hypervolume", environment, shorter, f"{clients}/10k/{ws}")


def _best_of(values: Values, environment: str, names: Sequence[str]) -> str:
    """The one with the largest hypervolume; one without a value if there is any, since it might be the best."""
    return max(names, key=lambda name: values.get(("hypervolume", environment, name), float("inf")))


def _compared(
    values: Values, metric: str, environment: str, one: str, other: str, holds: Callable[[float, float], bool]
) -> Part:
    place = f"{ENVIRONMENTS[environment].title} {one}"
    mine, theirs = (values.get((metric, environment, name)) for name in (one, other))
    if mine is None or theirs is None:
        return Part(place, None, f"no value for {one if mine is None else other}")
    unit = published.scale(metric, environment)
    return Part(place, holds(mine, theirs), f"{mine / unit:.1f} against {other} {theirs / unit:.1f}")


def _joined(*parts: Sequence[str]) -> Iterator[str]:
    return ("/".join(chosen) for chosen in product(*parts))
