"""Early stopping follows validation rows, never test rows, seed by seed, and survives a kill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.record import reading
from fedpareto.report import terminal
from fedpareto.report.axes import axis_of
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits
from folders import assert_same_results, rows


@dataclass(frozen=True)
class Planted(SupervisedProblem):
    """A number learns its way from 0 towards 1; validation rows like it best at `valley`, test rows only at `test`."""

    name: ClassVar[str] = "planted"
    valley: float = 0.5
    test: float = 1.0
    objective_count: int = 1
    by_seed: bool = False

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return tuple(Objective(f"distance {i}", reference=2.0) for i in range(self.objective_count))

    @property
    def layout(self) -> Layout:
        return Layout.of({"x": (1,)})

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(1)

    def data(self, clients: int, seed: int) -> Splits:
        valley = self.valley + (0.3 * rng.generator(rng.Address(seed), "valley").random() if self.by_seed else 0.0)
        targets = {"train": 1.0, "validation": valley, "test": self.test}
        return {split: Rows.of([{"y": torch.full((8,), y)}] * clients) for split, y in targets.items()}

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        distance = batch.mean((batch.columns["y"] - parameters["x"]).square())
        return torch.stack([distance] * self.objective_count, dim=-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)

    def learner(self) -> Learner:
        return Supervised(lr=0.05, batch_size=8)


def run(problem: Planted, algorithm: str = "fedavg", **options):
    options = {"clients": 2, "rounds": 40, "stop_after": 3, "engine": {"threads": 1, "chunk": 2}} | options
    return fedpareto.run(problem, algorithm, **options)


def models(result, place=0):
    return torch.cat([result.models[place][client] for client in sorted(result.models[place])])


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])  # Models of the server's, and in the clients' private state.
@pytest.mark.parametrize("objectives", [1, 2])
def test_the_stop_follows_validation_rows_although_test_rows_say_go_on(algorithm, objectives):
    result = run(Planted(objective_count=objectives), algorithm)
    whole = run(Planted(objective_count=objectives), algorithm, stop_after=0)
    values = [whole.columns.evaluated(row, "sent")["validation"][0, 0] for row in whole.history]
    best = int(np.argmin(values))
    assert 0 < best < 35
    assert result.kept == (best,)
    assert max(row["round"] for row in result.history) == best + 3
    assert models(result) == pytest.approx(0.5, abs=0.05)
    shorter = run(Planted(objective_count=objectives), algorithm, stop_after=0, rounds=best)
    assert torch.equal(models(result), models(shorter))
    assert result.solutions[0].values["test"].tolist() == shorter.solutions[0].values["test"].tolist()
    assert result.across_clients()[0]["distance 0"] == shorter.across_clients()[0]["distance 0"]


def test_test_rows_have_no_say():
    kept = [run(Planted(test=test)) for test in (1.0, -7.0)]
    assert kept[0].kept == kept[1].kept
    assert torch.equal(models(kept[0]), models(kept[1]))


def test_each_seed_stops_by_itself_and_equals_its_own_run():
    together = run(Planted(valley=0.3, by_seed=True), seeds=[3, 1, 2])
    assert len(set(together.kept)) > 1
    for place, seed in enumerate([3, 1, 2]):
        alone = run(Planted(valley=0.3, by_seed=True), seeds=[seed])
        assert alone.kept == together.kept[place : place + 1]
        assert torch.equal(models(alone), models(together, place))
        of_seed = [row["round"] for row in together.history if row["seed"] == seed]
        assert of_seed == [row["round"] for row in alone.history]


def test_a_run_that_gets_better_to_the_end_is_not_stopped():
    result = run(Planted(valley=2.0), rounds=6)
    assert result.kept == (6,)
    plain = run(Planted(valley=2.0), rounds=6, stop_after=0)
    assert torch.equal(models(result), models(plain))
    kept = ("sent", "trained", "hypervolume", "replies", "columns")
    assert [[row[key] for key in kept] for row in result.history] == [
        [row[key] for key in kept] for row in plain.history
    ]


def test_a_margin_asks_for_more():
    assert run(Planted(), stop_margin=10.0).kept == (0,)
    assert max(row["round"] for row in run(Planted(), stop_margin=10.0).history) == 3


def test_without_validation_rows_it_is_refused(tmp_path):
    with pytest.raises(UserError, match="'convex' has no validation rows to decide on, only train and test"):
        fedpareto.run("convex", stop_after=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"stop_after": -1}, "stop_after is -1; it is at least 0"),
        ({"stop_margin": 0.1}, "no stop_after that it belongs to"),
        ({"stop_after": 2, "stop_margin": -1}, "stop_margin is -1; it is at least 0"),
        ({"stop_after": 2, "algorithm": "fedavg+ft"}, r"fedavg\+ft does in its last round what it does in no other"),
        ({"stop_after": 2, "engine": "flower-local"}, "cannot be put back"),
        ({"stop_after": 2, "privacy": "local"}, "without any noise"),
    ],
)
def test_what_makes_no_sense_is_one_line(values, reason):
    with pytest.raises(UserError, match=reason):
        Draft(values).finish()


def of_table(folder: Path) -> Spec:
    """Small clients and a large step: validation rows soon have enough."""
    stream = rng.generator(rng.Address(0), "table")
    lines = ["a,b,group,hired"]
    for _ in range(240):
        a, b, noise = stream.standard_normal(3)
        lines.append(f"{a:.3f},{b:.3f},{'xy'[int(b > 0)]},{int(a + 2 * noise > 0)}")
    (folder / "people.csv").write_text("\n".join(lines), encoding="utf-8")
    table = {"name": "table", "file": str(folder / "people.csv"), "label": "hired", "sensitive": "group"}
    values = {"algorithm": "local", "problem": table, "clients": 3, "rounds": 30, "seeds": 2, "stop_after": 3}
    return Draft(values | {"engine": {"threads": 1, "chunk": 6}, "learner": {"lr": 0.5}}).finish()


def test_a_run_that_was_killed_stops_at_the_same_round_with_the_same_bits(tmp_path):
    spec = of_table(tmp_path)
    whole = start(spec, tmp_path / "whole")
    ends = [max(row["round"] for row in whole.history if row["seed"] == seed) for seed in spec.seeds]
    assert max(ends) < 30
    for rounds in sorted({1, *ends}):
        folder, left = tmp_path / f"stopped-{rounds}", iter([False] * (rounds - 1) + [True])
        with pytest.raises(Stopped):
            start(spec, folder, stop=lambda left=left: next(left))
        assert resume(folder) is not None
        assert_same_results(tmp_path / "whole", folder)
    loaded = reading.load(tmp_path / "whole")
    assert [one.round for one in loaded.solutions] == list(whole.kept)
    words = f"ended after rounds {ends[0]}, {ends[1]}; best on validation rows, and kept: rounds {whole.kept[0]}"
    assert words in loaded.early_stop
    assert ("early stop", loaded.early_stop) in terminal._described(loaded, axis_of([loaded]))
    assert loaded.early_stop in whole.summary()
    for place, seed in enumerate(spec.seeds):
        scores = [row["validation_score"] for row in rows(tmp_path / "whole") if row["seed"] == seed]
        assert int(np.argmax(scores)) == whole.kept[place]


def test_a_spec_without_it_says_so():
    spec = Draft({"problem": "convex"}).finish()
    assert spec.to_mapping()["stop_after"] == 0
    assert replace(spec, rounds=2).stop_margin == 0.0
