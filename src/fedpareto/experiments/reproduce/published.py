"""What chapter 5 of L. M. Hartmann's thesis prints: hypervolumes, and the hyper-parameters selected for each problem.

Problems are the thesis's ten: three data sets, five sensitive attributes, two fairness gaps. Algorithms bear the names
they have here; `local` is the thesis's "no comm.", `fedcmoo-pref` its "FedCMOO" (section 5.3 says which variant).

The thesis does not give everything. What is missing has a named constant below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Gap = Literal["deo", "ddp"]

ROUNDS = 20
"""Not given. Other chapters' figures show 28 to 38, on other problems; 20 keeps a table near 20 minutes."""
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
"""A.3.5 finds that dividing losses by their initial values works well; whether the tables have it is not said."""
PARTITION, SPLIT = "random", (0.6, 0.2, 0.2)
"""Dealt at random (7.2.2 calls it naive); the shares of training, validation and test are not given."""
EPSILON = 1e-3
"""A.3.5: a solution fairer than 1 − ε is taken for one that did not converge."""

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
    """Whether every client has its own random preference, or all share one."""
    clients: int
    cells: Mapping[str, Mapping[str, float]]
    """Hypervolume by problem (such as adult-gender-deo) and algorithm."""


def _cells(gap: Gap, *rows: tuple[float, ...]) -> dict[str, dict[str, float]]:
    """Rows in the order of DATA, columns in that of ALGORITHMS."""
    named = zip(DATA, rows, strict=True)
    return {f"{data}-{gap}": dict(zip(ALGORITHMS, row, strict=True)) for data, row in named}


TABLES: Mapping[str, PublishedTable] = {
    "thesis-5.2": PublishedTable(
        "accuracy and DEO, homogeneous preferences, 10 clients",
        False,
        CLIENTS,
        _cells(
            "deo",
            (0.701, 0.687, 0.676, 0.696, 0.678),
            (0.735, 0.719, 0.730, 0.726, 0.721),
            (0.882, 0.821, 0.919, 0.836, 0.796),
            (0.703, 0.742, 0.689, 0.744, 0.667),
            (0.707, 0.675, 0.724, 0.720, 0.680),
        ),
    ),
    "thesis-5.3": PublishedTable(
        "accuracy and DDP, homogeneous preferences, 10 clients",
        False,
        CLIENTS,
        _cells(
            "ddp",
            (0.763, 0.788, 0.754, 0.761, 0.805),
            (0.799, 0.792, 0.764, 0.793, 0.796),
            (0.946, 0.938, 0.920, 0.938, 0.944),
            (0.911, 0.944, 0.945, 0.928, 0.940),
            (0.764, 0.769, 0.651, 0.760, 0.765),
        ),
    ),
    "thesis-5.4": PublishedTable(
        "accuracy and DEO, heterogeneous preferences, 10 clients",
        True,
        CLIENTS,
        _cells(
            "deo",
            (0.703, 0.767, 0.681, 0.772, 0.734),
            (0.715, 0.794, 0.732, 0.796, 0.802),
            (0.942, 0.946, 0.896, 0.939, 0.940),
            (0.931, 0.941, 0.829, 0.929, 0.909),
            (0.722, 0.745, 0.745, 0.742, 0.736),
        ),
    ),
    "thesis-5.5": PublishedTable(
        "accuracy and DDP, heterogeneous preferences, 10 clients",
        True,
        CLIENTS,
        _cells(
            "ddp",
            (0.814, 0.816, 0.766, 0.811, 0.822),
            (0.822, 0.818, 0.773, 0.830, 0.823),
            (0.947, 0.947, 0.914, 0.947, 0.948),
            (0.949, 0.949, 0.949, 0.949, 0.949),
            (0.750, 0.780, 0.722, 0.786, 0.793),
        ),
    ),
    "thesis-A.17": PublishedTable(
        "accuracy and DEO or DDP, homogeneous preferences, 50 clients",
        False,
        MANY_CLIENTS,
        _cells(
            "deo",
            (0.671, 0.691, 0.654, 0.696, 0.663),
            (0.707, 0.706, 0.707, 0.703, 0.708),
            (0.880, 0.907, 0.893, 0.870, 0.799),
            (0.723, 0.664, 0.702, 0.718, 0.737),
            (0.759, 0.733, 0.799, 0.746, 0.684),
        )
        | _cells(
            "ddp",
            (0.776, 0.792, 0.767, 0.769, 0.781),
            (0.770, 0.786, 0.740, 0.779, 0.759),
            (0.939, 0.940, 0.926, 0.941, 0.906),
            (0.947, 0.945, 0.944, 0.932, 0.904),
            (0.667, 0.669, 0.627, 0.684, 0.672),
        ),
    ),
    "thesis-A.20": PublishedTable(
        "accuracy and DEO or DDP, heterogeneous preferences, 50 clients",
        True,
        MANY_CLIENTS,
        _cells(
            "deo",
            (0.669, 0.835, 0.650, 0.826, 0.820),
            (0.699, 0.835, 0.716, 0.817, 0.820),
            (0.951, 0.948, 0.910, 0.951, 0.948),
            (0.950, 0.935, 0.943, 0.947, 0.947),
            (0.752, 0.807, 0.793, 0.767, 0.782),
        )
        | _cells(
            "ddp",
            (0.829, 0.821, 0.781, 0.834, 0.824),
            (0.831, 0.826, 0.749, 0.835, 0.828),
            (0.941, 0.950, 0.921, 0.950, 0.949),
            (0.949, 0.948, 0.941, 0.950, 0.950),
            (0.777, 0.754, 0.753, 0.761, 0.751),
        ),
    ),
}


