"""Figures 1 to 4 and table VI of Hu et al., "Federated learning meets multi-objective optimization", 2022: FedMGDA+."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.moo.fairness import across_clients
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Batch, Rows
from fedpareto_papers import client_runs
from fedpareto_papers.catalogue import Options, Outcome, known, starting
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.client_runs import MODELS, Array, ClientResults
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda.published import ATTACKER, CASES, FIGURES, PHD, TABLE_6, TITLES, Case, Variant
from fedpareto_papers.figures import Bar, Series, save, save_series
from fedpareto_papers.study import Cell, Found, Row, Study, claims_json, save_json, save_rows, table

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


def prepare(name: str, options: Options) -> Figures:
    options.refuse(name, "preferences")
    options.must_name_parts()
    every = list(FIGURES[name].variants)
    variants = {
        case: [one for one in FIGURES[name].variants[case] if one.algorithm in _algorithms(name, options.algorithms)]
        for case in starting(f"case of {name}", options.problems, every) or every
    }
    study = Figures(name, options, {case: chosen for case, chosen in variants.items() if chosen})
    if study.variants:
        _check_clients(study)
    return study


def _check_clients(study: Figures) -> None:
    """Raises UserError if the user chose a number of clients, and every case has its own."""
    cases = [CASES[case] for case in study.variants]
    wanted = study.options.clients
    if wanted is None or not all(case.has_given_users and case.clients != wanted for case in cases):
        return
    given = ", ".join(f"{case.title} has {case.clients}" for case in cases)
    raise UserError(f"clients is {wanted}, but here the users are given: {given}")


def _algorithms(name: str, given: Sequence[str]) -> list[str]:
    every = list(dict.fromkeys(one.algorithm for variants in FIGURES[name].variants.values() for one in variants))
    return list(known(f"algorithm of {name}", given, every)) or every


@dataclass(frozen=True)
class Line(Row):
    """A row of the table."""

    variant: Variant = Variant("")
    refused: int = 0
    """Replies that the server refused, in all seeds and rounds."""

    @property
    def case(self) -> Case:
        return CASES[self["case"]]

    @property
    def title(self) -> str:
        return title(self.variant.short)

    def as_json(self) -> dict[str, Any]:
        named = {"case": self["case"], "algorithm": self.variant.algorithm, "variant": self.variant.label}
        return named | {"refused": self.refused} | super().as_json()


@dataclass(frozen=True)
class Figures(Study[ClientResults]):
    """A figure or table, ready to run."""

    variants: Mapping[str, Sequence[Variant]]
    """Variants by case."""

    def size(self) -> list[str]:
        runs = sum(len(variants) for variants in self.variants.values())
        rounds = "/".join(dict.fromkeys(str(self.rounds(CASES[case])) for case in self.variants))
        return [f"{runs} runs of {rounds} rounds", f"{self.seeds} seed{'s' * (self.seeds > 1)}"]

    @property
    def seeds(self) -> int:
        return self.options.seeds or (QUICK_SEEDS if self.options.quick else FIGURES[self.name].seeds)

    def rounds(self, case: Case) -> int:
        """As published, unless the user or a quick version has other ones."""
        return self.options.rounds or (QUICK_ROUNDS if self.options.quick else case.rounds)

    def outcome(self, found: Sequence[Found[ClientResults]], folder: Path) -> Outcome:
        keys = [(case, variant) for case, variants in self.variants.items() for variant in variants]
        rows = [self.row(case, variant, one) for (case, variant), one in zip(keys, found, strict=True)]
        judged = [] if self.options.quick else verdicts(self.name, means(rows))
        record = {
            "name": self.name,
            "quick": self.options.quick,
            "seeds": self.seeds,
            "rounds": {case: self.rounds(CASES[case]) for case in self.variants},
            "settings": list(self.options.settings),
            "seconds": {one.name: one.seconds for one in found},
            "rows": [row.as_json() for row in rows],
            **claims_json(judged),
        }
        files = save_json(folder, self.name, record) + save_rows(folder, self.name, rows)
        files += draw(self.name, rows, [one.result for one in found], folder)
        lines = [
            [row.case.title, row.title, *(cell_text(row, metric) for metric in COLUMNS[self.name])] for row in rows
        ]
        shown = table(self.headline, ("case", "algorithm"), COLUMNS[self.name], lines, section=1)
        return Outcome(record, [shown, *remarks(self, rows), *map(str, judged)], files)

    # -- what is run -----------------------------------------------------------------------------------------------

    def cells(self) -> list[Cell]:
        sizes = {case: self.batch_size(case) for case in self.variants}
        return [
            self.cell(case, variant, sizes[case]) for case, variants in self.variants.items() for variant in variants
        ]

    def cell(self, name: str, variant: Variant, batch_size: int) -> Cell:
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
        return Cell(folder, draft, client_runs.read, keeps_models=variant.algorithm == "local")

    def _federation(self, case: Case) -> dict[str, Any]:
        """The clients of a case, their data, and how many of them take part."""
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
        spec = Cell("", self._federation(case), client_runs.read).spec(self.options.settings)
        return max(int(spec.problem.data(spec.clients, seed)["train"].counts.max()) for seed in spec.seeds)

    def row(self, case: str, variant: Variant, found: Found[ClientResults]) -> Line:
        values = losses(found.result)
        if case != "convex" and variant.algorithm != "local":  # Distances; a model of one user, measured below.
            values |= accuracies(found.result)
        if case == "adult-bias":
            values |= on_adult(found, found.cell.spec(self.options.settings))
        # The paper prints nothing but table VI, which is about other data.
        entries = published.TABLE_6[variant.algorithm] if case == "mnist-writers" else {}
        return Line({"case": case, "variant": variant.label}, values, entries, variant, found.result.refused)


def _algorithm(variant: Variant, case: Case, rounds: int) -> dict[str, Any]:
    """The spec's `algorithm`; in a shorter run a decaying step has as many decays, and so ends at the same value."""
    stair = max(1, round(published.DECAY_EVERY * rounds / case.rounds))
    return variant.section | ({"decay_every": stair} if "decay" in variant.own else {})


