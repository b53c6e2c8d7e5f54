"""Clusters of clients over rounds, in FedPref (section 4.3.5 of the thesis) and in CFL (section A.2.2.3).

FedPref: a few distinct preferences, each held by several clients. The thesis shows similarity matrices and clusters of
single runs; beside them we measure how far the clusters are the groups of equal clients, by the adjusted Rand index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto_papers.catalogue import Options, Outcome
from fedpareto_papers.claims import Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.figures import Series, save, save_series
from fedpareto_papers.study import Cell, Found, Study, claims_json, save_json, table
from fedpareto_papers.thesis.morl import published, runs
from fedpareto_papers.thesis.morl.published import ENVIRONMENTS
from fedpareto_papers.thesis.morl.runs import Returns, Training

CFL = "thesis-cfl"
QUICK_GROUPS = {"balanced": "2,2,2", "unbalanced": "1,2,3"}
SEPARATED_BY = 16
"""Section 4.3.5: on MO-LL all groups are clusters of their own after this round."""
RARELY = 0.5
"""CFL's clustering is "rarely triggered" where less than this share of the seeds has more than one cluster."""


def prepare(name: str, options: Options) -> Clusters:
    options.refuse(name, "rounds", "algorithms", "preferences", *(() if name == CFL else ("clients",)))
    options = runs.sized(options)
    chosen = runs.environments(options.problems, default=("dst",))
    if name == CFL:
        return Clusters(name, options, {(each, "Dirichlet"): Training(each, "dirichlet", "cfl") for each in chosen})
    options = replace(options, clients=None)  # The groups define the number of clients.
    trainings = {
        (each, kind): Training(each, f"groups:{sizes}", "fedpref")
        for each in chosen
        for kind, sizes in (QUICK_GROUPS if options.quick else _groups(each)).items()
    }
    return Clusters(name, options, trainings)


def _groups(environment: str) -> dict[str, str]:
    found = ENVIRONMENTS[environment]
    return {"balanced": found.balanced, "unbalanced": found.unbalanced}


@dataclass(frozen=True)
class History:
    """The clusters of one training over rounds."""

    environment: str
    kind: str
    """balanced, unbalanced, or the distribution."""
    record: Record
    groups: list[int]
    """The group of each client; empty where no two clients are equal."""

    @property
    def rounds(self) -> list[int]:
        """After which clusters are known, 0 being the beginning."""
        return sorted(self.record.clusters(self.record.started[0]))

    def over_rounds(self, measure: Callable[[Sequence[Sequence[int]]], float]) -> np.ndarray:
        """A figure of the clusters, `[seeds, rounds]`."""
        histories = [self.record.clusters(seed) for seed in self.record.started]
        return np.array([[measure(history[r]) for r in self.rounds] for history in histories])

    def agreement(self) -> np.ndarray:
        return self.over_rounds(lambda clusters: rand_index(self.groups, labels(clusters, len(self.groups))))

    @property
    def shown(self) -> list[int]:
        """The thesis's rounds, or rounds at the same share of a run that is shorter."""
        rounds, of = published.SHOWN[self.environment, self.kind]
        last = self.rounds[-1]
        return sorted({r if max(rounds) <= last else max(1, round(r * last / of)) for r in rounds})


