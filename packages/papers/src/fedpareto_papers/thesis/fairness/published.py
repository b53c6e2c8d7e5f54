"""Numbers of chapter 5 of L. M. Hartmann's thesis: hypervolumes, ranges of fronts, hyper-parameters.

The numbers are in published.toml. Problems are the thesis's ten: three data sets, five sensitive attributes, two
fairness gaps. Algorithms bear the names they have here; `local` is the thesis's "no comm.", `fedcmoo-pref` its
"FedCMOO" (section 5.3 says which variant).

The thesis does not give everything. What is missing is a named constant below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedpareto_papers import tables

Gap = Literal["deo", "ddp"]

_PRINTED = tables.read("fedpareto_papers.thesis.fairness")

ROUNDS = 50
"""Not given. Other chapters' figures show 28 to 38, on other problems. Of FedProx with 10 steps of 1e-3 a round (Law
School, DDP) nothing but a constant is left after 20; 50 keep a table below 20 minutes on two cores."""
CLIENTS, MANY_CLIENTS = 10, 50
"""Section 5.3: the tables of the chapter, and those of the appendix."""
RUNS = 10
"""Section 5.3: fronts are over 10 runs."""
BATCH_SIZE = 128
"""Not given."""
OPTIMISER = "adam"
"""Not given; the step sizes that were tried (5e-4 to 1e-2, table A.10) are usual for Adam, small for plain SGD."""
LOCAL_STEPS = 25
"""Steps in a round of "no comm.", for which none are given: the middle one of those tried for the others."""
TOP_RATIO = 0.4
"""FedPref's R, not given for these problems."""
SIMILARITY_BOUND = -1.0
"""FedPref's s_min, not given for these problems; chapter 4 finds −1 good everywhere."""
FEDPROX_LAST_LR: Mapping[Gap, float] = {"deo": 1e-3, "ddp": 1e-2}
"""FedProx's rows in A.11 and A.12 show four learning rates for five problems. We read them from the left, so that
Default lacks one, and take the value that most of its row has."""
NORMALISE = False
"""A.3.5 finds that dividing losses by their initial values works well; whether the tables use it is not stated."""
PARTITION, SPLIT = "random", (0.6, 0.2, 0.2)
"""Partitioned at random (7.2.2 calls it naive); the shares of training, validation and test are not given."""
TEST = "common"
"""The tables are of "global performance": every model is tested on the test rows of all clients. That fits A.21 and
A.22, where the best of 500 clients of Law School has an accuracy of 0.95; on its own 90 test rows it has 0.97 to 0.99
by chance."""
EPSILON = 1e-3
"""A.3.5: a solution fairer than 1 − ε is regarded as not converged."""

ALGORITHMS = ("fedprox", "cfl", "fedcmoo-pref", "fedpref", "local")
"""In the order of the tables' columns."""
TITLES = {"fedprox": "FedProx", "cfl": "CFL", "fedcmoo-pref": "FedCMOO", "fedpref": "FedPref", "local": "no comm."}

DATA: Mapping[str, tuple[str, str]] = {
    "adult-gender": ("adult", "gender"),
    "adult-race": ("adult", "race"),
    "law-school-gender": ("law-school", "gender"),
    "law-school-race": ("law-school", "race"),
    "default-gender": ("credit-default", "gender"),
}
"""Problem and sensitive attribute of each row, in the order of the tables."""
GOALS: Mapping[Gap, str] = {"deo": "equal-opportunity", "ddp": "demographic-parity"}


@dataclass(frozen=True)
class PublishedTable:
    """One of the thesis's tables of hypervolumes."""

    about: str
    heterogeneous: bool
    """Every client has its own random preference, or else all share one."""
    clients: int
    cells: Mapping[str, Mapping[str, float]]
    """Hypervolume by problem (such as adult-gender-deo) and algorithm."""


TABLES: Mapping[str, PublishedTable] = {
    f"thesis-{name}": PublishedTable(
        _PRINTED[name].about,
        cells={
            f"{data}-{gap}": row for gap, rows in _PRINTED[name].of(tables.value).items() for data, row in rows.items()
        },
        **_PRINTED[name].setting,
    )
    for name in ("5.2", "5.3", "5.4", "5.5", "A.17", "A.20")
}


