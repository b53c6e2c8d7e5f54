"""Figure 5.1 of L. M. Hartmann's thesis: Multi-MNIST under opposed preferences, without a federation and in one.

Section A.3.1: two clients with opposed preferences, [(0, 1), (1, 0)], [(0.1, 0.9), (0.9, 0.1)] …, ten such
configurations, each run five times; FedAvg against training alone, with the same hyper-parameters. The thesis
concludes from its figure that "federated results outperform non-federated ones" and show no trade-off. What that means
here is said in `Verdict`. A federation of two has seen twice as many images as either client alone; the experiment
does not separate this advantage from that of opposed preferences.

The thesis does not give everything. What is missing is a named constant below. Every run is an ordinary run folder, so
a stopped experiment can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, side_by_side
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.moo import preferences
from fedpareto.moo.dominance import dominates, front
from fedpareto.moo.indicators import hypervolume
from fedpareto.record import reading
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, Outcome, Say

NAME = "thesis-fig-5.1"
CLIENTS, CONFIGURATIONS, RUNS = 2, 10, 5
"""Section A.3.1."""
ALGORITHMS = {"non-federated": "local", "federated": "fedavg"}
"""Section A.3.1, left and right in the figure."""
NETWORK = "strided"
"""Not given beyond "a shared block, followed by individual model segments for each task" (section 5.1); a LeNet whose
convolutions have stride 2, so that 200 models train on two cores in a quarter of an hour.
"""
SAMPLES, TEST_SAMPLES = 3_000, 1_000
"""Not given. Images of both clients together, for the same reason; few enough that a client alone is not at its best,
or there would be nothing to gain in a federation."""
ROUNDS, STEPS = 15, 30
"""Not given. 19 passes over a client's images."""
BATCH_SIZE, OPTIMISER, LR = 64, "adam", 0.002
"""Not given. The best of three step sizes (1e-3, 2e-3, 4e-3) for training alone under (0.5, 0.5), chosen on test
images of one seed; FedAvg under (0.5, 0.5) did better with 4e-3.
"""
REFERENCE = (0.0, 0.0)
"""Of the hypervolume; as everywhere in chapter 5."""

QUICK_CONFIGURATIONS, QUICK_RUNS, QUICK_SAMPLES, QUICK_TEST_SAMPLES, QUICK_ROUNDS = 3, 2, 2_000, 600, 6
"""About a minute: enough to see that everything works, not to check the claim."""

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"


@dataclass(frozen=True)
class Plan:
    """How large the experiment is."""

    configurations: int = CONFIGURATIONS
    repetitions: int = RUNS
    """Runs of every configuration, each with its own seed: other images, another initial model."""
    rounds: int = ROUNDS
    samples: int = SAMPLES
    test_samples: int = TEST_SAMPLES
    quick: bool = False
    device: str = "cpu"
    settings: tuple[str, ...] = ()
    """Parameters of every run that the user set, such as engine.device=cuda."""

    @classmethod
    def make(
        cls,
        *,
        quick: bool = False,
        configurations: int | None = None,
        repetitions: int | None = None,
        rounds: int | None = None,
        samples: int | None = None,
        test_samples: int | None = None,
        device: str = "cpu",
        settings: tuple[str, ...] = (),
    ) -> Plan:
        """The thesis's values (or our choices), or a quick version's, where nothing else is set."""
        usual = cls()
        if quick:
            usual = cls(QUICK_CONFIGURATIONS, QUICK_RUNS, QUICK_ROUNDS, QUICK_SAMPLES, QUICK_TEST_SAMPLES)
        sizes = {
            "configurations": configurations,
            "repetitions": repetitions,
            "rounds": rounds,
            "samples": samples,
            "test_samples": test_samples,
        }
        for key, value in sizes.items():
            if value is not None and value < 1:
                raise UserError(f"{key} is {value}; at least 1 is needed")
        chosen = {key: getattr(usual, key) if value is None else value for key, value in sizes.items()}
        return cls(**chosen, quick=quick, device=device, settings=settings)

    @property
    def preferences(self) -> list[list[list[float]]]:
        """Of each configuration the two clients': (i/k, 1 − i/k) and its opposite, for i = 0 … k − 1."""
        return [[weights, weights[::-1]] for weights in preferences.sweep(self.configurations, 2).tolist()]


