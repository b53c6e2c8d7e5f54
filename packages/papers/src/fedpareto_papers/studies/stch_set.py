"""The three small problems of STCH-Set (Lin et al., 2025), on which FedFew's scalarisation was first tried.

Nothing federated: K solutions for m losses by descent on six scalarisations. Every seed draws another problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.studies import set_descent
from fedpareto_papers.studies.set_descent import FAMILIES, METHODS, STEPS, TITLES, Served

if TYPE_CHECKING:
    from rich.table import Table

SEEDS = 10
QUICK_SEEDS, QUICK_STEPS = 2, 300
DEVICE = "engine.device="
Key = tuple[str, str]
"""Problem and method."""


def prepare(name: str, options: Options) -> Study:
    """The study, with what the user chose."""
    options.refuse(name, "rounds", "clients", "preferences")
    device = "cpu"
    for text in options.settings:
        if not text.replace(" ", "").startswith(DEVICE):
            raise UserError(f"--set {text}: {name} has no such parameter; the one there is: engine.device=cuda")
        device = text.replace(" ", "").removeprefix(DEVICE)
    chosen = known("problem of STCH-Set", options.problems, FAMILIES) or tuple(FAMILIES)
    methods = known("method", options.algorithms, METHODS) or METHODS
    keys = [(problem, method) for problem in FAMILIES for method in METHODS if problem in chosen and method in methods]
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    return Study(
        name, keys, seeds, QUICK_STEPS if options.quick else STEPS, device, options.jobs, is_quick=options.quick
    )


@dataclass(frozen=True)
class Study:
    """The study, ready to run."""

    name: str
    keys: list[Key]
    seeds: int
    steps: int
    device: str
    jobs: Jobs
    is_quick: bool

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.is_quick else ""
        size = f"{len(self.keys)} descents of {self.steps} steps, {self.seeds} problems each"
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {size}"

    def own(self, key: Key) -> str:
        """The file of a descent."""
        return f"{self.name}/{key[0]}/{key[1]}.json"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The descents that are not in the folder yet, a table, and the verdicts on the claims."""
        found: dict[Key, Served] = {}
        pieces = Pieces(partial(kept, self), self.keys, folder, self.own)
        for number, one in side_by_side(pieces, self.jobs, stop):
            found[self.keys[number]] = one
            say(f"{len(found)} of {len(self.keys)}, {' '.join(self.keys[number])}")
        found = {key: found[key] for key in self.keys}
        judgements = [] if self.is_quick else verdicts(found)
        record = {
            "name": self.name,
            "seeds": self.seeds,
            "steps": self.steps,
            "rows": [{"problem": key[0], "method": key[1], **asdict(one)} for key, one in found.items()],
            "claims": [asdict(claim) for claim in judgements],
        }
        file = folder / f"{self.name}.json"
        write_atomically(file, json_text(record))
        return Outcome(record, [table(self, found), *remarks(self), *map(str, judgements)], [file])


def kept(study: Study, folder: Path, key: Key, stop: Callable[[], bool]) -> Served:
    """The result of a method on a problem: read from the folder, or computed now and written there."""
    problem, method = key
    file = folder / study.own(key)
    plan = {"seeds": study.seeds, "steps": study.steps}
    if file.exists():
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if held["plan"] != plan:
            raise UserError(f"{file} is of {held['plan']}, not {plan}; choose another --out")
        return Served(**held["served"])
    instance = set_descent.draw(problem, range(study.seeds), device=study.device)
    found = set_descent.descend(problem, method, instance, study.steps, stop)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json_text({"plan": plan, "served": asdict(found)}))
    return found


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: Study, found: Mapping[Key, Served]) -> Table:
    """Worst and mean of min_k, mean and deviation over the problems."""
    from rich.table import Table

    shown = Table("problem", "method", title=study.headline)
    shown.add_column("worst loss", justify="right")
    shown.add_column("mean loss", justify="right")
    last = None
    for (problem, method), one in found.items():
        if last not in (None, problem):
            shown.add_section()
        last = problem
        shown.add_row(problem, TITLES[method], *(_spread(values) for values in (one.worst, one.mean)))
    return shown


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3g} ± {np.std(values):.2g}"


def remarks(study: Study) -> Iterator[str]:
    """How to read the table."""
    yield (
        "A loss is that of the best of the K solutions for it. The published tables are not at hand, so the claims are "
        "all there is to compare with."
    )
    if study.is_quick:
        yield "This was --quick: too few steps to judge the claims."


def verdicts(found: Mapping[Key, Served]) -> list[Claim]:
    """The paper's conclusions (claims.toml), checked on means over the problems."""
    measures = ("worst", "mean")
    return _Judge(
        {(of, *key): float(np.mean(getattr(one, of))) for key, one in found.items() for of in measures}
    ).verdicts()


class _Judge(Judge):
    package = "fedpareto_papers.studies"
    lower_is_better = ("worst", "mean")

    def places(self) -> Iterable[str]:
        return dict.fromkeys(problem for _, problem, _ in self.values)

    def name(self, name: str) -> str:
        return TITLES[name]

    def number(self, at: At, value: float) -> str:
        return f"{value:.3g}"

    def unknown(self, one: Statement, missing: Iterable[str]) -> str:
        return f"{TITLES[one.better[0]]} and others were not both run"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        every = [part for found in parts.values() for part in found]
        return judged(one.what, every) if every else ("cannot be judged", "nothing was run")
