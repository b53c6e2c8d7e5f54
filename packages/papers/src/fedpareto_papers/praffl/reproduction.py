"""Table 1 and figures 6 to 10 of PraFFL (Ye et al., 2024), and an ablation of what the paper leaves open.

A cell is one algorithm on one data set, its seeds in one stack, kept in an ordinary run folder; the table and the
figures share their cells. A point is (error rate, ΔDP) of all test rows, each classified by its client's model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.conditioned import Conditioned, tolerances
from fedpareto.contract.federation import Federation
from fedpareto.contract.groups import GroupedProblem
from fedpareto.moo.dominance import is_nondominated
from fedpareto.moo.indicators import hypervolume
from fedpareto.moo.intervals import interval
from fedpareto.runs.loop import Experiment
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Batch
from fedpareto_papers.catalogue import Options, Outcome, known
from fedpareto_papers.claims import Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.figures import Series, save_series
from fedpareto_papers.praffl import published
from fedpareto_papers.study import Cell, Found, Run, Study, claims_json, table

KEY = "pooled"
"""Key of the points in a row of metrics.jsonl."""
AT_ONCE = 50
"""Preferences that are evaluated together; more would only need more memory."""


@dataclass(frozen=True)
class Decided:
    """Decisions of k models on the rows of one client."""

    positive: Tensor
    """`[k, rows]`, ones and zeros."""
    labels: Tensor
    groups: Tensor


@dataclass(frozen=True)
class Pooled:
    """Records, after each round, the points `[k, 3]` of a federation evaluated as a whole: see `measures`.

    This follows PraFFL's experiments: all clients have the same preference "during each inference" (section 6.3.3), and
    a preference is one point.
    """

    preferences: int
    """k at the end, for algorithms whose models follow any preference; others have one point."""
    between: int
    """k after the other rounds."""
    _federations: dict[int, Federation] = field(default_factory=dict, repr=False)
    """Federations by seed, partitioned once."""

    def __call__(self, experiment: Experiment, run: int) -> Mapping[str, Any]:
        count = self.preferences if experiment.round == experiment.spec.rounds else self.between
        with torch.no_grad():
            return {KEY: np.round(self._points(experiment, run, count), 5).tolist()}

    def _points(self, experiment: Experiment, run: int, count: int) -> np.ndarray:
        """One row for each of `count` preferences, even steps in the importance of the first objective, or one row."""
        spec, engine = experiment.spec, experiment.engine
        solutions = spec.algorithm.solutions(experiment.states[run])
        rows = {client: self._rows(spec, run, client) for client in solutions}
        anatomy = spec.algorithm.anatomy(spec.problem.layout, len(spec.problem.objectives))
        if anatomy is None:
            models = engine.models(run, solutions)
            return measures([_vote(*rows[client], model) for client, model in models.items()])
        fresh = spec.algorithm.private_state(engine.settings[run])
        kept = {client: engine.private.get((run, 0, client), fresh)["hypernetwork"] for client in solutions}
        blocks = [
            [_conditioned(*rows[c], anatomy, message["body"], kept[c], some) for c, message in solutions.items()]
            for some in torch.split(line(count), AT_ONCE)
        ]
        return np.concatenate([measures(block) for block in blocks])

    def _rows(self, spec: Spec, run: int, client: int) -> tuple[GroupedProblem, Batch]:
        """The problem, and a client's test rows as a stack of one."""
        seed, problem = spec.seeds[run], spec.problem
        assert isinstance(problem, GroupedProblem), "rates of groups are compared"
        if seed not in self._federations:
            self._federations[seed] = spec.federation(seed)
        federation = self._federations[seed]
        rows = federation.splits["test"].of_client(federation.ids.index(client))
        columns = {name: column.unsqueeze(0) for name, column in rows.items()}
        return problem, Batch(columns, torch.ones_like(columns["label"]))


def line(count: int) -> Tensor:
    """Preferences between two objectives in even steps, `[count, 2]`, the second one's importance first."""
    first = torch.linspace(0, 1, count)
    return torch.stack([first, 1 - first], dim=-1)


def _vote(problem: GroupedProblem, batch: Batch, model: Tensor) -> Decided:
    """Decide by a client's model `[d]`, or by an ensemble, `[k, d]`."""
    votes = [
        problem.logits(problem.layout.unflatten(one.unsqueeze(0)), batch).sigmoid()
        for one in model.reshape(-1, model.shape[-1])
    ]
    return _decided(problem, batch, torch.stack(votes).mean(0) > 0.5)


