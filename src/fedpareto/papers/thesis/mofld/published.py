"""What chapter 3 of L. M. Hartmann's thesis prints: MOFL/D with 18 configurations of the federation, and without one.

A configuration is named as in its tables, such as 3/10k/F: three clients, rounds of 10,000 local steps, no warm start.
Numbers are in the units of the problems; `SCALES` has the powers of ten in which the thesis prints some columns. What
it calls variance is the population deviation: in the cell of deep-sea treasure's best configuration, 993.9 (1.3), 15.8
(1.2) and 0.024 (0.1) are to the digit those of ten runs of which nine found the whole front and one missed (22.4, −17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpareto.papers.measured import Entry

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
    """Of one client in one training ("total iterations")."""
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
        """As printed."""
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

SCALES: Mapping[str, Sequence[float]] = {"hypervolume": (1, 1, 1e7), "sparsity": (1, 1, 10), "igd": (1, 1, 1)}
"""What the thesis divides by before it prints, in the order of ENVIRONMENTS."""


def scale(metric: str, environment: str) -> float:
    """What the thesis divides by."""
    return SCALES[metric][list(ENVIRONMENTS).index(environment)]


def _table(metric: str, text: str) -> dict[str, dict[str, Entry]]:
    """By configuration and environment, from mean and deviation of each environment."""
    found = {}
    for name, line in zip(CONFIGURATIONS, text.strip().splitlines(), strict=True):
        cells = [[float(number) for number in cell.split()] for cell in line.split("|")]
        found[name] = {
            environment: Entry(round(mean * unit, 6), round(deviation * unit, 6))
            for environment, unit, (mean, deviation) in zip(ENVIRONMENTS, SCALES[metric], cells, strict=True)
        }
    return found


TABLES: Mapping[str, Mapping[str, Mapping[str, Entry]]] = {
    "hypervolume": _table(
        "hypervolume",
        """
        992.3 2.4 | 896.8 33.4 | 403.7 8.3
        970.8 39.9 | 932.9 17.9 | 404.6 8.2
        973.6 33.1 | 867.6 58.2 | 399.7 8.0
        990.8 3.3 | 936.9 11.6 | 405.2 11.3
        990.3 4.5 | 854.6 58.1 | 405.4 7.5
        985.8 14.7 | 932.0 11.5 | 404.0 10.7
        984.5 12.2 | 869.0 60.0 | 410.2 15.1
        986.6 10.7 | 940.5 7.1 | 405.2 8.3
        990.8 3.1 | 893.6 49.7 | 402.9 9.3
        974.8 40.0 | 935.7 9.0 | 406.0 6.0
        987.3 10.7 | 819.2 44.8 | 407.9 15.0
        993.9 1.3 | 908.2 39.0 | 412.3 11.7
        974.8 28.4 | 908.0 1.9 | 425.0 6.8
        988.2 9.1 | 941.1 7.2 | 408.1 6.7
        985.5 10.7 | 890.0 47.1 | 420.5 14.0
        991.4 2.6 | 936.5 16.3 | 411.2 11.7
        989.8 3.8 | 886.4 44.8 | 413.3 14.1
        992.1 3.3 | 923.1 13.5 | 421.4 7.8
        983.1 39.2 | 879.8 73.3 | 388.7 8.5
        """,
    ),
    "sparsity": _table(
        "sparsity",
        """
        17.9 3.0 | 1.0 0.5 | 353.5 634.3
        21.8 9.0 | 1.5 2.9 | 50.9 85.1
        22.3 11.8 | 1.5 0.8 | 95.6 166.0
        19.6 3.3 | 0.5 0.2 | 30.6 23.5
        19.8 3.9 | 1.6 0.8 | 141.8 338.8
        22.1 10.4 | 0.5 0.2 | 30.7 20.0
        26.1 12.8 | 1.4 0.9 | 108.3 247.2
        24.2 11.4 | 0.4 0.1 | 52.5 55.1
        20.0 4.9 | 1.1 0.7 | 210.1 565.0
        23.0 12.0 | 0.5 0.1 | 20.9 7.6
        22.0 7.6 | 2.1 0.6 | 104.2 134.0
        15.8 1.2 | 0.9 0.6 | 51.3 66.0
        46.1 46.1 | 0.9 0.0 | 68.9 104.2
        21.3 8.5 | 0.4 0.1 | 14.9 5.3
        27.4 13.9 | 1.1 0.7 | 57.4 67.1
        19.0 2.9 | 0.5 0.2 | 12.9 1.8
        22.1 5.8 | 1.2 0.6 | 207.4 276.3
        17.8 3.5 | 0.7 0.2 | 23.2 16.9
        35.7 116.9 | 1.3 0.9 | 108.5 147.9
        """,
    ),
    "igd": _table(
        "igd",
        """
        0.113 0.1 | 0.135 0.1 | 24.729 2.0
        0.393 0.5 | 0.097 0.1 | 24.030 1.7
        0.399 0.5 | 0.257 0.2 | 25.017 2.1
        0.189 0.2 | 0.079 0.0 | 24.693 1.6
        0.218 0.2 | 0.276 0.2 | 23.850 2.4
        0.287 0.4 | 0.098 0.1 | 24.290 2.5
        0.426 0.5 | 0.237 0.2 | 24.452 4.0
        0.367 0.5 | 0.087 0.0 | 23.617 2.1
        0.189 0.2 | 0.169 0.1 | 22.834 2.0
        0.412 0.5 | 0.054 0.0 | 23.351 1.8
        0.273 0.3 | 0.388 0.1 | 23.920 2.5
        0.024 0.1 | 0.158 0.1 | 22.019 1.8
        0.748 1.0 | 0.106 0.0 | 22.411 2.7
        0.271 0.4 | 0.054 0.0 | 22.138 1.5
        0.366 0.4 | 0.157 0.2 | 22.462 2.5
        0.151 0.1 | 0.088 0.1 | 22.780 2.1
        0.308 0.3 | 0.168 0.1 | 21.549 2.3
        0.082 0.1 | 0.086 0.0 | 20.221 1.5
        0.335 1.1 | 0.209 0.2 | 27.912 2.0
        """,
    ),
}


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
