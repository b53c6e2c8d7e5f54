"""The three small problems of STCH-Set (Lin et al., 2025), on which FedFew's scalarisation was first tried.

Nothing federated: K solutions for m losses by descent on six scalarisations. Every seed draws another problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.parallel import Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.studies import set_descent
from fedpareto_papers.studies.set_descent import FAMILIES, METHODS, STEPS, TITLES, Served
from fedpareto_papers.study import claims_json, save_json, table

SEEDS = 10
QUICK_SEEDS, QUICK_STEPS = 2, 300
DEVICE = "engine.device="
Key = tuple[str, str]
"""Problem and method."""


def prepare(name: str, options: Options) -> Descents:
    options.refuse(name, "rounds", "clients", "preferences")
    device = "cpu"
    for text in options.settings:
        if not text.replace(" ", "").startswith(DEVICE):
            raise UserError(f"--set {text}: {name} has no such parameter; the one there is: engine.device=cuda")
        device = text.replace(" ", "").removeprefix(DEVICE)
    chosen = known("problem of STCH-Set", options.problems, FAMILIES) or tuple(FAMILIES)
    methods = known("method", options.algorithms, METHODS) or METHODS
    keys = [(problem, method) for problem in FAMILIES for method in METHODS if problem in chosen and method in methods]
    options = options.sized({"seeds": SEEDS, "rounds": STEPS}, {"seeds": QUICK_SEEDS, "rounds": QUICK_STEPS})
    return Descents(name, options, keys, device)


@dataclass(frozen=True)
class Descents:
    """The study, ready to run: its cells are descents, not runs. The rounds are steps."""

    name: str
    options: Options
    keys: list[Key]
    device: str

    @property
    def headline(self) -> str:
        """Title and size."""
        quick = "QUICK VERSION of " if self.options.quick else ""
        size = f"{len(self.keys)} descents of {self.options.rounds} steps, {self.options.seeds} problems each"
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {size}"

    def own(self, key: Key) -> str:
        """The file of a descent."""
        return f"{self.name}/{key[0]}/{key[1]}.json"

    @property
    def size(self) -> dict[str, Any]:
        """The size as JSON values."""
        return {"seeds": self.options.seeds, "steps": self.options.rounds}

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """Run the descents that are not in the folder yet, and make a table and the verdicts on the claims."""
        found: dict[Key, Served] = {}
        pieces = Pieces(partial(kept, self), self.keys, folder, self.own)
        for number, one in side_by_side(pieces, self.options.jobs, stop):
            found[self.keys[number]] = one
            say(f"{len(found)} of {len(self.keys)}, {' '.join(self.keys[number])}")
        found = {key: found[key] for key in self.keys}
        judgements = [] if self.options.quick else verdicts(found)
        rows = [{"problem": key[0], "method": key[1], **asdict(one)} for key, one in found.items()]
        record = {"name": self.name, **self.size, "rows": rows, **claims_json(judgements)}
        lines = [
            (problem, TITLES[method], _spread(one.worst), _spread(one.mean)) for (problem, method), one in found.items()
        ]
        shown = [table(self.headline, ("problem", "method"), ("worst loss", "mean loss"), lines, section=1), REMARK]
        if self.options.quick:
            shown.append("This was --quick: too few steps to judge the claims.")
        return Outcome(record, [*shown, *map(str, judgements)], save_json(folder, self.name, record))


REMARK = (
    "A loss is that of the best of the K solutions for it. The published tables are not at hand, so the claims are all "
    "there is to compare with."
)


def kept(study: Descents, folder: Path, key: Key, stop: Callable[[], bool]) -> Served:
    """The result of a method on a problem: read from the folder, or computed now and written there."""
    problem, method = key
    file, size = folder / study.own(key), study.size
    if file.exists():
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if held["plan"] != size:
            raise UserError(f"{file} is of {held['plan']}, not {size}; choose another --out")
        return Served(**held["served"])
    instance = set_descent.draw(problem, range(size["seeds"]), device=study.device)
    found = set_descent.descend(problem, method, instance, size["steps"], stop)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json_text({"plan": size, "served": asdict(found)}))
    return found


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3g} ± {np.std(values):.2g}"


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
