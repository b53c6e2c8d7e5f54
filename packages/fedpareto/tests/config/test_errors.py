from __future__ import annotations

import pytest

from fedpareto.config.errors import UnknownName

ALGORITHMS = ("fedavg", "fedmgda", "fedmgda-plus", "fedmgda+ft", "fedmgda-plus+ft", "q-fedavg")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("fedmgda+", "fedmgda-plus"),
        ("FedMGDA+", "fedmgda-plus"),
        ("fedmgda_plus", "fedmgda-plus"),
        ("FedMGDA++ft", "fedmgda-plus+ft"),
        ("FedMGDA", "fedmgda"),
        ("fedmg", "fedmgda"),
        ("fedavgg", "fedavg"),
        ("qfedavg", "q-fedavg"),
    ],
)
def test_a_wrong_name_is_answered_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert str(UnknownName("algorithm", typed, ALGORITHMS)) == (f"unknown algorithm '{typed}'; did you mean '{meant}'?")


def test_of_names_that_begin_so_the_first_is_meant_although_others_are_more_similar() -> None:
    known = ("slower", "flower-local", "flower-sim")
    assert str(UnknownName("engine", "flower", known)).endswith("did you mean 'flower-local'?")


def test_two_letters_are_no_beginning() -> None:
    assert str(UnknownName("parameter", "lo", ("longest_path", "lr"))).endswith("did you mean 'lr'?")


def test_a_name_like_nothing_else_is_answered_with_all_of_them() -> None:
    assert str(UnknownName("engine", "zzz", ("local", "flower"))) == "unknown engine 'zzz'; known: flower, local."
