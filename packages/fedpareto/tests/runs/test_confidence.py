"""Confidence scores (Muñoz-González, Co, Lupu, 2019): who is discarded, weighted and blocked, by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract import registry
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.contract.privacy import Privacy
from fedpareto.moo import robust
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto.trust.confidence import Standing
from fedpareto.trust.defences import Defence, Defended
from folders import assert_same_results, rows

RULE = Defence(rule="confidence")
CLIENTS = np.arange(10)
ORIGIN = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
UPDATE = torch.tensor([0.3, -0.1, 0.2], dtype=torch.float64)


def after(updates: torch.Tensor, standing: Standing | None = None) -> Defended:
    clients = np.arange(len(updates))
    tasks = [Tasks(clients, {"model": ORIGIN}, round=1)]
    return RULE.applied(tasks, Replies(clients, {"model": ORIGIN + updates}), standing)


def alike(cosines: list[float], width: float = 2.0) -> list[int]:
    """Who is taken of unit updates whose mean is along the first axis, if its other parts cancel: pairs of them."""
    up = torch.tensor([[cosine, math.sqrt(1 - cosine**2)] for cosine in cosines], dtype=torch.float64)
    both = torch.cat([up, up * torch.tensor([1.0, -1.0], dtype=torch.float64)])
    kept = robust.alike(both @ both.T, torch.ones(len(both), dtype=torch.float64), width, 0.5)
    assert torch.equal(kept[: len(up)], kept[len(up) :])
    return np.flatnonzero(kept[: len(up)].numpy()).tolist()


# -- who is discarded ----------------------------------------------------------------------------------------------


def test_equal_clients_are_all_taken_and_weigh_the_same() -> None:
    told = after(UPDATE.expand(10, 3))
    assert told.standing is not None
    assert told.left_out == ()
    torch.testing.assert_close(told.replies["model"], (ORIGIN + UPDATE).expand(10, 3))
    assert np.ptp(told.standing.confidence(3.0)) == 0
    assert told.standing.confidence(3.0)[0] == 4 / 7


def test_discarding_is_two_sided() -> None:
    """A tail below the median is cut there; if the tail is above it, where those who agree with the mean are, there."""
    assert alike([0.9] * 8 + [-0.5]) == list(range(8))
    assert alike([0.2] * 8 + [1.0]) == list(range(8))
    assert alike([0.9, 0.8, 0.7, 0.6]) == [0, 1, 2, 3]


def test_a_tail_is_cut_until_nothing_lies_outside() -> None:
    """The worse of two outliers hides the other from a wide band; once it is gone, the other is seen."""
    cosines = [0.99, 0.98, 0.97, 0.96, 0.99, 0.98, 0.97, 0.96, 0.99, 0.98, 0.4, -0.9]
    assert alike(cosines, width=2.0) == list(range(10))
    assert 10 in alike(cosines, width=4.0)


def test_rounding_is_no_reason_to_discard_anybody() -> None:
    nearly = UPDATE.expand(10, 3) * (1 + 1e-15 * torch.arange(10, dtype=torch.float64)[:, None])
    assert after(nearly).left_out == ()
    assert after(torch.zeros(10, 3, dtype=torch.float64)).left_out == ()


def test_only_directions_count_so_who_is_a_hundred_times_as_long_is_taken() -> None:
    long = UPDATE.repeat(10, 1)
    long[4] *= 100
    told = after(long)
    assert told.left_out == ()
    torch.testing.assert_close(told.replies["model"][0], ORIGIN + 10.9 * UPDATE)


def test_the_model_is_the_mean_by_confidence_of_those_who_are_taken() -> None:
    """Weights 3/6, 5/8 and 6/9 of clients who were taken 0, 2 and 3 times, and the fourth is blocked."""
    updates = torch.tensor([[1.0, 0.1, 0.0], [1.0, -0.1, 0.0], [1.0, 0.0, 0.1], [-9.0, 0.0, 0.0]], dtype=torch.float64)
    standing = Standing(np.arange(4), np.array([0, 2, 3, 0]), np.array([0, 0, 0, 9]))
    told = after(updates, standing)
    weights = torch.tensor([3 / 6, 5 / 8, 6 / 9], dtype=torch.float64)
    expected = ORIGIN + weights @ updates[:3] / weights.sum()
    assert told.replies.clients.tolist() == [0, 1, 2]
    torch.testing.assert_close(told.replies["model"], expected.expand(3, 3))
    assert told.left_out == (3,)
    assert told.standing is not None
    assert told.standing.bad[3] == 9, "who is blocked is no longer judged"


def test_if_all_who_reply_are_blocked_nothing_moves() -> None:
    standing = Standing(np.arange(3), np.zeros(3, dtype=int), np.full(3, 9))
    told = after(UPDATE.expand(3, 3), standing)
    torch.testing.assert_close(told.replies["model"], ORIGIN.expand(3, 3))
    assert told.left_out == (0, 1, 2)


# -- who is blocked ------------------------------------------------------------------------------------------------


def binomial_tail(good: int, bad: int) -> float:
    """I_{1/2}(3 + g, 3 + b) is the probability of at least 3 + g heads in 5 + g + b throws."""
    throws = 5 + good + bad
    return sum(math.comb(throws, heads) for heads in range(3 + good, throws + 1)) / 2**throws


def test_blocking_is_by_the_binomial_tail() -> None:
    grid = [(good, bad) for good in range(12) for bad in range(12)]
    good, bad = (np.array(column) for column in zip(*grid, strict=True))
    blocked = Standing(np.arange(len(grid)), good, bad).blocked(3.0, 0.95)
    assert blocked.tolist() == [binomial_tail(*one) > 0.95 for one in grid]


def test_one_flipped_client_of_ten_is_blocked_after_its_sixth_bad_update() -> None:
    """After five 1 − 56/1024 = 0.945 is too little, after six 1 − 67/2048 = 0.967 is enough."""
    assert binomial_tail(0, 5) == 1 - 56 / 1024 < 0.95 < 1 - 67 / 2048 == binomial_tail(0, 6)
    updates = UPDATE.repeat(10, 1)
    updates[7] *= -1
    standing = Standing.unknown(CLIENTS)
    for number in range(1, 8):
        told = after(updates, standing)
        assert told.standing is not None
        standing = told.standing
        assert told.left_out == (7,)
        assert standing.blocked(3.0, 0.95).tolist() == [number >= 6 and client == 7 for client in range(10)]
        assert standing.confidence(3.0)[0] == (3 + number) / (6 + number)
    assert standing.bad[7] == 6


# -- whole runs ----------------------------------------------------------------------------------------------------


def spec_of(attack: Any = "none", **more: Any) -> Spec:
    values = {
        "algorithm": "fedavg",
        "problem": "convex",
        "clients": 10,
        "rounds": 9,
        "preferences": "0.5,0.5",
        "engine": {"threads": 1, "chunk": 20},
        "attack": attack,
        "defence": "confidence",
    }
    return Draft(values | more).finish()


FLIPPED = {"kind": "sign-flip", "clients": [7], "strength": 5}


def test_a_blocked_client_is_no_longer_asked_and_the_record_says_so(tmp_path: Path) -> None:
    runner.start(spec_of(FLIPPED), tmp_path / "run")
    found = rows(tmp_path / "run")[:9]
    assert [row["left_out"] for row in found[:6]] == [[7]] * 6
    assert [row["blocked"] for row in found] == [[]] * 5 + [[7]] * 4
    assert [row["replies"] for row in found] == [10] * 6 + [9] * 3
    assert [row["confidence"][7] for row in found[:6]] == [round(3 / (7 + bad), 4) for bad in range(6)]


@pytest.mark.parametrize("more", [{}, {"participation": 0.7}, {"policy": "buffered", "devices": "tiers"}])
def test_what_is_remembered_survives_a_stop_bit_for_bit(more: dict[str, Any], tmp_path: Path) -> None:
    spec = spec_of(FLIPPED, seeds=2, **more)
    runner.start(spec, tmp_path / "whole")
    done = iter([*[False] * 3, True])
    with pytest.raises(Stopped):
        runner.start(spec, tmp_path / "stopped", stop=lambda: next(done))
    runner.resume(tmp_path / "stopped")
    assert_same_results(tmp_path / "whole", tmp_path / "stopped")


def test_more_clients_than_fit_a_line_have_their_confidence_in_columns() -> None:
    result = runner.start(spec_of(clients=70, rounds=1))
    row = result.history[0]
    assert "confidence" not in row
    assert len(result.columns.described(row, "confidence")) == 70


def test_a_checkpoint_of_other_clients_is_refused(tmp_path: Path) -> None:
    done = iter([True])
    with pytest.raises(Stopped):
        runner.start(spec_of(), tmp_path / "run", stop=lambda: next(done))
    path = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint = Checkpoint.load(path)
    checkpoint.tensors["standing/0/bad"] = torch.zeros(4, dtype=torch.int64)
    checkpoint.save(path)
    with pytest.raises(DamagedFile, match="something else than the 10 clients"):
        runner.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"prior": 0.0}, "prior is 0; it is above 0"),
        ({"width": -1.0}, "width is -1; it is above 0"),
        ({"widening": -1.0}, "widening is -1; it is at least 0"),
        ({"certainty": 1.0}, "certainty is 1; it is at least 0.5 and below 1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Defence(rule="confidence", **values)  # type: ignore[arg-type]


def test_two_clients_say_nothing_about_each_other() -> None:
    algorithm = registry.make_algorithm("fedavg", {})
    RULE.must_fit(algorithm, Privacy(), 3)
    with pytest.raises(UserError, match="at least 3 clients in a round, not 2"):
        RULE.must_fit(algorithm, Privacy(), 2)
