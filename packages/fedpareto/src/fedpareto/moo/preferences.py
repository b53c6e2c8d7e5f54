"""Preferences of the clients: arrays `[n, m]` whose rows are non-negative and sum to 1.

A larger weight means that the objective matters more. The three random or spread-out distributions
are those of Hartmann's thesis (section 4.3), taken there from morl-baselines. Messages count clients
and objectives from 0, like the rows and columns of the array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.config.errors import BadPreference, UnknownName, UserError
from fedpareto.moo._points import Array
from fedpareto.moo.subsets import dealt

SUM_TOLERANCE = 1e-6
"""Largest distance of a preference's sum from 1: thirds written with six digits still pass."""

NAMES = ("dirichlet", "equidistant", "gaussian", "groups", "sweep", "tasks", "uniform")
"""The words `from_spec` knows."""

Spec = str | Sequence[float] | Sequence[Sequence[float]] | Mapping[str, Sequence[float]]


def dirichlet(n: int, m: int, rng: np.random.Generator, alpha: float = 1.0) -> Array:
    """`[n, m]` from the symmetric Dirichlet distribution; alpha = 1 is uniform on the simplex.

    A smaller alpha gives clients that care about one objective, a larger one clients that all want
    about the same.
    """
    _check_counts(n, m)
    if not 0 < alpha * m < math.inf:
        raise BadPreference(f"dirichlet: alpha must be a positive number, got {alpha}")
    if m == 1:  # With one objective there is no choice; a draw would be 1 up to a rounding error.
        return np.ones((n, 1))
    return rng.dirichlet(np.full(m, alpha), size=n)


def gaussian(n: int, m: int, rng: np.random.Generator) -> Array:
    """`[n, m]`: absolute values of standard normal draws, each row divided by its sum."""
    _check_counts(n, m)
    draws = np.abs(rng.standard_normal((n, m)))
    return np.asarray(draws / draws.sum(axis=1, keepdims=True))


def equidistant(n: int, m: int) -> Array:
    """`[n, m]` evenly spread over the simplex, deterministic; rows ascend lexicographically.

    One preference is the centre. Up to m preferences are corners, one per objective (with fewer than m clients the
    last objectives have none). Where the count fits, the rows are the lattice of Das and Dennis 1998, which for two
    objectives is always; otherwise they minimise the Riesz energy (Blank et al. 2021).
    """
    _check_counts(n, m)
    if n == 1 or m == 1:
        return np.full((n, m), 1 / m)
    if n < m:
        return np.eye(m)[:n][::-1].copy()
    divisions = 1
    while math.comb(divisions + m - 1, m - 1) < n:
        divisions += 1
    if math.comb(divisions + m - 1, m - 1) == n:
        return _lattice(divisions, m)
    return _least_energy(n, m).copy()


def homogeneous(preference: ArrayLike, n: int) -> Array:
    """`[n, m]`: the same preference `[m]` for every client."""
    m = np.size(preference)
    _check_counts(n, m)
    return np.tile(check_one(preference, m), (n, 1))


def sweep(k: int, m: int) -> Array:
    """`[k, m]`: the preferences of k runs, in each of which all clients share one row.

    For two objectives the i-th is (i/k, 1 - i/k): with k = 10 the (0, 1), (0.1, 0.9) ... (0.9, 0.1) of
    chapter 5 of the thesis, which leaves (1, 0) out. For other numbers of objectives, and for k = 1,
    they are `equidistant`.
    """
    if m != 2 or k == 1:
        return equidistant(k, m)
    _check_counts(k, m)
    steps = np.arange(k)
    return np.stack([steps / k, (k - steps) / k], axis=1)


