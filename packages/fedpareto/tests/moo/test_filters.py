from __future__ import annotations

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.moo.filters import is_converged


def test_a_solution_that_is_too_fair_to_be_true_is_left_out():
    points = [[0.76, 1.0], [0.80, 0.9995], [0.85, 0.998], [0.86, 0.8]]
    assert is_converged(points, [False, True]).tolist() == [False, False, True, True]
    assert is_converged(points, [False, True], epsilon=0.1).tolist() == [False, False, False, True]


def test_of_several_fairness_values_one_may_be_perfect():
    points = [[0.76, 1.0, 1.0], [0.85, 1.0, 0.9]]
    assert is_converged(points, [False, True, True]).tolist() == [False, True]


def test_accuracy_alone_says_nothing_and_no_points_are_no_trouble():
    assert is_converged([[1.0, 1.0]], [False, False]).tolist() == [True]
    assert is_converged(np.zeros((0, 2)), [False, True]).tolist() == []


def test_one_word_for_each_objective():
    with pytest.raises(UserError, match="expected 2 of True or False"):
        is_converged([[1.0, 1.0]], [True])
