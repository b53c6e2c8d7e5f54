"""Tables of FedFew's reproductions beside the published ones, figures and verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.fairness import Evaluation, across_clients, jain_index
from fedpareto.record.columns import in_folder
from fedpareto.record.store import RunFolder
from fedpareto_papers.client_runs import Array, ClientResults, Values
from fedpareto_papers.fedfew import claims, published
from fedpareto_papers.fedfew.claims import PUBLISHED, SCORINGS, Descent, Smoothed, Survival
from fedpareto_papers.fedfew.published import COLUMNS, FEDFEW, MEDICAL, MODELS, STUDIED, TITLES
from fedpareto_papers.figures import Series, save_series
from fedpareto_papers.study import Found, csv_text, table

Key = tuple[str, str]
"""Column and label of a run."""
FewRun = Found[ClientResults]
Results = Mapping[Key, FewRun]
EVALUATIONS: Mapping[Evaluation, str] = {"sent": "before local steps", "trained": "after local steps"}


def title_of(column: str, found: FewRun) -> str:
    """Title of a column: its data and the number of clients."""
    return COLUMNS[column].title(found.cell.draft["clients"])


def titles(results: Results) -> dict[str, str]:
    return {column: title_of(column, found) for (column, _), found in results.items()}


def accuracies(found: FewRun, scoring: str) -> Array:
    """The clients' accuracies in percent, `[seeds, n]`.

    "sent" and "trained" are of the last evaluation; "paper" is of the best one, and of the kind that the published code
    takes for this algorithm.
    """
    if scoring == "paper":
        is_sent = found.cell.draft["algorithm"]["name"] in published.ON_SERVER_MODELS
        return 100 * evaluated(found, "sent" if is_sent else "trained").best()
    return 100 * evaluated(found, "sent" if scoring == "sent" else "trained").last()


def evaluated(found: FewRun, kind: Evaluation) -> Values:
    """Select the rounds that have both evaluations, so that both are of the same model."""
    values, result = found.result.evaluation(kind), found.result
    both = np.isin(values.rounds, np.intersect1d(result.sent.rounds, result.trained.rounds))
    return Values(values.rounds[both], values.values[:, both])


def mean_of(found: FewRun, scoring: str) -> float:
    """Accuracy over clients and seeds, in percent."""
    return float(np.nanmean(accuracies(found, scoring)))


def deviation_of(found: FewRun, scoring: str) -> float:
    """Between the clients of a seed, mean over the seeds: what the paper prints."""
    return float(np.nanstd(accuracies(found, scoring), axis=1).mean())


def jain_of(found: FewRun, scoring: str) -> float:
    """Jain's index of the clients' accuracies, mean over the seeds."""
    return float(np.mean([jain_index(_measured(clients)) for clients in accuracies(found, scoring)]))


def worst_of(found: FewRun, scoring: str) -> float:
    """The worst client of a seed, mean over the seeds."""
    return float(np.nanmin(accuracies(found, scoring), axis=1).mean())


def _measured(clients: Array) -> Array:
    """Leave out clients whose training diverged."""
    return clients[np.isfinite(clients)]


def weighted_of(found: FewRun, scoring: str) -> float:
    """Accuracy weighted by the clients' test rows, mean over the seeds, in percent: that of figure 2."""
    spec = RunFolder(found.folder).spec()
    rows = np.array([spec.problem.data(spec.clients, seed)["test"].counts for seed in spec.seeds])
    every = accuracies(found, scoring)
    return float(np.mean(np.nansum(every * rows, axis=1) / (rows * np.isfinite(every)).sum(axis=1)))


def objective_of(found: FewRun) -> tuple[Array, Array]:
    """Rounds `[r]` and eq. 9 `[seeds, r]`, from the first round on."""
    values: dict[int, dict[int, float]] = {}
    for row in _weighed(found):
        values.setdefault(row["seed"], {})[row["round"]] = row["objective"]
    rounds = sorted(set.intersection(*(set(of_seed) for of_seed in values.values())))
    return np.array(rounds, dtype=np.float64), np.array([[one[number] for number in rounds] for one in values.values()])