def groups(sizes: Sequence[int], preferences: ArrayLike | None = None, m: int | None = None) -> Array:
    """`[sum(sizes), m]`: row g of `preferences` `[len(sizes), m]`, repeated `sizes[g]` times.

    The setting of section 4.3.5 of the thesis, which checks that clients with equal preferences are clustered together
    (sizes 5, 5, 5, 5 or 2, 3, 6, 9). Without preferences the groups' are `equidistant(len(sizes), m)`, and `m` is
    needed.
    """
    if not sizes or any(size != int(size) or size < 1 for size in sizes):
        raise BadPreference(f"groups: sizes must be whole numbers of at least 1, got {list(sizes)}")
    if preferences is None:
        if m is None:
            raise ValueError("groups: give the preferences or the number of objectives m")
        rows = equidistant(len(sizes), m)
    else:
        rows = check(preferences, len(sizes), m, "group")
    return np.repeat(rows, [int(size) for size in sizes], axis=0)


def by_name(spec: Spec) -> Mapping[str, Sequence[float]] | None:
    """The preferences of a configuration that gives them by the clients' names; None of one that does not.

    As a mapping, or as text: "north=0.9,0.1;south=0.2,0.8".
    """
    if isinstance(spec, Mapping):
        return {str(name): preference for name, preference in spec.items()}
    if not isinstance(spec, str) or "=" not in spec:
        return None
    found: dict[str, Sequence[float]] = {}
    for row in spec.split(";"):
        name, equals, weights = row.rpartition("=")
        if not equals or not name.strip() or name.strip() in found:
            example = "north=0.9,0.1;south=0.2,0.8"
            raise BadPreference(f"preferences: '{row.strip()}' is not one client's, as in {example}, each named once")
        found[name.strip()] = [_number(piece, row.strip()) for piece in weights.split(",")]
    return found


def is_common(spec: Spec) -> bool:
    """True if a configuration gives all clients one preference, so that it is not private."""
    if by_name(spec) is not None:
        return False
    if isinstance(spec, str):
        text = spec.strip().lower()
        return text in ("uniform", "sweep") or (";" not in text and _is_number(text.partition(",")[0]))
    return all(isinstance(value, int | float | np.number) for value in spec)


def from_spec(
    spec: Spec, n: int, m: int, rng: np.random.Generator, run: int = 0, runs: int = 1, objectives: Sequence[str] = ()
) -> Array:
    """The preferences `[n, m]` that a configuration or a command line asks for, in one of several runs (seeds).

    `objectives` are the names of the m objectives, by which `tasks` calls them.

    | spec | meaning |
    |---|---|
    | `dirichlet`, `dirichlet:0.5` | random, uniform on the simplex or with that alpha |
    | `gaussian` | random, closer to the centre |
    | `equidistant` | evenly spread, deterministic |
    | `uniform` | every objective equally important to everyone |
    | `sweep` | the same for everyone, another one in every run: row `run` of `sweep(runs, m)` |
    | `0.7,0.3` or one flat list | the same for everyone |
    | `0.7,0.3;0.2,0.8` or a list of lists | one per client |
    | `north=0.7,0.3;*=0.5,0.5` or a mapping | by name, and for all others; resolved by `core.federation` |
    | `groups:2,3` | groups of equal clients, evenly spread |
    | `groups:2,3@0.9,0.1;0.2,0.8` | groups of equal clients with these preferences |
    | `tasks:left,left+right` | only some objectives, equally important; the sets are dealt in turn |
    """
    _check_counts(n, m)
    if isinstance(spec, str):
        if spec.strip().lower() == "sweep":
            return homogeneous(sweep(runs, m)[run], n)
        return _from_text(spec.strip(), n, m, rng, objectives)
    if not isinstance(spec, Sequence | np.ndarray):
        raise BadPreference(f"preferences: expected text or a list of numbers, got {spec!r}")
    if all(isinstance(value, int | float | np.number) for value in spec):
        return np.tile(check_one(spec, m), (n, 1))
    return check(spec, n, m)


