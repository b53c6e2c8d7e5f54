"""Every algorithm on small tables that nobody tuned it to, beside a constant answer and central models.

    python benchmarks/small_tables.py german.csv:creditability:sex:good loanapp.csv:approve:white:1 [--seeds 5]
        [--rounds 20] [--clients 10] [--jobs 2] [--quick] [--json FILE]

A table is given as file:label:sensitive:positive. Beside the algorithms stand the best constant answer, the library's
own central reference (the same network on the training rows of all clients), and a logistic regression on these rows
under fairlearn's reductions, one for each bound on the demographic parity difference. All are tested on the same rows,
those of all clients. Intervals are of 95 % over seeds. A difference, to the constant or to `local`, is that of the same
seeds, and "=" where its interval includes zero. It needs fairlearn.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.registry import algorithms
from fedpareto.moo.indicators import hypervolume
from fedpareto.moo.intervals import interval
from fedpareto.runs.central_reference import central
from fedpareto.tensors.rows import Batch, Rows

BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""On the demographic parity difference, for fairlearn's reductions."""
CONSTANT, CENTRAL, REDUCTIONS, LOGISTIC = "constant", "central network", "central, fairlearn", "central, logistic"


def problem_of(table: str) -> Any:
    """The problem of file:label:sensitive:positive."""
    file, label, sensitive, positive = table.split(":")
    return fedpareto.table(file, label, sensitive, positive=positive)


def of_algorithm(table: str, algorithm: str, seeds: int, rounds: int, clients: int) -> dict[str, Any]:
    """One algorithm's hypervolume, mean accuracy, mean fairness and own utility, each by seed."""
    torch.set_num_threads(1)
    try:
        result = fedpareto.run(
            problem_of(table),
            algorithm,
            clients=clients,
            rounds=rounds,
            seeds=seeds,
            preferences="equidistant",
            evaluate_every=rounds,
            step="fixed",
            engine={"threads": 1},
        )
    except UserError as refusal:
        return {"table": table, "name": algorithm, "refused": str(refusal)}
    rows = [measured(table, algorithm, result.solutions)]
    if algorithm == "local":
        found = [one.constant(result.spec.problem.objectives) for one in result.tested]
        points = [np.asarray(one.values).reshape(1, -1) for one in found if one is not None]
        rows += [of_points(table, CONSTANT, points), measured(table, CENTRAL, central(result.spec).solutions)]
    return {"table": table, "name": algorithm, "rows": rows, "collapsed": result.collapsed}


def measured(table: str, name: str, solutions: Sequence[Any]) -> dict[str, Any]:
    """What a run has, by seed."""
    found = of_points(table, name, [np.asarray(one.points) for one in solutions])
    return found | {"own": [one.indicators().get("own_utility") for one in solutions]}


def of_points(table: str, name: str, points: Sequence[np.ndarray]) -> dict[str, Any]:
    """Hypervolume and means of points `[k, 2]`, by seed."""
    return {
        "table": table,
        "name": name,
        "hypervolume": [hypervolume(one, [0.0, 0.0], maximise=[True, True]) for one in points],
        "accuracy": [float(one[:, 0].mean()) for one in points],
        "fairness": [float(one[:, 1].mean()) for one in points],
    }