def _attack(variant: Variant, case: str) -> dict[str, Any]:
    """The spec's `attack`: the attacker takes part in every round, as in section VI-B2.

    On CIFAR-10, with partial participation, it does so in honest runs as well, with a factor of 1: that one user is
    always there changes FedMGDA+ more than the factor.
    """
    who = {"clients": [PHD if case == "adult-bias" else ATTACKER], "always": True}
    if case == "cifar10-scaling":
        return {"kind": "scaling", "strength": 1.0, **variant.attack, **who}
    return {**variant.attack, **who} if variant.attack else {}


# -- users' results ------------------------------------------------------------------------------------------------


def accuracies(found: ClientResults) -> dict[str, list[float]]:
    """Compute statistics over the users with the last model on their test rows, for each seed.

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


def losses(found: ClientResults) -> dict[str, list[float]]:
    """Compute the users' mean training loss in the end, and the share of participants whose loss did not rise.

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


def on_adult(found: Found[ClientResults], spec: Spec) -> dict[str, list[float]]:
    """Compute the accuracy on the PhD user's test rows, on the other's, and on all; one number for each seed.

    For `local` it is that of the PhD user's own model, also on the other's rows: training on the PhD user alone.
    """
    accuracies = found.result.sent.last()
    if spec.algorithm.name == "local":
        accuracies = np.stack([_everywhere(found.folder, spec, seed) for seed in spec.seeds])
    sizes = np.stack([_test_rows(spec, seed).counts for seed in spec.seeds])
    others = np.arange(accuracies.shape[1]) != PHD
    return {
        "pooled": _weighted(accuracies, sizes),
        "phd": accuracies[:, PHD].tolist(),
        "non-phd": _weighted(accuracies[:, others], sizes[:, others]),
    }


