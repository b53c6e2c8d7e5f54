"""A problem with one objective, from the run to the report: clients are compared, fronts are not mentioned."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console
from torch import Tensor

import fedpareto
from fedpareto.contract.problem import Objective
from fedpareto.problems.convex import Convex
from fedpareto.record import reading
from fedpareto.report import terminal
from fedpareto.report.across import in_terminal
from fedpareto.runs.progress import Progress, Shown
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class Nearness(Convex):
    """How near each client is to its own centre c_1 + δ_i: 1 / (1 + ½‖θ − c_1 − δ_i‖²)."""

    name: ClassVar[str] = "nearness"
    heterogeneity: float = 0.4

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return (Objective("nearness", maximise=True, reference=0.0),)

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return super().losses(parameters, batch)[:, :1]

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return 1 / (1 + self.losses(parameters, batch))

    def known_front(self) -> None:  # type: ignore[override]
        return None


def run_of(**more: Any) -> fedpareto.Result:
    chosen: dict[str, Any] = {"clients": 8, "rounds": 5, "seeds": 2, "engine": {"threads": 1, "chunk": 16}}
    return fedpareto.run(Nearness(), "fedavg", **(chosen | more))


def nearness(client: int, model: Tensor) -> float:
    problem = Nearness()
    centre = (problem.centres()[0] + problem.shifts(8, 0)[client]).numpy()
    return float(1 / (1 + 0.5 * ((model.double().numpy() - centre) ** 2).sum()))


def test_the_result_is_told_by_its_clients() -> None:
    result = run_of(seeds=1)
    values = [nearness(client, model) for client, model in result.models[0].items()]
    sent, trained, _ = result.summary()
    expected = f"mean nearness {np.mean(values):.4f}, worst client {min(values):.4f}, best {max(values):.4f}"
    assert sent == f"{expected} (sent by the server)"
    assert trained.endswith("(after local training)")
    assert "hypervolume" not in repr(result)
    assert f"mean nearness {np.mean(values):.4f}" in repr(result)


def test_several_seeds_have_a_deviation() -> None:
    result = run_of()
    means = [of_seed["nearness"].mean for of_seed in result.across_clients()]
    assert f"mean nearness {np.mean(means):.4f} ± {np.std(means):.4f} over 2 seeds" in result.summary()[0]


def test_progress_shows_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    result = run_of(on_round=told.append, evaluate_every=2)
    rows = [row for row in result.history if row["round"] == 2]
    assert told[2].headline == ("mean nearness", pytest.approx(np.mean([row["sent"]["test"] for row in rows])))
    shown = Shown(result.spec, Path("runs/x"))
    shown.begin(0)
    for now in told:
        shown.round(now)
    lines = capsys.readouterr().err.splitlines()
    assert "round 1 of 5, mean nearness 0." in lines[1]
    assert "nearness 0." not in lines[2], "nothing was measured"
    assert "hypervolume" not in "".join(lines)


def test_the_report_compares_clients(tmp_path: Path) -> None:
    result = run_of(out=tmp_path / "run", measure_losses=True)
    found = reading.load(tmp_path / "run")
    assert found.across_clients() == result.across_clients()
    assert found.across_clients("trained") == result.across_clients("trained")
    rounds, shares = found.share_improved()
    expected = [[of_seed[r] for r in rounds.tolist()] for of_seed in result.share_improved()]
    assert shares.tolist() == expected
    stream = io.StringIO()
    Console(file=stream, width=90).print(terminal.show(found), in_terminal([found]), terminal.front_in_terminal(found))
    text = stream.getvalue()
    assert "hypervolume" not in text
    assert "mean nearness" in text
    assert "clients by nearness (higher is better)" in text


@pytest.mark.parametrize(
    ("algorithm", "alike"), [("local", True), ("ditto", True), ("fedavg+ft", True), ("fedavg", False), ("apfl", False)]
)
def test_both_evaluations_are_of_the_same_models_where_clients_end_with_what_they_trained(
    algorithm: str, alike: bool
) -> None:
    result = fedpareto.run(Nearness(), algorithm, clients=4, rounds=3, engine={"threads": 1, "chunk": 4})
    sent, trained = (result.across_clients(evaluation)[0]["nearness"] for evaluation in ("sent", "trained"))
    assert (sent == trained) is alike


def test_an_algorithm_for_any_preference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fedpareto.UserError, match="praffl needs at least 2 objectives to prefer between; this problem"):
        fedpareto.run(Nearness(), "praffl", clients=4, rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_several_objectives_are_told_by_their_hypervolume() -> None:
    engine = {"threads": 1, "chunk": 4}
    told: list[Progress] = []
    result = fedpareto.run("convex", "fedavg", clients=4, rounds=2, engine=engine, on_round=told.append)
    own = f"utility under clients' own preferences {result.own_utility:.4f}, regret {result.regret:.4f}"
    assert result.summary()[:2] == [f"hypervolume {result.hypervolume:.4f}", own]
    assert told[0].headline == ("hypervolume", told[0].hypervolume)
    assert list(told[0].means) == ["distance 1", "distance 2"]
