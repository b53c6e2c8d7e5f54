"""What chapter 5 of L. M. Hartmann's thesis prints: hypervolumes, ranges of fronts, hyper-parameters.

Problems are the thesis's ten: three data sets, five sensitive attributes, two fairness gaps. Algorithms bear the names
they have here; `local` is the thesis's "no comm.", `fedcmoo-pref` its "FedCMOO" (section 5.3 says which variant).

The thesis does not give everything. What is missing is a named constant below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Gap = Literal["deo", "ddp"]

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
        """Whether the front is a single point, or cannot be told from one in print."""
        return self.accuracy[0] == self.accuracy[1] and self.fairness[0] == self.fairness[1]


def _ranges(gap: Gap, text: str) -> dict[str, dict[str, Range]]:
    """From percent: lines in the order of DATA, columns in that of ALGORITHMS, in each the two accuracies first."""
    found: dict[str, dict[str, Range]] = {}
    for data, line in zip(DATA, text.strip().splitlines(), strict=True):
        row = found[f"{data}-{gap}"] = {}
        for algorithm, cell in zip(ALGORITHMS, line.split("|"), strict=True):
            a, b, c, d = (round(float(percent) / 100, 3) for percent in cell.split())
            row[algorithm] = Range((a, b), (c, d))
    return found


RANGES: Mapping[str, Mapping[str, Mapping[str, Range]]] = {
    "A.13": _ranges(
        "deo",
        """
        80.0 80.1 83.7 87.6 | 80.7 80.8 84.7 85.0 | 73.8 77.8 84.2 87.0 | 80.4 80.8 85.6 86.1 | 79.0 79.5 81.7 85.3
        79.8 80.0 87.8 91.9 | 80.6 80.8 85.9 88.9 | 70.5 75.7 94.4 96.5 | 80.8 80.8 89.8 89.8 | 77.5 79.6 86.8 90.6
        91.8 93.2 83.4 94.8 | 92.6 92.7 86.8 88.6 | 91.5 93.4 83.1 98.6 | 91.7 93.3 84.2 89.6 | 91.5 91.7 84.8 86.8
        92.8 93.5 70.2 75.2 | 92.8 93.0 69.3 79.8 | 91.9 92.4 65.6 74.6 | 92.8 93.2 70.3 79.9 | 91.6 91.7 71.6 72.7
        71.4 73.0 91.6 96.8 | 68.5 70.1 94.6 96.2 | 64.3 73.6 94.0 98.6 | 72.1 74.4 93.5 96.9 | 70.0 70.4 93.4 96.5
        """,
    ),
    "A.14": _ranges(
        "ddp",
        """
        71.6 78.5 95.5 97.4 | 77.8 80.3 93.4 98.4 | 62.5 76.1 97.9 99.2 | 66.0 78.1 97.3 97.5 | 25.1 81.5 91.3 99.2
        80.0 81.5 95.8 98.0 | 78.5 80.9 95.8 98.0 | 75.1 77.4 95.4 98.8 | 78.1 80.1 97.2 99.1 | 77.7 81.6 90.8 97.7
        91.0 95.0 99.6 99.6 | 94.2 94.2 99.6 99.6 | 90.9 92.5 99.2 99.5 | 93.9 94.1 99.6 99.6 | 94.8 94.8 99.5 99.5
        93.1 93.1 97.9 97.9 | 94.4 94.8 99.0 99.6 | 94.5 94.9 99.2 99.6 | 93.8 94.6 97.9 98.1 | 94.4 94.8 98.9 99.1
        76.9 76.9 99.4 99.4 | 77.6 77.6 99.1 99.1 | 65.9 65.9 98.8 98.8 | 55.0 77.2 98.5 98.6 | 52.3 77.4 98.7 98.8
        """,
    ),
    "A.18": _ranges(
        "deo",
        """
        80.9 82.0 80.3 81.7 | 81.0 81.6 84.0 84.7 | 76.6 78.0 80.4 83.8 | 81.7 81.9 83.2 85.0 | 78.6 79.2 82.9 83.7
        80.9 81.4 85.0 86.8 | 81.3 81.4 85.8 86.7 | 70.1 75.4 89.4 93.9 | 81.6 82.0 84.4 85.8 | 77.9 79.4 87.3 89.1
        94.4 94.8 88.9 92.8 | 94.5 94.8 87.0 95.7 | 93.0 94.1 82.8 94.9 | 94.5 94.5 92.1 92.1 | 92.2 92.3 82.5 86.5
        94.2 94.6 71.7 76.4 | 94.4 94.8 67.1 70.1 | 93.1 93.3 70.2 75.3 | 94.2 94.5 68.6 76.1 | 92.0 92.3 75.8 79.8
        76.4 77.8 93.9 97.6 | 75.7 76.8 94.2 95.4 | 79.1 81.2 95.7 98.4 | 77.6 77.8 93.6 95.9 | 72.0 72.0 95.0 95.0
        """,
    ),
    "A.19": _ranges(
        "ddp",
        """
        76.1 78.1 93.8 99.4 | 24.8 80.8 87.3 99.6 | 64.6 78.6 63.1 98.3 | 75.8 78.4 93.1 98.1 | 24.9 80.8 85.5 99.5
        76.3 78.6 97.1 98.0 | 76.1 79.4 97.5 99.1 | 72.4 76.3 94.4 97.1 | 76.7 79.5 96.6 98.0 | 77.7 79.8 92.4 95.1
        90.7 94.2 98.7 99.6 | 94.5 94.5 99.5 99.5 | 92.9 92.9 99.7 99.7 | 94.7 94.7 99.5 99.5 | 91.1 92.1 97.8 98.3
        95.0 95.0 99.7 99.7 | 94.9 94.9 99.6 99.6 | 95.0 95.1 98.1 99.3 | 94.3 94.3 98.8 98.8 | 93.1 93.3 95.3 96.9
        53.2 67.6 97.3 98.8 | 26.0 67.9 96.8 99.5 | 45.3 63.9 97.3 98.3 | 61.2 70.1 96.0 97.6 | 49.0 68.6 96.1 98.3
        """,
    ),
    "A.21": _ranges(
        "deo",
        """
        81.1 81.8 78.7 81.8 | 79.8 83.9 93.9 99.6 | 75.7 77.7 79.9 83.7 | 82.9 83.6 91.2 98.9 | 80.3 82.3 94.4 99.7
        81.1 81.4 84.4 85.9 | 79.5 83.7 84.8 99.8 | 70.3 76.3 92.0 93.9 | 81.8 83.8 86.8 97.6 | 78.9 82.1 98.2 99.9
        95.1 95.2 91.8 99.9 | 94.4 95.1 98.8 99.7 | 93.2 94.1 85.3 96.8 | 94.5 95.3 88.4 99.8 | 93.4 95.0 98.7 99.8
        94.7 95.2 76.7 99.9 | 93.9 95.1 82.2 98.3 | 94.9 95.2 73.4 99.0 | 94.1 95.3 76.0 99.4 | 94.3 95.0 74.9 99.8
        75.3 77.9 94.5 96.5 | 74.0 80.8 97.7 99.9 | 77.6 81.3 96.8 97.7 | 78.3 78.5 94.7 97.8 | 70.6 78.4 95.1 99.9
        """,
    ),
    "A.22": _ranges(
        "ddp",
        """
        24.6 83.0 96.0 99.9 | 65.7 82.4 90.3 99.9 | 52.7 81.9 78.8 97.1 | 79.7 83.6 93.5 99.9 | 24.6 82.8 88.4 99.9
        76.9 83.2 99.2 99.9 | 79.1 82.9 93.5 99.7 | 70.8 78.1 90.2 96.1 | 75.3 83.7 93.9 99.8 | 76.3 83.0 90.0 99.9
        92.0 94.3 99.3 99.8 | 89.4 95.1 98.6 99.9 | 90.6 92.2 99.7 99.9 | 89.8 95.1 99.3 99.9 | 92.2 95.0 98.9 99.9
        95.0 95.0 99.8 99.8 | 94.7 95.0 99.4 99.9 | 95.0 95.0 99.0 99.0 | 92.1 95.1 97.6 99.9 | 95.0 95.1 97.9 99.9
        69.0 77.8 99.8 99.9 | 67.8 75.6 89.8 99.9 | 57.9 75.5 95.8 99.9 | 59.3 76.2 96.5 99.9 | 56.6 75.2 96.9 99.9
        """,
    ),
}
"""Ranges by table, problem and algorithm, all brought into one order: smallest and largest accuracy, then fairness.

All eight tables label the first line of a cell "min" and the second "max". Only A.21 and A.22 are so; in the others the
first line holds both accuracies and the second both fairnesses: no other reading gives the published hypervolumes, and
this one does in every cell. A.21 and A.22 are not "scaled by 10²", as their captions say; here all are fractions.
"""
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