def _from_text(text: str, n: int, m: int, rng: np.random.Generator, objectives: Sequence[str]) -> Array:
    word, colon, rest = text.partition(":")
    name = word.strip().lower()
    if name == "tasks":
        has = dealt([rest], objectives or [str(j) for j in range(m)], n, f"preferences '{text}'")
        return np.asarray(has / has.sum(axis=1, keepdims=True))
    if name == "groups":
        return _groups_from_text(rest, n, m)
    if name == "dirichlet":
        return dirichlet(n, m, rng, _number(rest, text) if colon else 1.0)
    plain: dict[str, Callable[[], Array]] = {
        "gaussian": lambda: gaussian(n, m, rng),
        "equidistant": lambda: equidistant(n, m),
        "uniform": lambda: np.full((n, m), 1 / m),
    }
    if name in plain:
        if colon:
            raise BadPreference(f"preferences '{text}': {name} takes no argument, write '{name}'")
        return plain[name]()
    if not _is_number(text.replace(";", ",").partition(",")[0]):
        unknown = UnknownName("preference distribution", name, NAMES)
        if "," not in rest or not _is_number(rest.partition(",")[0]):
            raise unknown
        raise UserError(f"{unknown} For one client's own write {word.strip()}={rest.partition(';')[0].strip()}")
    rows = _rows_from_text(text)
    if len(rows) == 1:
        return np.tile(check_one(rows[0], m), (n, 1))
    return check(rows, n, m)


def _groups_from_text(text: str, n: int, m: int) -> Array:
    sizes_text, at, rows_text = text.partition("@")
    whole = f"groups:{text}"
    pieces = [piece.strip() for piece in sizes_text.split(",")]
    if not all(piece.isdecimal() for piece in pieces):
        raise BadPreference(f"preferences '{whole}': sizes must be whole numbers, as in 'groups:2,3'")
    sizes = [int(piece) for piece in pieces]
    if sum(sizes) != n:
        raise BadPreference(f"preferences '{whole}': the groups hold {sum(sizes)} clients, but there are {n}")
    return groups(sizes, _rows_from_text(rows_text) if at else None, m)


def _rows_from_text(text: str) -> list[list[float]]:
    return [[_number(piece, text) for piece in row.split(",")] for row in text.split(";")]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(piece: str, whole: str) -> float:
    if not _is_number(piece):
        raise BadPreference(f"preferences '{whole}': '{piece.strip()}' is not a number")
    return float(piece)


def _check_counts(n: int, m: int) -> None:
    if n < 1 or m < 1:
        raise UserError(f"preferences need at least one client and one objective, got {n} and {m}")


def check(preferences: ArrayLike, n: int, m: int | None, kind: str = "client") -> Array:
    """`preferences` as an array `[n, m]`, its values as given, or `BadPreference` in the user's words.

    `kind` is what a row belongs to. Without m the first row's length is expected of all.
    """
    # As objects, because rows of different lengths make no array of numbers.
    rows = list(np.atleast_1d(np.asarray(preferences, dtype=object)))
    if len(rows) != n:
        raise BadPreference(f"got {len(rows)} preferences, but there are {n} {kind}s")
    length = np.size(rows[0]) if m is None else m
    return np.stack([check_one(row, length, f"{kind} {i}") for i, row in enumerate(rows)])


def check_one(preference: ArrayLike, m: int, whose: str = "the preference") -> Array:
    """One preference as an array `[m]`, its values as given, or `BadPreference` in the user's words."""
    try:
        row = np.atleast_1d(np.asarray(preference, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):  # The last: a whole number too large for a float.
        raise BadPreference(
            f"{whose}: {np.asarray(preference, dtype=object).tolist()} is not a list of numbers"
        ) from None
    if row.shape != (m,):
        raise BadPreference(
            f"{whose}: {row.size} weight{'' if row.size == 1 else 's'} instead of {m} (one per objective)"
        )
    for j, value in enumerate(row):
        if not math.isfinite(value):
            raise BadPreference(f"{whose}: weight {j} is {value}, not a finite number")
        if value < 0:
            raise BadPreference(f"{whose}: weight {j} is {value:g}; weights cannot be negative")
    total = float(row.sum())
    # Rounded, because 0.333333 three times is off by a hair more than the tolerance in binary.
    if round(abs(total - 1), 9) > SUM_TOLERANCE:
        message = f"{whose}: weights sum to {total:.9g}, not 1"
        if total > 0:
            message += f"; the same proportions would be {','.join(f'{w:.9g}' for w in row / total)}"
        raise BadPreference(message)
    return row


def _lattice(divisions: int, m: int) -> Array:
    """All rows of m multiples of 1/divisions that sum to 1, C(divisions + m - 1, m - 1) of them."""
    # Stars and bars: the gaps between m - 1 bars among divisions + m - 1 places.
    bars = np.array(list(itertools.combinations(range(divisions + m - 1), m - 1)))
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, divisions + m - 1)))
    return (np.diff(edges, axis=1) - 1) / divisions