def _conditioned(
    problem: GroupedProblem, batch: Batch, anatomy: Conditioned, body: Tensor, hypernetwork: Tensor, preferences: Tensor
) -> Decided:
    """Decide by the models that a client makes for preferences `[k, m]`."""
    network = anatomy.hypernetwork.layout.unflatten(hypernetwork.unsqueeze(0))
    heads = anatomy.heads(network, tolerances(preferences, anatomy.margin).unsqueeze(0))
    return _decided(problem, batch, problem.logits_each(anatomy.body.unflatten(body.unsqueeze(0)), heads, batch)[0] > 0)


def _decided(problem: GroupedProblem, batch: Batch, positive: Tensor) -> Decided:
    return Decided(positive.float(), problem.labels(batch)[0], problem.groups(batch)[0])


def measures(clients: Sequence[Decided]) -> np.ndarray:
    """For each of the k models `[k, 3]`: error rate, ΔDP (eq. 3), and what PraFFL's published code measures instead.

    That is max_z |P(ŷ = 1 | z) − P(ŷ = 1)|, the largest distance of a group from the population, which for two groups
    is at most ΔDP and about half of it if they are of similar size.
    """
    positive = torch.cat([client.positive for client in clients], dim=-1)
    labels, groups = (torch.cat([getattr(client, name) for client in clients]) for name in ("labels", "groups"))
    error = (positive != labels).float().mean(-1)
    rates = torch.stack([positive[:, groups == group].mean(-1) for group in range(int(groups.max()) + 1)])
    gap = rates.amax(0) - rates.amin(0)
    from_all = (rates - positive.mean(-1)).abs().amax(0)
    return torch.stack([error, gap, from_all], dim=-1).numpy()


# -- the study ---------------------------------------------------------------------------------------------------------


TABLE, ABLATION = "praffl-table-1", "praffl-ablation"
NOTHING = published.Entry(np.nan, np.nan, np.nan, np.nan)
"""The entry of a cell for which nothing was published."""
BETWEEN = 101
"""Preferences after every round but the last."""
LARGEST_CLOUD = 50
"""More points than this are a set of solutions, not one solution under several seeds."""
QUICK, QUICK_PREFERENCES = {"rounds": 2, "seeds": 2}, 101
QUICK_PRAFFL = {"body_epochs": 2, "head_epochs": 4, "sampled": 16}
"""About a minute: enough to see that everything works."""
EQUATION_3, FROM_ALL = 1, 2
"""Columns of a point: ΔDP as the paper defines it, and as its published code measures it."""


