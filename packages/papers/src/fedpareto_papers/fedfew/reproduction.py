"""Tables 1, 5 and 6 and figures 2 to 8 of Guo et al., "Few-for-many personalized federated learning", 2026: FedFew.

A run is one algorithm on one column's data with all its seeds; tables and figures share theirs. Of every run both
evaluations are kept: before the local steps of a round, and after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.config.files import write_atomically
from fedpareto.spec.draft import Draft
from fedpareto_papers import client_runs
from fedpareto_papers.catalogue import Options, Outcome, known, starting
from fedpareto_papers.client_runs import ClientResults
from fedpareto_papers.fedfew import published, shown
from fedpareto_papers.fedfew.published import ALGORITHMS, ALONE, COLUMNS, FEDFEW, MODELS, STUDIED
from fedpareto_papers.fedfew.shown import Results
from fedpareto_papers.study import Cell, Found, Study, save_json

EVALUATIONS = 12
"""Fewest evaluations of a run, after the first."""
QUICK_ROUNDS, QUICK_SEEDS, QUICK_CLIENTS, QUICK_ROWS = 2, 1, 3, 90
"""About a minute: enough to see that everything works."""
QUICK_PATHOLOGICAL_ROWS = 3_000
"""Rows, so that clients with two classes each get few."""
TABLE, JAIN = "fedfew-table-1", "fedfew-jain"
QUICK_COLUMNS: Mapping[str, Sequence[str]] = {TABLE: (STUDIED, "ag-news"), JAIN: (STUDIED,)}
QUICK_K, QUICK_EPOCHS, QUICK_MUS = (1, 3), (1, 2), (0.001, 1.0)
CHOOSES_COLUMNS = (TABLE, JAIN, "fedfew-table-6")
"""The others are about CIFAR-10 with 20 clients."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "fedfew-as-published": {"initial": "identical", "loss": "during"},
    "fedfew-full-step": {"server_lr": float(MODELS)},
}
"""FedFew as its published code has it, and with a step that compensates for the unit of step that the models share;
only on request.
"""
WORK: Mapping[str, float] = {"apfl": 2.0, "ditto": 2.0, "fedrep": 2.0}
"""Passes over the training rows in a round; 1 but for these, for IFCA and for FedFew. A pass without gradients is a
third of one."""


@dataclass(frozen=True)
class Run:
    """One algorithm on one column's data."""

    column: str
    label: str
    """Also the name of its folder."""
    algorithm: str
    own: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from the algorithm's own."""
    epochs: int = 1

    @property
    def work(self) -> float:
        """Passes over the training rows in an epoch, about."""
        models = self.own.get("models", MODELS)
        if self.algorithm == FEDFEW:
            return float(models * 4 / 3)
        return 1 + models / 3 if self.algorithm == "ifca" else WORK.get(self.algorithm, 1.0)


def plain(column: str, algorithm: str) -> Run:
    """An algorithm as table 1 has it, or a variant of FedFew."""
    if algorithm in VARIANTS:
        return Run(column, algorithm, FEDFEW, VARIANTS[algorithm])
    return Run(column, algorithm, algorithm, published.OWN.get(algorithm, {}))


def with_models(column: str, models: int) -> Run:
    """FedFew with K models; that of table 1 if it has as many."""
    if models == MODELS:
        return plain(column, FEDFEW)
    return Run(column, f"{FEDFEW}-K{models}", FEDFEW, {"models": models})


def with_epochs(epochs: int) -> Run:
    """FedFew with several local epochs, and accordingly fewer rounds."""
    if epochs == 1:
        return plain(STUDIED, FEDFEW)
    return Run(STUDIED, f"{FEDFEW}-epochs{epochs}", FEDFEW, epochs=epochs)


def with_mu(mu: float) -> Run:
    if mu == published.MU:
        return plain(STUDIED, FEDFEW)
    return Run(STUDIED, f"{FEDFEW}-mu{mu:g}", FEDFEW, {"mu": mu})


# -- which runs ----------------------------------------------------------------------------------------------------


def prepare(name: str, options: Options) -> FewStudy:
    options.refuse(name, "preferences", *(() if name in CHOOSES_COLUMNS else ("problems",)))
    if name not in (TABLE, JAIN):
        options.refuse(name, "algorithms")
    options.must_name_parts()
    study = FewStudy(name, options, runs_of(name, options))
    for run in {run.column: run for run in study.runs}.values():
        study.cell(run).spec()  # What does not fit is reported now, not after the first columns.
    return study


