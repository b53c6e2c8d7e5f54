"""Figure 5.1 of L. M. Hartmann's thesis: Multi-MNIST under opposed preferences, without a federation and in one.

Section A.3.1: two clients with opposed preferences, [(0, 1), (1, 0)], [(0.1, 0.9), (0.9, 0.1)] …, ten such
configurations, each run five times; FedAvg against training alone, with the same hyper-parameters. The thesis
concludes from its figure that "federated results outperform non-federated ones" and show no trade-off. What that means
here is said in `Domination`. A federation of two has seen twice as many images as either client alone; the experiment
does not separate this advantage from that of opposed preferences.

The thesis does not give everything. What is missing is a named constant below. Every run is an ordinary run folder, so
a stopped experiment can be resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo import preferences
from fedpareto.moo.dominance import dominates, front
from fedpareto.moo.indicators import hypervolume
from fedpareto_papers.catalogue import Options, Outcome
from fedpareto_papers.claims import Verdict
from fedpareto_papers.figures import Panel, save
from fedpareto_papers.study import Cell, Found, Run, Study

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
"""Reference point of the hypervolume, as everywhere in chapter 5."""

QUICK_CONFIGURATIONS, QUICK_RUNS, QUICK_SAMPLES, QUICK_TEST_SAMPLES, QUICK_ROUNDS = 3, 2, 2_000, 600, 6
"""About a minute: enough to see that everything works, not to check the claim."""


@dataclass(frozen=True)
class Size:
    """Sizes of the experiment that the user cannot choose."""

    configurations: int = CONFIGURATIONS
    samples: int = SAMPLES
    test_samples: int = TEST_SAMPLES

    @property
    def preferences(self) -> list[list[list[float]]]:
        """The two clients' preferences in each configuration: (i/k, 1 − i/k) and its opposite, for i = 0 … k − 1."""
        return [[weights, weights[::-1]] for weights in preferences.sweep(self.configurations, 2).tolist()]


QUICK = Size(QUICK_CONFIGURATIONS, QUICK_SAMPLES, QUICK_TEST_SAMPLES)


@dataclass(frozen=True)
class Point:
    """One client of one configuration: the accuracies on its test images."""

    configuration: int
    client: int
    preference: list[float]
    """Weights of (left, right)."""
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
    """Front of the points' means."""
    hypervolume: float
    """Volume of that front."""
    hypervolumes: list[float]
    """Volumes of each run's own front."""
    extent: list[float]
    """The front's range in each accuracy: the visible trade-off."""


@dataclass(frozen=True)
class Domination:
    """The comparison of federated results with non-federated ones; points are means over the runs.

    The claim holds if every point of the non-federated front is dominated by some federated point, whatever its
    configuration; it holds in part if some are.
    """

    verdict: Verdict
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