def _weighted(accuracies: Array, sizes: Array) -> list[float]:
    means: list[float] = ((accuracies * sizes).sum(axis=1) / sizes.sum(axis=1)).tolist()
    return means


def _test_rows(spec: Spec, seed: int) -> Rows:
    return spec.problem.data(spec.clients, seed)["test"]


def _everywhere(folder: Path, spec: Spec, seed: int) -> Array:
    """Compute the accuracy of the PhD user's model on each user's test rows, `[n]`."""
    problem = spec.problem
    assert isinstance(problem, SupervisedProblem), "users with rows"
    model = Checkpoint.load(folder / MODELS).tensors[f"seed{seed}/client{PHD}"]
    rows = _test_rows(spec, seed).to(model.device, model.dtype)
    return np.array([_accuracy(problem, model, rows, user) for user in range(spec.clients)])


def _accuracy(problem: SupervisedProblem, model: Tensor, rows: Rows, user: int) -> float:
    columns = {name: column.unsqueeze(0) for name, column in rows.of_client(user).items()}
    batch = Batch(columns, model.new_ones(1, int(rows.counts[user])))
    with torch.no_grad():
        return float(problem.evaluate(problem.layout.unflatten(model.unsqueeze(0)), batch)[0, 0])


def means(rows: Sequence[Line]) -> dict[Key, float]:
    return {(row["case"], row.variant.short, metric): row.mean(metric) for row in rows for metric in row.values}


# -- what is shown -------------------------------------------------------------------------------------------------


def cell_text(row: Line, metric: str) -> str:
    """Mean and deviation over the seeds, in percent but for PLAIN."""
    if metric in PLAIN:
        return row.text(metric, lambda mean, deviation: f"{mean:.3f} ± {deviation:.3f}")
    return row.text(metric, lambda mean, deviation: f"{100 * mean:.2f} ± {100 * deviation:.2f}")


def remarks(study: Figures, rows: Sequence[Line]) -> Iterator[str]:
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
    if any(row.case.problem["name"] == "cifar10" for row in rows):
        yield "CIFAR-10 may be a subset: compare the order of the algorithms, not the published numbers."
    lost = {row.title: row.refused for row in rows if row.refused}
    if lost:
        yield "Replies without finite numbers, refused: " + ", ".join(f"{name} {n}" for name, n in lost.items()) + "."
    if study.options.quick:
        yield "This was --quick: too little to check anything."


# -- figures -------------------------------------------------------------------------------------------------------

PERCENTILES = np.linspace(0, 100, 21)


def draw(name: str, rows: Sequence[Line], found: Sequence[ClientResults], folder: Path) -> list[Path]:
    if name == "fedmgda-fig-1":
        panels = _panels(rows, found, _accuracies) | _panels(rows, found, _losses)
        return save_series(folder, name, panels, "rounds", "")
    if name == "fedmgda-fig-2":
        from fedpareto_papers.figures.drawing import bar_panels

        alone = {row.case.title: 100 * row.mean("pooled") for row in rows if row.variant.algorithm == "local"}
        return save(folder, name, bar_panels(_bars(rows), "test accuracy, %", alone))
    if name == "fedmgda-fig-4":
        return save_series(folder, name, _panels(rows, found, _improved), "rounds", "improved participants, %")
    return save_series(folder, name, _panels(rows, found, _users), "users, % (the worst first)", "test accuracy, %")


Curve = Callable[[ClientResults], tuple[str, Array, Array]]
"""An addition to a panel's title, x `[k]` and y `[seeds, k]`."""


def _accuracies(found: ClientResults) -> tuple[str, Array, Array]:
    return ": accuracy, %", found.sent.rounds.astype(float), 100 * found.sent.means()


def _losses(found: ClientResults) -> tuple[str, Array, Array]:
    assert found.losses is not None, "figure 1 measures losses"
    return ": training loss", found.losses.rounds.astype(float), found.losses.means()