@dataclass(frozen=True)
class Range:
    """The ranges of a front, as fractions."""

    accuracy: tuple[float, float]
    """Smallest and largest."""
    fairness: tuple[float, float]
    """Smallest and largest 1 − |gap|."""
    doubtful: str | None = None
    """Why a published range is doubtful."""

    @property
    def is_point(self) -> bool:
        """The front is a single point, or cannot be told from one in print."""
        return self.accuracy[0] == self.accuracy[1] and self.fairness[0] == self.fairness[1]


def _range(least_accuracy: float, most_accuracy: float, least_fairness: float, most_fairness: float) -> Range:
    return Range((least_accuracy, most_accuracy), (least_fairness, most_fairness))


RANGES: Mapping[str, Mapping[str, Mapping[str, Range]]] = {
    name: {f"{data}-{gap}": row for gap, rows in _PRINTED[name].of(_range).items() for data, row in rows.items()}
    for name in ("A.13", "A.14", "A.18", "A.19", "A.21", "A.22")
}
"""Ranges by table, problem and algorithm."""
COPIED = {"A.15": "A.13", "A.16": "A.14"}
"""Heterogeneous ranges of 10 clients, printed digit for digit like the homogeneous ones. They can give only 2 (A.15)
and 1 (A.16) of the 25 hypervolumes of tables 5.4 and 5.5, so it is these that are wrong."""
_RANGES_IN: Mapping[tuple[str, Gap], str] = {
    ("thesis-5.2", "deo"): "A.13",
    ("thesis-5.3", "ddp"): "A.14",
    ("thesis-5.4", "deo"): "A.15",
    ("thesis-5.5", "ddp"): "A.16",
    ("thesis-A.17", "deo"): "A.18",
    ("thesis-A.17", "ddp"): "A.19",
    ("thesis-A.20", "deo"): "A.21",
    ("thesis-A.20", "ddp"): "A.22",
}


def published_range(table: str, problem: str, algorithm: str) -> Range:
    """The ranges of the front behind a cell of a table (such as thesis-5.2), from the appendix."""
    source = _RANGES_IN[table, split_name(problem)[1]]
    found = RANGES[COPIED.get(source, source)][problem][algorithm]
    if source not in COPIED:
        return found
    reason = f"table {source} repeats {COPIED[source]} (homogeneous preferences) and does not fit the hypervolumes"
    return replace(found, doubtful=reason)


def own_range(front: Sequence[Sequence[float]]) -> Range | None:
    """The ranges of our front, a list of (accuracy, 1 − |gap|); None if it is empty."""
    if not front:
        return None
    accuracy, fairness = zip(*front, strict=True)
    return Range((min(accuracy), max(accuracy)), (min(fairness), max(fairness)))


@dataclass(frozen=True)
class Selected:
    """The hyper-parameters selected for one algorithm on one problem (tables A.11 and A.12)."""

    lr: float
    """Learning rate."""
    steps: int = LOCAL_STEPS
    """Local iterations, read as minibatch steps in a round."""
    fine_tuned: bool = False
    """There is a fine-tuning round at the end."""
    own: Mapping[str, Any] | None = None
    """Parameters of the algorithm itself."""


_SELECTED: Mapping[Gap, Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "deo": _PRINTED["A.11"].of(tables.value),
    "ddp": _PRINTED["A.12"].of(tables.value),
}
"""Parameters by gap, algorithm, parameter and row of DATA."""
_NOT_GIVEN: Mapping[str, Mapping[str, Any]] = {
    # Table A.10 calls the threshold a relative change, and 1 to 7.5 are no sensible norms.
    "cfl": {"threshold_in": "percent"},
    "fedpref": {"threshold_in": "percent", "top_ratio": TOP_RATIO, "similarity_bound": SIMILARITY_BOUND},
}


def selected(problem: str, algorithm: str) -> Selected:
    """Parameters that tables A.11 and A.12 list for a problem (such as adult-gender-deo) and an algorithm."""
    data, gap = split_name(problem)
    own = {parameter: row[data] for parameter, row in _SELECTED[gap][algorithm].items()}
    lr, steps, fine_tuned = own.pop("lr"), own.pop("steps", LOCAL_STEPS), own.pop("fine_tuned", False)
    if math.isnan(lr):
        lr = FEDPROX_LAST_LR[gap]
    return Selected(lr, steps, fine_tuned, own | dict(_NOT_GIVEN.get(algorithm, {})))


def split_name(problem: str) -> tuple[str, Gap]:
    """adult-gender-deo is the row adult-gender with the gap deo."""
    data, _, gap = problem.rpartition("-")
    return data, "deo" if gap == "deo" else "ddp"
