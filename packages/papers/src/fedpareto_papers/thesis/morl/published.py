"""Numbers of chapter 4 of L. M. Hartmann's thesis: rewards and metrics of FedPref and its baselines, hyper-parameters.

The numbers are in published.toml. Environments are the thesis's five, algorithms have the names used here: `local` is
its "No comm.", `mat-fl` its "MaTFL", `fedpref` its "FedPref-FT"; `+ft` is fine-tuning. Numbers are in the units of the
problems, not in the powers of ten in which the thesis prints some columns; `scale` has these.

The thesis does not give everything. What is missing is a named constant below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedpareto.contract.registry import FINE_TUNED
from fedpareto_papers import tables
from fedpareto_papers.study import Entry

_PRINTED = tables.read("fedpareto_papers.thesis.morl")

DISTRIBUTIONS = {"dirichlet": "Dirichlet", "equidistant": "equidistant", "gaussian": "Gaussian"}
"""Distributions of preferences, and their titles."""
ALGORITHMS = (
    *("local", "fedavg", "fedavg+ft", "fedprox", "fedprox+ft"),
    *("cfl", "cfl+ft", "mat-fl", "fedpref+ft", "fedpref"),
)
"""In the order of the tables' rows."""
COMPONENTS = (
    *("fedpref-clustering+ft", "fedpref-clustering"),
    *("fedpref-weighting+ft", "fedpref-weighting"),
    *("fedpref+ft", "fedpref"),
)
"""Variants in the ablation (tables 4.2 and 4.7), in the order of their rows."""
TITLES = {
    "local": "No comm.",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "cfl": "CFL",
    "mat-fl": "MaTFL",
    "fedpref": "FedPref",
    "fedpref-clustering": "Clustering only",
    "fedpref-weighting": "Weighted agg. only",
}
METRICS = ("reward", "hypervolume", "sparsity", "igd", "cardinality")
"""Tables 4.1, 4.3, 4.4, 4.5 and 4.6."""
LOWER_IS_BETTER = ("sparsity", "igd")
SEEDS = 10
"""Section A.2.2.1, and the multiples of 0.1 among the cardinalities of table 4.6."""
TOP_RATIO = 0.4
"""FedPref's R, not given for the main study; no line of table A.9 equals table 4.1. What `fedpref` has of itself."""


@dataclass(frozen=True)
class Environment:
    """One of the five problems."""

    title: str
    problem: str
    steps: int
    """Steps of one client in all rounds together; not given, see below."""
    clients: int = 20
    balanced: str = "5,5,5,5"
    """Clients that share a preference (section 4.3.5)."""
    unbalanced: str = "2,3,6,9"


ENVIRONMENTS: Mapping[str, Environment] = {
    "moll": Environment("MO-LL", "mo-lunar-lander", 150_000),
    "dmc": Environment("DMC", "minecart-deterministic", 200_000),
    "dst": Environment("DST", "deep-sea-treasure", 15_000),
    "mohc": Environment("MO-HC", "mo-halfcheetah", 750_000, 10, "3,3,3", "1,4,3,2"),
    "mollc": Environment("MO-LLc", "mo-lunar-lander-continuous", 150_000),
}
"""In the order of the tables' columns.

Steps: captions of figures 4.11 and A.3 to A.11 count aggregation rounds up to 28 (MO-LL, DST), 38 (DMC) and 30 (MO-HC,
MO-LLc). With table A.5's local iterations, 150,000, 15,000 and 200,000 steps are 30, 30 and 40 rounds; if the last one
is the fine-tuning and the others are counted from 0, that makes 28, 28 and 38. MO-HC's 30 rounds of 25,000 are 750,000.
For MO-LLc 30 rounds of FedPref's 10,000 would be 300,000; we take what the other lander has, hence 15 rounds of 10,000.
"""

SHOWN: Mapping[tuple[str, str], tuple[tuple[int, ...], int]] = {
    (environment, groups): (tuple(shown), every)
    for environment, cells in _PRINTED["shown"].blocks[""].items()
    for groups, (*shown, every) in cells.items()
}
"""Rounds whose similarity matrices are shown, and of how many they are, by environment and kind of groups."""


def scale(metric: str, environment: str) -> float:
    """The power of ten in which the thesis prints a column."""
    return _PRINTED[metric].times.get(environment, 1)


Columns = Mapping[str, Entry]
"""A row of a table, by environment."""

TABLES: Mapping[str, Mapping[str, Mapping[str, Columns]]] = {metric: _PRINTED[metric].of(Entry) for metric in METRICS}
"""Entries by metric, distribution and algorithm."""

ABLATION: Mapping[str, Mapping[str, Columns]] = {
    metric: _PRINTED[f"components-{metric}"].rows(Entry)
    for metric in ("reward", "hypervolume", "cardinality", "sparsity", "igd")
}
"""Entries by metric and variant."""


def _by_value(table: str) -> dict[float, Columns]:
    return {float(number): row for number, row in _PRINTED[table].rows(Entry).items()}


TOP_RATIOS: Mapping[float, Columns] = _by_value("top-ratio")
"""The reward of FedPref+FT by R."""
SIMILARITY_BOUNDS: Mapping[float, Columns] = _by_value("similarity-bound")
"""The reward of FedPref+FT by s_min."""


@dataclass(frozen=True)
class Selected:
    """The hyper-parameters selected for one algorithm in one environment (table A.5)."""

    steps: int
    """Local iterations, read as environment steps in a round."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the algorithm itself."""


_SELECTED = _PRINTED["selected"].of(tables.value)
"""Hyper-parameters by algorithm, parameter and environment."""


def selected(environment: str, algorithm: str) -> Selected:
    """Parameters that table A.5 lists; FedPref's components have FedPref's."""
    name = "fedpref" if algorithm.startswith("fedpref") else algorithm.removesuffix(FINE_TUNED)
    # Alone there are no rounds; any number of steps is the same.
    listed = _SELECTED["fedavg" if name == "local" else name]
    own = {parameter: row[environment] for parameter, row in listed.items()}
    return Selected(own.pop("steps"), own | ({"top_ratio": TOP_RATIO} if name == "fedpref" else {}))


def title(algorithm: str) -> str:
    base = algorithm.removesuffix(FINE_TUNED)
    if algorithm.endswith(FINE_TUNED):
        return f"{TITLES[base]}+FT"
    return f"{TITLES[base]}-FT" if base in ("fedpref", "fedpref-clustering", "fedpref-weighting") else TITLES[base]
