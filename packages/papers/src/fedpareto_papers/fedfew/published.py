"""Settings and numbers of Guo et al., "Few-for-many personalized federated learning" (FedFew, 2026).

The tables are in published.toml. Where the paper does not say, the authors' published code was read. Accuracies are in
percent, over the clients of one run: the deviations are those between clients, not between repetitions. Algorithms have
the names used here: their FedMTL, of Smith et al., is mocha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedpareto.config.parameters import build
from fedpareto_papers import tables
from fedpareto_papers.study import Entry

_PRINTED = tables.read("fedpareto_papers.fedfew")

FEDFEW = "fedfew"
ALGORITHMS = ("fedavg", "fedprox", "mocha", "apfl", "ditto", "fedrep", "fedamp", "ifca", FEDFEW)
"""In the order of table 1."""
ALONE = "local"
"""Not in table 1; in table 2 "local-only"."""
TITLES: Mapping[str, str] = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "mocha": "MOCHA",
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
    """Name of the data."""
    problem: Mapping[str, Any]
    clients: int
    compares: Literal["numbers", "order", "nothing"]
    """With what was published: a subset of the data keeps the order of the algorithms at best."""
    batch_size: int = 50
    lr: float = 0.005
    is_pathological: bool = False
    """Two classes for each client."""
    training_rows: int = 9_000
    """Training rows of all clients together, about; for the cost of a run."""
    note: str = ""

    def title(self, clients: int) -> str:
        """With M: the published number too, if another was run; by it columns with the same data differ."""
        return f"{self.data}, M = {clients}" + ("" if clients == self.clients else f" instead of {self.clients}")


COLUMNS: Mapping[str, Column] = {
    name: build(Column, given, f"column {name}")
    for name, given in tables.content("fedpareto_papers.fedfew", "columns.toml").items()
}
USUAL = ("cifar100-pathological-20", "mnist-writers", "cifar10-20", "cifar100-20", "ag-news", "fashion-mnist")
"""Columns of table 1 that are run unless others are asked for: those with 20 clients."""

# -- table 1 -------------------------------------------------------------------------------------------------------

TABLE_1: Mapping[str, Mapping[str, Entry]] = _PRINTED["table-1"].by_column(Entry)
"""Accuracies by column and algorithm."""
STANDS_FOR: Mapping[str, str] = {"mnist-writers": "femnist"}
"""Our column, the one that it replaces."""


def published(column: str, algorithm: str) -> Entry | None:
    """The entry of table 1 that ours is compared with."""
    return TABLE_1.get(STANDS_FOR.get(column, column), {}).get(algorithm)


# -- table 5 -------------------------------------------------------------------------------------------------------

TABLE_5: Mapping[str, Mapping[str, float]] = _PRINTED["table-5"].by_column(tables.value)
"""Jain's index of the clients' accuracies, by column and algorithm."""
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
    data: {int(models): spread for models, spread in row.items()}
    for data, row in _PRINTED["table-6"].rows(Spread).items()
}
"""Accuracies by data and K."""
MEDICAL = "pneumonia-mnist"
"""Our column in place of Kvasir."""
PEAKS: Mapping[str, int] = {"ag-news": 5, "kvasir": 3}
"""K that is best, as appendix B.5 says. By the mean of table 6 it is K = 1 on AG News (96.4 against 96.2)."""

# -- local epochs and μ --------------------------------------------------------------------------------------------

EPOCHS = (1, 2, 4, 8, 16)
EPOCHS_RANGE: Mapping[int, float] = {2: 88.3, 16: 87.8}
"""Figure 3: the largest and the least mean accuracy over the clients, and where (appendix B.3)."""
STUDIED = "cifar10-20"
"""The column of figures 2 to 8 (section 5.3)."""


@dataclass(frozen=True)
class Smoothing:
    """Results for one μ, as far as appendix B.2 has numbers."""

    entropy: float | None = None
    """Entropy of w_i, mean over the clients, in nats."""
    largest: float | None = None
    """max_k w_ik, mean over the clients."""
    variation: float | None = None
    """Coefficient of variation of α."""
    deviation: float | None = None
    """Deviation of the clients' accuracies."""


MUS: Mapping[float, Smoothing] = {
    float(mu): Smoothing(**{name: number for name, number in row.items() if not math.isnan(number)})
    for mu, row in _PRINTED["smoothing"].rows(tables.value).items()
}
"""The outer values deviate by 9.1 to 9.4 between clients."""
