"""Numbers of chapter 3 of L. M. Hartmann's thesis: MOFL/D with 18 configurations of the federation, and without one.

A configuration is named as in its tables, such as 3/10k/F: three clients, rounds of 10,000 local steps, no warm start.
The numbers are in published.toml, here in the units of the problems; `scale` has the powers of ten in which the
thesis prints some columns. What
it calls variance is the population deviation: in the cell of deep-sea treasure's best configuration, 993.9 (1.3), 15.8
(1.2) and 0.024 (0.1) are to the digit those of ten runs of which nine found the whole front and one missed (22.4, −17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpareto_papers import tables
from fedpareto_papers.study import Entry

_PRINTED = tables.read("fedpareto_papers.thesis.mofld")

METRICS = ("hypervolume", "sparsity", "igd")
"""Tables 3.2 (the first two) and 3.3."""
LOWER_IS_BETTER = ("sparsity", "igd")


@dataclass(frozen=True)
class Environment:
    """One of the three problems, with what table A.1 says of it."""

    title: str
    problem: str
    reference: tuple[float, ...]
    iterations: int
    samples: int
    steps: int
    """Steps of one client in one training ("total iterations")."""
    exploration: float
    """Share of these steps over which the share of random actions falls."""


ENVIRONMENTS: Mapping[str, Environment] = {
    "dst": Environment("DST", "deep-sea-treasure", (0, -50), 20, 5, 100_000, 0.2),
    "dmc": Environment("DMC", "minecart-deterministic", (-1, -1, -200), 25, 10, 150_000, 0.8),
    "moll": Environment("MOLL", "mo-lunar-lander", (-200, -200, -200, -200), 25, 10, 100_000, 0.12),
}
"""In the order of the tables' columns. All other parameters of DQN in table A.1 are those of table A.6, the defaults
of these problems.
"""

SEEDS = (5, 11, 17, 176, 462, 488, 3011, 6543, 9347, 675234)
SEEDS_OF_FIVE = (5, 17, 488, 3011, 6543)
"""Section A.1.1: of two and three clients, and of five."""


@dataclass(frozen=True)
class Configuration:
    """A row of the tables."""

    clients: int
    local_steps: int
    warm_start: bool

    @property
    def name(self) -> str:
        if self == NON_FEDERATED:
            return NON_FEDERATED_NAME
        return f"{self.clients}/{self.local_steps // 1000}k/{'T' if self.warm_start else 'F'}"

    @property
    def seeds(self) -> Sequence[int]:
        """As many as the thesis has. Of the non-federated system it has one run for each client of the others."""
        return SEEDS_OF_FIVE if self.clients == 5 else SEEDS


NON_FEDERATED, NON_FEDERATED_NAME = Configuration(1, 10_000, warm_start=False), "non-fed"
"""One client. Neither its rounds, which hardly matter, nor whether it starts warm are given."""
CONFIGURATIONS: Mapping[str, Configuration] = {
    one.name: one
    for one in (
        *(Configuration(n, steps, ws) for n in (2, 3, 5) for steps in (2_000, 5_000, 10_000) for ws in (True, False)),
        NON_FEDERATED,
    )
}
"""In the order of the tables' rows."""


def scale(metric: str, environment: str) -> float:
    """The power of ten in which the thesis prints a column."""
    return _PRINTED[metric].times.get(environment, 1)


TABLES: Mapping[str, Mapping[str, Mapping[str, Entry]]] = {metric: _PRINTED[metric].rows(Entry) for metric in METRICS}
"""Entries by metric, configuration and environment."""


@dataclass(frozen=True)
class Figure:
    """Configurations that a figure compares; the thesis prints no numbers of them."""

    environments: tuple[str, ...]
    configurations: tuple[str, ...]
    objectives: tuple[int, int] | None = None
    """From 0 on: of a figure of solutions, those on its axes; None: hypervolumes over trainings."""


FIGURES: Mapping[str, Figure] = {
    "fig-3.4a": Figure(("moll",), ("2/10k/F", "3/10k/F", "5/10k/F", "non-fed")),
    "fig-3.4b": Figure(("moll",), ("2/10k/F", "3/10k/F", "5/10k/F", "non-fed"), (0, 2)),
    "fig-3.5": Figure(("dmc", "dst"), ("3/2k/F", "3/5k/F", "3/10k/F")),
    "fig-3.6": Figure(("moll",), ("3/2k/F", "3/10k/F"), (0, 2)),
    "fig-3.7": Figure(("dmc", "dst"), ("2/2k/F", "3/2k/F", "5/2k/F", "non-fed")),
    "fig-A.1": Figure(("dmc", "dst"), ("3/5k/T", "3/5k/F")),
    "fig-A.2a": Figure(("moll",), ("3/10k/T", "3/10k/F")),
    "fig-A.2b": Figure(("moll",), ("3/10k/T", "3/10k/F"), (1, 2)),
}
"""The axes of figure 3.4b are not named; they are figure 3.6's here."""
