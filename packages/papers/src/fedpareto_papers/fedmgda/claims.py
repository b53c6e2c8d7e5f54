"""Conclusions of Hu et al. (2022) about figures 1 to 4 and table VI (claims.toml), checked on our numbers.

Claims compare means over the seeds and do not weigh the deviation. Accuracies are shares of 1; a point is 0.01 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda.published import CASES, TABLE_6, TITLES

Key = tuple[str, str, str]
"""Case, variant (such as fedavg, fedmgda,epsilon=0.1 or afl,bias=1; without its other settings), metric."""
NEARLY_ALL = 0.99
"""A share of improved users that "reaches towards 100%"."""
LARGEST = {name: f"{name},bias={biases[-1]:g}" for name, biases in published.BIASES.items()}
"""Variants under the largest bias."""
SCALED = f",scaling={published.SCALE:g}"


def verdicts(name: str, values: Mapping[Key, float]) -> list[Claim]:
    """The claims about one figure or table, checked on the means over seeds that there are."""
    return [claim for claim in _Judge(values, name).verdicts() if claim.verdict != "cannot be judged"]


def holds_as_published() -> list[Claim]:
    """The claims about table VI, checked on its own numbers: the only ones that the paper prints."""
    values = {
        ("mnist-writers", algorithm, metric): entry.mean
        for algorithm, row in TABLE_6.items()
        for metric, entry in row.items()
    }
    return verdicts("fedmgda-table-6", values)


def title(variant: str) -> str:
    """The paper's name of an algorithm, with what is special about it."""
    algorithm, comma, special = variant.partition(",")
    return TITLES[algorithm] + (f" ({special.replace('epsilon', 'ε').replace('=', ' ')})" if comma else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


class _Judge(Judge):
    package = "fedpareto_papers.fedmgda"
    lower_is_better = ("loss", "deviation")

    def places(self) -> Iterable[str]:
        return published.FIGURES[self.about].variants

    def key(self, at: At, name: str) -> Key:
        # On Adult a user has one row in eighty: the accuracy on all rows counts.
        accuracy = "pooled" if at.place == "adult-bias" else "average"
        return at.place, name, accuracy if at.metric == "accuracy" else at.metric

    def title(self, place: str) -> str:
        return CASES[place].title

    def name(self, name: str) -> str:
        return title(name)

    def where(self, one: Statement, at: At, name: str) -> str:
        special = title(name) if one.words else at.metric if at.metric in self.lower_is_better else ""
        return self.title(at.place) + (f", {special}" if special else "")

    def number(self, at: At, value: float) -> str:
        return f"{value:.3f}" if at.metric == "loss" else _percent(value)

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        if not one.words:
            return super().against(one, at, better, other)
        honest, attacked = (better[1], other[1]) if one.words == "honest" else (other[1], better[1])
        return f"{_percent(honest)} becomes {_percent(attacked)}"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        """The verdict on the comparisons with values; the places of the others are named."""
        every = [part for found in parts.values() for part in found]
        known = [part for part in every if part.holds is not None]
        missing = ", ".join(dict.fromkeys(part.where for part in every if part.holds is None))
        verdict, detail = judged(one.what, known or every)
        return verdict, detail + (f"; not run: {missing}" if known and missing else "")

    def _values(self, metric: str, place: str, names: Iterable[str]) -> dict[str, float]:
        """The values of all names, or nothing."""
        at = At(place, metric)
        keys = {name: self.key(at, name) for name in names}
        return {name: self.values[key] for name, key in keys.items()} if self.values.keys() >= {*keys.values()} else {}

    def in_between(self, one: Statement, case: str) -> Iterator[Part]:
        for epsilon in (epsilon for epsilon in published.EPSILONS if 0 < epsilon < 1):
            place = f"{self.title(case)}, ε = {epsilon:g}"
            values = self._values("loss", case, [f"fedmgda,epsilon={value:g}" for value in (0, epsilon, 1)])
            if not values:
                yield Part(place, None, "no value")
                continue
            first, here, last = values.values()
            yield Part(place, first <= here <= last, f"{here:.3f} between {first:.3f} and {last:.3f}")

    def nearer_to_phd_only(self, one: Statement, case: str) -> Iterator[Part]:
        """The attack costs more than half of the difference between the honest result and PhD-only training."""
        for algorithm in ("afl", "q-fedavg"):
            values = self._values("accuracy", case, (algorithm, LARGEST[algorithm], "local"))
            if not values:
                yield Part(TITLES[algorithm], None, "no value")
                continue
            honest, attacked, alone = values.values()
            falls = attacked < honest and alone < honest and honest - attacked > (honest - alone) / 2
            numbers = f"{_percent(honest)} becomes {_percent(attacked)}; PhD only has {_percent(alone)}"
            yield Part(TITLES[algorithm], falls, numbers)

    def q_fedavg_falls_most(self, one: Statement, case: str) -> Iterator[Part]:
        names = [each for name in published.ALGORITHMS for each in (name, name + SCALED)]
        values = self._values("accuracy", case, names)
        if not values:
            yield Part(self.title(case), None, "no value")
            return
        falls = {name: values[name] - values[name + SCALED] for name in published.ALGORITHMS}
        shown = ", ".join(f"{TITLES[name]} {-100 * fall:+.1f}" for name, fall in falls.items())
        yield Part(self.title(case), max(falls, key=falls.__getitem__) == "q-fedavg", f"{shown} points")

    def fedmgda_plus_attacked(self, one: Statement, case: str) -> Iterator[Part]:
        attacked = LARGEST["fedmgda-plus"] if case == "adult-bias" else f"fedmgda-plus{SCALED}"
        yield self.compare(replace(one, better=(attacked,), than=("fedmgda-plus",)), At(case, "accuracy"))

    def not_all_improve(self, one: Statement, case: str) -> Iterator[Part]:
        for part in self.all_improve(one, case):
            yield Part(part.where, None if part.holds is None else not part.holds, part.numbers)

    def all_improve(self, one: Statement, case: str) -> Iterator[Part]:
        value = self.values.get((case, "fedmgda-plus", "improved at the end"))
        unknown = value is None
        yield Part(self.title(case), None if unknown else value >= NEARLY_ALL, "" if unknown else _percent(value))
