"""Figures 1 to 4 and table VI of Hu et al., "Federated learning meets multi-objective optimization", 2022: FedMGDA+."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.files import write_atomically
from fedpareto.moo.fairness import across_clients
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text
from fedpareto_papers.client_runs import Array, Cell, Found, find_all, spec_of
from fedpareto_papers.fedmgda import adult as fedmgda_adult
from fedpareto_papers.fedmgda import claims as fedmgda_claims
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda.published import ATTACKER, CASES, FIGURES, PHD, Case, Variant
from fedpareto_papers.measured import Entry, Measured

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto_papers.figures.bars import Bar
    from fedpareto_papers.figures.series_panels import Series

QUICK_SEEDS, QUICK_ROUNDS, QUICK_CLIENTS, QUICK_PARTICIPANTS = 2, 2, 4, 2
QUICK_ROWS = {"cifar10": 40, "fashion-mnist": 200, "adult-phd": 2000}
"""About a minute: enough to see that everything works. Of other problems all rows of the few clients."""
LATE = 4
"""The last part of this many is the end of a run."""
COLUMNS: Mapping[str, Sequence[str]] = {
    "fedmgda-fig-1": ("average", "loss"),
    "fedmgda-fig-2": ("pooled", "phd", "non-phd", "average", "deviation", "worst"),
    "fedmgda-fig-3": ("average", "deviation", "worst", "low", "best", "jain", "after training"),
    "fedmgda-fig-4": ("improved", "improved at the end", "loss", "average"),
    "fedmgda-table-6": ("average", "deviation", "worst", "low", "best", "jain", "after training"),
}
"""The metrics that a table shows."""
PLAIN = ("loss", "jain")
"""Metrics that are not percentages."""


def prepare(name: str, options: Options) -> Study:
    """A figure or table, with what the user chose."""
    options.refuse(name, "preferences")
    options.must_name_parts()
    variants = {
        case: [one for one in FIGURES[name].variants[case] if one.algorithm in _algorithms(name, options.algorithms)]
        for case in _cases(name, options.problems)
    }
    study = Study(name, options, {case: chosen for case, chosen in variants.items() if chosen})
    if study.variants:
        _check_clients(study)
    return study


def _check_clients(study: Study) -> None:
    """Raises UserError if the user chose a number of clients, and every case has its own."""
    cases = [CASES[case] for case in study.variants]
    wanted = study.options.clients
    if wanted is None or not all(case.has_given_users and case.clients != wanted for case in cases):
        return
    known = ", ".join(f"{case.title} has {case.clients}" for case in cases)
    raise UserError(f"clients is {wanted}, but here the users are given: {known}")


def _cases(name: str, given: Sequence[str]) -> list[str]:
    """Of a figure, in its order; cifar10 means all that begin so."""
    every = list(FIGURES[name].variants)
    wanted = {one: [case for case in every if case == one or case.startswith(f"{one}-")] for one in given}
    for one, found in wanted.items():
        if not found:
            raise UnknownName(f"case of {name}", one, every)
    return [case for case in every if not given or any(case in found for found in wanted.values())]


def _algorithms(name: str, given: Sequence[str]) -> list[str]:
    every = list(dict.fromkeys(one.algorithm for variants in FIGURES[name].variants.values() for one in variants))
    for one in given:
        if one not in every:
            raise UnknownName(f"algorithm of {name}", one, every)
    return list(given) or every


@dataclass(frozen=True)
class Row(Measured):
    """A row of a table."""

    case: str
    variant: Variant
    values: Mapping[str, list[float]]
    """Of each metric, one for each seed."""
    refused: int
    """Replies that the server refused, in all seeds and rounds."""

    @property
    def published(self) -> Mapping[str, Entry]:
        """What the paper prints, by metric; nothing but table VI, which is about other data."""
        return published.TABLE_6[self.variant.algorithm] if self.case == "mnist-writers" else {}

    def as_json(self) -> dict[str, Any]:
        """With means and deviations."""
        named = {"case": self.case, "algorithm": self.variant.algorithm, "variant": self.variant.label}
        return named | {"refused": self.refused, "metrics": self.metrics_as_json(self.published)}


@dataclass(frozen=True)
class Study:
    """A reproduction, ready to run."""

    name: str
    options: Options
    variants: Mapping[str, Sequence[Variant]]
    """By case."""

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.options.quick else ""
        runs = sum(len(variants) for variants in self.variants.values())
        rounds = "/".join(dict.fromkeys(str(self.rounds(CASES[case])) for case in self.variants))
        size = [f"{runs} runs of {rounds} rounds", f"{self.seeds} seed{'s' * (self.seeds > 1)}", *self.options.settings]
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {', '.join(size)}"

    @property
    def seeds(self) -> int:
        """Repetitions."""
        return self.options.seeds or (QUICK_SEEDS if self.options.quick else FIGURES[self.name].seeds)

    def rounds(self, case: Case) -> int:
        """As published, unless the user says otherwise."""
        return self.options.rounds or (QUICK_ROUNDS if self.options.quick else case.rounds)

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The runs, a table of them, a figure, and the verdicts on the paper's claims."""
        cells = self.cells()
        found = find_all([cell for _, _, cell in cells], folder, self.options, say, stop)
        rows = [self.row(case, variant, one) for (case, variant, _), one in zip(cells, found, strict=True)]
        judged = [] if self.options.quick else fedmgda_claims.verdicts(self.name, means(rows))
        record = {
            "name": self.name,
            "quick": self.options.quick,
            "seeds": self.seeds,
            "rounds": {case: self.rounds(CASES[case]) for case in self.variants},
            "settings": list(self.options.settings),
            "seconds": {one.cell.name: one.seconds for one in found},
            "rows": [row.as_json() for row in rows],
            "claims": [asdict(claim) for claim in judged],
        }
        files = [folder / f"{self.name}.json", folder / f"{self.name}.csv"]
        write_atomically(files[0], json_text(record))
        write_atomically(files[1], as_csv(rows))
        files += draw(self.name, rows, found, folder)
        return Outcome(record, [table(self, rows), *remarks(self, rows), *map(str, judged)], files)

    # -- what is run -----------------------------------------------------------------------------------------------

    def cells(self) -> list[tuple[str, Variant, Cell]]:
        """The runs, with their case and variant."""
        sizes = {case: self.batch_size(case) for case in self.variants}
        return [
            (case, variant, self.cell(case, variant, sizes[case]))
            for case, variants in self.variants.items()
            for variant in variants
        ]

    def cell(self, name: str, variant: Variant, batch_size: int) -> Cell:
        """One of them."""
        case = CASES[name]
        rounds, federation = self.rounds(case), self._federation(case)
        together = round(federation["participation"] * federation["clients"]) * self.seeds
        draft = {
            **federation,
            "algorithm": _algorithm(variant, case, rounds),
            "rounds": rounds,
            "evaluate_every": max(1, rounds // case.evaluations),
            "measure_losses": case.measures_losses,
            # Runs are parallel, one to a core; the participants of a round, of all seeds, are one stack.
            "engine": {"name": "local", "threads": 1, "chunk": together},
            "learner": {"lr": case.lr, "batch_size": batch_size, "epochs": 1},
            "attack": _attack(variant, name),
        }
        folder = f"fedmgda-{FIGURES[self.name].folder}/{name}/{variant.label}"
        return Cell(folder, draft, keeps_models=variant.algorithm == "local")

    def _federation(self, case: Case) -> dict[str, Any]:
        """Its clients, their data, and how many of them take part."""
        quick, problem = self.options.quick, dict(case.problem)
        clients, participants = case.clients, case.participants or case.clients
        if not case.has_given_users:
            clients = self.options.clients or (QUICK_CLIENTS if quick else clients)
            participants = min(clients, QUICK_PARTICIPANTS if quick else participants)
        if problem.get("partition") == "shards":
            each = published.SHARDS_PER_CLIENT
            problem |= {"shards": each * clients, "shards_per_client": each}
        if quick and problem["name"] in QUICK_ROWS:
            problem |= {"rows": QUICK_ROWS[problem["name"]]}
        return {
            "problem": problem,
            "clients": clients,
            "participation": participants / clients,
            "seeds": list(range(self.seeds)),
            "preferences": case.preferences,
        }

    def batch_size(self, name: str) -> int:
        """As published; of full batches the size of the largest, since all clients share a batch size."""
        case = CASES[name]
        if case.batch_size != published.FULL:
            return case.batch_size
        spec = spec_of(Cell("", self._federation(case)), self.options.settings)
        return max(int(spec.problem.data(spec.clients, seed)["train"].counts.max()) for seed in spec.seeds)

    def row(self, case: str, variant: Variant, found: Found) -> Row:
        """A row of the table."""
        values = losses(found)
        if case != "convex" and variant.algorithm != "local":  # Distances; a model of one user, measured below.
            values |= accuracies(found)
        if case == "adult-bias":
            values |= fedmgda_adult.measures(found, spec_of(found.cell, self.options.settings))
        return Row(case, variant, values, found.refused)


def _algorithm(variant: Variant, case: Case, rounds: int) -> dict[str, Any]:
    """The spec's `algorithm`; in a shorter run a decaying step has as many decays, and so ends at the same value."""
    stair = max(1, round(published.DECAY_EVERY * rounds / case.rounds))
    return variant.section | ({"decay_every": stair} if "decay" in variant.own else {})


def _attack(variant: Variant, case: str) -> dict[str, Any]:
    """Its attacker takes part in every round, as in section VI-B2.

    On CIFAR-10, with partial participation, it does so in honest runs as well, with a factor of 1: that one user is
    always there changes FedMGDA+ more than the factor.
    """
    who = {"clients": [PHD if case == "adult-bias" else ATTACKER], "always": True}
    if case == "cifar10-scaling":
        return {"kind": "scaling", "strength": 1.0, **variant.attack, **who}
    return {**variant.attack, **who} if variant.attack else {}


# -- users' results ------------------------------------------------------------------------------------------------


def accuracies(found: Found) -> dict[str, list[float]]:
    """Of each seed, statistics over the users with the last model on their test rows.

    "after training" is about their own copies after the local steps, mean over those who took part in the last round
    that was evaluated.
    """
    across = [across_clients(users[np.isfinite(users)]) for users in found.sent.last()]
    return {
        "average": [one.mean for one in across],
        "deviation": [one.deviation for one in across],
        "worst": [one.worst for one in across],
        "low": [one.low for one in across],
        "best": [one.best for one in across],
        "jain": [one.jain or 0.0 for one in across],
        "after training": np.nanmean(found.trained.last(), axis=1).tolist(),
    }


def losses(found: Found) -> dict[str, list[float]]:
    """Of each seed, the users' mean training loss in the end, and the share of participants whose loss did not rise.

    That is "improved", the mean over the rounds that were measured, and "improved at the end", over their last quarter.
    """
    if found.losses is None or found.improved is None:
        return {}
    shares = found.improved.values[:, :, 0]
    late = max(1, shares.shape[1] // LATE)
    return {
        "loss": np.nanmean(found.losses.last(), axis=1).tolist(),
        "improved": shares.mean(axis=1).tolist(),
        "improved at the end": shares[:, -late:].mean(axis=1).tolist(),
    }


def means(rows: Sequence[Row]) -> dict[fedmgda_claims.Key, float]:
    """For the claims."""
    return {(row.case, row.variant.short, metric): row.mean(metric) for row in rows for metric in row.values}


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: Study, rows: Sequence[Row]) -> Table:
    """Ours, and what was published in brackets."""
    from rich.table import Table

    shown = Table("case", "algorithm", title=study.headline)
    for metric in COLUMNS[study.name]:
        shown.add_column(metric, justify="right")
    last = None
    for row in rows:
        if last not in (None, row.case):
            shown.add_section()
        last = row.case
        cells = [cell_text(row, metric) for metric in COLUMNS[study.name]]
        shown.add_row(CASES[row.case].title, fedmgda_claims.title(row.variant.short), *cells)
    return shown


def cell_text(row: Row, metric: str) -> str:
    """Mean and deviation over the seeds, in percent but for PLAIN."""
    if metric not in row.values:
        return "–"
    ours = _spread(row.mean(metric), row.deviation(metric), metric)
    entry = row.published.get(metric)
    return ours if entry is None else f"{ours} ({_spread(entry.mean, entry.deviation, metric)})"


def _spread(mean: float, deviation: float, metric: str) -> str:
    if metric in PLAIN:
        return f"{mean:.3f} ± {deviation:.3f}"
    return f"{100 * mean:.2f} ± {100 * deviation:.2f}"


def remarks(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """How to read the table."""
    yield (
        "Accuracies and shares in percent; ± is the deviation over seeds (population). average, deviation, worst, low "
        "(the 10th percentile), best and Jain's index are over the users, of the last model on their test rows."
    )
    if study.name == "fedmgda-table-6":
        yield (
            "In brackets: published, for Federated EMNIST (62 classes, 3,406 users), which is not available. Ours is "
            "MNIST by writer, digits only: compare the order of the algorithms, not the numbers."
        )
    else:
        judged = "" if study.options.quick else "; its statements are checked below"
        yield f"The paper prints no numbers for this figure{judged}."
    if any(CASES[row.case].problem["name"] == "cifar10" for row in rows):
        yield "CIFAR-10 may be a subset: compare the order of the algorithms, not the published numbers."
    lost = {fedmgda_claims.title(row.variant.short): row.refused for row in rows if row.refused}
    if lost:
        yield "Replies without finite numbers, refused: " + ", ".join(f"{name} {n}" for name, n in lost.items()) + "."
    if study.options.quick:
        yield "This was --quick: too little to check anything."


def as_csv(rows: Sequence[Row]) -> str:
    """A row for each number."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("case", "variant", "metric", "ours", "deviation", "published", "published_deviation"))
    for row in rows:
        for metric in row.values:
            entry = row.published.get(metric)
            theirs = ("", "") if entry is None else (entry.mean, entry.deviation)
            lines.writerow((row.case, row.variant.label, metric, row.mean(metric), row.deviation(metric), *theirs))
    return text.getvalue()


# -- figures -------------------------------------------------------------------------------------------------------

PERCENTILES = np.linspace(0, 100, 21)


def draw(name: str, rows: Sequence[Row], found: Sequence[Found], folder: Path) -> list[Path]:
    """The figure as .png and .pdf."""
    from fedpareto_papers.figures.bars import bar_panels, render
    from fedpareto_papers.figures.series_panels import series_panels

    if name == "fedmgda-fig-1":
        figure = series_panels(_panels(rows, found, _accuracies) | _panels(rows, found, _losses), "rounds", "")
    elif name == "fedmgda-fig-2":
        alone = {CASES[row.case].title: 100 * row.mean("pooled") for row in rows if row.variant.algorithm == "local"}
        figure = bar_panels(_bars(rows), "test accuracy, %", alone)
    elif name == "fedmgda-fig-4":
        figure = series_panels(_panels(rows, found, _improved), "rounds", "improved participants, %")
    else:
        figure = series_panels(_panels(rows, found, _users), "users, % (the worst first)", "test accuracy, %")
    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files


Curve = Callable[[Found], tuple[str, Array, Array]]
"""What a panel adds to its title, x `[k]` and y `[seeds, k]`."""


def _accuracies(found: Found) -> tuple[str, Array, Array]:
    return ": accuracy, %", found.sent.rounds.astype(float), 100 * found.sent.means()


def _losses(found: Found) -> tuple[str, Array, Array]:
    assert found.losses is not None, "figure 1 measures losses"
    return ": training loss", found.losses.rounds.astype(float), found.losses.means()


def _improved(found: Found) -> tuple[str, Array, Array]:
    """The mean of the rounds so far in each tenth of a run: single rounds vary by a tenth."""
    assert found.improved is not None, "figure 4 measures losses"
    parts = np.array_split(np.arange(len(found.improved.rounds)), min(10, len(found.improved.rounds)))
    shares = found.improved.means()
    rounds = np.array([found.improved.rounds[part].mean() for part in parts])
    return "", rounds, 100 * np.stack([shares[:, part].mean(axis=1) for part in parts], axis=1)


def _users(found: Found) -> tuple[str, Array, Array]:
    return "", PERCENTILES, 100 * np.nanpercentile(found.sent.last(), PERCENTILES, axis=1).T


def _panels(rows: Sequence[Row], found: Sequence[Found], curve: Curve) -> dict[str, list[Series]]:
    """A panel for each case, a row for each variant."""
    from fedpareto_papers.figures.series_panels import Series

    panels: dict[str, list[Series]] = {}
    for row, one in zip(rows, found, strict=True):
        added, xs, ys = curve(one)
        points = np.stack([xs, ys.mean(axis=0)], axis=1)
        series = Series(fedmgda_claims.title(row.variant.short), points, "line", ys.std(axis=0))
        panels.setdefault(CASES[row.case].title + added, []).append(series)
    return panels


def _bars(rows: Sequence[Row]) -> dict[str, list[Bar]]:
    """A panel for each attack."""
    from fedpareto_papers.figures.bars import Bar

    panels: dict[str, list[Bar]] = {}
    for row in rows:
        metric = "pooled" if "pooled" in row.values else "average"
        kind = "attacked" if row.variant.attack else "PhD only" if row.variant.algorithm == "local" else "honest"
        label = fedmgda_claims.title(row.variant.short)
        bar = Bar(label, 100 * row.mean(metric), 100 * row.deviation(metric), kind)
        panels.setdefault(CASES[row.case].title, []).append(bar)
    return panels
