"""Tables 3.2 and 3.3 of L. M. Hartmann's thesis and its figures 3.4 to 3.7, A.1 and A.2: MOFL/D by simulated annealing.

Both tables are of the same runs: 2, 3 or 5 clients, rounds of 2,000, 5,000 or 10,000 local steps, with and without a
warm start, and a system of one client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import all_indicators
from fedpareto_papers.catalogue import Options, Outcome, known
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict
from fedpareto_papers.figures import Series, save_series
from fedpareto_papers.study import (
    Cell,
    Found,
    Row,
    Study,
    by_metric,
    claims_json,
    judgeable,
    save_json,
    save_rows,
    table,
)
from fedpareto_papers.thesis.mofld import published, runs
from fedpareto_papers.thesis.mofld.published import CONFIGURATIONS, ENVIRONMENTS, Figure
from fedpareto_papers.thesis.mofld.runs import Fronts, Search

Place = tuple[str, str]
"""Environment and configuration."""
COLUMNS: Mapping[str, Sequence[str]] = {"thesis-3.2": ("hypervolume", "sparsity"), "thesis-3.3": ("igd",)}
"""The metrics that a table shows."""
QUICK = ("3/5k/T", "3/5k/F", "5/2k/F", "non-fed")
"""The configurations of a quick version; the others differ only in numbers that it reduces anyway."""
DIGITS = {"hypervolume": 1, "sparsity": 1, "igd": 3}
POWERS = {1e1: "·10", 1e7: "·10⁷"}


def prepare(name: str, options: Options) -> Tables:
    options.refuse(name, "rounds", "clients", "preferences")
    short = {environment.problem: key for key, environment in ENVIRONMENTS.items()}
    chosen = known("environment of chapter 3", [short.get(one, one) for one in options.problems], ENVIRONMENTS)
    every = QUICK if options.quick else tuple(CONFIGURATIONS)
    rows = known("configuration of table 3.2", options.algorithms, CONFIGURATIONS) or every
    chosen_runs = [
        (environment, row)
        for environment in ENVIRONMENTS
        for row in CONFIGURATIONS
        if environment in (chosen or ("dst",)) and row in rows
    ]
    return Tables(name, runs.sized(options), chosen_runs)


def search_of(environment: str, row: str) -> Search:
    """A configuration in an environment, by the parameters of table A.1."""
    given, chosen = ENVIRONMENTS[environment], CONFIGURATIONS[row]
    alone = chosen == published.NON_FEDERATED
    return Search(
        name=f"thesis-3/{environment}/{row.replace('/', '-')}",
        problem=given.problem,
        clients=chosen.clients,
        steps=chosen.local_steps,
        training_rounds=given.steps // chosen.local_steps,
        iterations=given.iterations,
        samples=given.samples,
        seeds=chosen.seeds,
        algorithm={"generator": "annealing", "warm_start": chosen.warm_start},
        learner={
            "exploration_steps": round(given.exploration * given.steps),
            # A client alone receives no target network.
            "target": "kept" if alone else "received",
        },
    )


@dataclass(frozen=True)
class Tables(Study[Fronts]):
    """One of the tables, ready to run."""

    runs: list[Place]

    def size(self) -> list[str]:
        return [f"{len(self.runs)} configurations", *runs.words(self.options)]

    def cells(self) -> list[Cell]:
        return [runs.cell_of(self.options, search_of(*run)) for run in self.runs]

    def outcome(self, found: Sequence[Found[Fronts]], folder: Path) -> Outcome:
        fronts = {run: one.result for run, one in zip(self.runs, found, strict=True)}
        rows = rows_of(fronts)
        means = {
            (metric, row["environment"], row["configuration"]): row.mean(metric)
            for row in rows
            for metric in row.values
        }
        judged = [] if self.options.quick else judgeable(verdicts(means))
        record = {
            "name": self.name,
            "plan": runs.plan(self.options),
            "seconds": {one.name: one.seconds for one in found},
            "rows": [row.as_json() for row in rows],
            "growth": [growth_of(*run, one) for run, one in fronts.items()],
            **claims_json(judged),
        }
        files = [*save_json(folder, self.name, record), *save_rows(folder, self.name, rows), *draw_all(fronts, folder)]
        return Outcome(record, [self.table(rows), *self.remarks(fronts), *map(str, judged)], files)

    def table(self, rows: Sequence[Row]) -> Any:
        metrics = COLUMNS[self.name]
        lines = [
            [ENVIRONMENTS[row["environment"]].title, row["configuration"], *(cell(row, metric) for metric in metrics)]
            for row in rows
        ]
        headings = ["IGD" if metric == "igd" else metric for metric in metrics]
        return table(self.headline, ("environment", "configuration"), headings, lines, section=1)

    def remarks(self, found: Mapping[Place, Fronts]) -> Iterator[str]:
        yield (
            "A configuration: clients / local steps in a round / warm start. In brackets: published. ± is the "
            "deviation over seeds (population), which the thesis calls variance."
        )
        if "igd" in COLUMNS[self.name] and any(one.known_front is None for one in found.values()):
            yield "IGD on MOLL is measured from the front of all solutions found here, since no true one is known."
        if self.options.quick:
            yield "This was --quick: too little to compare with what was published."


# -- from runs to rows ---------------------------------------------------------------------------------------------


def rows_of(found: Mapping[Place, Fronts]) -> list[Row]:
    fronts = {environment: whole_front(environment, found) for environment, _ in found}
    return [
        Row(
            {"environment": environment, "configuration": configuration},
            measures(environment, one, fronts[environment]),
            {metric: published.TABLES[metric][configuration][environment] for metric in published.METRICS},
        )
        for (environment, configuration), one in found.items()
    ]


def whole_front(environment: str, found: Mapping[Place, Fronts]) -> np.ndarray:
    """The front from which IGD is measured: the known front, or that of all solutions that the command found."""
    here = [one for (place, _), one in found.items() if place == environment]
    if here[0].known_front is not None:
        return here[0].known_front
    return front(np.concatenate([growth.front for one in here for growth in one.growths]), maximise=True)


def measures(environment: str, found: Fronts, whole: np.ndarray) -> dict[str, list[float]]:
    """The thesis's metrics, a number for each seed."""
    reference = ENVIRONMENTS[environment].reference
    seeds = [all_indicators(one.front, reference, maximise=True, known_front=whole) for one in found.growths]
    return by_metric([{metric: values[metric] for metric in published.METRICS} for values in seeds])


