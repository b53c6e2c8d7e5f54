"""What chapter 4 of the thesis concludes from its tables, checked on our numbers and on its own.

A claim about several environments is checked on those that were run; the others are named. Claims compare means and do
not weigh the deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from fedpareto.contract.registry import FINE_TUNED
from fedpareto_papers.claims import Claim, Part, Verdict, judged
from fedpareto_papers.measured import Entry
from fedpareto_papers.thesis.morl import published
from fedpareto_papers.thesis.morl.published import ALGORITHMS, COMPONENTS, DISTRIBUTIONS, ENVIRONMENTS

Key = tuple[str, str, str, str]
"""Metric, environment, preferences, algorithm (such as fedpref+ft or fedpref+ft,top_ratio=0.2)."""
Values = Mapping[Key, float]
"""Means over the seeds."""
Judge = Callable[[Values, str], list[Part]]
"""The comparisons of a claim in one environment."""

FEDPREF = ("fedpref+ft", "fedpref")
OTHERS = tuple(name for name in ALGORITHMS if name not in FEDPREF)
NON_PERSONALISED = ("fedavg", "fedprox", "cfl")
DQN_ENVIRONMENTS = ("moll", "dmc", "dst")
NEARLY_ONE = 1.05
"""A mean cardinality that is printed as 1.0."""


def verdicts(values: Values) -> list[Claim]:
    """Every claim, checked on the values that there are."""
    return [
        *_on_rewards(values),
        *_on_components(values),
        *_on_parameters(values),
        *_on_metrics(values),
        *_on_metrics_of_components(values),
    ]


def holds_as_published() -> list[Claim]:
    """The same claims in the same order, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """All of the thesis's numbers."""
    found: dict[Key, float] = {}
    for metric, by_preferences in published.TABLES.items():
        for preferences, rows in by_preferences.items():
            _put(found, metric, preferences, rows)
    for metric, rows in published.ABLATION.items():
        _put(found, metric, "dirichlet", rows)
    for name, lines in (("top_ratio", published.TOP_RATIOS), ("similarity_bound", published.SIMILARITY_BOUNDS)):
        _put(found, "reward", "dirichlet", {varied(name, value): columns for value, columns in lines.items()})
    return found


def _put(found: dict[Key, float], metric: str, preferences: str, rows: Mapping[str, Mapping[str, Entry]]) -> None:
    for algorithm, columns in rows.items():
        for environment, entry in columns.items():
            found[metric, environment, preferences, algorithm] = entry.mean


def varied(parameter: str, value: float) -> str:
    """What FedPref+FT with another value of a parameter is called."""
    return f"fedpref{FINE_TUNED},{parameter}={value}"


# -- the claims ----------------------------------------------------------------------------------------------------


