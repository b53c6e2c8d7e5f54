"""Settings and numbers of Hu et al., "Federated learning meets multi-objective optimization" (IEEE TNSE, 2022).

The paper prints numbers in its table VI only (published.toml); figures 1 to 4 have none, and their tables are in a
supplement that is not part of it. `claims` checks what the text says about figures. Algorithms have the names
used here.

Where settings come from: section VI-A and table V; the captions of figures 2 and 3; for figures 1 and 4, whose
captions do not say, the authors' published scripts. What none of them gives is marked "ours".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpareto_papers import tables
from fedpareto_papers.study import Entry

ALGORITHMS = ("fedmgda", "fedmgda-plus", "mgda-prox", "fedavg", "fedavg-n", "fedprox", "q-fedavg")
"""In the order of table VI."""
NORMALISED = ("fedmgda-plus", "mgda-prox", "fedavg-n")
"""Algorithms that normalise the clients' updates."""
TITLES = {
    "fedmgda": "FedMGDA",
    "fedmgda-plus": "FedMGDA+",
    "mgda-prox": "MGDA-Prox",
    "fedavg": "FedAvg",
    "fedavg-n": "FedAvg-n",
    "fedprox": "FedProx",
    "q-fedavg": "q-FedAvg",
    "afl": "AFL",
    "local": "PhD only",
}

TABLE_6: Mapping[str, Mapping[str, Entry]] = tables.read("fedpareto_papers.fedmgda")["table-6"].rows(Entry)
"""Accuracy on Federated EMNIST over its users, by algorithm: mean over users, and deviation over users."""

# -- federations ---------------------------------------------------------------------------------------------------

FULL = 0
"""A batch of all of a client's rows."""
TEST_SHARE = 0.2
"""80 % of a user's images, which are of the published training part, are for training, as in section VI-A; the rest,
10 % for validation and 10 % for testing there, is all for testing here, since nothing is tuned."""
SHARDS_PER_CLIENT = 5
"""100 users share 500 shards."""


@dataclass(frozen=True)
class Case:
    """A federation, and how its clients train: always one pass over their rows in a round, by plain SGD."""

    title: str
    problem: Mapping[str, Any]
    rounds: int
    lr: float
    batch_size: int = 10
    clients: int = 100
    participants: int | None = 10
    """In a round; None: all."""
    measures_losses: bool = False
    """The users' training losses are shown."""
    preferences: str = "uniform"
    """Preferences of the users; of no importance where there is one objective."""
    evaluations: int = 60
    """Evaluations of a run, about: many for curves. The final models are always evaluated."""

    @property
    def has_given_users(self) -> bool:
        """The users are few and fixed: their number cannot be chosen."""
        return self.participants is None


def _images(name: str, model: str, partition: str = "shards") -> dict[str, Any]:
    return {"name": name, "model": model, "partition": partition, "files": "training", "test_share": TEST_SHARE}


_CIFAR, _FASHION = _images("cifar10", "cnn-lrn"), _images("fashion-mnist", "cnn-small")
_CIFAR_IID = _images("cifar10", "cnn-lrn", "iid")
_ADULT = {"name": "adult-phd", "model": "logistic", "partition": "natural", "files": "official"}
_WRITERS = {"name": "mnist-writers", "model": "cnn-femnist", "partition": "natural", "test_share": TEST_SHARE}
_CONVEX = {"name": "convex", "dimension": 32, "unequal": False}