def runs_of(name: str, options: Options) -> list[Run]:
    quick = options.quick
    chosen_columns = starting("column of the paper's tables", options.problems, list(COLUMNS))
    if name in (TABLE, JAIN):
        usual = published.USUAL if name == TABLE else published.USUAL_OF_TABLE_5
        every = [ALONE, *ALGORITHMS] if name == TABLE else list(published.TABLE_5[STUDIED])
        chosen = known("algorithm", options.algorithms, [ALONE, *ALGORITHMS, *VARIANTS])
        columns = chosen_columns or (QUICK_COLUMNS[name] if quick else usual)
        return [plain(column, one) for column in columns for one in (chosen or every)]
    if name == "fedfew-table-6":
        columns = chosen_columns or ("ag-news", published.MEDICAL)
        return [with_models(column, K) for column in columns for K in (QUICK_K if quick else range(1, 6))]
    if name == "fedfew-fig-2":
        return [plain(STUDIED, "fedavg"), *(with_models(STUDIED, K) for K in (QUICK_K if quick else published.OUR_K))]
    if name == "fedfew-mu":
        return [with_mu(mu) for mu in (QUICK_MUS if quick else published.MUS)]
    return [with_epochs(epochs) for epochs in (QUICK_EPOCHS if quick else published.EPOCHS)]


def evaluated_every(rounds: int) -> int:
    """Rounds between two evaluations, one of which is after all of them."""
    return max(every for every in range(1, max(1, rounds // EVALUATIONS) + 1) if rounds % every == 0)


def _in_words(rows: float) -> str:
    """A number of rows, rounded."""
    return f"{rows / 1e6:,.1f} million" if rows >= 1e5 else f"{round(rows, -2):,.0f}"


def _sets_rows(setting: str) -> bool:
    """A setting may ask for a subset of the rows: natural clients have few, and keep theirs."""
    return setting.partition("=")[0].strip() == "problem.rows"


@dataclass(frozen=True)
class FewStudy(Study[ClientResults]):
    """A reproduction, ready to run."""

    runs: list[Run]

    def size(self) -> list[str]:
        return [f"{len(self.runs)} runs of {self.rounds} rounds", f"{self.seeds} seed{'s' * (self.seeds > 1)}"]

    @property
    def headline(self) -> str:
        return f"{super().headline}, about {_in_words(self.cost())} rows to train on"

    @property
    def settings(self) -> tuple[str, ...]:
        return ()  # They are in the cells, but for those that do not fit a column.

    def cells(self) -> list[Cell]:
        return [self.cell(run) for run in self.runs]

    @property
    def rounds(self) -> int:
        """Rounds with one local epoch each."""
        return self.options.rounds or (QUICK_ROUNDS if self.options.quick else published.OUR_ROUNDS)

    @property
    def seeds(self) -> int:
        return self.options.seeds or (QUICK_SEEDS if self.options.quick else published.SEEDS)

    def cost(self) -> float:
        total = 0.0
        for run in self.runs:
            each = COLUMNS[run.column].training_rows
            rows = self.cell(run).draft["problem"].get("rows", 0)
            if rows:
                each = min(each, round(rows * (1 - published.TEST_SHARE)))
            total += each * run.work * self.rounds * self.seeds
        return total

    def cell(self, run: Run) -> Cell:
        column, quick = COLUMNS[run.column], self.options.quick
        rounds = max(1, round(self.rounds / run.epochs))
        clients = self.options.clients or (QUICK_CLIENTS if quick else column.clients)
        problem = dict(column.problem)
        if quick and problem["partition"] != "natural":
            problem["rows"] = QUICK_PATHOLOGICAL_ROWS if column.is_pathological else QUICK_ROWS
        draft = {
            "algorithm": {"name": run.algorithm, **run.own},
            "problem": problem,
            "clients": clients,
            # One more, for the local steps that follow the last: both evaluations are then of the same round.
            "rounds": rounds + 1,
            "seeds": list(range(self.seeds)),
            "preferences": "uniform",
            "evaluate_every": evaluated_every(rounds),
            # Runs are parallel, one to a core. A stack trains as long as its largest client, and clients are
            # stacked by size: all seeds in one stack would be twice the work on CIFAR-10.
            "engine": {"name": "local", "threads": 1, "chunk": clients},
            "learner": {"lr": column.lr, "batch_size": column.batch_size, "epochs": run.epochs},
        }
        settings = [one for one in self.options.settings if problem["partition"] != "natural" or not _sets_rows(one)]
        return Cell(
            f"fedfew/{run.column}/{run.label}",
            Draft(draft).with_settings(settings).values,
            client_runs.read,
            keeps_models=False,
        )

    def outcome(self, found: Sequence[Found[ClientResults]], folder: Path) -> Outcome:
        results: Results = {(run.column, run.label): one for run, one in zip(self.runs, found, strict=True)}
        seen = shown.SHOWN[self.name](results)
        survivals = [] if self.options.quick else seen.claims
        record = {
            "name": self.name,
            "quick": self.options.quick,
            "seeds": self.seeds,
            "rounds": self.rounds,
            "settings": list(self.options.settings),
            "seconds": {one.name: one.seconds for one in found},
            "rows": [shown.as_json(key, one) for key, one in results.items()],
            **seen.record,
            "claims": [asdict(one) for one in survivals],
        }
        files = [*save_json(folder, self.name, record), folder / f"{self.name}.csv"]
        write_atomically(files[1], shown.as_csv(results))
        files += shown.draw(seen.pictures, folder)
        lines = shown.remarks(results, is_quick=self.options.quick)
        return Outcome(record, [*seen.tables, *lines, *shown.judgements(survivals)], files)