@lru_cache(maxsize=64)  # An algorithm may ask for the same spread in every round.
def _least_energy(n: int, m: int) -> Array:
    """`[n, m]` on the simplex with (locally) least Riesz energy sum_{i<j} |w_i - w_j|^-s, s = m^2.

    Blank et al. 2021, Generating well-spaced points on a unit simplex. We descend the energy's
    logarithm by conjugate gradients in the square roots of the weights. Small sets start twice and
    keep the better; large ones, where the start is nearly even already, stop early.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped,unused-ignore]

    # One step costs n^2: this is 1000 steps up to 170 clients and a few seconds for 1,000 clients.
    steps = int(np.clip(3e7 / n**2, 50, 1000))
    runs = [
        # Not L-BFGS-B: it calls threaded LAPACK, which made it 20 times slower on a busy machine.
        minimize(
            _log_energy,
            np.sqrt(_scattered(n, m, fineness)).ravel(),
            args=(n, m),
            jac=True,
            method="CG",
            options={"maxiter": steps, "gtol": 1e-7},
        )
        for fineness in ((4, 10) if n <= 200 else (4,))
    ]
    weights = min(runs, key=lambda run: float(run.fun)).x.reshape(n, m) ** 2
    # Rounding hides the last digits, which differ between machines and would shuffle the sorted rows.
    weights = np.round(weights / weights.sum(axis=1, keepdims=True), 6)
    weights = weights[np.lexsort(weights.T[::-1])]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _log_energy(roots: Array, n: int, m: int) -> tuple[float, Array]:
    """Logarithm of the Riesz energy of w = x^2 / sum(x^2) by rows, x = `roots` `[n * m]`; and its gradient."""
    s = m * m
    x = roots.reshape(n, m)
    total = (x * x).sum(axis=1, keepdims=True)
    w = x * x / total
    squares = (w * w).sum(axis=1)
    distance2 = np.maximum(squares[:, None] + squares - 2 * w @ w.T, 1e-30)
    np.fill_diagonal(distance2, np.inf)
    terms = -s / 2 * np.log(distance2)
    largest = terms.max()
    energies = np.exp(terms - largest)
    pull = energies / distance2 / energies.sum()
    slope = 2 * s * (pull @ w - pull.sum(axis=1, keepdims=True) * w)
    gradient = 2 * x / total * (slope - (slope * w).sum(axis=1, keepdims=True))
    # Every pair is in the matrix twice.
    return float(largest + math.log(energies.sum() / 2)), gradient.ravel()


def _scattered(n: int, m: int, fineness: int) -> Array:
    """`[n, m]` from a lattice of at least fineness * n rows: its corners, then always the row farthest from those
    chosen.
    """
    divisions = 1
    while math.comb(divisions + m - 1, m - 1) < fineness * n:
        divisions += 1
    lattice = _lattice(divisions, m)
    chosen = [int(i) for i in np.flatnonzero(lattice.max(axis=1) == 1)]
    gaps = np.min([((lattice - lattice[i]) ** 2).sum(axis=1) for i in chosen], axis=0)
    while len(chosen) < n:
        chosen.append(int(gaps.argmax()))
        gaps = np.minimum(gaps, ((lattice - lattice[chosen[-1]]) ** 2).sum(axis=1))
    # Symmetric starts are saddles of the energy; multiples of the golden ratio break the symmetry.
    golden = np.arange(n * m).reshape(n, m) * (math.sqrt(5) - 1) / 2
    return lattice[chosen] + 0.02 / m * (golden % 1)
