"""What Guo et al., "Few-for-many personalized federated learning" (FedFew, 2026), print: settings and numbers.

Where the paper does not say, the authors' published code was read. Accuracies are in percent, over the clients of one
run: the deviations are those between clients, not between repetitions. Algorithms have the names used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedpareto.papers.measured import Entry

FEDFEW = "fedfew"
ALGORITHMS = ("fedavg", "fedprox", "fedmtl", "apfl", "ditto", "fedrep", "fedamp", "ifca", FEDFEW)
"""In the order of table 1."""
ALONE = "local"
"""Not in table 1; in table 2 "local-only"."""
TITLES: Mapping[str, str] = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedmtl": "FedMTL",
    "apfl": "APFL",
    "ditto": "Ditto",
    "fedrep": "FedRep",
    "fedamp": "FedAMP",
    "ifca": "IFCA",
    "fedfew": "FedFew",
    "local": "alone",
}
ON_SERVER_MODELS = ("fedavg", "fedprox", "ifca")
"""Scored on the server's models in the published code; all others on the clients' models after local training."""

ROUNDS, MODELS, MU = 2000, 3, 0.01
"""Section 5.1 and appendix B.1: T, K of FedFew and IFCA, μ."""
OUR_ROUNDS, SEEDS = 300, 3
"""The paper: 2,000 rounds, and no repetitions are mentioned."""
TEST_SHARE = 0.25
"""From the code: the published training and test rows together, partitioned over the clients, then 75 : 25 by
client.
"""
OWN: Mapping[str, Mapping[str, Any]] = {"fedrep": {"head_epochs": 1}}
"""One local epoch for all (appendix B.1): FedRep's head has no more than the others."""


# -- data ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """Data and its partition over clients."""

    data: str
    """In words."""
    problem: Mapping[str, Any]
    clients: int
    compares: Literal["numbers", "order", "nothing"]
    """With what was published: a subset of the data keeps the order of the algorithms at best."""
    batch_size: int = 50
    lr: float = 0.005
    is_pathological: bool = False
    """Two classes for each client."""
    training_rows: int = 9_000
    """Of all clients together, about; for the cost of a run."""
    note: str = ""

    def title(self, clients: int) -> str:
        """With M: the published number too, if another was run; by it columns with the same data differ."""
        return f"{self.data}, M = {clients}" + ("" if clients == self.clients else f" instead of {self.clients}")


def _dirichlet(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "partition": "dirichlet", "alpha": 0.5, "test_share": TEST_SHARE, **more}


def _pathological(name: str) -> dict[str, Any]:
    return {"name": name, "partition": "pathological", "classes_per_client": 2, "test_share": TEST_SHARE}


SUBSET = "a fifth of the images"
FASHION_ROWS = 12_000
"""Of 70,000: as many as there are of CIFAR."""

COLUMNS: Mapping[str, Column] = {
    "cifar100-pathological-10": Column(
        "CIFAR-100, 2 classes",
        _pathological("cifar100"),
        10,
        "order",
        is_pathological=True,
        training_rows=1_800,
        note=SUBSET,
    ),
    "cifar100-pathological-20": Column(
        "CIFAR-100, 2 classes",
        _pathological("cifar100"),
        20,
        "order",
        is_pathological=True,
        training_rows=3_600,
        note=SUBSET,
    ),
    "mnist-writers": Column(
        "MNIST by writer",
        {"name": "mnist-writers", "partition": "natural", "test_share": TEST_SHARE},
        20,
        "order",
        100,
        training_rows=1_250,
        note="in place of FEMNIST, which is not available",
    ),
    "cifar10-10": Column("CIFAR-10, Dirichlet", _dirichlet("cifar10"), 10, "order", note=SUBSET),
    "cifar10-20": Column("CIFAR-10, Dirichlet", _dirichlet("cifar10"), 20, "order", note=SUBSET),
    "cifar10-pathological-10": Column(
        "CIFAR-10, 2 classes",
        _pathological("cifar10"),
        10,
        "order",
        is_pathological=True,
        note=SUBSET,
    ),
    "cifar100-10": Column("CIFAR-100, Dirichlet", _dirichlet("cifar100"), 10, "order", note=SUBSET),
    "cifar100-20": Column("CIFAR-100, Dirichlet", _dirichlet("cifar100"), 20, "order", note=SUBSET),
    "ag-news": Column(
        "AG News, Dirichlet",
        _dirichlet("ag-news"),
        20,
        "order",
        100,
        training_rows=10_200,
        note="13,600 of 127,600 texts",
    ),
    "fashion-mnist": Column(
        "Fashion-MNIST, Dirichlet",
        _dirichlet("fashion-mnist", rows=FASHION_ROWS),
        20,
        "nothing",
        note="not in the paper",
    ),
    "pneumonia-mnist": Column(
        "PneumoniaMNIST, Dirichlet",
        _dirichlet("pneumonia-mnist"),
        5,
        "nothing",
        100,
        0.002,
        training_rows=4_400,
        note="in place of Kvasir, which is not available",
    ),
}
"""Table 4 has batch sizes and step sizes; Fashion-MNIST's are CIFAR's, PneumoniaMNIST's and its 5 clients Kvasir's."""
USUAL = ("cifar100-pathological-20", "mnist-writers", "cifar10-20", "cifar100-20", "ag-news", "fashion-mnist")
"""Columns of table 1 that are run unless others are asked for: those with 20 clients."""