@dataclass(frozen=True)
class Point:
    """One client of one configuration: the accuracies on its test images."""

    configuration: int
    client: int
    preference: list[float]
    """Of (left, right)."""
    runs: list[list[float]]
    """(left, right) of each run."""
    mean: list[float]
    """Over the runs."""
    deviation: list[float]
    """Over the runs (population)."""


@dataclass(frozen=True)
class Side:
    """One half of the figure."""

    title: str
    algorithm: str
    points: list[Point]
    front: list[list[float]]
    """Of the points' means."""
    hypervolume: float
    """Of that front."""
    hypervolumes: list[float]
    """Of each run's own front."""
    extent: list[float]
    """The front's range in each accuracy: the visible trade-off."""


@dataclass(frozen=True)
class Verdict:
    """Whether federated results outperform non-federated ones; points are means over the runs.

    The claim holds if every point of the non-federated front is dominated by some federated point, whatever its
    configuration; it holds in part if some are.
    """

    verdict: str
    dominated: int
    """Points of the non-federated front that some federated point dominates."""
    of: int
    """Points of the non-federated front."""
    dominated_share: float
    reverse: int
    """Points of the federated front that some non-federated point dominates."""
    reverse_of: int
    """Points of the federated front."""
    same_configuration: int
    """Configurations in which each client alone is dominated by a federated point of that very configuration: the
    strictest reading, in which the federation with equal preferences does not help the others."""
    configurations: int
    hypervolume_difference: float
    """Federated − non-federated."""

    @property
    def holds(self) -> bool:
        """Whether it holds without reservation."""
        return self.verdict == HOLDS


@dataclass(frozen=True)
class Result:
    """Both halves of the figure, and the verdict."""

    non_federated: Side
    federated: Side
    verdict: Verdict


@dataclass(frozen=True)
class Step:
    """One run folder that is done."""

    number: int
    """From 1."""
    total: int
    name: str
    """Such as federated/weights-0.10-0.90."""
    trained: bool
    """False if it was done already."""
    seconds: float
    """Since the beginning."""


OnStep = Callable[[Step], None]


def reproduce(
    plan: Plan,
    out: Path,
    on_step: OnStep = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    jobs: Jobs = 1,
) -> Result:
    """The experiment; runs are kept in OUT/thesis-fig-5.1/SIDE/weights-…, and finished ones are reused."""
    start = time.monotonic()
    # Configuration by configuration, so that a stopped experiment has both sides of some.
    work = [(title, weights) for weights in plan.preferences for title in ALGORITHMS]
    pieces = Pieces(partial(_configuration, plan), work, out, _own)
    values: dict[int, np.ndarray] = {}
    for number, (found, trained) in side_by_side(pieces, jobs, stop):
        values[number] = found
        on_step(Step(len(values), len(work), _name(*work[number]), trained, time.monotonic() - start))
    sides = {
        title: side_of(
            title, plan.preferences, np.stack([values[i] for i, piece in enumerate(work) if piece[0] == title])
        )
        for title in ALGORITHMS
    }
    return result_of(sides["non-federated"], sides["federated"])


def _configuration(
    plan: Plan, out: Path, piece: tuple[str, list[list[float]]], stop: Callable[[], bool]
) -> tuple[np.ndarray, bool]:
    """The accuracies of one side of one configuration, and whether it had to be trained."""
    title, weights = piece
    folder = out / _own(piece)
    trained = ensure(folder, spec(plan, ALGORITHMS[title], weights), stop)
    return accuracies(folder), trained


def _own(piece: tuple[str, list[list[float]]]) -> str:
    return f"{NAME}/{_name(*piece)}"