def growth_of(environment: str, configuration: str, found: Fronts) -> dict[str, Any]:
    """Hypervolumes over trainings of each seed, for --json."""
    reference = ENVIRONMENTS[environment].reference
    return {
        "environment": environment,
        "configuration": configuration,
        "trainings": [growth.trainings for growth in found.growths],
        "hypervolume": [growth.hypervolumes(reference) for growth in found.growths],
    }


# -- what is shown -------------------------------------------------------------------------------------------------


def cell(row: Row, metric: str) -> str:
    """Mean and deviation in the thesis's units."""
    unit, digits = published.scale(metric, row["environment"]), DIGITS[metric]
    shown = row.text(metric, lambda mean, deviation: f"{mean / unit:.{digits}f} ± {deviation / unit:.1f}")
    return shown + POWERS.get(unit, "")


def draw_all(found: Mapping[Place, Fronts], folder: Path) -> list[Path]:
    """Draw every figure of which something was run."""
    files = []
    for name, figure in published.FIGURES.items():
        panels = {
            ENVIRONMENTS[environment].title: here
            for environment in figure.environments
            if (here := _series(figure, environment, found))
        }
        labels = ["federated trainings", "hypervolume"]
        if figure.objectives is not None:
            labels = [f"objective {number + 1}" for number in figure.objectives]
        if panels:
            files += save_series(folder, f"thesis-{name}", panels, *labels)
    return files


def _series(figure: Figure, environment: str, found: Mapping[Place, Fronts]) -> list[Series]:
    """Draw hypervolumes over trainings, or the first seed's solutions in the plane."""
    here = {name: found[environment, name] for name in figure.configurations if (environment, name) in found}
    if figure.objectives is None:
        return list(runs.lines(here, ENVIRONMENTS[environment].reference))
    return [Series(name, one.growths[0].front[:, list(figure.objectives)]) for name, one in here.items()]


# -- the thesis's claims, in claims.toml -------------------------------------------------------------------------------


Key = tuple[str, str, str]
"""Metric, environment, configuration (such as 3/10k/F)."""


def verdicts(values: Mapping[Key, float]) -> list[Claim]:
    """Every claim, checked on the means over seeds that there are."""
    return _Judge(values).verdicts()


def holds_as_published() -> list[Claim]:
    """Every claim, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """The means that the thesis prints."""
    return {
        (metric, environment, name): entry.mean
        for metric, rows in published.TABLES.items()
        for name, columns in rows.items()
        for environment, entry in columns.items()
    }


class _Judge(Judge):
    """Claims compare means and do not weigh the deviation over seeds. Environments that were not run are named."""

    package = "fedpareto_papers.thesis.mofld"

    def title(self, place: str) -> str:
        return published.ENVIRONMENTS[place].title

    def where(self, one: Statement, at: At, name: str) -> str:
        return f"{self.title(at.place)} {name}"

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        unit = published.scale(at.metric, at.place)
        return f"{better[1] / unit:.1f} against {other[0]} {other[1] / unit:.1f}"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        """The verdict; comparisons that lack a value are counted, not listed.

        A claim about all places `together` is that neither side is always better, which one comparison on each side
        shows and only all of them refute.
        """
        known = {place: [part for part in found if part.holds is not None] for place, found in parts.items()}
        verdict, detail = super().conclude(one, known)
        holds = [part.holds for found in known.values() for part in found]
        if not holds:
            return verdict, detail
        lacking = sum(len(found) - len(known[place]) for place, found in parts.items() if known[place])
        if one.together:
            is_whole = not lacking and all(known.values())
            verdict = "holds" if len(set(holds)) == 2 else "does not hold" if is_whole else "cannot be judged"
        elif verdict == "holds" and lacking:
            verdict = "holds in part"
        if lacking:
            listed, split, missing = detail.partition("; not run: ")
            detail = f"{listed}; {lacking} more lack a value{split}{missing}"
        return verdict, detail