def _weighed(found: FewRun) -> Iterator[dict[str, Any]]:
    """The rows of a run of FedFew with eq. 9 and its weights: all but those before the first round."""
    return (row for row in RunFolder(found.folder).read_lines("metrics.jsonl") if row["objective"] is not None)


def descent_of(found: FewRun) -> Descent:
    """Eq. 9 in the first and in the last round, mean over the seeds."""
    _, values = objective_of(found)
    return Descent(float(values[:, 0].mean()), float(values[:, -1].mean()))


def smoothed_of(found: FewRun, scoring: str) -> Smoothed:
    """The entropy of w and the spread of α in the last round, and the clients' accuracies."""
    last = {row["seed"]: row for row in _weighed(found)}
    spec = RunFolder(found.folder).spec()
    columns = in_folder(found.folder, spec.clients, (), len(spec.problem.objectives))
    every, alphas = (
        [np.array(columns.described(row, name)) for row in last.values()] for name in ("shares", "weights")
    )
    inner = [shares[shares.any(axis=1)] for shares in every]  # Of those who took part.
    return Smoothed(
        entropy=float(np.mean([_entropy(shares).mean() for shares in inner])),
        largest=float(np.mean([shares.max(axis=1).mean() for shares in inner])),
        variation=float(np.mean([alpha.std() / alpha.mean() for alpha in alphas])),
        mean=mean_of(found, scoring),
        deviation=deviation_of(found, scoring),
        worst=worst_of(found, scoring),
    )


def _entropy(shares: Array) -> Array:
    """The entropy of rows that sum to 1, in nats; 0 log 0 is 0."""
    return np.asarray(-(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1))


def as_json(key: Key, found: FewRun) -> dict[str, Any]:
    """All results of a run: both evaluations, last and best, over the clients of each seed, and over the rounds."""
    kinds: dict[str, Any] = {}
    for kind in EVALUATIONS:
        values = evaluated(found, kind)
        kinds[kind] = {
            "last": [vars(across_clients(_measured(clients))) for clients in values.last()],
            "best": [vars(across_clients(_measured(clients))) for clients in values.best()],
            "rounds": values.rounds.tolist(),
            "means": values.means().tolist(),
        }
    entry = published.published(key[0], key[1])
    return {
        "column": key[0],
        "label": key[1],
        **kinds,
        "scored": {scoring: mean_of(found, scoring) for scoring in SCORINGS},
        "published": None if entry is None else vars(entry),
    }


def as_csv(results: Results) -> str:
    lines = []
    for key, found in results.items():
        entry = published.published(*key)
        for scoring in SCORINGS:
            numbers = [measure(found, scoring) for measure in (mean_of, deviation_of, worst_of, jain_of)]
            lines.append((*key, scoring, *numbers, "" if entry is None else entry.mean))
    return csv_text(("column", "label", "scoring", "accuracy", "deviation", "worst", "jain", "published"), lines)


def models_of(found: FewRun) -> int:
    return int(found.cell.draft["algorithm"].get("models", MODELS))


def epochs_of(found: FewRun) -> int:
    return int(found.cell.draft["learner"]["epochs"])


def mu_of(found: FewRun) -> float:
    return float(found.cell.draft["algorithm"].get("mu", published.MU))


# -- how it is shown ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """Panels with series."""

    name: str
    panels: Mapping[str, Sequence[Series]]
    x: str
    y: str


@dataclass(frozen=True)
class Seen:
    """The contents of a table or figure."""

    tables: list[Any]
    claims: list[Survival]
    pictures: list[Picture]
    record: Mapping[str, Any] = field(default_factory=dict)
    """More for --json."""


# -- how it is shown -----------------------------------------------------------------------------------------------