CASES: Mapping[str, Case] = {
    "cifar10-shards": Case("CIFAR-10, non-iid", _CIFAR, 2000, 0.01, measures_losses=True),
    "cifar10-iid": Case("CIFAR-10, iid", _CIFAR_IID, 2000, 0.01, measures_losses=True),
    "adult-bias": Case("Adult, bias", _ADULT, 500, 0.01, clients=2, participants=None, evaluations=10),
    "cifar10-scaling": Case("CIFAR-10, scaling", _CIFAR, 1500, 0.01, evaluations=10),
    "cifar10-b10": Case("CIFAR-10, b = 10", _CIFAR, 2000, 0.01, measures_losses=True),
    "cifar10-full": Case("CIFAR-10, full batch", _CIFAR, 3000, 0.1, FULL, measures_losses=True),
    "fashion-mnist-b10": Case("F-MNIST, b = 10", _FASHION, 2000, 0.01, measures_losses=True),
    "fashion-mnist-full": Case("F-MNIST, full batch", _FASHION, 3000, 0.1, FULL, measures_losses=True),
    "convex": Case("convex, full batch", _CONVEX, 3000, 0.1, FULL, 20, 10, True, "dirichlet"),
    "mnist-writers": Case("MNIST by writer", _WRITERS, 1500, 0.1, FULL, 836, evaluations=10),
}
"""Cases by name. Models are those of tables II to IV. Figure 4 has CIFAR-10 only; Fashion-MNIST and
our convex problem, whose losses are convex, are ours. Table VI has Federated EMNIST, which is not available: MNIST by
writer replaces it, all 836 writers."""

# -- what is compared ----------------------------------------------------------------------------------------------

EPSILONS = (0.0, 0.05, 0.1, 0.5, 1.0)
"""Values of ε in figure 1, without normalisation: 0 is FedAvg, 1 FedMGDA."""
BIASES: Mapping[str, Sequence[float]] = {
    "afl": (0.0, 0.1, 1.0),
    "q-fedavg": (0.0, 100.0, 10_000.0),
    "fedmgda-plus": (0.0, 10_000.0),
}
"""Biases of figure 2 (left), added to the PhD user's mean loss; ours. q-FedAvg's are larger, since it weights users by
the q-th power of their losses and not by a sum over rounds.
"""
PHD = 0
"""The user that attacks on Adult."""
SCALE = 10.0
"""The factor of the malicious user of figure 2 (right) on its loss; ours."""
ATTACKER = 0
"""The malicious user on CIFAR-10; one is like another."""
UNIFORM = {"weighting": "equal"}
"""λ0: equal weights."""
DECAY_EVERY = 100
"""Rounds after which the server's step falls."""
PROX = 0.1
"""MGDA-Prox's μ (table V)."""


@dataclass(frozen=True)
class Variant:
    """An algorithm with its own settings, attacked or not."""

    algorithm: str
    own: Mapping[str, Any] = field(default_factory=dict)
    attack: Mapping[str, Any] = field(default_factory=dict)
    """The attack: `kind` and `strength`; empty: all are honest."""

    @property
    def label(self) -> str:
        """The algorithm, with its settings and the attack: also a folder's name."""
        attack = [f"{self.attack['kind']}={self.attack['strength']:g}"] if self.attack else []
        return ",".join([self.algorithm, *(f"{name}={value:g}" for name, value in self.own.items()), *attack])

    @property
    def short(self) -> str:
        """The algorithm with what distinguishes it from others of the same figure, such as afl,bias=1."""
        epsilon = {"epsilon": self.own["epsilon"]} if self.algorithm == "fedmgda" and self.own else {}
        return Variant(self.algorithm, epsilon, self.attack).label

    @property
    def section(self) -> dict[str, Any]:
        """The spec's `algorithm`."""
        weighs = self.algorithm not in ("q-fedavg", "afl", "local")
        return {"name": self.algorithm, **(UNIFORM if weighs else {}), **self.own}


def rivals(*, step: float, decay: float, prox_step: float, mu: float, q: float, lipschitz: float) -> list[Variant]:
    """All algorithms of table VI, by the server's step size and its final share, FedProx's μ, q-FedAvg's q and L.

    FedMGDA+ and MGDA-Prox have ε = 1, as in the published scripts.
    """
    return [
        Variant("fedmgda"),
        Variant("fedmgda-plus", {"epsilon": 1.0, "server_lr": step, "decay": decay}),
        Variant("mgda-prox", {"epsilon": 1.0, "server_lr": prox_step, "decay": decay, "mu": PROX}),
        Variant("fedavg"),
        Variant("fedavg-n", {"server_lr": step, "decay": decay}),
        Variant("fedprox", {"mu": mu}),
        Variant("q-fedavg", {"q": q, "lipschitz": lipschitz}),
    ]