@dataclass(frozen=True)
class Result:
    """Both halves of the figure, and the verdict."""

    non_federated: Side
    federated: Side
    verdict: Domination


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
    alone, together = (np.array([point.mean for point in side.points]) for side in (non_federated, federated))
    dominated = sum(_is_dominated(point, together) for point in non_federated.front)
    share = dominated / len(non_federated.front)
    configurations = sorted({point.configuration for point in non_federated.points})
    verdict = Domination(
        verdict="holds" if share == 1 else "holds in part" if share > 0 else "does not hold",
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
    """Check whether each client alone is dominated by a federated point of that configuration."""
    alone, together = (
        [point.mean for point in side.points if point.configuration == configuration]
        for side in (non_federated, federated)
    )
    return all(_is_dominated(point, together) for point in alone)


# -- on the command line -------------------------------------------------------------------------------------------


def prepare(name: str, options: Options) -> Figure51:
    options.refuse(name, "clients", "problems", "algorithms", "preferences")
    options.must_name_parts()
    options = options.sized({"seeds": RUNS, "rounds": ROUNDS}, {"seeds": QUICK_RUNS, "rounds": QUICK_ROUNDS})
    return Figure51(name, options, QUICK if options.quick else Size())


@dataclass(frozen=True)
class Figure51(Study[np.ndarray]):
    """Figure 5.1, ready to run. The user's seeds are runs: other images, another initial model."""

    sizes: Size

    @property
    def title(self) -> str:
        return f"{self.name} (Multi-MNIST, two opposed clients)"

    def size(self) -> list[str]:
        runs = f"{self.options.seeds} runs each"
        return [f"{self.sizes.configurations} configurations", runs, f"{self.options.rounds} rounds"]

    def cells(self) -> list[Cell]:
        # Configuration by configuration, so that a stopped experiment has both sides of some.
        return [self.cell(title, weights) for weights in self.sizes.preferences for title in ALGORITHMS]

    def cell(self, title: str, weights: Sequence[Sequence[float]]) -> Cell:
        """One side of one configuration; its runs are seeds, so that they train in one stack."""
        draft = {
            "algorithm": ALGORITHMS[title],
            "problem": {
                "name": "multi-mnist",
                "samples": self.sizes.samples,
                "test_samples": self.sizes.test_samples,
                "network": NETWORK,
            },
            "clients": CLIENTS,
            "rounds": self.options.rounds,
            "seeds": list(range(self.options.seeds or RUNS)),
            "preferences": [list(row) for row in weights],
            "learner": {"lr": LR, "steps": STEPS, "batch_size": BATCH_SIZE, "optimiser": OPTIMISER},
            # Configurations run side by side, one to a core.
            "engine": {"name": "local", "threads": 1},
        }
        name = f"{title}/weights-{weights[0][0]:.2f}-{weights[0][1]:.2f}"
        return Cell(f"{self.name}/{name}", draft, read, called=name)

    def result(self, found: Sequence[Found[np.ndarray]]) -> Result:
        values = np.stack([one.result for one in found])
        sides = [
            side_of(title, self.sizes.preferences, values[place :: len(ALGORITHMS)])
            for place, title in enumerate(ALGORITHMS)
        ]
        return result_of(*sides)

    def outcome(self, found: Sequence[Found[np.ndarray]], folder: Path) -> Outcome:
        result = self.result(found)
        shown = [_side_line(side) for side in (result.non_federated, result.federated)]
        lines = [*shown, _verdict_line(self.options.quick, result.verdict)]
        return Outcome(self.as_json(result), lines, save(folder, self.name, picture(result)))

    def as_json(self, result: Result) -> dict[str, Any]:
        given, sizes = self.options, self.sizes
        return {
            "figure": self.name,
            "clients": CLIENTS,
            "configurations": sizes.configurations,
            "repetitions": given.seeds,
            "rounds": given.rounds,
            "samples": sizes.samples,
            "test_samples": sizes.test_samples,
            "quick": given.quick,
            "device": "cpu",
            "settings": list(given.settings),
            "network": NETWORK,
            "steps": STEPS,
            "batch_size": BATCH_SIZE,
            "optimiser": OPTIMISER,
            "lr": LR,
            **asdict(result),
        }


def read(run: Run) -> np.ndarray:
    """Read the accuracies, `[runs, clients, 2]`."""
    found = run.record.points()
    if any(points.shape != (CLIENTS, 2) or not np.isfinite(points).all() for points in found):
        raise UserError(f"{run.folder}: a client has no finite accuracy, so there is nothing to compare")
    return np.stack(found)


# -- what is shown -------------------------------------------------------------------------------------------------


def _side_line(side: Side) -> str:
    deviation = float(np.std(side.hypervolumes))
    return (
        f"{side.title} ({side.algorithm}): hypervolume {side.hypervolume:.3f} (of single runs "
        f"{float(np.mean(side.hypervolumes)):.3f} ± {deviation:.3f}), {len(side.front)} points on the front, which "
        f"stretches over {side.extent[0]:.3f} of the left digit's accuracy and {side.extent[1]:.3f} of the right one's"
    )


def _verdict_line(is_quick: bool, verdict: Domination) -> str:
    quick = " This was --quick: too little to judge the claim." if is_quick else ""
    return (
        f"Claim (section 5.1): federated Multi-MNIST with opposed preferences dominates the non-federated front. "
        f"Verdict: {verdict.verdict.upper()}. {verdict.dominated} of {verdict.of} points of the non-federated front "
        f"are dominated by a federated point, {verdict.reverse} of {verdict.reverse_of} the other way round; in "
        f"{verdict.same_configuration} of {verdict.configurations} configurations both clients are dominated within "
        f"their own configuration.{quick}"
    )


def picture(result: Result) -> Any:
    """Draw non-federated on the left, federated on the right, with the same limits."""
    from fedpareto_papers.figures.drawing import beside_each_other

    panels = [
        Panel(
            title=f"{side.title} ({side.algorithm})",
            single=np.concatenate([point.runs for point in side.points]),
            means=np.array([point.mean for point in side.points]),
            front=np.array(side.front),
        )
        for side in (result.non_federated, result.federated)
    ]
    return beside_each_other(
        panels, "accuracy, left digit (higher is better)", "accuracy, right digit (higher is better)"
    )
