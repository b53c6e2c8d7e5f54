"""Tables 4.1 to 4.7 and figures 4.9 and 4.10 of L. M. Hartmann's thesis: FedPref, its baselines and its components.

Table 4.1 and the metrics of tables 4.3 to 4.6 are of the same runs, so an environment is one reproduction; the same
goes for the ablation's tables 4.2 and 4.7.
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
from fedpareto.contract.registry import FINE_TUNED
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known, read_json
from fedpareto_papers.claims import Claim
from fedpareto_papers.measured import Entry
from fedpareto_papers.thesis.morl import claims, published
from fedpareto_papers.thesis.morl.published import DISTRIBUTIONS, ENVIRONMENTS, METRICS
from fedpareto_papers.thesis.morl.runs import (
    BEST_KNOWN,
    NOT_TUNED,
    PERFECT,
    Found,
    Plan,
    Row,
    Training,
    ceilings,
    environments,
    find_all,
    front_of,
    row,
)

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto_papers.figures.series_panels import Series

MAIN = "thesis-4.1-"
"""Prefix of the names of the five reproductions of table 4.1."""
PARAMETERS: Mapping[str, tuple[str, str, Mapping[float, published.Columns]]] = {
    "thesis-fig-4.9": ("top_ratio", "R of topR", published.TOP_RATIOS),
    "thesis-fig-4.10": ("similarity_bound", "least similarity s_min", published.SIMILARITY_BOUNDS),
}
"""Of a figure: the parameter that varies, what the thesis calls it, and what was published."""
COLUMNS: Mapping[str, Sequence[str]] = {
    "thesis-4.2": ("reward",),
    "thesis-4.7": ("hypervolume", "cardinality", "sparsity", "igd"),
    **dict.fromkeys(PARAMETERS, ("reward",)),
}
"""The metrics that a table shows; thesis-4.1-… shows all."""
POWERS = {1e1: "·10", 1e2: "·10²", 1e4: "·10⁴", 1e7: "·10⁷"}


def prepare(name: str, options: Options) -> Study:
    """A table or figure, with what the user chose."""
    options.refuse(name, "rounds")
    plan = Plan.make(options)
    if name.startswith(MAIN):
        options.refuse(name, "problems")
        algorithms = known("algorithm of table 4.1", options.algorithms, _untuned(published.ALGORITHMS))
        default = list(DISTRIBUTIONS)[: 1 if options.quick else None]
        preferences = known("distribution of preferences", options.preferences, DISTRIBUTIONS) or default
        trainings = [
            Training(name.removeprefix(MAIN), one, algorithm)
            for one in preferences
            for algorithm in algorithms or _untuned(published.ALGORITHMS)
        ]
        return Study(name, plan, trainings, options.jobs)
    options.refuse(name, "preferences")
    chosen = environments(options.problems, default=("dst",))
    if name in PARAMETERS:
        options.refuse(name, "algorithms")
        return Study(name, plan, [one for each in chosen for one in _sweep(name, each)], options.jobs)
    components = known("component of FedPref", options.algorithms, _untuned(published.COMPONENTS))
    trainings = [
        Training(each, "dirichlet", component)
        for each in chosen
        for component in components or _untuned(published.COMPONENTS)
    ]
    return Study(name, plan, trainings, options.jobs)


def _untuned(algorithms: Sequence[str]) -> tuple[str, ...]:
    """Without the +FT variants, which share the training of the others."""
    return tuple(name for name in algorithms if not name.endswith(FINE_TUNED))


def _sweep(name: str, environment: str) -> Iterator[Training]:
    """FedPref for every value of a figure's parameter; the value of table A.5 is table 4.1's training."""
    parameter, _, lines = PARAMETERS[name]
    usual = published.selected(environment, "fedpref").own[parameter]
    for value in lines:
        yield Training(environment, "dirichlet", "fedpref", {} if value == usual else {parameter: value})


@dataclass(frozen=True)
class Study:
    """A reproduction, ready to run."""

    name: str
    plan: Plan
    trainings: list[Training]
    jobs: Jobs

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.plan.quick else ""
        size = f"{len(self.trainings)} trainings, {self.plan.size}"
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {size}"

    @property
    def metrics(self) -> Sequence[str]:
        """The columns of its table."""
        return COLUMNS.get(self.name, METRICS)

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The trainings, a table of them, the figure, and the verdicts on the thesis's claims."""
        found = find_all(self.plan, self.trainings, folder, say, stop, self.jobs)
        rows = rows_of(self.name, found)
        record = as_json(self, found, rows)
        # Claims compare tables: each leaves its rows here for the others.
        files = [folder / f"{self.name}.json", folder / f"{self.name}.csv"]
        write_atomically(files[0], json_text(record))
        write_atomically(files[1], as_csv(rows))
        files += draw(self.name, rows, folder) if self.name in PARAMETERS else []
        judged = [] if self.plan.quick else judge(folder, self.plan)
        record = record | {"claims": [asdict(claim) for claim in judged]}
        return Outcome(record, [table(self, rows), *remarks(self, found, rows), *map(str, judged)], files)


