"""Tables 3.2 and 3.3 of L. M. Hartmann's thesis and its figures 3.4 to 3.7, A.1 and A.2: MOFL/D by simulated annealing.

Both tables are of the same runs: 2, 3 or 5 clients, rounds of 2,000, 5,000 or 10,000 local steps, with and without a
warm start, and a system of one client.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs
from fedpareto.config.files import write_atomically
from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import all_indicators
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known
from fedpareto_papers.measured import Entry, Measured
from fedpareto_papers.thesis.mofld import claims, published
from fedpareto_papers.thesis.mofld.published import CONFIGURATIONS, ENVIRONMENTS, Figure
from fedpareto_papers.thesis.mofld.runs import Found, Plan, Search, find_all, lines

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto_papers.figures.series_panels import Series

COLUMNS: Mapping[str, Sequence[str]] = {"thesis-3.2": ("hypervolume", "sparsity"), "thesis-3.3": ("igd",)}
"""The metrics that a table shows."""
QUICK = ("3/5k/T", "3/5k/F", "5/2k/F", "non-fed")
"""The configurations of a quick version; the others differ only in numbers that it reduces anyway."""
DIGITS = {"hypervolume": 1, "sparsity": 1, "igd": 3}
POWERS = {1e1: "·10", 1e7: "·10⁷"}


def prepare(name: str, options: Options) -> Study:
    """A table, with what the user chose."""
    options.refuse(name, "rounds", "clients", "preferences")
    short = {environment.problem: key for key, environment in ENVIRONMENTS.items()}
    chosen = known("environment of chapter 3", [short.get(one, one) for one in options.problems], ENVIRONMENTS)
    every = QUICK if options.quick else tuple(CONFIGURATIONS)
    rows = known("configuration of table 3.2", options.algorithms, CONFIGURATIONS) or every
    runs = [
        (environment, row)
        for environment in ENVIRONMENTS
        for row in CONFIGURATIONS
        if environment in (chosen or ("dst",)) and row in rows
    ]
    return Study(name, Plan.make(options), runs, options.jobs)


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
class Row(Measured):
    """A configuration in an environment, ours beside the published one."""

    environment: str
    configuration: str
    values: Mapping[str, list[float]]
    """Of each metric, one for each seed."""

    def published(self, metric: str) -> Entry:
        """By the thesis."""
        return published.TABLES[metric][self.configuration][self.environment]

    def as_json(self) -> dict[str, Any]:
        """With means and deviations."""
        metrics = self.metrics_as_json({metric: self.published(metric) for metric in self.values})
        return {"environment": self.environment, "configuration": self.configuration, "metrics": metrics}


@dataclass(frozen=True)
class Study:
    """One of the tables, ready to run."""

    name: str
    plan: Plan
    runs: list[tuple[str, str]]
    """Environment and configuration of each."""
    jobs: Jobs

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.plan.quick else ""
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {len(self.runs)} configurations{self.plan.size}"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The runs, a table of them, the figures, and the verdicts on the thesis's claims."""
        every = find_all(self.plan, [search_of(*run) for run in self.runs], folder, say, stop, self.jobs)
        found = dict(zip(self.runs, every, strict=True))
        rows = rows_of(found)
        means = {
            (metric, one.environment, one.configuration): one.mean(metric) for one in rows for metric in one.values
        }
        judged = [] if self.plan.quick else [one for one in claims.verdicts(means) if one.verdict != "cannot be judged"]
        record = {
            "name": self.name,
            "plan": asdict(self.plan) | {"settings": list(self.plan.settings)},
            "seconds": {one.search.name: one.seconds for one in every},
            "rows": [one.as_json() for one in rows],
            "growth": [growth_of(*key, one) for key, one in found.items()],
            "claims": [asdict(claim) for claim in judged],
        }
        files = [folder / f"{self.name}.json", folder / f"{self.name}.csv"]
        write_atomically(files[0], json_text(record))
        write_atomically(files[1], as_csv(rows))
        files += draw_all(found, folder)
        return Outcome(record, [table(self, rows), *remarks(self, found), *map(str, judged)], files)


# -- from runs to rows ---------------------------------------------------------------------------------------------


def rows_of(found: Mapping[tuple[str, str], Found]) -> list[Row]:
    """The rows of the table."""
    fronts = {environment: whole_front(environment, found) for environment, _ in found}
    return [
        Row(environment, configuration, measures(environment, one, fronts[environment]))
        for (environment, configuration), one in found.items()
    ]


