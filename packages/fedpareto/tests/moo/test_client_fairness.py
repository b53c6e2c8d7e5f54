"""How evenly clients fare, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.moo.fairness import across_clients, jain_index, share_improved


def test_summary_of_accuracies_and_of_losses() -> None:
    values = np.arange(11) / 10
    large, small = across_clients(values), across_clients(values, better="small")
    assert large.mean == small.mean == pytest.approx(0.5)
    assert large.deviation == pytest.approx(np.sqrt(0.1))
    assert (large.worst, large.best, large.low) == pytest.approx((0.0, 1.0, 0.1))
    assert (small.worst, small.best, small.low) == pytest.approx((1.0, 0.0, 0.9))
    assert large.jain == pytest.approx(5.5**2 / (11 * 3.85))


def test_jain_is_one_for_equals_and_one_nth_for_a_monopoly() -> None:
    assert jain_index([0.3] * 7) == pytest.approx(1)
    assert jain_index([0, 0, 0, 5]) == pytest.approx(1 / 4)
    assert jain_index([1, 2, 3]) == jain_index(np.array([1, 2, 3]) * 1e-200) == pytest.approx(36 / (3 * 14))
    assert jain_index([0, 0]) == 1


def test_negative_values_have_a_summary_but_no_jain_index() -> None:
    assert across_clients([-1, 2]).jain is None
    with pytest.raises(UserError, match="not negative"):
        jain_index([-1, 2])


def test_who_stays_where_it_was_has_not_lost() -> None:
    assert share_improved([1, 1, 1, 1], [0.5, 1, 1.1, 0]) == 0.75


def test_wrong_values_are_named() -> None:
    with pytest.raises(UserError, match="not a finite number"):
        across_clients([0.5, np.nan])
    with pytest.raises(ValueError, match="one number for each client"):
        across_clients(np.ones((2, 2)))
    with pytest.raises(ValueError, match="2 losses before, 3 after"):
        share_improved([1, 2], [1, 2, 3])