def draw(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    return [path for one in pictures for path in save_series(folder, one.name, one.panels, one.x, one.y)]


def judgements(survivals: Sequence[Survival]) -> Iterator[Any]:
    """A table of verdicts on the claims under each scoring; the numbers behind them are in the .json file."""
    if not survivals:
        return
    scorings = list(survivals[0].verdicts)
    headings = [SCORINGS.get(scoring, "the published numbers") for scoring in scorings]
    lines = [
        (one.statement, one.where, *(_verdict(*verdict) for verdict in one.verdicts.values())) for one in survivals
    ]
    yield table("claims", ("claim", "section", *headings), (), lines)
    for scoring in scorings:
        verdicts = [one.verdicts[scoring][0] for one in survivals]
        counts = ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in dict.fromkeys(verdicts))
        yield f"Of {len(survivals)} claims, {SCORINGS.get(scoring, 'by the published numbers')}: {counts}."


def _verdict(verdict: str, detail: str) -> str:
    """A verdict with the number of parts that hold, from the beginning of the detail."""
    counts = re.match(r"\d+ of \d+", detail)
    return verdict if counts is None else f"{verdict}, {counts[0]}"


def remarks(results: Results, *, is_quick: bool) -> Iterator[str]:
    yield (
        "Accuracies in percent, mean over clients and seeds; ± is the deviation between clients, as in the paper. "
        '"Scored as published": FedAvg, FedProx and IFCA before local steps, all others after them, each at its best '
        "evaluation. The other columns score all algorithms alike, at the last evaluation."
    )
    notes = {title: COLUMNS[column].note for column, title in titles(results).items() if COLUMNS[column].note}
    if notes:
        yield "Data: " + "; ".join(f"{title}: {note}" for title, note in notes.items()) + "."
    if any(COLUMNS[column].compares == "order" for column, _ in results):
        yield "Compare the order of the algorithms with what was published, never the numbers."
    if is_quick:
        yield "This was --quick: too little to compare with what was published, or to check a claim."


# -- table 1 -------------------------------------------------------------------------------------------------------


def table_1(results: Results) -> Seen:
    numbers = {scoring: {key: mean_of(found, scoring) for key, found in results.items()} for scoring in SCORINGS}
    judged = {scoring: claims.on_table_1(scores) for scoring, scores in numbers.items()}
    return Seen(
        [_column_table(column, results) for column in _columns(results)],
        claims.survivals({PUBLISHED: claims.on_table_1(claims.as_published()), **judged}),
        [_both_evaluations("fedfew-table-1", results)],
        {"order": {column: orders(column, numbers) for column in _columns(results)}},
    )


def _columns(results: Results) -> list[str]:
    return list(dict.fromkeys(column for column, _ in results))


def orders(column: str, numbers: Mapping[str, Mapping[Key, float]]) -> dict[str, float | None]:
    """Kendall's τ between our order of the algorithms and the published one, by scoring; None if there is none."""
    from scipy.stats import kendalltau

    found: dict[str, float | None] = {}
    for scoring, scores in numbers.items():
        pairs = [
            (value, entry.mean)
            for (place, label), value in scores.items()
            if place == column and (entry := published.published(column, label)) is not None
        ]
        tau = kendalltau(*zip(*pairs, strict=True)).statistic if len(pairs) > 1 else math.nan
        found[scoring] = float(tau) if np.isfinite(tau) else None
    return found


def _column_table(column: str, results: Results) -> Any:
    lines = []
    for (place, label), found in results.items():
        if place == column:
            entry = published.published(column, label)
            theirs = "" if entry is None else f"{entry.mean:.2f} ± {entry.deviation:.2f}"
            lines.append((TITLES.get(label, label), *(_spread(found, scoring) for scoring in SCORINGS), theirs))
    return table(titles(results)[column], ["algorithm"], HEADINGS, lines)


HEADINGS = (*SCORINGS.values(), PUBLISHED)
"""Columns of numbers in a table."""


