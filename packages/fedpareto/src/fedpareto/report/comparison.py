"""The numbers of several runs side by side: mean ± population deviation over the seeds, the best marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedpareto.moo.dominance import front
from fedpareto.moo.fairness import Evaluation
from fedpareto.moo.indicators import expected_utility, hypervolume, igd, own_utilities
from fedpareto.moo.intervals import interval
from fedpareto.moo.tested import CHANCE
from fedpareto.record.phrases import beside_in_words, no_plain_in_words
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record, mean_and_deviation
from fedpareto.report.costs import OF_TIME, metrics_of_time
from fedpareto.report.gains import LOCAL, gains_of_seed
from fedpareto.report.likeness import comparable, same_preferences, unlike
from fedpareto.report.table import Cell, Column, Row, Table, cell_text, decimals_of, number_text

INDICATORS = {
    "hypervolume": ("hypervolume", 1),
    "igd": ("IGD", -1),
    "igd_plus": ("IGD+", -1),
    "igd_to_all": ("IGD to all", -1),
    "sparsity": ("sparsity", -1),
    "cardinality": ("cardinality", 1),
    "own_utility": ("own utility", 1),
    "own_utility_trained": ("own utility, trained", 1),
    "worst_utility": ("worst client's utility", 1),
    "regret": ("regret", -1),
    "expected_utility": ("expected utility", 1),
}
"""Title of each indicator and its direction: 1 when higher is better, -1 when lower is."""
OVER_LOCAL: Mapping[str, tuple[str, Callable[[Array], np.floating]]] = {
    "gain": ("gain over local", np.mean),
    "worst_gain": ("worst gain over local", np.min),
    "better_off": ("share of clients better off", lambda gains: np.mean(gains > 0)),
}
"""Title and statistic of the clients' gains over a run of `local`, where one is among the runs."""
MARKS = (
    "Bold: better than every other run, as the 95 % interval of the paired differences over the seeds says; nothing is "
    "bold where an interval includes zero, or there is only one seed."
)
CENTRAL = (
    "Central: for each client's preference one model trained on the training rows of all clients, by the same learner "
    "for as many rounds."
)
TO_ALL = "IGD to all: the mean distance to a run's front from the front of all these runs together."
WISHED = ("own_utility", "own_utility_trained", "worst_utility", "regret", "expected_utility")
"""Metrics that depend on the clients' preferences: of other clients' wishes they say nothing."""
OTHER_WISHES = "The clients of these runs have different preferences: what models are worth to them is not ranked."
COSTS = ("seconds", "refused", "bytes_up")
"""Metrics that are counted, not sampled: the best is marked without an interval."""
IMPROVED = Column("improved", "share improved", 1)
"""Share of a round's participants whose training loss did not rise; mean over the rounds."""

EPSILON = Column("epsilon", "ε", -1)
MAY_BE_UNKNOWN = (*INDICATORS, *OVER_LOCAL, IMPROVED.key, EPSILON.key, *OF_TIME)
"""Columns that a table has only if they are known of a run."""


REFERENCES = ("constant", "plain alone", "plain pooled", CHANCE, "central")
"""References in the order of their rows."""
PLAIN = (
    "Plain: logistic regression (of texts the most frequent class), alone on each client's training rows, and pooled "
    "on those of all."
)
BY_CHANCE = "Random policy: actions at random, in as many episodes of each client as a policy is evaluated on."


def comparison(records: Sequence[Record], over: str | None = None) -> Table:
    """Every metric of every run; runs on different problems or objectives are refused.

    `over`: in what the way to 95 % of the result is measured; see axes.axis_of.
    """
    runs = comparable(records)
    columns, cells = [], []
    for column, measure in [*_metrics(runs), *metrics_of_time(runs, over)]:
        values = [measure(run) for run in runs]
        # A metric that no run has, such as the distance to an unknown front, gets no column.
        if all(np.isnan(v).all() for v in values) and column.key in MAY_BE_UNKNOWN:
            continue
        columns.append(column.suited(values))
        cells.append(marked_cells(values, columns[-1], runs))
    rows = (Row.of(run, run.label, (column[i] for column in cells)) for i, run in enumerate(runs))
    notes = [*_notes(runs), *_differences(runs, columns[0], [np.array(cell.values) for cell in cells[0]])]
    return Table(tuple(columns), (*rows, *_references(runs, columns, cells)), tuple(notes))