def _improved(found: ClientResults) -> tuple[str, Array, Array]:
    """The mean of the rounds so far in each tenth of a run: single rounds vary by a tenth."""
    assert found.improved is not None, "figure 4 measures losses"
    parts = np.array_split(np.arange(len(found.improved.rounds)), min(10, len(found.improved.rounds)))
    shares = found.improved.means()
    rounds = np.array([found.improved.rounds[part].mean() for part in parts])
    return "", rounds, 100 * np.stack([shares[:, part].mean(axis=1) for part in parts], axis=1)


def _users(found: ClientResults) -> tuple[str, Array, Array]:
    return "", PERCENTILES, 100 * np.nanpercentile(found.sent.last(), PERCENTILES, axis=1).T


def _panels(rows: Sequence[Line], found: Sequence[ClientResults], curve: Curve) -> dict[str, list[Series]]:
    panels: dict[str, list[Series]] = {}
    for row, one in zip(rows, found, strict=True):
        added, xs, ys = curve(one)
        panels.setdefault(row.case.title + added, []).append(Series.over_seeds(row.title, xs, ys))
    return panels


def _bars(rows: Sequence[Line]) -> dict[str, list[Bar]]:
    panels: dict[str, list[Bar]] = {}
    for row in rows:
        metric = "pooled" if "pooled" in row.values else "average"
        kind = "attacked" if row.variant.attack else "PhD only" if row.variant.algorithm == "local" else "honest"
        bar = Bar(row.title, 100 * row.mean(metric), 100 * row.deviation(metric), kind)
        panels.setdefault(row.case.title, []).append(bar)
    return panels


# -- the paper's claims, in claims.toml --------------------------------------------------------------------------------


Key = tuple[str, str, str]
"""Case, variant (such as fedavg, fedmgda,epsilon=0.1 or afl,bias=1; without its other settings), metric."""
NEARLY_ALL = 0.99
"""A share of improved users that "reaches towards 100%"."""
LARGEST = {name: f"{name},bias={biases[-1]:g}" for name, biases in published.BIASES.items()}
"""Variants under the largest bias."""
SCALED = f",scaling={published.SCALE:g}"


def verdicts(name: str, values: Mapping[Key, float]) -> list[Claim]:
    """The claims about one figure or table, checked on the means over seeds that there are."""
    return [claim for claim in _Judge(values, name).verdicts() if claim.verdict != "cannot be judged"]


def holds_as_published() -> list[Claim]:
    """The claims about table VI, checked on its own numbers: the only ones that the paper prints."""
    values = {
        ("mnist-writers", algorithm, metric): entry.mean
        for algorithm, row in TABLE_6.items()
        for metric, entry in row.items()
    }
    return verdicts("fedmgda-table-6", values)