def _spread(found: FewRun, scoring: str) -> str:
    return f"{mean_of(found, scoring):.2f} ± {deviation_of(found, scoring):.2f}"


def _both_evaluations(name: str, results: Results) -> Picture:
    """A point for each algorithm: accuracy before and after local steps."""
    panels: dict[str, list[Series]] = {}
    for (column, label), found in results.items():
        point = [[mean_of(found, "sent"), mean_of(found, "trained")]]
        panels.setdefault(titles(results)[column], []).append(Series(TITLES.get(label, label), np.array(point)))
    return Picture(name, panels, "accuracy before local steps (%)", "accuracy after local steps (%)")


# -- table 5 -------------------------------------------------------------------------------------------------------


def jain(results: Results) -> Seen:
    lines = []
    for (column, label), found in results.items():
        theirs = published.TABLE_5.get(column, {}).get(label)
        cells = [f"{jain_of(found, scoring):.3f}" for scoring in SCORINGS]
        last = "" if theirs is None else f"{theirs:.3f}"
        lines.append((titles(results)[column], TITLES.get(label, label), *cells, last))
    shown = table("Jain's index of the clients' accuracies", ("data", "algorithm"), HEADINGS, lines)
    numbers = {scoring: {key: jain_of(found, scoring) for key, found in results.items()} for scoring in SCORINGS}
    judged = {scoring: claims.on_jain(scores) for scoring, scores in numbers.items()}
    return Seen(
        [shown],
        claims.survivals({PUBLISHED: claims.on_jain(claims.jain_as_published()), **judged}),
        [],
        {"jain": {scoring: _plain(scores) for scoring, scores in numbers.items()}},
    )


def _plain(scores: Mapping[Key, float]) -> dict[str, float]:
    return {f"{column}/{label}": value for (column, label), value in scores.items()}


# -- K -------------------------------------------------------------------------------------------------------------


def figure_2(results: Results) -> Seen:
    """Accuracy and eq. 9 for several K."""
    fedavg = results[STUDIED, "fedavg"]
    by_models = {models_of(found): found for (_, label), found in results.items() if label != "fedavg"}
    weighted = {
        scoring: {models: weighted_of(found, scoring) for models, found in by_models.items()} for scoring in SCORINGS
    }
    of_fedavg = {scoring: weighted_of(fedavg, scoring) for scoring in SCORINGS}
    descents = {models: descent_of(found) for models, found in by_models.items()}
    rows = {f"K = {models}": [weighted[scoring][models] for scoring in SCORINGS] for models in by_models}
    shown = rows | {"FedAvg": list(of_fedavg.values())}
    lines = {name: (weighted[kind], of_fedavg[kind]) for kind, name in EVALUATIONS.items()}
    return Seen(
        [_beside("accuracy weighted by test rows", shown, _published_k(rows))],
        claims.survivals(
            {scoring: claims.on_models(weighted[scoring], of_fedavg[scoring], descents) for scoring in SCORINGS}
        ),
        [
            Picture("fedfew-fig-2a", {titles(results)[STUDIED]: _against_k(lines)}, "K", "accuracy (%)"),
            _descents("fedfew-fig-2b", {f"K = {models}": found for models, found in by_models.items()}),
        ],
        {"weighted": {scoring: _by_text(row) for scoring, row in weighted.items()}, "fedavg": of_fedavg},
    )


def _published_k(rows: Iterable[str]) -> dict[str, str]:
    """The values of figure 2(a): the best K with its accuracy, the least of all, and FedAvg's."""
    least, most = published.K_RANGE
    known = {f"K = {published.K_BEST}": f"{most}", "FedAvg": f"{published.FEDAVG_WEIGHTED}"}
    return dict.fromkeys(rows, f"at least {least}") | known


def _against_k(lines: Mapping[str, tuple[Mapping[int, float], float]]) -> list[Series]:
    """FedFew by K, and FedAvg, which has one model, as a level line."""
    found = [_line(f"FedFew {name}", by_models) for name, (by_models, _) in lines.items()]
    for name, (by_models, fedavg) in lines.items():
        found.append(_line(f"FedAvg {name}", dict.fromkeys(by_models, fedavg)))
    return found


