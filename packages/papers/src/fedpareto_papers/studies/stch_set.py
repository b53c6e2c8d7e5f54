"""The three small problems of STCH-Set, on which FedFew's scalarisation was first tried, and its six methods.

Lin et al., "Few for many: Tchebycheff set scalarization for many-objective optimization", 2025. Nothing federated: K
solutions for m losses by plain descent. Every seed draws another problem, and all seeds descend side by side: solutions
are `[seeds, K, d]`, losses `[seeds, m, K]`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.campaigns.parallel import Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.config.interrupts import Stopped
from fedpareto.moo import scalarise
from fedpareto.moo.set_scalarise import smooth_tchebycheff_set
from fedpareto.tensors import rng
from fedpareto_papers.catalogue import Options, Outcome, Say, json_text, known
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.study import Study, claims_json, save_json, table

STEPS, STEP_SIZE, WARM_UP = 10_000, 0.01, 100
"""Numbers of the published code."""
DIMENSIONS, HIDDEN = 10, 5
SMOOTH_MU = 0.01
"""μ of STCH, which has one preference for each solution."""
LOOKS_EVERY = 100
"""Steps between two checks whether to stop."""


@dataclass(frozen=True)
class Family:
    """A family of problems; every seed draws another one."""

    about: str
    losses: int
    """m."""
    solutions: int
    """K, also the number of true models behind a mixed regression."""
    noise: float
    """σ of the targets of a mixed regression."""
    adaptive: bool
    """Steps are Adam's."""
    mu: Callable[[int], float]
    """μ of STCH-Set in a step."""


FAMILIES: Mapping[str, Family] = {
    "quadratic": Family("random convex quadratic functions", 128, 5, 0.0, False, lambda step: 0.1),
    "linear": Family("mixed linear regression", 1000, 5, 0.1, False, lambda step: 0.1),
    "nonlinear": Family("mixed non-linear regression", 1000, 10, 1.0, True, lambda step: math.exp(-3e-4 * step)),
}

SET_METHODS = ("stch-set", "tch-set", "som")
"""Methods with one set for all losses; the others give each solution its own random preference."""
METHODS = (*SET_METHODS, "stch", "tch", "ls")
TITLES: Mapping[str, str] = {
    "stch-set": "STCH-Set",
    "tch-set": "TCH-Set",
    "som": "SoM",
    "stch": "STCH",
    "tch": "TCH",
    "ls": "LS",
}


# -- the problems --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    """A problem of each seed, and its initial solutions."""

    losses: Callable[[Tensor], Tensor]
    """From solutions `[seeds, K, d]` to losses `[seeds, m, K]`."""
    begin: Tensor
    preferences: Tensor
    """`[seeds, K, m]`, uniform on the simplex."""


def draw(name: str, seeds: Sequence[int], losses: int = 0, solutions: int = 0, device: str = "cpu") -> Instance:
    """The problems of a family, with the family's own numbers of losses and solutions where these are 0."""
    family = FAMILIES[name]
    m, K = losses or family.losses, solutions or family.solutions
    make = {"quadratic": _quadratic, "linear": _linear, "nonlinear": _nonlinear}[name]
    drawn = [make(rng.generator(rng.Address(seed), f"stch-set {name}"), m, K, family.noise) for seed in seeds]
    inputs, targets, begin, preferences = (
        torch.as_tensor(np.stack(part), dtype=torch.float32, device=device) for part in zip(*drawn, strict=True)
    )
    predict = _network if name == "nonlinear" else _plane
    return Instance(lambda x: (predict(x, inputs) - targets[..., None]) ** 2, begin, preferences)


