"""Tables 4.1 to 4.7 and figures 4.9 and 4.10 of L. M. Hartmann's thesis: FedPref, its baselines and its components.

Table 4.1 and the metrics of tables 4.3 to 4.6 are of the same runs, so an environment is one reproduction; the same
goes for the ablation's tables 4.2 and 4.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.contract.registry import FINE_TUNED
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, known, read_json
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement
from fedpareto_papers.figures import Series, save_series
from fedpareto_papers.study import Cell, Entry, Found, Row, Study, claims_json, judgeable, save_json, save_rows, table
from fedpareto_papers.thesis.morl import published, runs
from fedpareto_papers.thesis.morl.published import DISTRIBUTIONS, ENVIRONMENTS, METRICS
from fedpareto_papers.thesis.morl.runs import BEST_KNOWN, NOT_TUNED, PERFECT, Returns, Training

MAIN = "thesis-4.1-"
"""Prefix of the names of the five reproductions of table 4.1."""
PARAMETERS: Mapping[str, tuple[str, str, Mapping[float, published.Columns]]] = {
    "thesis-fig-4.9": ("top_ratio", "R of topR", published.TOP_RATIOS),
    "thesis-fig-4.10": ("similarity_bound", "least similarity s_min", published.SIMILARITY_BOUNDS),
}
"""The parameter that varies in a figure, its name in the thesis, and the published rewards."""
COLUMNS: Mapping[str, Sequence[str]] = {
    "thesis-4.2": ("reward",),
    "thesis-4.7": ("hypervolume", "cardinality", "sparsity", "igd"),
    **dict.fromkeys(PARAMETERS, ("reward",)),
}
"""The metrics that a table shows; thesis-4.1-… shows all."""
POWERS = {1e1: "·10", 1e2: "·10²", 1e4: "·10⁴", 1e7: "·10⁷"}


def prepare(name: str, options: Options) -> Tables:
    options.refuse(name, "rounds")
    options = runs.sized(options)
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
        return Tables(name, options, trainings)
    options.refuse(name, "preferences")
    chosen = runs.environments(options.problems, default=("dst",))
    if name in PARAMETERS:
        options.refuse(name, "algorithms")
        return Tables(name, options, [one for each in chosen for one in _sweep(name, each)])
    components = known("component of FedPref", options.algorithms, _untuned(published.COMPONENTS))
    trainings = [
        Training(each, "dirichlet", component)
        for each in chosen
        for component in components or _untuned(published.COMPONENTS)
    ]
    return Tables(name, options, trainings)


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
class Tables(Study[Returns]):
    """One of the tables or figures, ready to run."""

    trainings: list[Training]

    @property
    def metrics(self) -> Sequence[str]:
        return COLUMNS.get(self.name, METRICS)

    def size(self) -> list[str]:
        return [f"{len(self.trainings)} trainings", runs.words(self.options)]

    def cells(self) -> list[Cell]:
        return [runs.cell_of(self.options, training) for training in self.trainings]

    def outcome(self, found: Sequence[Found[Returns]], folder: Path) -> Outcome:
        results = list(zip(self.trainings, (one.result for one in found), strict=True))
        rows = rows_of(self.name, results)
        record = {
            "name": self.name,
            "plan": runs.plan(self.options),
            "trainings": {training.name: one.seconds for training, one in zip(self.trainings, found, strict=True)},
            "rows": [row.as_json() for row in rows],
        }
        # Claims compare tables: each leaves its rows here for the others.
        files = save_json(folder, self.name, record) + save_rows(folder, self.name, rows)
        files += draw(self.name, rows, folder) if self.name in PARAMETERS else []
        judged = [] if self.options.quick else judge(folder, self.options)
        lines = [in_words(self, rows), *remarks(self, [one for _, one in results], rows), *map(str, judged)]
        return Outcome(record | claims_json(judged), lines, files)


# -- from trainings to rows ----------------------------------------------------------------------------------------


def rows_of(name: str, found: Sequence[tuple[Training, Returns]]) -> list[Row]:
    """The rows of a table, in the order of the thesis's; after each group the best possible, where it is known."""
    fronts = {
        environment: runs.front_of(one for training, one in found if training.environment == environment)
        for environment in dict.fromkeys(training.environment for training, _ in found)
    }
    order = published.COMPONENTS if name in ("thesis-4.2", "thesis-4.7") else published.ALGORITHMS
    rows: list[Row] = []
    for group in dict.fromkeys((training.environment, training.preferences) for training, _ in found):
        members = [pair for pair in found if (pair[0].environment, pair[0].preferences) == group]
        made = [row for training, one in members for row in _rows(name, training, one, fronts[group[0]])]
        rows += made if name in PARAMETERS else sorted(made, key=lambda row: order.index(row["algorithm"]))
        rows += runs.ceilings(members[0][1], members[0][0])
    return rows