@dataclass(frozen=True)
class Variant:
    """One algorithm on one data set."""

    data: str
    label: str
    algorithm: str
    own: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from the algorithm's own."""
    problem: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the problem that differ from published.DATA."""


@dataclass(frozen=True)
class Solved:
    """The result of the runs of a variant."""

    cell: Variant
    points: list[list[np.ndarray]]
    """For each seed, the points `[k, 3]` before the first round and after each."""
    seconds: float = 0.0

    def volumes(self, measure: int = EQUATION_3, when: int = -1) -> list[float]:
        """The hypervolume of each seed after a round."""
        return [volume(history[when], measure) for history in self.points]

    def best_volumes(self, measure: int = EQUATION_3) -> list[float]:
        """The best over rounds, of each seed: "the mean and variance of the best results" (section 6.2)."""
        return [max(volume(found, measure) for found in history[1:]) for history in self.points]

    def best(self, column: int) -> np.ndarray:
        """The points `[seeds, 3]` with the smallest error (0) or gap (1)."""
        return np.stack([history[-1][history[-1][:, column].argmin()] for history in self.points])


def volume(points: np.ndarray, measure: int) -> float:
    """The hypervolume of (error rate, gap), from published.REFERENCE on."""
    return hypervolume(points[:, [0, measure]], published.REFERENCE, maximise=False)


# -- which cells ---------------------------------------------------------------------------------------------------


def cells_of(name: str, data: Sequence[str], algorithms: Sequence[str]) -> list[Variant]:
    praffl = published.PRAFFL
    if name == "praffl-fig-8":
        return [
            Variant(f"synthetic-{level}", algorithm, algorithm, problem={"partition": partition})
            for level, partition in published.LEVELS.items()
            for algorithm in algorithms
        ]
    if name == "praffl-fig-9":
        return [
            Variant(each, f"tau_p-{tau}", praffl, own={"head_epochs": tau, "body_epochs": published.EPOCHS - tau})
            for each in data
            for tau in published.HEAD_EPOCHS_TRIED
        ]
    if name == "praffl-fig-10":
        return [Variant(each, praffl, praffl) for each in data if each in ("synthetic", "adult")]
    if name == ABLATION:
        return [
            Variant(each, label, praffl, own, problem) for each in data for label, (own, problem) in ABLATIONS.items()
        ]
    return [Variant(each, algorithm, algorithm) for each in data for algorithm in algorithms]


ABLATIONS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "as reproduced": ({}, {}),
    "loss: tanh": ({}, {"relaxation": "tanh"}),
    "loss: tanh, a tenth of cross entropy": ({}, {"relaxation": "tanh", "regularisation": 0.1}),
    "loss: covariance": ({}, {"relaxation": "covariance"}),
    "g: smooth, as the code": ({"scalarisation": "smooth-tchebycheff"}, {}),
    "g: smooth, covariance, as the code": ({"scalarisation": "smooth-tchebycheff"}, {"relaxation": "covariance"}),
    "g: linear": ({"scalarisation": "linear"}, {}),
    "head: one layer": ({"head_layers": 1}, {}),
    "head: wider hypernetwork": ({"hypernetwork": [16, 16]}, {}),
    "head: all preferences weigh alike": ({"balanced": True}, {}),
    "epochs: 15 and 15": ({"body_epochs": 15, "head_epochs": 15}, {}),
}
"""Changes by name: PraFFL's own parameters, and the problem's."""


def cell_of(options: Options, variant: Variant) -> Cell:
    """A variant as one run with all its seeds."""
    data = variant.data.partition("-")[0]
    problem = {**published.DATA[data], "hidden": list(published.HIDDEN), "test": "own", **published.FAIRNESS}
    problem |= variant.problem
    if data != "synthetic":
        problem["split"] = list(published.SPLIT)
    own = dict(variant.own)
    if variant.algorithm == published.PRAFFL:
        own = {**published.PRAFFL_OWN, **(QUICK_PRAFFL if options.quick else {}), **own}
    seeds = options.seeds or published.SEEDS
    draft = {
        "algorithm": {"name": variant.algorithm, **own},
        "problem": problem,
        "clients": published.CLIENTS[data],
        "rounds": options.rounds,
        "seeds": list(range(seeds)),
        "evaluate_every": options.rounds,
        # Cells run side by side, one to a core.
        "engine": {"name": "local", "threads": 1, "chunk": published.CLIENTS[data] * seeds},
        "learner": {**published.LEARNER, "epochs": 3 if options.quick else published.EPOCHS, "steps": 0},
    }
    label = variant.label.replace(": ", "-").replace(", ", "-").replace(" ", "-")
    return Cell(
        f"praffl/{variant.data}/{label}",
        draft,
        read,
        observer=partial(Pooled, preferences_of(options), BETWEEN),
        called=f"{variant.label} on {variant.data}",
    )


def preferences_of(options: Options) -> int:
    return QUICK_PREFERENCES if options.quick else published.PREFERENCES


def read(run: Run) -> list[list[np.ndarray]]:
    return [[np.array(row[KEY]) for row in run.rows if row["seed"] == seed] for seed in run.spec.seeds]


# -- on the command line -------------------------------------------------------------------------------------------


def prepare(name: str, options: Options) -> PraFFLStudy:
    options.refuse(name, "clients", "preferences")
    options.must_name_parts()
    options = options.sized({"rounds": published.ROUNDS, "seeds": published.SEEDS}, QUICK)
    default = (
        ("synthetic",) if options.quick else ("synthetic", "compas") if name == ABLATION else tuple(published.DATA)
    )
    data = known("data set", options.problems, published.DATA) or default
    algorithms = known("algorithm", options.algorithms, published.ALGORITHMS) or published.ALGORITHMS
    return PraFFLStudy(name, options, cells_of(name, data, algorithms))


@dataclass(frozen=True)
class PraFFLStudy(Study[list[list[np.ndarray]]]):
    """A reproduction, ready to run."""

    variants: list[Variant]

    @property
    def title(self) -> str:
        return self.name

    def size(self) -> list[str]:
        given = self.options
        preferences = f"{preferences_of(given)} preferences"
        return [f"{len(self.variants)} cells", f"{given.rounds} rounds", f"{given.seeds} seeds", preferences]

    def cells(self) -> list[Cell]:
        return [cell_of(self.options, variant) for variant in self.variants]

    def outcome(self, found: Sequence[Found[list[list[np.ndarray]]]], folder: Path) -> Outcome:
        solved = [Solved(variant, one.result, one.seconds) for variant, one in zip(self.variants, found, strict=True)]
        judged = [] if self.options.quick else verdicts(self.name, solved)
        shown = [self.table(solved), *remarks(self, solved), *map(str, judged)]
        return Outcome(as_json(self, solved) | claims_json(judged), shown, draw(self.name, solved, folder))

    def table(self, found: Sequence[Solved]) -> Any:
        """A row for each cell, ours and the published figure side by side where there is one."""
        lines: list[Sequence[str]] = []
        for one in found:
            entry = _entry(self, one) or NOTHING
            lowest, fairest = one.best(0).mean(0), one.best(1).mean(0)
            lines.append(
                (
                    one.cell.data,
                    one.cell.label,
                    _beside(lowest[0], entry.error),
                    _beside(lowest[1], entry.gap),
                    _with_deviation(one.volumes(), entry.hypervolume),
                    _with_deviation(one.best_volumes()),
                    _with_deviation(one.volumes(FROM_ALL)),
                    _beside(one.seconds / 60, entry.minutes, 1),
                )
            )
            if one.cell.algorithm == published.PRAFFL:
                errors, gaps = _beside(fairest[0], entry.fairest_error), _beside(fairest[1], entry.fairest_gap)
                lines.append(("", "  its fairest model", errors, gaps))
        headings = ("error", "ΔDP", "hypervolume", "best round", "by the code's measure", "minutes")
        return table(self.headline, ("data", "algorithm"), headings, lines)


# -- what is shown -------------------------------------------------------------------------------------------------


def _entry(study: PraFFLStudy, found: Solved) -> published.Entry | None:
    """The published entry of a cell; figures show no numbers."""
    if study.name not in (TABLE, "praffl-fig-6", "praffl-fig-7", "praffl-fig-10"):
        return None
    return published.TABLE_1[found.cell.data].get(found.cell.label)


def _beside(ours: float, other: float, digits: int = 3) -> str:
    return f"{ours:.{digits}f}" + ("" if np.isnan(other) else f" ({other:.{digits}f})")


def _with_deviation(values: Sequence[float], other: float = np.nan) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" + ("" if np.isnan(other) else f" ({other:.3f})")


def remarks(study: PraFFLStudy, found: Sequence[Solved]) -> Iterator[str]:
    yield "Error and ΔDP of PraFFL: its model with the smallest error, then its fairest one."
    if any(_entry(study, one) for one in found):
        yield "In brackets: published."
    if study.options.quick:
        yield "This was --quick: too little to compare with what was published."
        return
    for one in found:
        entry = _entry(study, one)
        if entry is not None and one.cell.algorithm == published.PRAFFL:
            ours, best, code = (
                float(np.mean(values)) for values in (one.volumes(), one.best_volumes(), one.best_volumes(FROM_ALL))
            )
            reached = [
                text
                for text, value in (
                    ("at the end", ours),
                    ("in the best round", best),
                    ("in the best round by the measure of the published code", code),
                )
                if value >= entry.hypervolume - 5e-4
            ]
            yield (
                f"PraFFL on {one.cell.data}: {ours:.3f} at the end, {best:.3f} in the best round, {code:.3f} there by "
                f"the code's measure; published {entry.hypervolume:.3f}"
                + (f", reached {reached[0]}" if reached else ", not reached")
            )


def as_json(study: PraFFLStudy, found: Sequence[Solved]) -> dict[str, Any]:
    """The plan, and of each cell the hypervolumes and the last points of every seed."""
    cells = []
    for one in found:
        entry = _entry(study, one)
        cells.append(
            {
                "data": one.cell.data,
                "label": one.cell.label,
                "algorithm": one.cell.algorithm,
                "own": dict(one.cell.own),
                "problem": dict(one.cell.problem),
                "error": one.best(0)[:, 0].tolist(),
                "gap": one.best(0)[:, 1].tolist(),
                "fairest": one.best(1)[:, :2].tolist(),
                "hypervolume": one.volumes(),
                "hypervolume_best_round": one.best_volumes(),
                "hypervolume_by_the_codes_measure": one.volumes(FROM_ALL),
                "hypervolume_over_rounds": [one.volumes(when=i) for i in range(len(one.points[0]))],
                "seconds": one.seconds,
                "published": None if entry is None else {k: v for k, v in vars(entry).items() if not np.isnan(v)},
                "points": [history[-1].tolist() for history in one.points],
            }
        )
    given = study.options
    sizes = {"rounds": given.rounds, "seeds": given.seeds, "preferences": preferences_of(given), "quick": given.quick}
    return {"name": study.name, **sizes, "cells": cells}


def draw(name: str, found: Sequence[Solved], folder: Path) -> list[Path]:
    panels: dict[str, list[Series]] = {}
    for one in found:
        panels.setdefault(one.cell.data, []).append(_series(name, one))
    if name == "praffl-fig-6":
        return save_series(folder, name, panels, "round", "hypervolume")
    panels = {title: _with_dominated(series) for title, series in panels.items()}
    labels = "error rate (lower is better)", "ΔDP (lower is better)"
    return save_series(folder, name, panels, *labels, tone_label="importance of the error")


def _series(name: str, found: Solved) -> Series:
    """A cell in a figure: its hypervolume over rounds, or the last points of its first seed (of others, all seeds')."""
    if name == "praffl-fig-6":
        volumes = np.array([found.volumes(when=i) for i in range(len(found.points[0]))])
        return Series.over_seeds(found.cell.label, np.arange(len(volumes)), volumes.T)
    last = [history[-1][:, :2] for history in found.points]
    if found.cell.algorithm != published.PRAFFL:
        return Series(found.cell.label, np.concatenate(last))
    tones = np.linspace(0, 1, len(last[0])) if name == "praffl-fig-10" else None
    return Series(found.cell.label, last[0], tones=tones)


def _with_dominated(panel: Sequence[Series]) -> list[Series]:
    """Make those points of sets pale that any other point of the panel dominates (PraFFL_d in figure 7)."""
    best = is_nondominated(np.concatenate([series.points for series in panel]), keep_duplicates=True)
    ends = np.cumsum([len(series.points) for series in panel])
    return [
        replace(series, pale=~of_series if len(series.points) > LARGEST_CLOUD else None)
        for series, of_series in zip(panel, np.split(best, ends[:-1]), strict=True)
    ]


# -- the paper's claims, in claims.toml --------------------------------------------------------------------------------


def verdicts(name: str, found: Sequence[Solved]) -> list[Claim]:
    return _Judge({(one.cell.data, one.cell.label): one for one in found}, name).verdicts()


def more(where: str, values: Sequence[float], others: Sequence[float], words: str) -> Part:
    """Compare numbers seed by seed.

    A part holds where the 95 % interval of the paired differences lies above zero, does not hold where their mean is
    not above zero, and in between cannot be judged with so few seeds.
    """
    differences = np.subtract(values, others)
    around = interval(differences)
    mean = float(differences.mean())
    is_sure = around is not None and around.excludes_zero
    holds = None if mean > 0 and not is_sure else mean > 0
    few = "one seed" if differences.size == 1 else "too few seeds that differ"
    width = few if around is None else f"95 % interval {around.low:+.3f} to {around.high:+.3f}"
    return Part(where, holds, f"{words}: {np.mean(values):.3f} less {np.mean(others):.3f}, {width}")


class _Judge(Judge):
    package = "fedpareto_papers.praffl"

    def places(self) -> Iterable[str]:
        return dict.fromkeys(data for data, _ in self.values)

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        return judged(one.what, [part for found in parts.values() for part in found])

    def largest(self, one: Statement, data: str) -> Iterator[Part]:
        volumes = {label: found.volumes() for (place, label), found in self.values.items() if place == data}
        ours = volumes.pop(published.PRAFFL, None)
        if ours is None or not volumes:
            yield Part(data, None, "PraFFL and baselines were not both run")
            return
        best = max(volumes, key=lambda label: float(np.mean(volumes[label])))
        yield more(data, ours, volumes[best], f"PraFFL against {best}")

    def grows(self, one: Statement, data: str) -> Iterator[Part]:
        found = self.values.get((data, published.PRAFFL))
        if found is not None and len(found.points[0]) > 2:
            yield more(data, found.volumes(), found.volumes(when=1), "after the last round against the first")
        elif found is not None:
            yield Part(data, None, "there is one round only")

    def better_than_at_high_heterogeneity(self, one: Statement, level: str) -> Iterator[Part]:
        found, high = (self.values.get((f"synthetic-{each}", published.PRAFFL)) for each in (level, "high"))
        if found is None or high is None:
            yield Part(level, None, "PraFFL was not run on it and on high heterogeneity")
        else:
            yield more(level, found.volumes(), high.volumes(), f"{level} against high")

    def closer_with_fewer_epochs(self, one: Statement, data: str) -> Iterator[Part]:
        few, many = (self.values.get((data, f"tau_p-{epochs(published.HEAD_EPOCHS_TRIED)}")) for epochs in (min, max))
        if few is None or many is None:
            yield Part(data, None, "not all were run")
            return
        words = "least distance to the origin with most epochs against fewest"
        yield more(data, _distances(many), _distances(few), words)


def _distances(found: Solved) -> list[float]:
    return [float(np.linalg.norm(history[-1][:, :2], axis=1).min()) for history in found.points]