@dataclass(frozen=True)
class Clusters(Study[Returns]):
    """Either study, ready to run."""

    trainings: Mapping[tuple[str, str], Training]
    """Trainings by environment and kind."""

    def size(self) -> list[str]:
        return [f"{len(self.trainings)} trainings", runs.words(self.options)]

    def cells(self) -> list[Cell]:
        return [runs.cell_of(self.options, training) for training in self.trainings.values()]

    def outcome(self, found: Sequence[Found[Returns]], folder: Path) -> Outcome:
        histories = [
            _history(*key, training, reading.load(one.folder))
            for (key, training), one in zip(self.trainings.items(), found, strict=True)
        ]
        of_cfl = self.name == CFL
        lines = [summary(one) | ({} if of_cfl else grouping(one)) for one in histories]
        files = draw_sizes(histories, folder) if of_cfl else draw_groups(histories, folder)
        claims = [] if self.options.quick else verdicts(self.name, histories)
        rounds = {f"{one.environment} {one.kind}": _by_round(one) for one in histories}
        record = {
            "name": self.name,
            "plan": runs.plan(self.options),
            "clusters": lines,
            "over_rounds": rounds,
            **claims_json(claims),
        }
        columns = list(dict.fromkeys(key for line in lines for key in line))
        shown = table(self.headline, columns, (), [[_text(line.get(key)) for key in columns] for line in lines])
        return Outcome(
            record, [shown, *_remarks(self), *map(str, claims)], [*files, *save_json(folder, self.name, record)]
        )


def _history(environment: str, kind: str, training: Training, record: Record) -> History:
    sizes = training.preferences.partition("groups:")[2]
    groups = [number for number, size in enumerate(sizes.split(",")) for _ in range(int(size))] if sizes else []
    return History(environment, kind, record, groups)


# -- measures ------------------------------------------------------------------------------------------------------


def labels(clusters: Sequence[Sequence[int]], clients: int) -> list[int]:
    of_client = {client: number for number, cluster in enumerate(clusters) for client in cluster}
    return [of_client[client] for client in range(clients)]


def rand_index(one: Sequence[int], other: Sequence[int]) -> float:
    """The adjusted Rand index of two partitions (Hubert and Arabie 1985): 1 if they are the same, 0 if random."""
    both = np.zeros((max(one) + 1, max(other) + 1), dtype=int)
    np.add.at(both, (np.asarray(one), np.asarray(other)), 1)
    together, first, second = (
        sum(comb(int(count), 2) for count in counts) for counts in (both.ravel(), both.sum(axis=1), both.sum(axis=0))
    )
    expected = first * second / comb(len(one), 2)
    largest = (first + second) / 2
    return 1.0 if largest == expected else (together - expected) / (largest - expected)


MEASURES: Mapping[str, Callable[[Sequence[Sequence[int]]], float]] = {
    "clusters": len,
    "largest cluster": lambda clusters: max(len(cluster) for cluster in clusters),
    "clusters of one client": lambda clusters: sum(len(cluster) == 1 for cluster in clusters),
}
"""Figures of the clusters after a round."""


def summary(history: History) -> dict[str, Any]:
    """The sizes at the end, and when the first split came; means over the seeds."""
    counts = history.over_rounds(MEASURES["clusters"])
    cut = counts > 1
    first = [history.rounds[int(of_seed.argmax())] for of_seed in cut if of_seed.any()]
    return {
        "environment": ENVIRONMENTS[history.environment].title,
        "clients": history.kind,
        "seeds that cut": f"{int(cut.any(axis=1).sum())} of {len(cut)}",
        "first cut in round": float(np.mean(first)) if first else None,
        **{
            f"{name} at the end": float(history.over_rounds(measure)[:, -1].mean())
            for name, measure in MEASURES.items()
        },
    }


def grouping(history: History) -> dict[str, Any]:
    """Agreement of the clusters with the groups, after the thesis's rounds and at the end."""
    index, rounds = history.agreement(), history.rounds
    exact = index == 1
    when = [rounds[int(of_seed.argmax())] for of_seed in exact if of_seed.any()]
    at = {f"Rand index, {place}": _spread(index[:, rounds.index(r)]) for place, r in _places(history)}
    found = f"{len(when)} of {len(index)}" + (f", after {np.mean(when):.1f} rounds" if when else "")
    return at | {"Rand index, at the end": _spread(index[:, -1]), "seeds with exactly the groups": found}


def _places(history: History) -> list[tuple[str, int]]:
    """The rounds that are shown; the columns of a table need the same words for all environments."""
    return list(zip(("early", "middle", "late"), history.shown, strict=False))


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std():.2f}"


