"""Pairs of scikit-learn's digits: as documented, without a download."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.registry import make_algorithm
from fedpareto.problems.multitask.digits import DigitPairs, overlaid
from fedpareto.testing import check_problem
from fedpareto.testing.conformance import largest_difference, trial


def test_two_digits_lie_over_each_other():
    left, right = np.full((1, 8, 8), 3, dtype=np.uint8), np.full((1, 8, 8), 5, dtype=np.uint8)
    (canvas,) = overlaid(left, right)
    assert canvas.shape == (10, 10)
    assert (canvas[2:, 2:] == 5).all()
    assert (canvas[:2, :8] == 3).all()
    assert (canvas[:8, :2] == 3).all()
    assert not canvas[:2, 8:].any()
    assert not canvas[8:, :2].any()


def test_four_digits_lie_in_the_corners_and_are_a_task_each():
    (canvas,) = overlaid(*(np.full((1, 8, 8), value, dtype=np.uint8) for value in (1, 2, 3, 4)))
    assert canvas.shape == (14, 14)
    assert [canvas[0, 0], canvas[0, 13], canvas[13, 0], canvas[13, 13]] == [1, 2, 3, 4]
    assert canvas[6, 6] == 4, "where they overlap the larger value counts"
    problem = DigitPairs(samples=40, test_samples=20, digits=4)
    assert [one.name for one in problem.objectives] == [f"accuracy:{task}" for task in problem.model.tasks]
    assert [one.name for one in problem.outputs()] == ["top-left", "top-right", "bottom-left", "bottom-right"]
    assert problem.data(2, seed=0)["train"].of_client(0)["labels"].shape == (20, 4)
    check_problem(problem)
    with pytest.raises(UserError, match="digits is 3; an image has 2 of them, or 4, one in each corner"):
        DigitPairs(digits=3)


def test_every_pair_is_made_of_two_digits_with_its_labels_and_no_left_one_is_used_twice():
    published = load_digits()
    problem = DigitPairs()
    for part, place, count in (("train", slice(0, 1297), 600), ("test", slice(1297, None), 500)):
        digits, names = published.images[place].astype(np.uint8), published.target[place]
        table = problem.data(10, seed=0)[part]
        rows = [table.of_client(client) for client in range(10 if part == "train" else 1)]
        images = np.concatenate([one["image"].numpy() for one in rows])
        labels = np.concatenate([one["labels"].numpy() for one in rows])
        assert len(images) == count
        # Of the left digit the first two rows and columns are always seen, and tell it from all others.
        edges = {edge(digit): name for digit, name in zip(digits, names, strict=True)}
        lefts = [edge(image[:8, :8]) for image in images]
        agree = [edges.get(one) == label for one, label in zip(lefts, labels[:, 0], strict=True)]
        assert np.mean(agree) > 0.9, "a few digits have the same edges"
        assert set(labels.ravel().tolist()) == set(range(10))


def edge(digit):
    return digit[:2].tobytes() + digit[:, :2].tobytes()


def test_everyone_is_tested_on_the_same_images_and_on_its_own():
    splits = DigitPairs(test_samples=50).data(5, seed=3)
    assert set(splits) == {"train", "test", "own-test"}
    assert splits["train"].counts.tolist() == [120] * 5
    assert splits["own-test"].counts.tolist() == [10] * 5
    assert splits["test"].counts.tolist() == [50] * 5


def test_wrong_numbers_are_told():
    with pytest.raises(UserError, match="samples is 1,298; it is at least 1 and at most 1,297"):
        DigitPairs(samples=1298)
    with pytest.raises(UserError, match="test_samples is 0; it is at least 1 and at most 500"):
        DigitPairs(test_samples=0)
    with pytest.raises(UserError, match="20 clients need at least 20 images in 'test'; test_samples is 10"):
        DigitPairs(test_samples=10).data(20, seed=0)


def test_both_digits_are_told_after_some_rounds():
    result = fedpareto.run(DigitPairs(), "fedavg", rounds=8, engine={"threads": 1, "chunk": 16})
    assert (result.solutions[0].points.mean(axis=0) > 0.5).all()


def test_a_stack_of_clients_learns_what_single_ones_do():
    problem = DigitPairs(samples=140, test_samples=70)
    whole, single = (trial(make_algorithm("fedavg"), problem, chunk=chunk) for chunk in (7, 1))
    assert largest_difference(whole.models, single.models) < 1e-4
