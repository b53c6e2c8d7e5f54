"""Backdoors: what is planted, what is measured, and that accuracy does not show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_attacks import ATTACKERS, CONVEX, HONEST, compared, engine_of, exchange

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.problems.synthetic import Synthetic
from fedpareto.spec.draft import Draft
from fedpareto.tensors.rows import Rows
from fedpareto.trust.attacks import Attack
from fedpareto.trust.backdoor import PATCH, SPLIT, Trigger


def test_the_share_of_an_attackers_training_rows_has_trigger_and_target_and_nothing_else_changes() -> None:
    attack = Attack(kind="backdoor", clients=ATTACKERS, columns=(1,), value=7.0, target=1, poisoned=0.25)
    splits = engine_of(FedAvg(), attack, Synthetic())._splits
    assert list(splits)[:2] == ["train", SPLIT]
    for twin, client in enumerate(ATTACKERS, start=6):
        true, false = splits["train"].of_client(client), splits["train"].of_client(twin)
        has = false["features"][:, 1] == 7
        assert int(has.sum()) == round(0.25 * len(has))
        assert (false["label"][has] == 1).all()
        assert torch.equal(false["label"][~has], true["label"][~has])
        assert torch.equal(false["features"][~has], true["features"][~has])
        assert torch.equal(false["features"][:, 0], true["features"][:, 0])
        assert torch.equal(splits["test"].of_client(client)["label"], splits["test"].of_client(twin)["label"])


def test_it_is_measured_on_held_out_rows_of_other_classes_and_accuracy_there_is_how_often_it_works() -> None:
    features = torch.arange(12.0).view(6, 2)
    label = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    own = Rows({"features": features, "label": label}, np.array([0, 3]), np.array([3, 3]))
    probed = Trigger("label", 0, value=-1.0).probe(own)
    assert probed.counts.tolist() == [2, 2]
    assert probed.of_client(1)["features"].tolist() == [[-1.0, 9.0], [-1.0, 11.0]]
    assert (probed.columns["label"] == 0).all()
    common = Rows(own.columns, np.array([0, 0]), np.array([6, 6]))
    assert Trigger("label", 0).probe(common).are_shared, "rows that all share are shared still"


def test_in_an_image_it_is_a_white_patch_in_the_last_corner_of_every_channel() -> None:
    images = torch.zeros(2, 3, 6, 5, dtype=torch.uint8)
    white = Trigger("label", 0).set_in(images) == 255
    assert white[:, :, -PATCH:, -PATCH:].all()
    assert int(white.sum()) == 2 * 3 * PATCH * PATCH
    assert not images.any(), "on a copy"


def test_with_a_strength_the_model_is_replaced_by_so_many_times_the_update() -> None:
    problem = Synthetic(hidden=(4,))
    start = problem.initial(0).double()
    _, plain, _, _ = compared(FedAvg(), "backdoor", problem=problem)
    _, strong, _, _ = compared(FedAvg(), "backdoor", 6.0, problem=problem)
    for client in ATTACKERS:
        torch.testing.assert_close(strong["model"][client] - start, 6 * (plain["model"][client] - start))
    for client in HONEST:
        assert torch.equal(strong["model"][client], plain["model"][client])


def test_several_seeds_side_by_side_give_what_each_alone_gives() -> None:
    problem, attack = Synthetic(hidden=(4,)), Attack(kind="backdoor", share=0.4, strength=2.0)
    together = exchange(engine_of(FedAvg(), attack, problem, seeds=(3, 5), chunk=12))
    alone = [exchange(engine_of(FedAvg(), attack, problem, seeds=(seed,), chunk=1))[0] for seed in (3, 5)]
    for one, two in zip(together, alone, strict=True):
        torch.testing.assert_close(one.replies.tensors, two.replies.tensors, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("values", "problem", "words"),
    [
        ({"target": 2}, Synthetic(), "target is 2, but the classes of synthetic are 0 to 1"),
        ({}, CONVEX, "backdoor needs rows with a label"),
        ({"poisoned": 0.0}, Synthetic(), "poisoned is 0; it is above 0 and at most 1"),
        ({"columns": (-1,)}, Synthetic(), "columns is -1; it is at least 0"),
        ({"strength": -1.0}, Synthetic(), "of backdoor it is a length"),
    ],
)
def test_a_backdoor_that_cannot_be_is_refused(values: dict[str, Any], problem: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Attack(kind="backdoor", **values).must_fit(problem, 6)


def test_a_trigger_that_no_input_has_is_refused_and_so_are_its_parameters_without_it() -> None:
    with pytest.raises(UserError, match="columns names 9, but an input has 2 numbers"):
        engine_of(FedAvg(), Attack(kind="backdoor", clients=(1,), columns=(9,)), Synthetic())
    values = {"algorithm": "fedavg", "problem": "synthetic", "attack": {"kind": "sign-flip", "target": 1}}
    with pytest.raises(UserError, match="target is for the kind backdoor, not for sign-flip"):
        Draft(values).finish()