def _references(runs: Sequence[Record], columns: Sequence[Column], cells: Sequence[Sequence[Cell]]) -> list[Row]:
    """A row for each reference, under the seeds of the first run that has it; of each run where rows differ."""
    rows, is_unlike = list[Row](), bool(unlike(runs))
    for name, known in [(name, run) for name in REFERENCES for run in runs if name in run.references]:
        if not is_unlike and any(row.algorithm == name for row in rows):
            continue
        label = f"{name} ({known.label})" if is_unlike else name
        measured = [_of_points(known, seed, known.references[name][seed]) for seed in known.started]
        found = []
        for column, of_runs in zip(columns, cells, strict=True):
            values = np.array([of_seed.get(column.key, np.nan) for of_seed in measured])
            seen = [*(np.array(cell.values) for cell in of_runs), values]
            decimals = decimals_of(seen, np.array([mean_and_deviation(one)[0] for one in seen]))
            found.append(Cell(tuple(values.tolist()), cell_text(values, decimals)))
        rows.append(Row(label, name, "", known.status.name, known.started, tuple(found), is_reference=True))
    return rows


def _of_points(run: Record, seed: int, points: Array) -> dict[str, float]:
    """Metrics of a reference's points `[n, m]`, of which one may stand for all clients."""
    preferences = run.solution(seed).preferences
    found = {f"mean_{j}": float(points[:, j].mean()) for j in range(len(run.objectives))}
    found["hypervolume"] = hypervolume(points, [objective.reference for objective in run.objectives], run.maximise)
    if preferences is None or len(points) not in (1, len(preferences)):
        return found
    own = own_utilities(np.broadcast_to(points, preferences.shape), preferences, run.maximise)
    found["own_utility"], found["worst_utility"] = float(own.mean()), float(own.min())
    found["expected_utility"] = expected_utility(points, preferences, run.maximise)
    return found | {"regret": found["expected_utility"] - found["own_utility"]}


def _metrics(runs: Sequence[Record]) -> list[tuple[Column, Callable[[Record], Array]]]:
    """Each column with the function that gives a run's values `[started]`."""
    run, metrics = runs[0], list[tuple[Column, Callable[[Record], Array]]]()
    if not run.single:
        special = {
            "igd_to_all": _igd_to_all(runs),
            "sparsity": _sparsity,
            "own_utility_trained": _own_utility(np.mean, "trained"),
            "worst_utility": _own_utility(np.min, "sent"),
        }
        metrics += [(Column(key, *INDICATORS[key]), special.get(key) or _indicator(key)) for key in INDICATORS]
        alone = next((one for one in runs if one.algorithm == LOCAL), None)
        if alone is not None and len(runs) > 1:
            metrics += [
                (Column(key, title, 1), _over_local(statistic, alone)) for key, (title, statistic) in OVER_LOCAL.items()
            ]
        for j, objective in enumerate(run.objectives):
            # Wide is not good by itself, so the spread has no direction.
            metrics.append((Column(f"spread_{j}", f"spread of {objective.name}"), _indicator(f"spread_{j}")))
    for j, objective in enumerate(run.objectives):
        direction = 1 if objective.maximise else -1
        metrics.append((Column(f"mean_{j}", f"mean {objective.name}", direction), _objective_mean(j)))
    return [
        *metrics,
        (IMPROVED, _share_improved),
        (EPSILON, lambda run: np.array([run.of_seed(seed)[-1].epsilon for seed in run.started])),  # Of all seeds.
        (Column("seconds", "seconds per seed", -1), lambda run: run.total("seconds").mean(keepdims=True)),
        (Column("refused", "missing replies", -1), lambda run: run.total("failures")),
        (Column("bytes_up", "bytes up per round and client", -1), _bytes_up),
    ]


def _over_local(statistic: Callable[[Array], np.floating], alone: Record) -> Callable[[Record], Array]:
    def measure(record: Record) -> Array:
        gains = [gains_of_seed(record, alone, seed) for seed in record.started]
        return np.array([statistic(one) if len(one) else np.nan for one in gains])

    return measure


def _own_utility(statistic: Callable[[Array], np.floating], evaluation: Evaluation) -> Callable[[Record], Array]:
    def measure(record: Record) -> Array:
        found = [record.own_utilities(seed, evaluation) for seed in record.started]
        return np.array([np.nan if own is None or not len(own) else statistic(own) for own in found])

    return measure


