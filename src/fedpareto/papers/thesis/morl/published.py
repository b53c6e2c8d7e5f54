"""What chapter 4 of L. M. Hartmann's thesis prints: rewards and metrics of FedPref and its baselines, hyper-parameters.

Environments are the thesis's five, algorithms have the names used here: `local` is its "No comm.", `mat-fl` its
"MaTFL", `fedpref` its "FedPref-FT"; `+ft` is fine-tuning. Numbers are in the units of the problems, not in the powers
of ten in which the thesis prints some columns; `SCALES` has these.

Deviations are of the population, with one exception: those of table 4.2 are larger than table 4.1's for the same runs
by √(10/9), so they are of the sample. In A.8 and A.9 the second line of deviations repeats the first.

The thesis does not give everything. What is missing is a named constant below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpareto.core.registry import FINE_TUNED
from fedpareto.papers.measured import Entry

DISTRIBUTIONS = {"dirichlet": "Dirichlet", "equidistant": "equidistant", "gaussian": "Gaussian"}
"""Of preferences, and what they are called."""
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
"""Of the ablation (tables 4.2 and 4.7), in the order of their rows."""
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
    """Of one client in all rounds together; not given, see below."""
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
    ("moll", "balanced"): ((5, 14, 26), 28),
    ("moll", "unbalanced"): ((5, 14, 24), 28),
    ("dmc", "balanced"): ((5, 15, 25), 38),
    ("dmc", "unbalanced"): ((5, 15, 25), 38),
    ("dst", "balanced"): ((5, 15, 25), 28),
    ("dst", "unbalanced"): ((5, 15, 25), 28),
    ("mohc", "balanced"): ((5, 15, 25), 30),
    ("mohc", "unbalanced"): ((5, 15, 25), 30),
    ("mollc", "balanced"): ((5, 15, 25), 30),
    ("mollc", "unbalanced"): ((5, 15, 25), 30),
}
"""Rounds whose similarity matrices figures 4.11 and A.3 to A.11 show, and of how many they are. Figures A.10 and A.11
are captioned DST, but the text discusses them as the continuous lander."""

SCALES: Mapping[str, Sequence[float]] = {
    "reward": (1, 1, 1, 1, 1),
    "hypervolume": (1e7, 1, 1e1, 1e4, 1e7),
    "sparsity": (1e2, 1, 1, 1e4, 1e1),
    "igd": (1, 1, 1, 1, 1),
    "cardinality": (1, 1, 1, 1, 1),
}
"""What the thesis divides by before it prints, in the order of ENVIRONMENTS."""


def scale(metric: str, environment: str) -> float:
    """What the thesis divides by."""
    return SCALES[metric][list(ENVIRONMENTS).index(environment)]


Columns = Mapping[str, Entry]
"""A row of a table, by environment."""


def _lines(metric: str, text: str) -> list[Columns]:
    """From mean and deviation of each environment."""
    found: list[Columns] = []
    for line in text.strip().splitlines():
        numbers = [[float(number) for number in cell.split()] for cell in line.split("|")]
        found.append(
            {
                environment: Entry(round(mean * unit, 6), round(deviation * unit, 6))
                for environment, unit, (mean, deviation) in zip(ENVIRONMENTS, SCALES[metric], numbers, strict=True)
            }
        )
    return found


def _by_preferences(metric: str, *blocks: str) -> dict[str, dict[str, Columns]]:
    """By distribution and algorithm."""
    return {
        distribution: dict(zip(ALGORITHMS, _lines(metric, block), strict=True))
        for distribution, block in zip(DISTRIBUTIONS, blocks, strict=True)
    }


TABLES: Mapping[str, Mapping[str, Mapping[str, Columns]]] = {
    "reward": _by_preferences(  # Table 4.1.
        "reward",
        """
        14.32 13.3 | -2.52 0.9 | -0.43 1.8 | 2440.30 511.3 | 11.95 12.6
        30.52 14.7 | -3.20 3.4 | -16.50 24.7 | 2234.06 1202.9 | 34.19 11.4
        4.31 11.0 | -5.41 0.9 | -36.40 10.0 | 2901.84 798.1 | 16.29 6.3
        31.20 16.9 | -3.34 3.6 | -11.05 22.1 | 2172.35 1231.2 | 32.45 11.2
        3.21 11.3 | -5.44 0.6 | -34.52 7.2 | 3017.22 795.3 | 13.82 12.5
        31.18 17.8 | -2.76 0.9 | -12.90 21.8 | 2835.50 817.7 | 26.90 12.5
        10.09 13.2 | -3.82 2.1 | -35.14 10.2 | 2864.62 871.0 | 19.81 7.6
        7.82 9.9 | -4.39 2.2 | -6.32 3.6 | 1596.59 558.9 | 10.98 7.3
        32.22 11.3 | -2.42 1.6 | 4.41 1.7 | 2980.26 784.4 | 32.17 7.0
        37.27 11.9 | -1.90 1.2 | 1.21 3.4 | 3104.59 742.3 | 32.91 9.8
        """,
        """
        18.49 10.5 | -1.70 1.5 | 0.68 1.9 | 2265.67 440.5 | 22.49 6.9
        -55.64 46.9 | -6.77 0.3 | -17.87 26.2 | 1952.42 321.4 | 28.04 6.8
        -16.95 5.6 | -6.24 0.4 | -36.01 3.1 | 3023.42 204.2 | 6.42 8.1
        -73.98 45.3 | -6.75 0.2 | -23.23 26.8 | 1948.46 532.2 | 27.75 11.5
        -9.69 4.9 | -6.08 0.4 | -36.17 2.6 | 3019.46 206.9 | 1.01 8.2
        -94.06 30.8 | -2.74 0.5 | -34.62 23.5 | 2831.28 304.4 | 25.97 4.6
        4.70 5.6 | -2.35 0.7 | -37.17 2.9 | 3097.66 282.7 | 11.71 10.4
        11.99 6.5 | -4.03 1.2 | -6.16 2.8 | 1643.90 239.3 | 19.20 5.6
        29.47 3.5 | -2.21 1.7 | 2.78 2.5 | 3168.13 145.7 | 36.52 4.8
        29.26 4.2 | -2.35 1.8 | 2.26 2.2 | 3044.61 239.9 | 45.28 11.8
        """,
        """
        15.33 13.4 | -3.61 2.2 | 1.13 0.9 | 2575.39 790.7 | 17.08 5.9
        31.53 13.1 | -2.47 3.3 | -13.32 25.6 | 2028.17 1282.5 | 33.15 11.3
        14.99 9.7 | -3.87 2.1 | -37.42 5.5 | 2758.24 1081.8 | 19.37 8.5
        32.75 13.0 | -2.94 3.1 | -2.07 16.0 | 2042.50 1183.2 | 33.31 7.3
        14.61 10.1 | -4.41 1.7 | -37.15 9.1 | 2732.12 940.0 | 19.72 8.0
        37.73 11.5 | -4.00 1.8 | -24.82 27.5 | 2635.25 812.3 | 25.56 8.0
        18.30 9.2 | -3.71 1.6 | -33.75 8.3 | 2852.83 776.1 | 16.41 8.5
        6.48 9.4 | -5.04 1.1 | -6.24 3.4 | 1355.33 489.7 | 13.36 7.1
        36.43 7.3 | -2.53 1.8 | 2.87 2.6 | 2786.28 888.8 | 33.06 6.7
        38.90 8.8 | -2.86 1.5 | 2.88 3.4 | 2923.27 897.0 | 33.18 7.7
        """,
    ),
    "hypervolume": _by_preferences(  # Table 4.3.
        "hypervolume",
        """
        175.54 7.1 | 198.01 28.2 | 204.47 20.1 | 429.78 45.7 | 77.20 10.9
        176.53 7.6 | 90.12 60.3 | 88.89 72.6 | 242.72 67.5 | 91.20 5.1
        169.13 20.8 | 142.99 13.9 | 134.48 53.6 | 410.93 23.2 | 94.55 9.7
        172.67 13.5 | 90.13 60.3 | 103.10 67.5 | 235.33 65.8 | 90.11 6.4
        169.05 24.5 | 151.93 18.1 | 147.67 53.5 | 419.97 19.0 | 92.10 7.8
        178.41 14.8 | 209.29 15.7 | 131.44 74.3 | 406.33 37.1 | 94.76 9.7
        173.04 14.4 | 206.50 24.3 | 172.20 26.7 | 395.06 39.6 | 92.26 7.8
        163.81 14.6 | 86.38 36.7 | 214.25 18.3 | 299.03 49.5 | 80.16 7.8
        193.94 7.5 | 202.79 29.7 | 220.36 10.3 | 421.43 39.5 | 100.04 5.5
        201.97 7.0 | 203.74 13.2 | 218.04 18.3 | 435.87 36.5 | 101.57 8.8
        """,
        """
        156.00 25.3 | 204.43 13.2 | 216.56 13.8 | 424.79 53.5 | 53.73 13.0
        69.10 48.6 | 29.80 0.2 | 89.88 73.3 | 235.81 31.0 | 78.96 9.6
        85.78 21.2 | 138.32 40.9 | 157.36 3.6 | 426.24 25.8 | 54.83 13.5
        46.44 38.5 | 29.85 0.1 | 74.04 74.0 | 247.38 32.7 | 77.25 10.9
        96.54 13.4 | 137.51 15.4 | 161.75 23.9 | 426.88 31.8 | 50.86 14.5
        29.76 28.3 | 183.64 33.4 | 45.29 69.0 | 414.97 31.5 | 80.58 17.8
        130.92 11.9 | 202.94 14.0 | 171.12 24.4 | 427.94 39.4 | 65.00 16.8
        150.15 25.9 | 79.08 36.0 | 200.99 25.8 | 290.91 41.9 | 58.93 12.8
        166.37 19.1 | 197.45 27.6 | 222.37 8.5 | 442.63 18.4 | 74.28 5.8
        182.90 11.4 | 199.28 8.4 | 225.23 4.9 | 441.17 27.3 | 101.04 6.7
        """,
        """
        176.61 11.7 | 201.23 11.8 | 221.37 8.1 | 453.61 43.9 | 83.10 7.6
        178.50 8.2 | 92.04 58.6 | 99.25 65.4 | 220.48 95.6 | 90.14 6.3
        177.79 13.2 | 126.71 43.0 | 149.97 58.5 | 402.24 39.8 | 98.86 4.4
        181.00 10.7 | 69.89 53.2 | 133.89 44.7 | 222.09 83.4 | 89.06 6.6
        174.14 11.5 | 133.09 31.0 | 143.09 15.2 | 398.41 41.5 | 96.28 4.8
        187.52 6.2 | 204.03 23.4 | 97.56 82.0 | 413.57 28.5 | 91.74 5.2
        181.28 7.8 | 215.13 13.3 | 159.97 19.9 | 437.62 27.5 | 92.08 10.9
        167.94 16.8 | 101.00 46.9 | 201.87 27.8 | 280.87 45.7 | 76.94 12.2
        197.28 8.4 | 195.67 38.2 | 215.89 10.1 | 420.45 47.7 | 101.23 7.9
        202.06 4.9 | 203.88 13.4 | 221.44 10.7 | 450.20 25.0 | 100.21 7.0
        """,
    ),
    "sparsity": _by_preferences(  # Table 4.4.
        "sparsity",
        """
        68.97 94.1 | 2.00 0.8 | 27.60 8.6 | 488.85 318.4 | 246.92 95.3
        3.29 2.5 | 0.00 0.0 | 0.00 0.0 | 7.75 18.7 | 27.71 20.0
        64.07 60.6 | 0.01 0.0 | 9.42 6.5 | 296.29 104.7 | 477.85 302.2
        2.43 1.6 | 0.00 0.0 | 0.00 0.0 | 2.62 5.1 | 31.37 27.2
        59.04 47.5 | 0.23 0.4 | 16.70 16.0 | 278.82 134.1 | 338.70 269.5
        1.47 1.0 | 1.03 0.5 | 34.29 72.5 | 341.84 208.5 | 221.40 93.5
        85.21 135.7 | 0.94 0.2 | 42.52 71.0 | 333.20 145.3 | 334.66 298.9
        25.65 13.2 | 1.46 1.5 | 57.06 29.0 | 380.86 398.7 | 247.25 194.1
        19.35 8.6 | 1.83 1.0 | 28.00 7.6 | 408.45 167.6 | 194.61 88.7
        19.38 17.0 | 1.88 0.8 | 33.07 7.9 | 517.10 377.2 | 92.45 68.8
        """,
        """
        200.89 307.6 | 2.63 2.1 | 25.12 5.2 | 301.92 126.3 | 513.09 189.3
        8.74 3.5 | 0.00 0.0 | 0.00 0.0 | 3.43 7.9 | 31.79 9.5
        384.42 162.3 | 0.47 1.3 | 10.25 3.0 | 250.54 79.1 | 991.11 659.6
        5.31 1.9 | 0.00 0.0 | 0.00 0.0 | 33.23 60.2 | 24.54 25.5
        278.97 159.3 | 0.02 0.1 | 17.59 17.6 | 288.65 144.8 | 814.88 382.5
        4.29 2.6 | 1.66 0.8 | 0.44 0.9 | 338.76 139.4 | 512.27 391.4
        626.89 420.1 | 1.77 0.7 | 20.79 37.7 | 288.57 99.2 | 606.37 383.7
        121.98 111.8 | 1.12 1.4 | 43.09 14.6 | 402.82 327.8 | 630.16 304.6
        53.02 29.8 | 2.04 0.7 | 24.42 5.1 | 336.65 99.4 | 728.32 775.4
        25.82 11.3 | 2.35 0.5 | 23.85 4.8 | 337.47 127.0 | 263.87 179.2
        """,
        """
        66.56 105.2 | 2.03 0.7 | 33.23 10.8 | 490.86 415.2 | 207.62 154.5
        1.87 0.7 | 0.00 0.0 | 0.00 0.0 | 2.46 5.4 | 21.98 9.1
        86.31 87.5 | 0.12 0.3 | 32.64 53.0 | 225.45 107.7 | 257.47 164.4
        2.70 2.2 | 0.00 0.0 | 0.00 0.0 | 0.74 1.1 | 20.03 12.0
        82.10 84.1 | 0.03 0.1 | 12.41 3.3 | 238.79 124.2 | 266.19 179.9
        0.95 0.9 | 1.28 1.1 | 29.23 87.0 | 443.66 323.8 | 164.09 65.1
        24.34 11.2 | 0.86 0.1 | 25.57 72.5 | 247.99 152.1 | 256.48 201.6
        132.91 126.5 | 1.68 1.4 | 40.85 17.0 | 327.88 182.6 | 212.49 91.3
        21.57 11.8 | 1.76 0.9 | 25.18 3.7 | 284.49 141.6 | 259.21 167.8
        23.70 20.4 | 1.88 0.8 | 27.61 15.6 | 260.01 108.0 | 123.25 60.7
        """,
    ),
    "igd": _by_preferences(  # Table 4.5.
        "igd",
        """
        45.42 4.4 | 0.41 0.2 | 1.42 1.0 | 851.67 307.4 | 55.43 8.1
        85.13 13.0 | 10.01 9.4 | 41.19 41.5 | 2737.53 684.5 | 68.28 6.3
        57.25 9.9 | 0.81 0.2 | 14.52 25.9 | 733.68 210.4 | 60.43 14.2
        93.19 15.5 | 9.99 9.3 | 32.71 38.8 | 2773.36 738.3 | 68.54 6.2
        60.71 11.8 | 0.73 0.2 | 13.47 26.2 | 731.80 259.4 | 57.40 8.5
        106.68 15.7 | 0.22 0.1 | 23.57 34.2 | 804.38 470.8 | 47.25 5.3
        51.05 6.2 | 0.19 0.1 | 6.30 0.9 | 733.44 213.2 | 51.04 3.6
        44.64 4.9 | 1.01 0.2 | 1.93 0.8 | 973.75 207.4 | 51.04 5.0
        39.22 3.0 | 0.38 0.2 | 0.77 0.3 | 738.36 183.2 | 47.86 6.7
        47.24 7.5 | 0.37 0.2 | 1.09 0.9 | 770.74 286.1 | 51.38 8.1
        """,
        """
        57.24 9.4 | 0.40 0.2 | 0.81 0.4 | 539.53 141.6 | 76.47 14.9
        236.25 115.2 | 19.38 0.2 | 41.13 41.5 | 2463.58 263.7 | 76.65 6.5
        138.72 29.5 | 2.63 5.5 | 4.83 0.3 | 469.81 77.6 | 73.82 15.0
        299.47 121.7 | 19.33 0.1 | 49.63 42.3 | 2311.35 574.5 | 83.29 7.9
        121.49 16.4 | 0.91 0.3 | 4.91 1.2 | 542.68 188.4 | 81.91 13.5
        383.86 99.7 | 0.40 0.2 | 66.43 39.0 | 504.73 131.9 | 57.72 10.2
        87.04 8.7 | 0.35 0.1 | 6.19 0.7 | 480.66 51.6 | 70.09 12.5
        58.39 4.3 | 1.04 0.2 | 2.16 1.1 | 931.54 291.1 | 65.97 11.4
        50.17 3.2 | 0.42 0.2 | 0.59 0.3 | 536.04 96.4 | 58.35 4.3
        48.80 6.8 | 0.46 0.1 | 0.48 0.2 | 540.33 193.3 | 45.68 3.7
        """,
        """
        42.80 3.4 | 0.39 0.2 | 0.97 0.5 | 663.02 294.8 | 52.37 4.2
        88.64 9.6 | 8.23 9.2 | 32.90 38.7 | 2853.54 604.7 | 72.67 4.9
        56.38 11.2 | 0.89 0.3 | 13.71 26.1 | 817.40 354.0 | 53.55 5.5
        86.44 17.1 | 10.17 9.3 | 15.74 25.4 | 2721.86 595.6 | 69.02 7.5
        55.36 5.9 | 0.86 0.3 | 6.16 1.4 | 816.10 236.0 | 53.48 7.8
        105.42 12.4 | 0.27 0.2 | 40.89 41.7 | 694.61 258.5 | 48.59 6.8
        47.16 4.6 | 0.17 0.1 | 6.59 0.6 | 925.00 816.9 | 50.40 5.3
        48.34 6.7 | 0.95 0.2 | 2.07 1.4 | 919.70 126.0 | 55.94 7.2
        39.60 3.4 | 0.37 0.3 | 0.71 0.3 | 637.25 241.1 | 46.50 7.4
        42.34 4.0 | 0.36 0.2 | 0.76 0.5 | 690.35 361.6 | 50.02 9.0
        """,
    ),
    "cardinality": _by_preferences(  # Table 4.6.
        "cardinality",
        """
        12.20 1.2 | 3.30 0.8 | 6.70 1.1 | 5.40 0.8 | 11.60 3.0
        8.30 2.8 | 1.00 0.0 | 1.00 0.0 | 2.90 1.1 | 9.60 2.2
        10.20 1.3 | 1.10 0.3 | 3.00 1.6 | 6.50 1.3 | 9.40 2.2
        9.30 2.4 | 1.00 0.0 | 1.00 0.0 | 2.90 0.5 | 10.20 2.6
        10.70 2.0 | 1.40 0.5 | 3.40 0.9 | 6.80 1.3 | 9.20 2.1
        7.90 1.8 | 3.60 0.7 | 2.00 1.3 | 6.00 0.9 | 12.00 2.9
        10.10 1.9 | 3.60 0.7 | 1.90 0.7 | 6.00 1.1 | 11.20 2.2
        11.20 1.6 | 1.50 0.5 | 5.70 0.9 | 5.00 1.2 | 12.10 1.1
        13.70 1.8 | 3.40 0.7 | 7.40 1.0 | 5.80 1.2 | 12.50 2.1
        13.30 3.1 | 3.30 0.5 | 6.80 1.1 | 5.90 1.3 | 12.70 2.7
        """,
        """
        9.30 1.3 | 3.30 0.5 | 7.40 1.0 | 6.40 1.1 | 10.80 1.5
        9.30 3.4 | 1.00 0.0 | 1.00 0.0 | 2.90 1.1 | 8.70 2.4
        7.20 1.5 | 1.20 0.4 | 4.00 0.4 | 6.80 1.2 | 9.90 1.4
        9.90 3.2 | 1.00 0.0 | 1.00 0.0 | 2.70 0.9 | 9.40 2.9
        8.40 1.9 | 1.10 0.3 | 3.80 0.9 | 7.00 1.2 | 10.60 2.1
        8.20 1.6 | 3.00 0.6 | 1.20 0.4 | 6.50 0.8 | 12.00 2.5
        9.50 2.2 | 3.30 0.5 | 2.20 0.4 | 6.80 0.7 | 10.00 2.1
        9.00 1.7 | 1.40 0.5 | 5.40 0.8 | 5.40 1.4 | 9.70 1.6
        10.70 1.3 | 3.20 0.6 | 7.80 1.0 | 6.50 0.7 | 12.30 1.7
        10.70 1.5 | 3.10 0.3 | 8.00 0.8 | 6.90 1.0 | 10.00 2.5
        """,
        """
        12.20 1.5 | 3.20 0.4 | 7.10 0.7 | 6.10 1.2 | 12.00 3.3
        7.60 1.5 | 1.00 0.0 | 1.00 0.0 | 3.00 0.4 | 9.40 2.8
        10.10 2.4 | 1.20 0.4 | 3.40 1.1 | 6.70 0.6 | 8.90 3.7
        9.10 3.4 | 1.00 0.0 | 1.00 0.0 | 3.90 1.4 | 11.90 2.6
        10.80 1.8 | 1.10 0.3 | 3.00 1.0 | 6.80 1.3 | 10.00 3.0
        6.90 3.0 | 3.40 0.8 | 1.20 0.4 | 5.50 1.6 | 11.80 2.6
        12.00 2.5 | 3.90 0.3 | 1.80 0.6 | 6.70 1.3 | 11.20 2.3
        11.70 1.7 | 1.70 0.6 | 5.80 1.2 | 5.10 1.1 | 11.90 2.1
        12.60 2.0 | 3.30 0.8 | 7.10 0.5 | 6.30 1.1 | 11.80 2.4
        12.50 2.2 | 3.30 0.5 | 7.80 1.3 | 7.00 1.1 | 10.70 1.5
        """,
    ),
}
"""By metric, distribution and algorithm. Columns: MO-LL, DMC, DST, MO-HC, MO-LLc; mean and deviation."""

ABLATION: Mapping[str, Mapping[str, Columns]] = {
    metric: dict(zip(COMPONENTS, _lines(metric, text), strict=True))
    for metric, text in {
        "reward": """
        27.27 13.9 | -1.53 0.8 | 0.95 3.8 | 2940.45 982.4 | 28.24 9.7
        34.21 16.7 | -4.27 7.1 | 0.55 3.1 | 3049.63 683.1 | 34.58 15.4
        17.70 9.8 | -2.20 0.9 | -31.24 8.5 | 3044.93 821.6 | 26.12 9.3
        32.54 21.1 | -2.08 1.1 | -21.83 13.6 | 2425.13 1490.2 | 34.36 15.1
        32.22 12.0 | -2.42 1.7 | 4.41 1.8 | 2980.26 826.8 | 32.17 7.4
        37.27 12.5 | -1.90 1.2 | 1.21 3.6 | 3104.59 782.5 | 32.91 10.4
        """,
        "hypervolume": """
        187.16 11.1 | 174.08 16.7 | 211.92 24.9 | 417.69 51.5 | 97.95 6.4
        194.61 7.6 | 166.12 30.5 | 222.85 4.9 | 411.80 41.3 | 97.22 10.6
        175.09 14.6 | 145.41 28.5 | 180.06 27.7 | 426.41 20.7 | 98.90 4.7
        186.64 13.9 | 59.68 29.9 | 157.11 22.6 | 300.40 110.3 | 93.47 7.7
        193.94 7.5 | 202.79 29.7 | 220.36 10.3 | 421.43 39.5 | 100.04 5.5
        201.97 7.0 | 203.74 13.2 | 218.04 18.3 | 435.87 36.5 | 101.57 8.8
        """,
        "cardinality": """
        13.70 2.1 | 2.60 0.5 | 7.20 1.2 | 5.90 1.1 | 12.20 3.1
        11.70 2.9 | 2.70 0.8 | 6.80 1.3 | 6.00 1.4 | 11.30 2.8
        12.40 1.9 | 2.30 0.5 | 4.10 1.3 | 6.60 1.2 | 10.40 2.0
        8.80 2.7 | 1.10 0.3 | 2.20 1.2 | 7.20 1.2 | 9.40 3.5
        13.70 1.8 | 3.40 0.7 | 7.40 1.0 | 5.80 1.2 | 12.50 2.1
        13.30 3.1 | 3.30 0.5 | 6.80 1.1 | 5.90 1.3 | 12.70 2.7
        """,
        "sparsity": """
        17.12 6.5 | 1.17 0.2 | 28.99 11.5 | 434.17 175.2 | 242.55 153.5
        19.35 14.5 | 1.46 0.8 | 43.30 33.4 | 500.84 373.0 | 158.75 185.1
        77.43 95.1 | 8.63 18.2 | 21.83 23.5 | 269.32 107.9 | 285.12 145.8
        5.86 7.2 | 0.18 0.5 | 12.85 14.2 | 202.30 311.4 | 51.86 45.9
        19.35 8.6 | 1.83 1.0 | 28.00 7.6 | 408.45 167.6 | 194.61 88.7
        19.38 17.0 | 1.88 0.8 | 33.07 7.9 | 517.10 377.2 | 92.45 68.8
        """,
        "igd": """
        42.12 4.3 | 0.37 0.1 | 1.47 1.2 | 819.40 270.3 | 50.27 5.8
        49.28 11.5 | 0.43 0.2 | 0.99 0.8 | 810.57 276.1 | 54.90 6.7
        50.04 6.2 | 0.74 0.2 | 4.02 1.5 | 679.38 205.9 | 50.11 4.2
        75.88 16.7 | 1.11 0.2 | 5.98 1.8 | 1461.76 522.8 | 64.97 4.9
        39.22 3.0 | 0.38 0.2 | 0.77 0.3 | 738.36 183.2 | 47.86 6.7
        47.24 7.5 | 0.37 0.2 | 1.09 0.9 | 770.74 286.1 | 51.38 8.1
        """,
    }.items()
}
"""Rewards of table 4.2, the other metrics of table 4.7; by metric and variant."""


def _by_value(text: str) -> dict[float, Columns]:
    """Rewards by the value of a parameter, which begins each line."""
    parts = [line.partition(":") for line in text.strip().splitlines()]
    return {float(value): _lines("reward", numbers)[0] for value, _, numbers in parts}


TOP_RATIOS: Mapping[float, Columns] = _by_value(
    """
    0.2: 33.18 11.1 | -2.58 1.0 | 2.24 3.0 | 2909.41 636.1 | 30.51 9.3
    0.4: 30.04 11.1 | -3.18 1.0 | 1.89 3.0 | 3043.55 636.1 | 32.71 9.3
    0.6: 30.42 13.3 | -2.44 1.8 | 1.35 3.8 | 2995.96 893.1 | 32.04 12.5
    0.8: 31.17 11.7 | -2.65 1.3 | 3.76 4.0 | 2968.06 915.7 | 33.39 11.3
    1.0: 30.84 10.4 | -2.49 1.2 | 2.52 2.8 | 2967.83 714.8 | 32.03 10.7
    """
)
"""Table A.9: the reward of FedPref+FT by R."""

SIMILARITY_BOUNDS: Mapping[float, Columns] = _by_value(
    """
    -1.0: 32.22 11.3 | -1.91 1.0 | 4.41 1.7 | 2980.26 784.4 | 32.17 7.0
    -0.8: 31.74 11.3 | -2.29 1.0 | 2.49 1.7 | 3038.06 784.4 | 31.34 7.0
    -0.6: 32.09 13.0 | -2.42 1.7 | 4.63 3.1 | 3049.70 741.8 | 29.08 8.3
    -0.4: 29.65 13.2 | -1.82 1.5 | 3.20 1.5 | 2967.62 896.8 | 32.44 15.3
    -0.2: 27.47 11.2 | -2.63 0.9 | 2.73 2.5 | 2761.86 783.1 | 30.41 9.3
    0.0: 22.73 16.4 | -2.42 1.2 | 1.56 2.0 | 2494.44 791.0 | 28.70 9.8
    0.2: 13.24 11.7 | -2.24 1.6 | -0.69 2.0 | 2389.85 649.7 | 16.98 10.8
    0.4: 13.53 7.1 | -3.61 0.7 | 0.92 2.3 | 2477.75 603.5 | 16.84 11.7
    0.6: 14.03 11.9 | -2.78 2.2 | 0.85 1.5 | 2489.83 682.9 | 14.46 9.2
    0.8: 9.95 10.0 | -2.72 1.5 | 1.20 2.2 | 2391.18 369.0 | 15.08 12.4
    """
)
"""Table A.8: the reward of FedPref+FT by s_min."""


@dataclass(frozen=True)
class Selected:
    """The hyper-parameters selected for one algorithm in one environment (table A.5)."""

    steps: int
    """Local iterations, read as environment steps in a round."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the algorithm itself."""


