"""Clients that take more than they give: no work, seldom a reply, bad labels; and what a simulated clock says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_attacks import ATTACKERS, CONVEX, HONEST, compared, engine_of, exchange

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.problems.synthetic import Synthetic
from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft
from fedpareto.trust.attacks import Attack


def run_of(attack: dict[str, Any], **more: Any) -> Result:
    values = {
        "algorithm": "fedavg",
        "problem": "convex",
        "clients": 6,
        "rounds": 6,
        "engine": {"threads": 1, "chunk": 6},
    }
    return runner.start(Draft(values | {"attack": {"clients": list(ATTACKERS), **attack}} | more).finish())


# -- free riders ---------------------------------------------------------------------------------------------------


def test_a_free_rider_sends_back_what_it_got_and_noise_as_long_as_asked_for() -> None:
    problem = Synthetic()
    before, after, _, _ = compared(FedAvg(), "free-rider", 0.5, problem=problem)
    start = problem.initial(0).double()
    for client in ATTACKERS:
        noise, update = after["model"][client] - start, before["model"][client] - start
        assert float(noise.norm() / update.norm()) == pytest.approx(0.5, rel=0.05)
        assert abs(torch.cosine_similarity(noise, update, dim=0)) < 0.08
    _, silent, _, _ = compared(FedAvg(), "free-rider", 0.0)
    for client in ATTACKERS:
        assert torch.equal(silent["model"][client], CONVEX.initial(0).double())


def test_a_free_rider_needs_no_time_and_no_energy_for_work_that_it_does_not_do() -> None:
    """On alike machines its exchange is two short messages: where nobody waits, it is heard far more often than all."""
    devices = {"kind": "equal", "speed": 100.0, "down": 1e6, "up": 1e6}
    heard = {}
    for kind in ("sign-flip", "free-rider"):
        result = run_of({"kind": kind}, devices=devices, policy="asynchronous", algorithm="fedasync", rounds=60)
        replies = np.zeros(6)
        for row in result.history:
            replies += result.columns.traffic(row)[:, 1] > 0
        heard[kind] = replies
    assert heard["sign-flip"][list(ATTACKERS)].max() < heard["sign-flip"].max(), "there are smaller clients"
    assert heard["free-rider"][list(ATTACKERS)].sum() > 50
    assert heard["free-rider"][list(HONEST)].sum() < 10


def test_until_the_first_round_of_it_a_free_rider_works_as_long_as_all() -> None:
    attacks = ({"kind": kind, "from_round": 3} for kind in ("sign-flip", "free-rider"))
    true, free = (run_of(attack, devices={"kind": "equal", "speed": 100.0}).history for attack in attacks)
    assert [row["joules"] for row in true[:3]] == [row["joules"] for row in free[:3]]
    assert all(one["joules"] > other["joules"] for one, other in zip(true[3:], free[3:], strict=True))


# -- seldom --------------------------------------------------------------------------------------------------------


def test_a_seldom_client_replies_in_one_of_k_rounds_and_is_silent_in_the_others() -> None:
    result = run_of({"kind": "seldom", "strength": 3, "from_round": 2})
    heard = [np.flatnonzero(result.columns.traffic(row)[:, 1] > 0).tolist() for row in result.history[:-1]]
    expected = [
        [client for client in range(6) if client not in ATTACKERS or round_ == 1 or (round_ + client) % 3 == 0]
        for round_ in range(1, 7)
    ]
    assert heard == expected
    assert [row["failures"] for row in result.history[:-1]] == [6 - len(clients) for clients in heard]


def test_what_seldom_clients_do_send_is_honest() -> None:
    attack = Attack(kind="seldom", clients=ATTACKERS, strength=2.0)
    (calm,), (attacked,) = (exchange(engine_of(FedAvg(), one)) for one in (Attack(), attack))
    there = attacked.replies.clients
    assert there.tolist() == [0, 1, 2, 3, 5]  # In round 1 it is the turn of odd clients.
    assert torch.equal(attacked.replies["model"], calm.replies["model"][torch.as_tensor(there)])
    (failure,) = attacked.failures
    assert (failure.client, failure.reason) == (4, "said nothing (it seldom replies)")


# -- bad labels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_of_a_low_quality_client_exactly_the_share_of_its_training_labels_is_false(share: float) -> None:
    attack = Attack(kind="low-quality", clients=ATTACKERS, strength=share)
    splits = engine_of(FedAvg(), attack, Synthetic())._splits
    for twin, client in enumerate(ATTACKERS, start=6):
        for split, rows in splits.items():
            true, false = rows.of_client(client), rows.of_client(twin)
            wrong = int((true["label"] != false["label"]).sum())
            assert wrong == (round(share * len(true["label"])) if split == "train" else 0)
            assert torch.equal(false["features"], true["features"])


def test_false_labels_are_each_clients_own_and_the_same_beside_any_other_seed() -> None:
    attack = Attack(kind="low-quality", clients=ATTACKERS)
    problem = Synthetic()

    def wrong(seeds: tuple[int, ...]) -> dict[tuple[int, int], list[bool]]:
        rows = engine_of(FedAvg(), attack, problem, seeds=seeds)._splits["train"]
        found, twin = {}, 6 * len(seeds)
        for run, seed in enumerate(seeds):
            for client in ATTACKERS:
                true, false = rows.of_client(6 * run + client)["label"], rows.of_client(twin)["label"]
                found[seed, client], twin = (true != false).tolist(), twin + 1
        return found

    both = wrong((3, 5))
    assert both == wrong((3,)) | wrong((5,))
    assert both[3, 1] != both[3, 4]
    assert both[3, 1] != both[5, 1]


@pytest.mark.parametrize("kind", ["free-rider", "seldom", "low-quality"])
def test_several_seeds_side_by_side_give_what_each_alone_gives(kind: str) -> None:
    problem = Synthetic(hidden=(4,))
    attack = Attack(kind=kind, share=0.4)  # type: ignore[arg-type]
    together = exchange(engine_of(FedAvg(), attack, problem, seeds=(3, 5), chunk=12), rounds=1)
    alone = [exchange(engine_of(FedAvg(), attack, problem, seeds=(seed,), chunk=1), rounds=1)[0] for seed in (3, 5)]
    for one, two in zip(together, alone, strict=True):
        assert one.replies.clients.tolist() == two.replies.clients.tolist()
        torch.testing.assert_close(one.replies.tensors, two.replies.tensors, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "seldom", "strength": 1.0}, "of seldom it is of how many rounds a client replies in one"),
        ({"kind": "seldom", "strength": 2.5}, "a whole number, at least 2"),
        ({"kind": "low-quality", "strength": 1.5}, "of low-quality it is a share of rows, at most 1"),
        ({"kind": "low-quality", "strength": 0.0}, "of low-quality it is a share of rows"),
        ({"kind": "free-rider", "strength": -1.0}, "of free-rider it is a length, not negative"),
    ],
)
def test_a_strength_that_makes_no_sense_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Attack(**values)
    with pytest.raises(UserError, match="low-quality needs rows with a label"):
        Attack(kind="low-quality").must_fit(CONVEX, 6)