def title(variant: str) -> str:
    """The paper's name of an algorithm, with what is special about it."""
    algorithm, comma, special = variant.partition(",")
    return TITLES[algorithm] + (f" ({special.replace('epsilon', 'ε').replace('=', ' ')})" if comma else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


class _Judge(Judge):
    """Claims compare means over the seeds. Accuracies are shares of 1; a point is 0.01 of them."""

    package = "fedpareto_papers.fedmgda"
    lower_is_better = ("loss", "deviation")

    def places(self) -> Iterable[str]:
        return published.FIGURES[self.about].variants

    def key(self, at: At, name: str) -> Key:
        # On Adult a user has one row in eighty: the accuracy on all rows counts.
        accuracy = "pooled" if at.place == "adult-bias" else "average"
        return at.place, name, accuracy if at.metric == "accuracy" else at.metric

    def title(self, place: str) -> str:
        return CASES[place].title

    def name(self, name: str) -> str:
        return title(name)

    def where(self, one: Statement, at: At, name: str) -> str:
        special = title(name) if one.words else at.metric if at.metric in self.lower_is_better else ""
        return self.title(at.place) + (f", {special}" if special else "")

    def number(self, at: At, value: float) -> str:
        return f"{value:.3f}" if at.metric == "loss" else _percent(value)

    def against(self, one: Statement, at: At, better: tuple[str, float], other: tuple[str, float]) -> str:
        if not one.words:
            return super().against(one, at, better, other)
        honest, attacked = (better[1], other[1]) if one.words == "honest" else (other[1], better[1])
        return f"{_percent(honest)} becomes {_percent(attacked)}"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        """The verdict on the comparisons with values; the places of the others are named."""
        every = [part for found in parts.values() for part in found]
        known = [part for part in every if part.holds is not None]
        missing = ", ".join(dict.fromkeys(part.where for part in every if part.holds is None))
        verdict, detail = judged(one.what, known or every)
        return verdict, detail + (f"; not run: {missing}" if known and missing else "")

    def _values(self, metric: str, place: str, names: Iterable[str]) -> dict[str, float]:
        """The values of all names, or nothing."""
        at = At(place, metric)
        keys = {name: self.key(at, name) for name in names}
        return {name: self.values[key] for name, key in keys.items()} if self.values.keys() >= {*keys.values()} else {}

    def in_between(self, one: Statement, case: str) -> Iterator[Part]:
        for epsilon in (epsilon for epsilon in published.EPSILONS if 0 < epsilon < 1):
            place = f"{self.title(case)}, ε = {epsilon:g}"
            values = self._values("loss", case, [f"fedmgda,epsilon={value:g}" for value in (0, epsilon, 1)])
            if not values:
                yield Part(place, None, "no value")
                continue
            first, here, last = values.values()
            yield Part(place, first <= here <= last, f"{here:.3f} between {first:.3f} and {last:.3f}")

    def nearer_to_phd_only(self, one: Statement, case: str) -> Iterator[Part]:
        """The attack costs more than half of the difference between the honest result and PhD-only training."""
        for algorithm in ("afl", "q-fedavg"):
            values = self._values("accuracy", case, (algorithm, LARGEST[algorithm], "local"))
            if not values:
                yield Part(TITLES[algorithm], None, "no value")
                continue
            honest, attacked, alone = values.values()
            falls = attacked < honest and alone < honest and honest - attacked > (honest - alone) / 2
            numbers = f"{_percent(honest)} becomes {_percent(attacked)}; PhD only has {_percent(alone)}"
            yield Part(TITLES[algorithm], falls, numbers)

    def q_fedavg_falls_most(self, one: Statement, case: str) -> Iterator[Part]:
        names = [each for name in published.ALGORITHMS for each in (name, name + SCALED)]
        values = self._values("accuracy", case, names)
        if not values:
            yield Part(self.title(case), None, "no value")
            return
        falls = {name: values[name] - values[name + SCALED] for name in published.ALGORITHMS}
        shown = ", ".join(f"{TITLES[name]} {-100 * fall:+.1f}" for name, fall in falls.items())
        yield Part(self.title(case), max(falls, key=falls.__getitem__) == "q-fedavg", f"{shown} points")

    def fedmgda_plus_attacked(self, one: Statement, case: str) -> Iterator[Part]:
        attacked = LARGEST["fedmgda-plus"] if case == "adult-bias" else f"fedmgda-plus{SCALED}"
        yield self.compare(replace(one, better=(attacked,), than=("fedmgda-plus",)), At(case, "accuracy"))

    def not_all_improve(self, one: Statement, case: str) -> Iterator[Part]:
        for part in self.all_improve(one, case):
            yield Part(part.where, None if part.holds is None else not part.holds, part.numbers)

    def all_improve(self, one: Statement, case: str) -> Iterator[Part]:
        value = self.values.get((case, "fedmgda-plus", "improved at the end"))
        if value is None:
            yield Part(self.title(case), None, "no value")
        else:
            yield Part(self.title(case), value >= NEARLY_ALL, _percent(value))