_SELECTED: Mapping[str, Mapping[str, Sequence[float]]] = {
    # Alone there are no rounds; any number of steps is the same.
    "local": {"steps": (5_000, 5_000, 500, 25_000, 5_000)},
    "fedavg": {"steps": (5_000, 5_000, 500, 25_000, 5_000)},
    "fedprox": {"steps": (5_000, 5_000, 500, 25_000, 5_000), "mu": (1.0, 1.0, 1.0, 0.01, 0.01)},
    "cfl": {
        "steps": (10_000, 2_000, 1_000, 25_000, 5_000),
        "threshold": (5.0, 2.0, 5.0, 30.0, 15.0),
        "patience": (2, 2, 2, 1, 2),
    },
    "mat-fl": {"steps": (2_000, 5_000, 1_000, 25_000, 5_000), "voters": (10, 10, 10, 8, 10)},
    "fedpref": {
        "steps": (5_000, 5_000, 500, 25_000, 10_000),
        "threshold": (5.0, 3.0, 5.0, 30.0, 15.0),
        "patience": (1, 2, 2, 2, 2),
        "similarity_bound": (-1.0, 0.0, -1.0, -1.0, -1.0),
        "top_ratio": (TOP_RATIO,) * 5,
    },
}
"""Table A.5, in the order of ENVIRONMENTS."""


def selected(environment: str, algorithm: str) -> Selected:
    """What table A.5 lists; FedPref's components have FedPref's."""
    column = list(ENVIRONMENTS).index(environment)
    name = "fedpref" if algorithm.startswith("fedpref") else algorithm.removesuffix(FINE_TUNED)
    own = {key: row[column] for key, row in _SELECTED[name].items()}
    return Selected(int(own.pop("steps")), own)


def title(algorithm: str) -> str:
    """As the thesis calls an algorithm."""
    base = algorithm.removesuffix(FINE_TUNED)
    if algorithm.endswith(FINE_TUNED):
        return f"{TITLES[base]}+FT"
    return f"{TITLES[base]}-FT" if base in ("fedpref", "fedpref-clustering", "fedpref-weighting") else TITLES[base]