def _indicator(name: str) -> Callable[[Record], Array]:
    return lambda record: record.indicator(name)


def _objective_mean(j: int) -> Callable[[Record], Array]:
    return lambda record: np.array([p[:, j].mean() if len(p) else np.nan for p in record.points()])


def _igd_to_all(runs: Sequence[Record]) -> Callable[[Record], Array]:
    """Measure the distance from the front of all runs together: where no front is known, that is the best there is."""
    every = np.concatenate([run.pooled() for run in runs])
    if len(runs) < 2 or not len(every) or unlike(runs):
        return lambda record: np.full(len(record.started), np.nan)
    known, maximise = front(every, runs[0].maximise), runs[0].maximise
    return lambda record: np.array(
        [igd(front(record.drawn(one), maximise), known, maximise) for one in record.solutions]
    )


def _sparsity(record: Record) -> Array:
    """NaN where the front of a seed has fewer than two points, which have no neighbours to be far from."""
    found = record.indicator("sparsity")
    return np.full_like(found, np.nan) if (record.indicator("cardinality") < 2).any() else found


def _share_improved(record: Record) -> Array:
    rounds, shares = record.share_improved()
    return shares.mean(axis=1) if len(rounds) else np.full(len(record.started), np.nan)


def _bytes_up(record: Record) -> Array:
    """`[started]`: the row of round r holds the traffic of round r + 1, so the last round's holds none."""
    lines = [[line for line in record.of_seed(s) if line.round < record.rounds] for s in record.started]
    sums = [sum(line.bytes_up for line in of_seed) for of_seed in lines]
    shares = [float(max(len(of_seed), 1) * max(record.clients, 1)) for of_seed in lines]
    return np.array(sums, dtype=np.float64) / shares


def marked_cells(values: list[Array], column: Column, runs: Sequence[Record]) -> list[Cell]:
    """Make a column of one value per seed and run, the best marked."""
    means = np.array([mean_and_deviation(v)[0] for v in values])
    best = _best(values, means, column, runs)
    seen = [v / column.unit[1] for v in values]
    decimals = decimals_of(seen, means / column.unit[1])
    texts = [cell_text(one, decimals) for one in seen]
    return [Cell(tuple(v.tolist()), text, bool(mark)) for v, text, mark in zip(values, texts, best, strict=True)]


def _best(values: list[Array], means: Array, column: Column, runs: Sequence[Record]) -> list[bool]:
    """Mark the runs that share the best mean, if they are better than all others beyond doubt.

    None either when all share it, as marking everything says nothing.
    """
    scores = np.full(len(means), -np.inf)
    known = np.isfinite(means)
    scores[known] = means[known] * column.direction
    scores[[_unfair(column.key, run) for run in runs]] = -np.inf
    marks = np.isclose(scores, scores.max(), rtol=1e-9, atol=0.0) & np.isfinite(scores)
    is_alike = len({run.measured for run in runs}) == 1 or column.key in COSTS
    # The least sparse among those that are not single points would only seem to be the best of all.
    is_partial = column.key == "sparsity" and not known.all()
    is_wish = column.key in WISHED and not same_preferences(runs)
    if column.direction == 0 or marks.all() or not is_alike or is_partial or is_wish or unlike(runs):
        return [False] * len(means)
    first = int(np.flatnonzero(marks)[0]) if marks.any() else 0
    others = [i for i in range(len(means)) if np.isfinite(scores[i]) and not marks[i]]
    is_certain = column.key in COSTS or all(differ(first, i, values, runs) for i in others)
    return marks.tolist() if is_certain else [False] * len(means)


def differ(a: int, b: int, values: list[Array], runs: Sequence[Record]) -> bool:
    """Return True if the interval of the paired differences of two runs, over the seeds of both, excludes zero."""
    found = interval(paired(a, b, values, runs))
    return found is not None and found.excludes_zero


def paired(a: int, b: int, values: list[Array], runs: Sequence[Record]) -> Array:
    """`[k]`: the differences of two runs' values under the seeds that both have."""
    mine, theirs = (dict(zip(runs[i].started, values[i].tolist(), strict=False)) for i in (a, b))
    return np.array([mine[seed] - theirs[seed] for seed in mine if seed in theirs])