def _by_round(history: History) -> dict[str, Any]:
    """For JSON: `[seeds, rounds]` each."""
    found: dict[str, Any] = {"rounds": history.rounds}
    found |= {name: history.over_rounds(measure).tolist() for name, measure in MEASURES.items()}
    return found | ({"rand_index": history.agreement().tolist()} if history.groups else {})


# -- the claims ----------------------------------------------------------------------------------------------------


def verdicts(name: str, histories: Sequence[History]) -> list[Claim]:
    """The claims about a study, as far as something was run for them."""
    return _Judge({f"{one.environment} {one.kind}": one for one in histories}, name).verdicts()


class _Judge(Judge):
    package = "fedpareto_papers.thesis.morl"

    def verdicts(self) -> list[Claim]:
        return [claim for claim in super().verdicts() if claim.detail]

    def places(self) -> Iterable[str]:
        return self.values

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        return judged(one.what, [part for found in parts.values() for part in found])

    def groups_found(self, one: Statement, place: str) -> Iterator[Part]:
        history = self.values.get(place)
        if history is not None and history.rounds[-1] >= SEPARATED_BY:
            exact = (history.agreement()[:, history.rounds.index(SEPARATED_BY)] == 1).tolist()
            yield from (Part(f"seed {seed}", holds, "") for seed, holds in enumerate(exact))

    def rarely_cuts(self, one: Statement, place: str) -> Iterator[Part]:
        history = self.values.get(place)
        if history is not None:
            cut = history.over_rounds(MEASURES["clusters"])[:, -1] > 1
            detail = f"{int(cut.sum())} of {len(cut)} seeds"
            yield Part(ENVIRONMENTS[history.environment].title, bool(cut.mean() < RARELY), detail)

    def cuts_unevenly(self, one: Statement, place: str) -> Iterator[Part]:
        history = self.values[place]
        cut = history.over_rounds(MEASURES["clusters"])[:, -1] > 1
        if cut.any():
            single = history.over_rounds(MEASURES["clusters of one client"])[cut, -1] > 0
            detail = f"{int(single.sum())} of the {len(single)} seeds that cut"
            yield Part(ENVIRONMENTS[history.environment].title, bool(single.mean() >= RARELY), detail)


# -- what is shown -------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _remarks(study: Clusters) -> list[str]:
    lines = ["Means over the seeds; ± is the deviation (population)."]
    if study.name != CFL:
        lines.append(
            "The adjusted Rand index is 1 where the clusters are the groups of equal clients, 0 if they are random. "
            "Early, middle and late are the rounds whose matrices are drawn, of the first seed."
        )
    return [*lines, *(["This was --quick: too little to check the thesis's claims."] if study.options.quick else [])]


def draw_groups(histories: Sequence[History], folder: Path) -> list[Path]:
    """Draw similarity matrices and clusters of each training's first seed, and the Rand index of all over rounds."""
    from fedpareto.report.figures import cluster_evolution, similarity_matrices

    files = []
    for one in histories:
        name = f"thesis-clusters-{one.environment}-{one.kind}"
        matrices = similarity_matrices(one.record, None, one.shown, by_cluster=False)
        files += save(folder, f"{name}-similarity", matrices)
        files += save(folder, f"{name}-clusters", cluster_evolution(one.record))
    panels: dict[str, list[Series]] = {}
    for one in histories:
        line = Series.over_seeds(one.kind, one.rounds, one.agreement())
        panels.setdefault(ENVIRONMENTS[one.environment].title, []).append(line)
    return files + save_series(folder, "thesis-clusters-rand-index", panels, "round", "adjusted Rand index")


def draw_sizes(histories: Sequence[History], folder: Path) -> list[Path]:
    """Draw the number of clusters, the size of the largest, and the number of clients alone, over rounds."""
    panels = {
        ENVIRONMENTS[one.environment].title: [
            Series.over_seeds(name, one.rounds, one.over_rounds(measure)) for name, measure in MEASURES.items()
        ]
        for one in histories
    }
    return save_series(folder, CFL, panels, "round", "count, mean over seeds")