def table_6(results: Results) -> Seen:
    lines = []
    for (column, _), found in results.items():
        models = models_of(found)
        entry = published.TABLE_6.get("kvasir" if column == MEDICAL else column, {}).get(models)
        theirs = "" if entry is None else f"{entry.worst:.1f} {entry.mean:.1f} {entry.best:.1f}"
        cells = [_worst_mean_best(found, scoring) for scoring in SCORINGS]
        lines.append((titles(results)[column], str(models), *cells, theirs))
    shown = table("accuracy: worst, mean and best client", ("data", "K"), HEADINGS, lines)
    means = {scoring: _means_by_models(results, scoring) for scoring in SCORINGS}
    theirs_by_models = {
        column: {models: entry.mean for models, entry in row.items()} for column, row in published.TABLE_6.items()
    }
    judged = {scoring: claims.on_table_6(rows) for scoring, rows in means.items()}
    panels = {
        titles(results)[column]: [_line(name, means[kind][column]) for kind, name in EVALUATIONS.items()]
        for column in _columns(results)
    }
    return Seen(
        [shown],
        claims.survivals({PUBLISHED: claims.on_table_6(theirs_by_models), **judged}),
        [Picture("fedfew-table-6", panels, "K", "accuracy (%)")],
    )


def _worst_mean_best(found: FewRun, scoring: str) -> str:
    best = float(np.nanmax(accuracies(found, scoring), axis=1).mean())
    return " ".join(f"{one:.1f}" for one in (worst_of(found, scoring), mean_of(found, scoring), best))


def _means_by_models(results: Results, scoring: str) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for (column, _), one in results.items():
        found.setdefault(column, {})[models_of(one)] = mean_of(one, scoring)
    return found


# -- local epochs --------------------------------------------------------------------------------------------------


def figures_3_and_4(results: Results) -> Seen:
    """Accuracy and eq. 9 for several numbers of local epochs, with the same number of local updates."""
    by_epochs = {epochs_of(found): found for found in results.values()}
    means = {scoring: {epochs: mean_of(one, scoring) for epochs, one in by_epochs.items()} for scoring in SCORINGS}
    descents = {epochs: descent_of(found) for epochs, found in by_epochs.items()}
    label = {
        epochs: f"{epochs} local epochs, {one.cell.draft['rounds'] - 1} rounds" for epochs, one in by_epochs.items()
    }
    rows = {label[epochs]: [means[scoring][epochs] for scoring in SCORINGS] for epochs in by_epochs}
    theirs = {label[epochs]: f"{value}" for epochs, value in published.EPOCHS_RANGE.items() if epochs in label}
    named = {f"{epochs} local epochs": found for epochs, found in by_epochs.items()}
    title = titles(results)[STUDIED]
    accuracy = [_line(name, means[kind]) for kind, name in EVALUATIONS.items()]
    return Seen(
        [_beside("mean accuracy over the clients", rows, theirs)],
        claims.survivals({scoring: claims.on_epochs(means[scoring], descents) for scoring in SCORINGS}),
        [
            Picture("fedfew-fig-3", {title: accuracy}, "local epochs in a round", "accuracy (%)"),
            _descents("fedfew-fig-4", named, by_updates=True),
            _descents("fedfew-fig-8", named),
        ],
        {"means": {scoring: _by_text(row) for scoring, row in means.items()}},
    )


