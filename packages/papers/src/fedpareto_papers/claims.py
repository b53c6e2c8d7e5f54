"""Conclusions of papers as data, in a file `claims.toml` beside `published.toml`, and whether they hold on our numbers.

    [names]                                      # groups: each can stand wherever a list of names is
    fedpref = ["fedpref+ft", "fedpref"]

    [fedpref-best-gaussian]
    says = "Under Gaussian preferences a variant of FedPref has the highest reward on MO-LL and DST."
    section = "4.3.2"
    places = ["moll", "dst"]
    metrics = "reward"                           # one word, or a list; a comparison for each
    given = "gaussian"
    better = "fedpref"
    than = ["local", "fedavg"]
    ties = true

The best of `better` is compared with the best of the others in `than`. What does not fit into this is a method of the
paper's Judge, named by `hook`. A claim is checked on the values that there are; missing ones are named, and never count
for or against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, ClassVar, Literal

from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build
from fedpareto_papers import tables

FILE = "claims.toml"
Verdict = Literal["holds", "holds in part", "does not hold", "cannot be judged"]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper and our verdict."""

    name: str
    statement: str
    where: str
    """Section of the paper."""
    verdict: Verdict
    detail: str

    def __str__(self) -> str:
        return f"Claim (section {self.where}): {self.statement} Verdict: {self.verdict.upper()}. {self.detail}."


@dataclass(frozen=True)
class Part:
    """One comparison of a claim."""

    where: str
    holds: bool | None
    """None if a value is missing."""
    numbers: str

    def __str__(self) -> str:
        return f"{self.where} ({self.numbers})"


def judged(what: str, parts: Sequence[Part]) -> tuple[Verdict, str]:
    """One verdict from all parts, each of which is named with its numbers."""
    groups = [
        (prefix, [str(part) for part in parts if part.holds is holds])
        for prefix, holds in (("holds in ", True), ("not in ", False), ("cannot be judged in ", None))
    ]
    listed = "; ".join(prefix + ", ".join(group) for prefix, group in groups if group)
    known = [part.holds for part in parts if part.holds is not None]
    detail = f"{sum(known)} of {len(known)} {what}: {listed}" if known else listed
    if not known:
        return "cannot be judged", detail
    if not any(known):
        return "does not hold", detail
    return "holds" if all(known) and len(known) == len(parts) else "holds in part", detail


# -- statements as data --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A conclusion as `claims.toml` has it."""

    says: str = ""
    section: str = ""
    about: tuple[str, ...] = ()
    """Reproductions that show it; empty: those that check claims of the whole paper together."""
    places: tuple[str, ...] = ()
    """Problems, cases or columns on which it is checked; empty: all that the reproduction has."""
    metrics: tuple[str, ...] = ("",)
    given: tuple[str, ...] = ("",)
    """Further conditions, such as distributions of preferences, each with its own comparison."""
    each: tuple[tuple[str, ...], ...] = ()
    """Words for {0}, {1} … in `better` and `than`: every combination is a comparison."""
    better: tuple[str, ...] = ()
    than: tuple[str, ...] = ()
    by: float = 0.0
    """Lead that is needed; if negative, distance that is allowed."""
    within: float = 0.0
    """Share of the other value by which the better one may be behind."""
    ties: bool = False
    """A lead that is exactly as large as needed suffices."""
    lower: bool = False
    """Lower values are better, also of metrics where higher ones usually are."""
    known: bool = False
    """Names in `than` without a value are left out of the comparison."""
    words: str = ""
    """Wording of the comparison, where the paper's Judge has several."""
    what: str = "comparisons"
    """Noun for the parts that are counted."""
    hook: str = ""
    """Method of the paper's Judge that makes the parts of a place instead."""
    together: bool = False
    """The claim is that neither side is always better, which all places together show."""


@cache
def statements(package: str) -> Mapping[str, Statement]:
    """The claims of a package, such as fedpareto_papers.fedmgda, by name; errors name the claim and the key."""
    return parse(tables.content(package, FILE), f"{package}/{FILE}")