# -- table 1 -------------------------------------------------------------------------------------------------------


_COLUMNS_OF_TABLE_1 = (
    "cifar100-pathological-10",
    "cifar100-pathological-20",
    "femnist",
    "cifar10-10",
    "cifar10-20",
    "cifar100-10",
    "cifar100-20",
    "tiny-imagenet",
    "ag-news",
)
_TABLE_1 = {
    "fedavg": "29.00 3.94 28.57 4.37 96.65 1.81 61.36 8.54 61.26 8.64 30.84 2.26 31.10 4.21 13.49 1.55 88.90 7.15",
    "fedprox": "28.56 4.50 28.11 3.86 96.51 2.32 60.87 7.87 61.38 9.35 30.74 2.25 30.90 4.03 13.64 1.56 83.42 11.34",
    "fedmtl": "65.33 3.64 59.65 3.70 100.00 0.00 85.92 11.18 85.75 11.62 46.28 3.82 44.79 5.25 23.49 2.43 94.10 7.56",
    "apfl": "64.69 4.01 59.97 3.91 99.93 0.20 88.38 7.83 87.36 10.92 48.30 3.44 46.67 5.11 24.26 2.71 94.26 7.41",
    "ditto": "65.32 3.63 59.61 3.66 100.00 0.00 85.97 10.95 85.72 11.77 46.19 3.50 44.89 5.16 23.45 2.70 94.06 7.69",
    "fedrep": "66.50 3.41 61.46 3.82 100.00 0.00 87.36 8.92 86.94 10.76 48.26 3.31 46.46 4.52 27.24 2.77 94.68 12.69",
    "fedamp": "65.41 3.67 59.66 3.59 100.00 0.00 85.96 10.92 85.93 11.53 46.13 3.62 45.00 5.08 23.32 2.62 94.17 7.48",
    "ifca": "42.34 5.18 43.89 3.58 99.46 0.78 77.27 7.14 73.35 12.00 34.09 5.69 29.80 3.75 15.24 1.90 90.63 11.79",
    "fedfew": "65.47 3.90 64.98 3.32 100.00 0.00 88.17 7.74 88.26 9.06 50.44 3.14 53.69 4.79 30.31 3.06 96.07 4.82",
}


def _table_1() -> dict[str, dict[str, Entry]]:
    table: dict[str, dict[str, Entry]] = {column: {} for column in _COLUMNS_OF_TABLE_1}
    for algorithm, text in _TABLE_1.items():
        numbers = [float(one) for one in text.split()]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        for column, pair in zip(_COLUMNS_OF_TABLE_1, pairs, strict=True):
            table[column][algorithm] = Entry(*pair)
    return table


TABLE_1: Mapping[str, Mapping[str, Entry]] = _table_1()
"""By column and algorithm. Ditto, FedMTL and FedAMP are never more than 0.21 apart: in the published code the
regularisers of all three are without effect, which leaves local training."""
STANDS_FOR: Mapping[str, str] = {"mnist-writers": "femnist"}
"""Our column, the one that it replaces."""


def published(column: str, algorithm: str) -> Entry | None:
    """The entry of table 1 that ours is compared with."""
    return TABLE_1.get(STANDS_FOR.get(column, column), {}).get(algorithm)