@dataclass(frozen=True)
class Selected:
    """The hyper-parameters selected for one algorithm on one problem (tables A.11 and A.12)."""

    lr: float
    """Learning rate."""
    steps: int = LOCAL_STEPS
    """Local iterations, read as minibatch steps in a round."""
    fine_tuned: bool = False
    """Whether there is a fine-tuning round at the end."""
    own: Mapping[str, Any] | None = None
    """Parameters of the algorithm itself."""


def _columns(**rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Rows of a table, one value for each of DATA, as one mapping for each of DATA."""
    return [dict(zip(rows, column, strict=True)) for column in zip(*rows.values(), strict=True)]


# Left to right as in the tables: Adult gender, Adult race, Law School gender, Law School race, Default gender.
_SELECTED: Mapping[Gap, Mapping[str, list[dict[str, Any]]]] = {
    "deo": {  # Table A.11.
        "local": _columns(lr=(5e-4, 1e-3, 1e-3, 1e-3, 1e-3)),
        "fedprox": _columns(
            lr=(1e-3, 1e-3, 1e-2, 1e-3, FEDPROX_LAST_LR["deo"]),
            steps=(50, 50, 25, 25, 50),
            mu=(0.0, 0.01, 0.0, 0.01, 0.0),
            fine_tuned=(0, 0, 1, 1, 0),
        ),
        "cfl": _columns(
            lr=(1e-2, 1e-2, 1e-2, 1e-2, 1e-2),
            steps=(25, 50, 50, 50, 25),
            threshold=(7.5, 5.0, 7.5, 5.0, 7.5),
            patience=(1, 1, 2, 2, 2),
            fine_tuned=(1, 1, 0, 0, 1),
        ),
        "fedcmoo-pref": _columns(
            lr=(1e-2, 1e-2, 1e-3, 1e-2, 1e-2),
            server_lr=(2.0, 2.5, 2.5, 1.5, 2.5),
            steps=(10, 50, 50, 10, 25),
            fine_tuned=(0, 0, 0, 1, 0),
        ),
        "fedpref": _columns(
            lr=(1e-2, 1e-2, 1e-2, 1e-2, 1e-3),
            steps=(50, 25, 25, 50, 50),
            threshold=(7.5, 2.5, 1.0, 1.0, 1.0),
            patience=(1, 1, 2, 1, 2),
            fine_tuned=(0, 0, 1, 1, 0),
        ),
    },
    "ddp": {  # Table A.12.
        "local": _columns(lr=(5e-4, 5e-4, 1e-3, 1e-3, 5e-4)),
        "fedprox": _columns(
            lr=(1e-2, 1e-2, 1e-3, 1e-2, FEDPROX_LAST_LR["ddp"]),
            steps=(25, 25, 10, 10, 10),
            mu=(0.0, 0.1, 0.0, 0.1, 0.01),
            fine_tuned=(1, 1, 0, 0, 1),
        ),
        "cfl": _columns(
            lr=(1e-3, 1e-3, 1e-2, 1e-2, 1e-3),
            steps=(25, 50, 25, 50, 50),
            threshold=(1.0, 1.0, 5.0, 7.5, 2.5),
            patience=(2, 1, 1, 2, 2),
            fine_tuned=(1, 0, 0, 0, 1),
        ),
        "fedcmoo-pref": _columns(
            lr=(1e-2, 1e-2, 1e-2, 5e-4, 5e-4),
            server_lr=(2.0, 1.0, 1.5, 1.0, 2.5),
            steps=(50, 25, 50, 10, 25),
            fine_tuned=(0, 0, 0, 0, 0),
        ),
        "fedpref": _columns(
            lr=(1e-2, 1e-2, 1e-2, 1e-2, 1e-3),
            steps=(50, 10, 50, 50, 10),
            threshold=(2.5, 1.0, 5.0, 5.0, 7.5),
            patience=(1, 2, 1, 1, 1),
            fine_tuned=(1, 1, 1, 1, 0),
        ),
    },
}

_NOT_GIVEN: Mapping[str, Mapping[str, Any]] = {
    # Table A.10 calls the threshold a relative change, and 1 to 7.5 are no sensible norms.
    "cfl": {"threshold_in": "percent"},
    "fedpref": {"threshold_in": "percent", "top_ratio": TOP_RATIO, "similarity_bound": SIMILARITY_BOUND},
}


def selected(problem: str, algorithm: str) -> Selected:
    """What tables A.11 and A.12 list for a problem (such as adult-gender-deo) and an algorithm."""
    data, gap = split_name(problem)
    own = dict(_SELECTED[gap][algorithm][list(DATA).index(data)])
    lr, steps, fine_tuned = own.pop("lr"), own.pop("steps", LOCAL_STEPS), own.pop("fine_tuned", 0)
    return Selected(lr, steps, bool(fine_tuned), own | dict(_NOT_GIVEN.get(algorithm, {})))


def split_name(problem: str) -> tuple[str, Gap]:
    """adult-gender-deo is the row adult-gender with the gap deo."""
    data, _, gap = problem.rpartition("-")
    return data, "deo" if gap == "deo" else "ddp"
