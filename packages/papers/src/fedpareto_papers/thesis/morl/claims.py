"""Conclusions of chapter 4 of the thesis (claims.toml), checked on our numbers and on its own.

A claim about several environments is checked on those that were run; the others are named. Claims compare means and do
not weigh the deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fedpareto.contract.registry import FINE_TUNED
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement
from fedpareto_papers.study import Entry
from fedpareto_papers.thesis.morl import published
from fedpareto_papers.thesis.morl.published import DISTRIBUTIONS, ENVIRONMENTS

Key = tuple[str, str, str, str]
"""Metric, environment, preferences, algorithm (such as fedpref+ft or fedpref+ft,top_ratio=0.2)."""
NEARLY_ONE = 1.05
"""A mean cardinality that is printed as 1.0."""


def verdicts(values: Mapping[Key, float]) -> list[Claim]:
    """Every claim, checked on the means over seeds that there are."""
    return _Judge(values).verdicts()


def holds_as_published() -> list[Claim]:
    """Every claim, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """The means that the thesis prints."""
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
    """The name of FedPref+FT with another value of a parameter."""
    return f"fedpref{FINE_TUNED},{parameter}={value}"


class _Judge(Judge):
    package = "fedpareto_papers.thesis.morl"
    lower_is_better = published.LOWER_IS_BETTER

    def key(self, at: At, name: str) -> Key:
        return at.metric, at.place, at.given, name

    def title(self, place: str) -> str:
        return ENVIRONMENTS[place].title

    def name(self, name: str) -> str:
        base, comma, parameter = name.partition(",")
        return parameter.partition("=")[2] if comma else published.title(base)

    def where(self, one: Statement, at: At, name: str) -> str:
        kind = "" if at.metric == "reward" else f" {at.metric}"
        return self.title(at.place) + ("" if one.words == "parameter" else f"{kind}, {DISTRIBUTIONS[at.given]}")

    def number(self, at: At, value: float) -> str:
        return f"{value / published.scale(at.metric, at.place):.2f}"

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        if one.words != "parameter":
            return super().against(one, at, better, other)
        return f"{better[1]:.2f} at {self.name(better[0])} against {other[1]:.2f}"

    def worse_when_equidistant(self, one: Statement, environment: str) -> Iterator[Part]:
        for name in ("fedavg", "fedavg+ft", "fedprox", "fedprox+ft"):
            place = f"{self.title(environment)}, {self.name(name)}"
            keys = {given: ("reward", environment, given, name) for given in DISTRIBUTIONS}
            values = {given: self.values[key] for given, key in keys.items() if key in self.values}
            if len(values) < len(keys):
                yield Part(place, None, "no value under some preferences")
                continue
            detail = ", ".join(f"{given} {value:.2f}" for given, value in values.items())
            yield Part(place, min(values, key=values.__getitem__) == "equidistant", detail)

    def one_solution(self, one: Statement, environment: str) -> Iterator[Part]:
        for given, title in DISTRIBUTIONS.items():
            for name in ("fedavg", "fedprox"):
                value = self.values.get(("cardinality", environment, given, name))
                yield _counted(f"{title}, {self.name(name)}", value, value is not None and value < NEARLY_ONE)

    def more_than_seven(self, one: Statement, environment: str) -> Iterable[Part]:
        value = self.values.get(("cardinality", environment, "dirichlet", "fedpref+ft"))
        return [_counted("Dirichlet", value, value is not None and value > 7)]


def _counted(place: str, value: float | None, holds: bool) -> Part:
    return Part(place, None, "no value") if value is None else Part(place, holds, f"{value:.1f}")