def whole_front(environment: str, found: Mapping[tuple[str, str], Found]) -> np.ndarray:
    """The front from which IGD is measured: the known front, or that of all solutions that the command found."""
    here = [one for (place, _), one in found.items() if place == environment]
    if here[0].known_front is not None:
        return here[0].known_front
    return front(np.concatenate([growth.front for one in here for growth in one.growths]), maximise=True)


def measures(environment: str, found: Found, whole: np.ndarray) -> dict[str, list[float]]:
    """Of each metric of the thesis, one for each seed."""
    reference = ENVIRONMENTS[environment].reference
    seeds = [all_indicators(one.front, reference, maximise=True, known_front=whole) for one in found.growths]
    return {metric: [values[metric] for values in seeds] for metric in published.METRICS}


def growth_of(environment: str, configuration: str, found: Found) -> dict[str, Any]:
    """For --json: of each seed the hypervolume over trainings."""
    reference = ENVIRONMENTS[environment].reference
    return {
        "environment": environment,
        "configuration": configuration,
        "trainings": [growth.trainings for growth in found.growths],
        "hypervolume": [growth.hypervolumes(reference) for growth in found.growths],
    }


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: Study, rows: Sequence[Row]) -> Table:
    """Ours, and what was published in brackets."""
    from rich.table import Table

    shown = Table("environment", "configuration", title=study.headline)
    for metric in COLUMNS[study.name]:
        shown.add_column(_name(metric), justify="right")
    last = None
    for one in rows:
        if last not in (None, one.environment):
            shown.add_section()
        last = one.environment
        cells = [cell(one, metric) for metric in COLUMNS[study.name]]
        shown.add_row(ENVIRONMENTS[one.environment].title, one.configuration, *cells)
    return shown


def cell(one: Row, metric: str) -> str:
    """Mean and deviation in the thesis's units."""
    unit, digits, entry = published.scale(metric, one.environment), DIGITS[metric], one.published(metric)
    ours, theirs = (
        f"{mean / unit:.{digits}f} ± {deviation / unit:.1f}"
        for mean, deviation in ((one.mean(metric), one.deviation(metric)), (entry.mean, entry.deviation))
    )
    return f"{ours} ({theirs}){POWERS.get(unit, '')}"


def _name(metric: str) -> str:
    return "IGD" if metric == "igd" else metric


def remarks(study: Study, found: Mapping[tuple[str, str], Found]) -> Iterator[str]:
    """How to read the table."""
    yield (
        "A configuration: clients / local steps in a round / warm start. In brackets: published. ± is the deviation "
        "over seeds (population), which the thesis calls variance."
    )
    if "igd" in COLUMNS[study.name] and any(one.known_front is None for one in found.values()):
        yield "IGD on MOLL is measured from the front of all solutions found here, since no true one is known."
    if study.plan.quick:
        yield "This was --quick: too little to compare with what was published."


def as_csv(rows: Sequence[Row]) -> str:
    """A row for each number."""
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(
        ("environment", "configuration", "metric", "ours", "deviation", "published", "published_deviation")
    )
    for one in rows:
        for metric in one.values:
            entry = one.published(metric)
            key = one.environment, one.configuration, metric
            written.writerow((*key, one.mean(metric), one.deviation(metric), entry.mean, entry.deviation))
    return text.getvalue()


def draw_all(found: Mapping[tuple[str, str], Found], folder: Path) -> list[Path]:
    """Every figure of which something was run, as .png and .pdf."""
    files = []
    for name, figure in published.FIGURES.items():
        panels = {
            ENVIRONMENTS[environment].title: here
            for environment in figure.environments
            if (here := _series(figure, environment, found))
        }
        if panels:
            files += _draw(f"thesis-{name}", figure, panels, folder)
    return files


def _draw(name: str, figure: Figure, panels: Mapping[str, Sequence[Series]], folder: Path) -> list[Path]:
    from fedpareto_papers.figures.series_panels import render, series_panels

    labels = "federated trainings", "hypervolume"
    if figure.objectives is not None:
        labels = f"objective {figure.objectives[0] + 1}", f"objective {figure.objectives[1] + 1}"
    drawn = series_panels(panels, *labels)
    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(drawn, path.suffix[1:]))
    return files


def _series(figure: Figure, environment: str, found: Mapping[tuple[str, str], Found]) -> list[Series]:
    """Of one panel: hypervolumes over trainings, or the first seed's solutions in the plane."""
    from fedpareto_papers.figures.series_panels import Series

    here = [(name, found[environment, name]) for name in figure.configurations if (environment, name) in found]
    if figure.objectives is None:
        reference = ENVIRONMENTS[environment].reference
        return [Series(name, points, "line", spread) for name, points, spread in lines(here, reference)]
    return [Series(name, one.growths[0].front[:, list(figure.objectives)]) for name, one in here]
