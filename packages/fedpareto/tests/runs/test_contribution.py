"""What clients contribute: closed forms, and the record of it on the local engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.record import reading
from fedpareto.record.columns import CONTRIBUTION
from fedpareto.report import terminal
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto.trust.contribution import contributions
from folders import assert_same_results

ORIGIN = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
UPDATES = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SIZES = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0], dtype=torch.float64)
TASKS = [Tasks(np.arange(5), {"model": ORIGIN}, round=1)]


def of(updates: torch.Tensor, judge: Any = None, **more: torch.Tensor) -> dict[str, np.ndarray]:
    found = contributions(TASKS, Replies(np.arange(5), {"model": ORIGIN + updates, **more}), judge)
    assert found is not None
    return dict(zip(CONTRIBUTION, found.values.T, strict=True))


def test_each_value_is_what_leaving_the_client_out_would_give() -> None:
    found = of(UPDATES, size=SIZES)
    weights = SIZES / SIZES.sum()
    step = weights @ UPDATES
    for i in range(5):
        rest = [j for j in range(5) if j != i]
        without = (SIZES[rest] / SIZES[rest].sum()) @ UPDATES[rest]
        assert found["share"][i] == pytest.approx(float(weights[i] * UPDATES[i] @ step / (step @ step)))
        assert found["cosine"][i] == pytest.approx(float(torch.cosine_similarity(UPDATES[i], without, dim=0)))
        assert found["change"][i] == pytest.approx(float((without - step).norm() / step.norm()))
    assert found["share"].sum() == pytest.approx(1)
    assert np.isnan(found["gain"]).all()


def test_the_gain_is_leave_one_out_on_the_servers_own_rows() -> None:
    """With a linear judge the gain is linear too."""
    slope = torch.tensor([1.0, 0.0, -2.0, 3.0], dtype=torch.float64)
    found = of(UPDATES, judge=lambda models: models @ slope)
    for i in range(5):
        without = UPDATES[[j for j in range(5) if j != i]].mean(0)
        assert found["gain"][i] == pytest.approx(float(slope @ (UPDATES.mean(0) - without)))


def test_equal_clients_contribute_alike_and_who_sends_nothing_new_contributes_nothing() -> None:
    found = of(UPDATES[:1].expand(5, 4))
    np.testing.assert_allclose(found["share"], 0.2)
    np.testing.assert_allclose(found["cosine"], 1)
    np.testing.assert_allclose(found["change"], 0, atol=1e-7)
    idle = UPDATES[:1].expand(5, 4).clone()
    idle[3] = 0
    found = of(idle)
    assert found["share"][3] == found["cosine"][3] == 0
    np.testing.assert_allclose(np.delete(found["share"], 3), 0.25)


def test_who_pulls_back_has_a_negative_share() -> None:
    flipped = UPDATES[:1].expand(5, 4).clone()
    flipped[2] *= -1
    found = of(flipped)
    np.testing.assert_allclose(found["share"], [1 / 3, 1 / 3, -1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(found["cosine"], [1, 1, -1, 1, 1])


def test_where_nobody_moves_there_is_nothing_to_share() -> None:
    found = of(torch.zeros(5, 4, dtype=torch.float64))
    assert (found["share"] == 0).all()
    assert np.isnan(found["change"]).all()


def test_updates_are_measured_from_where_each_client_began_and_replies_without_a_model_from_nowhere() -> None:
    starts = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    tasks = [Tasks(np.arange(5), own={"model": starts}, round=1)]
    found = contributions(tasks, Replies(np.arange(5), {"model": starts + UPDATES}))
    assert found is not None
    np.testing.assert_allclose(found.values[:, :3], np.stack([of(UPDATES)[name] for name in CONTRIBUTION[:3]], axis=1))
    assert contributions(tasks, Replies(np.arange(5), {"loss": torch.zeros(5)})) is None


# -- whole runs ----------------------------------------------------------------------------------------------------


def spec_of(**more: Any) -> Spec:
    values = {
        "algorithm": "fedavg",
        "problem": {"name": "synthetic", "hidden": [4], "rows": 600},
        "clients": 6,
        "rounds": 4,
        "measure_contribution": True,
        "engine": {"threads": 1, "chunk": 6},
    }
    return Draft(values | more).finish()


def test_measuring_changes_nothing_but_the_record() -> None:
    on, off = (runner.start(spec_of(measure_contribution=measured)) for measured in (True, False))
    assert all(torch.equal(on.models[0][client], off.models[0][client]) for client in range(6))
    assert "contribution" not in off.history[0]["columns"]
    with pytest.raises(UserError, match="measure_contribution=True"):
        off.contributions()


def test_the_whole_is_the_mean_of_the_rounds_and_silence_counts_as_nothing() -> None:
    result = runner.start(spec_of(attack={"kind": "seldom", "clients": [2], "strength": 2}))
    rounds = [result.columns.block(row, "contribution") for row in result.history]
    values = [result.columns.spread(block) for block in rounds if block is not None]
    assert len(values) == 4
    (found,) = result.contributions()
    np.testing.assert_allclose(found["share"], np.nansum([one[:, 0] for one in values], axis=0) / 4)
    np.testing.assert_allclose(found["cosine"], np.nanmean([one[:, 1] for one in values], axis=0))
    assert found["share"].sum() == pytest.approx(1)
    assert found["participation"].tolist() == [1, 1, 0.5, 1, 1, 1]


@pytest.mark.parametrize("name", ["fedpref", "fedfew", "fedcmoo", "mofld", "fedrep", "ifca", "fedavg+ft"])
def test_any_algorithm_whose_clients_send_a_model_can_be_measured(name: str) -> None:
    (found,) = runner.start(spec_of(algorithm=name, rounds=2)).contributions()
    assert np.isfinite(found["share"]).all()


def test_a_server_with_rows_of_its_own_says_what_each_client_is_worth_there() -> None:
    problem = {"name": "synthetic", "hidden": [4], "rows": 600, "server_rows": 300}
    (found,) = runner.start(spec_of(problem=problem)).contributions()
    assert np.isfinite(found["gain"]).all()
    assert np.ptp(found["gain"]) > 0


def test_a_stopped_run_has_the_same_contributions(tmp_path: Path) -> None:
    spec = spec_of(participation=0.7, seeds=2)
    runner.start(spec, tmp_path / "whole")
    done = iter([False, True])
    with pytest.raises(Stopped):
        runner.start(spec, tmp_path / "stopped", stop=lambda: next(done))
    runner.resume(tmp_path / "stopped")
    assert_same_results(tmp_path / "whole", tmp_path / "stopped")


def test_the_table_of_clients_shows_them(tmp_path: Path) -> None:
    result = runner.start(spec_of(), tmp_path / "run")
    rows = terminal.clients_plain(reading.load(tmp_path / "run"), 0)
    (found,) = result.contributions()
    assert [row["share"] for row in rows] == found["share"].tolist()
    assert [row["participation"] for row in rows] == [1.0] * 6
    assert rows[0]["gain"] is None
    runner.start(spec_of(measure_contribution=False), tmp_path / "plain")
    assert terminal.clients_plain(reading.load(tmp_path / "plain"), 0)[0]["share"] is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"algorithm": "local"}, "measure_contribution is true, but clients of local send no model"),
        ({"privacy": "central", "algorithm": {"name": "fedavg", "weighting": "equal"}}, "would have no noise"),
    ],
)
def test_where_nothing_can_or_may_be_measured_that_is_said(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        spec_of(**more)