def _name(title: str, weights: Sequence[Sequence[float]]) -> str:
    return f"{title}/weights-{weights[0][0]:.2f}-{weights[0][1]:.2f}"


def spec(plan: Plan, algorithm: str, weights: Sequence[Sequence[float]]) -> Spec:
    """One configuration; its runs are seeds, so that they train in one stack."""
    draft = Draft(
        {
            "algorithm": algorithm,
            "problem": {
                "name": "multi-mnist",
                "samples": plan.samples,
                "test_samples": plan.test_samples,
                "network": NETWORK,
            },
            "clients": CLIENTS,
            "rounds": plan.rounds,
            "seeds": list(range(plan.repetitions)),
            "preferences": [list(row) for row in weights],
            "learner": {"lr": LR, "steps": STEPS, "batch_size": BATCH_SIZE, "optimiser": OPTIMISER},
            # Configurations run side by side, one to a core.
            "engine": {"name": "local", "device": plan.device, "threads": 1},
        }
    )
    return draft.with_settings(plan.settings).finish()


def accuracies(folder: Path) -> np.ndarray:
    """`[runs, clients, 2]` of a finished run."""
    found = reading.load(folder).points()
    if any(points.shape != (CLIENTS, 2) or not np.isfinite(points).all() for points in found):
        raise UserError(f"{folder}: a client has no finite accuracy, so there is nothing to compare")
    return np.stack(found)


# -- from runs to a verdict ----------------------------------------------------------------------------------------


def side_of(title: str, weights: Sequence[Sequence[Sequence[float]]], values: np.ndarray) -> Side:
    """One half from its accuracies `[configurations, runs, clients, 2]` and preferences `[configurations][clients]`."""
    points = [
        Point(
            configuration=configuration,
            client=client,
            preference=list(weights[configuration][client]),
            runs=values[configuration, :, client].tolist(),
            mean=values[configuration, :, client].mean(axis=0).tolist(),
            deviation=values[configuration, :, client].std(axis=0).tolist(),
        )
        for configuration in range(values.shape[0])
        for client in range(values.shape[2])
    ]
    best = front([point.mean for point in points], maximise=True)
    return Side(
        title=title,
        algorithm=ALGORITHMS[title],
        points=points,
        front=best.tolist(),
        hypervolume=hypervolume(best, REFERENCE, maximise=True),
        hypervolumes=[
            hypervolume(values[:, run].reshape(-1, 2), REFERENCE, maximise=True) for run in range(values.shape[1])
        ],
        extent=np.ptp(best, axis=0).tolist(),
    )


def result_of(non_federated: Side, federated: Side) -> Result:
    """Both halves with the verdict on them."""
    alone, together = (np.array([point.mean for point in side.points]) for side in (non_federated, federated))
    dominated = sum(_is_dominated(point, together) for point in non_federated.front)
    share = dominated / len(non_federated.front)
    configurations = sorted({point.configuration for point in non_federated.points})
    verdict = Verdict(
        verdict=HOLDS if share == 1 else PARTLY if share > 0 else FAILS,
        dominated=dominated,
        of=len(non_federated.front),
        dominated_share=share,
        reverse=sum(_is_dominated(point, alone) for point in federated.front),
        reverse_of=len(federated.front),
        same_configuration=sum(_is_beaten_in(number, non_federated, federated) for number in configurations),
        configurations=len(configurations),
        hypervolume_difference=federated.hypervolume - non_federated.hypervolume,
    )
    return Result(non_federated, federated, verdict)


def _is_dominated(point: Sequence[float], others: Sequence[Sequence[float]] | np.ndarray) -> bool:
    return any(dominates(other, point, maximise=True) for other in others)


def _is_beaten_in(configuration: int, non_federated: Side, federated: Side) -> bool:
    """Whether each client alone is dominated by a federated point of that configuration."""
    alone, together = (
        [point.mean for point in side.points if point.configuration == configuration]
        for side in (non_federated, federated)
    )
    return all(_is_dominated(point, together) for point in alone)


