"""Conclusions of chapter 3 of the thesis (claims.toml), checked on our numbers and on its own.

A claim is checked on the environments that were run; the others are named. Claims compare means and do not weigh the
deviation over seeds, so that a tendency in the thesis may hold in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict
from fedpareto_papers.thesis.mofld import published

Key = tuple[str, str, str]
"""Metric, environment, configuration (such as 3/10k/F)."""


def verdicts(values: Mapping[Key, float]) -> list[Claim]:
    """Every claim, checked on the means over seeds that there are."""
    return _Judge(values).verdicts()


def holds_as_published() -> list[Claim]:
    """Every claim, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """The means that the thesis prints."""
    return {
        (metric, environment, name): entry.mean
        for metric, rows in published.TABLES.items()
        for name, columns in rows.items()
        for environment, entry in columns.items()
    }


class _Judge(Judge):
    package = "fedpareto_papers.thesis.mofld"

    def title(self, place: str) -> str:
        return published.ENVIRONMENTS[place].title

    def where(self, one: Statement, at: At, name: str) -> str:
        return f"{self.title(at.place)} {name}"

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        unit = published.scale(at.metric, at.place)
        return f"{better[1] / unit:.1f} against {other[0]} {other[1] / unit:.1f}"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        """The verdict; comparisons that lack a value are counted, not listed.

        A claim about all places `together` is that neither side is always better, which one comparison on each side
        shows and only all of them refute.
        """
        known = {place: [part for part in found if part.holds is not None] for place, found in parts.items()}
        verdict, detail = super().conclude(one, known)
        holds = [part.holds for found in known.values() for part in found]
        if not holds:
            return verdict, detail
        lacking = sum(len(found) - len(known[place]) for place, found in parts.items() if known[place])
        if one.together:
            is_whole = not lacking and all(known.values())
            verdict = "holds" if len(set(holds)) == 2 else "does not hold" if is_whole else "cannot be judged"
        elif verdict == "holds" and lacking:
            verdict = "holds in part"
        if lacking:
            listed, split, missing = detail.partition("; not run: ")
            detail = f"{listed}; {lacking} more lack a value{split}{missing}"
        return verdict, detail