def of_reductions(table: str, seeds: int, clients: int) -> dict[str, Any]:
    """A logistic regression on the training rows of all clients: plain, and under fairlearn's reductions."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    problem, plain, fair = problem_of(table), [], []
    for seed in range(seeds):
        splits = problem.data(clients, seed)
        train, test = everyone(problem, splits["train"]), everyone(problem, splits["test"], shared=True)
        mean, deviation = train[0].mean(axis=0), np.maximum(train[0].std(axis=0), 1e-6)
        inputs, tested = (train[0] - mean) / deviation, (test[0] - mean) / deviation
        model = LogisticRegression(max_iter=1000).fit(inputs, train[1])
        points = [scored(model.predict(tested), test)]
        plain.append(np.array(points))
        for bound in BOUNDS:
            reduced = ExponentiatedGradient(
                LogisticRegression(max_iter=1000), DemographicParity(difference_bound=bound), max_iter=20
            )
            reduced.fit(inputs, train[1], sensitive_features=train[2])
            points.append(scored(np.asarray(reduced.predict(tested, random_state=seed)), test))
        fair.append(np.array(points))
    rows = [of_points(table, LOGISTIC, plain), of_points(table, REDUCTIONS, fair)]
    return {"table": table, "name": REDUCTIONS, "rows": rows, "test_rows": len(test[1])}


def everyone(problem: Any, rows: Rows, shared: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels and groups of the rows of all clients."""
    parts = [rows.of_client(client) for client in ([0] if shared else range(len(rows.counts)))]
    columns = {name: torch.cat([part[name] for part in parts]).unsqueeze(0) for name in parts[0]}
    batch = Batch(columns, torch.ones(columns["label"].shape))
    found = (columns["features"], columns["label"], problem.groups(batch))
    inputs, labels, groups = (one[0].numpy() for one in found)
    return inputs, labels.astype(int), groups.astype(int)


def scored(decisions: np.ndarray, test: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Accuracy, and 1 − the demographic parity difference between the groups."""
    _, labels, groups = test
    rates = [float(decisions[groups == group].mean()) for group in np.unique(groups)]
    return float((decisions == labels).mean()), 1 - (max(rates) - min(rates))


# -- the table -----------------------------------------------------------------------------------------------------


def printed(rows: Sequence[dict[str, Any]]) -> None:
    """One table's rows in Markdown, the largest hypervolume first."""
    constant, alone = (by_name(rows, name)["hypervolume"] for name in (CONSTANT, "local"))
    print("| | hypervolume | against the constant | against local | accuracy | fairness | own utility |")
    print("|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: -np.mean(row["hypervolume"])):
        cells = [
            row["name"],
            with_interval(row["hypervolume"]),
            difference(row["hypervolume"], constant),
            difference(row["hypervolume"], alone),
            f"{np.mean(row['accuracy']):.3f}",
            f"{np.mean(row['fairness']):.3f}",
            f"{np.mean(row['own']):.3f}" if row.get("own") and None not in row["own"] else "",
        ]
        print("| " + " | ".join(cells) + " |")


def by_name(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def with_interval(values: Sequence[float]) -> str:
    found = interval(np.array(values))
    return f"{np.mean(values):.3f}" + ("" if found is None else f" ({found.low:.3f} to {found.high:.3f})")


def difference(values: Sequence[float], others: Sequence[float]) -> str:
    """The mean paired difference where its interval excludes zero; else "="."""
    apart = np.array(values) - np.array(others)
    found = interval(apart)
    return f"{apart.mean():+.3f}" if found is not None and found.excludes_zero else "="


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="file:label:sensitive:positive")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one algorithm on one table each")
    parser.add_argument("--quick", action="store_true", help="two seeds and two rounds: to see that it works")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seeds, rounds = (2, 2) if given.quick else (given.seeds, given.rounds)
    with ProcessPoolExecutor(given.jobs) as pool:
        jobs = [pool.submit(of_reductions, table, seeds, given.clients) for table in given.tables]
        jobs += [
            pool.submit(of_algorithm, table, name, seeds, rounds, given.clients)
            for name in algorithms()
            for table in given.tables
        ]
        found = []
        for job in jobs:
            found.append(job.result())
            print(f"{len(found)} of {len(jobs)}: {found[-1]['name']}", file=sys.stderr)
    for table in given.tables:
        here = [one for one in found if one["table"] == table]
        print(f"\n{table}: {max(one.get('test_rows', 0) for one in here)} test rows, {seeds} seeds\n")
        printed([row for one in here for row in one.get("rows", ())])
        for one in here:
            if "refused" in one:
                print(f"- {one['name']} does not fit: {one['refused']}")
            if one.get("collapsed"):
                print(f"- {one['name']} is a constant answer under the seeds {one['collapsed']}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