def _rows(name: str, training: Training, found: Returns, front: np.ndarray) -> Iterator[Row]:
    """Make the rows of one training: with and without +FT, as far as the thesis has them."""
    if name in PARAMETERS:
        parameter, _, lines = PARAMETERS[name]
        value = training.own.get(parameter, published.selected(training.environment, "fedpref").own[parameter])
        named = Training(training.environment, training.preferences, training.algorithm, {parameter: value})
        yield runs.row(found, named, front, True, {"reward": lines[value][training.environment]})
        return
    for fine_tuned in (False, True):
        if not (fine_tuned and training.algorithm in NOT_TUNED):
            variant = training.algorithm + FINE_TUNED * fine_tuned
            yield runs.row(found, training, front, fine_tuned, _entries(name, training, variant))


def _entries(name: str, training: Training, variant: str) -> dict[str, Entry]:
    if name.startswith(MAIN):
        lines = {metric: found[training.preferences][variant] for metric, found in published.TABLES.items()}
    else:
        lines = {metric: found[variant] for metric, found in published.ABLATION.items()}
    return {metric: columns[training.environment] for metric, columns in lines.items()}


# -- the claims ----------------------------------------------------------------------------------------------------


def judge(folder: Path, options: Options) -> list[Claim]:
    """The claims that can be checked on what was run with this size and is in the folder."""
    values: dict[Key, float] = {}
    for name in CATALOGUE:
        record = read_json(folder / f"{name}.json") or {}
        if record.get("plan") == runs.plan(options):
            for one in record.get("rows", []):  # The studies of clusters have none.
                key = one["environment"], one["preferences"], one["algorithm"]
                values |= {(metric, *key): value["ours"] for metric, value in one["metrics"].items()}
    return judgeable(verdicts(values))


# -- what is shown -------------------------------------------------------------------------------------------------


def in_words(study: Tables, rows: Sequence[Row]) -> Any:
    left = ("environment", "preferences", "algorithm")
    lines = [
        [ENVIRONMENTS[row["environment"]].title, row["preferences"], _title(row)]
        + [cell(row, metric) for metric in study.metrics]
        for row in rows
    ]
    return table(study.headline, left, [_name(metric) for metric in study.metrics], lines, section=2)


def _title(row: Row) -> str:
    base, comma, special = row["algorithm"].partition(",")
    return base if base in (BEST_KNOWN, PERFECT) else published.title(base) + comma + special


def cell(row: Row, metric: str) -> str:
    """Mean and deviation in the thesis's units."""
    unit = published.scale(metric, row["environment"])
    shown = row.text(metric, lambda mean, deviation: f"{mean / unit:.2f} ± {deviation / unit:.1f}")
    return shown + (POWERS.get(unit, "") if metric in row.values else "")


def _name(metric: str) -> str:
    return "IGD" if metric == "igd" else metric


def remarks(study: Tables, found: Sequence[Returns], rows: Sequence[Row]) -> Iterator[str]:
    yield "In brackets: published. ± is the deviation over seeds (population)."
    if any(row["algorithm"] == BEST_KNOWN for row in rows):
        yield (
            f'"{BEST_KNOWN}": every client has the best point of the known front for its preference. "{PERFECT}" '
            "(DST): it has the one of highest discounted reward, which is what clients learn."
        )
    if "igd" in study.metrics and any(one.known_front is None for one in found):
        yield "IGD is measured from the front of all returns found here, since no true one is known."
    lost = sum(int((~np.isfinite(points).all(axis=1)).sum()) for one in found for points in [*one.sent, *one.trained])
    if lost:
        yield f"{lost} clients have no finite returns and are left out."
    if study.options.quick:
        yield "This was --quick: too little to compare with what was published."
        return
    yield from agreement(rows, study.metrics)


def agreement(rows: Sequence[Row], metrics: Sequence[str]) -> Iterator[str]:
    """For each metric how far the order of the algorithms is the published one."""
    from scipy.stats import kendalltau

    for metric in metrics:
        orders = []
        for environment, preferences in dict.fromkeys((row["environment"], row["preferences"]) for row in rows):
            both = [
                (row.mean(metric), row.published[metric].mean)
                for row in rows
                if (row["environment"], row["preferences"]) == (environment, preferences) and metric in row.published
            ]
            if len(both) > 2 and all(len(set(side)) > 1 for side in zip(*both, strict=True)):
                tau = kendalltau(*zip(*both, strict=True)).statistic
                orders.append(f"{ENVIRONMENTS[environment].title} {preferences} {tau:.2f}")
        if orders:
            found = ", ".join(orders)
            yield f"Order by {_name(metric)} against the published one (Kendall's τ, 1 is the same): {found}."


def draw(name: str, rows: Sequence[Row], folder: Path) -> list[Path]:
    panels = {
        ENVIRONMENTS[environment].title: _lines([row for row in rows if row["environment"] == environment])
        for environment in dict.fromkeys(row["environment"] for row in rows)
    }
    return save_series(folder, name, panels, PARAMETERS[name][1], "mean reward of a client")


