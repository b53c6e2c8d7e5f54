"""Numbers of FedFew's runs: accuracies under each scoring, fairness, the objective, the weights; as files too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedpareto.moo.fairness import Evaluation, across_clients, jain_index
from fedpareto.record.columns import in_folder
from fedpareto.record.store import RunFolder
from fedpareto_papers.client_runs import Array, ClientResults, Values
from fedpareto_papers.fedfew import published
from fedpareto_papers.fedfew.claims import SCORINGS, Descent, Smoothed
from fedpareto_papers.fedfew.published import COLUMNS, MODELS
from fedpareto_papers.study import Found, csv_text

Key = tuple[str, str]
"""Column and label of a run."""
FewRun = Found[ClientResults]
Results = Mapping[Key, FewRun]
EVALUATIONS: Mapping[Evaluation, str] = {"sent": "before local steps", "trained": "after local steps"}


def title_of(column: str, found: FewRun) -> str:
    """Title of a column: its data and the number of clients."""
    return COLUMNS[column].title(found.cell.draft["clients"])


def titles(results: Results) -> dict[str, str]:
    """Titles by column."""
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
    """A line for each run and scoring, accuracies in percent."""
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