def parse(content: Mapping[str, Any], where: str) -> dict[str, Statement]:
    """The claims in the content of a file."""
    groups = content.get("names", {})
    found = {}
    for name, given in content.items():
        if name == "names":
            continue
        if not isinstance(given, dict):
            raise UserError(f"{where}: {name} is no claim, which is a table [{name}]")
        one = build(Statement, given, f"{where}: {name}")
        if not (one.says and one.section and (one.hook or (one.better and one.than))):
            raise UserError(f"{where}: {name} needs says, section, and a hook or better and than")
        lists: dict[str, Any] = {key: _expanded(getattr(one, key), groups) for key in ("places", "better", "than")}
        found[name] = replace(one, **lists, each=tuple(_expanded(words, groups) for words in one.each))
    return found


def _expanded(names: Iterable[str], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(one for name in names for one in groups.get(name, (name,)))


# -- verdicts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class At:
    """The setting of one comparison."""

    place: str
    metric: str = ""
    given: str = ""


class Judge:
    """The claims of a paper on some numbers. A paper says how its keys, places and numbers are written."""

    package: ClassVar[str]
    lower_is_better: ClassVar[Sequence[str]] = ()
    about: str = ""
    """The reproduction whose claims are checked, where a paper has several kinds."""

    def __init__(self, values: Mapping[Any, Any], about: str = "") -> None:
        self.values = values
        self.about = about

    def verdicts(self) -> list[Claim]:
        """Every claim, checked on the values that there are."""
        return [
            Claim(name, one.says, one.section, *self.conclude(one, self.parts(one)))
            for name, one in statements(self.package).items()
            if self.about in (one.about or ("",))
        ]

    def parts(self, one: Statement) -> dict[str, list[Part]]:
        make = getattr(self, one.hook) if one.hook else self.compared
        return {place: list(make(one, place)) for place in one.places or self.places()}

    def compared(self, one: Statement, place: str) -> Iterator[Part]:
        for metric, given, words in product(one.metrics, one.given, product(*one.each)):
            better, than = (tuple(name.format(*words) for name in names) for names in (one.better, one.than))
            yield self.compare(replace(one, better=better, than=than), At(place, metric, given))

    def compare(self, one: Statement, at: At) -> Part:
        """Compare the best of `better` with the best of the others."""
        better, than = one.better, one.than
        names = than if set(better) <= set(than) else [*better, *than]
        values = {name: value for name in names if (value := self.values.get(self.key(at, name))) is not None}
        others = [name for name in than if name not in better and (name in values or not one.known)]
        missing = [name for name in names if name not in values and (name in (*better, *others) or not others)]
        if missing:
            return Part(self.where(one, at, better[0]), None, self.unknown(one, missing))
        sign = -1 if one.lower or at.metric in self.lower_is_better else 1
        best, other = (max(several, key=lambda name: sign * values[name]) for several in (better, others))
        lead = sign * (values[best] - values[other]) - one.by + one.within * values[other]
        holds = lead >= 0 if one.ties else lead > 0
        return Part(
            self.where(one, at, best), holds, self.against(one, at, (best, values[best]), (other, values[other]))
        )

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        """The verdict on a claim and its detail; places without any value are named."""
        run = {place: found for place, found in parts.items() if any(part.holds is not None for part in found)}
        missing = [self.title(place) for place in parts if place not in run]
        if not run:
            return "cannot be judged", f"needs {', '.join(missing)}"
        verdict, detail = judged(one.what, [part for found in run.values() for part in found])
        return verdict, detail + (f"; not run: {', '.join(missing)}" if missing else "")

    # -- how a paper writes --------------------------------------------------------------------------------------------

    def places(self) -> Iterable[str]:
        """The places of claims that name none."""
        raise NotImplementedError

    def key(self, at: At, name: str) -> Key:
        """The key of a value."""
        return at.metric, at.place, name

    def title(self, place: str) -> str:
        """The title of a place."""
        return place

    def name(self, name: str) -> str:
        """The title of an algorithm or another name."""
        return name

    def where(self, one: Statement, at: At, name: str) -> str:
        """The place of a comparison in words."""
        return self.title(at.place)

    def number(self, at: At, value: float) -> str:
        return f"{value:.2f}"

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        """Both values in words."""
        (name, value), (its_name, its_value) = better, other
        return f"{self.name(name)} {self.number(at, value)} against {self.name(its_name)} {self.number(at, its_value)}"

    def unknown(self, one: Statement, missing: Iterable[str]) -> str:
        """The missing values in words."""
        return f"no value for {', '.join(map(self.name, missing))}"