def _lines(rows: Sequence[Row]) -> list[Series]:
    ours = [row for row in rows if "reward" in row.published]
    values = [float(row["algorithm"].partition("=")[2]) for row in ours]
    means = {
        "ours": [(row.mean("reward"), row.deviation("reward")) for row in ours],
        "published": [(row.published["reward"].mean, row.published["reward"].deviation) for row in ours],
    }
    return [
        Series(title, np.array([values, [mean for mean, _ in found]]).T, "line", np.array([one for _, one in found]))
        for title, found in means.items()
    ]


# -- the thesis's claims, in claims.toml -------------------------------------------------------------------------------


Key = tuple[str, str, str, str]
"""Metric, environment, preferences, algorithm (such as fedpref+ft or fedpref+ft,top_ratio=0.2)."""
NEARLY_ONE = 1.05
"""A mean cardinality that is printed as 1.0."""


def verdicts(values: Mapping[Key, float]) -> list[Claim]:
    """Every claim, checked on the means over seeds that there are."""
    return _Judge(values).verdicts()


def holds_as_published() -> list[Claim]:
    """Every claim, checked on the thesis's own numbers."""
    return verdicts(published_values())


def published_values() -> dict[Key, float]:
    """The means that the thesis prints."""
    found: dict[Key, float] = {}
    for metric, by_preferences in published.TABLES.items():
        for preferences, rows in by_preferences.items():
            _put(found, metric, preferences, rows)
    for metric, rows in published.ABLATION.items():
        _put(found, metric, "dirichlet", rows)
    for name, lines in (("top_ratio", published.TOP_RATIOS), ("similarity_bound", published.SIMILARITY_BOUNDS)):
        _put(found, "reward", "dirichlet", {varied(name, value): columns for value, columns in lines.items()})
    return found


def _put(found: dict[Key, float], metric: str, preferences: str, rows: Mapping[str, Mapping[str, Entry]]) -> None:
    for algorithm, columns in rows.items():
        for environment, entry in columns.items():
            found[metric, environment, preferences, algorithm] = entry.mean


def varied(parameter: str, value: float) -> str:
    """The name of FedPref+FT with another value of a parameter."""
    return f"fedpref{FINE_TUNED},{parameter}={value}"


class _Judge(Judge):
    """Claims compare means and do not weigh the deviation over seeds. Environments that were not run are named."""

    package = "fedpareto_papers.thesis.morl"
    lower_is_better = published.LOWER_IS_BETTER

    def key(self, at: At, name: str) -> Key:
        return at.metric, at.place, at.given, name

    def title(self, place: str) -> str:
        return ENVIRONMENTS[place].title

    def name(self, name: str) -> str:
        base, comma, parameter = name.partition(",")
        return parameter.partition("=")[2] if comma else published.title(base)

    def where(self, one: Statement, at: At, name: str) -> str:
        kind = "" if at.metric == "reward" else f" {at.metric}"
        return self.title(at.place) + ("" if one.words == "parameter" else f"{kind}, {DISTRIBUTIONS[at.given]}")

    def number(self, at: At, value: float) -> str:
        return f"{value / published.scale(at.metric, at.place):.2f}"

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        if one.words != "parameter":
            return super().against(one, at, better, other)
        return f"{better[1]:.2f} at {self.name(better[0])} against {other[1]:.2f}"

    def worse_when_equidistant(self, one: Statement, environment: str) -> Iterator[Part]:
        for name in ("fedavg", "fedavg+ft", "fedprox", "fedprox+ft"):
            place = f"{self.title(environment)}, {self.name(name)}"
            keys = {given: ("reward", environment, given, name) for given in DISTRIBUTIONS}
            values = {given: self.values[key] for given, key in keys.items() if key in self.values}
            if len(values) < len(keys):
                yield Part(place, None, "no value under some preferences")
                continue
            detail = ", ".join(f"{given} {value:.2f}" for given, value in values.items())
            yield Part(place, min(values, key=values.__getitem__) == "equidistant", detail)

    def one_solution(self, one: Statement, environment: str) -> Iterator[Part]:
        for given, title in DISTRIBUTIONS.items():
            for name in ("fedavg", "fedprox"):
                value = self.values.get(("cardinality", environment, given, name))
                yield _counted(f"{title}, {self.name(name)}", value, value is not None and value < NEARLY_ONE)

    def more_than_seven(self, one: Statement, environment: str) -> Iterable[Part]:
        value = self.values.get(("cardinality", environment, "dirichlet", "fedpref+ft"))
        return [_counted("Dirichlet", value, value is not None and value > 7)]


def _counted(place: str, value: float | None, holds: bool) -> Part:
    return Part(place, None, "no value") if value is None else Part(place, holds, f"{value:.1f}")