def _unfair(key: str, run: Record) -> bool:
    """Return True if a run would be best in a column for the wrong reason."""
    if key in ("seconds", "refused"):
        return not run.finished
    if key in OVER_LOCAL:  # The run to gain over stands in this column only as zero; own utility compares all.
        return True
    # A single point leaves no regret, the best value, although no set is less diverse.
    return key == "regret" and bool((run.indicator("cardinality") < 2).any())


def _differences(runs: Sequence[Record], column: Column, values: list[Array]) -> list[str]:
    """Tell how far the runs are from the one with the best mean of the first metric, seed by seed."""
    means = np.array([mean_and_deviation(v)[0] for v in values])
    if len(runs) < 2 or not np.isfinite(means).all() or len({run.measured for run in runs}) > 1 or unlike(runs):
        return []
    best, told = int(np.argmax(means * (column.direction or 1))), []
    for i, run in enumerate(runs):
        if i != best and len(differences := paired(i, best, values, runs)) > 1:
            found = interval(differences)
            mean = number_text(float(differences.mean()) if found is None else found.mean, 4)
            ends = "no interval" if found is None else f"{number_text(found.low, 4)} to {number_text(found.high, 4)}"
            told.append(f"{run.label} {mean} ({ends})")
    if not told:
        return []
    return [
        f"Difference in {column.title} to {runs[best].label}, paired over seeds (95 % interval): {', '.join(told)}."
    ]


def _of_references(runs: Sequence[Record]) -> list[str]:
    """Explain plain models, and compare each run with its references."""
    names = {name for run in runs for name in run.references}
    notes = [PLAIN] if any(name.startswith("plain") for name in names) else []
    notes += [BY_CHANCE] if CHANCE in names else []
    notes += [f"{_upper(line)}." for line in no_plain_in_words(runs[0].problem, names)]
    for run in runs:
        if told := beside_in_words(run.beside):
            what = "Utility" if all(one.preferences is not None for one in run.solutions) else "Hypervolume"
            notes.append(f"{what} of {run.label} {told}.")
    return notes


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _notes(runs: Sequence[Record]) -> list[str]:
    notes = [f"Mean ± population deviation over the seeds, {runs[0].measured}."]
    marks = [*([MARKS] if len(runs) > 1 else []), *([] if same_preferences(runs) else [OTHER_WISHES])]
    notes += unlike(runs) or marks
    if len({run.measured for run in runs}) > 1:
        own = "; ".join(f"{run.label} {run.measured}" for run in runs)
        notes.append(f"The runs were not measured alike ({own}): their numbers cannot be compared.")
    if len(runs) > 1 and not runs[0].single and not unlike(runs):
        notes.append(TO_ALL)
    if any(run.rank > 1 or run.converged for run in runs):
        left = [f"fronts are those of rank {runs[0].rank}"] if runs[0].rank > 1 else []
        left += ["models fairer than 0.999, which did not converge, are left out of them"] if runs[0].converged else []
        notes.append(f"{_upper('; '.join(left))}; own utilities and means are of all clients.")
    notes += _of_references(runs)
    if any("central" in run.references for run in runs):
        notes.append(CENTRAL)
    told = {warning: [run.label for run in runs if warning in run.warnings] for run in runs for warning in run.warnings}
    for warning, labels in told.items():
        notes.append(f"{_upper(warning)}." if len(labels) == len(runs) else f"{', '.join(labels)}: {warning}.")
    for run in runs:
        if not run.finished:
            reached = min(solution.round for solution in run.solutions)
            seeds = f"{len(run.started)} of {len(run.seeds)} seeds"
            notes.append(f"{run.label}: {run.status.name}, {seeds}, after round {reached} of {run.rounds}.")
    for what in ("rounds", "seeds"):
        if len({getattr(run, what) for run in runs}) > 1:
            values = ("/".join(map(str, np.atleast_1d(getattr(run, what)))) for run in runs)
            own = ", ".join(f"{run.label} {value}" for run, value in zip(runs, values, strict=True))
            notes.append(f"The runs have different {what} ({own}): compare with care.")
    fronts = [run.known_front for run in runs if run.known_front is not None]
    if any(not np.array_equal(known, fronts[0]) for known in fronts):
        notes.append("The runs have different known fronts: their IGD cannot be compared.")
    return notes