def _descents(name: str, named: Mapping[str, FewRun], *, by_updates: bool = False) -> Picture:
    """Eq. 9 over rounds or over local epochs, mean of the seeds, on a logarithmic axis where it is positive."""
    curves = {label: objective_of(found) for label, found in named.items()}
    is_positive = all((values > 0).all() for _, values in curves.values())
    lines = []
    for label, (rounds, values) in curves.items():
        xs = rounds * (epochs_of(named[label]) if by_updates else 1)
        ys = np.log10(values) if is_positive else values
        lines.append(Series.over_seeds(label, xs, ys))
    x = "local epochs so far" if by_updates else "round"
    title = title_of(STUDIED, next(iter(named.values())))
    return Picture(name, {title: lines}, x, "log₁₀ of eq. 9" if is_positive else "eq. 9")


# -- μ -------------------------------------------------------------------------------------------------------------


def smoothing(results: Results) -> Seen:
    by_mu = {mu_of(found): found for found in results.values()}
    measured = {scoring: {mu: smoothed_of(one, scoring) for mu, one in by_mu.items()} for scoring in SCORINGS}
    lines = []
    for mu, one in measured["sent"].items():
        theirs = published.MUS.get(mu, published.Smoothing())
        weights = [_with(getattr(one, key), getattr(theirs, key)) for key in ("entropy", "largest", "variation")]
        fares = [measured[kind][mu] for kind in EVALUATIONS]
        lines.append(
            (f"{mu:g}", *weights, *(f"{fare.mean:.2f} ± {fare.deviation:.2f}, {fare.worst:.2f}" for fare in fares))
        )
    title = "weights in the last round; accuracy: mean ± deviation, worst client"
    shown = table(title, ["μ"], ("entropy of w", "largest w", "variation of α", *EVALUATIONS.values()), lines)
    return Seen(
        [shown],
        claims.survivals({scoring: claims.on_mu(measured[scoring]) for scoring in SCORINGS}),
        _smoothing_pictures(measured),
        {"mu": {scoring: {f"{mu:g}": vars(one) for mu, one in row.items()} for scoring, row in measured.items()}},
    )


def _with(ours: float, theirs: float | None) -> str:
    return f"{ours:.3f}" + ("" if theirs is None else f" ({theirs:.3f})")


def _smoothing_pictures(measured: Mapping[str, Mapping[float, Smoothed]]) -> list[Picture]:
    def line(name: str, scoring: str, measure: str) -> Series:
        values = {math.log10(mu): float(getattr(one, measure)) for mu, one in measured[scoring].items()}
        return _line(name, values)

    fares = {
        measure: [line(name, kind, key) for kind, name in EVALUATIONS.items()]
        for measure, key in (("mean", "mean"), ("worst client", "worst"), ("deviation", "deviation"))
    }
    weights = {
        title: [line(TITLES[FEDFEW], "sent", key)]
        for title, key in (("entropy of w", "entropy"), ("largest w", "largest"), ("variation of α", "variation"))
    }
    return [
        Picture("fedfew-fig-5", fares, "log₁₀ μ", "accuracy (%)"),
        Picture("fedfew-fig-7", weights, "log₁₀ μ", "in the last round"),
    ]


# -- what several of them share ------------------------------------------------------------------------------------


def _line(name: str, values: Mapping[int, float] | Mapping[float, float]) -> Series:
    return Series(name, np.array(sorted(values.items()), dtype=np.float64), "line")


def _beside(title: str, rows: Mapping[str, Sequence[float]], theirs: Mapping[str, str]) -> Any:
    """A row for each run, a column for each scoring, and the paper's number."""
    lines = [(name, *(f"{value:.2f}" for value in values), theirs.get(name, "")) for name, values in rows.items()]
    return table(title, [""], HEADINGS, lines)


def _by_text(row: Mapping[int, float]) -> dict[str, float]:
    return {str(key): value for key, value in row.items()}


SHOWN: Mapping[str, Callable[[Results], Seen]] = {
    "fedfew-table-1": table_1,
    "fedfew-jain": jain,
    "fedfew-fig-2": figure_2,
    "fedfew-table-6": table_6,
    "fedfew-fig-3": figures_3_and_4,
    "fedfew-fig-4": figures_3_and_4,
    "fedfew-mu": smoothing,
}
"""Functions that make the contents of each reproduction."""