# -- on the command line -------------------------------------------------------------------------------------------


def prepare(name: str, options: Options) -> Figure51:
    """The figure, with what the user chose."""
    options.refuse(name, "clients", "problems", "algorithms", "preferences")
    options.must_name_parts()
    plan = Plan.make(quick=options.quick, repetitions=options.seeds, rounds=options.rounds, settings=options.settings)
    return Figure51(plan, options.jobs)


@dataclass(frozen=True)
class Figure51:
    """Figure 5.1, ready to run."""

    plan: Plan
    jobs: Jobs = 1

    @property
    def headline(self) -> str:
        """What it is and how large."""
        plan = self.plan
        size = f"{plan.configurations} configurations, {plan.repetitions} runs each, {plan.rounds} rounds"
        size += "".join(f", {text}" for text in plan.settings)
        return f"{'QUICK VERSION of ' if plan.quick else ''}{NAME} (Multi-MNIST, two opposed clients): {size}"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The runs, the figure, and the verdict on the claim."""

        def show(step: Step) -> None:
            left = timedelta(seconds=round(step.seconds / step.number * (step.total - step.number)))
            how = "" if step.trained else " (already done)"
            say(f"{step.number} of {step.total}, {step.name}{how}, about {left} left")

        result = reproduce(self.plan, folder, show, stop, self.jobs)
        files = [folder / f"{NAME}.{ending}" for ending in ("png", "pdf")]
        for path in files:
            draw(result, path)
        shown = [_side_line(side) for side in (result.non_federated, result.federated)]
        return Outcome(as_json(self.plan, result), [*shown, _verdict_line(self.plan, result.verdict)], files)


def _side_line(side: Side) -> str:
    deviation = float(np.std(side.hypervolumes))
    return (
        f"{side.title} ({side.algorithm}): hypervolume {side.hypervolume:.3f} (of single runs "
        f"{float(np.mean(side.hypervolumes)):.3f} ± {deviation:.3f}), {len(side.front)} points on the front, which "
        f"stretches over {side.extent[0]:.3f} of the left digit's accuracy and {side.extent[1]:.3f} of the right one's"
    )


def _verdict_line(plan: Plan, verdict: Verdict) -> str:
    quick = " This was --quick: too little to judge the claim." if plan.quick else ""
    return (
        f"Claim (section 5.1): federated Multi-MNIST with opposed preferences dominates the non-federated front. "
        f"Verdict: {verdict.verdict.upper()}. {verdict.dominated} of {verdict.of} points of the non-federated front "
        f"are dominated by a federated point, {verdict.reverse} of {verdict.reverse_of} the other way round; in "
        f"{verdict.same_configuration} of {verdict.configurations} configurations both clients are dominated within "
        f"their own configuration.{quick}"
    )


# -- what is shown -------------------------------------------------------------------------------------------------


def as_json(plan: Plan, result: Result) -> dict[str, Any]:
    """The plan, what the thesis does not give, both halves and the verdict."""
    choices = {"network": NETWORK, "steps": STEPS, "batch_size": BATCH_SIZE, "optimiser": OPTIMISER, "lr": LR}
    return {"figure": NAME, "clients": CLIENTS, **asdict(plan), **choices, **asdict(result)}


def draw(result: Result, path: Path) -> None:
    """The figure as .png, .pdf or .svg: non-federated on the left, federated on the right, the same limits."""
    from fedpareto_papers.figures.panels import Panel, beside_each_other, render

    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "pdf", "svg"):
        raise UserError(f"{path}: a figure is a .png, .pdf or .svg file")
    panels = [
        Panel(
            title=f"{side.title} ({side.algorithm})",
            single=np.concatenate([point.runs for point in side.points]),
            means=np.array([point.mean for point in side.points]),
            front=np.array(side.front),
        )
        for side in (result.non_federated, result.federated)
    ]
    figure = beside_each_other(
        panels, "accuracy, left digit (higher is better)", "accuracy, right digit (higher is better)"
    )
    write_atomically(path, render(figure, kind))