# -- from trainings to rows ----------------------------------------------------------------------------------------


def rows_of(name: str, found: Sequence[Found]) -> list[Row]:
    """The rows of a table, in the order of the thesis's; after each group the best possible, where it is known."""
    fronts = {
        environment: front_of(one for one in found if one.training.environment == environment)
        for environment in dict.fromkeys(one.training.environment for one in found)
    }
    rows: list[Row] = []
    for group in dict.fromkeys((one.training.environment, one.training.preferences) for one in found):
        members = [one for one in found if (one.training.environment, one.training.preferences) == group]
        made = [made for one in members for made in _rows(name, one, fronts[group[0]])]
        order = published.COMPONENTS if name in ("thesis-4.2", "thesis-4.7") else published.ALGORITHMS
        rows += made if name in PARAMETERS else sorted(made, key=lambda made: order.index(made.algorithm))
        rows += ceilings(members[0])
    return rows


def _rows(name: str, found: Found, front: np.ndarray) -> Iterator[Row]:
    """Of one training: with and without +FT, as far as the thesis has them."""
    training = found.training
    if name in PARAMETERS:
        parameter, _, lines = PARAMETERS[name]
        value = training.own.get(parameter, published.selected(training.environment, "fedpref").own[parameter])
        named = Training(training.environment, training.preferences, training.algorithm, {parameter: value})
        entries = {"reward": lines[value][training.environment]}
        yield row(found, named, front, True, entries)
        return
    for fine_tuned in (False, True):
        if not (fine_tuned and training.algorithm in NOT_TUNED):
            variant = training.algorithm + FINE_TUNED * fine_tuned
            yield row(found, training, front, fine_tuned, _entries(name, training, variant))


def _entries(name: str, training: Training, variant: str) -> dict[str, Entry]:
    """What was published, by metric."""
    if name.startswith(MAIN):
        lines = {metric: found[training.preferences][variant] for metric, found in published.TABLES.items()}
    else:
        lines = {metric: found[variant] for metric, found in published.ABLATION.items()}
    return {metric: columns[training.environment] for metric, columns in lines.items()}


# -- the claims ----------------------------------------------------------------------------------------------------


def judge(folder: Path, plan: Plan) -> list[Claim]:
    """The claims that can be checked on what was run with this plan and is in the folder."""
    values: dict[claims.Key, float] = {}
    for name in CATALOGUE:
        record = read_json(folder / f"{name}.json") or {}
        if record.get("plan") == _size(plan):
            for one in record.get("rows", []):  # The studies of clusters have none.
                key = one["environment"], one["preferences"], one["algorithm"]
                values |= {(metric, *key): value["ours"] for metric, value in one["metrics"].items()}
    return [claim for claim in claims.verdicts(values) if claim.verdict != "cannot be judged"]


def _size(plan: Plan) -> dict[str, Any]:
    """As JSON values."""
    return asdict(plan) | {"settings": list(plan.settings)}


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: Study, rows: Sequence[Row]) -> Table:
    """Ours, and what was published in brackets."""
    from rich.table import Table

    shown = Table("environment", "preferences", "algorithm", title=study.headline)
    for metric in study.metrics:
        shown.add_column(_name(metric), justify="right")
    last = None
    for one in rows:
        if last not in (None, (one.environment, one.preferences)):
            shown.add_section()
        last = one.environment, one.preferences
        cells = [cell(one, metric) for metric in study.metrics]
        shown.add_row(ENVIRONMENTS[one.environment].title, one.preferences, _title(one), *cells)
    return shown


def _title(one: Row) -> str:
    base, comma, special = one.algorithm.partition(",")
    return base if base in (BEST_KNOWN, PERFECT) else published.title(base) + comma + special