def _on_rewards(values: Values) -> list[Claim]:
    """Section 4.3.2, table 4.1."""
    best = partial(_best, metric="reward")
    make = partial(_claim, values, where="4.3.2")
    return [
        make(
            "fedpref-best-equidistant",
            "Under equidistant preferences a variant of FedPref has the highest reward, but for DMC.",
            ("moll", "dst", "mohc", "mollc"),
            best(preferences="equidistant", champions=FEDPREF),
        ),
        make(
            "local-best-equidistant-dmc",
            "There no federated algorithm beats no communication on DMC.",
            ("dmc",),
            best(preferences="equidistant", champions=("local",)),
        ),
        make(
            "fedpref-best-dirichlet",
            "Under Dirichlet preferences a variant of FedPref has the highest reward, but for MO-LLc.",
            ("moll", "dmc", "dst", "mohc"),
            best(preferences="dirichlet", champions=FEDPREF),
        ),
        make(
            "fedavg-best-dirichlet-mollc",
            "There FedAvg has the highest reward on MO-LLc.",
            ("mollc",),
            best(preferences="dirichlet", champions=("fedavg",)),
        ),
        make(
            "fedpref-best-gaussian",
            "Under Gaussian preferences a variant of FedPref has the highest reward on MO-LL, DST and MO-HC.",
            ("moll", "dst", "mohc"),
            best(preferences="gaussian", champions=FEDPREF),
        ),
        make(
            "fedavg-best-gaussian-dmc",
            "There FedAvg has the highest reward on DMC.",
            ("dmc",),
            best(preferences="gaussian", champions=("fedavg",)),
        ),
        make(
            "fedprox-best-gaussian-mollc",
            "There FedProx has the highest reward on MO-LLc.",
            ("mollc",),
            best(preferences="gaussian", champions=("fedprox",)),
        ),
        make(
            "others-behind-local-dst",
            "On DST no federated algorithm but FedPref beats no communication, whatever the preferences.",
            ("dst",),
            _each(best(preferences=name, champions=("local",), among=OTHERS) for name in DISTRIBUTIONS),
        ),
        make(
            "fine-tuning-hurts-dirichlet",
            "Under Dirichlet preferences fine-tuning lowers the reward of FedAvg, FedProx and CFL.",
            tuple(ENVIRONMENTS),
            _orders("reward", "dirichlet", [(name, name + FINE_TUNED) for name in NON_PERSONALISED]),
        ),
        make(
            "fine-tuning-helps-equidistant-moll",
            "Under equidistant preferences it raises the reward of these three on MO-LL.",
            ("moll",),
            _orders("reward", "equidistant", [(name + FINE_TUNED, name) for name in NON_PERSONALISED]),
        ),
        make(
            "averaging-worst-equidistant",
            "FedAvg and FedProx, with and without fine-tuning, do worse under equidistant preferences than under the "
            "other two, where clients learn by DQN.",
            DQN_ENVIRONMENTS,
            _worse_when_equidistant,
        ),
    ]


def _on_components(values: Values) -> list[Claim]:
    """Section 4.3.3, table 4.2."""
    best = partial(_best, metric="reward", preferences="dirichlet", among=COMPONENTS)
    make = partial(_claim, values, where="4.3.3")
    return [
        make(
            "both-components-best",
            "A variant of FedPref has a higher reward than its components alone on MO-LL, DST and MO-HC.",
            ("moll", "dst", "mohc"),
            best(champions=FEDPREF),
        ),
        make(
            "clustering-best-dmc",
            "On DMC clustering alone with fine-tuning is best.",
            ("dmc",),
            best(champions=("fedpref-clustering+ft",)),
        ),
        make(
            "clustering-best-mollc",
            "On MO-LLc clustering alone without fine-tuning is best.",
            ("mollc",),
            best(champions=("fedpref-clustering",)),
        ),
    ]


def _on_parameters(values: Values) -> list[Claim]:
    """Section 4.3.4, figures 4.9 and 4.10."""
    make = partial(_claim, values, where="4.3.4")
    return [
        make(
            "top-ratio-pays",
            "Some R below 1 gives a higher reward than R = 1, the plain cosine, on MO-LL, DST, MO-HC and MO-LLc.",
            ("moll", "dst", "mohc", "mollc"),
            _some_beats("top_ratio", [ratio for ratio in published.TOP_RATIOS if ratio < 1], 1.0),
        ),
        make(
            "low-bound-pays",
            "Some s_min below 0 gives a higher reward than s_min = 0.",
            tuple(ENVIRONMENTS),
            _some_beats("similarity_bound", [bound for bound in published.SIMILARITY_BOUNDS if bound < 0], 0.0),
        ),
    ]


