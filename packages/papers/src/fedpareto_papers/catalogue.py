"""What can be reproduced: published tables and figures by name, each with its module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedpareto.config.errors import UnknownName, UserError

if TYPE_CHECKING:
    from fedpareto.campaigns.parallel import Jobs

Say = Callable[[str], None]
"""Shows the user the progress, one message at a time."""


@dataclass(frozen=True)
class Options:
    """What a user may ask for; None and () mean: as published, or as a quick version has it."""

    quick: bool = False
    seeds: int | None = None
    rounds: int | None = None
    clients: int | None = None
    problems: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Parameters of every run, such as engine.device=cuda."""
    jobs: Jobs = 1
    """Parallel jobs, or where."""

    def __post_init__(self) -> None:
        for key in ("seeds", "rounds", "clients", "jobs"):
            value = getattr(self, key)
            if isinstance(value, int) and value < 1:
                raise UserError(f"{key} is {value}; at least 1 is needed")

    def must_name_parts(self) -> None:
        """Raises UserError unless each setting names its section, since runs differ in algorithm and problem."""
        for text in self.settings:
            if "." not in text.partition("=")[0]:
                raise UserError(f"--set {text}: name the part too, such as engine.device=cuda or learner.lr=0.001")

    def refuse(self, name: str, *keys: str) -> None:
        """Raises UserError for options that a reproduction does not have."""
        for key in keys:
            if getattr(self, key) not in (None, ()):
                raise UserError(f"{name} has no choice of {key}")


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction."""

    record: Mapping[str, Any]
    """For --json."""
    shown: list[Any]
    """Lines, and tables of rich, in the order in which they are printed."""
    files: list[Path] = field(default_factory=list)
    """Figures and tables that were written."""


class Reproduction(Protocol):
    """A reproduction, ready to run."""

    @property
    def headline(self) -> str:
        """What it is and how large."""

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """Runs what is not in the folder yet; raises Stopped if the user stops it."""


@dataclass(frozen=True)
class Entry:
    """A published result."""

    about: str
    module: str
    """Of this package; its `prepare(name, options)` gives the Reproduction."""


MOFLD, FAIRNESS = "thesis.mofld.reproduction", "thesis.fairness.reproduction"
MORL, CLUSTERS = "thesis.morl.reproduction", "thesis.morl.clusters"
OWN = "studies"
PRAFFL, FEDMGDA, FEDFEW = (f"{paper}.reproduction" for paper in ("praffl", "fedmgda", "fedfew"))

CATALOGUE: Mapping[str, Entry] = {
    "thesis-3.2": Entry("MOFL/D in 18 federations and without one: hypervolume, sparsity, figures", MOFLD),
    "thesis-3.3": Entry("the same runs: IGD", MOFLD),
    "mofld-generators": Entry("of our own: searches for weights on deep-sea treasure", "studies.mofld_generators"),
    "thesis-4.1-dst": Entry("FedPref and its baselines on deep-sea treasure: reward and four metrics", MORL),
    "thesis-4.1-dmc": Entry("the same on the deterministic minecart", MORL),
    "thesis-4.1-moll": Entry("the same on the lunar lander", MORL),
    "thesis-4.1-mollc": Entry("the same on the continuous lunar lander", MORL),
    "thesis-4.1-mohc": Entry("the same on the half-cheetah", MORL),
    "thesis-4.2": Entry("FedPref's components alone: reward", MORL),
    "thesis-4.7": Entry("the same runs: hypervolume, cardinality, sparsity, IGD", MORL),
    "thesis-fig-4.9": Entry("FedPref for several R of topR", MORL),
    "thesis-fig-4.10": Entry("FedPref for several least similarities", MORL),
    "thesis-clusters": Entry("whether FedPref finds equal clients (figures 4.11, 4.12, A.3 to A.11)", CLUSTERS),
    "thesis-cfl": Entry("how CFL's clusters grow (figures A.12, A.13)", CLUSTERS),
    "thesis-5.2": Entry("accuracy and DEO, homogeneous preferences, 10 clients", FAIRNESS),
    "thesis-5.3": Entry("accuracy and DDP, homogeneous preferences, 10 clients", FAIRNESS),
    "thesis-5.4": Entry("accuracy and DEO, heterogeneous preferences, 10 clients", FAIRNESS),
    "thesis-5.5": Entry("accuracy and DDP, heterogeneous preferences, 10 clients", FAIRNESS),
    "thesis-A.17": Entry("accuracy and DEO or DDP, homogeneous preferences, 50 clients", FAIRNESS),
    "thesis-A.20": Entry("accuracy and DEO or DDP, heterogeneous preferences, 50 clients", FAIRNESS),
    "thesis-fig-5.1": Entry("Multi-MNIST, two clients with opposed preferences", "thesis.figure_5_1"),
    "praffl-table-1": Entry("PraFFL and five fair baselines on four data sets", PRAFFL),
    "praffl-fig-6": Entry("their hypervolume over rounds", PRAFFL),
    "praffl-fig-7": Entry("their solutions: error rate against DP disparity", PRAFFL),
    "praffl-fig-8": Entry("their solutions under three levels of heterogeneity", PRAFFL),
    "praffl-fig-9": Entry("PraFFL's solutions for three numbers of epochs of the hypernetwork", PRAFFL),
    "praffl-fig-10": Entry("from PraFFL's preferences to objectives", PRAFFL),
    "praffl-ablation": Entry("PraFFL with other losses, heads and epochs", PRAFFL),
    "fedmgda-fig-1": Entry("from FedAvg to FedMGDA: CIFAR-10 for five ε", FEDMGDA),
    "fedmgda-fig-2": Entry("losses inflated by a bias on Adult, by a factor on CIFAR-10, and the effect", FEDMGDA),
    "fedmgda-fig-3": Entry("how evenly accuracy is spread over users of CIFAR-10", FEDMGDA),
    "fedmgda-fig-4": Entry("the share of participants that a round does not harm", FEDMGDA),
    "fedmgda-table-6": Entry("accuracy over users of MNIST by writer, instead of FEMNIST", FEDMGDA),
    "fedfew-table-1": Entry("FedFew and nine others on images and text, before and after local steps", FEDFEW),
    "fedfew-fig-2": Entry("FedFew with 1 to 10 models", FEDFEW),
    "fedfew-fig-3": Entry("FedFew with 1 to 16 local epochs: accuracy", FEDFEW),
    "fedfew-fig-4": Entry("the same runs: how its objective falls (figures 4 and 8)", FEDFEW),
    "fedfew-table-6": Entry("FedFew with 1 to 5 models on news and X-rays", FEDFEW),
    "fedfew-mu": Entry("FedFew with four smoothings: weights and fairness (figures 5 to 7)", FEDFEW),
    "fedfew-jain": Entry("Jain's index of FedFew and six others (table 5)", FEDFEW),
    "study-heterogeneity": Entry("of our own: preferences that differ, data that differ, both", f"{OWN}.heterogeneity"),
    "study-public": Entry("of our own: FedPref with preferences that clients do not hide", f"{OWN}.public_preferences"),
    "study-low-quality": Entry(
        "of our own: do λ, α and similarity recognise low-quality clients", f"{OWN}.low_quality"
    ),
    "study-fig-5.1-control": Entry("of our own: opposed preferences or twice the images", f"{OWN}.figure_5_1_control"),
    "study-mofld": Entry("of our own: MOFL/D whose candidates are trained together, on Adult", f"{OWN}.mofld_together"),
    "stch-set": Entry("a few solutions for many losses: three small problems, six scalarisations", "studies.stch_set"),
}


def json_text(record: Mapping[str, Any]) -> str:
    """A record as the text of a file."""
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any] | None:
    """A record that was written before; None if there is none, or no whole one."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def name_of(text: str) -> str:
    """A name as it is listed; upper and lower case do not matter."""
    for name in CATALOGUE:
        if name.lower() == text.lower():
            return name
    raise UnknownName("table or figure", text, CATALOGUE)


def prepare(text: str, options: Options) -> Reproduction:
    """The reproduction of that name; invalid options are reported before anything runs."""
    name = name_of(text)
    module = import_module(f"fedpareto_papers.{CATALOGUE[name].module}")
    ready: Reproduction = module.prepare(name, options)
    return ready


def known(kind: str, given: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The given names, if they are known."""
    every = list(names)
    for one in given:
        if one not in every:
            raise UnknownName(kind, one, every)
    return tuple(given)
