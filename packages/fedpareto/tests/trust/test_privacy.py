"""ε of the accountant against closed forms, and what a user may ask for."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import pairwise

import pytest
from scipy.special import ndtr

from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import ORDERS, Exposure, Privacy, epsilon, need_accountant

CENTRAL, LOCAL = Privacy("central", noise=1.1), Privacy("local", noise=1.1)


def after(rounds, *, sampled=10, clients=10, most=None):
    return Exposure(rounds if most is None else most, rounds, sampled, clients)


def delta_of(value, deviation, sensitivity=1.0):
    """δ(ε) of a Gaussian mechanism in closed form (Balle, Wang, 2018, theorem 8)."""
    ratio = sensitivity / deviation
    return ndtr(ratio / 2 - value / ratio) - math.exp(value) * ndtr(-ratio / 2 - value / ratio)


@pytest.mark.parametrize("rounds", [1, 4, 25])
def test_central_epsilon_is_that_of_one_gaussian_with_all_rounds_in_it(rounds):
    value = epsilon(CENTRAL, after(rounds))
    assert delta_of(value, 1.1, math.sqrt(rounds)) == pytest.approx(CENTRAL.delta, rel=1e-6)


def test_local_epsilon_counts_two_clipped_updates_apart():
    value = epsilon(LOCAL, after(4))
    assert delta_of(value, 1.1, 2 * math.sqrt(4)) == pytest.approx(LOCAL.delta, rel=1e-6)


def test_epsilon_is_zero_before_the_first_round_and_grows():
    values = [epsilon(CENTRAL, after(rounds)) for rounds in range(6)]
    assert values[0] == 0
    assert all(before < now for before, now in pairwise(values))


def test_without_noise_there_is_no_bound():
    assert epsilon(Privacy("central", noise=0), after(1)) == math.inf


def test_public_participants_cost_what_the_most_often_asked_client_gave():
    assert epsilon(CENTRAL, after(20, sampled=2, most=7)) == epsilon(CENTRAL, after(7))


def test_secret_participants_make_epsilon_smaller_but_never_larger():
    secret = Privacy("central", noise=1.1, participants="secret")
    few, many = after(20, sampled=10, clients=1000, most=20), after(20, sampled=9, clients=10, most=20)
    assert epsilon(secret, few) < 0.5 * epsilon(CENTRAL, few)
    assert epsilon(secret, many) == epsilon(CENTRAL, many)


def theorem_27(order, share, deviation):
    """Rényi divergence under sampling without replacement, by hand (Wang, Balle, Kasiviswanathan, 2019): of the
    Gaussian mechanism with ε(j) = j / 2σ², in decimals, because its differences cancel in floating point.
    """
    with localcontext() as context:
        context.prec = 80
        power = [Decimal(j * (j - 1) / (2 * deviation**2)).exp() for j in range(order + 2)]  # exp((j − 1) ε(j))
        rise = [sum((-1) ** (n - k) * math.comb(n, k) * power[k] for k in range(n + 1)) for n in range(order + 2)]
        squared = Decimal(2 / (2 * deviation**2)).exp()
        total = 1 + math.comb(order, 2) * Decimal(share) ** 2 * min(4 * (squared - 1), 2 * squared)
        for j in range(3, order + 1):
            middle = 4 * (rise[2 * (j // 2)] * rise[2 * ((j + 1) // 2)]).sqrt()
            total += math.comb(order, j) * Decimal(share) ** j * min(middle, 2 * power[j])
        return float(total.ln()) / (order - 1)


@pytest.mark.parametrize(
    ("noise", "rounds", "sampled", "clients"), [(4.0, 20, 10, 1000), (8.0, 50, 10, 100), (6.0, 100, 3, 30)]
)
def test_secret_participants_cost_what_the_theorem_for_a_fixed_number_without_replacement_says(
    noise, rounds, sampled, clients
):
    secret = Privacy("central", noise=noise, participants="secret")
    # Neighbours differ by 2C there. From Rényi divergence to ε: Canonne, Kamath and Steinke, 2020, proposition 12.
    found = min(
        rounds * theorem_27(order, sampled / clients, noise / 2)
        + math.log1p(-1 / order)
        - math.log(secret.delta * order) / (order - 1)
        for order in ORDERS
    )
    value = epsilon(secret, after(rounds, sampled=sampled, clients=clients, most=rounds))
    assert value == pytest.approx(found, rel=1e-6)
    assert value < epsilon(Privacy("central", noise=noise), after(rounds)), "or the test would see the other bound"


def test_clients_that_always_take_part_are_not_hidden_by_sampling():
    secret = Privacy("central", noise=1.1, participants="secret")
    exposure = after(20, sampled=10, clients=1000, most=20)
    assert epsilon(secret, replace(exposure, drawn=False)) == epsilon(CENTRAL, exposure)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"clip": 0.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"noise": -1.0}, "noise"),
        ({"noise": math.nan}, "noise"),
        ({"clip": math.inf}, "clip"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"kind": "local", "participants": "secret"}, "participants"),
    ],
)
def test_what_makes_no_sense_is_named(values, word):
    with pytest.raises(UserError, match=word):
        Privacy(**values)


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"fedpareto\[privacy\]"):
        need_accountant(CENTRAL)
    need_accountant(Privacy())
    need_accountant(Privacy("central", noise=0))