def _on_metrics(values: Values) -> list[Claim]:
    """Section 4.4.1, tables 4.3 to 4.6."""
    make = partial(_claim, values, where="4.4.1")
    cardinality, hypervolume = (partial(_best, metric=metric) for metric in ("cardinality", "hypervolume"))
    most = ("moll", "dst", "mollc")
    return [
        *(
            make(
                f"fedpref-most-solutions-{preferences}",
                f"Under {DISTRIBUTIONS[preferences]} preferences a variant of FedPref finds at least as many solutions "
                "as any other.",
                where_so,
                cardinality(preferences=preferences, champions=FEDPREF),
            )
            for preferences, where_so in zip(DISTRIBUTIONS, (most, most, ("moll", "dst", "mohc")), strict=True)
        ),
        make(
            "averaging-finds-one",
            "FedAvg and FedProx find one solution on DST, whatever the preferences.",
            ("dst",),
            _one_solution,
        ),
        make(
            "fedpref-finds-seven",
            "On DST under Dirichlet preferences FedPref+FT finds more than 7 of the 10 solutions.",
            ("dst",),
            _more_than_seven,
        ),
        *(
            make(
                f"fedpref-largest-hypervolume-{preferences}",
                f"Under {DISTRIBUTIONS[preferences]} preferences a variant of FedPref has the largest hypervolume.",
                most,
                hypervolume(preferences=preferences, champions=FEDPREF),
            )
            for preferences in ("dirichlet", "gaussian")
        ),
        make(
            "fedpref-evener-gaussian",
            "Under Gaussian preferences a variant of FedPref has a lower sparsity and a lower IGD than no "
            "communication.",
            tuple(ENVIRONMENTS),
            _each(
                _best(metric=metric, preferences="gaussian", champions=FEDPREF, among=(*FEDPREF, "local"))
                for metric in ("sparsity", "igd")
            ),
        ),
    ]


def _on_metrics_of_components(values: Values) -> list[Claim]:
    """Section 4.4.2, table 4.7."""
    best = partial(_best, preferences="dirichlet", champions=FEDPREF, among=COMPONENTS)
    make = partial(_claim, values, where="4.4.2")
    return [
        make(
            "both-components-best-metrics",
            "A variant of FedPref has or matches the largest hypervolume and cardinality and the lowest IGD.",
            ("moll", "dmc", "mollc"),
            _each(best(metric=metric) for metric in ("hypervolume", "cardinality", "igd")),
        ),
        make(
            "both-components-largest-hypervolume-mohc",
            "On MO-HC FedPref-FT has the largest hypervolume.",
            ("mohc",),
            _best(
                metric="hypervolume",
                preferences="dirichlet",
                champions=("fedpref",),
                among=COMPONENTS,
            ),
        ),
    ]


# -- judging -------------------------------------------------------------------------------------------------------


def _claim(
    values: Values, name: str, statement: str, environments: Sequence[str], judge: Judge, *, where: str
) -> Claim:
    """A claim about some environments, checked on those with values."""
    parts = {environment: judge(values, environment) for environment in environments}
    known = {key: found for key, found in parts.items() if any(part.holds is not None for part in found)}
    missing = [ENVIRONMENTS[key].title for key in parts if key not in known]
    if not known:
        return Claim(name, statement, where, "cannot be judged", f"needs {', '.join(missing)}")
    verdict: Verdict
    verdict, detail = judged("comparisons", [part for found in known.values() for part in found])
    return Claim(name, statement, where, verdict, detail + (f"; not run: {', '.join(missing)}" if missing else ""))


def _best(*, metric: str, preferences: str, champions: Sequence[str], among: Sequence[str] = ALGORITHMS) -> Judge:
    """Whether the best of all is one of the champions; a tie counts for them."""
    sign = -1 if metric in published.LOWER_IS_BETTER else 1

    def judge(values: Values, environment: str) -> list[Part]:
        place = _place(environment, metric, preferences)
        known = {name: values.get((metric, environment, preferences, name)) for name in among}
        found = {name: value for name, value in known.items() if value is not None}
        if len(found) < len(among):
            return [_unknown(place, [name for name in among if name not in found])]
        champion = max(champions, key=lambda name: sign * found[name])
        other = max((name for name in among if name not in champions), key=lambda name: sign * found[name])
        holds = sign * found[champion] >= sign * found[other]
        unit = published.scale(metric, environment)
        return [Part(place, holds, _against(champion, found[champion] / unit, other, found[other] / unit))]

    return judge


