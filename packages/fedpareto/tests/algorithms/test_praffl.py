"""PraFFL: the direction of a preference, the parts of a model, known fronts, and a plain loop that does the same."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import fedpareto
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.config.errors import UserError
from fedpareto.contract.conditioned import tolerances
from fedpareto.contract.federation import Federation
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.indicators import hypervolume
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

MARGIN = PraFFL().margin
SMALL = {"body_epochs": 1, "head_epochs": 1, "sampled": 4}


# -- parts ---------------------------------------------------------------------------------------------------------


def test_a_large_importance_is_a_small_tolerance():
    two = torch.tensor([[0.7, 0.3], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    assert torch.allclose(tolerances(two, 0.0001), two.flip(-1), atol=1e-3)
    three = tolerances(torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64), 0.0)
    assert torch.allclose(three, torch.tensor([1 / 6, 1 / 3, 1.0], dtype=torch.float64) / 1.5)
    edge = tolerances(torch.tensor([1.0, 0.0, 0.0]), 0.01)
    assert torch.isfinite(edge).all()
    assert edge.min() > 0
    assert edge.argmin() == 0


def test_a_layout_is_cut_where_the_last_layers_begin():
    layout = Layout.of({"0.weight": (3, 2), "0.bias": (2,), "1.weight": (2, 4), "1.bias": (4,), "2.weight": (4, 1)})
    body, head = layout.cut(2)
    assert body.names == ("0.weight", "0.bias")
    assert head.names == ("1.weight", "1.bias", "2.weight")
    assert body.size + head.size == layout.size
    nothing, everything = layout.cut(9)
    assert nothing.size == 0
    assert everything == layout


def test_a_client_s_model_is_the_shared_body_and_the_head_of_its_own_preference():
    problem = Synthetic(hidden=(4, 3), partition="fedfb")
    run = train(PraFFL(**SMALL), problem, rounds=1, clients=3)
    anatomy = run.algorithm.anatomy(problem.layout, 2)
    body = run.algorithm.solutions(run.state)[0]["body"]
    models = run.engine.models(0, run.algorithm.solutions(run.state))
    for client, model in models.items():
        assert torch.equal(model[: anatomy.body.size], body)
        kept = run.engine.private[0, 0, client]["hypernetwork"]
        preference = torch.as_tensor(run.federation.preferences[client]).to(model)
        made = anatomy.models(body[None], kept[None], preference[None, None])[0, 0]
        assert torch.allclose(made, model, atol=1e-6)


def test_only_bodies_are_sent_and_they_are_averaged_plainly():
    problem = Synthetic(hidden=(4, 3), partition="fedfb")
    algorithm = PraFFL(**SMALL)
    run = train(algorithm, problem, rounds=1, clients=3)
    asked, replies = algorithm.ask(run.states[0]), run.outcomes[0].replies
    assert all(some.names == {"body"} for some in asked)
    assert set(replies.tensors) == {"body"}
    assert torch.allclose(run.state.body, replies["body"].mean(0))


def test_fine_tuned_clients_keep_the_body_they_trained():
    problem = Synthetic(hidden=(4, 3), partition="fedfb")
    run = train(make_algorithm("praffl+ft", SMALL), problem, rounds=2, clients=3)
    own = run.algorithm.solutions(run.state)
    replied = run.outcomes[-1].replies.by_client("body")
    assert all(torch.equal(own[client]["body"], replied[client]) for client in own)
    assert not torch.equal(own[0]["body"], own[1]["body"])


@pytest.fixture(scope="module")
def few_rows() -> SupervisedProblem:
    """A table of which each client has so few rows that averaging undoes what its heads were made for."""
    stream = np.random.default_rng(4)
    columns = {f"x{i}": stream.normal(size=360).round(3) for i in range(8)}
    group = stream.integers(0, 2, 360)
    wanted = columns["x0"] + columns["x1"] * columns["x2"] + 0.4 * group + 0.5 * stream.normal(size=360)
    frame = pd.DataFrame(
        {**columns, "group": np.where(group, "red", "blue"), "hired": np.where(wanted > 0, "yes", "no")}
    )
    return fedpareto.table(frame, label="hired", sensitive="group", positive="yes")


@pytest.fixture(scope="module")
def trained_on_few_rows(few_rows) -> Run:
    return train(PraFFL(body_epochs=5, head_epochs=5, sampled=8), few_rows, rounds=3, clients=6)


def test_a_client_uses_the_body_that_is_better_on_its_validation_rows(few_rows, trained_on_few_rows):
    run = trained_on_few_rows
    solutions, size = run.algorithm.solutions(run.state), run.state.body.numel()
    with torch.no_grad():
        used = run.engine.models(0, solutions)
    kept = [run.engine.private[0, 0, client]["body"] for client in used]
    is_own = [torch.equal(model[:size], body) for model, body in zip(used.values(), kept, strict=True)]
    is_shared = [torch.equal(model[:size], run.state.body) for model in used.values()]
    assert all(a != b for a, b in zip(is_own, is_shared, strict=True))
    assert any(is_own)
    losses = {}
    for which in ("best", "shared", "own"):
        run.engine.algorithm = replace(run.algorithm, used_body=which)
        models = run.engine.models(0, solutions)
        per_client = [
            few_rows.losses(few_rows.layout.unflatten(model[None]), one_batch(run.federation, client, "validation"))
            for client, model in models.items()
        ]
        losses[which] = torch.cat(per_client).mean().item()
    run.engine.algorithm = run.algorithm
    assert losses["best"] < losses["shared"]


def test_kept_models_are_calibrated_and_decide_as_before(few_rows, trained_on_few_rows):
    run = trained_on_few_rows
    anatomy = run.algorithm.anatomy(few_rows.layout, 2)
    even = torch.tensor([[[0.5, 0.5]]])
    entropies = {"raw": [], "kept": []}
    for client, kept in run.engine.model_parts(0, run.algorithm.solutions(run.state)).items():
        raw = run.engine.private[0, 0, client]["hypernetwork"]
        batch = one_batch(run.federation, client, "test")
        logits = {
            name: few_rows.logits(
                few_rows.layout.unflatten(anatomy.models(kept["body"][None], own[None], even)[0]), batch
            )
            for name, own in (("raw", raw), ("kept", kept["hypernetwork"]))
        }
        ratio = logits["kept"] / logits["raw"]
        assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3)
        assert ratio[0, 0] > 0
        for name, said in logits.items():
            entropies[name].append(binary_cross_entropy_with_logits(said, few_rows.labels(batch)).item())
    assert np.mean(entropies["kept"]) < 0.8 * np.mean(entropies["raw"])


def test_the_losses_of_many_models_are_those_of_each_alone():
    problem = Synthetic(hidden=(5, 4), relaxation="covariance")
    splits = problem.data(2, 0)
    rows = [splits["train"].of_client(i) for i in (0, 1)]
    columns = {name: torch.stack([row[name][:40] for row in rows]).double() for name in rows[0]}
    batch = Batch(columns, torch.ones(2, 40, dtype=torch.float64))
    body, head = problem.layout.cut(2)
    generator = torch.Generator().manual_seed(1)
    shared = body.unflatten(torch.randn(2, body.size, generator=generator, dtype=torch.float64))
    own = head.unflatten(torch.randn(2, 3, head.size, generator=generator, dtype=torch.float64))
    for many, one in ((problem.losses_each, problem.losses), (problem.evaluate_each, problem.evaluate)):
        together = many(shared, own, batch)
        for k in range(3):
            alone = one({**shared, **{name: tensor[:, k] for name, tensor in own.items()}}, batch)
            assert torch.allclose(together[:, k], alone, atol=1e-12)
        generic = getattr(SupervisedProblem, many.__name__)(problem, shared, own, batch)
        assert torch.allclose(together, generic, atol=1e-12)


@pytest.mark.takes_long
def test_one_stack_equals_a_plain_loop_over_clients_and_preferences():
    benchmark = _benchmark()
    federation = Federation.create(benchmark.PROBLEM, benchmark.CLIENTS, 0)
    assert benchmark.largest_difference(federation) < 1e-10


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"head_layers": 0}, "head_layers"),
        ({"sampled": 0}, "sampled"),
        ({"margin": 0.0}, "margin"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"hypernetwork": (0,)}, "hypernetwork"),
    ],
)
def test_impossible_parameters_are_named(values, word):
    with pytest.raises(UserError, match=word):
        PraFFL(**values)


# -- known fronts --------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_on_a_convex_front_solutions_lie_on_their_rays():
    problem = Convex(noise=0.02, unequal=False)
    algorithm = PraFFL(head_layers=2, hypernetwork=(32, 32), head_epochs=30, sampled=16)
    run = train(algorithm, problem, rounds=12, clients=3, learner=Supervised(lr=0.005, optimiser="adam", batch_size=16))
    preferences, values = trade_off(run, 101, "test", "evaluate_each")
    rays = tolerances(preferences, MARGIN).numpy()
    known = hypervolume(problem.known_front(), problem.reference)
    for client in values:
        assert hypervolume(client, problem.reference) >= 0.98 * known
        assert angles(client, rays).max() <= 5


@dataclass(frozen=True)
class Concave(SupervisedProblem):
    """Fonseca and Fleming (1995): f_j(θ) = 1 − exp(−‖θ ∓ 1/√d‖²), whose front is concave; rows have no part in it."""

    name: ClassVar[str] = "concave"

    dimension: int = 4

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return Objective("first"), Objective("second")

    @property
    def layout(self) -> Layout:
        return Layout.of({"0.weight": (self.dimension,)})

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(self.dimension)

    def learner(self) -> Supervised:
        return Supervised(lr=0.005, optimiser="adam", batch_size=8)

    def data(self, clients: int, seed: int):
        from fedpareto.tensors.rows import Rows

        rows = [{"nothing": torch.zeros(32)} for _ in range(clients)]
        return {"train": Rows.of(rows), "test": Rows.of(rows)}

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        theta, centre = parameters["0.weight"], 1 / math.sqrt(self.dimension)
        return torch.stack([1 - torch.exp(-(theta - sign * centre).square().sum(-1)) for sign in (1, -1)], dim=-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)

    def known_front(self) -> np.ndarray:
        places = np.linspace(-1, 1, 1001)
        return np.stack([1 - np.exp(-((places - sign) ** 2)) for sign in (1, -1)], axis=1)


@pytest.mark.takes_long
@pytest.mark.parametrize(("scalarisation", "covers"), [("tchebycheff", True), ("linear", False)])
def test_only_tchebycheff_covers_a_concave_front(scalarisation, covers):
    problem = Concave()
    algorithm = PraFFL(head_layers=1, hypernetwork=(32, 32), head_epochs=60, sampled=32, scalarisation=scalarisation)
    run = train(algorithm, problem, rounds=5, clients=1)
    _, (values,) = trade_off(run, 101, "test", "evaluate_each")
    known = problem.known_front()
    in_the_middle = (np.abs(values[:, 0] - values[:, 1]) < 0.5).mean()
    share = hypervolume(values, (1.0, 1.0)) / hypervolume(known, (1.0, 1.0))
    if covers:
        assert in_the_middle > 0.3
        assert share > 0.95
    else:
        # A sum of concave losses is smallest at the ends; only the jump from one to the other passes the middle.
        assert in_the_middle < 0.1
        assert share < 0.95


@pytest.mark.takes_long
def test_three_objectives_move_with_their_own_importance():
    problem = Convex(goals=3, noise=0.02, unequal=False)
    algorithm = PraFFL(head_layers=2, hypernetwork=(32, 32), head_epochs=20, sampled=16)
    run = train(algorithm, problem, rounds=8, clients=2, learner=Supervised(lr=0.005, optimiser="adam", batch_size=16))
    for goal in range(3):
        important = torch.full((2, 3), 0.1)
        important[1, goal] = 0.8
        important[0] = 1 / 3
        _, values = trade_off(run, important, "test", "evaluate_each")
        assert (values[:, 1, goal] < values[:, 0, goal] - 0.05).all()


# -- the dial ------------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_losses_move_with_the_preference_as_they_do_for_fedpref():
    from scipy.stats import spearmanr

    problem = Synthetic(
        partition="fedfb", sees_group=True, hidden=(16, 16, 8), relaxation="covariance", regularisation=0.0
    )
    learner = Supervised(lr=0.002, optimiser="adam", weight_decay=1e-4, batch_size=128)
    run = train(PraFFL(hypernetwork=(16, 16), sampled=16), problem, rounds=4, clients=3, learner=learner)
    preferences, losses = trade_off(run, 101, "train", "losses_each")
    for of_client in losses:
        first, second = (spearmanr(preferences[:, 0], of_client[:, j]).statistic for j in (0, 1))
        assert first <= -0.95
        assert second >= 0.95
    accuracy, fairness = fedpref_ends(problem)
    ends = losses[:, [0, -1]].mean(0)  # The second objective alone, then the first alone.
    assert np.sign(ends[1] - ends[0]).tolist() == [-1.0, 1.0]
    assert np.sign(accuracy - fairness).tolist() == [-1.0, 1.0]


def fedpref_ends(problem: SupervisedProblem) -> tuple[np.ndarray, np.ndarray]:
    """FedPref's mean training losses if all prefer the first objective, and if all prefer the second."""
    found = []
    for preference in ([0.95, 0.05], [0.05, 0.95]):
        federation = Federation.create(problem, 3, 0, preference)
        learner = Supervised(lr=0.005, optimiser="adam", batch_size=128, epochs=10)
        run = train(FedPref(), problem, rounds=2, clients=3, learner=learner, federation=federation)
        models = torch.stack(list(run.engine.models(0, run.algorithm.solutions(run.state)).values()))
        losses = [
            problem.losses(problem.layout.unflatten(model[None]), one_batch(federation, client, "train"))
            for client, model in enumerate(models)
        ]
        found.append(torch.cat(losses).mean(0).detach().numpy())
    return found[0], found[1]