Drawn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Inputs `[m, d]`, targets `[m]`, initial solutions and preferences."""


def _quadratic(stream: np.random.Generator, m: int, K: int, noise: float) -> Drawn:
    """(a·x − b)² with a in [−1, 1]^d and b in [−2, 2]."""
    a = stream.uniform(-1, 1, (m, DIMENSIONS))
    b = stream.uniform(-2, 2, m)
    return a, b, stream.uniform(0, 1, (K, DIMENSIONS)), stream.dirichlet(np.ones(m), K)


def _linear(stream: np.random.Generator, m: int, K: int, noise: float) -> Drawn:
    """Draw the same losses with b = a·c + noise, c one of K hidden vectors in [−2, 2]^d."""
    hidden = stream.uniform(-2, 2, (K, DIMENSIONS))[np.arange(m) % K]
    a = stream.uniform(-1, 1, (m, DIMENSIONS))
    b = (a * hidden).sum(axis=1) + noise * stream.standard_normal(m)
    return a, b, stream.uniform(0, 1, (K, DIMENSIONS)), stream.dirichlet(np.ones(m), K)


def _nonlinear(stream: np.random.Generator, m: int, K: int, noise: float) -> Drawn:
    """Draw the same with one of K hidden networks instead of a hidden vector."""
    size = HIDDEN * (DIMENSIONS + 2) + 1
    hidden, a = stream.standard_normal((K, size)), stream.standard_normal((m, DIMENSIONS))
    outputs = _network(torch.as_tensor(hidden[None]), torch.as_tensor(a[None]))[0].numpy()
    b = outputs[np.arange(m), np.arange(m) % K] + noise * stream.standard_normal(m)
    return a, b, stream.standard_normal((K, size)), stream.dirichlet(np.ones(m), K)


def _plane(x: Tensor, inputs: Tensor) -> Tensor:
    """a·x, `[seeds, m, K]`."""
    return inputs @ x.transpose(1, 2)


def _network(x: Tensor, inputs: Tensor) -> Tensor:
    """One hidden layer, p·relu(W a + q) + o, its parameters one after the other in x: `[seeds, m, K]`."""
    seeds, K, _ = x.shape
    weights, p, q, o = torch.split(x, [HIDDEN * DIMENSIONS, HIDDEN, HIDDEN, 1], dim=2)
    layer = inputs @ weights.reshape(seeds, K * HIDDEN, DIMENSIONS).transpose(1, 2) + q.reshape(seeds, 1, -1)
    units = torch.relu(layer) * p.reshape(seeds, 1, -1)
    return units.reshape(seeds, -1, K, HIDDEN).sum(dim=3) + o.transpose(1, 2)


# -- the methods ---------------------------------------------------------------------------------------------------


def value(method: str, losses: Tensor, preferences: Tensor, mu: float) -> Tensor:
    """The value that a method minimises, summed over seeds, which are independent."""
    each = losses.transpose(1, 2)
    if method == "stch-set":
        equal = losses.new_ones(losses.shape[1])
        return torch.vmap(lambda of_seed: smooth_tchebycheff_set(of_seed, equal, mu))(losses).sum()
    if method == "tch-set":
        return losses.amin(dim=2).amax(dim=1).sum()
    if method == "som":
        return losses.amin(dim=2).mean(dim=1).sum()
    if method == "stch":
        return scalarise.smooth_tchebycheff(each, preferences, mu=SMOOTH_MU).sum()
    if method == "tch":
        return scalarise.tchebycheff(each, preferences).sum()
    return scalarise.linear(each, preferences).sum()


class ScheduleFree:
    """Defazio et al., "The road less scheduled", 2024: z descends along gradients at y, x is the average of z.

    Each has all the seeds' solutions. With `adaptive` the gradient is divided by Adam's second moment.
    """

    pull, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, begin: Tensor, adaptive: bool) -> None:
        self.x, self.z = begin.clone(), begin.clone()
        self.second = torch.zeros_like(begin) if adaptive else None
        self.steps, self.weights = 0, 0.0

    @property
    def y(self) -> Tensor:
        """The place of the next gradient."""
        return torch.lerp(self.z, self.x, self.pull)

    def step(self, gradient: Tensor) -> None:
        """One step, a small one while it warms up."""
        self.steps += 1
        size = STEP_SIZE * min(1.0, self.steps / WARM_UP)
        if self.second is not None:
            self.second.lerp_(gradient**2, 1 - self.beta2)
            gradient = gradient / (self.second.sqrt() + self.epsilon)
            size *= math.sqrt(1 - self.beta2**self.steps)
        self.z = self.z - size * gradient
        self.weights += size**2
        self.x = torch.lerp(self.x, self.z, size**2 / self.weights)


@dataclass(frozen=True)
class Served:
    """The quality of sets of solutions: of each seed the worst and the mean of min_k."""

    worst: list[float]
    mean: list[float]


def served(losses: Tensor) -> Served:
    """From losses `[seeds, m, K]`."""
    least = losses.amin(dim=2)
    return Served(least.amax(dim=1).tolist(), least.mean(dim=1).tolist())


def descend(
    name: str, method: str, instance: Instance, steps: int = STEPS, stop: Callable[[], bool] = lambda: False
) -> Served:
    """The quality of the solutions after `steps` steps of a method."""
    family = FAMILIES[name]
    path = ScheduleFree(instance.begin, family.adaptive)
    for step in range(steps):
        if step % LOOKS_EVERY == 0 and stop():
            raise Stopped(f"stopped in step {step} of {method} on {name}")
        y = path.y.requires_grad_()
        total = value(method, instance.losses(y), instance.preferences, family.mu(step))
        (gradient,) = torch.autograd.grad(total, y)
        path.step(gradient)
    return served(instance.losses(path.x))


# -- the study ---------------------------------------------------------------------------------------------------------


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
    sizes = {"seeds": SEEDS, "rounds": STEPS}, {"seeds": QUICK_SEEDS, "rounds": QUICK_STEPS}
    return Descents(name, replace(options.sized(*sizes), settings=()), keys, device)


@dataclass(frozen=True)
class Descents(Study[Served]):
    """The study, ready to run: its cells are descents, not runs. The rounds are steps."""

    keys: list[Key]
    device: str

    def size(self) -> list[str]:
        descents = f"{len(self.keys)} descents of {self.options.rounds} steps"
        return [descents, f"{self.options.seeds} problems each"]

    def own(self, key: Key) -> str:
        """The file of a descent."""
        return f"{self.name}/{key[0]}/{key[1]}.json"

    @property
    def plan(self) -> dict[str, Any]:
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
        record = {"name": self.name, **self.plan, "rows": rows, **claims_json(judgements)}
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
    file, size = folder / study.own(key), study.plan
    if file.exists():
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if held["plan"] != size:
            raise UserError(f"{file} is of {held['plan']}, not {size}; choose another --out")
        return Served(**held["served"])
    instance = draw(problem, range(size["seeds"]), device=study.device)
    found = descend(problem, method, instance, size["steps"], stop)
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
