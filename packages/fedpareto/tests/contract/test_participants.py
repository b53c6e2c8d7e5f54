"""Who takes part in a round."""

from __future__ import annotations

import pytest

from fedpareto.contract.algorithm import participant_count


@pytest.mark.parametrize(
    ("share", "clients", "expected"),
    [
        (1.0, 7, 7),
        (0.5, 5, 3),
        (0.1, 30, 3),
        (0.1, 100, 10),
        (1 / 3, 6, 2),
        (0.01, 10, 1),
        (0.07, 100, 7),
        (0.3, 10, 3),
        (1e-12, 10, 1),
    ],
)
def test_a_share_of_clients_is_rounded_up_but_not_for_rounding_errors(share, clients, expected):
    assert participant_count(share, clients) == expected


def test_every_count_is_its_own_share():
    for clients in range(1, 1000, 7):
        for count in range(1, clients + 1):
            assert participant_count(count / clients, clients) == count