# -- help ----------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    algorithm: PraFFL
    engine: LocalEngine
    federation: Federation
    states: list
    outcomes: list

    @property
    def state(self):
        return self.states[-1]


def train(algorithm, problem, *, rounds, clients, learner=None, federation=None) -> Run:
    federation = federation or Federation.create(problem, clients, 0)
    setting = federation.setting(problem, rounds)
    engine = LocalEngine(
        algorithm,
        problem,
        learner or problem.learner(),
        [federation],
        [setting],
        LocalOptions(),
        choices=Choices(threads=1, chunk=clients),
    )
    run = Run(algorithm, engine, federation, [algorithm.begin(engine.settings[0])], [])
    for _ in range(rounds):
        run.outcomes.append(engine.run(algorithm.ask(run.state)))
        run.states.append(algorithm.tell(run.state, run.outcomes[-1].replies))
    return run


def trade_off(run: Run, preferences, split: str, measure: str) -> tuple[Tensor, np.ndarray]:
    """Preferences (a number of them: even steps), and what each client's models for them are worth, `[n, k, m]`."""
    if isinstance(preferences, int):
        first = torch.linspace(0, 1, preferences)
        preferences = torch.stack([first, 1 - first], dim=-1)
    problem = run.engine.problem
    anatomy = run.algorithm.anatomy(problem.layout, preferences.shape[-1])
    found = []
    with torch.no_grad():
        for client, message in run.algorithm.solutions(run.state).items():
            kept = run.engine.private[0, 0, client]["hypernetwork"][None]
            heads = anatomy.heads(
                anatomy.hypernetwork.layout.unflatten(kept), tolerances(preferences, anatomy.margin)[None]
            )
            batch = one_batch(run.federation, client, split)
            found.append(getattr(problem, measure)(anatomy.body.unflatten(message["body"][None]), heads, batch)[0])
    return preferences, torch.stack(found).numpy()


def one_batch(federation: Federation, client: int, split: str) -> Batch:
    rows = federation.splits[split].of_client(client)
    columns = {name: column.float()[None] for name, column in rows.items()}
    return Batch(columns, torch.ones(1, len(next(iter(rows.values())))))


def angles(points: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Between each point and its ray, in degrees."""
    cosine = (points * rays).sum(1) / np.linalg.norm(points, axis=1) / np.linalg.norm(rays, axis=1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _benchmark():
    path = Path(__file__).parents[4] / "benchmarks" / "praffl.py"
    spec = importlib.util.spec_from_file_location("praffl_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