# -- table 5 -------------------------------------------------------------------------------------------------------

_COLUMNS_OF_TABLE_5 = (
    "cifar10-10",
    "cifar10-20",
    "cifar10-pathological-10",
    "cifar100-10",
    "cifar100-20",
    "cifar100-pathological-20",
    "kvasir",
    "fedisic",
)
_TABLE_5 = {
    "fedavg": (0.981, 0.981, 0.982, 0.995, 0.982, 0.977, 0.999, 0.945),
    "fedprox": (0.984, 0.977, 0.976, 0.995, 0.983, 0.982, 0.981, 0.924),
    "apfl": (0.992, 0.985, 0.996, 0.995, 0.988, 0.996, 0.994, 0.950),
    "ditto": (0.984, 0.982, 0.997, 0.994, 0.987, 0.996, 0.994, 0.951),
    "fedrep": (0.990, 0.985, 0.997, 0.995, 0.991, 0.996, 0.995, 0.938),
    "ifca": (0.992, 0.974, 0.985, 0.973, 0.984, 0.993, 0.934, 0.873),
    "fedfew": (0.992, 0.990, 0.997, 0.996, 0.992, 0.997, 0.996, 0.958),
}
TABLE_5: Mapping[str, Mapping[str, float]] = {
    column: {algorithm: row[place] for algorithm, row in _TABLE_5.items()}
    for place, column in enumerate(_COLUMNS_OF_TABLE_5)
}
"""Jain's index of the clients' accuracies."""
USUAL_OF_TABLE_5 = ("cifar10-20", "cifar100-20", "cifar100-pathological-20")

# -- how many models -----------------------------------------------------------------------------------------------

K_RANGE = (89.4, 91.3)
"""Figure 2(a), CIFAR-10, 20 clients, K from 1 to 10: accuracy weighted by test rows, its least and its largest."""
K_BEST, FEDAVG_WEIGHTED = 1, 61.2
"""Figure 2(a): which K is best, and FedAvg, both as section 5.3.1 says."""
OUR_K = (1, 2, 3, 5, 10)


@dataclass(frozen=True)
class Spread:
    """Accuracy over the clients: the worst, the mean and the best."""

    worst: float
    mean: float
    best: float


TABLE_6: Mapping[str, Mapping[int, Spread]] = {
    "ag-news": {
        1: Spread(84.5, 96.4, 100.0),
        2: Spread(73.8, 95.7, 100.0),
        3: Spread(83.9, 96.0, 100.0),
        4: Spread(78.0, 95.7, 100.0),
        5: Spread(86.3, 96.2, 100.0),
    },
    "kvasir": {
        1: Spread(79.5, 91.6, 99.5),
        2: Spread(82.4, 92.2, 99.8),
        3: Spread(83.9, 92.9, 100.0),
        4: Spread(82.9, 92.6, 100.0),
        5: Spread(81.2, 92.5, 100.0),
    },
}
MEDICAL = "pneumonia-mnist"
"""Our column in place of Kvasir."""
PEAKS: Mapping[str, int] = {"ag-news": 5, "kvasir": 3}
"""K that is best, as appendix B.5 says. By the mean of table 6 it is K = 1 on AG News (96.4 against 96.2)."""

# -- local epochs and μ --------------------------------------------------------------------------------------------

EPOCHS = (1, 2, 4, 8, 16)
EPOCHS_RANGE: Mapping[int, float] = {2: 88.3, 16: 87.8}
"""Figure 3: the largest and the least mean accuracy over the clients, and where (appendix B.3)."""
STUDIED = "cifar10-20"
"""Of figures 2 to 8 (section 5.3)."""


@dataclass(frozen=True)
class Smoothing:
    """Of one μ, as far as appendix B.2 has numbers."""

    entropy: float | None = None
    """Of w_i, mean over the clients, in nats."""
    largest: float | None = None
    """max_k w_ik, mean over the clients."""
    variation: float | None = None
    """Coefficient of variation of α."""
    deviation: float | None = None
    """Of the clients' accuracies."""


MUS: Mapping[float, Smoothing] = {
    0.001: Smoothing(0.012, 0.997, 0.361),
    0.01: Smoothing(),
    0.1: Smoothing(deviation=10.2),
    1.0: Smoothing(1.099, 0.333, 0.009),
}
"""The outer values deviate by 9.1 to 9.4 between clients."""