def cell(one: Row, metric: str) -> str:
    """Mean and deviation in the thesis's units."""
    if metric not in one.values:
        return "–"
    unit = published.scale(metric, one.environment)
    entry = one.published.get(metric)
    ours = _number(one.mean(metric) / unit, one.deviation(metric) / unit)
    theirs = "" if entry is None else f" ({_number(entry.mean / unit, entry.deviation / unit)})"
    return ours + theirs + POWERS.get(unit, "")


def _name(metric: str) -> str:
    return "IGD" if metric == "igd" else metric


def _number(mean: float, deviation: float) -> str:
    return f"{mean:.2f} ± {deviation:.1f}"


def remarks(study: Study, found: Sequence[Found], rows: Sequence[Row]) -> Iterator[str]:
    """How to read the table, and how close it is to the published one."""
    yield "In brackets: published. ± is the deviation over seeds (population)."
    if any(one.algorithm == BEST_KNOWN for one in rows):
        yield (
            f'"{BEST_KNOWN}": every client has the best point of the known front for its preference. "{PERFECT}" '
            "(DST): it has the one of highest discounted reward, which is what clients learn."
        )
    if "igd" in study.metrics and any(one.known_front is None for one in found):
        yield "IGD is measured from the front of all returns found here, since no true one is known."
    lost = sum(int((~np.isfinite(points).all(axis=1)).sum()) for one in found for points in [*one.sent, *one.trained])
    if lost:
        yield f"{lost} clients have no finite returns and are left out."
    if study.plan.quick:
        yield "This was --quick: too little to compare with what was published."
        return
    yield from agreement(rows, study.metrics)


def agreement(rows: Sequence[Row], metrics: Sequence[str]) -> Iterator[str]:
    """For each metric how far the order of the algorithms is the published one."""
    from scipy.stats import kendalltau

    for metric in metrics:
        orders = []
        for group in dict.fromkeys((one.environment, one.preferences) for one in rows):
            both = [
                (one.mean(metric), one.published[metric].mean)
                for one in rows
                if (one.environment, one.preferences) == group and metric in one.published
            ]
            if len(both) > 2 and all(len(set(side)) > 1 for side in zip(*both, strict=True)):
                tau = kendalltau(*zip(*both, strict=True)).statistic
                orders.append(f"{ENVIRONMENTS[group[0]].title} {group[1]} {tau:.2f}")
        if orders:
            found = ", ".join(orders)
            yield f"Order by {_name(metric)} against the published one (Kendall's τ, 1 is the same): {found}."


def as_json(study: Study, found: Sequence[Found], rows: Sequence[Row]) -> dict[str, Any]:
    """The plan, the seconds of each training, and all rows."""
    return {
        "name": study.name,
        "plan": _size(study.plan),
        "trainings": {one.training.name: one.seconds for one in found},
        "rows": [one.as_json() for one in rows],
    }


def as_csv(rows: Sequence[Row]) -> str:
    """A row for each number."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        ("environment", "preferences", "algorithm", "metric", "ours", "deviation", "published", "published_deviation")
    )
    for one in rows:
        for metric in one.values:
            entry = one.published.get(metric)
            theirs = ("", "") if entry is None else (entry.mean, entry.deviation)
            key = one.environment, one.preferences, one.algorithm, metric
            lines.writerow((*key, one.mean(metric), one.deviation(metric), *theirs))
    return text.getvalue()


def draw(name: str, rows: Sequence[Row], folder: Path) -> list[Path]:
    """A figure of rewards over a parameter, ours and the published ones, as .png and .pdf."""
    from fedpareto_papers.figures.series_panels import render, series_panels

    panels = {
        ENVIRONMENTS[environment].title: _lines(name, [one for one in rows if one.environment == environment])
        for environment in dict.fromkeys(one.environment for one in rows)
    }
    figure = series_panels(panels, PARAMETERS[name][1], "mean reward of a client")
    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files


def _lines(name: str, rows: Sequence[Row]) -> list[Series]:
    """Of one environment."""
    from fedpareto_papers.figures.series_panels import Series

    ours = [one for one in rows if "reward" in one.published]
    values = [float(one.algorithm.partition("=")[2]) for one in ours]
    means = {
        "ours": [(one.mean("reward"), one.deviation("reward")) for one in ours],
        "published": [(one.published["reward"].mean, one.published["reward"].deviation) for one in ours],
    }
    return [
        Series(title, np.array([values, [mean for mean, _ in found]]).T, "line", np.array([one for _, one in found]))
        for title, found in means.items()
    ]
