"""What models are held against: constant answers and plain models on the same rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from fedpareto.moo import tested

NEAR = 0.9 * tested.AT_THE_CONSTANT


@pytest.fixture
def held_out():
    """Two constant answers, each with two objectives, on the rows of all."""
    return tested.Tested(100, 20, np.array([[[0.7, 1.0]], [[0.3, 0.8]]]))


def test_models_have_collapsed_if_each_scores_in_every_objective_what_one_of_the_constants_does(held_out):
    assert held_out.collapsed(np.array([[0.7 + NEAR, 1.0 - NEAR], [0.7, 1.0]]))
    assert held_out.collapsed(np.array([[0.7, 1.0], [0.3, 0.8]])), "two models may have found two constants"
    assert not held_out.collapsed(np.array([[0.7, 1.0], [0.7, 1.0 - 1.5 * NEAR]])), "like it in one objective only"
    assert not held_out.collapsed(np.array([[0.7, 0.8], [0.7, 0.8]])), "like another one in each"
    assert not held_out.collapsed(np.array([[0.7, 1.0], [0.75, 1.0]])), "one model of two"


def test_models_of_clients_with_rows_of_their_own_are_held_against_constants_on_these():
    own = tested.Tested(100, 20, np.array([[[0.7, 1.0], [0.6, 0.9]]]))
    assert own.collapsed(np.array([[0.7, 1.0], [0.6, 0.9]]))
    assert not own.collapsed(np.array([[0.6, 0.9], [0.7, 1.0]])), "each on the other's rows"
    assert not own.collapsed(np.array([[0.7, 1.0]])), "nobody knows on whose rows"
    assert not tested.Tested(100, 20, np.empty((0, 1, 2))).collapsed(np.array([[0.7, 1.0]]))


class Aim(NamedTuple):
    """An objective."""

    maximise: bool
    reference: float


def test_models_are_worth_what_clients_have_of_them_or_the_volume_where_preferences_are_not_known():
    aims, points = [Aim(True, 0.0), Aim(False, 1.0)], np.array([[0.5, 0.2], [0.8, 0.6]])
    preferences = np.array([[0.5, 0.5], [1.0, 0.0]])
    own = np.mean([0.5 * 0.5 - 0.5 * 0.2, 0.8])
    assert tested.worth(points, preferences, aims) == pytest.approx(own)
    assert tested.worth(points[:1], preferences, aims) == pytest.approx(np.mean([0.5 * 0.5 - 0.5 * 0.2, 0.5]))
    volume = 0.5 * 0.8 + 0.3 * 0.4
    assert tested.worth(points, None, aims) == pytest.approx(volume)
    assert tested.worth(points, np.full((3, 2), 0.5), aims) == pytest.approx(volume), "points of nobody knows whom"
