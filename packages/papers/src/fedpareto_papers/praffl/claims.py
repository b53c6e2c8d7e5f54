"""What PraFFL's paper concludes from its table and figures, and whether our runs say the same.

Everything is compared seed by seed. A part holds where the 95 % interval of the paired differences lies above zero,
does not hold where their mean is not above zero, and in between cannot be judged with so few seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedpareto.moo.intervals import interval
from fedpareto_papers.claims import Claim, Part, judged
from fedpareto_papers.praffl import published
from fedpareto_papers.praffl.cells import Found

Values = Sequence[float]
"""One number for each seed."""


def verdicts(name: str, found: Sequence[Found]) -> list[Claim]:
    """The claims that a table or figure is about."""
    if name in ("praffl-table-1", "praffl-fig-6", "praffl-fig-7"):
        return [_largest(found), _rises(found)]
    if name == "praffl-fig-8":
        return [_heterogeneity(found)]
    if name == "praffl-fig-9":
        return [_epochs(found)]
    return []


def more(where: str, values: Values, others: Values, words: str) -> Part:
    """Whether the first are larger than the second."""
    differences = np.subtract(values, others)
    around = interval(differences)
    mean = float(differences.mean())
    is_sure = around is not None and around.excludes_zero
    holds = None if mean > 0 and not is_sure else mean > 0
    few = "one seed" if differences.size == 1 else "too few seeds that differ"
    width = few if around is None else f"95 % interval {around.low:+.3f} to {around.high:+.3f}"
    return Part(where, holds, f"{words}: {np.mean(values):.3f} less {np.mean(others):.3f}, {width}")


def _largest(found: Sequence[Found]) -> Claim:
    parts = []
    for data, cells in _by_data(found).items():
        volumes = {label: cell.volumes() for label, cell in cells.items()}
        ours = volumes.pop(published.PRAFFL, None)
        if ours is None or not volumes:
            parts.append(Part(data, None, "PraFFL and baselines were not both run"))
            continue
        best = max(volumes, key=lambda label: float(np.mean(volumes[label])))
        parts.append(more(data, ours, volumes[best], f"PraFFL against {best}"))
    statement = "PraFFL has a larger hypervolume than all five baselines on every data set."
    return Claim("praffl-largest", statement, "6.2", *judged("data sets", parts))


def _rises(found: Sequence[Found]) -> Claim:
    parts = [
        more(one.cell.data, one.volumes(), one.volumes(when=1), "after the last round against the first")
        if len(one.points[0]) > 2
        else Part(one.cell.data, None, "there is one round only")
        for one in found
        if one.cell.algorithm == published.PRAFFL
    ]
    statement = "PraFFL's hypervolume grows with the rounds."
    return Claim("praffl-grows", statement, "6.2", *judged("data sets", parts))


def _heterogeneity(found: Sequence[Found]) -> Claim:
    ours = {one.cell.data: one.volumes() for one in found if one.cell.algorithm == published.PRAFFL}
    high = ours.get("synthetic-high")
    parts = [
        Part(level, None, "PraFFL was not run on it and on high heterogeneity")
        if high is None or f"synthetic-{level}" not in ours
        else more(level, ours[f"synthetic-{level}"], high, f"{level} against high")
        for level in published.LEVELS
        if level != "high"
    ]
    statement = "PraFFL's solutions are better at low and medium heterogeneity than at high heterogeneity."
    return Claim("praffl-heterogeneity", statement, "6.3.1", *judged("levels", parts))


def _epochs(found: Sequence[Found]) -> Claim:
    few, many = (f"tau_p-{epochs(published.HEAD_EPOCHS_TRIED)}" for epochs in (min, max))
    parts = []
    for data, cells in _by_data(found).items():
        if few not in cells or many not in cells:
            parts.append(Part(data, None, "not all were run"))
            continue
        near, far = _distances(cells[few]), _distances(cells[many])
        parts.append(more(data, far, near, "least distance to the origin with most epochs against fewest"))
    statement = "With fewer epochs of the hypernetwork, solutions come closer to the origin."
    return Claim("praffl-epochs", statement, "6.3.2", *judged("data sets", parts))


def _distances(found: Found) -> list[float]:
    """Of each seed, how close to no error and no gap its closest solution is."""
    return [float(np.linalg.norm(history[-1][:, :2], axis=1).min()) for history in found.points]


def _by_data(found: Sequence[Found]) -> Mapping[str, Mapping[str, Found]]:
    by_data: dict[str, dict[str, Found]] = {}
    for one in found:
        by_data.setdefault(one.cell.data, {})[one.cell.label] = one
    return by_data