def _orders(metric: str, preferences: str, pairs: Sequence[tuple[str, str]]) -> Judge:
    """Whether the first of each pair has a larger value than the second."""

    def judge(values: Values, environment: str) -> list[Part]:
        return [
            _above(
                _place(environment, metric, preferences),
                *((name, values.get((metric, environment, preferences, name))) for name in pair),
            )
            for pair in pairs
        ]

    return judge


def _each(judges: Iterable[Judge]) -> Judge:
    """All comparisons of several checks."""
    every = list(judges)

    def judge(values: Values, environment: str) -> list[Part]:
        return [part for one in every for part in one(values, environment)]

    return judge


def _worse_when_equidistant(values: Values, environment: str) -> list[Part]:
    parts = []
    for name in ("fedavg", "fedavg+ft", "fedprox", "fedprox+ft"):
        place = f"{ENVIRONMENTS[environment].title}, {published.title(name)}"
        found = {one: values.get(("reward", environment, one, name)) for one in DISTRIBUTIONS}
        known = {one: value for one, value in found.items() if value is not None}
        if len(known) < len(found):
            parts.append(Part(place, None, "no value under some preferences"))
            continue
        worst = min(known, key=known.__getitem__)
        detail = ", ".join(f"{one} {value:.2f}" for one, value in known.items())
        parts.append(Part(place, worst == "equidistant", detail))
    return parts


def _some_beats(parameter: str, candidates: Sequence[float], plain: float) -> Judge:
    """Whether the best of the candidate values of a parameter gives a higher reward than the plain one."""

    def judge(values: Values, environment: str) -> list[Part]:
        place = ENVIRONMENTS[environment].title
        named = {
            value: values.get(("reward", environment, "dirichlet", varied(parameter, value)))
            for value in (*candidates, plain)
        }
        found = {value: reward for value, reward in named.items() if reward is not None}
        if len(found) < len(named):
            return [Part(place, None, f"no value for {', '.join(str(one) for one in named if one not in found)}")]
        best = max(candidates, key=found.__getitem__)
        return [Part(place, found[best] > found[plain], f"{found[best]:.2f} at {best} against {found[plain]:.2f}")]

    return judge


def _one_solution(values: Values, environment: str) -> list[Part]:
    parts = []
    for preferences in DISTRIBUTIONS:
        for name in ("fedavg", "fedprox"):
            value = values.get(("cardinality", environment, preferences, name))
            holds = None if value is None else value < NEARLY_ONE
            place = f"{DISTRIBUTIONS[preferences]}, {published.title(name)}"
            parts.append(Part(place, holds, "no value" if value is None else f"{value:.1f}"))
    return parts


def _more_than_seven(values: Values, environment: str) -> list[Part]:
    value = values.get(("cardinality", environment, "dirichlet", "fedpref+ft"))
    return [Part("Dirichlet", None if value is None else value > 7, "no value" if value is None else f"{value:.1f}")]


def _above(place: str, one: tuple[str, float | None], other: tuple[str, float | None]) -> Part:
    (name, value), (other_name, other_value) = one, other
    if value is None or other_value is None:
        return _unknown(place, [key for key, its in (one, other) if its is None])
    return Part(place, value > other_value, _against(name, value, other_name, other_value))


def _place(environment: str, metric: str, preferences: str) -> str:
    kind = "" if metric == "reward" else f" {metric}"
    return f"{ENVIRONMENTS[environment].title}{kind}, {DISTRIBUTIONS[preferences]}"


def _unknown(place: str, names: Iterable[str]) -> Part:
    return Part(place, None, f"no value for {', '.join(published.title(name) for name in names)}")


def _against(name: str, value: float, other: str, its_value: float) -> str:
    return f"{published.title(name)} {value:.2f} against {published.title(other)} {its_value:.2f}"