def attacked(variant: Variant, kind: str, strength: float) -> Variant:
    return Variant(variant.algorithm, variant.own, {"kind": kind, "strength": strength})


def _interpolation() -> list[Variant]:
    return [Variant("fedmgda", {"epsilon": epsilon}) for epsilon in EPSILONS]


def _biased() -> list[Variant]:
    """AFL with γ_λ of the published script; η and decay, q and L of table V that the paper does not name are ours."""
    honest = {
        "afl": Variant("afl", {"weight_lr": 0.1}),
        "q-fedavg": Variant("q-fedavg", {"q": 1.0, "lipschitz": 1.0}),
        "fedmgda-plus": Variant("fedmgda-plus", {"epsilon": 1.0, "server_lr": 1.0, "decay": 1 / 10}),
    }
    return [
        attacked(honest[name], "bias", bias) if bias else honest[name]
        for name, biases in BIASES.items()
        for bias in biases
    ] + [Variant("local")]


def _scaled() -> list[Variant]:
    """Settings of figure 3 (left), the nearest there is; the caption refers to the supplement."""
    honest = rivals(step=1.5, decay=1 / 10, prox_step=1.0, mu=0.01, q=0.5, lipschitz=1.0)
    return [both for one in honest for both in (one, attacked(one, "scaling", SCALE))]


@dataclass(frozen=True)
class Figure:
    """A figure or table: its repetitions and what is run for it."""

    seeds: int
    variants: Mapping[str, Sequence[Variant]]
    """Variants by case."""
    folder: str
    """Folder of its runs; two figures may share theirs."""


def _improving(decay: float) -> list[Variant]:
    """Figure 4 leaves FedMGDA out."""
    every = rivals(step=1.0, decay=decay, prox_step=1.0, mu=0.1, q=0.5, lipschitz=1.0)
    return [one for one in every if one.algorithm != "fedmgda"]


FIGURES: Mapping[str, Figure] = {
    "fedmgda-fig-1": Figure(5, {"cifar10-shards": _interpolation(), "cifar10-iid": _interpolation()}, "interpolation"),
    "fedmgda-fig-2": Figure(5, {"adult-bias": _biased(), "cifar10-scaling": _scaled()}, "attacks"),
    "fedmgda-fig-3": Figure(
        4,
        {
            "cifar10-b10": rivals(step=1.5, decay=1 / 10, prox_step=1.0, mu=0.01, q=0.5, lipschitz=1.0),
            "cifar10-full": rivals(step=1.0, decay=1 / 40, prox_step=1.0, mu=0.5, q=0.1, lipschitz=0.1),
        },
        "users",
    ),
    "fedmgda-fig-4": Figure(
        4,
        {
            "cifar10-b10": _improving(1 / 10),
            "cifar10-full": _improving(1 / 30),
            "fashion-mnist-b10": _improving(1 / 10),
            "fashion-mnist-full": _improving(1 / 30),
            "convex": _improving(1 / 30),
        },
        "users",
    ),
    "fedmgda-table-6": Figure(
        4,
        {"mnist-writers": rivals(step=1.0, decay=1 / 10, prox_step=1.0, mu=0.001, q=0.001, lipschitz=10.0)},
        "writers",
    ),
}
"""Figure 4's settings are those of the published scripts, which decay the step by 0.89 every 100 rounds: to 1/10 in
2,000 rounds, to 1/30 in 3,000. Table VI gives none but the local step: η and decay are ours, and so is q,
the smallest of table V, since q-FedAvg there equals FedAvg to the digit. So does FedProx, but whatever μ is: with one
full batch a round its only step begins where the proximal term has no gradient."""
