"""Conclusions of PraFFL's paper (claims.toml), checked on our runs.

Everything is compared seed by seed. A part holds where the 95 % interval of the paired differences lies above zero,
does not hold where their mean is not above zero, and in between cannot be judged with so few seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.moo.intervals import interval
from fedpareto_papers.claims import Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.praffl import published

if TYPE_CHECKING:
    from fedpareto_papers.praffl.reproduction import Solved


def verdicts(name: str, found: Sequence[Solved]) -> list[Claim]:
    """The claims that a table or figure is about."""
    return _Judge({(one.cell.data, one.cell.label): one for one in found}, name).verdicts()


def more(where: str, values: Sequence[float], others: Sequence[float], words: str) -> Part:
    """Compare numbers of the same seeds: whether the first are larger than the second."""
    differences = np.subtract(values, others)
    around = interval(differences)
    mean = float(differences.mean())
    is_sure = around is not None and around.excludes_zero
    holds = None if mean > 0 and not is_sure else mean > 0
    few = "one seed" if differences.size == 1 else "too few seeds that differ"
    width = few if around is None else f"95 % interval {around.low:+.3f} to {around.high:+.3f}"
    return Part(where, holds, f"{words}: {np.mean(values):.3f} less {np.mean(others):.3f}, {width}")


class _Judge(Judge):
    package = "fedpareto_papers.praffl"

    def places(self) -> Iterable[str]:
        return dict.fromkeys(data for data, _ in self.values)

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        return judged(one.what, [part for found in parts.values() for part in found])

    def largest(self, one: Statement, data: str) -> Iterator[Part]:
        volumes = {label: found.volumes() for (place, label), found in self.values.items() if place == data}
        ours = volumes.pop(published.PRAFFL, None)
        if ours is None or not volumes:
            yield Part(data, None, "PraFFL and baselines were not both run")
            return
        best = max(volumes, key=lambda label: float(np.mean(volumes[label])))
        yield more(data, ours, volumes[best], f"PraFFL against {best}")

    def grows(self, one: Statement, data: str) -> Iterator[Part]:
        found = self.values.get((data, published.PRAFFL))
        if found is not None and len(found.points[0]) > 2:
            yield more(data, found.volumes(), found.volumes(when=1), "after the last round against the first")
        elif found is not None:
            yield Part(data, None, "there is one round only")

    def better_than_at_high_heterogeneity(self, one: Statement, level: str) -> Iterator[Part]:
        found, high = (self.values.get((f"synthetic-{each}", published.PRAFFL)) for each in (level, "high"))
        if found is None or high is None:
            yield Part(level, None, "PraFFL was not run on it and on high heterogeneity")
        else:
            yield more(level, found.volumes(), high.volumes(), f"{level} against high")

    def closer_with_fewer_epochs(self, one: Statement, data: str) -> Iterator[Part]:
        few, many = (self.values.get((data, f"tau_p-{epochs(published.HEAD_EPOCHS_TRIED)}")) for epochs in (min, max))
        if few is None or many is None:
            yield Part(data, None, "not all were run")
            return
        words = "least distance to the origin with most epochs against fewest"
        yield more(data, _distances(many), _distances(few), words)


def _distances(found: Solved) -> list[float]:
    """The distance between each seed's closest solution and no error and no gap."""
    return [float(np.linalg.norm(history[-1][:, :2], axis=1).min()) for history in found.points]
